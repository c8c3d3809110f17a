//! State of stages that outlives the process: windows, remembered messages, counts.
//!
//! A stage keeps its state by partition of the source, as entries of a key and a value. `keeping` decides from
//! the plan whether the state of a stream is durable. If it is, the entries are in a compacted topic per stage
//! (`changelog`), and the state follows its partition to another member of the group: `store` reads the
//! entries back when a partition is assigned, and takes the changes of all stages for the transaction that
//! commits the offsets. So state and offsets never differ. The sink's output is part of the transaction if
//! the stream runs exactly once, and stored before it otherwise.
//!
//! Stages without messages of their own between two transactions know nothing of this: the runtime takes
//! their changes at a moment at which every message read is either whole inside of them or not at all.

mod changelog;
mod keeping;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::message::RevocablePartition;

pub use changelog::StateRecord;
pub use keeping::{StateKeeping, has_state, keeping};
pub use store::{StateStore, StoreSettings};

/// The entries of a partition, by key.
pub type Entries = BTreeMap<Vec<u8>, Bytes>;

/// A changed entry of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub of: RevocablePartition,
    /// The key, not empty.
    pub key: Vec<u8>,
    /// The new value; `None` if the entry is removed.
    pub value: Option<Vec<u8>>,
}

/// The state of a stage.
pub trait State {
    /// The options that the entries depend on. Entries with other options cannot be read back.
    fn options(&self) -> String;

    /// Adds a partition with its entries. None of its messages were processed since [`State::remove`].
    fn add(&mut self, of: RevocablePartition, entries: Entries) -> Result<(), UnknownEntry>;

    /// Removes the state of partitions without trace: they are read elsewhere, or again from the last commit.
    fn remove(&mut self, is_removed: &dyn Fn(RevocablePartition) -> bool);

    /// True if entries have changed since the last call of [`State::take_changes`].
    fn has_changed(&self) -> bool;

    /// Takes the entries that have changed since the last call.
    fn take_changes(&mut self) -> Vec<Change>;
}

/// An entry that the stage does not know, such as one of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has an entry of an unknown format")]
pub struct UnknownEntry;

impl From<bytes::TryGetError> for UnknownEntry {
    fn from(_: bytes::TryGetError) -> UnknownEntry {
        UnknownEntry
    }
}

/// The topic of a stage's state: named after the group, whose offsets it belongs to, and the stage.
fn topic(group: &str, stage: &str) -> Arc<str> {
    format!("{group}-{stage}-changelog").into()
}
