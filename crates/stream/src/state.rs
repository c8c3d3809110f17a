//! State of stages that may outlive the process: windows, remembered messages, counts.
//!
//! A stage keeps its state by partition of the source, as entries of a key and a value. `durability` decides
//! from the plan whether the entries are in the cluster. If so, the runtime adds a partition's entries to the
//! stage before its first message, and takes their changes for the transaction that commits the offsets
//! (`changelog`), at a moment at which every message is either whole inside of the stage or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::message::RevocablePartition;

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

/// A record of the topic of a stage's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    pub topic: Arc<str>,
    pub partition: i32,
    pub key: Vec<u8>,
    /// `None` removes the entry.
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
