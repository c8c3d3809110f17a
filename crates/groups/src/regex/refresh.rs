//! The decision when to resolve the patterns of a group again (Kafka's `GroupMetadataManager`).

/// Minimum time between two resolutions of a group's patterns.
pub const REFRESH_INTERVAL_MS_MIN: i64 = 10_000;

/// Inputs of the decision. The caller ensures that at most one resolution of a group runs.
#[derive(Clone, Copy, Debug)]
pub struct Refresh {
    /// Number of patterns that members subscribe to.
    pub subscribed: usize,
    /// Number of the resolved patterns of the group.
    pub resolved: usize,
    /// True if a member has just sent a pattern that no other member has.
    pub has_new_pattern: bool,
    /// Time of the last resolution; `None` if never.
    pub last_ms: Option<i64>,
    /// Offset of the metadata of the last resolution.
    pub last_version: i64,
    /// Offset of the newest metadata that added a topic.
    pub topics_added_at: i64,
}

impl Refresh {
    /// True if the patterns have to be resolved now. `interval_ms` is
    /// `group.consumer.regex.refresh.interval.ms`.
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
