//! All topics of a cluster in compact form: the data for lists and sums.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_client::{BrokerAddress, ClientError, Cluster, RefusedRequest};
use thalweg_wire::request::MetadataRequest;
use thalweg_wire::request::metadata_response::{MetadataResponse, MetadataResponseTopic};

/// The brokers, and all topics that the login may see, sorted by name.
pub struct Catalog {
    pub cluster_id: Option<String>,
    pub brokers: BTreeMap<i32, BrokerAddress>,
    pub topics: Vec<TopicLine>,
    /// Replica counts by broker, including brokers that are offline.
    pub held: BTreeMap<i32, ReplicaCounts>,
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
}

/// Replica counts of a broker.
#[derive(Clone, Copy, Default)]
pub struct ReplicaCounts {
    pub leaders: usize,
    pub replicas: usize,
    /// Replicas that are not in sync.
    pub lagging: usize,
}

impl Catalog {
    /// Reads all topics with one Metadata request.
    pub async fn read(cluster: &Cluster) -> Result<Catalog, ClientError> {
        // The cluster client reads only its brokers here: full topics would stay in its memory.
        cluster.refresh(&[], false).await?;
        let request =
            MetadataRequest { topics: None, allow_auto_topic_creation: false, ..MetadataRequest::default() };
        let response = cluster.send_any(&request).await?;
        RefusedRequest::check(response.error_code, None, || "Metadata of the cluster".to_owned())?;
        let brokers = cluster.metadata().brokers.clone();
        Ok(Catalog::of(response, brokers))
    }

    fn of(response: MetadataResponse, brokers: BTreeMap<i32, BrokerAddress>) -> Catalog {
        let mut held = BTreeMap::<i32, ReplicaCounts>::new();
        let mut topics: Vec<TopicLine> =
            response.topics.into_iter().map(|topic| line(topic, &mut held)).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Catalog { cluster_id: response.cluster_id, brokers, topics, held }
    }

    /// Finds a topic by name.
    pub fn topic(&self, name: &str) -> Option<&TopicLine> {
        let at = self.topics.binary_search_by(|topic| (*topic.name).cmp(name)).ok()?;
        self.topics.get(at)
    }

    /// Computes the sums over all topics.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for topic in &self.topics {
            sums.topics += usize::from(!topic.is_internal);
            sums.internal_topics += usize::from(topic.is_internal);
            sums.partitions += topic.leaders.len();
            sums.under_replicated += topic.under_replicated as usize;
            sums.leaderless += topic.leaderless as usize;
        }
        sums
    }
}

/// Counts over all topics of a cluster.
#[derive(Default)]
pub struct Sums {
    pub topics: usize,
    pub internal_topics: usize,
    pub partitions: usize,
    pub under_replicated: usize,
    pub leaderless: usize,
}

fn line(mut topic: MetadataResponseTopic, held: &mut BTreeMap<i32, ReplicaCounts>) -> TopicLine {
    topic.partitions.sort_by_key(|partition| partition.partition_index);
    let mut line = TopicLine {
        name: topic.name.unwrap_or_default().into(),
        is_internal: topic.is_internal,
        replicas: topic.partitions.first().map_or(0, |first| count(first.replica_nodes.len())),
        under_replicated: 0,
        leaderless: 0,
        leaders: topic.partitions.iter().map(|partition| partition.leader_id).collect(),
    };
    for partition in &topic.partitions {
        line.under_replicated += u32::from(partition.isr_nodes.len() < partition.replica_nodes.len());
        line.leaderless += u32::from(partition.leader_id < 0);
        if partition.leader_id >= 0 {
            held.entry(partition.leader_id).or_default().leaders += 1;
        }
        for replica in &partition.replica_nodes {
            let held = held.entry(*replica).or_default();
            held.replicas += 1;
            held.lagging += usize::from(!partition.isr_nodes.contains(replica));
        }
    }
    line
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
