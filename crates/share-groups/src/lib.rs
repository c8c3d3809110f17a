//! Share groups (KIP-932), but for their members and assignments, which `thalweg_groups` has beside those of other groups.
//!
//! ```text
//! led_partitions   where a partition is led: sessions, records in flight, locks
//! steps            requests that need a group and its states: the order of what each of both does
//! states           the share coordinator, and the way to it: the states that survive
//! ```

mod led_partitions;
mod states;
mod steps;

pub use led_partitions::{
    Acknowledging, Batch, FINAL_EPOCH, INITIAL_EPOCH, LedShare, Reading, Request, SessionBegun, SessionEnd,
    SessionError, SessionKey, SessionPartition, SessionRequest, SettingsOfGroups, SettleError, Settled,
    ShareCounters, ShareFigures, ShareSessions, ShareSettings, Shares, TopicPartitionId,
};
pub use states::{
    Ask, Cluster, Done, Outcomes, PersistError, Persister, Run, ShareConfig, ShareCoordinator, StateError,
    Write, coordinator_key, is_coordinator_key,
};
pub use steps::{ShareGroupParts, ShareGroups};
