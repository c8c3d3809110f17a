//! A reading of a cluster: numbers as its brokers answered them, with the reason for each missing part.
//! Numbers of different brokers are of nearly the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::verdict::{
    Absence, BrokerEvidence, Cause, DirectoryEvidence, Evidence, PartitionCounts, PartitionState, Reach,
    Verdict, directory_gap,
};
use thalweg_client::{GroupKind, GroupPositions, TopicPartition};
use thalweg_wire::Uuid;
use tokio::time::Instant;

use super::facts::Facts;

/// A reading takes at most one in so many parts of the time; otherwise the interval grows.
const READING_SHARE: u32 = 2;

/// A reading of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// The time of its begin. Answers have their own times, by which rates are taken.
    pub at: Instant,
    /// Length of the whole reading.
    pub took: Duration,
    /// The part of it that may have been spent waiting for silent brokers, which is no load for a cluster.
    pub waited: Duration,
    /// Kafka's cluster id.
    pub cluster_id: Option<String>,
    pub brokers: BTreeMap<i32, BrokerReading>,
    pub topics: BTreeMap<Arc<str>, TopicReading>,
    pub groups: Result<GroupsReading, Absence>,
    /// Facts that are read less often.
    pub facts: Facts,
}

/// A broker that is registered, or that replicas name.
#[derive(Clone, Debug)]
pub(super) struct BrokerReading {
    /// `host:port`; none if only replicas name the broker.
    pub address: Option<String>,
    /// `broker.rack`.
    pub rack: Option<String>,
    pub reach: Reach,
    /// True if the controller has fenced the broker.
    pub is_fenced: bool,
    pub directories: Result<Vec<DirectoryEvidence>, Absence>,
    /// Bytes of all replicas in each log directory, if reported; none for a failed directory.
    pub logs: Option<BTreeMap<String, Option<i64>>>,
    /// The time of the answer with the sizes of logs.
    pub sized_at: Option<Instant>,
}

/// A topic that the login may describe.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicReading {
    /// Distinguishes the topic from an earlier one of the same name.
    pub id: Uuid,
    pub partitions: Vec<PartitionReading>,
    /// Bytes of all reported replicas.
    pub log_bytes: i64,
    /// Number of assigned replicas whose size was reported.
    pub sized_replicas: usize,
}

/// A partition, by the metadata and the answer of its leader.
#[derive(Clone, Debug, Default)]
pub(super) struct PartitionReading {
    pub index: i32,
    pub leader: Option<i32>,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    /// The offset of the next record.
    pub end: Option<i64>,
    /// The time of the answer with the end.
    pub end_at: Option<Instant>,
    /// The log start offset.
    pub start: Option<i64>,
    /// Bytes of the leader's replica.
    pub leader_bytes: Option<i64>,
}

/// The groups of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupsReading {
    pub groups: Vec<GroupReading>,
    /// Why groups may be missing, as sentences without their full stops.
    pub gaps: Vec<String>,
}

/// A group, by the answers of its coordinator.
#[derive(Clone, Debug)]
pub(super) struct GroupReading {
    pub name: String,
    pub kind: GroupKind,
    /// The state by the list of groups; empty if the broker does not report it.
    pub state: String,
    /// The members and the partitions that they read; none if they were not read.
    pub members: Option<(usize, BTreeSet<TopicPartition>)>,
    /// The time of the answer with the positions.
    pub positions_at: Instant,
    /// None if the offsets were not read.
    pub positions: Option<GroupPositions>,
}

impl BrokerReading {
    /// The reason why topics of the broker may be missing; none if it has reported all its directories.
    pub(super) fn gap(&self, id: i32) -> Option<Absence> {
        let is_known = self.answers() || self.directories.is_err();
        directory_gap(id, is_known.then_some(&self.directories))
    }

    /// True if the broker answers.
    pub(super) fn answers(&self) -> bool {
        self.reach == Reach::Answers
    }
}

impl TopicReading {
    pub(super) fn partition(&self, index: i32) -> Option<&PartitionReading> {
        let at = self.partitions.binary_search_by_key(&index, |partition| partition.index).ok()?;
        self.partitions.get(at)
    }
}

impl Reading {
    /// The time between the starts of two such readings.
    pub(super) fn period(&self, interval: Duration) -> Duration {
        interval.max(self.took).max((self.took - self.waited.min(self.took)) * READING_SHARE)
    }

    /// True if a broker answers.
    pub(super) fn answers(&self, broker: i32) -> bool {
        self.brokers.get(&broker).is_some_and(BrokerReading::answers)
    }

    /// The log end of a partition.
    pub(super) fn end(&self, at: &TopicPartition) -> Option<i64> {
        self.topics.get(&at.topic)?.partition(at.partition)?.end
    }

    /// The numbers that decide on the state of a partition.
    pub(super) fn state(&self, topic: &Arc<str>, partition: &PartitionReading) -> PartitionState {
        PartitionState {
            has_leader: partition.leader.is_some_and(|leader| self.answers(leader)),
            replicas: partition.replicas.len(),
            adding: self.facts.adding(topic, partition.index),
            in_sync: partition.isr.iter().filter(|id| self.answers(**id)).count(),
            min_isr: self.facts.min_isr(topic),
        }
    }

    /// All partitions with their topics.
    pub(super) fn partitions(&self) -> impl Iterator<Item = (&Arc<str>, &PartitionReading)> {
        self.topics.iter().flat_map(|(name, topic)| topic.partitions.iter().map(move |one| (name, one)))
    }

    /// The number of partitions in each state.
    pub(super) fn counts(&self) -> PartitionCounts {
        let mut counts = PartitionCounts::default();
        self.partitions().for_each(|(topic, partition)| counts.add(&self.state(topic, partition)));
        counts
    }

