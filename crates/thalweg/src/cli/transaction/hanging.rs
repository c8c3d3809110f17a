//! `transaction find-hanging`: open transactions of partitions that no coordinator will end.
//!
//! As Kafka's tool does it: an open transaction whose last record is older than the longest timeout that brokers allow,
//! and whose coordinator does not know the producer, or knows it without this partition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::json;
use thalweg_client::{ActiveProducer, Admin, ClientError, TopicPartition, TransactionFilter};

use crate::cli::connect::Connect;
use crate::cli::moment;
use crate::cli::output::{Column, Output};
use crate::cli::partitions::{Partitions, resolve};
use crate::cli::settle::fail_with;

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
    /// All topics.
    #[arg(long, group = "scope", conflicts_with = "topics")]
    all_topics: bool,
    /// Only partitions that this broker leads.
    #[arg(long, value_name = "ID", group = "scope")]
    broker: Option<i32>,
    /// The brokers' transaction.max.timeout.ms: younger transactions may still end.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = moment::duration)]
    max_transaction_timeout: Duration,
    #[command(flatten)]
    output: Output,
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

/// An open transaction in a partition.
type Open = (TopicPartition, ActiveProducer);

impl FindHanging {
    /// Finds and shows them.
    pub async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let partitions = self.partitions(&admin).await?;
        let oldest =
            moment::now_ms() - i64::try_from(self.max_transaction_timeout.as_millis()).unwrap_or(i64::MAX);
        let (mut candidates, mut errors) = (Vec::new(), Vec::new());
        for (at, producers) in admin.describe_producers(&partitions).await? {
            match producers {
                Ok(producers) => candidates.extend(open_since(&at, producers, oldest)),
                Err(error) => errors.push(error),
            }
        }
        let hanging = match candidates.is_empty() {
            true => Vec::new(),
            false => hanging(&admin, candidates, &mut errors).await?,
        };
        let rows: Vec<serde_json::Value> = hanging
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

fn open_since(
    at: &TopicPartition,
    producers: Vec<ActiveProducer>,
    oldest: i64,
) -> impl Iterator<Item = Open> {
    let is_old = move |producer: &ActiveProducer| {
        producer.transaction_start.is_some() && producer.last_timestamp < oldest
    };
    let at = at.clone();
    producers.into_iter().filter(is_old).map(move |producer| (at.clone(), producer))
}

/// Those that no coordinator will end.
async fn hanging(
    admin: &Admin,
    candidates: Vec<Open>,
    errors: &mut Vec<ClientError>,
) -> anyhow::Result<Vec<Open>> {
    let producer_ids: BTreeSet<i64> = candidates.iter().map(|(_, producer)| producer.producer_id).collect();
    let filter = TransactionFilter { producer_ids: producer_ids.into_iter().collect(), ..Default::default() };
    let mut ids = BTreeMap::new();
    for listed in admin.list_transactions(&filter).await?.into_values() {
        // A coordinator that does not answer may know the transaction: without it, all would seem to hang.
        ids.extend(listed?.into_iter().map(|one| (one.producer_id, one.transactional_id)));
    }
    let names: Vec<String> = ids.values().cloned().collect();
    let mut described = admin.describe_transactions(&names).await;
    let mut known: BTreeMap<i64, BTreeSet<TopicPartition>> = BTreeMap::new();
    let mut unclear = BTreeSet::new();
    for (producer_id, id) in &ids {
        match described.remove(id) {
            Some(Ok(one)) => {
                known.insert(*producer_id, one.partitions.into_iter().collect());
            }
            Some(Err(error)) => {
                errors.push(error);
                unclear.insert(*producer_id);
            }
            None => {}
        }
    }
    let is_hanging = |(at, producer): &Open| {
        !unclear.contains(&producer.producer_id)
            && known.get(&producer.producer_id).is_none_or(|partitions| !partitions.contains(at))
    };
    Ok(candidates.into_iter().filter(is_hanging).collect())
}
