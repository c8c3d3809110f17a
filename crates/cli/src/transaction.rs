//! `transaction`: list, describe, abort and fence transactions, and find hanging ones.

mod hanging;

use anyhow::Error;
use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;
use thalweg_client::{AbortTransaction, Admin, TopicPartition, TransactionFilter, TransactionListing};

use super::CommandFuture;
use super::connect::Connect;
use super::failure::{CommandFailure, Usage, causes};
use super::moment;
use super::outcomes::{add_outcomes, fail_with};
use super::output::{Column, CommandOutput};
use super::partitions::{Partitions, resolve};

/// List and describe transactions, and end those that hang.
#[derive(Subcommand, Debug)]
pub enum Transaction {
    List(List),
    Describe(Describe),
    Producers(Producers),
    FindHanging(hanging::FindHanging),
    Abort(Abort),
    Fence(Fence),
}

impl Transaction {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Transaction::List(list) => list.run().await,
                Transaction::Describe(describe) => describe.run().await,
                Transaction::Producers(producers) => producers.run().await,
                Transaction::FindHanging(find) => find.run().await,
                Transaction::Abort(abort) => abort.run().await,
                Transaction::Fence(fence) => fence.run().await,
            }
        })
    }
}

/// List the transactional ids of all coordinators, in the order of their names.
///
/// If a broker does not answer, the command fails in the end; in documents, the field `problem` of a row
/// without a transactional id has the reason. Transactional ids on which the login lacks DESCRIBE are left
/// out, as in Kafka, with a warning: brokers do not report whether there are any.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg transaction list --in-state Ongoing --longer-than 10m
  thalweg transaction list --prefix payments-")]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    /// List only transactional ids in this state, such as Ongoing or Empty; can be repeated.
    #[arg(long = "in-state", value_name = "STATE", value_parser = STATES, ignore_case = true)]
    states: Vec<String>,
    /// List only transactions of this producer; can be repeated.
    #[arg(long = "producer-id", value_name = "ID")]
    producer_ids: Vec<i64>,
    /// List only transactions that have been running for longer than this: 90s, 15m, 12h.
    #[arg(long, value_name = "DURATION", value_parser = moment::duration)]
    longer_than: Option<std::time::Duration>,
    /// List only transactional ids that begin with this text, by any broker.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// List only transactional ids that match this regular expression, by brokers since Kafka 4.1.
    #[arg(long, value_name = "REGEX")]
    pattern: Option<String>,
    #[command(flatten)]
    output: CommandOutput,
}

/// Kafka's states of transactions. Brokers accept only these spellings, and return nothing for any other.
const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
];

/// A state in Kafka's spelling.
fn canonical(state: &str) -> String {
    let known = STATES.into_iter().find(|known| known.eq_ignore_ascii_case(state));
    known.unwrap_or(state).to_owned()
}

const LISTED: [Column<'_>; 4] = [
    ("TRANSACTIONAL-ID", "transactional_id"),
    ("COORDINATOR", "coordinator"),
    ("PRODUCER-ID", "producer_id"),
    ("STATE", "state"),
];

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let filter = TransactionFilter {
            states: self.states.iter().map(|state| canonical(state)).collect(),
            producer_ids: self.producer_ids.clone(),
            longer_than: self.longer_than,
            pattern: self.pattern.clone(),
        };
        let admin = Admin::new(self.connect.cluster().await?);
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        errors.extend(admin.missing_transaction_coordinators().await.map(Error::new));
        for (coordinator, listed) in admin.list_transactions(&filter).await? {
            match listed {
                Ok(listed) => found.extend(listed.into_iter().map(|one| (coordinator, one))),
                Err(error) => errors.push(Error::new(error).context(format!("Broker {coordinator}"))),
            }
        }
        let rows: Vec<serde_json::Value> = sorted(found, self.prefix.as_deref().unwrap_or_default())
            .into_iter()
            .map(|(coordinator, one)| {
                json!({
                    "transactional_id": one.transactional_id,
                    "coordinator": coordinator,
                    "producer_id": one.producer_id,
                    "state": one.state,
                    "problem": null,
                })
            })
            .collect();
        let gaps: Vec<String> = errors.iter().map(causes).collect();
        self.output.rows_with_gaps(&LISTED, rows, &gaps)?;
        if admin.describes_all_transactional_ids().await.is_ok_and(|sees_all| !sees_all) {
            tracing::warn!(
                "Transactional ids that the login may not describe are not listed. Whether there are any is not known: \
                 it lacks DESCRIBE on some"
            );
        }
        fail_with(errors)
    }
}

