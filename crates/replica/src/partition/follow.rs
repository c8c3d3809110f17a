//! Following: replicates a leader's log.
//!
//! Owns: rejecting data of an older leader epoch, or for another offset. Each call has the leader epoch and,
//! with data, the offset of the fetch. Refuses: the network; see `replication`.

use super::role::Role;
use super::truncation::{Divergence, truncation};
use super::{FlushError, Partition, State};
use std::sync::Arc;
use thalweg_log::{AppendError, LogError, OffsetsMissing};
use thalweg_record::{LeaderEpoch, Offset};

/// Number of refusals of a gap in the leader's log before the gap is accepted.
const GAP_REFUSALS: u32 = 3;

/// The position of a follower's next fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPosition {
    /// The log end.
    pub offset: Offset,
    /// The epoch of the last batch.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// The synced log start: the leader relies on it for its answer to DeleteRecords.
    pub log_start_offset: Offset,
    /// True if the log start has risen and is not synced yet.
    pub owes_log_start: bool,
}

/// The outcome of appending the leader's records.
#[derive(Clone, Copy, Debug)]
pub struct FollowerAppend {
    /// The next position.
    pub next: FetchPosition,
    /// True if the flush policy requires a sync before the leader may count the records.
    pub flush_due: bool,
}

/// The outcome of a truncation to the leader's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncation {
    /// The next position.
    pub next: FetchPosition,
    /// True if the truncated records came from this leader in this epoch.
    pub is_taken_back: bool,
}

/// The leader's answer could not be applied to the log.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The partition has another leader, is no longer followed, or has moved on: the answer is void.
    #[error("the partition is not followed in epoch {0} any more")]
    Void(i32),
    /// The log refused the records.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log could not be changed.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl FollowError {
    /// True if the first of the leader's batches is damaged.
    pub fn is_damaged_batch(&self) -> bool {
        matches!(self, FollowError::Append(AppendError::Malformed(_)))
    }
}

/// The bounds of the leader's log.
#[derive(Clone, Copy, Debug)]
pub struct LeaderBounds {
    /// The leader's log start.
    pub start: Offset,
    /// The leader's log end.
    pub end: Offset,
    /// The first record before the log start that the leader has lost (missing, not deleted), if any.
    pub lost_from: Option<Offset>,
}

impl Partition {
    /// True if the log accepts no appends, as in an offline directory.
    pub fn is_closed(&self) -> bool {
        self.state.lock().log.failure().is_some()
    }

    /// The next fetch position, while the partition is followed in this leader epoch.
    pub fn fetch_position(&self, epoch: LeaderEpoch) -> Result<FetchPosition, FollowError> {
        let state = self.state.lock();
        state.check_follows(epoch)?;
        Ok(state.fetch_position())
    }

    /// Appends the leader's batches for `from` unchanged, and takes over its high watermark and log start
    /// offset.
    pub fn append_from_leader(
        &self,
        epoch: LeaderEpoch,
        from: Offset,
        records: &[u8],
        high_watermark: Offset,
        log_start_offset: Offset,
    ) -> Result<FollowerAppend, FollowError> {
        let mut state = self.state.lock();
        state.check_follows_from(epoch, from)?;
        let mut flush_due = false;
        if !records.is_empty() {
            let info = match state.log.append_as_follower(records, epoch) {
                Err(AppendError::UnexpectedOffset(found))
                    if found.first >= state.log.high_watermark() || state.log.is_empty() =>
                {
                    // A batch of the leader spans this log's end, so local records differ from the leader's.
                    // If the local log is empty, the leader's log starts within a batch.
                    if !state.log.is_empty() {
                        tracing::warn!(partition = ?self, first = found.first.0, end = from.0, "Dropping records that the leader lacks");
                    }
                    state.truncate_to(found.first)?;
                    state.log.append_as_follower(records, epoch)?
                }
                Err(AppendError::OffsetsMissing(gap))
                    if state.leader_insists_on(self, &gap, high_watermark) =>
                {
                    tracing::error!(
                        partition = ?self, expected = gap.expected.0, found = gap.first.0,
                        "The leader has no batch for these offsets; skipping them as if compacted"
                    );
                    state.log.accept_gaps();
                    state.log.append_as_follower(records, epoch)?
                }
                appended => appended?,
            };
            flush_due = info.flush_due;
            state.log.forget_missing_if_there()?;
            state.traffic.replication_bytes_in += info.appended_bytes;
            state.came_from_leader(self, info.appended_bytes);
        }
        if let Some(follower) = state.follower_mut() {
            if !records.is_empty() {
                follower.first_sent = Some(follower.first_sent.map_or(from, |first| first.min(from)));
            }
            follower.leader_high_watermark = high_watermark;
        }
        state.take_over(self, high_watermark, log_start_offset);
        Ok(FollowerAppend { next: state.fetch_position(), flush_due })
    }

