//! The state that a consumer shares with its group member, which runs as a separate task (`member`):
//! assignments go to the consumer; acknowledged revocations and the time of the last poll go to the member.
//! Joining never blocks the consumer.
//!
//! Revoked partitions belong to the member until the consumer polls again: until then the consumer can commit
//! their offsets in the old generation. A member of the consumer protocol has an epoch instead of a
//! generation. The epoch changes while partitions are kept, so the state tracks the epoch since which each
//! partition is held: commits of an older epoch are repeated with the current epoch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_dial::ClientError;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metadata::Metadata;
use crate::offsets::{GroupMetadata, TopicPartition};

/// An event of a member.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The member has joined, and got these partitions in addition to the kept ones.
    Assigned(Vec<TopicPartition>),
    /// The member must give up these partitions.
    Revoked(Vec<TopicPartition>),
    /// The group has already reassigned these partitions.
    Lost(Vec<TopicPartition>),
    /// A heartbeat was refused, and the member continues.
    Reported(ClientError),
    /// The member cannot continue.
    Failed(ClientError),
}

/// The subscription of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SubscribedTopics {
    /// Topics by name.
    pub(super) names: Vec<String>,
    /// A regular expression that the coordinator resolves; `None` in classic groups.
    pub(super) pattern: Option<String>,
}

/// State shared by both sides.
#[derive(Debug)]
pub(super) struct Membership {
    state: Mutex<State>,
    /// Notifies the consumer of an event.
    happened: Notify,
    /// Notifies the member of a change of the state.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// The identity since the last join, kept after a loss: with it the coordinator refuses a former member.
    metadata: GroupMetadata,
    /// True from a completed join to the loss of the membership.
    is_member: bool,
    topics: SubscribedTopics,
    /// The partitions of a member of the consumer protocol, each with the epoch in which it was assigned.
    held: BTreeMap<TopicPartition, i32>,
    /// Partition counts of topics in the last assignment computed by this member as the leader.
    shared_out: BTreeMap<String, usize>,
    events: VecDeque<Event>,
    /// True if revoked partitions were handed to the consumer, which has not polled since.
    giving_up: bool,
    /// True if the topics have changed.
    rejoin: bool,
    /// True if a commit was refused as that of a non-member: a heartbeat then checks the membership.
    doubted: bool,
    leaving: bool,
    polling: bool,
    polled_at: Instant,
}

impl Membership {
    /// The membership of a consumer that has not joined yet.
    pub(super) fn new(metadata: GroupMetadata, topics: SubscribedTopics) -> Membership {
        Membership {
            state: Mutex::new(State {
                metadata,
                is_member: false,
                topics,
                held: BTreeMap::new(),
                shared_out: BTreeMap::new(),
                events: VecDeque::new(),
                giving_up: false,
                rejoin: false,
                doubted: false,
                leaving: false,
                polling: false,
                polled_at: Instant::now(),
            }),
            happened: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(super) fn metadata(&self) -> GroupMetadata {
        self.state.lock().metadata.clone()
    }

    pub(super) fn set_member(&self, member_id: &str, generation: i32) {
        let metadata = &mut self.state.lock().metadata;
        member_id.clone_into(&mut metadata.member_id);
        metadata.generation = generation;
    }

    /// Notes that a join is complete.
    pub(super) fn joined(&self) {
        self.state.lock().is_member = true;
    }

    /// True if this is a member, which may commit. The loss of the membership may not be processed yet.
    pub(super) fn is_member(&self) -> bool {
        self.state.lock().is_member
    }

    /// The current identity of a member whose epoch has changed since it was `by`, for a commit of these
    /// partitions: `None` if any of them was not held all the time, or this is another member.
    pub(super) fn renewed<'a>(
        &self,
        by: &GroupMetadata,
        mut partitions: impl Iterator<Item = &'a TopicPartition>,
    ) -> Option<GroupMetadata> {
        let state = self.state.lock();
        let is_held = |at| state.held.get(at).is_some_and(|since| *since <= by.generation);
        let is_same = state.metadata.member_id == by.member_id && by.generation <= state.metadata.generation;
        (is_same && partitions.all(is_held)).then(|| state.metadata.clone())
    }

    /// Notes that the member holds these partitions since its current epoch.
    pub(super) fn hold(&self, partitions: &[TopicPartition]) {
        let mut state = self.state.lock();
        let since = state.metadata.generation;
        state.held.extend(partitions.iter().map(|at| (at.clone(), since)));
    }

    /// Notes that the member no longer holds these partitions.
    pub(super) fn release<'a>(&self, partitions: impl Iterator<Item = &'a TopicPartition>) {
        let mut state = self.state.lock();
        for at in partitions {
            state.held.remove(at);
        }
    }

    pub(super) fn topics(&self) -> SubscribedTopics {
        self.state.lock().topics.clone()
    }

    /// Subscribes to these topics. The member rejoins if the topics have changed.
    pub(super) fn subscribe(&self, topics: SubscribedTopics) {
        let mut state = self.state.lock();
        if state.topics != topics {
            state.topics = topics;
            state.rejoin = true;
            self.changed.notify_one();
        }
    }

