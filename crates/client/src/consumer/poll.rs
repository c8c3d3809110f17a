//! Polls of a consumer: records, and events of its membership.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::assignment::Assignment;
use super::fetcher::FetchResult;
use super::group::{Group, PollGuard};
use super::membership::Event;
use super::{Chunk, Consumer, ConsumerError, StartAt};
use crate::offsets::TopicPartition;

/// Minimum time for a poll to find missing offsets and leaders.
const KEEP_UP_MIN: Duration = Duration::from_secs(1);
/// Time limit for the leaders of newly assigned partitions to give offsets. Without one, a partition is
/// reported as assigned without a position, so that it does not hold back the records of the others.
const LEADER_OFFSETS_MAX: Duration = Duration::from_secs(1);

/// The result of a poll.
#[derive(Debug)]
pub enum PollEvent {
    Chunk(Chunk),
    /// The group has rebalanced and assigned these partitions, in addition to the kept ones. The positions of
    /// the new partitions are known, except for partitions without a committed offset whose leader has given
    /// none for a second, such as partitions without a leader: [`Consumer::unavailable`] returns them, and
    /// they are read as soon as their offsets are known.
    Assigned(Vec<TopicPartition>),
    /// The group rebalances and revokes these partitions. Revoked partitions stay assigned until the next
    /// poll: their positions can be committed before it, and the group waits up to `max.poll.interval.ms`.
    Revoked(Vec<TopicPartition>),
    /// The group has reassigned these partitions already, because the coordinator received no heartbeats from
    /// this member. No offset can be committed for them.
    Lost(Vec<TopicPartition>),
    /// No event within the timeout.
    Nothing,
}

/// Newly assigned partitions.
#[derive(Debug)]
pub(super) struct NewAssignment {
    partitions: Vec<TopicPartition>,
    /// The time from which missing offsets of leaders do not delay the report.
    leaders_until: Instant,
}

impl Consumer {
    /// The next result: records, or a change of the assignment. Waits up to `timeout`. The future can be
    /// dropped.
    pub async fn poll(&mut self, timeout: Duration) -> Result<PollEvent, ConsumerError> {
        self.poll_for(timeout, true).await
    }

    /// Polls like [`Consumer::poll`], without returning records: for a caller that has no room for more, and
    /// still takes part in rebalances.
    pub async fn poll_rebalance(&mut self, timeout: Duration) -> Result<PollEvent, ConsumerError> {
        self.poll_for(timeout, false).await
    }

    async fn poll_for(&mut self, timeout: Duration, records: bool) -> Result<PollEvent, ConsumerError> {
        let deadline = Instant::now() + timeout;
        let (_polling, releases) = PollGuard::begin(self.group.as_ref());
        if releases {
            self.shared.assignment.lock().give_up_revoked();
        }
        loop {
            if let Some(polled) = self.handle_event(deadline).await? {
                return Ok(polled);
            }
            // Return available records first: the rest of a poll checks every partition.
            if let Some(polled) = self.hand_out(records) {
                return Ok(polled);
            }
            let mut wake_at = deadline;
            // A caller with very short timeouts must make progress, too.
            let until = deadline.max(Instant::now() + KEEP_UP_MIN);
            let kept_up = tokio::time::timeout_at(until, self.keep_up()).await;
            if let Ok(due) = kept_up {
                wake_at = wake_at.min(due?);
            }
            if let Some(polled) = self.hand_out(records) {
                return Ok(polled);
            }
            self.start_fetchers();
            self.shared.demand.set(records);
            let taken = tokio::select! {
                biased;
                fetched = self.fetched.recv(), if records => fetched.map(|fetched| self.take(*fetched)),
                answer = self.leaders.next() => Some(self.take_answer(answer)),
                () = happened(self.group.as_ref()) => None,
                () = tokio::time::sleep_until(wake_at) => None,
            };
            self.shared.demand.set(false);
            match taken {
                Some(taken) => taken?,
                None if Instant::now() >= deadline => return Ok(PollEvent::Nothing),
                None => {}
            }
        }
    }