/// The transactional ids with a prefix, by name, with their coordinators.
fn sorted(mut found: Vec<(i32, TransactionListing)>, prefix: &str) -> Vec<(i32, TransactionListing)> {
    found.retain(|(_, one)| one.transactional_id.starts_with(prefix));
    found.sort_by(|(_, a), (_, b)| a.transactional_id.cmp(&b.transactional_id));
    found
}

/// Describe transactional ids.
#[derive(Args, Debug)]
pub struct Describe {
    #[command(flatten)]
    connect: Connect,
    /// The transactional ids.
    #[arg(required = true, value_name = "TRANSACTIONAL-ID")]
    ids: Vec<String>,
    #[command(flatten)]
    output: CommandOutput,
}

const DESCRIBED: [Column<'_>; 7] = [
    ("TRANSACTIONAL-ID", "transactional_id"),
    ("PRODUCER-ID", "producer_id"),
    ("EPOCH", "producer_epoch"),
    ("STATE", "state"),
    ("TIMEOUT-MS", "timeout_ms"),
    ("STARTED", "started"),
    ("PARTITIONS", "partitions"),
];

impl Describe {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        for (id, described) in admin.describe_transactions(&self.ids).await {
            match described {
                Ok(described) => rows.push(json!({
                    "transactional_id": id,
                    "producer_id": described.producer_id,
                    "producer_epoch": described.producer_epoch,
                    "state": described.state,
                    "timeout_ms": described.timeout_ms,
                    "started": described.started_ms.map(moment::shown),
                    "partitions":
                        described.partitions.iter().map(ToString::to_string).collect::<Vec<_>>(),
                })),
                Err(error) => errors.push(error),
            }
        }
        self.output.rows(&DESCRIBED, &rows)?;
        fail_with(errors)
    }
}

/// Show the producers that the leaders of partitions know, with their open transactions.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  thalweg transaction producers orders:0")]
pub struct Producers {
    #[command(flatten)]
    connect: Connect,
    /// Topics, or some of their partitions as TOPIC:0,3.
    #[arg(required = true, value_name = "TOPIC[:PARTITION,...]")]
    topics: Vec<Partitions>,
    /// Ask this broker, which may be a follower, instead of the leaders.
    #[arg(long, value_name = "ID")]
    broker: Option<i32>,
    #[command(flatten)]
    output: CommandOutput,
}

const PRODUCERS: [Column<'_>; 8] = [
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("PRODUCER-ID", "producer_id"),
    ("EPOCH", "producer_epoch"),
    ("COORDINATOR-EPOCH", "coordinator_epoch"),
    ("LAST-SEQUENCE", "last_sequence"),
    ("LAST-TIME", "last_time"),
    ("TRANSACTION-START", "transaction_start"),
];

impl Producers {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let partitions: Vec<TopicPartition> =
            resolve(admin.cluster(), &self.topics).await?.into_iter().collect();
        let described = match self.broker {
            Some(broker) => admin.describe_producers_at(broker, &partitions).await?,
            None => admin.describe_producers(&partitions).await?,
        };
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        for (at, producers) in described {
            match producers {
                Ok(producers) => rows.extend(producers.into_iter().map(|producer| {
                    json!({
                        "topic": &*at.topic,
                        "partition": at.partition,
                        "producer_id": producer.producer_id,
                        "producer_epoch": producer.producer_epoch,
                        "coordinator_epoch": producer.coordinator_epoch,
                        "last_sequence": producer.last_sequence,
                        "last_time": moment::shown(producer.last_timestamp),
                        "transaction_start": producer.transaction_start,
                    })
                })),
                Err(error) => errors.push(error),
            }
        }
        self.output.rows(&PRODUCERS, &rows)?;
        fail_with(errors)
    }
}

/// Abort a transaction in one partition: by its first offset, or by its producer.
///
/// Use this command for a transaction that `transaction find-hanging` has found. If the producer is alive, or
/// the coordinator knows the transaction, use `transaction fence`.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("which").required(true)),
    after_help = "\
Examples:
  thalweg transaction abort orders:0 --start-offset 4200
  thalweg transaction abort orders:0 --producer-id 17 --producer-epoch 3 --coordinator-epoch 5"
)]
pub struct Abort {
    #[command(flatten)]
    connect: Connect,
    /// The partition, as TOPIC:PARTITION.
    partition: Partitions,
    /// The first offset of the transaction.
    #[arg(long, value_name = "OFFSET", group = "which")]
    start_offset: Option<i64>,
    /// The id of the producer.
    #[arg(long, value_name = "ID", group = "which", requires = "producer_epoch")]
    producer_id: Option<i64>,
    /// The producer's epoch.
    #[arg(long, value_name = "EPOCH", requires = "producer_id")]
    producer_epoch: Option<i16>,
    /// The epoch of the coordinator, as `transaction producers` shows it.
    #[arg(long, value_name = "EPOCH", requires = "producer_id", default_value_t = -1, allow_negative_numbers = true)]
    coordinator_epoch: i32,
    #[command(flatten)]
    output: CommandOutput,
}