    /// Truncates records that the leader lacks, by the end of the largest common epoch there (KIP-595).
    pub fn truncate_to_leader(
        &self,
        epoch: LeaderEpoch,
        from: Offset,
        leader: Divergence,
    ) -> Result<Truncation, FollowError> {
        let mut state = self.state.lock();
        let log_end = state.check_follows_from(epoch, from)?;
        let own = state.log.end_offset_for_epoch(leader.leader_epoch);
        let to = truncation(leader.epoch_end(), own, log_end);
        let first_sent = state.follower_mut().and_then(|follower| follower.first_sent);
        let is_taken_back = first_sent.is_some_and(|first| first < log_end);
        let (log_start, leader_start) = (state.log.log_start_offset(), leader.leader_start);
        if to < log_start && leader_start < log_start {
            tracing::error!(
                partition = ?self, log_start = log_start.0, log_end = log_end.0, leader_start = leader_start.0, parts_at = to.0,
                "This log parts from its leader's before it starts, as after an unclean election: fetching all that the leader has"
            );
            state.restart_before_start(self, leader_start, None)?;
        } else {
            state.cut(self, to)?;
        }
        Ok(Truncation { next: state.fetch_position(), is_taken_back })
    }

    /// True if the log lacks records before its start because a leader lacked them too. Takes no lock.
    pub fn lacks_what_a_leader_lacked(&self) -> bool {
        let published = &self.published;
        !published.is_damaged() && published.log_start_for_followers() < published.log_start_offset()
    }

    /// Applies the log start of this epoch's leader: records missing here from `leader_start` on must be
    /// fetched again.
    pub fn compare_beginning(&self, epoch: LeaderEpoch, leader_start: Offset) {
        let mut state = self.state.lock();
        if state.check_follows(epoch).is_err() {
            return;
        }
        state.log.compare_beginning(leader_start);
        drop(state);
        self.report_damage();
    }

    /// Handles the answer that `from` is outside the leader's log, which has these bounds: truncates to the
    /// leader's end, or restarts at the leader's start (Kafka's `fetchOffsetAndTruncate`).
    pub fn reset_to_leader(
        &self,
        epoch: LeaderEpoch,
        from: Offset,
        leader: LeaderBounds,
    ) -> Result<FetchPosition, FollowError> {
        let LeaderBounds { start: leader_start, end: leader_end, lost_from } = leader;
        let mut state = self.state.lock();
        let log_end = state.check_follows_from(epoch, from)?;
        let log_start = state.log.log_start_offset();
        if leader_end < log_start && leader_start < leader_end {
            tracing::error!(
                partition = ?self, log_start = log_start.0, log_end = log_end.0,
                leader_start = leader_start.0, leader_end = leader_end.0,
                "This log starts behind the end of its leader's, as after an unclean election or with a wrong \
                 log-start-offset-checkpoint: fetching all that the leader has"
            );
            state.restart_before_start(self, leader_start, lost_from)?;
        } else if leader_end < log_end {
            tracing::warn!(
                partition = ?self, log_end = log_end.0, leader_end = leader_end.0,
                "Leader's log ends before this one, as after an unclean election"
            );
            state.cut(self, leader_end)?;
        } else if leader_start > log_end {
            tracing::info!(partition = ?self, log_end = log_end.0, leader_start = leader_start.0, "Leader's log starts behind the end of this one");
            state.restart_at(self, leader_start, lost_from)?;
        }
        Ok(state.fetch_position())
    }
}

