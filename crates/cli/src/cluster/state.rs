//! The state of a cluster, from the answers of its brokers. `report` and `json` show it, `health` has it
//! judged.

use thalweg_client::verdict::{self, Absence, Cause, DirectoryEvidence, PartitionState, QuorumEvidence};

/// The state of a cluster: brokers, partitions, reassignments, quorum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    /// Kafka's cluster id.
    pub cluster_id: String,
    /// All brokers, in the order of their ids.
    pub brokers: Vec<BrokerStatus>,
    /// Given addresses that belong to no known broker, with the reason for each.
    pub not_reached: Vec<(String, String)>,
    /// The brokers with different metadata, after a second look.
    pub differing: Vec<DifferingBroker>,
    /// Number of topics.
    pub topics: usize,
    /// All partitions of all topics.
    pub partitions: Vec<PartitionStatus>,
    /// Number of topics that the login may not describe.
    pub hidden_topics: Result<usize, Absence>,
    /// Brokers with a replication throttle.
    pub throttled: Result<Vec<i32>, Absence>,
    /// The reassignments in progress, or the reason for their absence.
    pub reassignments: Result<Vec<Reassignment>, Absence>,
    /// The controllers' quorum, or the reason for its absence.
    pub quorum: Result<Quorum, Absence>,
}

/// The result of a request to a broker's own listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// The broker answers.
    Answers,
    /// The broker does not answer, for the given reason.
    NotReached(String),
    /// The address of the broker is unknown.
    NoAddress,
}

/// A broker whose metadata differs from that of the other brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DifferingBroker {
    /// `node.id`.
    pub broker: i32,
    /// Partitions with a missing or outdated leader in the broker's metadata.
    pub behind: Vec<(String, i32)>,
    /// Brokers that are alive only by this broker's metadata, or only by that of the other brokers.
    pub brokers: Vec<i32>,
}

/// A broker, by its own answer and the answers of the other brokers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BrokerStatus {
    /// `node.id`.
    pub id: i32,
    /// `host:port`; none if only the replicas of a partition name the broker.
    pub address: Option<String>,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// True if the controller has fenced the broker: a fenced broker leads no partition, and clients do not
    /// see it.
    pub is_fenced: bool,
    /// The result of a request to the broker's own listener.
    pub probe: ProbeResult,
    /// Number of partitions that the broker leads.
    pub leaders: usize,
    /// Number of partitions with a replica on the broker.
    pub replicas: usize,
    /// The log directories; empty for a broker that was not reached.
    pub directories: Result<Vec<DirectoryEvidence>, Absence>,
}

impl BrokerStatus {
    /// The state in words.
    pub(super) fn state(&self) -> &'static str {
        self.probe.as_evidence().state(self.is_fenced)
    }
}

impl ProbeResult {
    pub(super) fn as_evidence(&self) -> verdict::Reach {
        match self {
            ProbeResult::Answers => verdict::Reach::Answers,
            ProbeResult::NotReached(_) => verdict::Reach::Silent,
            ProbeResult::NoAddress => verdict::Reach::Unregistered,
        }
    }
}

/// A partition, by the newest metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartitionStatus {
    /// The name of the topic.
    pub topic: String,
    /// The index of the partition in its topic.
    pub partition: i32,
    /// The id of the leader, if any.
    pub leader: Option<i32>,
    /// True if the leader answers.
    pub leader_answers: bool,
    /// The ids of the assigned brokers.
    pub replicas: Vec<i32>,
    /// Number of replicas being added, which do not count as missing.
    pub adding: usize,
    /// The in-sync replicas by the metadata.
    pub isr: Vec<i32>,
    /// The in-sync replicas whose brokers answer.
    pub live_isr: Vec<i32>,
    /// Number of replicas that must be in sync for acks=all; none if the login may not see it.
    pub min_isr: Option<usize>,
}

/// A reassignment in progress.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reassignment {
    /// The name of the topic.
    pub topic: String,
    /// The index of the partition in its topic.
    pub partition: i32,
    /// All replicas during the reassignment.
    pub replicas: Vec<i32>,
    /// Replicas being added.
    pub adding: Vec<i32>,
    /// Replicas being removed.
    pub removing: Vec<i32>,
}

/// The controllers' quorum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quorum {
    /// `node.id` of the active controller, or -1.
    pub leader: i32,
    /// The epoch of the active controller.
    pub epoch: i32,
    /// All records below this offset of the metadata log are committed.
    pub high_watermark: i64,
    /// The members of the quorum.
    pub nodes: Vec<QuorumNode>,
}

/// A node of the quorum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuorumNode {
    /// `node.id`.
    pub id: i32,
    /// The part of the node in the quorum.
    pub role: Role,
    /// `host:port`, if the controllers report it.
    pub address: Option<String>,
    /// The log end offset of the node's metadata log.
    pub log_end_offset: i64,
    /// Time since the node's last fetch, by the leader's clock, if reported.
    pub silent_ms: Option<i64>,
}

/// The role of a node in the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The active controller.
    Leader,
    /// Another controller with a vote.
    Voter,
    /// A broker, which follows.
    Observer,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Voter => "voter",
            Role::Observer => "observer",
        }
    }
}

impl Quorum {
    /// The number of records by which a node is behind the leader.
    pub(super) fn lag(&self, node: &QuorumNode) -> i64 {
        let leader = self.nodes.iter().find(|node| node.role == Role::Leader);
        leader.map_or(0, |leader| (leader.log_end_offset - node.log_end_offset).max(0))
    }

    /// True if the last fetch of a node is older than any live node's.
    pub(super) fn is_silent(&self, node: &QuorumNode) -> bool {
        node.silent_ms.is_some_and(QuorumEvidence::is_silent)
    }
}

impl PartitionStatus {
    /// The numbers that decide on the state of the partition.
    pub(super) fn state(&self) -> PartitionState {
        PartitionState {
            has_leader: self.leader_answers,
            replicas: self.replicas.len(),
            adding: self.adding,
            in_sync: self.live_isr.len(),
            min_isr: self.min_isr,
        }
    }
}

impl Status {
    /// True if topics exist, or may exist, of which the login sees none.
    pub(super) fn is_blind(&self) -> bool {
        self.topics == 0 && self.is_partial()
    }

    /// True if the login may not describe all topics, as far as is known.
    pub(super) fn is_partial(&self) -> bool {
        match &self.hidden_topics {
            Ok(hidden) => *hidden > 0,
            Err(absence) => absence.cause != Cause::NotServed,
        }
    }

    fn find(&self, wanted: impl Fn(&PartitionStatus) -> bool) -> Vec<&PartitionStatus> {
        self.partitions.iter().filter(|partition| wanted(partition)).collect()
    }

    pub(super) fn offline(&self) -> Vec<&PartitionStatus> {
        self.find(|partition| !partition.leader_answers)
    }

    pub(super) fn under_replicated(&self) -> Vec<&PartitionStatus> {
        self.find(|partition| partition.state().is_under_replicated())
    }

    pub(super) fn under_min_isr(&self) -> Vec<&PartitionStatus> {
        self.find(|partition| partition.state().is_under_min_isr() == Some(true))
    }
}
