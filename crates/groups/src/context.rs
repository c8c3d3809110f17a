//! Inputs of a decision about a group whose coordinator assigns: time, settings, topics.

use super::config::GroupConfig;
use super::topic_hashes::TopicHashes;
use super::topics::TopicsView;
use thalweg_shard::Moment;

/// Inputs of a decision. `T` is the times of the group type.
pub(super) struct GroupContext<'a, T> {
    pub(super) now: Moment,
    pub(super) config: &'a GroupConfig,
    /// The times of the group.
    pub(super) times: T,
    pub(super) topics: &'a dyn TopicsView,
    pub(super) hashes: &'a mut TopicHashes,
}
