//! The persistent state of a share partition, kept by a share coordinator in `__share_group_state`.

use std::sync::Arc;
use thalweg_ids::{PartitionIndex, Uuid};

/// A partition in one share group. Kafka: `SharePartitionKey`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharePartitionKey {
    /// The group id.
    pub group: Arc<str>,
    /// The id of the topic.
    pub topic: Uuid,
    /// The partition index within the topic.
    pub partition: PartitionIndex,
}

/// The state of a run of records in a share group. Kafka: `RecordState`. Acquired records persist as
/// available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// Ready for acquisition: 0.
    Available,
    /// Accepted by a member: 2.
    Acknowledged,
    /// Rejected by a member, or above the delivery limit: 4.
    Archived,
}

impl DeliveryState {
    /// The code on disk and on the wire.
    pub fn code(self) -> i8 {
        match self {
            DeliveryState::Available => 0,
            DeliveryState::Acknowledged => 2,
            DeliveryState::Archived => 4,
        }
    }

    /// The state with this code; none for a code that is never persisted.
    pub fn from_code(code: i8) -> Option<DeliveryState> {
        [DeliveryState::Available, DeliveryState::Acknowledged, DeliveryState::Archived]
            .into_iter()
            .find(|state| state.code() == code)
    }
}

/// A run of records with one state, both ends included. Kafka: `PersisterStateBatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBatch {
    /// The offset of the first record.
    pub first_offset: i64,
    /// The offset of the last record.
    pub last_offset: i64,
    /// The state of the records.
    pub state: DeliveryState,
    /// The delivery count of the records.
    pub delivery_count: i16,
}

/// The persisted state of a share partition. Kafka: `ShareGroupOffset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareState {
    /// The state epoch, which rises when an administrator sets the start offset.
    pub state_epoch: i32,
    /// The start offset; -1 while unknown.
    pub start_offset: i64,
    /// The runs from the start offset on, in order and without overlaps.
    pub batches: Vec<StateBatch>,
}

/// A state change by the leader of a share partition. Kafka: `PartitionStateBatchData`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUpdate {
    /// The state epoch at the last read. The coordinator rejects the change if its own epoch is newer.
    pub state_epoch: i32,
    /// The leader epoch of the partition. The coordinator rejects the change if its own epoch is newer.
    pub leader_epoch: i32,
    /// The new start offset; -1 for no change.
    pub start_offset: i64,
    /// The number of acknowledged and archived records from the start offset on; -1 if unknown.
    pub delivery_complete_count: i32,
    /// The changed runs. A run replaces older ones with a lower delivery count or state.
    pub batches: Vec<StateBatch>,
}

/// The state of a share partition without its runs. Kafka: `PartitionStateSummaryData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSummary {
    /// The epoch of the state; 0 if the partition was never initialized.
    pub state_epoch: i32,
    /// The epoch of the leader that last read or wrote the state.
    pub leader_epoch: i32,
    /// The start offset; -1 while unknown.
    pub start_offset: i64,
    /// The number of acknowledged and archived records from the start offset on; -1 if unknown.
    pub delivery_complete_count: i32,
}
