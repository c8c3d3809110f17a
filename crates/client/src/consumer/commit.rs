//! Commits of a consumer: by the caller, automatic ones, and those before partitions are revoked.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::commit_queue::CommitInFlight;
use super::subscription::Subscription;
use super::{CommitFailed, Consumer, ConsumerError, NoGroup};
use crate::offsets::{CommittedOffset, TopicPartition};

impl Consumer {
    /// Commits the offsets of returned records that are not committed yet.
    pub async fn commit(&mut self) -> Result<(), ConsumerError> {
        let offsets = self.shared.assignment.lock().uncommitted();
        self.commit_offsets(offsets).await
    }

    /// Commits these offsets, with their metadata.
    pub async fn commit_offsets(
        &mut self,
        offsets: BTreeMap<TopicPartition, CommittedOffset>,
    ) -> Result<(), ConsumerError> {
        self.commit_async(offsets)?.await
    }

    /// Commits like [`Consumer::commit_offsets`], without waiting. Commits are sent in order. A subscriber
    /// that is not a member of its group sends none: [`CommitFailed`].
    pub fn commit_async(
        &mut self,
        offsets: BTreeMap<TopicPartition, CommittedOffset>,
    ) -> Result<CommitInFlight, NoGroup> {
        let by = self.group_metadata()?;
        if !offsets.is_empty() && !self.may_commit() {
            return Ok(CommitInFlight::refused(CommitFailed { by, error_code: None }));
        }
        let member = self.group.as_ref().map(|group| Arc::clone(&group.membership));
        Ok(self.commits.as_ref().ok_or(NoGroup)?.commit(by, member, offsets))
    }

    /// The time of the next automatic commit, if any.
    pub(super) fn first_commit_at(&self) -> Option<Instant> {
        self.config.group.as_ref()?;
        self.config.auto_commit.map(|interval| Instant::now() + interval)
    }

    pub(super) fn commit_when_due(&mut self) {
        let (Some(at), Some(interval)) = (self.commit_at, self.config.auto_commit) else { return };
        if at > Instant::now() {
            return;
        }
        self.commit_at = Some(Instant::now() + interval);
        if self.warn_of_dropped_commit() {
            return;
        }
        let offsets = self.shared.assignment.lock().uncommitted();
        // The next commit makes up for a failed one.
        drop(self.commit_async(offsets));
    }

    /// True if the consumer is a member of its group, or assigns its partitions itself.
    fn may_commit(&self) -> bool {
        match &self.group {
            Some(group) => group.membership.is_member(),
            None => matches!(self.subscription, Subscription::None),
        }
    }

    /// True, with a warning, if offsets to commit automatically must be dropped, because the partitions
    /// belong to other members.
    pub(super) fn warn_of_dropped_commit(&self) -> bool {
        if self.config.auto_commit.is_none() || self.may_commit() {
            return false;
        }
        let partitions = self.shared.assignment.lock().uncommitted().len();
        if partitions > 0 {
            tracing::warn!(
                group = self.config.group,
                partitions,
                "Offsets are not committed, because the group has rebalanced without this consumer; records \
                 since the last commit are read again"
            );
        }
        true
    }

    /// Commits automatically before partitions are revoked. False if the deadline comes first: a later call
    /// continues.
    pub(super) async fn commit_revoked(&mut self, deadline: Instant) -> bool {
        if self.config.auto_commit.is_none() {
            return true;
        }
        if self.commit_of_revoked.is_none() {
            let offsets = self.shared.assignment.lock().uncommitted();
            self.commit_of_revoked = self.commit_async(offsets).ok();
        }
        let Some(commit) = &mut self.commit_of_revoked else { return true };
        let Ok(committed) = tokio::time::timeout_at(deadline, commit).await else { return false };
        self.commit_of_revoked = None;
        if let Err(error) = committed {
            // The new owner reads some records again, as at-least-once allows.
            tracing::warn!(%error, "Failed to commit offsets before the rebalance");
        }
        true
    }
}
