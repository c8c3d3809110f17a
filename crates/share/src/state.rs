//! What survives of a share partition: the state that a share coordinator keeps in `__share_group_state`.

use std::sync::Arc;
use thalweg_ids::{PartitionIndex, Uuid};

/// A partition of a topic, as one share group reads it. Kafka: `SharePartitionKey`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareKey {
    /// The group.
    pub group: Arc<str>,
    /// The id of the topic.
    pub topic: Uuid,
    /// The partition of the topic.
    pub partition: PartitionIndex,
}

/// The state of a run of records in a share group. Kafka: `RecordState`. Acquired records survive as available ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// A member may acquire them: 0.
    Available,
    /// A member has accepted them: 2.
    Acknowledged,
    /// They are given up, by a member's rejection or by the limit of deliveries: 4.
    Archived,
}

impl DeliveryState {
    /// As it is stored and sent.
    pub fn code(self) -> i8 {
        match self {
            DeliveryState::Available => 0,
            DeliveryState::Acknowledged => 2,
            DeliveryState::Archived => 4,
        }
    }

    /// The state with this code; none for one that is never persisted.
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
    /// The state of all of them.
    pub state: DeliveryState,
    /// How often they were delivered.
    pub delivery_count: i16,
}

/// The persisted state of a share partition. Kafka: `ShareGroupOffset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareState {
    /// The epoch of the state: it rises when the group's offset is set from outside.
    pub state_epoch: i32,
    /// The first offset that is still in flight; -1 before it is known.
    pub start_offset: i64,
    /// The runs from there, in order, without overlaps.
    pub batches: Vec<StateBatch>,
}

/// A change of a share partition's state, by its leader. Kafka: `PartitionStateBatchData`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUpdate {
    /// The epoch of the state, as it was read. A newer one at the coordinator refuses the change.
    pub state_epoch: i32,
    /// The epoch of the partition's leader. A newer one at the coordinator refuses the change.
    pub leader_epoch: i32,
    /// The first offset that is still in flight; -1 to leave it as it is.
    pub start_offset: i64,
    /// How many records from there on are acknowledged or archived; -1 if it is not known.
    pub delivery_complete_count: i32,
    /// The runs whose state has changed. They take the place of earlier ones, if their delivery count or state is higher.
    pub batches: Vec<StateBatch>,
}

/// What a share coordinator tells about a share partition without its runs. Kafka: `PartitionStateSummaryData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSummary {
    /// The epoch of the state; 0 if the partition was never initialized.
    pub state_epoch: i32,
    /// The epoch of the leader that last read or wrote the state.
    pub leader_epoch: i32,
    /// The first offset that is still in flight; -1 before it is known.
    pub start_offset: i64,
    /// How many records from there on are acknowledged or archived; -1 if it is not known.
    pub delivery_complete_count: i32,
}
