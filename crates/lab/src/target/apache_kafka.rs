//! The target `apache-kafka`: 1 to 9 brokers of Apache Kafka as child JVMs, with KRaft. The first (one, or
//! three from three brokers on) are also controllers. Releases before 3.3.0 have one ZooKeeper instead, from
//! their own jars.
//!
//! The JVM's options are those of Kafka's start script, except for the heap size, which is an option of the
//! lab, and the directory of temporary files: native libraries unpacked by a killed JVM are not removed, so
//! they go to the cluster's directory. The user's JVM options follow; a JVM takes only one collector, so the
//! user's takes the place of Kafka's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::TargetInfo;
use super::error::{DirectoryFailed, FormatFailed, TargetError, ZooKeeperLoginsUnserved};
use super::jars::{KafkaJars, KafkaOptions, is_collector, kafka_jars};
use super::plan::{Controllers, Node, Plan, Software};
use super::process::Brokers;
use super::{Cluster, StartOptions, check_brokers, launch, properties, readiness};
use crate::workload::ClusterSpec;

/// The name of the target.
const KIND: &str = "apache-kafka";

/// The collector of Kafka's start script.
const COLLECTOR: &str = "-XX:+UseG1GC";

/// Kafka's default JVM options for its server.
const JVM_OPTIONS: [&str; 7] = [
    "-server",
    COLLECTOR,
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
];

/// The heap of ZooKeeper in MiB: that of Kafka's start script.
const ZOOKEEPER_HEAP_MB: u32 = 512;

/// Minimum heap in MiB for Kafka to start.
const HEAP_MB_MIN: u32 = 192;

/// JVM options for the short-lived formatting tool.
const TOOL_OPTIONS: [&str; 3] = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// Kafka's default log level, to standard output, which is the broker's log.
const LOGGING: &str = "\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
";

/// The same for releases with the first version of the logging framework.
const LOGGING_1: &str = "\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
";

/// Starts a cluster of Apache Kafka.
pub(super) async fn start(
    spec: &ClusterSpec,
    options: &StartOptions,
) -> Result<(Cluster, Brokers), TargetError> {
    check_brokers(spec.brokers)?;
    let mut settings = properties::merged(&spec.properties, spec.brokers)?;
    // By default, Kafka first removes files of deleted topics half a minute after its start.
    settings.entry("log.initial.task.delay.ms".to_owned()).or_insert_with(|| "500".to_owned());
    let jars = find_jars(&options.kafka).await?;
    launch::attempt(async || launch(spec, options, &settings, &jars).await).await
}

/// Finds or fetches the jars.
pub(super) async fn find_jars(options: &KafkaOptions) -> Result<KafkaJars, TargetError> {
    let options = options.clone();
    let found = tokio::task::spawn_blocking(move || kafka_jars(&options)).await;
    found.expect("finding jars does not panic")
}

