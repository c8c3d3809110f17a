//! The history from the clients' view: sent records, acknowledged offsets, and reads.

use crate::ledger::Ledger;
use crate::network::SharedNetwork;
use crate::share_ledger::ShareLedger;
use crate::streams_ledger::StreamsLedger;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The topic of all clients.
pub const TOPIC: &str = "events";
/// The group of members of the classic protocol.
pub(crate) const GROUP: &str = "readers";

/// The owner of a partition: member and life.
pub(crate) type PartitionOwner = (u32, u32);

/// The identity of a record in its value: the producer, and the number of the record in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub producer: u32,
    /// Record number from 0, per producer and partition.
    pub number: u64,
}

impl Name {
    /// The value of the record, padded to a length.
    pub fn value(self, partition: i32, len: usize) -> Vec<u8> {
        let mut value = format!("{} {} {} ", self.producer, partition, self.number).into_bytes();
        value.resize(value.len().max(len), b'.');
        value
    }

    /// Parses a value; `None` if no simulated producer wrote it.
    pub fn of_value(value: &[u8], partition: i32) -> Option<Name> {
        let text = std::str::from_utf8(value).ok()?;
        let mut parts = text.split(' ');
        let producer = parts.next()?.parse().ok()?;
        let of: i32 = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok()?;
        (of == partition).then_some(Name { producer, number })
    }
}

/// A run of acknowledged records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcknowledgedRun {
    /// The first record.
    pub first: Name,
    /// Number of records.
    pub records: u64,
    /// Offset of the first record; `None` if the broker only confirmed that it has the records.
    pub offset: Option<i64>,
}

/// The history, shared by all clients.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<RecordedEvents>>);

/// The recorded events.
#[derive(Default)]
pub struct RecordedEvents {
    /// Acknowledged records by partition.
    pub acknowledged: BTreeMap<i32, Vec<AcknowledgedRun>>,
    /// Number of sent records by partition and producer.
    pub sent: BTreeMap<(i32, u32), u64>,
    /// The record read at each offset, by partition.
    pub read: BTreeMap<i32, BTreeMap<i64, Name>>,
    /// Acknowledged commits of the classic group, by partition.
    pub committed: BTreeMap<i32, i64>,
    /// Acknowledged commits of the consumer protocol group, by partition.
    pub consumer_committed: BTreeMap<i32, i64>,
    /// Owners of partitions in the consumer protocol group.
    pub(crate) owners: BTreeMap<i32, PartitionOwner>,
    /// History of the transactions.
    pub ledger: Ledger,
    /// History of the share group.
    pub(crate) queue: ShareLedger,
    /// History of the streams group.
    pub(crate) streams: StreamsLedger,
    /// Violations of invariants.
    pub violations: Vec<String>,
}

impl RecordedEvents {
    /// The acknowledged commits of a group.
    pub(crate) fn commits_of(&mut self, group: &str) -> &mut BTreeMap<i32, i64> {
        if group == GROUP { &mut self.committed } else { &mut self.consumer_committed }
    }

    /// Records that a member has given up a partition.
    pub(crate) fn disown(&mut self, partition: i32, owner: PartitionOwner) {
        if self.owners.get(&partition) == Some(&owner) {
            self.owners.remove(&partition);
        }
    }
}

impl History {
    /// Reads or extends the history.
    pub fn with<T>(&self, work: impl FnOnce(&mut RecordedEvents) -> T) -> T {
        work(&mut self.0.lock())
    }

    /// Records a violation.
    pub fn violation(&self, what: String) {
        tracing::error!(what, "Violation");
        self.0.lock().violations.push(what);
    }

    /// Records a read record.
    pub fn read(&self, partition: i32, offset: i64, value: Option<&[u8]>) {
        let Some(name) = value.and_then(|value| Name::of_value(value, partition)) else {
            return self.violation(format!(
                "partition {partition}: the record read at offset {offset} was never sent"
            ));
        };
        let before = self.with(|known| known.read.entry(partition).or_default().insert(offset, name));
        if let Some(before) = before.filter(|before| *before != name) {
            let what =
                format!("partition {partition}: offset {offset} was read as {before:?}, then as {name:?}");
            self.violation(what);
        }
    }

    /// A hash of the history.
    pub fn digest(&self, network: &SharedNetwork) -> u64 {
        let known = self.0.lock();
        let mut hasher = DefaultHasher::new();
        known.acknowledged.hash(&mut hasher);
        known.sent.hash(&mut hasher);
        known.read.hash(&mut hasher);
        known.committed.hash(&mut hasher);
        known.consumer_committed.hash(&mut hasher);
        known.owners.hash(&mut hasher);
        known.ledger.hash(&mut hasher);
        known.queue.hash(&mut hasher);
        known.streams.hash(&mut hasher);
        known.violations.hash(&mut hasher);
        hasher.write_u64(network.history());
        hasher.finish()
    }
}