    /// The topics whose partitions matter to the member: for the leader, the topics of all members.
    pub(super) fn watched_topics(&self) -> BTreeSet<String> {
        let state = self.state.lock();
        state.topics.names.iter().chain(state.shared_out.keys()).cloned().collect()
    }

    /// Records the counts of an assignment, if this member leads.
    pub(super) fn set_shared_out(&self, counts: BTreeMap<String, usize>) {
        self.state.lock().shared_out = counts;
    }

    /// Compares the metadata with the last assignment: a leader rejoins if the partition count of a topic has
    /// changed.
    pub(super) fn compare(&self, metadata: &Metadata) {
        let mut state = self.state.lock();
        let differs = state.shared_out.iter().any(|(name, count)| {
            metadata.topics.get(name).is_some_and(|topic| topic.partitions.len() != *count)
        });
        if differs {
            state.rejoin = true;
            self.changed.notify_one();
        }
    }

    /// True if the member must rejoin because the consumer's subscription has changed.
    pub(super) fn take_rejoin(&self) -> bool {
        std::mem::take(&mut self.state.lock().rejoin)
    }

    /// Notes that a commit was refused as that of a non-member, or of another generation.
    pub(super) fn doubt(&self) {
        self.state.lock().doubted = true;
        self.changed.notify_one();
    }

    /// True if a heartbeat is due, because the membership is in doubt.
    pub(super) fn take_doubt(&self) -> bool {
        std::mem::take(&mut self.state.lock().doubted)
    }

    /// Asks the member to leave the group.
    pub(super) fn leave(&self) {
        self.state.lock().leaving = true;
        self.changed.notify_one();
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.state.lock().leaving
    }

    /// Begins a poll, which releases the revoked partitions that the last one has reported: true if there are
    /// any.
    pub(super) fn begin_poll(&self) -> bool {
        let mut state = self.state.lock();
        state.polling = true;
        state.polled_at = Instant::now();
        let releases = std::mem::take(&mut state.giving_up);
        if releases {
            state.events.pop_front();
        }
        self.changed.notify_one();
        releases
    }

    pub(super) fn end_poll(&self) {
        let mut state = self.state.lock();
        state.polling = false;
        state.polled_at = Instant::now();
    }

    /// True if the consumer has not polled for this interval.
    pub(super) fn is_stalled(&self, interval: Duration) -> bool {
        let state = self.state.lock();
        !state.polling && state.polled_at + interval <= Instant::now()
    }

    /// Returns when a stalled consumer polls or leaves.
    pub(super) async fn polled_or_left(&self, interval: Duration) {
        while self.is_stalled(interval) && !self.is_leaving() {
            self.changed().await;
        }
    }

    /// The oldest event that the consumer has not processed.
    pub(super) fn event(&self) -> Option<Event> {
        let state = self.state.lock();
        state.events.front().filter(|_| !state.giving_up).cloned()
    }

    /// Removes the oldest event, processed by the consumer. Revoked partitions are released at the next poll.
    pub(super) fn handled(&self) {
        let mut state = self.state.lock();
        match state.events.front() {
            Some(Event::Revoked(_)) => state.giving_up = true,
            _ => drop(state.events.pop_front()),
        }
        self.changed.notify_one();
    }

    pub(super) fn push_event(&self, event: Event) {
        self.state.lock().events.push_back(event);
        self.happened.notify_one();
    }

    /// Reports an error to the consumer, unless another error is queued.
    pub(super) fn report(&self, error: ClientError) {
        let mut state = self.state.lock();
        if !state.events.iter().any(|event| matches!(event, Event::Reported(_))) {
            state.events.push_back(Event::Reported(error));
            self.happened.notify_one();
        }
    }

    /// True if the consumer still holds revoked partitions.
    pub(super) fn has_revoked(&self) -> bool {
        self.state.lock().events.iter().any(|event| matches!(event, Event::Revoked(_)))
    }

    /// Returns when the consumer has processed every loss, or leaves. A member that joined before would
    /// commit positions of lost partitions in its new generation.
    pub(super) async fn loss_processed(&self) {
        let is_pending = || {
            let state = self.state.lock();
            !state.leaving && state.events.iter().any(|event| matches!(event, Event::Lost(_)))
        };
        while is_pending() {
            self.changed().await;
        }
    }

    /// Ends the membership. Notes the loss of these partitions, and of revoked partitions that were not
    /// released.
    pub(super) fn lose(&self, mut lost: BTreeSet<TopicPartition>) {
        let mut state = self.state.lock();
        (state.giving_up, state.is_member) = (false, false);
        state.held.clear();
        state.events.retain_mut(|event| match event {
            Event::Revoked(partitions) => {
                lost.extend(std::mem::take(partitions));
                false
            }
            _ => true,
        });
        if !lost.is_empty() {
            state.events.push_back(Event::Lost(lost.into_iter().collect()));
            self.happened.notify_one();
        }
    }

    /// Returns when there may be an event.
    pub(super) async fn happened(&self) {
        self.happened.notified().await;
    }

    /// Returns when the consumer leaves.
    pub(super) async fn left(&self) {
        while !self.is_leaving() {
            self.changed().await;
        }
    }

    /// Returns when the consumer may have changed the state for the member.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
