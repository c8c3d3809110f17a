//! The target `apache-kafka`: 1 to 9 brokers of Apache Kafka as child JVMs, with KRaft. The first of them (one, or three
//! from three brokers on) are controllers too; the others are brokers only.
//!
//! The JVM's options are those of Kafka's own start script, but for the size of the heap, which is the lab's to choose,
//! and the place of temporary files: native libraries that a JVM unpacks stay behind when it is killed, so they lie in
//! the cluster's directory.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::embedded::is_port_taken;
use super::error::{DirectoryFailed, FormatFailed, InvalidBrokers, TargetError};
use super::jars::{KafkaJars, kafka_jars};
use super::process::Brokers;
use super::{BROKERS_MAX, Cluster, StartOptions, ports, properties, readiness};
use crate::result::TargetInfo;
use crate::workload::ClusterSpec;

/// How often a start is tried when somebody takes a port first.
const ATTEMPTS: u32 = 3;

/// Kafka's own options for its server.
const JVM_OPTIONS: [&str; 7] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
];

/// Options for the short life of the formatting tool.
const TOOL_OPTIONS: [&str; 3] = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];

/// Kafka's usual level of logging, to the standard output, which is the broker's log.
const LOGGING: &str = "\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
";

/// Where the brokers are and what each one's file says.
struct Plan {
    /// `host:port` of each broker, the first broker first.
    brokers: Vec<String>,
    /// `id@host:port` of each controller; the first brokers are the controllers.
    voters: Vec<String>,
}

/// Starts it.
pub(super) async fn start(
    spec: &ClusterSpec,
    options: &StartOptions,
) -> Result<(Cluster, Brokers), TargetError> {
    if !(1..=BROKERS_MAX).contains(&spec.brokers) {
        return Err(InvalidBrokers { brokers: spec.brokers }.into());
    }
    let mut settings = properties::merged(&spec.properties, spec.brokers)?;
    // Kafka looks for files of deleted topics half a minute after its start for the first time, unless it is told.
    settings.entry("log.initial.task.delay.ms".to_owned()).or_insert_with(|| "500".to_owned());
    let jars = tokio::task::spawn_blocking(kafka_jars).await.expect("finding jars does not panic")?;
    let mut attempt = 1;
    loop {
        match launch(spec, options, &settings, &jars).await {
            Err(TargetError::BrokerDied(died)) if attempt < ATTEMPTS && is_port_taken(&died.log_tail) => {
                attempt += 1;
            }
            other => return other,
        }
    }
}

async fn launch(
    spec: &ClusterSpec,
    options: &StartOptions,
    settings: &BTreeMap<String, String>,
    jars: &KafkaJars,
) -> Result<(Cluster, Brokers), TargetError> {
    let mut brokers = Brokers::beginning(&options.work_dir, "apache-kafka")?;
    for dir in properties::dirs_elsewhere(&spec.properties, brokers.dir()) {
        brokers.make_dir(dir)?;
    }
    let plan = Plan::new(spec.brokers)?;
    let dirs = plan.write(spec, settings, brokers.dir())?;
    format(&mut brokers, &dirs, jars, options).await?;

    let logging = format!("-Dlog4j2.configurationFile={}", brokers.dir().join("log4j2.properties").display());
    let heap = [format!("-Xms{}m", options.heap_mb), format!("-Xmx{}m", options.heap_mb)];
    for (number, dir) in (1..).zip(&dirs) {
        let mut command = Command::new(&jars.java);
        command.env("CLASSPATH", &jars.classpath).current_dir(dir);
        command
            .args(&heap)
            .args(JVM_OPTIONS)
            .arg(&logging)
            .arg("kafka.Kafka")
            .arg(dir.join("server.properties"));
        brokers.spawn(&format!("broker-{number}"), command, &dir.join("broker.log"))?;
    }
    brokers.set_controllers(plan.voters.len());
    readiness::wait(&brokers, &plan.brokers, options.start_timeout).await?;

    let mut command = vec![jars.java.display().to_string()];
    command.extend(heap);
    command.extend(JVM_OPTIONS.map(str::to_owned));
    command.extend([temporary(&dirs[0]), logging, "kafka.Kafka".to_owned()]);
    command.push(dirs[0].join("server.properties").display().to_string());
    let cluster = Cluster {
        name: "apache-kafka".to_owned(),
        processes: brokers.processes(),
        data_dir: Some(brokers.dir().to_owned()),
        client_properties: BTreeMap::new(),
        info: TargetInfo {
            kind: "apache-kafka".to_owned(),
            version: format!("Apache Kafka {}", jars.kafka_version),
            command,
            notes: plan.notes(spec, settings, jars, options),
        },
        bootstrap: plan.brokers,
    };
    Ok((cluster, brokers))
}

/// Where a broker's JVM has its temporary files.
fn temporary(broker_dir: &Path) -> String {
    format!("-Djava.io.tmpdir={}", broker_dir.display())
}

/// Formats all directories, at the same time.
async fn format(
    brokers: &mut Brokers,
    dirs: &[PathBuf],
    jars: &KafkaJars,
    options: &StartOptions,
) -> Result<(), TargetError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| DirectoryFailed {
        path: PathBuf::from("a random cluster id"),
        source: std::io::Error::other(error.to_string()),
    })?;
    // Kafka's ids do not begin with a dash: its tools would take it for an option.
    id[0] &= 0x7f;
    let cluster_id = URL_SAFE_NO_PAD.encode(id);
    for (number, dir) in (1..).zip(dirs) {
        let mut command = Command::new(&jars.java);
        command.env("CLASSPATH", &jars.classpath).current_dir(dir).args(TOOL_OPTIONS).arg(temporary(dir));
        command.args(["kafka.tools.StorageTool", "format", "--cluster-id", &cluster_id, "--config"]);
        command.arg(dir.join("server.properties"));
        brokers.spawn(&format!("broker-{number}"), command, &dir.join("format.log"))?;
    }
    let done = brokers.complete(options.start_timeout).await;
    done.map_err(|(name, output)| FormatFailed { name, output }.into())
}