impl Abort {
    async fn run(&self) -> anyhow::Result<()> {
        let at = match &self.partition.only {
            Some(only) if only.len() == 1 => TopicPartition::new(self.partition.topic.as_str(), only[0]),
            _ => {
                let topic = &self.partition.topic;
                return Err(Usage(format!("Expected one partition, for example {topic}:0")).into());
            }
        };
        let admin = Admin::new(self.connect.cluster().await?);
        resolve(admin.cluster(), std::slice::from_ref(&self.partition)).await?;
        let transaction = self.transaction(&admin, at).await?;
        admin.abort_transaction(&transaction).await?;
        let outcome = json!({
            "topic": &*transaction.at.topic,
            "partition": transaction.at.partition,
            "producer_id": transaction.producer_id,
            "outcome": "aborted",
        });
        let sentence =
            format!("Aborted the transaction of producer {} in {}.", transaction.producer_id, transaction.at);
        self.output.outcomes(async |done| done.add(&outcome, &sentence)).await
    }

    async fn transaction(&self, admin: &Admin, at: TopicPartition) -> anyhow::Result<AbortTransaction> {
        if let (Some(producer_id), Some(producer_epoch)) = (self.producer_id, self.producer_epoch) {
            let coordinator_epoch = self.coordinator_epoch.max(0);
            return Ok(AbortTransaction { at, producer_id, producer_epoch, coordinator_epoch });
        }
        let mut described = admin.describe_producers(std::slice::from_ref(&at)).await?;
        let producers = described.remove(&at).transpose()?.unwrap_or_default();
        let found = producers.iter().find(|producer| producer.transaction_start == self.start_offset);
        let Some(producer) = found else {
            let offset = self.start_offset.unwrap_or_default();
            return Err(
                CommandFailure(format!("No open transaction in {at} starts at offset {offset}")).into()
            );
        };
        Ok(AbortTransaction {
            at,
            producer_id: producer.producer_id,
            producer_epoch: i16::try_from(producer.producer_epoch).unwrap_or(i16::MAX),
            // As in Kafka's tool: no coordinator has written a marker for this producer yet.
            coordinator_epoch: producer.coordinator_epoch.max(0),
        })
    }
}

/// End the transactions of transactional ids, and fence their producers.
///
/// A producer that is alive fails with PRODUCER_FENCED.
#[derive(Args, Debug)]
pub struct Fence {
    #[command(flatten)]
    connect: Connect,
    /// The transactional ids.
    #[arg(required = true, value_name = "TRANSACTIONAL-ID")]
    ids: Vec<String>,
    #[command(flatten)]
    output: CommandOutput,
}

impl Fence {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        self.output
            .outcomes(async |done| {
                // Otherwise, InitProducerId would create a new transactional id.
                let known = admin.describe_transactions(&self.ids).await;
                let errors: Vec<_> = known.into_values().filter_map(Result::err).collect();
                fail_with(errors)?;
                let results = admin.fence_producers(&self.ids).await;
                add_outcomes(done, results, |id, fenced| {
                    let outcome = json!({
                        "transactional_id": id,
                        "producer_id": fenced.producer_id,
                        "producer_epoch": fenced.producer_epoch,
                        "outcome": "fenced",
                    });
                    (outcome, format!("Fenced the producers of {id} before epoch {}.", fenced.producer_epoch))
                })
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactional_ids_are_sorted_across_coordinators() {
        let one = |coordinator: i32, id: &str| {
            let state = "Empty".to_owned();
            (coordinator, TransactionListing { transactional_id: id.to_owned(), producer_id: 7, state })
        };
        let found = || vec![one(1, "b-2"), one(1, "a-1"), one(2, "b-1"), one(2, "a-10")];
        let ids = |prefix| {
            let sorted = sorted(found(), prefix).into_iter();
            sorted.map(|(_, one)| one.transactional_id).collect::<Vec<_>>()
        };
        assert_eq!(ids(""), ["a-1", "a-10", "b-1", "b-2"]);
        assert_eq!(ids("b-"), ["b-1", "b-2"]);
        assert!(ids("c").is_empty());
    }
}
