//! DescribeTransactions and ListTransactions (KIP-664), from the acknowledged state. Until all loaded records
//! are acknowledged, both get COORDINATOR_LOAD_IN_PROGRESS.

use super::{TransactionMetadata, TransactionShard};
use crate::state::TransactionState;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_hash::HashSet;
use thalweg_shard::{Moment, ReplicatedValue, Unavailability};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::describe_transactions_response::{
    TopicData, TransactionState as DescribedTransaction,
};
use thalweg_wire::request::list_transactions_response::TransactionState as ListedTransaction;

/// Filter of transactional ids.
#[derive(Clone, Debug, Default)]
pub struct TransactionFilter {
    /// States to include; `None` for all.
    pub states: Option<Vec<TransactionState>>,
    /// Producer ids to include; empty for all.
    pub producer_ids: HashSet<i64>,
    /// Minimum age of the transaction.
    pub longer_than_ms: Option<i64>,
    /// Pattern of transactional ids.
    pub pattern: Option<regex::Regex>,
}

/// Counts of a coordinator's transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionFigures {
    /// Number of ids by Kafka's name of the state.
    pub states: BTreeMap<&'static str, usize>,
    /// Age of the oldest open transaction, in milliseconds.
    pub oldest_ms: i64,
    /// Transactions that are open or incomplete beyond their timeout.
    pub late: usize,
}

impl TransactionShard {
    /// Adds the shard's transactions.
    pub fn count_into(&self, figures: &mut TransactionFigures, now: Moment) {
        for entry in self.entries.values() {
            let current = &entry.current;
            *figures.states.entry(current.state.name()).or_default() += 1;
            if current.state.is_idle() || current.start_ms < 0 {
                continue;
            }
            figures.oldest_ms = figures.oldest_ms.max(now.wall_ms.saturating_sub(current.start_ms));
            figures.late += usize::from(current.deadline_ms() < now.wall_ms);
        }
    }

    /// The details of one id.
    pub(crate) fn describe(&self, id: &str) -> ReplicatedView<DescribedTransaction> {
        self.show(|| {
            let known = self.entries.get(id).filter(|entry| entry.at.is_some());
            let Some(entry) = known else {
                let error_code = ErrorCode::TransactionalIdNotFound.code();
                return DescribedTransaction {
                    transactional_id: id.to_owned(),
                    error_code,
                    ..DescribedTransaction::default()
                };
            };
            described(id, &entry.current)
        })
    }

    /// All ids that pass the filter.
    pub(crate) fn list(
        &self,
        filter: &TransactionFilter,
        now: Moment,
    ) -> ReplicatedView<Vec<ListedTransaction>> {
        let passes = |id: &Arc<str>, current: &TransactionMetadata| {
            filter.states.as_ref().is_none_or(|states| states.contains(&current.state))
                && (filter.producer_ids.is_empty() || filter.producer_ids.contains(&current.producer_id))
                && filter
                    .longer_than_ms
                    .is_none_or(|longest| now.wall_ms.saturating_sub(current.start_ms) > longest)
                && filter.pattern.as_ref().is_none_or(|pattern| pattern.is_match(id))
        };
        self.show(|| {
            let known = self.entries.iter().filter(|(_, entry)| entry.at.is_some());
            let mut listed: Vec<ListedTransaction> = known
                .filter(|(id, entry)| passes(id, &entry.current))
                .map(|(id, entry)| ListedTransaction {
                    transactional_id: id.to_string(),
                    producer_id: entry.current.producer_id,
                    transaction_state: entry.current.state.name().to_owned(),
                })
                .collect();
            listed.sort_unstable_by(|one, other| one.transactional_id.cmp(&other.transactional_id));
            listed
        })
    }

    fn show<T>(&self, view: impl FnOnce() -> T) -> ReplicatedView<T> {
        let is_acknowledged = self.take_up_at.is_none();
        ReplicatedValue::of(if is_acknowledged { Ok(view()) } else { Err(Unavailability::Loading) })
    }
}

/// The state visible to a reader; unavailable until all loaded records are acknowledged.
type ReplicatedView<T> = ReplicatedValue<Result<T, Unavailability>>;

fn described(id: &str, current: &TransactionMetadata) -> DescribedTransaction {
    let mut topics: Vec<TopicData> = Vec::new();
    for (topic, partition) in &current.partitions {
        match topics.last_mut().filter(|last| *last.topic == **topic) {
            Some(last) => last.partitions.push(partition.0),
            None => topics.push(TopicData { topic: topic.to_string(), partitions: vec![partition.0] }),
        }
    }
    DescribedTransaction {
        error_code: ErrorCode::None.code(),
        transactional_id: id.to_owned(),
        transaction_state: current.state.name().to_owned(),
        transaction_timeout_ms: current.timeout_ms,
        transaction_start_time_ms: current.start_ms,
        producer_id: current.producer_id,
        producer_epoch: current.producer_epoch,
        topics,
    }
}
