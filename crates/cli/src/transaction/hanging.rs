//! `transaction find-hanging`: open transactions of partitions that no coordinator will end.

use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::json;
use thalweg_client::{Admin, HangingTransactions, OpenTransaction, TopicPartition};

use crate::connect::Connect;
use crate::failure::{CommandExit, NotFound, REFUSED};
use crate::moment;
use crate::outcomes::fail_with;
use crate::output::{Column, CommandOutput};
use crate::partitions::{Partitions, resolve};

/// Find transactions that their coordinator has forgotten: they block read_committed consumers for ever.
///
/// Coordinators leave transactional ids out on which the login lacks DESCRIBE. Open transactions of producers
/// that may have such an id are not shown as hanging: the command names them, and fails with exit code 6.
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

/// Transactions named in an error.
const NAMED_MAX: usize = 10;

/// The failure to tell whether open transactions hang; none if there are none.
fn unclear_failure(unclear: &[OpenTransaction]) -> Option<CommandExit> {
    let named = unclear.iter().take(NAMED_MAX).map(|(at, producer)| {
        format!(
            "{at} from offset {} (producer {})",
            producer.transaction_start.unwrap_or(-1),
            producer.producer_id
        )
    });
    let mut names: Vec<String> = named.collect();
    let more = unclear.len().saturating_sub(NAMED_MAX);
    names.extend((more > 0).then(|| format!("{more} more")));
    (!unclear.is_empty()).then(|| CommandExit {
        code: REFUSED,
        why: format!(
            "Whether these open transactions hang is not known, because the login may not describe all \
             transactional ids: {}",
            names.join(", ")
        ),
    })
}

impl FindHanging {
    /// Finds and prints hanging transactions.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let partitions = self.partitions(&admin).await?;
        let oldest = moment::ago_ms(self.max_transaction_timeout);
        let HangingTransactions { found, unclear, errors } =
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
        if self.all_topics
            && let Some(partial) = admin.partial_view().await
        {
            tracing::warn!("Not all topics were searched: {partial}");
        }
        let mut errors: Vec<anyhow::Error> = errors.into_iter().map(Into::into).collect();
        errors.extend(unclear_failure(&unclear).map(Into::into));
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

#[cfg(test)]
mod tests {
    use thalweg_client::ActiveProducer;

    use super::*;

    #[test]
    fn open_transactions_of_unknown_ids_are_no_hanging_ones() {
        assert!(unclear_failure(&[]).is_none());
        let producer = ActiveProducer {
            producer_id: 7,
            producer_epoch: 0,
            last_sequence: 0,
            last_timestamp: 0,
            coordinator_epoch: 0,
            transaction_start: Some(5),
        };
        let open = (TopicPartition::new("orders", 0), producer);
        let failure = unclear_failure(&vec![open; 12]).expect("a failure");
        assert_eq!(failure.code, REFUSED);
        assert!(failure.why.contains("ids: orders-0 from offset 5 (producer 7), "), "{}", failure.why);
        assert!(failure.why.ends_with(", 2 more"), "{}", failure.why);
    }
}
