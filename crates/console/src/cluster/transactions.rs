//! Transactions known to coordinators, and producers of partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_client::{AbortTransaction, ActiveProducer, ClientError, TopicPartition, TransactionFilter};
use utoipa::{IntoParams, ToSchema};

use super::topics::page_of;
use super::{View, now_ms};
use crate::format;
use crate::problem::Problem;

/// A filter and page of transactional ids.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct TransactionQuery {
    /// A substring of the transactional id.
    #[param(required = false)]
    pub filter: String,
    /// A state such as `Ongoing`; all if empty.
    #[param(required = false)]
    pub state: String,
    /// A producer id; all if empty.
    #[param(required = false)]
    pub producer: String,
    /// Minimum age of the transaction in minutes.
    #[param(required = false)]
    pub longer: String,
    /// Page number, from 1.
    #[param(required = false)]
    pub page: usize,
}

/// A search for hanging transactions.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct HangingQuery {
    /// A topic name; all topics if empty.
    #[param(required = false)]
    pub topic: String,
    /// Grace period in minutes: transactions with a newer record are not hanging. Default: 15, as for
    /// `transaction.max.timeout.ms`.
    #[param(required = false)]
    pub minutes: String,
}

/// Hanging transactions.
#[derive(Debug, Serialize, ToSchema)]
pub struct HangingList {
    /// Open transactions that no coordinator will end.
    pub transactions: Vec<OpenTransaction>,
    /// Open transactions that hang, or that belong to a transactional id that the login may not describe.
    pub unclear: Vec<OpenTransaction>,
    /// Partitions, topics or brokers that could not be read, with the reason.
    pub missing: Vec<String>,
}

/// An open transaction in a partition.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OpenTransaction {
    /// The topic name.
    pub topic: String,
    /// The partition index.
    pub partition: i32,
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub producer_epoch: i32,
    /// Epoch of the coordinator that wrote the last marker of the producer; -1 without a marker.
    pub coordinator_epoch: i32,
    /// The first offset of the transaction.
    pub start: i64,
    /// Time of the last record of the producer, in milliseconds since 1970.
    pub last_timestamp_ms: i64,
    /// The transactional id, if a coordinator knows the producer.
    pub transactional_id: Option<String>,
    /// The reasons why a coordinator may know the producer without its id here: coordinators that did not
    /// answer, or a login that may not describe all transactional ids. None in a list.
    pub unanswered: Vec<String>,
}

/// A transaction to abort in one partition.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Abortion {
    /// The partition index.
    pub partition: i32,
    /// The first offset of the transaction.
    pub start: i64,
}

/// A page of transactional ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionList {
    /// Transactional ids of this page.
    pub transactions: Vec<TransactionLine>,
    /// Number of matching transactional ids, of those that the login may describe.
    pub matched: usize,
    /// Page number, from 1.
    pub page: usize,
    /// Number of pages.
    pub pages: usize,
    /// Coordinators that did not answer, whose transactional ids are missing.
    pub missing: Vec<String>,
}

/// A transactional id.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionLine {
    /// The transactional id.
    pub transactional_id: String,
    /// The current producer id.
    pub producer_id: i64,
    /// A state such as `Ongoing`, `CompleteCommit` or `Empty`.
    pub state: String,
}

/// The state of a transactional id at its coordinator.
#[derive(Debug, Serialize, ToSchema)]
pub struct Transaction {
    /// The transactional id.
    pub transactional_id: String,
    /// A state such as `Ongoing`, `CompleteCommit` or `Empty`.
    pub state: String,
    /// The current producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub producer_epoch: i16,
    /// The transaction timeout, after which the coordinator aborts the transaction.
    pub timeout_ms: i32,
    /// Start of the open transaction in milliseconds since 1970, if any.
    pub started_ms: Option<i64>,
    /// Partitions written by the transaction, by topic.
    pub partitions: BTreeMap<String, Vec<i32>>,
}

/// The producers of a topic.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicProducers {
    /// Producers that leaders know, by partition.
    pub producers: Vec<ProducerLine>,
    /// Partitions that could not be read, with the reason.
    pub missing: Vec<String>,
}

/// A producer of one partition.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProducerLine {
    /// The partition index.
    pub partition: i32,
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub epoch: i32,
    /// Sequence number of the last record.
    pub last_sequence: i32,
    /// Time of the last record, in milliseconds since 1970.
    pub last_timestamp_ms: i64,
    /// First offset of the open transaction, if any.
    pub transaction_start: Option<i64>,
}

/// Kafka's default of `transaction.max.timeout.ms`.
const MAX_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Time limit of a search for hanging transactions, which asks leaders and coordinators.
const SEARCH_WAIT: Duration = Duration::from_secs(5);

