//! What the clients of a trial know: the batches that they sent, and what was answered.

use super::node::{Keeps, RETENTION_BYTES};
use std::collections::BTreeMap;

/// Records of a batch.
pub(super) const RECORDS: u64 = 3;
/// Length of a value.
pub(super) const VALUE_BYTES: usize = 150;
/// More than any batch takes in its log.
const BATCH_BYTES_MAX: usize = 700;
/// How many keys there are.
pub(super) const KEYS: u64 = 7;

/// Whether the records of a batch are to be seen by readers of committed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Committed,
    Aborted,
    Unknown,
}

/// A batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The offset of its first record, if it was acknowledged.
    pub(super) offset: Option<i64>,
    pub(super) fate: Fate,
}

/// The batches of a topic, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    pub(super) sent: Vec<Sent>,
    /// Records below may be deleted.
    pub(super) delete_requested: i64,
    /// Records below were deleted.
    pub(super) delete_answered: i64,
}

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) topics: BTreeMap<String, Sheet>,
    /// Topics whose creation was answered, and whose deletion was not requested.
    pub(super) created: Vec<String>,
    /// Topics whose deletion was answered.
    pub(super) deleted: Vec<String>,
    pub(super) violations: Vec<String>,
    /// Topics that do not move between directories and took no batch, and why.
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

    /// The number of a new batch.
    pub(super) fn send(&mut self, topic: &str, fate: Fate) -> u64 {
        let sheet = self.sheet(topic);
        sheet.sent.push(Sent { offset: None, fate });
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

/// The batch and the place in it of a record.
pub(super) fn parse(topic: &str, value: &[u8]) -> Option<(u64, u64)> {
    let mut parts = std::str::from_utf8(value).ok()?.split(' ');
    (parts.next()? == topic).then_some(())?;
    let number = parts.next()?.parse().ok()?;
    Some((number, parts.next()?.parse().ok()?))
}

impl Sheet {
    /// The acknowledged records that must be there: offset, batch, place in the batch.
    pub(super) fn must_be_there(&self, keeps: Keeps) -> Vec<(i64, u64, u64)> {
        let acknowledged = || {
            let batches = (0..).zip(&self.sent);
            batches.filter_map(|(number, sent)| sent.offset.map(|offset| (offset, number)))
        };
        let records = |(offset, number): (i64, u64)| {
            (0..RECORDS).map(move |record| (offset + i64::try_from(record).unwrap_or(0), number, record))
        };
        match keeps {
            Keeps::All => acknowledged().flat_map(records).collect(),
            Keeps::Undeleted => {
                let live = |(offset, ..): &(i64, u64, u64)| *offset >= self.delete_requested;
                acknowledged().flat_map(records).filter(live).collect()
            }
            Keeps::Newest => {
                let count = RETENTION_BYTES / BATCH_BYTES_MAX;
                let newest = self.sent.len().saturating_sub(count) as u64;
                acknowledged().filter(|(_, number)| *number >= newest).flat_map(records).collect()
            }
            Keeps::LastOfKeys => {
                let mut last = BTreeMap::new();
                for (number, sent) in (0..).zip(&self.sent) {
                    for record in 0..RECORDS {
                        // A later record of unknown fate may have replaced an earlier one.
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