impl State {
    fn check_follows(&self, epoch: LeaderEpoch) -> Result<(), FollowError> {
        let follows = matches!(self.role, Role::Follower(_)) && self.leader_epoch() == epoch;
        if follows { Ok(()) } else { Err(FollowError::Void(epoch.0)) }
    }

    /// Rejects records of another leader epoch, or for an offset that is no longer the log end. Returns the
    /// log end.
    fn check_follows_from(&self, epoch: LeaderEpoch, from: Offset) -> Result<Offset, FollowError> {
        self.check_follows(epoch)?;
        let log_end = self.log.log_end_offset();
        if log_end == from { Ok(log_end) } else { Err(FollowError::Void(epoch.0)) }
    }

    /// True if the leader has repeatedly answered with the same gap, and counts the records behind the gap as
    /// replicated. A formerly compacted topic keeps its gaps when its policy changes; the leader would have
    /// repaired or rejected damage meanwhile. If this replica is not in sync, the high watermark may wait for
    /// it below the gap: then repetition by the leader is enough.
    fn leader_insists_on(
        &mut self,
        partition: &Partition,
        gap: &OffsetsMissing,
        high_watermark: Offset,
    ) -> bool {
        let is_in_sync = self.registration.isr.contains(&partition.node_id);
        let Some(follower) = self.follower_mut() else { return false };
        let refusals = match follower.refused_gap.take() {
            Some((known, refusals)) if known == *gap => refusals + 1,
            _ => 0,
        };
        follower.refused_gap = Some((gap.clone(), refusals));
        refusals >= GAP_REFUSALS && (gap.first < high_watermark || !is_in_sync)
    }

    fn fetch_position(&self) -> FetchPosition {
        let durable_start = self.log.published().durable_log_start();
        FetchPosition {
            offset: self.log.log_end_offset(),
            last_fetched_epoch: self.log.latest_epoch(),
            log_start_offset: durable_start,
            owes_log_start: self.log.log_start_offset() > durable_start,
        }
    }

    /// Starts to follow another broker. A log without epochs cannot be compared with the leader's, so it is
    /// truncated to its high watermark. Otherwise only epochs that this broker led without a record, and
    /// doubtful parts found by recovery, are dropped.
    pub(super) fn begin_to_follow(&mut self, partition: &Partition) {
        let end = self.log.log_end_offset();
        let to = if self.log.latest_epoch().is_some() { end } else { self.log.high_watermark() };
        // The leader has the possibly damaged part.
        let to = self.log.doubtful_from().map_or(to, |from| to.min(from.max(self.log.log_start_offset())));
        if let Err(error) = self.cut(partition, to) {
            tracing::error!(?partition, %error, "Failed to truncate a log");
        }
    }

    /// Restarts the log at the leader's start if it lacks records before its own start that the leader has.
    fn restart_before_start(
        &mut self,
        partition: &Partition,
        leader_start: Offset,
        lost_from: Option<Offset>,
    ) -> Result<(), LogError> {
        self.cut(partition, self.log.log_start_offset())?;
        self.restart_at(partition, leader_start, lost_from)
    }

    /// Restarts the log empty at the leader's start. The leader may have lost the records from `lost_from`
    /// on.
    fn restart_at(
        &mut self,
        partition: &Partition,
        leader_start: Offset,
        lost_from: Option<Offset>,
    ) -> Result<(), LogError> {
        self.note_cut(Offset::ZERO);
        let Some(lost_from) = lost_from.filter(|lost_from| *lost_from < leader_start) else {
            return self.log.truncate_fully_and_start_at(leader_start, None);
        };
        tracing::error!(
            ?partition,
            log_end = self.log.log_end_offset().0,
            leader_start = leader_start.0,
            lost_from = lost_from.0,
            "Leader has lost the beginning of its log: restarting at its start without these records. Bring back a broker that \
             has them, or delete the records up to the leader's start"
        );
        self.log.restart_with_lost_beginning(leader_start, lost_from)
    }

