//! Targets: the measured systems. Targets started by the lab run as child processes on free loopback ports,
//! in their own directory, and end with the lab, even if the lab is killed.

mod apache_kafka;
mod bootstrap;
mod embedded;
mod error;
mod guard;
mod jars;
mod launch;
mod local;
mod plan;
mod process;
mod properties;
mod pulsar;
mod readiness;
mod security;

pub use bootstrap::{connect, reach};
pub use error::{
    BrokerDied, BrokerNotReady, ConnectError, DirectoryFailed, FormatFailed, InvalidBrokers, JarsNotFetched,
    JavaMissing, JavaTooNew, JavaTooOld, JavaWithoutHome, LimitsExceeded, MavenMissing, NoControlGroups,
    NotStarted, PortTaken, PropertyOwned, PulsarClusterUnserved, PulsarMemoryTooSmall, PulsarMissing,
    PulsarPathUnserved, PulsarSecurityUnserved, TargetError, TooFewBrokers, ZooKeeperLoginsUnserved,
};
pub(crate) use jars::add_jvm_options;
pub use jars::{KafkaJars, KafkaOptions, KafkaVersion, kafka_jars};
pub use local::{ControllerKind, LocalCluster, LocalNode, LocalOptions};
pub use plan::Software;
pub(crate) use pulsar::PulsarMemory;
pub use pulsar::{
    AdminFailure, InvalidAdminUrl, PULSAR_ARTIFACT, PULSAR_VERSION, PartitionStats, PulsarAdmin,
    PulsarDistribution, StoredLedger, default_admin_url, pulsar_distribution,
};
pub use security::NegotiatedSecurity;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::workload::{ClusterSpec, TargetName};
use process::Brokers;

/// Maximum number of brokers that the lab starts on one machine.
pub const BROKERS_MAX: u32 = 9;

/// The release of Apache Kafka that the lab fetches by default.
pub const KAFKA_VERSION: &str = "4.3.1";

/// A system to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// Brokers of this binary.
    Embedded,
    /// Apache Kafka, from its published jars.
    ApacheKafka,
    /// Apache Pulsar, from its published distribution.
    Pulsar,
    /// A running cluster.
    Bootstrap {
        /// The bootstrap servers, `host:port`.
        servers: Vec<String>,
        /// Properties for all clients, such as those for TLS and SASL.
        properties: BTreeMap<String, String>,
    },
    /// A running cluster of Apache Pulsar.
    PulsarCluster {
        /// The service URL, `pulsar://host:port`.
        service_url: String,
        /// The URL of the admin API, `http://host:port`.
        admin_url: String,
    },
}

impl From<TargetName> for TargetSpec {
    fn from(name: TargetName) -> TargetSpec {
        match name {
            TargetName::Embedded => TargetSpec::Embedded,
            TargetName::ApacheKafka => TargetSpec::ApacheKafka,
            TargetName::Pulsar => TargetSpec::Pulsar,
        }
    }
}

impl TargetSpec {
    /// True if the lab starts the brokers of this target.
    pub fn is_started_by_lab(&self) -> bool {
        !matches!(self, TargetSpec::Bootstrap { .. } | TargetSpec::PulsarCluster { .. })
    }

    /// True if the target speaks Pulsar's protocol instead of Kafka's.
    pub fn is_pulsar(&self) -> bool {
        matches!(self, TargetSpec::Pulsar | TargetSpec::PulsarCluster { .. })
    }
}

/// The description of a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// `embedded`, `apache-kafka`, `pulsar`, `bootstrap`, or `none` without a cluster.
    pub kind: String,
    /// The target's name and version, if known.
    pub version: String,
    /// The start options of the brokers, such as heap and flags; empty for a running cluster.
    pub command: Vec<String>,
    /// Notes for readers.
    pub notes: Vec<String>,
    /// Further facts by name, such as the Java of the brokers, or the release of each of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// A running target, for points of one [`crate::workload::ClusterSpec`].
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The name in the result: `embedded`, `apache-kafka`, `pulsar`, or the first bootstrap server.
    pub name: String,
    /// The bootstrap servers, `host:port`; of a Pulsar cluster the service URL, `pulsar://host:port`.
    pub bootstrap: Vec<String>,
    /// The URL of the admin API of a Pulsar cluster; `None` for Kafka's protocol.
    pub pulsar_admin: Option<String>,
    /// Properties for all clients.
    pub client_properties: BTreeMap<String, String>,
    /// The negotiated security of clients; `None` without a cluster.
    pub security: Option<NegotiatedSecurity>,
    /// The brokers' processes by name (`broker-1`); empty if they are not on this machine.
    pub processes: Vec<(String, u32)>,
    /// The addresses of the metrics of Thalweg's brokers, `host:port`, by the brokers' names; empty unless
    /// [`StartOptions::has_metrics`] is set.
    pub metrics: BTreeMap<String, String>,
    /// The data directory; `None` if it is not on this machine.
    pub data_dir: Option<PathBuf>,
    /// The target's description.
    pub info: TargetInfo,
}

