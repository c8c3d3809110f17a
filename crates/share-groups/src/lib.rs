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
    AcknowledgementFailure, AcknowledgementOutcome, AcquiredBatches, FINAL_EPOCH, INITIAL_EPOCH,
    LedSharePartition, LedSharePartitions, PendingAcknowledgement, ReadOutcome, ReadRequest,
    SettingsOfGroups, ShareCounters, ShareFigures, ShareSessionContext, ShareSessionEnd, ShareSessionError,
    ShareSessionKey, ShareSessionPartition, ShareSessionRequest, ShareSessions, ShareSettings,
};
pub use states::{
    PersistError, Persister, ShareCoordinator, ShareCoordinatorConfig, ShareStatesView, StateError,
    StateOutcomes, StateReply, StateRequest, StateRun, StateWrite, coordinator_key, is_coordinator_key,
};
pub use steps::{ShareGroupParts, ShareGroupService};
