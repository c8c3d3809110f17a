//! The history of transactions: their outcomes, and the records returned to a reader of committed records.
//! Invariant: each record of a committed transaction appears once and in order, no record of an aborted one
//! appears, and a transaction with an unknown outcome appears in all of its partitions or in none.

use std::collections::BTreeMap;

/// The topic of all transactions.
pub const LEDGER: &str = "ledger";

/// The id of a transaction: producer, and number of the transaction.
pub type Id = (u32, u64);

/// The identity of a transaction's record in its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Id of the transaction.
    pub id: Id,
    /// Record number from 0, per transaction and partition.
    pub number: u64,
}

impl Entry {
    /// The value of the record, padded to a length.
    pub fn value(self, partition: i32, len: usize) -> Vec<u8> {
        let ((producer, transaction), number) = (self.id, self.number);
        let mut value = format!("{producer} {partition} {transaction} {number} ").into_bytes();
        value.resize(value.len().max(len), b'.');
        value
    }

    /// Parses a value; `None` if no simulated producer wrote it.
    fn of_value(value: &[u8], partition: i32) -> Option<Entry> {
        let text = std::str::from_utf8(value).ok()?;
        let mut parts = text.split(' ');
        let producer = parts.next()?.parse().ok()?;
        let of: i32 = parts.next()?.parse().ok()?;
        let transaction = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok()?;
        (of == partition).then_some(Entry { id: (producer, transaction), number })
    }
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// No commit was requested.
    NotCommitted,
    /// A commit was requested, without an answer.
    Unknown,
    /// The coordinator has confirmed the commit.
    Committed,
}

/// A transaction and its acknowledged records.
#[derive(Clone, Debug, Hash)]
pub struct Transaction {
    /// Outcome of the transaction.
    pub fate: Fate,
    /// Number of acknowledged records by partition.
    pub records: BTreeMap<i32, u64>,
}

/// The recorded events.
#[derive(Debug, Default, Hash)]
pub struct Ledger {
    /// All transactions by id.
    pub transactions: BTreeMap<Id, Transaction>,
    /// The record read at each offset, by partition.
    read: BTreeMap<i32, BTreeMap<i64, Entry>>,
    /// The read position of each partition, including markers and aborted records.
    pub positions: BTreeMap<i32, i64>,
}

impl Ledger {
    /// Records a read record. Returns a violation, if any.
    pub fn read(&mut self, partition: i32, offset: i64, value: Option<&[u8]>) -> Option<String> {
        let Some(entry) = value.and_then(|value| Entry::of_value(value, partition)) else {
            return Some(format!("{LEDGER}-{partition}: the record read at offset {offset} was never sent"));
        };
        let before = self.read.entry(partition).or_default().insert(offset, entry);
        let other = before.filter(|before| *before != entry)?;
        Some(format!("{LEDGER}-{partition}: offset {offset} was read as {other:?}, then as {entry:?}"))
    }

    /// Number of transactions known to be committed.
    pub fn committed(&self) -> u64 {
        self.transactions.values().filter(|transaction| transaction.fate == Fate::Committed).count() as u64
    }

    /// The violations. Missing records count only if everything was read.
    pub fn check(&self, all_is_read: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut found: BTreeMap<Id, BTreeMap<i32, u64>> = BTreeMap::new();
        for (partition, read) in &self.read {
            let mut last: BTreeMap<u32, Entry> = BTreeMap::new();
            for (offset, &entry) in read {
                let at = format!("{LEDGER}-{partition}, offset {offset}: {entry:?}");
                match self.transactions.get(&entry.id).map(|transaction| transaction.fate) {
                    Some(Fate::Committed | Fate::Unknown) => {}
                    fate => wrong.push(format!("{at} was read as committed, and is {fate:?}")),
                }
                if let Some(before) = last.insert(entry.id.0, entry).filter(|before| *before >= entry) {
                    wrong.push(format!("{at} follows {before:?}"));
                }
                *found.entry(entry.id).or_default().entry(*partition).or_default() += 1;
            }
        }
        if all_is_read {
            let nothing = BTreeMap::new();
            for (id, transaction) in &self.transactions {
                let found = found.get(id).unwrap_or(&nothing);
                let Transaction { fate, records } = transaction;
                let is_right = match fate {
                    Fate::Committed => found == records,
                    Fate::Unknown => found.is_empty() || found == records,
                    Fate::NotCommitted => true,
                };
                if !is_right {
                    wrong.push(format!(
                        "{LEDGER}: transaction {id:?} is {fate:?} with {records:?}, and {found:?} was read"
                    ));
                }
            }
        }
        wrong.truncate(5);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FATES: [Fate; 3] = [Fate::NotCommitted, Fate::Unknown, Fate::Committed];

    /// The violations for one transaction with two records in partition 0 and one in partition 1, of which
    /// these were read.
    fn wrong(fate: Fate, read: &[(i32, u64)]) -> Vec<String> {
        let transaction = Transaction { fate, records: BTreeMap::from([(0, 2), (1, 1)]) };
        let mut ledger =
            Ledger { transactions: BTreeMap::from([((3, 0), transaction)]), ..Ledger::default() };
        for (offset, &(partition, number)) in (0..).zip(read) {
            let value = Entry { id: (3, 0), number }.value(partition, 30);
            assert_eq!(ledger.read(partition, offset, Some(&value)), None);
        }
        ledger.check(true)
    }

    #[test]
    fn transactions_are_there_whole_or_not_at_all() {
        for fate in FATES {
            assert_eq!(wrong(fate, &[]).is_empty(), fate != Fate::Committed, "{fate:?}, nothing of it");
            let all = [(0, 0), (0, 1), (1, 0)];
            assert_eq!(wrong(fate, &all).is_empty(), fate != Fate::NotCommitted, "{fate:?}, all of it");
            for part in [&all[..2], &all[1..], &[(0, 0), (0, 1), (0, 1), (1, 0)], &[(0, 1), (0, 0), (1, 0)]] {
                assert!(!wrong(fate, part).is_empty(), "{fate:?}, {part:?}");
            }
        }
    }

    #[test]
    fn a_record_that_changes_or_that_nobody_sent_is_found() {
        let mut ledger = Ledger::default();
        let value = |number| Entry { id: (3, 0), number }.value(0, 0);
        assert_eq!(ledger.read(0, 5, Some(&value(0))), None);
        assert!(ledger.read(0, 5, Some(&value(1))).is_some());
        assert!(ledger.read(1, 6, Some(&value(2))).is_some(), "of another partition");
        assert!(!ledger.check(false).is_empty(), "an unknown transaction");
    }
}
