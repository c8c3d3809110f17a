//! The result of `cluster status` as tables for people; `json` has the same content for programs.

use super::health::{Health, SILENT_MS};
use crate::output::Style;
use crate::table::{align, row};

/// Limit of the rows of a table; the JSON document has all partitions.
const ROWS_MAX: usize = 20;

/// The state of a cluster: brokers, partitions, reassignments, quorum.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
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
    /// The reassignments in progress, or the reason for their absence.
    pub reassignments: Result<Vec<Reassignment>, AbsenceReason>,
    /// The controllers' quorum, or the reason for its absence.
    pub quorum: Result<Quorum, AbsenceReason>,
}

/// The reason for missing information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsenceReason {
    /// The effect on the health of the cluster.
    pub cause: Cause,
    /// The error of the request.
    pub why: String,
}

/// The cause of missing information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A problem of the cluster.
    Problem,
    /// The login lacks the right to see the information.
    Denied,
    /// The cluster does not serve the request, which does not affect its health.
    NotServed,
}

/// The result of a request to a broker's own listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The broker answers.
    Answers,
    /// The broker does not answer, for the given reason.
    NotReached(String),
    /// The address of the broker is unknown.
    NoAddress,
}

/// A broker whose metadata differs from that of the other brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferingBroker {
    /// `node.id`.
    pub broker: i32,
    /// Partitions with a missing or outdated leader in the broker's metadata.
    pub behind: Vec<(String, i32)>,
    /// Brokers that are alive only by this broker's metadata, or only by that of the other brokers.
    pub brokers: Vec<i32>,
}

/// A broker, by its own answer and the answers of the other brokers.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerStatus {
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
    pub reach: Reach,
    /// Number of partitions that the broker leads.
    pub leaders: usize,
    /// Number of partitions with a replica on the broker.
    pub replicas: usize,
}

impl BrokerStatus {
    /// The state in a word. A fenced broker may still answer: its heartbeats fail, or it cannot serve, for
    /// example with full disks.
    pub(super) fn state(&self) -> &'static str {
        match (&self.reach, self.is_fenced) {
            (Reach::NoAddress, _) => "unregistered",
            (Reach::NotReached(_), true) => "fenced, not reached",
            (Reach::NotReached(_), false) => "not reached",
            (Reach::Answers, true) => "fenced",
            (Reach::Answers, false) => "up",
        }
    }
}

/// A partition, by the newest metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionStatus {
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
    /// Number of replicas that must be in sync for acks=all.
    pub min_isr: usize,
}

/// A reassignment in progress.
#[derive(Clone, Debug, PartialEq)]
pub struct Reassignment {
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
pub struct Quorum {
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
pub struct QuorumNode {
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
pub enum Role {
    /// The active controller.
    Leader,
    /// Another controller.
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
        node.silent_ms.is_some_and(|silent_ms| silent_ms > SILENT_MS)
    }
}

impl PartitionStatus {
    fn is_under_replicated(&self) -> bool {
        self.live_isr.len() + self.adding < self.replicas.len()
    }

    fn is_under_min_isr(&self) -> bool {
        self.live_isr.len() < self.min_isr
    }

    fn cells(&self) -> Vec<String> {
        let silent: Vec<i32> = self.isr.iter().copied().filter(|id| !self.live_isr.contains(id)).collect();
        vec![
            format!("{}-{}", self.topic, self.partition),
            match self.leader {
                None => "none".to_owned(),
                Some(leader) if !self.leader_answers => format!("{leader} (not reached)"),
                Some(leader) => leader.to_string(),
            },
            ids(&self.replicas),
            match silent.is_empty() {
                true => ids(&self.live_isr),
                false => format!("{} ({} not reached)", ids(&self.live_isr), ids(&silent)),
            },
            self.min_isr.to_string(),
        ]
    }
}

fn ids(list: &[i32]) -> String {
    if list.is_empty() {
        return "-".to_owned();
    }
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    texts.join(",")
}

impl Status {
    fn find(&self, wanted: impl Fn(&PartitionStatus) -> bool) -> Vec<&PartitionStatus> {
        self.partitions.iter().filter(|partition| wanted(partition)).collect()
    }

    pub(super) fn offline(&self) -> Vec<&PartitionStatus> {
        self.find(|partition| !partition.leader_answers)
    }

    pub(super) fn under_replicated(&self) -> Vec<&PartitionStatus> {
        self.find(PartitionStatus::is_under_replicated)
    }

    pub(super) fn under_min_isr(&self) -> Vec<&PartitionStatus> {
        self.find(PartitionStatus::is_under_min_isr)
    }

