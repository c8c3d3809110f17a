//! `transaction find-hanging`: open transactions of partitions that no coordinator will end.

use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::json;
use thalweg_client::{Admin, HangingTransactions, TopicPartition};

use crate::connect::Connect;
use crate::failure::NotFound;
use crate::moment;
use crate::outcomes::fail_with;
use crate::output::{Column, CommandOutput};
use crate::partitions::{Partitions, resolve};

/// Find transactions that their coordinator has forgotten: they block read_committed consumers for ever.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("scope").required(true).multiple(true)),
    after_help = "\
Examples:
  thalweg transaction find-hanging --all-topics
  thalweg transaction find-hanging --topic orders --max-transaction-timeout 1m"
)]
pub struct FindHanging {
    #[command(flatten)]
    connect: Connect,
    /// A topic, or some of its partitions as TOPIC:0,3; can be repeated.
    #[arg(long = "topic", value_name = "TOPIC[:PARTITION,...]", group = "scope")]
    topics: Vec<Partitions>,
    /// The partitions of all topics.
    #[arg(long, group = "scope", conflicts_with = "topics")]
    all_topics: bool,
    /// Search only partitions that this broker leads.
    #[arg(long, value_name = "ID", group = "scope")]
    broker: Option<i32>,
    /// The brokers' transaction.max.timeout.ms: younger transactions may still end.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = moment::duration)]
    max_transaction_timeout: Duration,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 7] = [
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("PRODUCER-ID", "producer_id"),
    ("EPOCH", "producer_epoch"),
    ("COORDINATOR-EPOCH", "coordinator_epoch"),
    ("START-OFFSET", "start_offset"),
    ("LAST-TIME", "last_time"),
];

impl FindHanging {
    /// Finds and prints hanging transactions.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let partitions = self.partitions(&admin).await?;
        let oldest = moment::ago_ms(self.max_transaction_timeout);
        let HangingTransactions { found, errors } =
            admin.find_hanging_transactions(&partitions, oldest).await?;
        let rows: Vec<serde_json::Value> = found
            .iter()
            .map(|(at, producer)| {
                json!({
                    "topic": &*at.topic,
                    "partition": at.partition,
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "coordinator_epoch": producer.coordinator_epoch,
                    "start_offset": producer.transaction_start,
                    "last_time": moment::shown(producer.last_timestamp),
                })
            })
            .collect();
        self.output.rows(&COLUMNS, &rows)?;
        fail_with(errors)
    }

    async fn partitions(&self, admin: &Admin) -> anyhow::Result<Vec<TopicPartition>> {
        let brokers = admin.describe_cluster().await?.brokers;
        if let Some(id) = self.broker.filter(|id| brokers.iter().all(|broker| broker.id != *id)) {
            let ids: Vec<String> = brokers.iter().map(|broker| broker.id.to_string()).collect();
            return Err(NotFound(format!("There is no broker {id}: these are {}", ids.join(", "))).into());
        }
        if !self.topics.is_empty() {
            let found = resolve(admin.cluster(), &self.topics).await?;
            let metadata = admin.cluster().metadata();
            let led_here = |at: &TopicPartition| {
                self.broker.is_none() || metadata.leader(&at.topic, at.partition) == self.broker
            };
            return Ok(found.into_iter().filter(led_here).collect());
        }
        let metadata = admin.cluster().refresh_all().await?;
        let mut found = Vec::new();
        for (name, topic) in &metadata.topics {
            let led = topic.partitions.iter().filter(|partition| match self.broker {
                Some(broker) => partition.leader == Some(broker),
                None => true,
            });
            found.extend(led.map(|partition| TopicPartition::new(name.as_str(), partition.index)));
        }
        Ok(found)
    }
}
