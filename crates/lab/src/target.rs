//! Targets: the systems that are measured. Those that the lab starts run as child processes on free ports of the loopback
//! interface, in a directory of their own, and end with the lab, however it ends.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::result::TargetInfo;

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