async fn launch(
    spec: &ClusterSpec,
    options: &StartOptions,
    settings: &BTreeMap<String, String>,
    jars: &KafkaJars,
) -> Result<(Cluster, Brokers), TargetError> {
    let has_zookeeper = jars.release.has_zookeeper();
    if has_zookeeper && spec.security.protocol.has_sasl() {
        return Err(ZooKeeperLoginsUnserved { release: jars.release.to_string() }.into());
    }
    let controllers = match (has_zookeeper, spec.brokers) {
        (true, _) => Controllers::ZooKeeper,
        (false, 3..) => Controllers::Brokers(3),
        (false, _) => Controllers::Brokers(1),
    };
    let (mut brokers, plan, secured) =
        launch::lay_out(KIND, Software::ApacheKafka, controllers, spec, settings, options)?;
    let jvm = Jvm {
        processors: processors(spec),
        more: options.kafka.jvm_options.clone(),
        ..Jvm::new(jars, heap_mb(spec, options), brokers.dir())?
    };
    if !has_zookeeper {
        let format_options = FormatOptions { id: None, first_user: secured.first_user.as_deref() };
        format(&mut brokers, &plan.nodes, format_options, jars, options.start_timeout).await?;
    }
    for node in plan.nodes.iter().filter(|node| node.software == Software::ZooKeeper) {
        let jvm = Jvm::new(jars, ZOOKEEPER_HEAP_MB, brokers.dir())?;
        brokers.spawn(&node.name(), jvm.command(node), &node.dir.join("zookeeper.log"))?;
    }
    brokers.limit(spec.node)?;
    for node in plan.nodes.iter().filter(|node| node.software == Software::ApacheKafka) {
        brokers.spawn(&node.name(), jvm.command(node), &node.dir.join("broker.log"))?;
    }
    brokers.set_controllers(plan.controllers());
    let negotiated = readiness::wait(&brokers, &plan, &secured.client, options.start_timeout).await?;

    let held = brokers.hold()?;

    let heap = (!sets_heap(&options.kafka.jvm_options)).then(|| heap_mb(spec, options));
    let first = plan.nodes.iter().find(|node| node.broker.is_some()).expect("a cluster has a broker");
    let mut command = vec![jars.java.display().to_string()];
    command.extend(jvm.options());
    command.extend([temporary(&first.dir), jvm.logging.clone(), "kafka.Kafka".to_owned()]);
    command.push(first.properties_file().display().to_string());
    let cluster = Cluster {
        name: KIND.to_owned(),
        processes: brokers.processes(),
        metrics: BTreeMap::new(),
        data_dir: Some(brokers.dir().to_owned()),
        client_properties: secured.client,
        security: Some(negotiated),
        info: TargetInfo {
            kind: KIND.to_owned(),
            version: format!("Apache Kafka {}", jars.kafka_version),
            command,
            notes: notes(&plan, spec, settings, jars, heap).into_iter().chain(held).collect(),
            facts: facts(jars, &options.kafka),
        },
        bootstrap: plan.bootstrap(),
        pulsar_admin: None,
    };
    Ok((cluster, brokers))
}

/// Command lines of Kafka's JVMs.
pub(super) struct Jvm<'a> {
    jars: &'a KafkaJars,
    heap_mb: u32,
    /// The processors that a JVM assumes; `None` to let it detect them.
    processors: Option<u32>,
    /// The user's options.
    more: Vec<String>,
    /// The option for the logging configuration.
    logging: String,
}

impl<'a> Jvm<'a> {
    /// Command lines with this heap size, and a logging configuration in `dir`.
    pub fn new(jars: &'a KafkaJars, heap_mb: u32, dir: &Path) -> Result<Jvm<'a>, DirectoryFailed> {
        let (name, text) = match jars.release.has_log4j_2() {
            true => ("log4j2.properties", LOGGING),
            false => ("log4j.properties", LOGGING_1),
        };
        let path = dir.join(name);
        let logging = match jars.release.has_log4j_2() {
            true => format!("-Dlog4j2.configurationFile={}", path.display()),
            false => format!("-Dlog4j.configuration=file:{}", path.display()),
        };
        std::fs::write(&path, text).map_err(|source| DirectoryFailed { path, source })?;
        Ok(Jvm { jars, heap_mb, processors: None, more: Vec::new(), logging })
    }

    fn options(&self) -> Vec<String> {
        let heap = match sets_heap(&self.more) {
            true => Vec::new(),
            false => vec![format!("-Xms{}m", self.heap_mb), format!("-Xmx{}m", self.heap_mb)],
        };
        let processors = self.processors.map(|count| format!("-XX:ActiveProcessorCount={count}"));
        let has_collector = self.more.iter().any(|option| is_collector(option));
        let usual = JVM_OPTIONS.into_iter().filter(|option| !(has_collector && *option == COLLECTOR));
        let usual = usual.map(str::to_owned);
        heap.into_iter().chain(usual).chain(processors).chain(self.more.iter().cloned()).collect()
    }

    /// The command of a node.
    pub fn command(&self, node: &Node) -> Command {
        let mut command = Command::new(&self.jars.java);
        command.env("CLASSPATH", &self.jars.classpath).current_dir(&node.dir);
        let class = match node.software {
            Software::ZooKeeper => "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            Software::ApacheKafka | Software::Thalweg => "kafka.Kafka",
        };
        command.args(self.options()).arg(&self.logging).arg(class).arg(node.properties_file());
        command
    }
}

/// True if options set the size of the heap: the lab's sizes would contradict theirs.
pub(super) fn sets_heap(options: &[String]) -> bool {
    options.iter().any(|option| option.starts_with("-Xmx") || option.starts_with("-Xms"))
}

/// The Java of the brokers, for the facts of a result.
fn facts(jars: &KafkaJars, options: &KafkaOptions) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([
        ("java".to_owned(), jars.java.display().to_string()),
        ("java_version".to_owned(), jars.java_version.clone()),
    ]);
    if !options.jvm_options.is_empty() {
        facts.insert("jvm_options".to_owned(), options.jvm_options.join(" "));
    }
    facts
}