    /// The next available result.
    fn hand_out(&mut self, records: bool) -> Option<PollEvent> {
        let mut assignment = self.shared.assignment.lock();
        if self.assigned.as_ref().is_some_and(|assigned| assigned.is_complete(&assignment)) {
            return self.assigned.take().map(|assigned| PollEvent::Assigned(assigned.partitions));
        }
        if !records {
            return None;
        }
        // Records of unreported partitions must wait; other records need not.
        let unreported = self.assigned.as_ref().map_or(&[][..], |assigned| &assigned.partitions);
        while let Some(place) = self.ready.iter().position(|chunk| !unreported.contains(&chunk.at)) {
            let chunk = self.ready.remove(place).expect("it was just found");
            if assignment.hand_out(&chunk) {
                return Some(PollEvent::Chunk(chunk));
            }
        }
        None
    }

    /// Processes an event of the member.
    async fn handle_event(&mut self, deadline: Instant) -> Result<Option<PollEvent>, ConsumerError> {
        while let Some(membership) = self.group.as_ref().map(|group| Arc::clone(&group.membership))
            && let Some(event) = membership.event()
        {
            let polled = match event {
                Event::Assigned(partitions) => {
                    self.begin(partitions.iter().map(|at| (at.clone(), StartAt::Committed)).collect());
                    let leaders_until = Instant::now() + LEADER_OFFSETS_MAX;
                    let new = || NewAssignment { partitions: Vec::new(), leaders_until };
                    self.assigned.get_or_insert_with(new).partitions.extend(partitions);
                    None
                }
                Event::Revoked(partitions) => {
                    self.withdraw(&partitions);
                    if !self.commit_revoked(deadline).await {
                        return Ok(Some(PollEvent::Nothing));
                    }
                    if !membership.has_revoked() {
                        // Lost meanwhile, which is another event.
                        continue;
                    }
                    self.shared.assignment.lock().revoke(&partitions);
                    Some(PollEvent::Revoked(partitions))
                }
                Event::Lost(partitions) => {
                    self.commit_of_revoked = None;
                    self.withdraw(&partitions);
                    self.warn_of_dropped_commit();
                    let lost = self.shared.assignment.lock().remove(&partitions);
                    (!lost.is_empty()).then_some(PollEvent::Lost(lost))
                }
                Event::Reported(error) => {
                    membership.handled();
                    return Err(error.into());
                }
                Event::Failed(error) => return Err(error.into()),
            };
            membership.handled();
            if polled.is_some() {
                return Ok(polled);
            }
        }
        Ok(None)
    }

    /// Drops partitions from an unreported assignment.
    fn withdraw(&mut self, partitions: &[TopicPartition]) {
        if let Some(assigned) = &mut self.assigned {
            assigned.partitions.retain(|at| !partitions.contains(at));
        }
    }

    fn take(&mut self, fetched: FetchResult) -> Result<(), ConsumerError> {
        match fetched {
            FetchResult::Chunks(chunks) => self.ready.extend(chunks),
            FetchResult::OutOfRange(at, offset) => {
                if !self.shared.assignment.lock().is_at(&at, offset) {
                    return Ok(());
                }
                let spec = self.reset_spec(&at, Some(offset))?;
                tracing::warn!(partition = %at, %offset, "Offset is out of range, resetting the position");
                self.seek_to(&at, StartAt::Spec(spec));
            }
            // The next round starts a fetcher of that broker.
            FetchResult::Redirected => {}
            FetchResult::Silent => self.refresh_soon(),
            FetchResult::Stale(error) => {
                self.config.connection.failed("fetch", &error);
                tracing::debug!(%error, "Fetch failed, refreshing leaders");
                self.refresh_soon();
            }
            FetchResult::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl NewAssignment {
    /// True if the partitions can be reported: each has a position, or waits only for a leader that has not
    /// answered in time.
    fn is_complete(&self, assignment: &Assignment) -> bool {
        let is_late = Instant::now() >= self.leaders_until;
        self.partitions.iter().all(|at| {
            let is_known = !assignment.contains(at) || assignment.has_valid_position(at);
            is_known || is_late && assignment.lacks_leader_offset(at)
        })
    }
}

async fn happened(group: Option<&Group>) {
    match group {
        Some(group) => group.membership.happened().await,
        None => std::future::pending().await,
    }
}
