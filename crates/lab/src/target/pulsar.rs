//! The target `pulsar`: Apache Pulsar's standalone mode as a child JVM, from its published distribution. One
//! process is broker, bookie and metadata store, so a cluster has one broker here.
//!
//! The file of settings is that of the distribution, followed by the lab's settings and those of the workload
//! (`cluster.pulsar`). The settings of Kafka's brokers have no effect. The data of topics is in the bookie,
//! and goes with the cluster's directory.

mod admin;
mod distribution;
mod memory;
mod running;

pub use admin::{
    AdminFailure, InvalidAdminUrl, PartitionStats, PulsarAdmin, StoredLedger, default_admin_url,
};
pub use distribution::{PULSAR_ARTIFACT, PULSAR_VERSION, PulsarDistribution, pulsar_distribution};
pub(super) use memory::NODE_MB_MIN as PULSAR_NODE_MB_MIN;
pub(crate) use memory::PulsarMemory;
pub(super) use running::find;
pub use running::reach;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{
    BrokerNotReady, DirectoryFailed, PropertyOwned, PulsarClusterUnserved, PulsarMemoryTooSmall,
    PulsarPathUnserved, PulsarSecurityUnserved, TargetError,
};
use super::jars::is_collector;
use super::plan::free_ports;
use super::process::Brokers;
use super::security::NegotiatedSecurity;
use super::{Cluster, StartOptions, TargetInfo, launch};
use crate::workload::{ClusterSpec, SecurityProtocol};

/// The name of the target.
const KIND: &str = "pulsar";
/// The name of the only process.
const NODE: &str = "broker-1";
/// The collector instead of the default one, which needs more memory.
const COLLECTOR: &str = "-XX:+UseG1GC";
/// Interval of asking for the broker's health.
const POLL: Duration = Duration::from_millis(200);

/// Settings that the lab makes for each cluster.
const OWNED: [&str; 7] = [
    "advertisedAddress",
    "bindAddress",
    "bookkeeperMetadataServiceUri",
    "brokerServicePort",
    "listeningInterface",
    "metadataStoreUrl",
    "webServicePort",
];

/// The lab's settings: no limit of a backlog, which would stop producers, and no deletion of idle topics.
const SETTINGS: [(&str, &str); 2] =
    [("backlogQuotaDefaultLimitGB", "-1"), ("brokerDeleteInactiveTopicsEnabled", "false")];

/// Settings that decide when a record is acknowledged, whether it is then on the disk, and when that is full.
const FACTS: [&str; 6] = [
    "diskUsageThreshold",
    "journalMaxGroupWaitMSec",
    "journalPageCacheFlushIntervalMSec",
    "journalSyncData",
    "managedLedgerDefaultAckQuorum",
    "managedLedgerDefaultWriteQuorum",
];

/// Starts one broker with its bookie, and returns when it is healthy.
pub(super) async fn start(
    spec: &ClusterSpec,
    options: &StartOptions,
) -> Result<(Cluster, Brokers), TargetError> {
    if spec.brokers != 1 {
        return Err(PulsarClusterUnserved { brokers: spec.brokers }.into());
    }
    let protocol = spec.security.protocol;
    if protocol != SecurityProtocol::Plaintext {
        return Err(PulsarSecurityUnserved { protocol: protocol.name() }.into());
    }
    if let Some(key) = spec.pulsar.keys().find(|key| OWNED.contains(&key.as_str())) {
        return Err(PropertyOwned { table: "cluster.pulsar", key: key.clone() }.into());
    }
    launch::check_limits(spec)?;
    let memory = match spec.node.memory_mb {
        Some(memory_mb) => PulsarMemory::on_node(memory_mb).ok_or(PulsarMemoryTooSmall { memory_mb })?,
        None => PulsarMemory::on_machine(launch::machine_memory_mb()),
    };
    let java = options.kafka.java.clone();
    let found = tokio::task::spawn_blocking(move || pulsar_distribution(java.as_deref())).await;
    let distribution = found.expect("finding files does not panic")?;
    launch::attempt(async || launch(spec, options, &distribution, memory).await).await
}