/// The heap of a node: with limited memory a quarter, a JVM's own default; the rest is for threads and cached
/// pages.
fn heap_mb(spec: &ClusterSpec, options: &StartOptions) -> u32 {
    match spec.node.memory_mb {
        Some(memory_mb) => options.heap_mb.min((memory_mb / 4).max(HEAP_MB_MIN)),
        None => options.heap_mb,
    }
}

/// The processors of a limited node, rounded up, as a JVM counts them. A node below one processor gets a
/// whole one until it is ready, so that a JVM would count one, too; the option also fixes the number for
/// later.
fn processors(spec: &ClusterSpec) -> Option<u32> {
    spec.node.cpu_millis.map(|millis| millis.div_ceil(1000))
}

/// The temporary directory of a broker's JVM.
fn temporary(broker_dir: &Path) -> String {
    format!("-Djava.io.tmpdir={}", broker_dir.display())
}

/// Options of formatting the directories of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct FormatOptions<'a> {
    /// The cluster id; `None` for a new one.
    pub id: Option<String>,
    /// The first user of the cluster, in the format of `--add-scram`.
    pub first_user: Option<&'a str>,
}

/// Formats the directories of nodes in parallel.
pub(super) async fn format(
    brokers: &mut Brokers,
    nodes: &[Node],
    options: FormatOptions<'_>,
    jars: &KafkaJars,
    timeout: Duration,
) -> Result<(), TargetError> {
    let cluster_id = match options.id {
        Some(id) => id,
        None => new_cluster_id()?,
    };
    for node in nodes {
        let mut command = Command::new(&jars.java);
        command.env("CLASSPATH", &jars.classpath).current_dir(&node.dir);
        command.args(TOOL_OPTIONS).arg(temporary(&node.dir));
        command.args(["kafka.tools.StorageTool", "format", "--cluster-id", &cluster_id, "--config"]);
        command.arg(node.properties_file());
        if let Some(user) = options.first_user {
            command.args(["--add-scram", user]);
        }
        brokers.spawn(&node.name(), command, &node.dir.join("format.log"))?;
    }
    let done = brokers.complete(timeout).await;
    done.map_err(|(name, output)| FormatFailed { name, output }.into())
}

fn new_cluster_id() -> Result<String, DirectoryFailed> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| DirectoryFailed {
        path: PathBuf::from("a random cluster id"),
        source: std::io::Error::other(error.to_string()),
    })?;
    // The id must not begin with a dash, which Kafka's tools would read as an option.
    id[0] &= 0x7f;
    Ok(URL_SAFE_NO_PAD.encode(id))
}

