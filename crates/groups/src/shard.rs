//! All groups and offsets of one partition of `__consumer_offsets`: a state machine without clock, I/O or
//! waiting.
//!
//! The shard is driven in turns (`thalweg_shard::Shard`). An answer with a write waits for the write's
//! acknowledgement, and every other answer waits for all earlier writes. Clients therefore never see a state
//! that a failing broker could lose. Only reads are answered at once, from the acknowledged state.

mod admin;
mod classic;
mod commit;
mod consumer;
mod expiry;
mod figures;
mod follow_up;
mod replay;
mod share;
mod streams;
mod write;

pub use figures::GroupFigures;
use follow_up::FollowUp;
pub use write::{EndOfTransaction, TransactionalProducer, Write};

use super::answer::{GroupAnswer, join_error, sync_error};
use super::classic::{ClassicContext, ClassicGroup, Completion, Effects, WaitingRequests};
use super::config::{ConsumerGroupTimes, GroupConfig, ShareGroupTimes, StreamsGroupTimes};
use super::consumer::Resolution;
use super::error::MembershipError;
use super::kind::Group;
use super::offsets::OffsetStore;
use super::record::CoordinatorRecord;
use super::timed::TimelineObject;
use super::timers::Timers;
use super::topic_hashes::TopicHashes;
use super::topics::TopicsView;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_log::disk::Disk;
use thalweg_metadata::topic_name::OFFSETS;
use thalweg_record::{DecompressBuffer, ProducerId};
use thalweg_shard::{
    self, Answers, Basis, Cell, Moment, Piece, ShardLoadError, Ticket, TransactionalAppendOptions,
    UnacknowledgedWrites, WriteError,
};
use tokio::runtime::Handle;

/// The part of a write that waits for the acknowledgement.
#[derive(Debug)]
struct WaitingWork {
    answers: Vec<(Ticket, GroupAnswer)>,
    completion: Option<Completion>,
}

/// State shared by all shards of a broker.
pub struct SharedState {
    /// Settings of groups.
    pub config: GroupConfig,
    /// The cluster's topics.
    pub topics: Arc<dyn TopicsView>,
    consumer_times: RwLock<Times<ConsumerGroupTimes>>,
    share_times: RwLock<Times<ShareGroupTimes>>,
    streams_times: RwLock<Times<StreamsGroupTimes>>,
    /// Runs the resolution of regular expressions.
    background: Option<(Handle, Disk)>,
}

/// The times of one group type.
#[derive(Debug)]
struct Times<T> {
    default: T,
    /// Times of groups with overrides.
    by_group: HashMap<String, T>,
}

impl<T: Copy> Times<T> {
    fn all(default: T) -> RwLock<Times<T>> {
        RwLock::new(Times { default, by_group: HashMap::default() })
    }

    fn of(&self, group: &str) -> T {
        if self.by_group.is_empty() {
            return self.default;
        }
        self.by_group.get(group).copied().unwrap_or(self.default)
    }
}

impl SharedState {
    /// State with the times of these settings, until other times are set.
    pub fn new(config: GroupConfig, topics: Arc<dyn TopicsView>) -> SharedState {
        let consumer_times = Times::all(config.consumer.times);
        let share_times = Times::all(config.share.times);
        let streams_times = Times::all(config.streams.times);
        SharedState { config, topics, consumer_times, share_times, streams_times, background: None }
    }

    /// The same state with background resolution of regular expressions.
    pub fn with_background(self, runtime: Handle, disk: Disk) -> SharedState {
        SharedState { background: Some((runtime, disk)), ..self }
    }

    /// The times of a consumer group.
    pub(super) fn consumer_times(&self, group: &str) -> ConsumerGroupTimes {
        self.consumer_times.read().of(group)
    }

    /// The times of a share group.
    pub(super) fn share_times(&self, group: &str) -> ShareGroupTimes {
        self.share_times.read().of(group)
    }

    /// The times of a streams group.
    pub(super) fn streams_times(&self, group: &str) -> StreamsGroupTimes {
        self.streams_times.read().of(group)
    }

