//! When the patterns of a group are resolved again, as Kafka's `GroupMetadataManager` decides it.

/// The least time between two resolutions of a group's patterns.
pub const REFRESH_INTERVAL_MS_MIN: i64 = 10_000;

/// What the decision depends on. The caller makes sure that at most one resolution of a group runs.
#[derive(Clone, Copy, Debug)]
pub struct Refresh {
    /// The patterns that members subscribe to.
    pub subscribed: usize,
    /// The patterns among the group's resolved ones.
    pub resolved: usize,
    /// Whether a member has just brought a pattern that no other member has.
    pub has_new_pattern: bool,
    /// When the group's patterns were last resolved; `None` if never.
    pub last_ms: Option<i64>,
    /// The offset of the metadata with which they were resolved.
    pub last_version: i64,
    /// The offset of the newest metadata that added a topic.
    pub topics_added_at: i64,
}

impl Refresh {
    /// Whether the patterns are to be resolved now. `interval_ms` is `group.consumer.regex.refresh.interval.ms`.
    pub fn is_due(&self, now_ms: i64, interval_ms: i64) -> bool {
        let is_older =
            |age_ms: i64| self.last_ms.is_none_or(|last_ms| now_ms > last_ms.saturating_add(age_ms));
        self.subscribed > 0
            && is_older(REFRESH_INTERVAL_MS_MIN)
            && (self.has_new_pattern
                || self.subscribed != self.resolved
                || self.last_version < self.topics_added_at
                || is_older(interval_ms))
    }
}
