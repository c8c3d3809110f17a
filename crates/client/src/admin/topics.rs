//! Topics, and the cluster's brokers.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_wire::Uuid;
use thalweg_wire::request::create_partitions_request::CreatePartitionsTopic;
use thalweg_wire::request::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest,
};

use super::{Admin, Outcomes, refused};
use crate::metadata::{BrokerAddress, TopicMetadata};

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NewTopic {
    /// The topic's name.
    pub name: String,
    /// Number of partitions; `None` for the broker's `num.partitions`.
    pub partitions: Option<i32>,
    /// Number of replicas; `None` for the broker's `default.replication.factor`.
    pub replication_factor: Option<i16>,
    /// The brokers of each partition, instead of both numbers; empty to let the controller choose.
    pub replicas: Vec<Vec<i32>>,
    /// The topic's configuration.
    pub configs: BTreeMap<String, String>,
}

impl NewTopic {
    /// A topic with the broker's default numbers of partitions and replicas.
    pub fn new(name: impl Into<String>) -> NewTopic {
        NewTopic { name: name.into(), ..NewTopic::default() }
    }
}

/// A created topic, as the broker reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// The topic id.
    pub id: Uuid,
    /// Number of partitions.
    pub partitions: i32,
    /// Number of replicas.
    pub replication_factor: i16,
}

/// The first version of DescribeCluster that includes fenced brokers (KIP-1073).
const FENCED_FROM: i16 = 2;

/// The description of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDescription {
    /// The cluster id.
    pub cluster_id: String,
    /// The broker for administrative requests.
    pub controller_id: Option<i32>,
    /// The registered brokers.
    pub brokers: Vec<BrokerAddress>,
    /// The fenced brokers among them: stopped, or not caught up. Reported from version 2 on.
    pub fenced: BTreeSet<i32>,
    /// True if fenced brokers are reported. Otherwise, `brokers` has none of them.
    pub reports_fenced: bool,
}

impl ClusterDescription {
    /// The brokers that run.
    pub fn running(&self) -> impl Iterator<Item = &BrokerAddress> {
        self.brokers.iter().filter(|broker| !self.fenced.contains(&broker.id))
    }
}

impl Admin {
    /// Creates topics; with `validate_only`, only checks the request.
    pub async fn create_topics(
        &self,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> Result<Outcomes<String, CreatedTopic>, ClientError> {
        let request = CreateTopicsRequest {
            topics: topics.iter().map(creatable).collect(),
            timeout_ms: self.timeout_ms(),
            validate_only,
        };
        let response = self.change(&request, |_| Ok(())).await?;
        let outcomes = response.topics.into_iter().map(|topic| {
            let what = || format!("Creating topic {}", topic.name);
            let created = CreatedTopic {
                id: topic.topic_id,
                partitions: topic.num_partitions,
                replication_factor: topic.replication_factor,
            };
            let outcome = refused(topic.error_code, topic.error_message.as_deref(), what);
            (topic.name.clone(), outcome.map(|()| created))
        });
        Ok(outcomes.collect())
    }

    pub async fn delete_topics(&self, topics: &[String]) -> Result<Outcomes<String>, ClientError> {
        let by_name = |name: &String| DeleteTopicState { name: Some(name.clone()), ..Default::default() };
        let newest = self.cluster.any().await?.version_of::<DeleteTopicsRequest>()?;
        let mut request = DeleteTopicsRequest { timeout_ms: self.timeout_ms(), ..Default::default() };
        match newest >= 6 {
            true => request.topics = topics.iter().map(by_name).collect(),
            false => request.topic_names = topics.to_vec(),
        }
        let response = self.change(&request, |_| Ok(())).await?;
        let outcomes = response.responses.into_iter().map(|topic| {
            let name = topic.name.unwrap_or_default();
            let what = || format!("Deleting topic {name}");
            let outcome = refused(topic.error_code, topic.error_message.as_deref(), what);
            (name, outcome)
        });
        Ok(outcomes.collect())
    }

    /// Increases the number of partitions of topics to these numbers.
    pub async fn create_partitions(
        &self,
        counts: &BTreeMap<String, i32>,
    ) -> Result<Outcomes<String>, ClientError> {
        let topics = counts.iter().map(|(name, count)| CreatePartitionsTopic {
            name: name.clone(),
            count: *count,
            assignments: None,
        });
        let request = CreatePartitionsRequest {
            topics: topics.collect(),
            timeout_ms: self.timeout_ms(),
            validate_only: false,
        };
        let response = self.change(&request, |_| Ok(())).await?;
        let outcomes = response.results.into_iter().map(|topic| {
            let what = || format!("Adding partitions to topic {}", topic.name);
            let outcome = refused(topic.error_code, topic.error_message.as_deref(), what);
            (topic.name.clone(), outcome)
        });
        Ok(outcomes.collect())
    }

    /// Describes these topics, or all.
    pub async fn describe_topics(
        &self,
        topics: Option<&[String]>,
    ) -> Result<Outcomes<String, TopicMetadata>, ClientError> {
        let metadata = match topics {
            Some(topics) => self.cluster.refresh(topics, false).await?,
            None => self.cluster.refresh_all().await?,
        };
        let outcomes = metadata.topics.iter().map(|(name, topic)| {
            let described = match topic.error {
                None => Ok(topic.clone()),
                Some(error_code) => {
                    Err(RefusedRequest { what: format!("Topic {name}"), error_code, message: None }.into())
                }
            };
            (name.clone(), described)
        });
        Ok(outcomes.collect())
    }

    /// Describes the cluster.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, ClientError> {
        let connection = self.cluster.any().await?;
        let include_fenced_brokers = connection.version_of::<DescribeClusterRequest>()? >= FENCED_FROM;
        let request = DescribeClusterRequest { include_fenced_brokers, ..Default::default() };
        let response = connection.send(&request).await?;
        refused(response.error_code, response.error_message.as_deref(), || "The cluster".to_owned())?;
        let fenced = response.brokers.iter().filter(|broker| broker.is_fenced);
        let fenced = fenced.map(|broker| broker.broker_id).collect();
        let brokers = response.brokers.into_iter().map(|broker| BrokerAddress {
            id: broker.broker_id,
            host: broker.host,
            port: broker.port,
            rack: broker.rack,
        });
        Ok(ClusterDescription {
            cluster_id: response.cluster_id,
            controller_id: (response.controller_id >= 0).then_some(response.controller_id),
            brokers: brokers.collect(),
            fenced,
            reports_fenced: include_fenced_brokers,
        })
    }
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let assigned = !topic.replicas.is_empty();
    let assignments = (0..).zip(&topic.replicas).map(|(partition_index, brokers)| {
        CreatableReplicaAssignment { partition_index, broker_ids: brokers.clone() }
    });
    let configs = topic
        .configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig { name: name.clone(), value: Some(value.clone()) });
    CreatableTopic {
        name: topic.name.clone(),
        num_partitions: topic.partitions.filter(|_| !assigned).unwrap_or(-1),
        replication_factor: topic.replication_factor.filter(|_| !assigned).unwrap_or(-1),
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}
