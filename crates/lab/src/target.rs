//! Targets: the systems that are measured. Those that the lab starts run as child processes on free ports of the loopback
//! interface, in a directory of their own, and end with the lab, however it ends.

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
mod readiness;

pub use bootstrap::connect;
pub use error::{
    BrokerDied, BrokerNotReady, ConnectError, DirectoryFailed, FormatFailed, InvalidBrokers, JarsNotFetched,
    JavaMissing, JavaTooOld, MavenMissing, NotStarted, PortTaken, PropertyOwned, TargetError, TooFewBrokers,
};
pub use jars::{KAFKA_VERSION, KafkaJars, kafka_jars};
pub use local::{ControllerKind, LocalCluster, LocalNode, LocalOptions};
pub use plan::Software;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::workload::ClusterSpec;
use process::Brokers;

/// The most brokers that the lab starts on one machine.
pub const BROKERS_MAX: u32 = 9;

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// Brokers of this binary.
    Embedded,
    /// Apache Kafka, from its published jars.
    ApacheKafka,
    /// A cluster that runs already.
    Bootstrap {
        /// Where to connect first, `host:port`.
        servers: Vec<String>,
        /// Properties for every client of it, such as those of TLS and SASL.
        properties: BTreeMap<String, String>,
    },
}

/// A system that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// `embedded`, `apache-kafka`, `bootstrap`, or `none` where there is no cluster.
    pub kind: String,
    /// Its name and version, as far as it tells.
    pub version: String,
    /// How the brokers were started, such as heap and flags; empty where the lab did not start them.
    pub command: Vec<String>,
    /// What else a reader must know, for people.
    pub notes: Vec<String>,
}

/// A cluster that runs, for points of one [`crate::workload::ClusterSpec`].
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The target's name in the result: `embedded`, `apache-kafka`, or the first server of a bootstrap list.
    pub name: String,
    /// Where to connect first, `host:port`.
    pub bootstrap: Vec<String>,
    /// Properties for every client of it.
    pub client_properties: BTreeMap<String, String>,
    /// The brokers' processes, by name (`broker-1`); empty where they are not on this machine.
    pub processes: Vec<(String, u32)>,
    /// Where their data is; none where it is not on this machine.
    pub data_dir: Option<PathBuf>,
    /// What it is.
    pub info: TargetInfo,
}

/// How brokers are started and stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartOptions {
    /// Where each cluster gets a directory of its own, which is removed with it. Made when it is not there.
    pub work_dir: PathBuf,
    /// The heap of each broker that is a JVM.
    pub heap_mb: u32,
    /// The binary of embedded brokers; none for the one that runs.
    pub binary: Option<PathBuf>,
    /// How long brokers may take until they serve.
    pub start_timeout: Duration,
}

impl StartOptions {
    /// The usual options, with clusters below `work_dir`.
    pub fn new(work_dir: impl Into<PathBuf>) -> StartOptions {
        StartOptions {
            work_dir: work_dir.into(),
            heap_mb: 1024,
            binary: None,
            start_timeout: Duration::from_secs(120),
        }
    }
}

/// A cluster that runs. Dropped, it kills the brokers that it started and removes their directories.
#[derive(Debug)]
pub struct RunningCluster {
    cluster: Cluster,
    brokers: Brokers,
}

impl RunningCluster {
    /// No cluster, for what runs in memory.
    fn none() -> RunningCluster {
        let info = TargetInfo {
            kind: "none".to_owned(),
            version: "no cluster".to_owned(),
            command: Vec::new(),
            notes: vec!["Streams in memory: no broker had a part in it.".to_owned()],
        };
        let cluster = Cluster {
            name: "in memory".to_owned(),
            bootstrap: Vec::new(),
            client_properties: BTreeMap::new(),
            processes: Vec::new(),
            data_dir: None,
            info,
        };
        RunningCluster { cluster, brokers: Brokers::none() }
    }

    /// Where it is and what it is.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Which broker has ended by itself, and the tail of its log; none while all run, and for clusters that the lab did
    /// not start.
    pub fn died(&self) -> Option<String> {
        self.brokers.died().map(|died| died.to_string())
    }

    /// Ends the brokers and removes their directories: nobody wants their data, so they are killed and not waited for.
    /// Which of them had ended by itself comes back, for people.
    pub fn stop(mut self) -> Vec<String> {
        self.brokers.discard()
    }
}

fn check_brokers(brokers: u32) -> Result<(), InvalidBrokers> {
    if (1..=BROKERS_MAX).contains(&brokers) { Ok(()) } else { Err(InvalidBrokers { brokers }) }
}

/// Starts a target, or connects to it, and returns when all its brokers serve.
pub async fn start(
    target: &TargetSpec,
    cluster: &ClusterSpec,
    options: &StartOptions,
) -> Result<RunningCluster, TargetError> {
    if cluster.brokers == 0 {
        return Ok(RunningCluster::none());
    }
    let (cluster, brokers) = match target {
        TargetSpec::Embedded => embedded::start(cluster, options).await?,
        TargetSpec::ApacheKafka => apache_kafka::start(cluster, options).await?,
        TargetSpec::Bootstrap { servers, properties } => {
            (bootstrap::find(servers, properties, cluster).await?, Brokers::none())
        }
    };
    Ok(RunningCluster { cluster, brokers })
}
