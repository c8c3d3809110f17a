//! What `cluster status` found, as tables for people and as JSON for programs.

use serde_json::{Value, json};

use crate::cli::table::{align, row};

/// Partitions that a table names; the JSON names all.
const ROWS_MAX: usize = 20;

/// How a cluster is.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The cluster's id.
    pub cluster_id: String,
    /// All brokers, by their ids.
    pub brokers: Vec<BrokerStatus>,
    /// How many topics there are.
    pub topics: usize,
    /// All partitions.
    pub partitions: Vec<PartitionStatus>,
    /// The reassignments that go on, or why they are not told.
    pub reassignments: Result<Vec<Reassignment>, String>,
    /// The controllers' quorum, or why it is not told.
    pub quorum: Result<Quorum, String>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerStatus {
    /// Its id.
    pub id: i32,
    /// Where it listens; none for one that only the replicas name.
    pub address: Option<String>,
    /// Its rack.
    pub rack: Option<String>,
    /// Whether the controller has fenced it: it leads nothing and clients are not told of it.
    pub is_fenced: bool,
    /// The partitions that it leads.
    pub leaders: usize,
    /// The partitions that it holds.
    pub replicas: usize,
}

impl BrokerStatus {
    /// Fenced is who is down, and who runs and cannot serve, as one whose disks are full.
    fn state(&self) -> &'static str {
        match (&self.address, self.is_fenced) {
            (None, _) => "unknown",
            (Some(_), true) => "fenced",
            (Some(_), false) => "up",
        }
    }
}

/// A partition.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionStatus {
    /// Its topic.
    pub topic: String,
    /// Its index.
    pub partition: i32,
    /// Its leader.
    pub leader: Option<i32>,
    /// The brokers that should hold it.
    pub replicas: Vec<i32>,
    /// How many of them a reassignment adds: they are not missed before they have come.
    pub adding: usize,
    /// Those that are in sync.
    pub isr: Vec<i32>,
    /// How many must be in sync for acks=all.
    pub min_isr: usize,
}

/// A reassignment that goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Reassignment {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// All replicas while it goes on.
    pub replicas: Vec<i32>,
    /// Those that come.
    pub adding: Vec<i32>,
    /// Those that go.
    pub removing: Vec<i32>,
}

/// The controllers' quorum.
#[derive(Clone, Debug, PartialEq)]
pub struct Quorum {
    /// The active controller.
    pub leader: i32,
    /// Its epoch.
    pub epoch: i32,
    /// Below it all records are committed.
    pub high_watermark: i64,
    /// Who takes part.
    pub nodes: Vec<QuorumNode>,
}

/// A node of the quorum.
#[derive(Clone, Debug, PartialEq)]
pub struct QuorumNode {
    /// Its id.
    pub id: i32,
    /// What it does.
    pub role: Role,
    /// Where it listens, for controllers that tell.
    pub address: Option<String>,
    /// Where its copy of the metadata log ends.
    pub log_end_offset: i64,
}

/// What a node does in the quorum.
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
    fn name(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Voter => "voter",
            Role::Observer => "observer",
        }
    }
}

impl Quorum {
    /// How far a node is behind the leader.
    fn lag(&self, node: &QuorumNode) -> i64 {
        let leader = self.nodes.iter().find(|node| node.role == Role::Leader);
        leader.map_or(0, |leader| (leader.log_end_offset - node.log_end_offset).max(0))
    }
}

impl PartitionStatus {
    fn is_under_replicated(&self) -> bool {
        self.isr.len() + self.adding < self.replicas.len()
    }

    fn is_under_min_isr(&self) -> bool {
        self.isr.len() < self.min_isr
    }