    fn cut(&mut self, partition: &Partition, to: Offset) -> Result<(), LogError> {
        let (from, high_watermark) = (self.log.log_end_offset(), self.log.high_watermark());
        // The truncated records came from this leader, which may still have them.
        let is_taken_back = self.follower_mut().is_some_and(|follower| match follower.first_sent {
            Some(first) if first <= to => true,
            _ => {
                follower.first_sent = None;
                false
            }
        });
        // The leader could lose the records before sending them again. Only the first records taken back are
        // kept, so that a leader that repeats the truncation cannot fill the disk.
        let is_kept = is_taken_back && self.follower_mut().is_some_and(|follower| follower.keeps_taken_back);
        let was_cut = if is_kept {
            self.note_cut(to);
            self.log.truncate_sent(to)?
        } else {
            self.truncate_to(to)?
        };
        if was_cut {
            let (from, to, hw) = (from.0, to.0, high_watermark.0);
            if let Some(follower) = self.follower_mut().filter(|_| is_taken_back && to < hw) {
                follower.keeps_taken_back = true;
            }
            if is_taken_back {
                tracing::warn!(
                    ?partition,
                    from = to,
                    to = from,
                    high_watermark = hw,
                    "The leader takes back what it has sent in this epoch: its leader-epoch-checkpoint does not fit its records"
                );
            } else if to < hw {
                let (leader, epoch) = (self.registration.leader, self.leader_epoch().0);
                tracing::error!(
                    ?partition,
                    from = to,
                    to = from,
                    high_watermark = hw,
                    %leader,
                    leader_epoch = epoch,
                    "Follower truncated acknowledged records that its leader lacks, and set them aside"
                );
            } else {
                tracing::info!(?partition, from, to, high_watermark = hw, "Truncated a log");
            }
        }
        Ok(())
    }

    fn truncate_to(&mut self, to: Offset) -> Result<bool, LogError> {
        self.note_cut(to);
        self.log.truncate_to(to)
    }

    /// Notes the new log end for a copy in another directory, which must be cut too.
    pub(super) fn note_cut(&mut self, to: Offset) {
        self.cut_to = Some(self.cut_to.map_or(to, |cut_to| cut_to.min(to)));
    }

    /// Takes over the leader's high watermark, limited by this log. The high watermark may move back; the log
    /// start only rises.
    fn take_over(&mut self, partition: &Partition, high_watermark: Offset, log_start_offset: Offset) {
        let before = self.log.high_watermark();
        if high_watermark != before {
            let now = self.log.set_high_watermark(high_watermark);
            if now > before {
                self.notify_consumers(usize::MAX);
            }
        }
        let start = log_start_offset.min(self.log.high_watermark());
        if start > self.log.log_start_offset()
            && let Err(error) = self.log.delete_records(start)
        {
            tracing::error!(?partition, %error, "Failed to advance the log start offset to the leader's");
        }
        if let Err(error) = self.log.forget_lost_beginning_below(log_start_offset) {
            tracing::error!(?partition, %error, "Failed to forget records before the log start that the leader has deleted");
        }
    }
}

