//! `cluster status`: asks a cluster how it is.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use clap::Args;
use thalweg_client::{Cluster, Metadata, Refused};
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::describe_quorum_request::{PartitionData, TopicData};
use thalweg_wire::request::{
    DescribeClusterRequest, DescribeClusterResponse, DescribeConfigsRequest, DescribeQuorumRequest,
    ListPartitionReassignmentsRequest,
};

use super::report::{BrokerStatus, PartitionStatus, Quorum, QuorumNode, Reassignment, Role, Status};
use crate::cli::connect::Connect;

/// Topics whose settings one request asks for.
const TOPICS_PER_REQUEST: usize = 200;
/// Kafka's number of the resource type "topic".
const TOPIC_RESOURCE: i8 = 2;
const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";
const METADATA_TOPIC: &str = "__cluster_metadata";
/// Time that the controllers have. Where they have no majority brokers look for an active one much longer, and whoever asks
/// then wants to see the rest.
const CONTROLLERS_WAIT: Duration = Duration::from_secs(5);

/// Show how a cluster is: its brokers and their racks, who leads how much, partitions without a leader, with too few
/// replicas in sync or with less than they should have, reassignments, and the controllers' quorum. It works with every
/// cluster that speaks Kafka's protocol.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg cluster status
  thalweg cluster status --bootstrap-server broker:9092 --json | jq .under_replicated")]
pub struct Show {
    #[command(flatten)]
    connect: Connect,
    /// Print one JSON object instead of tables. It names all partitions, where the tables end after some.
    #[arg(long)]
    json: bool,
}

impl Show {
    /// Asks and tells.
    pub async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let status = ask(&cluster).await?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", status.to_json())?;
        } else {
            out.write_all(status.to_text().as_bytes())?;
        }
        Ok(())
    }
}

/// Asks for all that a status says.
pub async fn ask(cluster: &Cluster) -> anyhow::Result<Status> {
    let described = describe(cluster).await?;
    let metadata = cluster.refresh_all().await?;
    let min_isr = min_isr(cluster, &metadata).await?;
    let (reassignments, quorum) = tokio::join!(in_time(reassignments(cluster)), in_time(quorum(cluster)));
    let mut partitions = partitions(&metadata, &min_isr);
    for going in reassignments.iter().flatten() {
        let is_it = |p: &&mut PartitionStatus| p.topic == going.topic && p.partition == going.partition;
        if let Some(partition) = partitions.iter_mut().find(is_it) {
            partition.adding = going.adding.len();
        }
    }
    Ok(Status {
        cluster_id: described.cluster_id.clone(),
        brokers: brokers(&described, &metadata),
        topics: metadata.topics.len(),
        partitions,
        // What a cluster does not tell is no reason to keep back the rest.
        reassignments,
        quorum,
    })
}

async fn in_time<T>(answer: impl Future<Output = anyhow::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(CONTROLLERS_WAIT, answer).await {
        Ok(answered) => answered.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no active controller has answered within {} s", CONTROLLERS_WAIT.as_secs())),
    }
}

async fn describe(cluster: &Cluster) -> anyhow::Result<DescribeClusterResponse> {
    let all = DescribeClusterRequest { include_fenced_brokers: true, ..DescribeClusterRequest::default() };
    let described = match cluster.send_any(&all).await {
        Ok(described) => described,
        // Before version 2 fenced brokers cannot be asked for.
        Err(_) => cluster.send_any(&DescribeClusterRequest::default()).await?,
    };
    let what = || "The description of the cluster".to_owned();
    Refused::check(described.error_code, described.error_message.as_deref(), what)?;
    Ok(described)
}

fn brokers(described: &DescribeClusterResponse, metadata: &Metadata) -> Vec<BrokerStatus> {
    let mut leaders: BTreeMap<i32, usize> = BTreeMap::new();
    let mut replicas: BTreeMap<i32, usize> = BTreeMap::new();
    for partition in metadata.topics.values().flat_map(|topic| &topic.partitions) {
        if let Some(leader) = partition.leader {
            *leaders.entry(leader).or_default() += 1;
        }
        for id in &partition.replicas {
            *replicas.entry(*id).or_default() += 1;
        }
    }
    let mut brokers: Vec<BrokerStatus> = described
        .brokers
        .iter()
        .map(|broker| BrokerStatus {
            id: broker.broker_id,
            address: Some(address(&broker.host, broker.port)),
            rack: broker.rack.clone(),
            is_fenced: broker.is_fenced,
            leaders: leaders.get(&broker.broker_id).copied().unwrap_or(0),
            replicas: replicas.get(&broker.broker_id).copied().unwrap_or(0),
        })
        .collect();
    // A broker that holds replicas and is not registered, or not told of, is missed most.
    let known: BTreeSet<i32> = brokers.iter().map(|broker| broker.id).collect();
    brokers.extend(replicas.iter().filter(|(id, _)| !known.contains(id)).map(|(id, count)| BrokerStatus {
        id: *id,
        address: None,
        rack: None,
        is_fenced: true,
        leaders: 0,
        replicas: *count,
    }));
    brokers.sort_by_key(|broker| broker.id);
    brokers
}

