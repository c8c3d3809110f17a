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
