//! Hanging transactions: open in a partition, and forgotten by their coordinator. A hanging transaction
//! blocks read_committed consumers forever.
//!
//! The criteria are those of Kafka's tool: an open transaction whose last record is older than the longest
//! timeout that brokers allow, and whose coordinator does not know the producer, or knows it without this
//! partition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_dial::ClientError;
use thalweg_wire::ErrorCode;

use super::transactions::STATE_TOPIC;
use super::{ActiveProducer, Admin, TransactionFilter};
use crate::offsets::TopicPartition;

/// An open transaction in a partition.
pub type OpenTransaction = (TopicPartition, ActiveProducer);

/// Transactional ids that do not exist. Only a right on all of them is one on both: no other prefix fits.
const ANY_IDS: [&str; 2] = ["__thalweg-no-such-id", "0-thalweg-no-such-id"];

/// Time limit for the answer of a coordinator about a right.
const RIGHT_WAIT: Duration = Duration::from_secs(3);

/// Hanging transactions, and errors during the search.
#[derive(Clone, Debug, Default)]
pub struct HangingTransactions {
    /// The transactions that no coordinator will end.
    pub found: Vec<OpenTransaction>,
    /// Open transactions that hang, or that belong to a transactional id that the login may not describe:
    /// coordinators leave those out silently.
    pub unclear: Vec<OpenTransaction>,
    /// Errors of unreachable partitions and coordinators.
    pub errors: Vec<ClientError>,
}

impl Admin {
    /// The hanging transactions of partitions whose last record is before a time, in milliseconds since 1970.
    pub async fn find_hanging_transactions(
        &self,
        partitions: &[TopicPartition],
        before_ms: i64,
    ) -> Result<HangingTransactions, ClientError> {
        let (mut open, mut errors) = (Vec::new(), Vec::new());
        for (at, producers) in self.describe_producers(partitions).await? {
            match producers {
                Ok(producers) => open.extend(open_since(&at, producers, before_ms)),
                Err(error) => errors.push(error),
            }
        }
        if open.is_empty() {
            return Ok(HangingTransactions { errors, ..HangingTransactions::default() });
        }
        let Hanging { known, unknown } = self.hanging(open, &mut errors).await?;
        // Without open transactions of unknown producers, nothing depends on the right.
        let sees_all = unknown.is_empty() || self.describes_all_transactional_ids().await.unwrap_or(false);
        let (found, unclear) = if sees_all { (unknown, Vec::new()) } else { (Vec::new(), unknown) };
        let mut found: Vec<OpenTransaction> = known.into_iter().chain(found).collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(HangingTransactions { found, unclear, errors })
    }

    /// True if the login may describe transactional ids of any name. Coordinators leave the others out of
    /// their lists silently. An error if that is not known.
    pub async fn describes_all_transactional_ids(&self) -> Result<bool, ClientError> {
        let metadata = self.cluster().refresh(&[STATE_TOPIC.to_owned()], false).await?;
        let error = metadata.topics.get(STATE_TOPIC).and_then(|topic| topic.error);
        if error == Some(ErrorCode::UnknownTopicOrPartition) {
            // There are no transactional ids, and a search for their coordinator would create the topic.
            return Ok(true);
        }
        let admin = self.clone().with_timeout(RIGHT_WAIT).with_answer_limit(RIGHT_WAIT);
        for described in admin.describe_transactions(&ANY_IDS.map(str::to_owned)).await.into_values() {
            let Err(error) = described else { continue };
            match error.error_code() {
                Some(ErrorCode::TransactionalIdNotFound) => {}
                Some(ErrorCode::TransactionalIdAuthorizationFailed) => return Ok(false),
                _ => return Err(error),
            }
        }
        Ok(true)
    }

    async fn hanging(
        &self,
        open: Vec<OpenTransaction>,
        errors: &mut Vec<ClientError>,
    ) -> Result<Hanging, ClientError> {
        let producer_ids: BTreeSet<i64> = open.iter().map(|(_, producer)| producer.producer_id).collect();
        let filter =
            TransactionFilter { producer_ids: producer_ids.into_iter().collect(), ..Default::default() };
        // A coordinator that does not answer may know the transaction: without its answer, all would seem to
        // hang.
        if let Some(error) = self.missing_transaction_coordinators().await {
            return Err(error);
        }
        let mut ids = BTreeMap::new();
        for listed in self.list_transactions(&filter).await?.into_values() {
            ids.extend(listed?.into_iter().map(|one| (one.producer_id, one.transactional_id)));
        }
        let names: Vec<String> = ids.values().cloned().collect();
        let described = self.describe_transactions(&names).await;
        let mut known: BTreeMap<i64, BTreeSet<TopicPartition>> = BTreeMap::new();
        let mut unclear = BTreeSet::new();
        for (producer_id, id) in &ids {
            match described.get(id) {
                Some(Ok(one)) => {
                    known.insert(*producer_id, one.partitions.iter().cloned().collect());
                }
                Some(Err(error)) => {
                    errors.push(error.clone());
                    unclear.insert(*producer_id);
                }
                None => {}
            }
        }
        let mut hanging = Hanging::default();
        for (at, producer) in open {
            match known.get(&producer.producer_id) {
                Some(partitions) if partitions.contains(&at) => {}
                Some(_) => hanging.known.push((at, producer)),
                None if unclear.contains(&producer.producer_id) => {}
                None => hanging.unknown.push((at, producer)),
            }
        }
        Ok(hanging)
    }
}

/// Open transactions that no listed transactional id will end.
#[derive(Default)]
struct Hanging {
    /// Of producers that a coordinator knows, without this partition.
    known: Vec<OpenTransaction>,
    /// Of producers that no coordinator has listed.
    unknown: Vec<OpenTransaction>,
}

fn open_since(
    at: &TopicPartition,
    producers: Vec<ActiveProducer>,
    before_ms: i64,
) -> impl Iterator<Item = OpenTransaction> {
    let is_old = move |producer: &ActiveProducer| {
        producer.transaction_start.is_some() && producer.last_timestamp < before_ms
    };
    let at = at.clone();
    producers.into_iter().filter(is_old).map(move |producer| (at.clone(), producer))
}