    /// The status as tables for people.
    pub fn to_text(&self, style: Style) -> String {
        let mut text = format!(
            "Cluster {}: {}, {}, {}\nHealth: {}\n",
            self.cluster_id,
            counted(self.brokers.len(), "broker"),
            counted(self.topics, "topic"),
            counted(self.partitions.len(), "partition"),
            self.health().shown(style),
        );
        for problem in self.problems() {
            text.push_str(&format!("  {}: {}\n", problem.health.shown(style), problem.text));
        }
        text.push('\n');
        text.push_str(&style.table(&self.broker_rows()));
        text.push('\n');
        text.push_str(&self.reach_text());
        for (title, found) in [
            ("Partitions without a leader that answers", self.offline()),
            ("Partitions with fewer in sync than min.insync.replicas", self.under_min_isr()),
            ("Under-replicated partitions", self.under_replicated()),
        ] {
            text.push_str(&section(title, &found));
        }
        text.push_str(&self.reassignment_text());
        text.push('\n');
        text.push_str(&self.quorum_text());
        text
    }

    /// Unreachable addresses with reasons, and brokers with different metadata.
    fn reach_text(&self) -> String {
        let brokers = self.brokers.iter().filter_map(|broker| match &broker.reach {
            Reach::NotReached(why) => Some(format!("  broker {}: {why}\n", broker.id)),
            _ => None,
        });
        let others = self.not_reached.iter().map(|(_, why)| format!("  {why}\n"));
        let silent: String = brokers.chain(others).collect();
        let mut text = String::new();
        if !silent.is_empty() {
            text.push_str(&format!("Not reached:\n{silent}\n"));
        }
        if self.health() != Health::Healthy && !self.differing.is_empty() {
            text.push_str("Brokers with different metadata:\n");
            text.extend(self.differing.iter().map(DifferingBroker::line));
            text.push('\n');
        }
        text
    }

    fn broker_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["BROKER", "ADDRESS", "RACK", "STATE", "LEADERS", "REPLICAS"])];
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        rows.extend(self.brokers.iter().map(|broker| {
            vec![
                broker.id.to_string(),
                or_dash(&broker.address),
                or_dash(&broker.rack),
                broker.state().to_owned(),
                broker.leaders.to_string(),
                broker.replicas.to_string(),
            ]
        }));
        rows
    }

    fn reassignment_text(&self) -> String {
        let found = match &self.reassignments {
            Ok(found) => found,
            Err(AbsenceReason { why, .. }) => return format!("Reassignments: unknown ({why})\n"),
        };
        if found.is_empty() {
            return "Reassignments: none\n".to_owned();
        }
        let mut rows = vec![row(["  PARTITION", "REPLICAS", "ADDING", "REMOVING"])];
        rows.extend(found.iter().take(ROWS_MAX).map(|going| {
            let name = format!("  {}-{}", going.topic, going.partition);
            vec![name, ids(&going.replicas), ids(&going.adding), ids(&going.removing)]
        }));
        format!("Reassignments: {}\n{}{}", found.len(), align(&rows), rest(found.len()))
    }

    fn quorum_text(&self) -> String {
        let quorum = match &self.quorum {
            Ok(quorum) => quorum,
            Err(AbsenceReason { why, cause }) => {
                let known = "Without an active controller, brokers answer with their last known state.\n";
                let known = if *cause == Cause::Problem { known } else { "" };
                return format!("Controller quorum: unknown ({why})\n{known}");
            }
        };
        let mut rows = vec![row(["  NODE", "ROLE", "ADDRESS", "LOG END", "LAG", "LAST FETCH"])];
        rows.extend(quorum.nodes.iter().map(|node| {
            vec![
                format!("  {}", node.id),
                node.role.name().to_owned(),
                node.address.clone().unwrap_or_else(|| "-".to_owned()),
                node.log_end_offset.to_string(),
                quorum.lag(node).to_string(),
                match (node.role, node.silent_ms) {
                    (Role::Leader, _) | (_, None) => "-".to_owned(),
                    (_, Some(ms)) => format!("{:.1} s ago", ms as f64 / 1000.0),
                },
            ]
        }));
        format!(
            "Controller quorum: node {} leads in epoch {}, all is committed up to offset {}\n{}",
            quorum.leader,
            quorum.epoch,
            quorum.high_watermark,
            align(&rows)
        )
    }
}

impl DifferingBroker {
    fn line(&self) -> String {
        let mut parts = Vec::new();
        if let Some((topic, partition)) = self.behind.first() {
            let count = counted(self.behind.len(), "partition");
            parts.push(format!("{count} missing or with an earlier leader, such as {topic}-{partition}"));
        }
        if !self.brokers.is_empty() {
            parts.push(format!("disagrees on whether brokers {} are alive", ids(&self.brokers)));
        }
        format!("  broker {}: {}\n", self.broker, parts.join("; "))
    }
}

fn section(title: &str, found: &[&PartitionStatus]) -> String {
    if found.is_empty() {
        return format!("{title}: none\n");
    }
    let mut rows = vec![row(["  PARTITION", "LEADER", "REPLICAS", "IN SYNC", "MINIMUM"])];
    rows.extend(found.iter().take(ROWS_MAX).map(|partition| {
        let mut cells = partition.cells();
        cells[0].insert_str(0, "  ");
        cells
    }));
    format!("{title}: {}\n{}{}", found.len(), align(&rows), rest(found.len()))
}

/// The number of rows left out of a table.
fn rest(count: usize) -> String {
    match count.saturating_sub(ROWS_MAX) {
        0 => String::new(),
        more => format!("  and {more} more; --json has them all\n"),
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests;