/// Lists one page of transactional ids.
pub async fn list(view: &Arc<View>, query: &TransactionQuery) -> Result<TransactionList, Problem> {
    let filter = TransactionFilter {
        states: Some(query.state.clone()).filter(|state| !state.is_empty()).into_iter().collect(),
        producer_ids: number("Producer", &query.producer)?.into_iter().collect(),
        longer_than: number("Minutes", &query.longer)?.map(minutes),
        pattern: None,
    };
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let admin = view.prompt_admin();
    missing.extend(admin.missing_transaction_coordinators().await.map(|error| error.to_string()));
    for listed in admin.list_transactions(&filter).await?.into_values() {
        match listed {
            Ok(states) => found.extend(states.into_iter().map(|state| TransactionLine {
                transactional_id: state.transactional_id,
                producer_id: state.producer_id,
                state: state.state,
            })),
            Err(error) => missing.push(error.to_string()),
        }
    }
    let filter = query.filter.trim().to_lowercase();
    found.retain(|line| line.transactional_id.to_lowercase().contains(&filter));
    found.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
    let (page, pages, range) = page_of(found.len(), query.page, 0);
    let matched = found.len();
    let transactions = found.drain(range).collect();
    Ok(TransactionList { transactions, matched, page, pages, missing })
}

fn number(name: &str, text: &str) -> Result<Option<i64>, Problem> {
    match text.trim() {
        "" => Ok(None),
        text => match text.parse::<i64>() {
            Ok(number) if number >= 0 => Ok(Some(number)),
            _ => Err(Problem::wrong(format!("{name}: {text:?} is not a number from 0 up"))),
        },
    }
}

fn minutes(count: i64) -> Duration {
    Duration::from_secs(count.unsigned_abs().saturating_mul(60))
}

/// Reads the state of a transactional id from its coordinator.
pub async fn read(view: &View, id: &str) -> Result<Transaction, Problem> {
    let described = view.admin().describe_transactions(&[id.to_owned()]).await.remove(id);
    let state = described.ok_or_else(|| Problem::missing(format!("There is no transactional id {id}")))??;
    let mut partitions = BTreeMap::<String, Vec<i32>>::new();
    for at in state.partitions {
        partitions.entry(at.topic.to_string()).or_default().push(at.partition);
    }
    Ok(Transaction {
        transactional_id: id.to_owned(),
        state: state.state,
        producer_id: state.producer_id,
        producer_epoch: state.producer_epoch,
        timeout_ms: state.timeout_ms,
        started_ms: state.started_ms,
        partitions,
    })
}

/// Ends the transaction of a transactional id and fences its producer.
pub async fn fence(view: &View, id: &str) -> Result<(), Problem> {
    // InitProducerId would create an unknown transactional id.
    read(view, id).await?;
    let fenced = view.admin().fence_producers(&[id.to_owned()]).await;
    fenced.into_values().collect::<Result<Vec<_>, ClientError>>()?;
    Ok(())
}

/// Lists the producers of all partitions of a topic, as reported by the leaders.
pub async fn producers(view: &View, topic: &str) -> Result<TopicProducers, Problem> {
    let LedPartitions { led, leaderless } = partitions(view, topic).await?;
    let (mut lines, mut missing) = (Vec::new(), Vec::from_iter(without_leader(&leaderless)));
    for (at, producers) in view.prompt_admin().describe_producers(&led).await? {
        let producers = match producers {
            Ok(producers) => producers,
            // A login without the right, or a topic that was deleted, has no answer at all.
            Err(error) if error.error_code().is_some() && !error.is_retriable() => return Err(error.into()),
            Err(error) => {
                missing.push(error.to_string());
                continue;
            }
        };
        lines.extend(producers.into_iter().map(|producer| ProducerLine {
            partition: at.partition,
            producer_id: producer.producer_id,
            epoch: producer.producer_epoch,
            last_sequence: producer.last_sequence,
            last_timestamp_ms: producer.last_timestamp,
            transaction_start: producer.transaction_start,
        }));
    }
    lines.sort_by_key(|line| (line.partition, line.producer_id));
    Ok(TopicProducers { producers: lines, missing })
}

/// Partitions that have a leader, and those that have none.
#[derive(Default)]
struct LedPartitions {
    led: Vec<TopicPartition>,
    leaderless: Vec<TopicPartition>,
}

impl Extend<(TopicPartition, bool)> for LedPartitions {
    fn extend<T: IntoIterator<Item = (TopicPartition, bool)>>(&mut self, partitions: T) {
        for (at, is_led) in partitions {
            if is_led { self.led.push(at) } else { self.leaderless.push(at) }
        }
    }
}

async fn partitions(view: &View, topic: &str) -> Result<LedPartitions, Problem> {
    let found = view.topic_metadata(topic).await?;
    let partitions = found.partitions.iter();
    let mut all = LedPartitions::default();
    all.extend(partitions.map(|one| (TopicPartition::new(topic, one.index), one.leader.is_some())));
    Ok(all)
}

/// The sentence about partitions without a leader to answer for them; none if each has one.
fn without_leader(leaderless: &[TopicPartition]) -> Option<String> {
    let first = leaderless.first()?;
    Some(match leaderless.len() {
        1 => format!("{first} has no leader"),
        count => format!("{} have no leader, such as {first}", format::counted(count, "partition")),
    })
}