fn notes(
    plan: &Plan,
    spec: &ClusterSpec,
    settings: &BTreeMap<String, String>,
    jars: &KafkaJars,
    heap_mb: Option<u32>,
) -> Vec<String> {
    let mut notes = properties::notes(&spec.properties, settings);
    let has_zookeeper = plan.nodes.iter().any(|node| node.software == Software::ZooKeeper);
    notes.push(match (plan.nodes.len(), plan.controllers()) {
        _ if has_zookeeper => "ZooKeeper: one process, which counts as a process of the cluster".to_owned(),
        (1, _) => "KRaft: one process is broker and controller".to_owned(),
        (count, 1) => format!("KRaft: {count} brokers; broker 1 is also the controller"),
        (count, controllers) => {
            format!("KRaft: {count} brokers; brokers 1 to {controllers} are also controllers")
        }
    });
    let heap = match heap_mb {
        Some(heap_mb) => format!("a heap of {heap_mb} MB per broker"),
        None => "the heap of --jvm-options".to_owned(),
    };
    notes.push(format!("{}; {heap}; jars from {}", jars.java_version, jars.origin));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jars(version: &str) -> KafkaJars {
        KafkaJars {
            java: "/opt/java/bin/java".into(),
            java_version: "openjdk version \"25\"".to_owned(),
            classpath: "x.jar".to_owned(),
            kafka_version: version.to_owned(),
            release: version.parse().expect("a release"),
            origin: "a test".to_owned(),
        }
    }

    #[test]
    fn the_users_options_follow_and_their_collector_takes_the_place_of_kafkas() {
        let (dir, jars) = (tempfile::tempdir().expect("a directory"), jars("4.3.1"));
        let options = |more: &[&str]| {
            let more = more.iter().map(|&option| option.to_owned()).collect();
            Jvm { more, ..Jvm::new(&jars, 512, dir.path()).expect("written") }.options()
        };
        assert!(options(&[]).starts_with(&["-Xms512m".to_owned(), "-Xmx512m".to_owned()]));
        assert!(options(&[]).contains(&COLLECTOR.to_owned()));
        let larger = options(&["-Xmx2g", "-XX:+UseStringDeduplication"]);
        assert!(larger.ends_with(&["-Xmx2g".to_owned(), "-XX:+UseStringDeduplication".to_owned()]));
        assert!(larger.contains(&COLLECTOR.to_owned()) && !larger.contains(&"-Xms512m".to_owned()));
        let other = options(&["-XX:+UseZGC"]);
        assert!(!other.contains(&COLLECTOR.to_owned()) && other.contains(&"-XX:+UseZGC".to_owned()));
    }

    #[test]
    fn a_result_has_the_java_of_its_brokers() {
        let options = KafkaOptions { jvm_options: vec!["-Xmx2g".to_owned()], ..KafkaOptions::default() };
        let facts = facts(&jars("4.3.1"), &options);
        let expected = [
            ("java", "/opt/java/bin/java"),
            ("java_version", "openjdk version \"25\""),
            ("jvm_options", "-Xmx2g"),
        ];
        assert_eq!(facts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn the_logging_of_a_release_is_configured_in_its_format() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |version: &str| Jvm::new(&jars(version), 512, dir.path()).expect("written").logging;
        assert!(of("4.0.0").starts_with("-Dlog4j2.configurationFile=/"));
        assert!(of("3.9.1").starts_with("-Dlog4j.configuration=file:/"));
        assert!(dir.path().join("log4j.properties").exists());
    }

    #[tokio::test]
    async fn a_number_of_brokers_that_cannot_be_is_refused() {
        let work = tempfile::tempdir().expect("a directory");
        for brokers in [0, 10] {
            let spec = ClusterSpec::plaintext(brokers, BTreeMap::new());
            let error = start(&spec, &StartOptions::new(work.path())).await.expect_err("a refusal");
            assert_eq!(
                error.to_string(),
                format!("cluster.brokers = {brokers}: use 1 to 9 for brokers that the lab starts")
            );
        }
    }
}