impl Partition {
    /// Returns when the whole log is synced.
    pub async fn flush_all(partition: &Arc<Partition>) -> Result<(), FlushError> {
        let end = partition.state.lock().log.log_end_offset();
        Partition::flush_to(partition, end).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::{NODE, partition_as, registration};
    use thalweg_log::disk::Disk;
    use thalweg_log::{Clock, Damage, Home, LogConfig, OpenOptions, PartitionLog, TopicPartition};
    use thalweg_metadata::{BrokerId, PartitionRegistration};
    use thalweg_record::{BatchBuilder, BatchOptions};

    const LEADER: BrokerId = BrokerId(2);

    /// An empty log in a directory, and its partition, which follows in epoch 4.
    fn following(dir: &std::path::Path, isr: &[BrokerId]) -> Partition {
        let (home, name) = (Home::new(Disk::real(), dir.join("t-0")), TopicPartition::new("t", 0));
        let log = PartitionLog::create(home, name, None, Arc::new(LogConfig::default()), Clock::manual(0));
        let registration = PartitionRegistration {
            replicas: vec![NODE, LEADER],
            isr: isr.to_vec(),
            ..registration(LEADER, 4)
        };
        partition_as(log.expect("creates"), &registration)
    }

    fn batch(offset: i64) -> Vec<u8> {
        batch_of(offset, BatchOptions::default().leader_epoch)
    }

    fn batch_of(offset: i64, leader_epoch: LeaderEpoch) -> Vec<u8> {
        let base_offset = Offset(offset);
        let options = BatchOptions { base_offset, leader_epoch, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        builder.append(1, None, Some(b"value"), &[]).expect("fits");
        builder.build().to_vec()
    }

    #[test]
    fn lost_beginning_of_the_leader_is_inherited_until_one_leads_that_has_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = following(dir.path(), &[LEADER]);
        let epoch = LeaderEpoch(4);
        let append = |at: i64, log_start: i64| {
            partition
                .append_from_leader(epoch, Offset(at), &batch(at), Offset(at + 1), Offset(log_start))
                .expect("follows")
        };
        append(0, 0);
        let bounds = LeaderBounds { start: Offset(10), end: Offset(12), lost_from: Some(Offset(0)) };
        let position = partition.reset_to_leader(epoch, Offset(1), bounds).expect("restarts");
        assert_eq!(position.offset, Offset(10));
        append(10, 0);
        let start_for_followers = || partition.with_log(|log| log.log_start_for_followers());
        assert_eq!((start_for_followers(), partition.is_damaged()), (Offset(0), false));
        assert_eq!(strays(dir.path()), 1);
        partition.compare_beginning(epoch, Offset(10));
        assert!(partition.lacks_what_a_leader_lacked() && !partition.is_damaged());
        partition.compare_beginning(epoch, Offset(0));
        assert!(partition.is_damaged(), "it is to be fetched again");
    }

    fn strays(dir: &std::path::Path) -> usize {
        let names = std::fs::read_dir(dir).expect("lists").map(|entry| entry.expect("is there").file_name());
        names.filter(|name| name.to_string_lossy().ends_with("-stray")).count()
    }

    #[test]
    fn log_that_starts_behind_its_leaders_end_is_fetched_from_the_leaders_start() {
        for (lost_from, for_followers) in [(None, 3), (Some(Offset(0)), 0), (Some(Offset(3)), 3)] {
            let dir = tempfile::tempdir().expect("a directory");
            let partition = following(dir.path(), &[LEADER]);
            let restarted = partition.with_log(|log| log.truncate_fully_and_start_at(Offset(i64::MAX), None));
            restarted.expect("starts");
            let bounds = LeaderBounds { start: Offset(3), end: Offset(12), lost_from };
            let position =
                partition.reset_to_leader(LeaderEpoch(4), Offset(i64::MAX), bounds).expect("restarts");
            assert_eq!(position.offset, Offset(3));
            let starts = partition.with_log(|log| (log.log_start_offset(), log.log_start_for_followers()));
            assert_eq!(starts, (Offset(3), Offset(for_followers)));
        }
    }

    #[test]
    fn log_that_parts_before_its_start_is_fetched_from_the_leaders_start() {
        // The leader may no longer have records before its own start; its next answer then reports that
        // start.
        for (leader_start, expected) in [(0, 0), (20, 20), (200, 40)] {
            let dir = tempfile::tempdir().expect("a directory");
            let partition = following(dir.path(), &[LEADER]);
            partition.with_log(|log| {
                log.truncate_fully_and_start_at(Offset(100), None).expect("starts");
                log.append_as_follower(&batch_of(100, LeaderEpoch(3)), LeaderEpoch(4)).expect("appends");
                log.set_high_watermark(Offset(101));
            });
            let parting = Divergence {
                leader_epoch: LeaderEpoch(3),
                end_offset: Offset(40),
                leader_start: Offset(leader_start),
            };
            let truncated =
                partition.truncate_to_leader(LeaderEpoch(4), Offset(101), parting).expect("restarts");
            assert_eq!(truncated.next.offset, Offset(expected));
            assert_eq!(partition.with_log(|log| log.log_start_offset()), Offset(expected));
            assert_eq!(strays(dir.path()), 1, "an acknowledged record is kept");
        }
    }

    #[test]
    fn log_without_a_record_that_may_start_too_late_is_fetched_from_the_leaders_start() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(following(dir.path(), &[LEADER]));
        // A wrong checkpoint, after a crash.
        let options = OpenOptions { log_start: Offset(80), ..OpenOptions::new(false) };
        let (home, name) = (Home::new(Disk::real(), dir.path().join("t-0")), TopicPartition::new("t", 0));
        let log = PartitionLog::open(home, name, Arc::default(), Clock::manual(0), &options);
        let registration = |isr: &[BrokerId], epoch| PartitionRegistration {
            replicas: vec![NODE, LEADER],
            isr: isr.to_vec(),
            ..registration(LEADER, epoch)
        };
        let partition = partition_as(log.expect("opens"), &registration(&[LEADER, NODE], 4));
        let position = |epoch| partition.fetch_position(LeaderEpoch(epoch)).expect("follows").offset;
        let damage = Damage::Missing(Offset(81));
        assert!(partition.is_damaged() && partition.cuts_to_fetch_again(damage));
        partition.fetch_damage_again();
        assert_eq!(position(4), Offset(80), "its leader still counts on it");
        partition.apply(&registration(&[LEADER], 5));
        partition.fetch_damage_again();
        assert_eq!((position(5), partition.is_damaged()), (Offset(0), false));
        // The leader starts at 30, and has lost nothing.
        let bounds = LeaderBounds { start: Offset(30), end: Offset(100), lost_from: None };
        let reset = partition.reset_to_leader(LeaderEpoch(5), Offset(0), bounds).expect("restarts");
        assert_eq!(reset.offset, Offset(30));
    }