impl Plan {
    fn new(count: u32) -> Result<Plan, DirectoryFailed> {
        let controllers = if count >= 3 { 3 } else { 1 };
        let (count, controllers) = (count as usize, controllers as usize);
        let ports = ports::free(count + controllers)
            .map_err(|source| DirectoryFailed { path: PathBuf::from("a port of 127.0.0.1"), source })?;
        let (brokers, voters) = ports.split_at(count);
        Ok(Plan {
            brokers: brokers.iter().map(|port| format!("127.0.0.1:{port}")).collect(),
            voters: (1..).zip(voters).map(|(id, port)| format!("{id}@127.0.0.1:{port}")).collect(),
        })
    }

    /// Writes each broker's directory and properties below `dir`; returns the brokers' directories.
    fn write(
        &self,
        spec: &ClusterSpec,
        settings: &BTreeMap<String, String>,
        dir: &Path,
    ) -> Result<Vec<PathBuf>, DirectoryFailed> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryFailed { path, source }
        };
        let logging = dir.join("log4j2.properties");
        std::fs::write(&logging, LOGGING).map_err(failed(&logging))?;
        let mut dirs = Vec::new();
        for index in 0..self.brokers.len() {
            let broker_dir = dir.join(format!("broker-{}", index + 1));
            let properties = broker_dir.join("server.properties");
            let data = properties::log_dirs(&spec.properties, &broker_dir);
            std::fs::create_dir_all(&broker_dir).map_err(failed(&broker_dir))?;
            let text = properties::text(&self.properties(index, settings, &data));
            std::fs::write(&properties, text).map_err(failed(&properties))?;
            dirs.push(broker_dir);
        }
        Ok(dirs)
    }

    fn properties(
        &self,
        index: usize,
        settings: &BTreeMap<String, String>,
        data: &[PathBuf],
    ) -> BTreeMap<String, String> {
        let mut listeners = format!("PLAINTEXT://{}", self.brokers[index]);
        let mut roles = "broker";
        if let Some((_, address)) = self.voters.get(index).and_then(|voter| voter.split_once('@')) {
            write!(listeners, ",CONTROLLER://{address}").expect("a String takes every text");
            roles = "broker,controller";
        }
        let data: Vec<String> = data.iter().map(|dir| dir.display().to_string()).collect();
        let own = [
            ("process.roles", roles.to_owned()),
            ("node.id", (index + 1).to_string()),
            ("controller.quorum.voters", self.voters.join(",")),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("listeners", listeners),
            ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned()),
            ("log.dirs", data.join(",")),
        ];
        let mut all = settings.clone();
        all.extend(own.map(|(key, value)| (key.to_owned(), value)));
        all
    }

    fn notes(
        &self,
        spec: &ClusterSpec,
        settings: &BTreeMap<String, String>,
        jars: &KafkaJars,
        options: &StartOptions,
    ) -> Vec<String> {
        let mut notes = properties::notes(&spec.properties, settings);
        notes.push(match (self.brokers.len(), self.voters.len()) {
            (1, _) => "KRaft: one process is broker and controller".to_owned(),
            (count, 1) => format!("KRaft: {count} brokers, of which broker 1 is the controller too"),
            (count, controllers) => {
                format!("KRaft: {count} brokers, of which brokers 1 to {controllers} are controllers too")
            }
        });
        notes.push(format!(
            "{}; a heap of {} MB for each broker; jars from {}",
            jars.java_version, options.heap_mb, jars.origin
        ));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(count: u32) -> Plan {
        Plan::new(count).expect("a machine with free ports")
    }

    #[test]
    fn the_first_brokers_are_the_controllers() {
        for (brokers, controllers) in [(1, 1), (2, 1), (3, 3), (9, 3)] {
            let plan = plan(brokers);
            let roles: Vec<String> = (0..plan.brokers.len())
                .map(|index| plan.properties(index, &BTreeMap::new(), &[])["process.roles"].clone())
                .collect();
            let expected: Vec<&str> = (0..brokers)
                .map(|index| if index < controllers { "broker,controller" } else { "broker" })
                .collect();
            assert_eq!(roles, expected);
            assert_eq!(plan.voters.len(), controllers as usize);
        }
    }

    #[test]
    fn a_brokers_file_has_what_the_workload_says() {
        let settings = BTreeMap::from([("num.io.threads".to_owned(), "24".to_owned())]);
        let properties = plan(3).properties(2, &settings, &[PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(properties["node.id"], "3");
        assert_eq!(properties["num.io.threads"], "24");
        assert_eq!(properties["log.dirs"], "/a,/b");
    }

    #[tokio::test]
    async fn a_number_of_brokers_that_cannot_be_is_refused() {
        let work = tempfile::tempdir().expect("a directory");
        for brokers in [0, 10] {
            let spec = ClusterSpec { brokers, properties: BTreeMap::new() };
            let error = start(&spec, &StartOptions::new(work.path())).await.expect_err("a refusal");
            assert_eq!(
                error.to_string(),
                format!("cluster.brokers = {brokers}: 1 to 9 would be right for brokers that the lab starts")
            );
        }
    }
}
