//! `topic alter`: adds partitions and changes settings.

use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, Cluster, ConfigResource, RefusedRequest};
use thalweg_wire::request::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{CreatePartitionsRequest, IncrementalAlterConfigsRequest};

use super::{ADMIN_TIMEOUT_MS, assignment, pair};
use crate::config::check_removals;
use crate::connect::Connect;
use crate::failure::Usage;
use crate::output::{CommandOutput, Outcomes};

/// Kafka's number of the resource type "topic".
pub(super) const TOPIC_RESOURCE: i8 = 2;
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Add partitions to a topic, or change its settings.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg topic alter orders --partitions 12
  thalweg topic alter orders --config retention.ms=86400000 --delete-config cleanup.policy")]
pub struct Alter {
    #[command(flatten)]
    connect: Connect,
    /// The topic to change.
    topic: String,
    /// The new number of partitions. It can only grow, and later records of a key may go to another
    /// partition.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Brokers of the new partitions: partitions separated by ',', the brokers of each by ':'.
    #[arg(long, value_name = "ID:ID,...", requires = "partitions")]
    replica_assignment: Option<String>,
    /// Set a setting; can be repeated.
    #[arg(long = "config", value_name = "KEY=VALUE")]
    configs: Vec<String>,
    /// Put a setting back to the broker's default; can be repeated.
    #[arg(long, value_name = "KEY")]
    delete_config: Vec<String>,
    /// Check the request without changing anything.
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl Alter {
    /// Changes the topic.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let configs = self.configs()?;
        if self.partitions.is_none() && configs.is_empty() {
            let nothing = "Nothing to change: expected --partitions, --config or --delete-config";
            return Err(Usage(nothing.to_owned()).into());
        }
        let cluster = self.connect.cluster().await?;
        let resource = ConfigResource::Topic(self.topic.clone());
        let removed = self.delete_config.iter().map(String::as_str);
        check_removals(&Admin::new(cluster.clone()), &resource, removed).await?;
        self.output.outcomes(async |outcomes| self.alter(&cluster, configs, outcomes).await).await
    }

    async fn alter(
        &self,
        cluster: &Cluster,
        configs: Vec<AlterableConfig>,
        outcomes: &mut Outcomes<'_>,
    ) -> anyhow::Result<()> {
        let topic = &self.topic;
        if let Some(count) = self.partitions {
            // Added partitions cannot be removed, so the settings are validated first.
            if !configs.is_empty() {
                self.alter_configs(cluster, configs.clone(), true).await?;
            }
            self.add_partitions(cluster, count).await?;
        }
        if !configs.is_empty()
            && let Err(error) = self.alter_configs(cluster, configs, self.validate_only).await
        {
            if let Some(count) = self.partitions.filter(|_| !self.validate_only) {
                let grown = json!({ "topic": topic, "partitions": count, "outcome": "grown" });
                outcomes.add(&grown, &format!("Topic {topic} has {count} partitions."))?;
            }
            return Err(error);
        }
        let (done, outcome) = match self.validate_only {
            true => ("Could alter", "could be altered"),
            false => ("Altered", "altered"),
        };
        outcomes.add(&json!({ "topic": topic, "outcome": outcome }), &format!("{done} topic {topic}."))
    }

    fn configs(&self) -> Result<Vec<AlterableConfig>, Usage> {
        let mut configs = Vec::new();
        for config in &self.configs {
            let (name, value) = pair(config)?;
            configs.push(AlterableConfig { name, config_operation: SET, value: Some(value) });
        }
        configs.extend(self.delete_config.iter().map(|name| AlterableConfig {
            name: name.clone(),
            config_operation: DELETE,
            value: None,
        }));
        Ok(configs)
    }

    async fn add_partitions(&self, cluster: &Cluster, count: i32) -> anyhow::Result<()> {
        let assignments = match &self.replica_assignment {
            Some(text) => {
                let partitions = assignment(text)?.into_iter();
                Some(partitions.map(|broker_ids| CreatePartitionsAssignment { broker_ids }).collect())
            }
            None => None,
        };
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic { name: self.topic.clone(), count, assignments }],
            timeout_ms: ADMIN_TIMEOUT_MS,
            validate_only: self.validate_only,
        };
        let response = cluster.send_controller(&request).await?;
        for result in response.results {
            RefusedRequest::check(result.error_code, result.error_message.as_deref(), || {
                format!("More partitions for topic {}", self.topic)
            })?;
        }
        Ok(())
    }

    async fn alter_configs(
        &self,
        cluster: &Cluster,
        configs: Vec<AlterableConfig>,
        validate_only: bool,
    ) -> anyhow::Result<()> {
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: TOPIC_RESOURCE,
                resource_name: self.topic.clone(),
                configs,
            }],
            validate_only,
        };
        let response = cluster.send_controller(&request).await?;
        for result in response.responses {
            RefusedRequest::check(result.error_code, result.error_message.as_deref(), || {
                format!("Settings of topic {}", self.topic)
            })?;
        }
        Ok(())
    }
}
