//! `topic create`: creates topics.

use clap::Args;
use serde_json::json;
use thalweg_client::RefusedRequest;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::CreateTopicsRequest;
use thalweg_wire::request::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};

use super::{ADMIN_TIMEOUT_MS, assignment, pair};
use crate::connect::Connect;
use crate::outcomes::add_outcomes;
use crate::output::{CommandOutput, Outcomes};

/// Create topics.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg topic create orders --partitions 6
  thalweg topic create orders --partitions 3 --replication-factor 3 --config retention.ms=3600000
  thalweg topic create orders --replica-assignment 1:2,2:3,3:1")]
pub struct Create {
    #[command(flatten)]
    connect: Connect,
    /// The names of the topics.
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Number of partitions [default: the broker's num.partitions].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Number of brokers that hold each partition [default: the broker's default.replication.factor].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// Brokers of each partition: partitions separated by ',', the brokers of each by ':'.
    #[arg(long, value_name = "ID:ID,...", conflicts_with_all = ["partitions", "replication_factor"])]
    replica_assignment: Option<String>,
    /// Set a setting of the topic; can be repeated.
    #[arg(long = "config", value_name = "KEY=VALUE")]
    configs: Vec<String>,
    /// Do not fail when a topic exists.
    #[arg(long)]
    if_not_exists: bool,
    /// Check the request without changing anything.
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl Create {
    /// Creates the topics.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        self.output.outcomes(async |outcomes| self.create(outcomes).await).await
    }

    async fn create(&self, outcomes: &mut Outcomes<'_>) -> anyhow::Result<()> {
        let topic = self.topic()?;
        let cluster = self.connect.cluster().await?;
        let topics = self.topics.iter().map(|name| CreatableTopic { name: name.clone(), ..topic.clone() });
        let request = CreateTopicsRequest {
            topics: topics.collect(),
            timeout_ms: ADMIN_TIMEOUT_MS,
            validate_only: self.validate_only,
        };
        let response = cluster.send_controller(&request).await?;
        let exists = ErrorCode::TopicAlreadyExists.code();
        let counted = response.topics.into_iter();
        let counted = counted.filter(|topic| !(self.if_not_exists && topic.error_code == exists));
        let results = counted.map(|created| {
            let what = || format!("Creating topic {}", created.name);
            let result = RefusedRequest::check(created.error_code, created.error_message.as_deref(), what);
            (created.name, result)
        });
        let (done, outcome) = match self.validate_only {
            true => ("Could create", "could be created"),
            false => ("Created", "created"),
        };
        add_outcomes(outcomes, results, |name, ()| {
            (json!({ "topic": name, "outcome": outcome }), format!("{done} topic {name}."))
        })
    }

    fn topic(&self) -> anyhow::Result<CreatableTopic> {
        let mut topic = CreatableTopic {
            num_partitions: self.partitions.unwrap_or(-1),
            replication_factor: self.replication_factor.unwrap_or(-1),
            ..CreatableTopic::default()
        };
        if let Some(text) = &self.replica_assignment {
            let partitions = (0..).zip(assignment(text)?);
            topic.assignments = partitions
                .map(|(partition_index, broker_ids)| CreatableReplicaAssignment {
                    partition_index,
                    broker_ids,
                })
                .collect();
        }
        for config in &self.configs {
            let (name, value) = pair(config)?;
            topic.configs.push(CreatableTopicConfig { name, value: Some(value) });
        }
        Ok(topic)
    }
}
