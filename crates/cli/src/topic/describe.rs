//! `topic describe`: prints partitions and settings of topics.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::Args;
use serde_json::json;
use thalweg_client::{Cluster, RefusedRequest, TopicMetadata};
use thalweg_security::visible::visible;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::DescribeConfigsRequest;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;

use super::alter::TOPIC_RESOURCE;
use super::names;
use crate::connect::Connect;
use crate::output::Output;
use crate::probe;

/// Kafka's number of the source "set on the topic".
const SOURCE_TOPIC: i8 = 1;

/// Describe topics: settings, partitions, leaders, replicas.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  thalweg topic describe orders\n  thalweg topic describe --json | jq .")]
pub struct Describe {
    #[command(flatten)]
    connect: Connect,
    /// The topics; all, when none is named.
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Show all settings, not only those that were set on the topic.
    #[arg(long)]
    all_configs: bool,
    #[command(flatten)]
    output: Output,
}

type Configs = BTreeMap<String, Option<String>>;

impl Describe {
    /// Describes the topics.
    pub async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let metadata = match self.topics.is_empty() {
            true => cluster.refresh_all().await?,
            false => cluster.refresh(&self.topics, false).await?,
        };
        let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
        let named =
            partitions.flat_map(|partition| partition.leader.into_iter().chain(partition.isr.clone()));
        probe::warn_of_silent(&cluster, named.collect()).await;
        let (mut described, mut text) = (Vec::new(), String::new());
        for name in names(&metadata, true) {
            let topic = &metadata.topics[name];
            if let Some(error) = topic.error {
                RefusedRequest::check(error.code(), None, || format!("Topic {name}"))?;
            }
            let configs = self.configs(&cluster, name).await?;
            match self.output.is_table() {
                true => write_topic(&mut text, topic, &configs)?,
                false => described.push(topic_json(topic, &configs)),
            }
        }
        self.output.show(&described, |_| Ok(text))
    }

    async fn configs(&self, cluster: &Cluster, topic: &str) -> anyhow::Result<Configs> {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: TOPIC_RESOURCE,
                resource_name: topic.to_owned(),
                configuration_keys: None,
            }],
            ..DescribeConfigsRequest::default()
        };
        let response = cluster.send_any(&request).await?;
        let mut configs = Configs::new();
        for result in response.results {
            RefusedRequest::check(result.error_code, result.error_message.as_deref(), || {
                format!("Settings of topic {topic}")
            })?;
            let shown = result
                .configs
                .into_iter()
                .filter(|config| self.all_configs || config.config_source == SOURCE_TOPIC);
            configs.extend(shown.map(|config| (config.name, config.value)));
        }
        Ok(configs)
    }
}

/// Writes a topic in the familiar format of kafka-topics.
fn write_topic(out: &mut impl Write, topic: &TopicMetadata, configs: &Configs) -> std::fmt::Result {
    let shown = |value: &Option<String>| visible(value.as_deref().unwrap_or("")).into_owned();
    let configs: Vec<String> =
        configs.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
    let replication_factor = topic.partitions.first().map_or(0, |partition| partition.replicas.len());
    writeln!(
        out,
        "Topic: {}\tTopicId: {}\tPartitionCount: {}\tReplicationFactor: {replication_factor}\tConfigs: {}",
        topic.name,
        topic.id,
        topic.partitions.len(),
        configs.join(","),
    )?;
    for partition in &topic.partitions {
        write!(
            out,
            "\tTopic: {}\tPartition: {}\tLeader: {}\tReplicas: {}\tIsr: {}",
            topic.name,
            partition.index,
            partition.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string()),
            ids(&partition.replicas),
            ids(&partition.isr),
        )?;
        match partition.error {
            None | Some(ErrorCode::LeaderNotAvailable) => writeln!(out)?,
            Some(error) => writeln!(out, "\tError: {error}")?,
        }
    }
    Ok(())
}

fn topic_json(topic: &TopicMetadata, configs: &Configs) -> serde_json::Value {
    let partitions: Vec<serde_json::Value> = topic
        .partitions
        .iter()
        .map(|partition| {
            json!({
                "partition": partition.index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch.0,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "offline": partition.offline,
                "error": partition.error.map(ErrorCode::name),
            })
        })
        .collect();
    json!({
        "topic": &*topic.name,
        "topic_id": topic.id.to_string(),
        "internal": topic.internal,
        "configs": configs,
        "partitions": partitions,
    })
}

fn ids(list: &[i32]) -> String {
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    texts.join(",")
}