async fn launch(
    spec: &ClusterSpec,
    options: &StartOptions,
    distribution: &PulsarDistribution,
    memory: PulsarMemory,
) -> Result<(Cluster, Brokers), TargetError> {
    let mut brokers = Brokers::beginning(&options.work_dir, KIND)?;
    let dir = brokers.dir().join(NODE);
    for path in [&dir, &distribution.home, &distribution.java] {
        check_words(path)?;
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DirectoryFailed { path, source }
    };
    std::fs::create_dir_all(dir.join("logs")).map_err(failed(&dir))?;
    let ports = free_ports(3)?;
    let (service, web, bookie) = (ports[0].number(), ports[1].number(), ports[2].number());

    let conf = dir.join("standalone.conf");
    let text = std::fs::read_to_string(distribution.settings()).map_err(failed(&distribution.settings()))?;
    let text = settings_text(text, spec, service, web);
    std::fs::write(&conf, &text).map_err(failed(&conf))?;

    brokers.limit(spec.node)?;
    let jvm = Jvm::new(memory, options, &dir);
    brokers.spawn(NODE, jvm.command(distribution, &conf, &dir, bookie), &dir.join("broker.log"))?;
    let admin_url = format!("http://127.0.0.1:{web}");
    await_health(&brokers, &admin_url, options.start_timeout).await?;
    let held = brokers.hold()?;

    let mut command = vec!["bin/pulsar".to_owned(), "standalone".to_owned()];
    command.extend([jvm.memory.clone(), jvm.collector(), jvm.more.join(" ")]);
    command.retain(|word| !word.is_empty());
    let cluster = Cluster {
        name: KIND.to_owned(),
        bootstrap: vec![format!("pulsar://127.0.0.1:{service}")],
        pulsar_admin: Some(admin_url),
        client_properties: BTreeMap::new(),
        security: Some(NegotiatedSecurity::plaintext()),
        processes: brokers.processes(),
        metrics: BTreeMap::new(),
        data_dir: Some(brokers.dir().to_owned()),
        info: TargetInfo {
            kind: KIND.to_owned(),
            version: format!("Apache Pulsar {}", distribution.version),
            command,
            notes: notes(spec, distribution, &jvm).into_iter().chain(held).collect(),
            facts: facts(&text, distribution, &jvm),
        },
    };
    Ok((cluster, brokers))
}

