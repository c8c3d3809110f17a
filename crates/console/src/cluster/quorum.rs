//! The quorum of controllers, and the feature levels of the cluster.

use serde::Serialize;
use thalweg_client::{ClientError, Refused};
use thalweg_wire::request::describe_quorum_request::{PartitionData, TopicData};
use thalweg_wire::request::describe_quorum_response::ReplicaState;
use thalweg_wire::request::{ApiVersionsRequest, DescribeQuorumRequest};
use utoipa::ToSchema;

use super::View;

/// The topic that the quorum replicates.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// The quorum of controllers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Quorum {
    /// The node that leads.
    pub leader: i32,
    /// Its epoch.
    pub epoch: i32,
    /// The end of what is committed.
    pub high_watermark: i64,
    /// Nodes that vote.
    pub voters: Vec<QuorumNode>,
    /// Nodes that follow: brokers, and controllers without a vote.
    pub observers: Vec<QuorumNode>,
}

/// A node of the quorum.
#[derive(Debug, Serialize, ToSchema)]
pub struct QuorumNode {
    /// Its id.
    pub id: i32,
    /// Where its copy of the metadata log ends.
    pub end: i64,
    /// How far that is behind the leader.
    pub lag: i64,
    /// When it last fetched, in milliseconds since 1970, if the leader reports it.
    pub last_fetch_ms: Option<i64>,
}

/// A feature of the cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// The level of the cluster; none if it is not set.
    pub level: Option<i16>,
    /// The lowest level that the broker supports.
    pub supported_min: i16,
    /// The highest.
    pub supported_max: i16,
}

/// Reads the quorum.
pub async fn read(view: &View) -> Result<Quorum, ClientError> {
    let partitions = vec![PartitionData { partition_index: 0 }];
    let topics = vec![TopicData { topic_name: METADATA_TOPIC.to_owned(), partitions }];
    let response = view.cluster().send_any(&DescribeQuorumRequest { topics }).await?;
    let what = || "The quorum of controllers".to_owned();
    Refused::check(response.error_code, response.error_message.as_deref(), what)?;
    let partition = response.topics.into_iter().flat_map(|topic| topic.partitions).next().unwrap_or_default();
    Refused::check(partition.error_code, partition.error_message.as_deref(), what)?;
    let all = partition.current_voters.iter().chain(&partition.observers);
    let end = all.map(|node| node.log_end_offset).max().unwrap_or(0);
    let nodes = |nodes: &[ReplicaState]| {
        let mut nodes: Vec<QuorumNode> = nodes
            .iter()
            .map(|node| QuorumNode {
                id: node.replica_id,
                end: node.log_end_offset,
                lag: (end - node.log_end_offset).max(0),
                last_fetch_ms: (node.last_fetch_timestamp > 0).then_some(node.last_fetch_timestamp),
            })
            .collect();
        nodes.sort_by_key(|node| node.id);
        nodes
    };
    Ok(Quorum {
        leader: partition.leader_id,
        epoch: partition.leader_epoch,
        high_watermark: partition.high_watermark,
        voters: nodes(&partition.current_voters),
        observers: nodes(&partition.observers),
    })
}

/// Reads the features, as one broker has them.
pub async fn features(view: &View) -> Result<Vec<Feature>, ClientError> {
    let request = ApiVersionsRequest {
        client_software_name: "thalweg-console".to_owned(),
        client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let response = view.cluster().send_any(&request).await?;
    Refused::check(response.error_code, None, || "Features of the cluster".to_owned())?;
    let level = |name: &str| {
        let found = response.finalized_features.iter().find(|feature| feature.name == name);
        found.map(|feature| feature.max_version_level)
    };
    let mut features: Vec<Feature> = response
        .supported_features
        .iter()
        .map(|feature| Feature {
            level: level(&feature.name),
            name: feature.name.clone(),
            supported_min: feature.min_version,
            supported_max: feature.max_version,
        })
        .collect();
    features.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(features)
}