    fn parting_at(end_offset: i64) -> Divergence {
        let leader_epoch = LeaderEpoch(0);
        Divergence { leader_epoch, end_offset: Offset(end_offset), leader_start: Offset(0) }
    }

    /// The leader may lose the records before sending them again.
    #[test]
    fn acknowledged_records_that_the_leader_takes_back_are_set_aside() {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = following(dir.path(), &[LEADER, NODE]);
        let epoch = LeaderEpoch(4);
        partition.with_log(|log| log.truncate_fully_and_start_at(Offset(50), None)).expect("starts");
        let append = |at: i64, high_watermark| {
            partition
                .append_from_leader(epoch, Offset(at), &batch(at), Offset(high_watermark), Offset(50))
                .expect("follows");
        };
        (50..70).for_each(|at| append(at, 50));
        partition.truncate_to_leader(epoch, Offset(70), parting_at(60)).expect("truncates");
        assert_eq!(strays(dir.path()), 0, "none of them was acknowledged");
        (60..110).for_each(|at| append(at, at + 1));
        for round in 0..3 {
            partition.truncate_to_leader(epoch, Offset(110), parting_at(60)).expect("truncates");
            assert_eq!(strays(dir.path()), 1, "round {round}");
            (60..110).for_each(|at| append(at, at + 1));
        }
    }

