//! Transactions during a compaction: which batches were aborted, and which markers are still needed (Kafka's
//! `CleanedTransactionMetadata`).
//!
//! Owns: tracking transactions while batches are visited in order. Refuses: batches out of order.

use std::collections::BTreeMap;

use thalweg_hash::{HashMap, HashSet};
use thalweg_record::{BatchHeader, ControlRecordType, Offset, ProducerId};

use crate::segment::transactions::AbortedTransaction;

/// The transactions at the current position of the walk.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// Aborted transactions that have not begun yet, by their first offset and producer.
    ahead: BTreeMap<(Offset, ProducerId), AbortedTransaction>,
    /// Aborted transactions that have begun, and true if a batch of the transaction was seen.
    aborted: HashMap<ProducerId, (AbortedTransaction, bool)>,
    /// Producers with batches of a transaction that is committed.
    committed: HashSet<ProducerId>,
}

impl Transactions {
    /// Adds aborted transactions whose marker is further on.
    pub(super) fn expect(&mut self, aborted: impl IntoIterator<Item = AbortedTransaction>) {
        for transaction in aborted {
            self.ahead.insert((transaction.first_offset, transaction.producer_id), transaction);
        }
    }

    fn begin_up_to(&mut self, offset: Offset) {
        while let Some(entry) = self.ahead.first_entry()
            && entry.key().0 <= offset
        {
            let transaction = entry.remove();
            self.aborted.entry(transaction.producer_id).or_insert((transaction, false));
        }
    }

    /// True if a data batch was aborted, so that all its records are removed.
    pub(super) fn is_aborted(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.attributes.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some((_, seen)) => {
                *seen = true;
                true
            }
            None => {
                self.committed.insert(header.producer_id);
                false
            }
        }
    }

    /// Processes a control batch. Returns true if its transaction has no batch left, so that the marker may
    /// expire, and the entry that the transaction index still needs.
    pub(super) fn end(
        &mut self,
        header: &BatchHeader,
        kind: Option<ControlRecordType>,
    ) -> (bool, Option<AbortedTransaction>) {
        self.begin_up_to(header.last_offset());
        // The index lists the marker too, even if its record is unreadable.
        let ends_aborted = || {
            self.aborted
                .get(&header.producer_id)
                .is_some_and(|(transaction, _)| transaction.last_offset == header.last_offset())
        };
        let kind = kind.or_else(|| ends_aborted().then_some(ControlRecordType::Abort));
        match kind {
            Some(ControlRecordType::Abort) => match self.aborted.remove(&header.producer_id) {
                Some((transaction, true)) => (false, Some(transaction)),
                _ => (true, None),
            },
            Some(ControlRecordType::Commit) => (!self.committed.remove(&header.producer_id), None),
            Some(_) => (false, None),
            // A control batch that lost its record in an earlier compaction.
            None if header.record_count == 0 => (true, None),
            // An unreadable control batch is kept.
            None => (false, None),
        }
    }
}
