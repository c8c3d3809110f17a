//! The follow-up of a write, for groups of all types: changed deadlines, a resolution of regular expressions,
//! or a conversion. A refused write changes no deadlines but those of sessions, and delays a conversion that
//! exceeded a batch; a resolution is started all the same.

use super::GroupShard;
use crate::consumer::{Downgrade, Resolution};
use crate::deadlines::DeadlineChange;
use crate::kind::Group;
use crate::timed::TimelineObject;
use crate::topic_filter::TopicFilter;
use std::sync::Arc;
use thalweg_shard::{Moment, WriteError};

/// Delay before a group whose conversion exceeded a batch is converted again.
const CONVERSION_RETRY_MS: i64 = 60_000;

/// Changed deadlines, by member id.
type DeadlineChanges = Vec<(Arc<str>, DeadlineChange)>;

/// Work to do once a group's records are in the log.
#[derive(Debug)]
pub(super) enum FollowUp {
    /// Changes deadlines of members.
    DeadlineChanges { group: Arc<str>, changes: DeadlineChanges },
    /// Changes deadlines after a heartbeat, and resolves the group's regular expressions if due, with the
    /// sender's permissions.
    Heartbeat { group: Arc<str>, changes: DeadlineChanges, filter: TopicFilter },
    /// The same after a heartbeat of this member, which converts a classic group to a consumer group.
    Upgrade { group: Arc<str>, changes: DeadlineChanges, filter: TopicFilter, member: String },
    /// Changes deadlines of members, and starts the initial delay of a new streams group.
    InitialDelay { group: Arc<str>, changes: DeadlineChanges, delay_ms: i32 },
    /// Restarts the session of a share group's member.
    ShareSession { group: Arc<str>, member: Arc<str> },
    /// Replaces the group by a classic group.
    Downgrade { group: Arc<str>, downgrade: Downgrade },
}

impl GroupShard {
    /// Runs the effects of a group's records once the log and the group have them.
    pub(super) fn after_write(&mut self, after: FollowUp, now: Moment) {
        match after {
            FollowUp::DeadlineChanges { group, changes } => self.change_deadlines(&group, changes, now),
            FollowUp::Heartbeat { group, changes, filter } => {
                self.change_deadlines(&group, changes, now);
                self.resolve_if_due(group, filter, now);
            }
            FollowUp::Upgrade { group, changes, filter, member: _ } => {
                tracing::info!(%group, "Converted the classic group to a consumer group");
                self.after_write(FollowUp::Heartbeat { group, changes, filter }, now);
            }
            FollowUp::ShareSession { group, member } => self.restart_share_session(&group, &member, now),
            FollowUp::InitialDelay { group, changes, delay_ms } => {
                self.change_deadlines(&group, changes, now);
                self.begin_delay(&group, delay_ms, now);
            }
            FollowUp::Downgrade { group: id, downgrade } => {
                tracing::info!(group = %id, "Converted the consumer group to a classic group");
                // The record has the metadata of one protocol only; the group in memory has all.
                self.groups.entry(id.clone()).or_default().set(Some(Group::Classic(downgrade.group)));
                let decided = self.with_classic_group(&id, now, |group, cx| {
                    group.start_sessions(cx.timers, cx.now.monotonic_ms);
                    if downgrade.rebalances {
                        group.prepare_rebalance(cx);
                    }
                });
                if let Some(((), effects)) = decided {
                    self.apply_effects(effects);
                }
            }
        }
    }

    /// Runs the effects of records that could not be written. The member did send a heartbeat, so its session
    /// continues, and the group's regular expressions are resolved if due: the topics found are written
    /// separately, in a batch that may be smaller. `is_too_large_without` returns true if the other members'
    /// records alone also exceed a batch.
    pub(super) fn after_refusal(
        &mut self,
        after: FollowUp,
        error: WriteError,
        is_too_large_without: impl FnOnce(&str) -> bool,
        now: Moment,
    ) {
        match after {
            FollowUp::Upgrade { group, member, .. } if error == WriteError::TooLarge => {
                // The size of one member's subscription must not keep other members from converting the
                // group.
                if is_too_large_without(&member) {
                    self.put_off_conversion(&group, now);
                } else {
                    self.put_off_conversion_by(&member, &group, now);
                }
            }
            FollowUp::Downgrade { group, .. } if error == WriteError::TooLarge => {
                self.put_off_conversion(&group, now);
            }
            FollowUp::DeadlineChanges { group, changes } | FollowUp::InitialDelay { group, changes, .. } => {
                self.change_sessions(&group, changes, now);
            }
            FollowUp::Heartbeat { group, changes, filter } => {
                self.change_sessions(&group, changes, now);
                self.resolve_if_due(group, filter, now);
            }
            FollowUp::ShareSession { group, member } => self.restart_share_session(&group, &member, now),
            FollowUp::Upgrade { .. } | FollowUp::Downgrade { .. } => {}
        }
    }

