//! The clients' knowledge in a trial: sent batches and their answers.

use super::node::{RETENTION_BYTES, Retention};
use std::collections::BTreeMap;

/// Records per batch.
pub(super) const RECORDS: u64 = 3;
/// Length of a value.
pub(super) const VALUE_BYTES: usize = 150;
/// Upper bound of a batch's size in a log.
const BATCH_BYTES_MAX: usize = 700;
/// Number of keys.
pub(super) const KEYS: u64 = 7;

/// The visibility of a batch to readers of committed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    Committed,
    Aborted,
    Unknown,
}

/// A sent batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentBatch {
    /// Offset of the first record, if the batch was acknowledged.
    pub(super) offset: Option<i64>,
    pub(super) fate: Visibility,
}

/// The batches of a topic, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    pub(super) sent: Vec<SentBatch>,
    /// Records below this offset may be deleted.
    pub(super) delete_requested: i64,
    /// Records below this offset were deleted.
    pub(super) delete_answered: i64,
}

/// The knowledge of all clients.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) topics: BTreeMap<String, Sheet>,
    /// Topics with an acknowledged creation and no requested deletion.
    pub(super) created: Vec<String>,
    /// Topics with an acknowledged deletion.
    pub(super) deleted: Vec<String>,
    pub(super) violations: Vec<String>,
    /// Topics fixed to a directory that took no batch, with the reason.
    pub(super) refused: Vec<(String, String)>,
    /// Partitions with a leader that refuses records after the failure.
    pub(super) stuck: Vec<String>,
}

impl Books {
    pub(super) fn sheet(&mut self, topic: &str) -> &mut Sheet {
        self.topics.entry(topic.to_owned()).or_default()
    }

    pub(super) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(super) fn acknowledged(&self) -> u64 {
        let sheets = self.topics.values();
        let batches = sheets.map(|sheet| sheet.sent.iter().filter(|sent| sent.offset.is_some()).count());
        batches.sum::<usize>() as u64 * RECORDS
    }

    /// Records a new batch, and returns its number.
    pub(super) fn send(&mut self, topic: &str, fate: Visibility) -> u64 {
        let sheet = self.sheet(topic);
        sheet.sent.push(SentBatch { offset: None, fate });
        sheet.sent.len() as u64 - 1
    }
}

/// The value of a record.
pub(super) fn value(topic: &str, number: u64, record: u64) -> Vec<u8> {
    let mut value = format!("{topic} {number} {record} ").into_bytes();
    value.resize(value.len().max(VALUE_BYTES), b'.');
    value
}

/// The key of a record.
pub(super) fn key(number: u64, record: u64) -> Vec<u8> {
    format!("k{}", (number * RECORDS + record) % KEYS).into_bytes()
}

/// The batch of a record and its position in the batch.
pub(super) fn parse(topic: &str, value: &[u8]) -> Option<(u64, u64)> {
    let mut parts = std::str::from_utf8(value).ok()?.split(' ');
    (parts.next()? == topic).then_some(())?;
    let number = parts.next()?.parse().ok()?;
    Some((number, parts.next()?.parse().ok()?))
}

impl Sheet {
    /// The acknowledged records that must exist: offset, batch, position in the batch.
    pub(super) fn must_be_there(&self, keeps: Retention) -> Vec<(i64, u64, u64)> {
        let acknowledged = || {
            let batches = (0..).zip(&self.sent);
            batches.filter_map(|(number, sent)| sent.offset.map(|offset| (offset, number)))
        };
        let records = |(offset, number): (i64, u64)| {
            (0..RECORDS).map(move |record| (offset + i64::try_from(record).unwrap_or(0), number, record))
        };
        match keeps {
            Retention::All => acknowledged().flat_map(records).collect(),
            Retention::Undeleted => {
                let live = |(offset, ..): &(i64, u64, u64)| *offset >= self.delete_requested;
                acknowledged().flat_map(records).filter(live).collect()
            }
            Retention::Newest => {
                let count = RETENTION_BYTES / BATCH_BYTES_MAX;
                let newest = self.sent.len().saturating_sub(count) as u64;
                acknowledged().filter(|(_, number)| *number >= newest).flat_map(records).collect()
            }
            Retention::LastOfKeys => {
                let mut last = BTreeMap::new();
                for (number, sent) in (0..).zip(&self.sent) {
                    for record in 0..RECORDS {
                        // A later record with unknown outcome may have replaced an earlier one.
                        let at = sent.offset.map(|offset| offset + i64::try_from(record).unwrap_or(0));
                        last.insert(key(number, record), (at, number, record));
                    }
                }
                let there = |(at, number, record): (Option<i64>, u64, u64)| Some((at?, number, record));
                last.into_values().filter_map(there).collect()
            }
        }
    }
}
