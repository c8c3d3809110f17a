//! The machines of a running cluster's brokers, watched by agents.

use serde::{Deserialize, Serialize};

use super::{HostUse, StorageChain};

/// The machine of brokers in a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BrokerMachineUse {
    /// The address of its agent.
    pub address: String,
    /// The kernel's id of this start of the machine; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The number of its processors.
    pub cpus: u32,
    /// True if it is the lab's machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_on_lab_machine: bool,
    /// The brokers of the cluster with an address of this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<WatchedBroker>,
    /// Usage of the machine during the measurement. Its storage is below the data directories that have the
    /// run's log files.
    #[serde(default, skip_serializing_if = "HostUse::is_unknown")]
    pub host: HostUse,
    /// Why the usage is unknown, as of an agent that was lost; `None` if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

impl BrokerMachineUse {
    /// True if the processes of all its brokers are known to their end.
    pub fn has_all_processes(&self) -> bool {
        self.lost.is_none() && self.brokers.iter().all(|broker| broker.process_unknown.is_none())
    }
}

/// A broker on a watched machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedBroker {
    /// `broker-1`, with the broker's id.
    pub name: String,
    /// The process that listens on the broker's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The name of the process's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Why the process, or its usage, is unknown; `None` if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_unknown: Option<String>,
}

/// A data directory of a broker, as its agent sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataDirectory {
    pub path: String,
    /// The devices below it; `None` if its mount is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageChain>,
    /// The broker's id, from `meta.properties`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<i32>,
    /// The log files of the run's partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionFiles>,
    /// Why the directory cannot be read; `None` if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The log files of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionFiles {
    pub topic: String,
    pub partition: i32,
    /// Total size of the `.log` files.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Repetition;
    use crate::result::testing::repetition;

    #[test]
    fn a_result_without_watched_machines_has_no_trace_of_them() {
        let text = serde_json::to_string(&repetition()).expect("plain data");
        assert!(!text.contains("broker_machines") && !text.contains("unwatched"), "{text}");
        let earlier: Repetition = serde_json::from_str(&text).expect("as of an earlier version");
        assert_eq!(earlier, repetition());
        let mut watched = repetition();
        watched.broker_machines = vec![BrokerMachineUse {
            address: "b:7000".to_owned(),
            lost: Some("it is gone".to_owned()),
            ..BrokerMachineUse::default()
        }];
        watched.unwatched_brokers = vec!["broker-2".to_owned()];
        let text = serde_json::to_string(&watched).expect("plain data");
        assert_eq!(serde_json::from_str::<Repetition>(&text).expect("its own form"), watched);
    }
}
