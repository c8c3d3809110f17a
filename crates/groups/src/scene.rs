//! Inputs of a decision about a group whose coordinator assigns: time, settings, topics.

use super::config::GroupConfig;
use super::topic_hashes::TopicHashes;
use super::topics::Topics;
use thalweg_shard::Moment;

/// The scene. `T` has the times of groups of the kind.
pub(super) struct Scene<'a, T> {
    pub(super) now: Moment,
    pub(super) config: &'a GroupConfig,
    /// The group's.
    pub(super) times: T,
    pub(super) topics: &'a dyn Topics,
    pub(super) hashes: &'a mut TopicHashes,
}