/// Finds hanging transactions in the partitions of one topic, or of all topics.
pub async fn hanging(view: &View, query: &HangingQuery) -> Result<HangingList, Problem> {
    let age = number("Minutes", &query.minutes)?.map_or(MAX_TRANSACTION_TIMEOUT, minutes);
    let mut missing = Vec::new();
    let LedPartitions { led: partitions, leaderless } = match query.topic.trim() {
        "" => {
            let catalog = view.catalog().await?;
            let mut all = LedPartitions::default();
            for topic in &catalog.topics {
                let partitions = (0..).zip(topic.leaders.iter());
                let at = |index| TopicPartition::new(Arc::clone(&topic.name), index);
                all.extend(partitions.map(|(index, leader)| (at(index), *leader >= 0)));
            }
            all
        }
        topic => partitions(view, topic).await?,
    };
    missing.extend(without_leader(&leaderless));
    let before = now_ms().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let admin = view.prompt_admin();
    let search = admin.find_hanging_transactions(&partitions, before);
    let of_all = async {
        match query.topic.trim() {
            "" => view.partial_view().await,
            _ => None,
        }
    };
    let (found, partial) = tokio::join!(tokio::time::timeout(SEARCH_WAIT, search), of_all);
    missing.extend(partial);
    let found = found.map_err(|_| Problem::late("The search for hanging transactions", SEARCH_WAIT))??;
    missing.extend(found.errors.iter().map(ToString::to_string));
    let lines = |open: &[thalweg_client::OpenTransaction]| {
        open.iter().map(|(at, producer)| open_line(at, producer, None)).collect()
    };
    Ok(HangingList { transactions: lines(&found.found), unclear: lines(&found.unclear), missing })
}

fn open_line(
    at: &TopicPartition,
    producer: &ActiveProducer,
    transactional_id: Option<String>,
) -> OpenTransaction {
    OpenTransaction {
        topic: at.topic.to_string(),
        partition: at.partition,
        producer_id: producer.producer_id,
        producer_epoch: producer.producer_epoch,
        coordinator_epoch: producer.coordinator_epoch,
        start: producer.transaction_start.unwrap_or(-1),
        last_timestamp_ms: producer.last_timestamp,
        transactional_id,
        unanswered: Vec::new(),
    }
}

async fn producer_of(view: &View, topic: &str, abortion: &Abortion) -> Result<ActiveProducer, Problem> {
    let at = TopicPartition::new(topic, abortion.partition);
    let producers = view.prompt_admin().describe_producers(std::slice::from_ref(&at)).await?.remove(&at);
    let producers = producers.transpose()?.unwrap_or_default();
    let found = producers.into_iter().find(|producer| producer.transaction_start == Some(abortion.start));
    found.ok_or_else(|| {
        Problem::missing(format!("No open transaction in {at} starts at offset {}", abortion.start))
    })
}

/// The open transaction that starts at this offset of a partition, with its transactional id if a coordinator
/// knows the producer.
pub async fn open(view: &View, topic: &str, abortion: &Abortion) -> Result<OpenTransaction, Problem> {
    let producer = producer_of(view, topic, abortion).await?;
    let filter = TransactionFilter { producer_ids: vec![producer.producer_id], ..Default::default() };
    let (mut known, mut unanswered) = (None, Vec::new());
    let admin = view.prompt_admin();
    let (missing, listed, sees_all) = tokio::join!(
        admin.missing_transaction_coordinators(),
        admin.list_transactions(&filter),
        view.describes_all_transactional_ids()
    );
    unanswered.extend(missing.map(|error| error.to_string()));
    for listed in listed?.into_values() {
        match listed {
            Ok(listed) => known = known.or(listed.into_iter().next()),
            Err(error) => unanswered.push(error.to_string()),
        }
    }
    if known.is_none() && !sees_all {
        unanswered.push("This login may not describe all transactional ids".to_owned());
    }
    let at = TopicPartition::new(topic, abortion.partition);
    let open = open_line(&at, &producer, known.map(|known| known.transactional_id));
    Ok(OpenTransaction { unanswered, ..open })
}

/// Aborts a transaction in one partition by a marker, without the coordinator.
pub async fn abort(view: &View, topic: &str, abortion: &Abortion) -> Result<(), Problem> {
    let producer = producer_of(view, topic, abortion).await?;
    let transaction = AbortTransaction {
        at: TopicPartition::new(topic, abortion.partition),
        producer_id: producer.producer_id,
        producer_epoch: i16::try_from(producer.producer_epoch).unwrap_or(i16::MAX),
        // As in Kafka's tool: -1 means that no coordinator has written a marker for this producer yet.
        coordinator_epoch: producer.coordinator_epoch.max(0),
    };
    Ok(view.admin().abort_transaction(&transaction).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_and_topics_that_were_not_looked_at_are_named() {
        let at = |index| TopicPartition::new("orders", index);
        assert_eq!(without_leader(&[]), None);
        assert_eq!(without_leader(&[at(3)]).as_deref(), Some("orders-3 has no leader"));
        let several = without_leader(&[at(3), at(4)]);
        assert_eq!(several.as_deref(), Some("2 partitions have no leader, such as orders-3"));
    }
}
