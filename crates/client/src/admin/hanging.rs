//! Hanging transactions: open in a partition, and forgotten by their coordinator. A hanging transaction
//! blocks read_committed consumers forever.
//!
//! The criteria are those of Kafka's tool: an open transaction whose last record is older than the longest
//! timeout that brokers allow, and whose coordinator does not know the producer, or knows it without this
//! partition.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_dial::ClientError;

use super::{ActiveProducer, Admin, TransactionFilter};
use crate::offsets::TopicPartition;

/// An open transaction in a partition.
pub type OpenTransaction = (TopicPartition, ActiveProducer);

/// Hanging transactions, and errors during the search.
#[derive(Clone, Debug, Default)]
pub struct HangingTransactions {
    /// The transactions that no coordinator will end.
    pub found: Vec<OpenTransaction>,
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
        let found = match open.is_empty() {
            true => open,
            false => self.hanging(open, &mut errors).await?,
        };
        Ok(HangingTransactions { found, errors })
    }

    async fn hanging(
        &self,
        open: Vec<OpenTransaction>,
        errors: &mut Vec<ClientError>,
    ) -> Result<Vec<OpenTransaction>, ClientError> {
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
        let is_hanging = |(at, producer): &OpenTransaction| {
            !unclear.contains(&producer.producer_id)
                && known.get(&producer.producer_id).is_none_or(|partitions| !partitions.contains(at))
        };
        Ok(open.into_iter().filter(is_hanging).collect())
    }
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