/// Options for starting and stopping brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartOptions {
    /// The parent of clusters' directories, which are removed with their cluster. Created if missing.
    pub work_dir: PathBuf,
    /// The heap of each broker of Apache Kafka, in MiB.
    pub heap_mb: u32,
    /// The release of Apache Kafka, and Java and JVM options of Apache Kafka and Apache Pulsar.
    pub kafka: KafkaOptions,
    /// The binary of embedded brokers; `None` for the current program.
    pub binary: Option<PathBuf>,
    /// True if embedded brokers serve their metrics on loopback.
    pub has_metrics: bool,
    /// Maximum time for brokers to become ready.
    pub start_timeout: Duration,
}

impl StartOptions {
    /// The default options, with clusters below `work_dir`.
    pub fn new(work_dir: impl Into<PathBuf>) -> StartOptions {
        StartOptions {
            work_dir: work_dir.into(),
            heap_mb: 1024,
            kafka: KafkaOptions::default(),
            binary: None,
            has_metrics: false,
            start_timeout: Duration::from_secs(120),
        }
    }
}

/// A running cluster. Dropping it kills the brokers that it started and removes their directories.
#[derive(Debug)]
pub struct RunningCluster {
    cluster: Cluster,
    brokers: Brokers,
}

impl RunningCluster {
    /// No cluster, for streams in memory.
    fn none() -> RunningCluster {
        let info = TargetInfo {
            kind: "none".to_owned(),
            version: "no cluster".to_owned(),
            command: Vec::new(),
            notes: vec!["Streams in memory, without a broker.".to_owned()],
            facts: BTreeMap::new(),
        };
        let cluster = Cluster {
            name: "in memory".to_owned(),
            bootstrap: Vec::new(),
            pulsar_admin: None,
            client_properties: BTreeMap::new(),
            security: None,
            processes: Vec::new(),
            metrics: BTreeMap::new(),
            data_dir: None,
            info,
        };
        RunningCluster { cluster, brokers: Brokers::none() }
    }

    /// The cluster's address and description.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A broker that exited unexpectedly, and the tail of its log; `None` while all run, and for clusters
    /// that the lab did not start.
    pub fn died(&self) -> Option<String> {
        self.brokers.died().map(|died| died.to_string())
    }

    /// Kills the brokers, whose data is not needed, and removes their directories. Returns the brokers that
    /// had exited unexpectedly, as text.
    pub fn stop(mut self) -> Vec<String> {
        self.brokers.discard()
    }
}

fn check_brokers(brokers: u32) -> Result<(), InvalidBrokers> {
    if (1..=BROKERS_MAX).contains(&brokers) { Ok(()) } else { Err(InvalidBrokers { brokers }) }
}

/// A note about the options of a JVM for brokers that have none, or that are as they are.
fn unused_jvm_options(spec: &ClusterSpec) -> Option<String> {
    let options = spec.jvm_options.join(" ");
    (!options.is_empty()).then(|| format!("JVM options of the workload, not applied: {options}"))
}

/// Starts a target, or connects to it, and returns when all brokers are ready.
pub async fn start(
    target: &TargetSpec,
    cluster: &ClusterSpec,
    options: &StartOptions,
) -> Result<RunningCluster, TargetError> {
    if cluster.brokers == 0 {
        return Ok(RunningCluster::none());
    }
    let mut options = options.clone();
    add_jvm_options(&mut options.kafka.jvm_options, &cluster.jvm_options);
    let options = &options;
    let (cluster, brokers) = match target {
        TargetSpec::Embedded => embedded::start(cluster, options).await?,
        TargetSpec::ApacheKafka => apache_kafka::start(cluster, options).await?,
        TargetSpec::Pulsar => pulsar::start(cluster, options).await?,
        TargetSpec::Bootstrap { servers, properties } => {
            (bootstrap::find(servers, properties, cluster).await?, Brokers::none())
        }
        TargetSpec::PulsarCluster { service_url, admin_url } => {
            (pulsar::find(service_url, admin_url, cluster).await?, Brokers::none())
        }
    };
    Ok(RunningCluster { cluster, brokers })
}
