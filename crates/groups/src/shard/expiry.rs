//! Deadlines: sessions and phases end, writes time out, offsets expire.

use super::GroupShard;
use crate::classic::{ClassicContext, ClassicGroup};
use crate::offsets::OffsetAndMetadata;
use crate::timers::Timer;
use std::sync::Arc;
use thalweg_shard::{Moment, WriteError};

impl GroupShard {
    /// The monotonic time of the next work for [`GroupShard::expire_one`].
    pub(super) fn nearest_deadline_ms(&self) -> i64 {
        let write_ms = Some(self.pending.next_expiry_ms());
        let timer_ms = self.timers.next_ms();
        // Groups are removed at once, after the writes of the turn that expired offsets.
        let groups_ms = self.removes_groups.then_some(i64::MIN);
        [write_ms, timer_ms, groups_ms].into_iter().flatten().fold(self.next_cleanup_ms, i64::min)
    }

    /// Processes one due deadline. Returns false if there was none. This is a turn: its writes come before
    /// the next turn.
    pub(super) fn expire_one(&mut self, now: Moment) -> bool {
        if let Some(write) = self.pending.pop_expired(now.monotonic_ms) {
            tracing::warn!(
                offset = write.last_offset,
                "Group coordinator write was not acknowledged in time (offsets.commit.timeout.ms)"
            );
            self.fail(write.content.answers, write.content.completion, WriteError::TimedOut, now);
            return true;
        }
        if let Some(timer) = self.timers.pop(now.monotonic_ms) {
            self.timer_due(timer, now);
            return true;
        }
        if self.next_cleanup_ms <= now.monotonic_ms {
            self.next_cleanup_ms = now
                .monotonic_ms
                .saturating_add(self.shared.config.offsets_retention_check_interval_ms.max(1));
            self.expire_offsets(now);
            self.removes_groups = true;
            return true;
        }
        if std::mem::take(&mut self.removes_groups) {
            self.remove_empty_groups();
            return true;
        }
        false
    }

    fn timer_due(&mut self, timer: Timer, now: Moment) {
        match timer.clone() {
            Timer::ClassicJoin(id) => {
                self.classic_due(&id, now, |group, cx| group.join_phase_over(cx, timer))
            }
            Timer::ClassicSync(id) => {
                self.classic_due(&id, now, |group, cx| group.sync_phase_over(cx, timer))
            }
            Timer::ClassicSession(id, member) => {
                self.classic_due(&id, now, |group, cx| group.session_over(cx, &member, timer));
            }
            Timer::MemberDeadline(id, ..) if self.is_streams_group(&id) => {
                self.streams_deadline_over(&id, timer, now);
            }
            Timer::MemberDeadline(id, ..) => self.consumer_deadline_over(&id, timer, now),
            Timer::ShareSession(id, _) => self.share_session_over(&id, timer, now),
            Timer::StreamsDelay(id) => self.streams_delay_over(&id, timer, now),
        }
    }

    fn classic_due(
        &mut self,
        id: &str,
        now: Moment,
        decide: impl FnOnce(&mut ClassicGroup, &mut ClassicContext<'_>),
    ) {
        if let Some(((), effects)) = self.with_classic_group(id, now, decide) {
            self.apply_effects(effects);
        }
    }

    /// Removes offsets that are expired or whose topic is deleted, and the share group states of deleted
    /// topics. This includes earlier removals that failed or were missed while the shard was loading.
    fn expire_offsets(&mut self, now: Moment) {
        let topics = &self.shared.topics;
        let mut records = Vec::new();
        for id in self.group_ids() {
            let Some(group) = self.group(&id) else { continue };
            let starts_ms = |topic: &str, value: &OffsetAndMetadata| {
                if group.is_subscribed_to(topic) {
                    None
                } else {
                    group.retention_starts_ms(value.commit_timestamp_ms)
                }
            };
            self.offsets.expire(
                &id,
                now.wall_ms,
                self.shared.config.offsets_retention_ms,
                starts_ms,
                |topic| topics.id(topic),
                &mut records,
            );
        }
        records.extend(self.share_states_of_deleted(|topic| topics.name(topic).is_none()));
        if !records.is_empty() {
            tracing::info!(records = records.len(), "Removing expired offsets");
        }
        self.write_tombstones(records);
    }

    /// Removes groups without members and offsets. The tombstones of the offsets are in the log already, so
    /// no offset remains without its group.
    fn remove_empty_groups(&mut self) {
        let mut records = Vec::new();
        for id in self.group_ids() {
            let Some(group) = self.group(&id) else { continue };
            if group.is_abandoned() && self.offsets.is_empty_for(&id) {
                group.push_tombstones(&id, &mut records);
            }
        }
        if !records.is_empty() {
            tracing::info!(records = records.len(), "Removing empty groups");
        }
        self.write_tombstones(records);
    }

    fn group_ids(&self) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        ids.sort_unstable();
        ids
    }
}