    fn cells(&self) -> Vec<String> {
        vec![
            format!("{}-{}", self.topic, self.partition),
            self.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string()),
            ids(&self.replicas),
            ids(&self.isr),
            self.min_isr.to_string(),
        ]
    }

    fn to_json(&self) -> Value {
        json!({
            "topic": self.topic,
            "partition": self.partition,
            "leader": self.leader,
            "replicas": self.replicas,
            "isr": self.isr,
            "min_isr": self.min_isr,
        })
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

    fn offline(&self) -> Vec<&PartitionStatus> {
        self.find(|partition| partition.leader.is_none())
    }

    fn under_replicated(&self) -> Vec<&PartitionStatus> {
        self.find(PartitionStatus::is_under_replicated)
    }

    fn under_min_isr(&self) -> Vec<&PartitionStatus> {
        self.find(PartitionStatus::is_under_min_isr)
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "Cluster {}: {}, {}, {}\n\n",
            self.cluster_id,
            counted(self.brokers.len(), "broker"),
            counted(self.topics, "topic"),
            counted(self.partitions.len(), "partition"),
        );
        text.push_str(&align(&self.broker_rows()));
        text.push('\n');
        for (title, found) in [
            ("Partitions without a leader", self.offline()),
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
            Err(why) => return format!("Reassignments: not told ({why})\n"),
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
            Err(why) => {
                return format!(
                    "Controller quorum: not told ({why})\nWithout an active controller, brokers tell what they knew last.\n"
                );
            }
        };
        let mut rows = vec![row(["  NODE", "ROLE", "ADDRESS", "LOG END", "LAG"])];
        rows.extend(quorum.nodes.iter().map(|node| {
            vec![
                format!("  {}", node.id),
                node.role.name().to_owned(),
                node.address.clone().unwrap_or_else(|| "-".to_owned()),
                node.log_end_offset.to_string(),
                quorum.lag(node).to_string(),
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

    /// For programs.
    pub fn to_json(&self) -> Value {
        let all = |found: Vec<&PartitionStatus>| -> Vec<Value> {
            found.into_iter().map(PartitionStatus::to_json).collect()
        };
        let brokers: Vec<Value> = self
            .brokers
            .iter()
            .map(|broker| {
                json!({
                    "id": broker.id,
                    "address": broker.address,
                    "rack": broker.rack,
                    "fenced": broker.is_fenced,
                    "leaders": broker.leaders,
                    "replicas": broker.replicas,
                })
            })
            .collect();
        json!({
            "cluster_id": self.cluster_id,
            "brokers": brokers,
            "topics": self.topics,
            "partitions": self.partitions.len(),
            "offline": all(self.offline()),
            "under_min_isr": all(self.under_min_isr()),
            "under_replicated": all(self.under_replicated()),
            "reassignments": self.reassignments_json(),
            "quorum": self.quorum_json(),
        })
    }

    fn reassignments_json(&self) -> Value {
        match &self.reassignments {
            Err(why) => json!({ "error": why }),
            Ok(found) => found
                .iter()
                .map(|going| {
                    json!({
                        "topic": going.topic,
                        "partition": going.partition,
                        "replicas": going.replicas,
                        "adding": going.adding,
                        "removing": going.removing,
                    })
                })
                .collect(),
        }
    }

    fn quorum_json(&self) -> Value {
        let quorum = match &self.quorum {
            Err(why) => return json!({ "error": why }),
            Ok(quorum) => quorum,
        };
        let nodes: Vec<Value> = quorum
            .nodes
            .iter()
            .map(|node| {
                json!({
                    "id": node.id,
                    "role": node.role.name(),
                    "address": node.address,
                    "log_end_offset": node.log_end_offset,
                    "lag": quorum.lag(node),
                })
            })
            .collect();
        json!({
            "leader": quorum.leader,
            "epoch": quorum.epoch,
            "high_watermark": quorum.high_watermark,
            "nodes": nodes,
        })
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

/// What a table leaves out.
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
mod tests {
    use super::*;

    fn partition(index: i32, leader: Option<i32>, isr: &[i32], min_isr: usize) -> PartitionStatus {
        let (topic, replicas) = ("orders".to_owned(), vec![1, 2, 3]);
        PartitionStatus { topic, partition: index, leader, replicas, adding: 0, isr: isr.to_vec(), min_isr }
    }

    fn status(partitions: Vec<PartitionStatus>) -> Status {
        let broker = |id: i32, is_fenced| BrokerStatus {
            id,
            address: Some(format!("localhost:{}", 9091 + id)),
            rack: (id == 1).then(|| "a".to_owned()),
            is_fenced,
            leaders: 1,
            replicas: 3,
        };
        let node = |id, role, log_end_offset| QuorumNode { id, role, address: None, log_end_offset };
        Status {
            cluster_id: "4L6g3nShT-eMCtK--X86sw".to_owned(),
            brokers: vec![broker(1, false), broker(2, true)],
            topics: 1,
            partitions,
            reassignments: Ok(Vec::new()),
            quorum: Ok(Quorum {
                leader: 1,
                epoch: 3,
                high_watermark: 70,
                nodes: vec![node(1, Role::Leader, 70), node(2, Role::Observer, 65)],
            }),
        }
    }

    #[test]
    fn a_healthy_cluster_is_told_in_few_lines() {
        let status = status(vec![partition(0, Some(1), &[1, 2, 3], 2)]);
        assert_eq!(
            status.to_text(),
            "Cluster 4L6g3nShT-eMCtK--X86sw: 2 brokers, 1 topic, 1 partition\n\
             \n\
             BROKER  ADDRESS         RACK  STATE   LEADERS  REPLICAS\n\
             1       localhost:9092  a     up      1        3\n\
             2       localhost:9093  -     fenced  1        3\n\
             \n\
             Partitions without a leader: none\n\
             Partitions with fewer in sync than min.insync.replicas: none\n\
             Under-replicated partitions: none\n\
             Reassignments: none\n\
             \n\
             Controller quorum: node 1 leads in epoch 3, all is committed up to offset 70\n\
             \x20 NODE  ROLE      ADDRESS  LOG END  LAG\n\
             \x20 1     leader    -        70       0\n\
             \x20 2     observer  -        65       5\n"
        );
    }

    #[test]
    fn partitions_are_told_by_what_they_lack() {
        let partitions = vec![
            partition(0, Some(1), &[1, 2, 3], 2),
            partition(1, Some(1), &[1, 2], 2),
            partition(2, Some(1), &[1], 2),
            partition(3, None, &[2], 1),
        ];
        let mut status = status(partitions);
        status.reassignments = Err("nobody says".to_owned());
        let json = status.to_json();
        let found = |key: &str| -> Vec<i64> {
            let partitions = json[key].as_array().expect("a list").iter();
            partitions.map(|partition| partition["partition"].as_i64().expect("a number")).collect()
        };
        assert_eq!(found("offline"), [3]);
        assert_eq!(found("under_min_isr"), [2]);
        assert_eq!(found("under_replicated"), [1, 2, 3]);
        assert_eq!(json["reassignments"]["error"], "nobody says");
        let coming = PartitionStatus { adding: 1, ..partition(1, Some(1), &[1, 2], 2) };
        assert!(!coming.is_under_replicated(), "the third is on its way");
        let text = status.to_text();
        assert!(text.contains("  orders-3   none    1,2,3     2        1\n"), "{text}");
        assert!(text.contains("Reassignments: not told (nobody says)\n"), "{text}");
    }

    #[test]
    fn a_long_table_ends_and_says_so() {
        let status = status((0..25).map(|index| partition(index, Some(1), &[1], 1)).collect());
        let text = status.to_text();
        assert!(text.contains("Under-replicated partitions: 25\n"), "{text}");
        assert!(
            text.contains("  and 5 more; --json has them all\n") && !text.contains("orders-20"),
            "{text}"
        );
    }
}