/// Refuses a path that Pulsar's script would take apart: it has options and programs in one text.
fn check_words(path: &Path) -> Result<(), PulsarPathUnserved> {
    let is_split = |letter: char| letter.is_whitespace() || matches!(letter, '*' | '?' | '[');
    match path.to_string_lossy().contains(is_split) {
        true => Err(PulsarPathUnserved { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// The command line of the JVM, by the variables of Pulsar's script.
struct Jvm {
    memory: String,
    /// The user's options.
    more: Vec<String>,
    temporary: String,
}

impl Jvm {
    fn new(memory: PulsarMemory, options: &StartOptions, dir: &Path) -> Jvm {
        let more = options.kafka.jvm_options.clone();
        Jvm {
            memory: memory.options(std::env::var(memory::VARIABLE).ok(), &more),
            more,
            temporary: format!("-Djava.io.tmpdir={}", dir.display()),
        }
    }

    /// The lab's collector, unless the user chooses one.
    fn collector(&self) -> String {
        if self.more.iter().any(|option| is_collector(option)) { String::new() } else { COLLECTOR.to_owned() }
    }

    fn command(&self, distribution: &PulsarDistribution, conf: &Path, dir: &Path, bookie: u16) -> Command {
        let mut command = Command::new(distribution.script());
        match distribution.java_home() {
            Some(home) => command.env("JAVA_HOME", home),
            None => command.env_remove("JAVA_HOME"),
        };
        // Options may not be empty: the script would take its own.
        let memory = if self.memory.is_empty() { " " } else { &self.memory };
        let collector = match self.collector() {
            none if none.is_empty() => "-XX:+PerfDisableSharedMem".to_owned(),
            collector => collector,
        };
        let more = format!(
            "-Dpulsar.allocator.exit_on_oom=true -Dio.netty.recycler.maxCapacityPerThread=4096 {} {}",
            self.temporary,
            self.more.join(" ")
        );
        command
            .env(memory::VARIABLE, memory)
            .env("PULSAR_GC", collector)
            .env("PULSAR_EXTRA_OPTS", more)
            .env("PULSAR_GC_LOG", " ")
            .env("PULSAR_STANDALONE_CONF", conf)
            .env("PULSAR_LOG_DIR", dir.join("logs"))
            .current_dir(dir)
            .args(["standalone", "-nss", "-nfw", "--bookkeeper-port", &bookie.to_string()])
            .arg("--bookkeeper-dir")
            .arg(dir.join("bookkeeper"))
            .arg("--metadata-dir")
            .arg(dir.join("metadata"));
        command
    }
}

/// The file of settings: later lines win.
fn settings_text(mut text: String, spec: &ClusterSpec, service: u16, web: u16) -> String {
    text.push_str("\n# The lab's settings.\n");
    let own = [
        ("brokerServicePort", service.to_string()),
        ("webServicePort", web.to_string()),
        ("bindAddress", "127.0.0.1".to_owned()),
        ("advertisedAddress", "127.0.0.1".to_owned()),
        ("listeningInterface", "lo".to_owned()),
    ];
    let lab = SETTINGS.map(|(key, value)| (key, value.to_owned()));
    for (key, value) in own.into_iter().chain(lab) {
        text.push_str(&format!("{key}={value}\n"));
    }
    for (key, value) in &spec.pulsar {
        text.push_str(&format!("{key}={}\n", value.replace('\\', "\\\\")));
    }
    text
}

/// The value in force of a setting: the last one.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key)?.trim_start().strip_prefix('=');
    text.lines().rev().find_map(value).map(str::trim)
}

fn notes(spec: &ClusterSpec, distribution: &PulsarDistribution, jvm: &Jvm) -> Vec<String> {
    let list = |settings: &mut dyn Iterator<Item = (&str, &str)>| {
        settings.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    let mut notes = vec!["Standalone: one process is broker, bookie and metadata store".to_owned()];
    if !spec.pulsar.is_empty() {
        let settings = list(&mut spec.pulsar.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        notes.push(format!("Broker settings from the workload: {settings}"));
    }
    notes.push(format!("Broker settings from the lab: {}", list(&mut SETTINGS.into_iter())));
    if !spec.properties.is_empty() {
        let settings = list(&mut spec.properties.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        notes.push(format!("Kafka's broker settings of the workload, not applied: {settings}"));
    }
    let memory = if jvm.memory.is_empty() { "that of --jvm-options" } else { &jvm.memory };
    notes.push(format!("Memory of the JVM: {memory}"));
    let home = distribution.home.display();
    notes.push(format!("{} (17 or later is needed); distribution in {home}", distribution.java_version));
    notes
}

/// The Java and the durability of the cluster, for the facts of a result.
fn facts(text: &str, distribution: &PulsarDistribution, jvm: &Jvm) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([
        ("java".to_owned(), distribution.java.display().to_string()),
        ("java_version".to_owned(), distribution.java_version.clone()),
    ]);
    for key in FACTS {
        if let Some(value) = setting(text, key) {
            facts.insert(key.to_owned(), value.to_owned());
        }
    }
    for (name, value) in [("jvm_memory", jvm.memory.clone()), ("jvm_options", jvm.more.join(" "))] {
        if !value.is_empty() {
            facts.insert(name.to_owned(), value);
        }
    }
    facts
}

/// Waits until the broker says that it is healthy: it has then produced and consumed a message.
async fn await_health(brokers: &Brokers, admin_url: &str, timeout: Duration) -> Result<(), TargetError> {
    let admin = PulsarAdmin::new(admin_url)?;
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(died) = brokers.died() {
            return Err(died.into());
        }
        let Err(failure) = admin.health().await else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(BrokerNotReady {
                bootstrap: admin_url.to_owned(),
                waited: timeout,
                reason: failure.to_string(),
                name: NODE.to_owned(),
                log_tail: brokers.log_tail(NODE),
            }
            .into());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// A program, or its directory's parent if the program is named by a path.
fn home_of(java: &Path) -> Option<PathBuf> {
    java.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(brokers: u32, pulsar: &[(&str, &str)]) -> ClusterSpec {
        let pulsar = pulsar.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ClusterSpec { pulsar, ..ClusterSpec::plaintext(brokers, BTreeMap::new()) }
    }

    #[test]
    fn later_settings_win_and_the_workloads_are_last() {
        let base = "journalSyncData=false\nbrokerServicePort=6650".to_owned();
        let text = settings_text(base, &spec(1, &[("journalSyncData", "true")]), 7001, 7002);
        assert_eq!(setting(&text, "brokerServicePort"), Some("7001"), "the base has no newline at its end");
        assert_eq!(setting(&text, "journalSyncData"), Some("true"));
        assert_eq!(setting(&text, "backlogQuotaDefaultLimitGB"), Some("-1"));
        assert_eq!(setting(&text, "journal"), None);
    }

    #[tokio::test]
    async fn what_the_target_cannot_be_is_refused_before_anything_starts() {
        let work = tempfile::tempdir().expect("a directory");
        let refusal = async |spec: ClusterSpec| {
            start(&spec, &StartOptions::new(work.path())).await.expect_err("a refusal").to_string()
        };
        let text = refusal(spec(3, &[])).await;
        assert!(text.contains("cluster.brokers = 3") && text.contains("--bootstrap pulsar://"), "{text}");
        let text = refusal(spec(1, &[("webServicePort", "1")])).await;
        assert_eq!(text, "cluster.pulsar: webServicePort is set by the lab for each broker; remove it");
        let mut small = spec(1, &[]);
        small.node.memory_mb = Some(512);
        let text = refusal(small).await;
        assert!(text.contains("cluster.node_memory_mb = 512") && text.contains("1024"), "{text}");
        let mut secured = spec(1, &[]);
        secured.security.protocol = SecurityProtocol::Ssl;
        let text = refusal(secured).await;
        assert!(text.contains("SSL") && text.contains("PLAINTEXT"), "{text}");
    }

    #[test]
    fn the_users_collector_takes_the_place_of_the_labs() {
        let mut options = StartOptions::new("/w");
        let memory = PulsarMemory::on_machine(4096);
        let jvm = |options: &StartOptions| Jvm::new(memory, options, Path::new("/d"));
        assert_eq!(jvm(&options).collector(), COLLECTOR);
        options.kafka.jvm_options = vec!["-XX:+UseZGC".to_owned()];
        assert_eq!(jvm(&options).collector(), "");
    }

    #[test]
    fn paths_that_a_shell_takes_apart_are_refused() {
        check_words(Path::new("/opt/apache-pulsar-4.0.8")).expect("one word");
        for path in ["/my runs/pulsar", "/srv/[1]", "/srv/*"] {
            let text = check_words(Path::new(path)).expect_err("several").to_string();
            assert!(text.contains(path) && text.contains("--work-dir"), "{text}");
        }
    }

    #[test]
    fn the_directory_of_java_follows_from_its_program() {
        assert_eq!(home_of(Path::new("/opt/j17/bin/java")), Some(PathBuf::from("/opt/j17")));
        assert_eq!(home_of(Path::new("java")), None);
    }
}