    /// Changes deadlines of a group's members; ignored for group types without [`Group::deadlines`].
    pub(super) fn change_deadlines(&mut self, id: &str, changes: DeadlineChanges, now: Moment) {
        let group = self.groups.get_mut(id).and_then(TimelineObject::latest_mut);
        let Some(deadlines) = group.and_then(Group::deadlines) else { return };
        for (member, change) in changes {
            deadlines.change(&mut self.timers, now.monotonic_ms, &member, change);
        }
    }

    /// Changes the sessions among these deadlines, but for a join: a refused join leaves the member the
    /// session of the last one.
    fn change_sessions(&mut self, id: &str, changes: DeadlineChanges, now: Moment) {
        if changes.iter().any(|(_, change)| matches!(change, DeadlineChange::Joined(_))) {
            return;
        }
        let is_session = |(_, change): &(_, DeadlineChange)| matches!(change, DeadlineChange::Session(_));
        self.change_deadlines(id, changes.into_iter().filter(is_session).collect(), now);
    }

    /// Starts a resolution of the group's regular expressions, if due.
    fn resolve_if_due(&mut self, id: Arc<str>, filter: TopicFilter, now: Moment) {
        let interval_ms = self.shared.config.consumer.regex_refresh_interval_ms;
        let Some(Group::Consumer(group)) = self.group(&id) else { return };
        let patterns = group.start_resolution(now.wall_ms, interval_ms, self.topics_added_at);
        if let Some(patterns) = patterns {
            self.resolutions.push(Resolution { group: id, patterns, filter });
        }
    }

    /// Delays the conversion of a group whose records exceeded a batch. Clients cannot know the cause and
    /// retry at once; until the delay ends, these records are not built again.
    fn put_off_conversion(&mut self, id: &str, now: Moment) {
        let until_ms = now.monotonic_ms.saturating_add(CONVERSION_RETRY_MS);
        let (stays, members) = match self.groups.get_mut(id).and_then(TimelineObject::latest_mut) {
            Some(Group::Classic(group)) => {
                group.refused_upgrades_mut().put_off(until_ms);
                ("classic", group.size())
            }
            Some(Group::Consumer(group)) => {
                group.refuse_downgrade_until(until_ms);
                ("consumer", group.size())
            }
            _ => return,
        };
        tracing::warn!(
            group = %id, members, stays, retry_after_ms = CONVERSION_RETRY_MS,
            "The group is too large to be converted: its records exceed max.message.bytes of __consumer_offsets. \
             Raise that, or move all members to one protocol while the group is empty"
        );
    }

    /// Delays the conversion by one member whose own records made the write exceed a batch. The member
    /// retries at once; until the delay ends, its joins do not convert the group.
    fn put_off_conversion_by(&mut self, member: &str, id: &str, now: Moment) {
        let until_ms = now.monotonic_ms.saturating_add(CONVERSION_RETRY_MS);
        let Some(Group::Classic(group)) = self.groups.get_mut(id).and_then(TimelineObject::latest_mut) else {
            return;
        };
        if !group.refused_upgrades_mut().put_off_by(member, until_ms, now.monotonic_ms) {
            self.put_off_conversion(id, now);
            return;
        }
        tracing::warn!(
            group = %id, member, retry_after_ms = CONVERSION_RETRY_MS,
            "The member does not convert its group: with its subscription, the records exceed max.message.bytes of \
             __consumer_offsets. Raise that, or subscribe the member to fewer topics"
        );
    }
}