    #[test]
    fn records_that_the_leader_takes_back_are_set_aside_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = following(dir.path(), &[LEADER]);
        let epoch = LeaderEpoch(4);
        let append = |at: i64| {
            partition
                .append_from_leader(epoch, Offset(at), &batch(at), Offset(at + 1), Offset(0))
                .expect("follows");
        };
        (0..3).for_each(append);
        partition.apply(&PartitionRegistration {
            isr: vec![LEADER],
            replicas: vec![NODE, LEADER],
            ..registration(LEADER, 5)
        });
        let epoch = LeaderEpoch(5);
        for round in 0..5 {
            let end = partition.with_log(|log| log.log_end_offset());
            let Truncation { next, is_taken_back } =
                partition.truncate_to_leader(epoch, end, parting_at(1)).expect("truncates");
            // The records of another leader, and the first ones of this leader.
            assert_eq!((next.offset, strays(dir.path())), (Offset(1), 1 + round.min(1)), "round {round}");
            assert_eq!(is_taken_back, round > 0, "round {round}");
            let again = partition
                .truncate_to_leader(epoch, next.offset, parting_at(1))
                .expect("there is nothing to cut");
            assert!(!again.is_taken_back, "the leader has sent nothing since");
            for at in 1..3 {
                partition
                    .append_from_leader(epoch, Offset(at), &batch(at), Offset(at + 1), Offset(0))
                    .expect("follows");
            }
        }
    }

    /// A leader's log may start within a batch, and so may the empty log of a follower.
    #[test]
    fn batch_around_the_start_of_an_empty_log_replaces_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = following(dir.path(), &[LEADER]);
        let epoch = LeaderEpoch(4);
        let bounds = LeaderBounds { start: Offset(30), end: Offset(40), lost_from: None };
        let batch_of_twenty = |offset: i64| {
            let mut builder =
                BatchBuilder::new(BatchOptions { base_offset: Offset(offset), ..BatchOptions::default() });
            (0..20).for_each(|_| builder.append(1, None, Some(b"value"), &[]).expect("fits"));
            builder.build().to_vec()
        };
        partition.reset_to_leader(epoch, Offset(0), bounds).expect("restarts");
        let append = |from: i64, first: i64| {
            partition
                .append_from_leader(
                    epoch,
                    Offset(from),
                    &batch_of_twenty(first),
                    Offset(first + 20),
                    Offset(first + 10),
                )
                .expect("follows")
        };
        let bounds_of = || partition.with_log(|log| (log.log_start_offset(), log.log_end_offset()));
        assert_eq!((append(30, 20).next.offset, bounds_of()), (Offset(40), (Offset(30), Offset(40))));
        assert_eq!(strays(dir.path()), 0, "there was nothing");
        // The rest of the batches is deleted records.
        append(40, 40);
        partition.with_log(|log| log.delete_records(Offset(60))).expect("deletes");
        let bounds = LeaderBounds { start: Offset(70), end: Offset(80), lost_from: None };
        partition.reset_to_leader(epoch, Offset(60), bounds).expect("restarts");
        append(70, 60);
        assert_eq!((bounds_of(), strays(dir.path())), ((Offset(70), Offset(80)), 0));
    }

    #[test]
    fn lost_beginning_is_forgotten_once_the_leader_has_deleted_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = following(dir.path(), &[LEADER]);
        let epoch = LeaderEpoch(4);
        let bounds = LeaderBounds { start: Offset(10), end: Offset(12), lost_from: Some(Offset(0)) };
        partition.reset_to_leader(epoch, Offset(0), bounds).expect("restarts");
        assert!(partition.lacks_what_a_leader_lacked());
        let append = |at: i64, start: i64| {
            partition
                .append_from_leader(epoch, Offset(at), &batch(at), Offset(at + 1), Offset(start))
                .expect("follows");
        };
        append(10, 5);
        assert_eq!(partition.with_log(|log| log.log_start_for_followers()), Offset(5), "they were deleted");
        append(11, 10);
        assert!(!partition.lacks_what_a_leader_lacked());
    }

    /// Number of refused answers with a gap at the log end and this high watermark, before the gap is
    /// accepted.
    fn refusals(isr: &[BrokerId], high_watermark: i64) -> Option<usize> {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = following(dir.path(), isr);
        let records = batch(3);
        (0..20).find(|_| {
            let taken = partition.append_from_leader(
                LeaderEpoch(4),
                Offset::ZERO,
                &records,
                Offset(high_watermark),
                Offset::ZERO,
            );
            match taken {
                Ok(taken) => taken.next.offset == Offset(4),
                Err(FollowError::Append(AppendError::OffsetsMissing(_))) => false,
                Err(error) => panic!("{error}"),
            }
        })
    }

    #[test]
    fn gap_is_accepted_when_the_leader_insists() {
        let refused = Some(GAP_REFUSALS as usize);
        assert_eq!(refusals(&[LEADER], 4), refused, "the records behind it count as replicated");
        // The high watermark may wait for this very replica.
        assert_eq!(refusals(&[LEADER], 0), refused);
        assert_eq!(
            refusals(&[LEADER, NODE], 0),
            None,
            "the leader counts on what is here, and may have lost records"
        );
    }
}
