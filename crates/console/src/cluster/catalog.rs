//! All topics of a cluster in compact form: the data for lists and sums.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use thalweg_client::verdict::PartitionState;
use thalweg_client::{BrokerAddress, ClientError, Cluster, RefusedRequest};
use thalweg_wire::request::MetadataRequest;
use thalweg_wire::request::metadata_response::{
    MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};

use super::now_ms;

/// The brokers, and all topics that the login may see, sorted by name.
pub struct Catalog {
    pub cluster_id: Option<String>,
    /// The time of the answer, in milliseconds since 1970.
    pub read_at_ms: i64,
    pub brokers: BTreeMap<i32, BrokerAddress>,
    pub topics: Vec<TopicLine>,
    /// Replica counts by broker, including brokers that are offline.
    pub held: BTreeMap<i32, ReplicaCounts>,
    /// The different placements of partitions, of which a cluster has few.
    pub placements: Vec<Placement>,
}

/// The brokers of a partition.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The leader; -1 for none.
    pub leader: i32,
    pub replicas: Box<[i32]>,
    pub in_sync: Box<[i32]>,
}

impl Placement {
    /// The state of a partition with this placement, if only these brokers answer. `min.insync.replicas` and
    /// reassignments are not known here.
    pub fn state(&self, answers: impl Fn(i32) -> bool) -> PartitionState {
        PartitionState {
            has_leader: self.leader >= 0 && answers(self.leader),
            replicas: self.replicas.len(),
            adding: 0,
            in_sync: self.in_sync.iter().filter(|id| answers(**id)).count(),
            min_isr: None,
        }
    }
}

/// A topic in compact form.
pub struct TopicLine {
    pub name: Arc<str>,
    pub is_internal: bool,
    /// The replicas of the first partition. Other partitions usually have the same number.
    pub replicas: u32,
    /// Partitions with fewer replicas in sync than assigned.
    pub under_replicated: u32,
    /// Partitions without a leader.
    pub leaderless: u32,
    /// The leader of each partition; -1 for none.
    pub leaders: Box<[i32]>,
    /// The index of each partition in [`Catalog::placements`].
    pub placements: Box<[u32]>,
}

/// Replica counts of a broker.
#[derive(Clone, Copy, Default)]
pub struct ReplicaCounts {
    pub leaders: usize,
    pub replicas: usize,
    /// Replicas that are not in sync.
    pub lagging: usize,
}

impl TopicLine {
    /// The numbers of partitions without a leader that answers, and of under-replicated ones, by the states
    /// of the placements.
    pub fn faults(&self, states: &[PartitionState]) -> (u32, u32) {
        let states = self.placements.iter().filter_map(|at| states.get(*at as usize));
        let faults =
            states.map(|state| (u32::from(!state.has_leader), u32::from(state.is_under_replicated())));
        faults.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

impl Catalog {
    /// Reads all topics with one Metadata request.
    pub async fn read(cluster: &Cluster) -> Result<Catalog, ClientError> {
        // The cluster client reads only its brokers here: full topics would stay in its memory.
        cluster.refresh(&[], false).await?;
        let request =
            MetadataRequest { topics: None, allow_auto_topic_creation: false, ..MetadataRequest::default() };
        let response = cluster.first_metadata(request).await?;
        RefusedRequest::check(response.error_code, None, || "Metadata of the cluster".to_owned())?;
        let brokers = cluster.metadata().brokers.clone();
        Ok(Catalog::of(response, brokers))
    }

    pub(super) fn of(response: MetadataResponse, brokers: BTreeMap<i32, BrokerAddress>) -> Catalog {
        let mut counting = Counting::default();
        let mut topics: Vec<TopicLine> =
            response.topics.into_iter().map(|topic| counting.line(topic)).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        let Counting { held, indexes } = counting;
        let mut placements: Vec<(u32, Placement)> =
            indexes.into_iter().map(|(placement, index)| (index, placement)).collect();
        placements.sort_unstable_by_key(|(index, _)| *index);
        let placements = placements.into_iter().map(|(_, placement)| placement).collect();
        let cluster_id = response.cluster_id;
        Catalog { cluster_id, read_at_ms: now_ms(), brokers, topics, held, placements }
    }

    /// Brokers that hold replicas and are not among the brokers: they are fenced, or not registered.
    pub fn unavailable(&self) -> impl Iterator<Item = i32> {
        self.held.keys().copied().filter(|id| !self.brokers.contains_key(id))
    }

    /// The state of each placement. Replicas of silent brokers do not count, nor do those of brokers that are
    /// not among the brokers.
    pub fn states(&self, is_silent: impl Fn(i32) -> bool) -> Vec<PartitionState> {
        let answers = |id: i32| self.brokers.contains_key(&id) && !is_silent(id);
        self.placements.iter().map(|placement| placement.state(answers)).collect()
    }

    /// True if a replica of the topic is on one of these brokers.
    pub fn is_on_any(&self, topic: &TopicLine, brokers: &BTreeSet<i32>) -> bool {
        let mut placements = topic.placements.iter().filter_map(|at| self.placements.get(*at as usize));
        placements.any(|placement| placement.replicas.iter().any(|id| brokers.contains(id)))
    }

    /// Finds a topic by name.
    pub fn topic(&self, name: &str) -> Option<&TopicLine> {
        self.topics.get(self.position(name)?)
    }

    /// The place of a topic in the list.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.topics.binary_search_by(|topic| (*topic.name).cmp(name)).ok()
    }
}

/// The counts over all topics while they are read.
#[derive(Default)]
struct Counting {
    held: BTreeMap<i32, ReplicaCounts>,
    indexes: HashMap<Placement, u32>,
}

impl Counting {
    fn line(&mut self, mut topic: MetadataResponseTopic) -> TopicLine {
        topic.partitions.sort_by_key(|partition| partition.partition_index);
        let replicas = topic.partitions.first().map_or(0, |first| count(first.replica_nodes.len()));
        let mut line = TopicLine {
            name: topic.name.unwrap_or_default().into(),
            is_internal: topic.is_internal,
            replicas,
            under_replicated: 0,
            leaderless: 0,
            leaders: topic.partitions.iter().map(|partition| partition.leader_id).collect(),
            placements: Box::default(),
        };
        let mut placements = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let placement = self.hold(partition);
            let state = placement.state(|_| true);
            line.under_replicated += u32::from(state.is_under_replicated());
            line.leaderless += u32::from(!state.has_leader);
            let next = count(self.indexes.len());
            placements.push(*self.indexes.entry(placement).or_insert(next));
        }
        line.placements = placements.into();
        line
    }

    /// Counts the replicas of a partition by broker.
    fn hold(&mut self, partition: MetadataResponsePartition) -> Placement {
        if partition.leader_id >= 0 {
            self.held.entry(partition.leader_id).or_default().leaders += 1;
        }
        for replica in &partition.replica_nodes {
            let held = self.held.entry(*replica).or_default();
            held.replicas += 1;
            held.lagging += usize::from(!partition.isr_nodes.contains(replica));
        }
        Placement {
            leader: partition.leader_id,
            replicas: partition.replica_nodes.into(),
            in_sync: partition.isr_nodes.into(),
        }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