/// `host:port`, with brackets around an IPv6 address.
fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// `min.insync.replicas` of each topic.
async fn min_isr(cluster: &Cluster, metadata: &Metadata) -> anyhow::Result<BTreeMap<String, usize>> {
    let names: Vec<&String> = metadata.topics.keys().collect();
    let mut found = BTreeMap::new();
    for names in names.chunks(TOPICS_PER_REQUEST) {
        let resources = names.iter().map(|name| DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: (*name).clone(),
            configuration_keys: Some(vec![MIN_INSYNC_REPLICAS.to_owned()]),
        });
        let request =
            DescribeConfigsRequest { resources: resources.collect(), ..DescribeConfigsRequest::default() };
        for result in cluster.send_any(&request).await?.results {
            // A topic may have gone since it was listed, or be none of the asker's business.
            let config = result.configs.iter().find(|config| config.name == MIN_INSYNC_REPLICAS);
            if let Some(value) = config.and_then(|config| config.value.as_ref()?.parse().ok()) {
                found.insert(result.resource_name, value);
            }
        }
    }
    Ok(found)
}

fn partitions(metadata: &Metadata, min_isr: &BTreeMap<String, usize>) -> Vec<PartitionStatus> {
    let topics = metadata.topics.iter();
    topics
        .flat_map(|(name, topic)| {
            topic.partitions.iter().map(|partition| PartitionStatus {
                topic: name.clone(),
                partition: partition.index,
                leader: partition.leader,
                replicas: partition.replicas.clone(),
                adding: 0,
                isr: partition.isr.clone(),
                // More than there are replicas cannot be in sync.
                min_isr: min_isr.get(name).copied().unwrap_or(1).min(partition.replicas.len()),
            })
        })
        .collect()
}

async fn reassignments(cluster: &Cluster) -> anyhow::Result<Vec<Reassignment>> {
    let timeout_ms = i32::try_from(CONTROLLERS_WAIT.as_millis()).expect("a few seconds");
    let request = ListPartitionReassignmentsRequest { timeout_ms, topics: None };
    let answer = cluster.send_controller(&request).await?;
    let what = || "The list of reassignments".to_owned();
    Refused::check(answer.error_code, answer.error_message.as_deref(), what)?;
    let topics = answer.topics.into_iter();
    Ok(topics
        .flat_map(|topic| {
            let name = topic.name;
            topic.partitions.into_iter().map(move |partition| Reassignment {
                topic: name.clone(),
                partition: partition.partition_index,
                replicas: partition.replicas,
                adding: partition.adding_replicas,
                removing: partition.removing_replicas,
            })
        })
        .collect())
}

async fn quorum(cluster: &Cluster) -> anyhow::Result<Quorum> {
    let request = DescribeQuorumRequest {
        topics: vec![TopicData {
            topic_name: METADATA_TOPIC.to_owned(),
            partitions: vec![PartitionData { partition_index: 0 }],
        }],
    };
    let answer = cluster.send_controller(&request).await?;
    let what = || "The description of the quorum".to_owned();
    Refused::check(answer.error_code, answer.error_message.as_deref(), what)?;
    let partition = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
    let partition = partition.ok_or_else(|| anyhow::anyhow!("the description of the quorum is empty"))?;
    Refused::check(partition.error_code, partition.error_message.as_deref(), what)?;
    let addresses: BTreeMap<i32, String> = answer
        .nodes
        .iter()
        .filter_map(|node| {
            let listener = node.listeners.first()?;
            Some((node.node_id, address(&listener.host, i32::from(listener.port))))
        })
        .collect();
    let leader = partition.leader_id;
    let voters = partition
        .current_voters
        .iter()
        .map(|voter| (voter, if voter.replica_id == leader { Role::Leader } else { Role::Voter }));
    let observers = partition.observers.iter().map(|observer| (observer, Role::Observer));
    let nodes = voters.chain(observers).map(|(replica, role)| QuorumNode {
        id: replica.replica_id,
        role,
        address: addresses.get(&replica.replica_id).cloned(),
        log_end_offset: replica.log_end_offset,
    });
    let mut nodes: Vec<QuorumNode> = nodes.collect();
    nodes.sort_by_key(|node| (node.role == Role::Observer, node.id));
    let (epoch, high_watermark) = (partition.leader_epoch, partition.high_watermark);
    Ok(Quorum { leader, epoch, high_watermark, nodes })
}