    /// Sets the times of consumer groups: the broker's defaults, and those of groups with overrides.
    pub(super) fn set_consumer_times(
        &self,
        default: ConsumerGroupTimes,
        by_group: HashMap<String, ConsumerGroupTimes>,
    ) {
        *self.consumer_times.write() = Times { default, by_group };
    }

    /// Sets the times of share groups in the same way.
    pub(super) fn set_share_times(
        &self,
        default: ShareGroupTimes,
        by_group: HashMap<String, ShareGroupTimes>,
    ) {
        *self.share_times.write() = Times { default, by_group };
    }

    /// Sets the times of streams groups in the same way.
    pub(super) fn set_streams_times(
        &self,
        default: StreamsGroupTimes,
        by_group: HashMap<String, StreamsGroupTimes>,
    ) {
        *self.streams_times.write() = Times { default, by_group };
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The groups and offsets of one partition of `__consumer_offsets`, driven by `thalweg_shard::Shards`.
#[derive(Debug)]
pub struct GroupShard {
    shared: Arc<SharedState>,
    groups: HashMap<Arc<str>, TimelineObject<Group>>,
    /// Hashes of the subscribed topics.
    hashes: TopicHashes,
    /// The version of the newest metadata that added a topic.
    topics_added_at: i64,
    resolutions: Vec<Resolution>,
    /// Groups created or removed by unacknowledged writes, in the order of the log.
    unacknowledged_groups: VecDeque<(i64, Arc<str>)>,
    offsets: OffsetStore,
    timers: Timers,
    writes: VecDeque<Write>,
    pending: UnacknowledgedWrites<WaitingWork>,
    answers: Answers<GroupAnswer>,
    next_cleanup_ms: i64,
    /// True if offsets have just expired: groups without offsets are removed next.
    removes_groups: bool,
    /// True if the log lacked records during loading.
    has_lost_records: bool,
}

impl thalweg_shard::Shard for GroupShard {
    const KEEPS: &'static str = "groups and offsets";
    const TOPIC: &'static str = OFFSETS;
    const LOSS: Option<&'static str> = Some(
        "committed offsets may be missing, or those of an earlier commit or from before a reset, also of transactions that were open \
         there; members join again; deleted groups and offsets may be back; share groups may begin a topic again",
    );
    type SharedState = Arc<SharedState>;
    type TurnContext = Moment;
    type Write = Write;
    type Answer = GroupAnswer;

    fn turn(_: &Arc<SharedState>, now: Moment) -> Moment {
        now
    }

    fn new(shared: &Arc<SharedState>, _leader_epoch: i32, now: Moment) -> GroupShard {
        let config = &shared.config;
        GroupShard {
            shared: Arc::clone(shared),
            groups: HashMap::default(),
            hashes: TopicHashes::default(),
            topics_added_at: 0,
            resolutions: Vec::new(),
            unacknowledged_groups: VecDeque::new(),
            offsets: OffsetStore::default(),
            timers: Timers::default(),
            writes: VecDeque::new(),
            pending: UnacknowledgedWrites::default(),
            answers: Answers::default(),
            // Expired offsets are first removed after one interval.
            next_cleanup_ms: now.monotonic_ms.saturating_add(config.offsets_retention_check_interval_ms),
            removes_groups: false,
            has_lost_records: false,
        }
    }

    fn replay(
        &mut self,
        piece: Piece<'_>,
        buffer: &mut DecompressBuffer,
        now: Moment,
    ) -> Result<(), ShardLoadError> {
        self.replay_batches(piece, buffer, now)
    }

    fn skip_lost(&mut self) {
        self.offsets.forget_pending();
        self.has_lost_records = true;
    }

    fn loaded(&mut self, _: Option<i64>, now: Moment) {
        // A loading shard is not informed of changed topics.
        self.topics_added_at = self.shared.topics.version();
        self.start_deadlines(now);
    }

    fn count(&self) -> usize {
        self.groups.len()
    }

    fn batch(
        shared: &Arc<SharedState>,
        write: &Write,
        now: Moment,
    ) -> Result<(Bytes, TransactionalAppendOptions), WriteError> {
        write.batch(shared.config.offsets_topic_compression, now)
    }

    fn next_deadline_ms(&self) -> i64 {
        self.nearest_deadline_ms()
    }

    fn expire_next(&mut self, now: Moment) -> bool {
        self.expire_one(now)
    }

    fn pass_on(&mut self, shared: &Arc<SharedState>, cell: &Arc<Cell<GroupShard>>) -> bool {
        let Some((runtime, disk)) = &shared.background else { return false };
        for resolution in self.take_resolutions() {
            let (cell, disk, topics) = (Arc::clone(cell), disk.clone(), Arc::clone(&shared.topics));
            runtime.spawn(async move {
                let group = resolution.group.clone();
                let looked_up = disk.spawn(move || resolution.look_up(&*topics)).await;
                // Without a result, the lookup is repeated later.
                let (matches, version) = looked_up.unwrap_or_default();
                cell.turn(|shard, now| shard.regexes_resolved(&group, matches, version, now));
            });
        }
        false
    }

    fn next_write(&mut self) -> Option<Write> {
        self.writes.pop_front()
    }

    fn answers(&mut self) -> &mut Answers<GroupAnswer> {
        &mut self.answers
    }

    fn answer_timeout_ms(shared: &Arc<SharedState>) -> i64 {
        shared.config.commit_timeout_ms
    }

    fn written(&mut self, mut write: Write, last_offset: i64, now: Moment) {
        let count = i64::try_from(write.records.len()).expect("a batch has fewer records");
        if let (Some(marker), Some(producer)) = (write.marker, write.producer) {
            self.offsets.end_transaction(producer.id.0, marker.outcome, Some(last_offset));
        } else if write.is_applied {
            let producer_id = write.producer.map_or(ProducerId::NONE, |producer| producer.id);
            for (record, offset) in write.records.into_iter().zip(last_offset - count + 1..) {
                self.apply(record, offset, producer_id, Some(last_offset), now.wall_ms);
            }
        }
        if let Some(Completion::NewGroup { group, .. }) = &write.completion {
            let (group, mut replaced) = (group.clone(), write.replaced.take());
            // The replaced group has no members, so no request waits in it.
            if let Some(replaced) = &mut replaced {
                replaced.dissolve(&mut self.timers);
            }
            if let Some(slot) = self.groups.get_mut(&group) {
                slot.changed_from(replaced);
                self.unacknowledged_groups.push_back((last_offset, group));
            }
        }
        if let Some(after) = write.after {
            self.after_write(after, now);
        }
        let (answers, completion) = (write.answers, write.completion);
        let expires_ms = now.monotonic_ms.saturating_add(self.shared.config.commit_timeout_ms);
        self.pending.push(last_offset, expires_ms, WaitingWork { answers, completion });
    }

    fn take_first_half(write: &mut Write) -> Option<Write> {
        write.take_first_half()
    }

    fn refused(&mut self, mut write: Write, error: WriteError, batch_bytes_max: usize, now: Moment) {
        if let Some(after) = write.after.take() {
            let compression = self.shared.config.offsets_topic_compression;
            let is_too_large_without =
                |member: &str| write.is_too_large_without(member, batch_bytes_max, compression, now);
            self.after_refusal(after, error, is_too_large_without, now);
        }
        if write.producer.is_some() && matches!(error, WriteError::Refused(_)) {
            tracing::debug!(records = write.records.len(), %error, "Rejected a write of a transaction");
        } else {
            tracing::warn!(records = write.records.len(), %error, "Group coordinator write was rejected");
        }
        match write.completion {
            Some(Completion::NewGroup { group, .. }) => {
                self.fail(write.answers, None, error, now);
                self.discard_group(&group, write.replaced, error);
            }
            completion => self.fail(write.answers, completion, error, now),
        }
    }

    fn acknowledged(&mut self, last_offset: i64, now: Moment) {
        self.replicated(last_offset);
        while let Some(write) = self.pending.pop_to(last_offset) {
            self.give(write.content.answers, Basis::up_to(write.last_offset));
            if let Some(completion) = write.content.completion {
                self.complete(completion, Ok(write.last_offset), now);
            }
        }
    }

    fn unacknowledged(&mut self, last_offset: i64, error: WriteError, now: Moment) {
        // After other errors, the local medium has refused the write, but the replicas may still get it.
        if error == WriteError::TooFewReplicas {
            self.replicated(last_offset);
        }
        while let Some(write) = self.pending.pop_to(last_offset) {
            self.fail(write.content.answers, write.content.completion, error, now);
        }
    }

    fn unload(&mut self) {
        let error = WriteError::NotLeader;
        let waiting = self.pending.drain().flat_map(|waiting| waiting.answers);
        let unwritten = self.writes.drain(..).flat_map(|write| write.answers);
        for (ticket, answer) in waiting.chain(unwritten) {
            self.answers.fail(ticket, answer, error);
        }
        for slot in self.groups.values_mut() {
            let Some(group) = slot.latest_mut() else { continue };
            let waiting = group.dissolve(&mut self.timers);
            refuse_waiting(&mut self.answers, waiting, error.into(), Basis::failed(error));
        }
    }
}

impl GroupShard {
    /// Number of pending deadlines.
    #[cfg(test)]
    pub(super) fn deadline_count(&self) -> usize {
        self.timers.len()
    }