    /// Topics with a partition that lacks replicas in sync. Only there `min.insync.replicas` decides
    /// something.
    pub(super) fn incomplete_topics(&self) -> BTreeSet<String> {
        let lacks = |topic: &Arc<str>, partition: &PartitionReading| {
            let state = self.state(topic, partition);
            state.in_sync < state.replicas
        };
        let incomplete = self.partitions().filter(|(topic, partition)| lacks(topic, partition));
        incomplete.map(|(topic, _)| topic.to_string()).collect()
    }

    /// True if topics exist, or may exist, of which the login sees none.
    pub(super) fn is_blind(&self) -> bool {
        let hides = match &self.facts.hidden_topics {
            Ok(hidden) => *hidden > 0,
            Err(absence) => absence.cause == Cause::Denied,
        };
        self.topics.is_empty() && hides
    }

    /// True if no topic is hidden from the login.
    pub(super) fn has_all_topics(&self) -> bool {
        matches!(self.facts.hidden_topics, Ok(0))
    }

    /// True if every broker has listed its groups, and the login may describe all of them.
    pub(super) fn has_all_groups(&self) -> bool {
        self.groups.as_ref().is_ok_and(|read| read.gaps.is_empty())
    }

    /// The verdicts on the cluster, the most severe first: those of `cluster status`.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        let brokers = self.brokers.iter().map(|(id, broker)| BrokerEvidence {
            id: *id,
            reach: broker.reach,
            is_fenced: broker.is_fenced,
            directories: broker.directories.clone(),
        });
        let evidence = Evidence {
            partitions: self.counts(),
            hidden_topics: self.facts.hidden_topics.clone(),
            brokers: brokers.collect(),
            // Bootstrap addresses matter at the start only; metadata is that of one broker.
            silent_addresses: Vec::new(),
            differing: Vec::new(),
            quorum: self.facts.quorum.clone(),
            reassignments: self.facts.reassignments.as_ref().map(BTreeMap::len).map_err(Clone::clone),
            throttled: self.facts.throttled.clone(),
            // The columns of groups show growing lags.
            lags: None,
        };
        evidence.judge()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reading_stretches_the_interval_and_a_silent_broker_does_not() {
        let mut reading = testing::reading(Instant::now(), 0.0);
        let [two, slow, six, waited] = [2000, 3000, 6000, 2500].map(Duration::from_millis);
        assert_eq!(reading.period(two), two);
        reading.took = slow;
        assert_eq!(reading.period(two), six);
        reading.waited = waited;
        assert_eq!(reading.period(two), slow);
    }
}

/// Readings for tests.
#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use thalweg_client::GroupPosition;
    use thalweg_client::verdict::QuorumEvidence;
    use thalweg_record::Offset;

    /// A reading of brokers 1 and 2, which answer, `at_s` seconds after `began`.
    pub fn reading(began: Instant, at_s: f64) -> Reading {
        let at = began + Duration::from_secs_f64(at_s);
        let broker = |id: i32| BrokerReading {
            address: Some(format!("b{id}:9092")),
            rack: None,
            reach: Reach::Answers,
            is_fenced: false,
            directories: Ok(Vec::new()),
            logs: Some([("/logs".to_owned(), Some(0))].into()),
            sized_at: Some(at),
        };
        Reading {
            at,
            took: Duration::from_millis(100),
            waited: Duration::ZERO,
            cluster_id: Some("c".to_owned()),
            brokers: [1, 2].map(|id| (id, broker(id))).into(),
            topics: BTreeMap::new(),
            groups: Ok(GroupsReading::default()),
            facts: Facts {
                quorum: Ok(QuorumEvidence { leader: Some(1), silent: Vec::new() }),
                reassignments: Ok(BTreeMap::new()),
                throttled: Ok(Vec::new()),
                hidden_topics: Ok(0),
                ..Facts::unknown(at)
            },
        }
    }

    /// Adds a topic of broker 1, replicated by broker 2, with these ends and bytes of leaders.
    pub fn add_topic(reading: &mut Reading, name: &str, partitions: &[(Option<i64>, Option<i64>)]) {
        let at = reading.at;
        let partition = |(index, (end, leader_bytes)): (i32, &(Option<i64>, Option<i64>))| PartitionReading {
            index,
            leader: Some(1),
            replicas: vec![1, 2],
            isr: vec![1, 2],
            end: *end,
            end_at: end.map(|_| at),
            start: end.map(|_| 0),
            leader_bytes: *leader_bytes,
        };
        let sizes = partitions.iter().filter_map(|(_, bytes)| *bytes);
        let topic = TopicReading {
            id: Uuid(1),
            partitions: (0..).zip(partitions).map(partition).collect(),
            log_bytes: 2 * sizes.clone().sum::<i64>(),
            sized_replicas: 2 * sizes.count(),
        };
        reading.topics.insert(name.into(), topic);
    }

    /// Adds a consumer group with a member that reads partition 0 of a topic, and this position there.
    pub fn add_group(reading: &mut Reading, name: &str, topic: &str, offset: Option<i64>) {
        let (at, positions_at) = (TopicPartition::new(topic, 0), reading.at);
        let position = |offset| GroupPosition { offset: Offset(offset), share_lag: None };
        let group = GroupReading {
            name: name.to_owned(),
            kind: GroupKind::Consumer,
            state: "Stable".to_owned(),
            members: Some((1, BTreeSet::from([at.clone()]))),
            positions_at,
            positions: Some(offset.map(|offset| (at, position(offset))).into_iter().collect()),
        };
        reading.groups.as_mut().expect("groups are known").groups.push(group);
    }
}
