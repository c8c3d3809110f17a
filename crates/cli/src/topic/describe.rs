//! `topic describe`: prints partitions and settings of topics, and the groups that read them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, ClientError, Cluster, RefusedRequest, TopicMetadata};
use thalweg_security::visible::visible;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::DescribeConfigsRequest;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;

use super::alter::TOPIC_RESOURCE;
use super::groups::{self, Groups, Reading};
use super::list::unlisted;
use crate::connect::Connect;
use crate::output::CommandOutput;
use crate::probe;

/// Time limit for the answer of a broker about its log directories, which name topics that are not listed.
const HIDDEN_WITHIN: Duration = Duration::from_secs(5);

/// Kafka's number of the source "set on the topic".
const SOURCE_TOPIC: i8 = 1;

/// Describe topics: settings, partitions, leaders, replicas.
///
/// Settings need the right DESCRIBE_CONFIGS; without it, the rest is shown, with a warning (in JSON, configs
/// is null). Without a name, topics that the login may not describe are left out, with a warning.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  thalweg topic describe orders\n  thalweg topic describe orders --groups\n  \
                  thalweg topic describe --json | jq ."
)]
pub struct Describe {
    #[command(flatten)]
    connect: Connect,
    /// Topics to describe [default: all].
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Show all settings, not only those that were set on the topic.
    #[arg(long)]
    all_configs: bool,
    /// Show the groups that read the topics too, with their lag in records and, from Thalweg's brokers, in
    /// seconds: groups with committed offsets, and groups with members that are assigned partitions. If
    /// groups may be missing, a warning says why (in JSON, groups_unseen).
    #[arg(long)]
    groups: bool,
    #[command(flatten)]
    output: CommandOutput,
}

type Configs = BTreeMap<String, Option<String>>;

/// The settings of a topic; an error if an ACL hides them, since the rest can be shown.
fn unless_hidden(
    topic: &str,
    configs: Result<Configs, RefusedRequest>,
) -> Result<Option<Configs>, RefusedRequest> {
    match configs {
        Err(refused) if refused.error_code == ErrorCode::TopicAuthorizationFailed => {
            tracing::warn!(
                "The settings of topic {topic} are not shown: the login lacks DESCRIBE_CONFIGS on it"
            );
            Ok(None)
        }
        other => other.map(Some),
    }
}

impl Describe {
    /// Describes the topics.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let metadata = match self.topics.is_empty() {
            true => cluster.refresh_all().await?,
            false => cluster.refresh(&self.topics, false).await?,
        };
        let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
        let named =
            partitions.flat_map(|partition| partition.leader.into_iter().chain(partition.isr.clone()));
        probe::warn_of_silent(&cluster, named.collect()).await;
        if self.topics.is_empty() {
            let admin =
                Admin::new(cluster.clone()).with_timeout(HIDDEN_WITHIN).with_answer_limit(HIDDEN_WITHIN);
            let sentence = unlisted(&admin.hidden_topics(&metadata).await);
            sentence.iter().for_each(|sentence| tracing::warn!("{sentence}"));
        }
        let groups = match self.groups {
            true => Some(Groups::of(&cluster).await?),
            false => None,
        };
        let mut described = Vec::new();
        for (name, topic) in &metadata.topics {
            if let Some(error) = topic.error {
                RefusedRequest::check(error.code(), None, || format!("Topic {name}"))?;
            }
            let configs = unless_hidden(name, self.configs(&cluster, name).await?)?;
            let reading = match &groups {
                Some(groups) => Some(groups.reading(name).await?),
                None => None,
            };
            described.push((topic, configs, reading));
        }
        let documents: Vec<serde_json::Value> = match self.output.is_table() {
            true => Vec::new(),
            false => described
                .iter()
                .map(|(topic, configs, reading)| topic_json(topic, configs.as_ref(), reading.as_ref()))
                .collect(),
        };
        self.output.show(&documents, |style| {
            let mut text = String::new();
            for (topic, configs, reading) in &described {
                write_topic(&mut text, topic, configs.as_ref())?;
                if let Some(reading) = reading {
                    text.push_str(&groups::table(reading, style)?);
                }
            }
            Ok(text)
        })
    }

    async fn configs(
        &self,
        cluster: &Cluster,
        topic: &str,
    ) -> Result<Result<Configs, RefusedRequest>, ClientError> {
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
            let what = || format!("Settings of topic {topic}");
            if let Err(refused) =
                RefusedRequest::check(result.error_code, result.error_message.as_deref(), what)
            {
                return Ok(Err(refused));
            }
            let shown = result
                .configs
                .into_iter()
                .filter(|config| self.all_configs || config.config_source == SOURCE_TOPIC);
            configs.extend(shown.map(|config| (config.name, config.value)));
        }
        Ok(Ok(configs))
    }
}

/// Writes a topic in the familiar format of kafka-topics. Hidden settings are a question mark.
fn write_topic(out: &mut impl Write, topic: &TopicMetadata, configs: Option<&Configs>) -> std::fmt::Result {
    let shown = |value: &Option<String>| visible(value.as_deref().unwrap_or("")).into_owned();
    let configs: Vec<String> = match configs {
        Some(configs) => configs.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect(),
        None => vec!["?".to_owned()],
    };
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

fn topic_json(
    topic: &TopicMetadata,
    configs: Option<&Configs>,
    reading: Option<&Reading>,
) -> serde_json::Value {
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
    let mut document = json!({
        "topic": &*topic.name,
        "topic_id": topic.id.to_string(),
        "internal": topic.internal,
        "configs": configs,
        "partitions": partitions,
    });
    if let Some(Reading { groups, unseen }) = reading {
        document["groups"] = groups.as_slice().into();
        document["groups_unseen"] = unseen.as_slice().into();
    }
    document
}

fn ids(list: &[i32]) -> String {
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hidden_settings_are_left_out() {
        let refused = |error_code| Err(RefusedRequest { what: "t".to_owned(), error_code, message: None });
        assert!(
            unless_hidden("t", refused(ErrorCode::TopicAuthorizationFailed)).is_ok_and(|it| it.is_none())
        );
        assert!(unless_hidden("t", refused(ErrorCode::UnknownTopicOrPartition)).is_err());
        assert!(unless_hidden("t", Ok(Configs::new())).is_ok_and(|it| it.is_some()));
    }
}