    /// Members of all groups without any deadline, which would never be removed if they fell silent.
    #[cfg(test)]
    pub(super) fn without_deadline(&mut self) -> Vec<Arc<str>> {
        let groups = self.groups.values_mut().filter_map(TimelineObject::latest_mut);
        groups.flat_map(Group::without_deadline).collect()
    }

    /// Types of all groups by id, including unacknowledged decisions.
    #[cfg(test)]
    pub(super) fn kinds(&self) -> std::collections::BTreeMap<Arc<str>, &'static str> {
        let kind =
            |(id, slot): (&Arc<str>, &TimelineObject<Group>)| Some((id.clone(), slot.latest()?.kind_name()));
        self.groups.iter().filter_map(kind).collect()
    }

    /// The group including unacknowledged decisions.
    fn group(&self, id: &str) -> Option<&Group> {
        self.groups.get(id).and_then(TimelineObject::latest)
    }

    /// Groups visible to readers, sorted by id.
    fn acknowledged_groups(&self) -> Vec<(&str, &Group)> {
        let mut groups: Vec<(&str, &Group)> = self.groups.iter().filter_map(visible_group).collect();
        groups.sort_unstable_by_key(|&(id, _)| id);
        groups
    }

    /// Runs a decision of a classic group.
    fn with_classic_group<R>(
        &mut self,
        id: &str,
        now: Moment,
        decide: impl FnOnce(&mut ClassicGroup, &mut ClassicContext<'_>) -> R,
    ) -> Option<(R, Effects)> {
        let group = self.groups.get_mut(id)?.latest_mut()?.classic_mut()?;
        let effects = Effects::default();
        let mut cx = ClassicContext { now, config: &self.shared.config, timers: &mut self.timers, effects };
        let result = decide(group, &mut cx);
        Some((result, cx.effects))
    }

    /// Applies a classic group's decision.
    fn apply_effects(&mut self, effects: Effects) {
        match effects.write {
            Some((record, completion)) => self.writes.push_back(Write {
                records: vec![record],
                producer: None,
                marker: None,
                answers: effects.answers,
                completion: Some(completion),
                replaced: None,
                after: None,
                is_applied: false,
                is_divisible: false,
            }),
            None => self.release_after_writes(effects.answers),
        }
    }

    /// Writes records that change the state once appended, and answers when they are acknowledged.
    fn write(
        &mut self,
        records: Vec<CoordinatorRecord>,
        producer: Option<TransactionalProducer>,
        answers: Vec<(Ticket, GroupAnswer)>,
    ) {
        if records.is_empty() {
            return self.release_after_writes(answers);
        }
        let (marker, completion, after) = (None, None, None);
        let (is_applied, is_divisible) = (true, false);
        self.writes.push_back(Write {
            records,
            producer,
            marker,
            answers,
            completion,
            replaced: None,
            after,
            is_applied,
            is_divisible,
        });
    }

    /// Writes a group's records and runs `after` once they are in the log; at once, if there are no records.
    fn write_group(
        &mut self,
        records: Vec<CoordinatorRecord>,
        after: FollowUp,
        answers: Vec<(Ticket, GroupAnswer)>,
        now: Moment,
    ) {
        if records.is_empty() {
            self.after_write(after, now);
            return self.release_after_writes(answers);
        }
        self.write(records, None, answers);
        self.writes.back_mut().expect("it was just added").after = Some(after);
    }

    /// Makes the log up to this offset visible to readers, after its replication.
    fn replicated(&mut self, last_offset: i64) {
        self.offsets.acknowledge(last_offset);
        while self.unacknowledged_groups.front().is_some_and(|&(at, _)| at <= last_offset) {
            let (_, group) = self.unacknowledged_groups.pop_front().expect("the condition has found it");
            if let Some(slot) = self.groups.get_mut(&group) {
                slot.acknowledge();
                if slot.is_gone() {
                    self.groups.remove(&group);
                }
            }
        }
    }

    /// Gives answers that depend on all earlier writes.
    fn release_after_writes(&mut self, answers: Vec<(Ticket, GroupAnswer)>) {
        match self.writes.back_mut() {
            Some(write) => write.answers.extend(answers),
            None => self.give(answers, Basis::LATEST),
        }
    }

    fn give(&mut self, answers: Vec<(Ticket, GroupAnswer)>, basis: Basis) {
        for (ticket, answer) in answers {
            self.answers.give(ticket, answer, basis);
        }
    }

    /// Completes a classic group's record after its acknowledgement up to an offset, or after its failure.
    fn complete(&mut self, completion: Completion, result: Result<i64, WriteError>, now: Moment) {
        let basis = result.map_or_else(Basis::failed, Basis::up_to);
        let result = result.map(|_| ());
        let group = completion.group().clone();
        let decided = self.with_classic_group(&group, now, |group, cx| match completion {
            Completion::NewGroup { ticket, .. } => {
                if let Err(error) = result {
                    group.fail_join(cx, ticket, error);
                }
            }
            Completion::EmptyGroup { group } => {
                if let Err(error) = result {
                    tracing::warn!(%group, %error, "Failed to write an empty group");
                }
            }
            Completion::Assignment { generation, leader, assignment, .. } => {
                group.assignment_written(cx, generation, &leader, assignment, result);
            }
            Completion::StaticMember(member) => group.static_member_returned(cx, *member, result),
        });
        let Some(((), effects)) = decided else { return };
        if effects.write.is_some() {
            self.apply_effects(effects);
        } else {
            self.give(effects.answers, basis);
        }
    }

    fn fail(
        &mut self,
        answers: Vec<(Ticket, GroupAnswer)>,
        completion: Option<Completion>,
        error: WriteError,
        now: Moment,
    ) {
        for (ticket, answer) in answers {
            self.answers.fail(ticket, answer, error);
        }
        if let Some(completion) = completion {
            self.complete(completion, Err(error), now);
        }
    }

    /// Removes a group that could not be written, and restores the group that it replaced.
    fn discard_group(&mut self, id: &str, replaced: Option<Group>, error: WriteError) {
        let Some(slot) = self.groups.get_mut(id) else { return };
        if let Some(mut group) = slot.set(replaced) {
            let mut waiting = group.dissolve(&mut self.timers);
            // A member of a group that was never written has no id.
            waiting.joins.iter_mut().for_each(|(_, id)| *id = "".into());
            refuse_waiting(&mut self.answers, waiting, error.into(), Basis::failed(error));
        }
        if slot.is_gone() {
            self.groups.remove(id);
        }
    }
}

fn visible_group<'a>((id, slot): (&'a Arc<str>, &'a TimelineObject<Group>)) -> Option<(&'a str, &'a Group)> {
    slot.acknowledged().map(|group| (&**id, group))
}

fn refuse_waiting(
    answers: &mut Answers<GroupAnswer>,
    waiting: WaitingRequests,
    error: MembershipError,
    basis: Basis,
) {
    for (ticket, member_id) in waiting.joins {
        answers.give(ticket, GroupAnswer::JoinGroup(join_error(&member_id, error)), basis);
    }
    for ticket in waiting.syncs {
        answers.give(ticket, GroupAnswer::SyncGroup(sync_error(error)), basis);
    }
}
