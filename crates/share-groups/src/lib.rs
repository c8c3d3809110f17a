//! Share groups (KIP-932), except for members and assignments, which are in `thalweg_groups`.
//!
//! ```text
//! led_partitions   the leader of a partition: sessions, records in flight, locks
//! steps            requests that involve a group and its states: the order of steps on both sides
//! states           the share coordinator and its clients: the persistent states
//! ```

mod led_partitions;
mod states;
mod steps;

pub use led_partitions::{
    Batch, FINAL_EPOCH, INITIAL_EPOCH, LedShare, PendingAcknowledgement, ReadOutcome, Request,
    SessionContext, SessionEnd, SessionError, SessionKey, SessionPartition, SessionRequest, SettingsOfGroups,
    SettleError, SettleOutcome, ShareCounters, ShareFigures, ShareSessions, ShareSettings, Shares,
    TopicPartitionId,
};
pub use states::{
    Cluster, Outcomes, PersistError, Persister, Run, ShareConfig, ShareCoordinator, StateError, StateReply,
    StateRequest, Write, coordinator_key, is_coordinator_key,
};
pub use steps::{ShareGroupParts, ShareGroups};
