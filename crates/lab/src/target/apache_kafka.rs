//! The target `apache-kafka`: 1 to 9 brokers of Apache Kafka as child JVMs, with KRaft. The first of them (one, or three
//! from three brokers on) are controllers too; the others are brokers only.
//!
//! The JVM's options are those of Kafka's own start script, but for the size of the heap, which is the lab's to choose,
//! and the place of temporary files: native libraries that a JVM unpacks stay behind when it is killed, so they lie in
//! the cluster's directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::TargetInfo;
use super::error::{DirectoryFailed, FormatFailed, TargetError};
use super::jars::{KafkaJars, kafka_jars};
use super::plan::{Node, Plan, Software};
use super::process::Brokers;
use super::{Cluster, StartOptions, check_brokers, launch, properties, readiness};
use crate::workload::ClusterSpec;

/// What the target is called.
const KIND: &str = "apache-kafka";

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

/// Starts it.
pub(super) async fn start(
    spec: &ClusterSpec,
    options: &StartOptions,
) -> Result<(Cluster, Brokers), TargetError> {
    check_brokers(spec.brokers)?;
    let mut settings = properties::merged(&spec.properties, spec.brokers)?;
    // Kafka looks for files of deleted topics half a minute after its start for the first time, unless it is told.
    settings.entry("log.initial.task.delay.ms".to_owned()).or_insert_with(|| "500".to_owned());
    let jars = find_jars().await?;
    launch::attempt(async || launch(spec, options, &settings, &jars).await).await
}

/// Finds the jars, or fetches them.
pub(super) async fn find_jars() -> Result<KafkaJars, TargetError> {
    tokio::task::spawn_blocking(kafka_jars).await.expect("finding jars does not panic")
}

async fn launch(
    spec: &ClusterSpec,
    options: &StartOptions,
    settings: &BTreeMap<String, String>,
    jars: &KafkaJars,
) -> Result<(Cluster, Brokers), TargetError> {
    let controllers = if spec.brokers >= 3 { 3 } else { 1 };
    let (mut brokers, plan) =
        launch::lay_out(KIND, Software::ApacheKafka, controllers, spec, settings, options)?;
    let jvm = Jvm::new(jars, options.heap_mb, brokers.dir())?;
    format(&mut brokers, &plan.nodes, None, jars, options.start_timeout).await?;
    for node in &plan.nodes {
        brokers.spawn(&node.name(), jvm.command(node), &node.dir.join("broker.log"))?;
    }
    brokers.set_controllers(plan.controllers());
    readiness::wait(&brokers, &plan, options.start_timeout).await?;

    let first = &plan.nodes[0];
    let mut command = vec![jars.java.display().to_string()];
    command.extend(jvm.options());
    command.extend([temporary(&first.dir), jvm.logging.clone(), "kafka.Kafka".to_owned()]);
    command.push(first.properties_file().display().to_string());
    let cluster = Cluster {
        name: KIND.to_owned(),
        processes: brokers.processes(),
        data_dir: Some(brokers.dir().to_owned()),
        client_properties: BTreeMap::new(),
        info: TargetInfo {
            kind: KIND.to_owned(),
            version: format!("Apache Kafka {}", jars.kafka_version),
            command,
            notes: notes(&plan, spec, settings, jars, options),
        },
        bootstrap: plan.bootstrap(),
    };
    Ok((cluster, brokers))
}

/// How JVMs of Kafka are started.
pub(super) struct Jvm<'a> {
    jars: &'a KafkaJars,
    heap_mb: u32,
    /// The option that names the file for logging.
    logging: String,
}

impl<'a> Jvm<'a> {
    /// With a heap of this size each, and a file for logging in `dir`.
    pub fn new(jars: &'a KafkaJars, heap_mb: u32, dir: &Path) -> Result<Jvm<'a>, DirectoryFailed> {
        let path = dir.join("log4j2.properties");
        let logging = format!("-Dlog4j2.configurationFile={}", path.display());
        std::fs::write(&path, LOGGING).map_err(|source| DirectoryFailed { path, source })?;
        Ok(Jvm { jars, heap_mb, logging })
    }

    fn options(&self) -> Vec<String> {
        let heap = [format!("-Xms{}m", self.heap_mb), format!("-Xmx{}m", self.heap_mb)];
        heap.into_iter().chain(JVM_OPTIONS.map(str::to_owned)).collect()
    }

    /// The process of a node.
    pub fn command(&self, node: &Node) -> Command {
        let mut command = Command::new(&self.jars.java);
        command.env("CLASSPATH", &self.jars.classpath).current_dir(&node.dir);
        command.args(self.options()).arg(&self.logging).arg("kafka.Kafka").arg(node.properties_file());
        command
    }
}

/// Where a broker's JVM has its temporary files.
fn temporary(broker_dir: &Path) -> String {
    format!("-Djava.io.tmpdir={}", broker_dir.display())
}

/// Formats the directories of nodes, all at the same time, for this cluster or a new one.
pub(super) async fn format(
    brokers: &mut Brokers,
    nodes: &[Node],
    cluster_id: Option<String>,
    jars: &KafkaJars,
    timeout: Duration,
) -> Result<(), TargetError> {
    let cluster_id = match cluster_id {
        Some(id) => id,
        None => new_cluster_id()?,
    };
    for node in nodes {
        let mut command = Command::new(&jars.java);
        command.env("CLASSPATH", &jars.classpath).current_dir(&node.dir);
        command.args(TOOL_OPTIONS).arg(temporary(&node.dir));
        command.args(["kafka.tools.StorageTool", "format", "--cluster-id", &cluster_id, "--config"]);
        command.arg(node.properties_file());
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
    // Kafka's ids do not begin with a dash: its tools would take it for an option.
    id[0] &= 0x7f;
    Ok(URL_SAFE_NO_PAD.encode(id))
}

fn notes(
    plan: &Plan,
    spec: &ClusterSpec,
    settings: &BTreeMap<String, String>,
    jars: &KafkaJars,
    options: &StartOptions,
) -> Vec<String> {
    let mut notes = properties::notes(&spec.properties, settings);
    notes.push(match (plan.nodes.len(), plan.controllers()) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
