//! One partition on this broker: its leader, its readable range, its waiters.
//!
//! All mutable state of a partition is behind one lock, held for short synchronous work: append a batch, find
//! a slice to read, move the high watermark. Waiting happens outside: fetches as [`Waiter`]s, produce
//! requests as [`PendingAppend`]s.
//!
//! If the partition has other replicas, the leader keeps a [`crate::followers::Followers`]; a partition
//! with one replica has none and pays nothing for it. A follower is driven by `replication`.

mod acks;
mod append;
mod damage;
mod durable;
mod error;
mod fetch;
mod figures;
mod file_work;
mod flush;
mod follow;
mod intake;
mod lead;
mod lock;
mod moving;
mod news;
mod offsets;
mod refetches;
mod role;
mod snapshot;
mod stuck;
mod table;
#[cfg(test)]
pub(crate) mod testing;
mod throttled;
mod traffic;
mod trim;
mod truncation;
mod waiter;
mod watch;

pub use append::{AppendOutcome, TransactionalAppendOptions, marker_batch};
pub use damage::DamageStep;
pub use durable::PendingAppend;
pub use error::{
    AckError, DeleteError, FetchError, FlushError, LeaderAppendError, OffsetsError, RoleError, UnreadableLog,
};
pub use fetch::{FetchParameters, FetchRead, Isolation, Reader};
pub use figures::PartitionFigures;
pub use follow::{FetchPosition, FollowError, FollowerAppend, LeaderBounds, Truncation};
pub use intake::DecompressionBudget;
pub use moving::{MoveError, Progress};
pub use news::{News, Subscription};
pub use offsets::TimestampLookup;
pub use snapshot::PartitionSnapshot;
pub use table::{LocalTopic, Partitions};
pub use thalweg_log::EndMarker;
pub use traffic::{SentBytes, Traffic};
pub use truncation::Divergence;
pub use waiter::{Waiter, Waiters, WaitingFetch};

use crate::context::ReplicaContext;
use flush::FlushLock;
use lock::StateLock;
use news::Subscriptions;
use parking_lot::{Mutex, RwLock};
use refetches::Refetches;
use role::{Follower, Role};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_config::EffectiveTopicConfig;
use thalweg_log::{PartitionLog, PublishedOffsets};
use thalweg_metadata::{BrokerId, PartitionEpoch, PartitionIndex, PartitionRegistration};
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::Uuid;
use waiter::WokenRequests;

/// A partition with a replica on this broker.
pub struct Partition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The topic's id.
    pub topic_id: Uuid,
    /// The partition's index in the topic.
    pub index: PartitionIndex,
    node_id: BrokerId,
    context: Arc<ReplicaContext>,
    state: StateLock,
    /// The copy in another directory that will replace the log. The copy's lock is taken before that of the
    /// state.
    future: Mutex<Option<PartitionLog>>,
    /// The copy's directory, if there is a copy.
    moves_to: Mutex<Option<Uuid>>,
    /// True if a task is copying.
    claimed: AtomicBool,
    /// True if the log was found at the start, not created.
    found: AtomicBool,
    /// True if the controller has known the log's directory since the start: the controller then relies on
    /// this log.
    known: AtomicBool,
    flushing: FlushLock,
    outgoing: SentBytes,
    /// The log's offsets, readable without the lock.
    published: Arc<PublishedOffsets>,
    /// Topic settings for validating a producer's batch before the lock is taken; `None` if this broker does
    /// not lead.
    leader_settings: RwLock<Option<Arc<EffectiveTopicConfig>>>,
    /// Incremented when waiting requests must check again for a reason other than offsets, such as a new
    /// role.
    generation: AtomicU64,
}

/// The mutable state of a partition.
struct State {
    log: PartitionLog,
    settings: Arc<EffectiveTopicConfig>,
    /// Leader and in-sync replicas, from the cluster's metadata.
    registration: PartitionRegistration,
    /// The resulting role of this broker.
    role: Role,
    /// Fetches that wait for the high watermark to rise.
    consumers: Waiters,
    /// Consumers' fetch sessions to notify once the high watermark has risen.
    sessions: Subscriptions,
    /// Fetches that wait for the log to grow.
    replicas: Waiters,
    /// Offsets that consumers fetch repeatedly.
    refetches: Refetches,
    /// Waiters to wake once the lock is free.
    woken: WokenRequests,
    /// The log end at the last idleness check.
    idle_since: Offset,
    /// Counters of incoming traffic.
    traffic: Traffic,
    /// The lowest offset at which the log was cut since the copy was last compared with it.
    cut_to: Option<Offset>,
    /// The offsets missing at the ends of a coordinator's log, although the log no longer records them.
    lost_ends: Vec<Range<Offset>>,
    /// True if the partition is on the list of partitions with file work.
    has_file_work: bool,
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

impl Partition {
    /// A partition for a log, with its registration.
    pub fn new(
        topic: Arc<str>,
        topic_id: Uuid,
        index: PartitionIndex,
        context: Arc<ReplicaContext>,
        log: PartitionLog,
        settings: Arc<EffectiveTopicConfig>,
        registration: &PartitionRegistration,
    ) -> Self {
        // Epoch before all others, so that any registration is newer.
        let before = PartitionRegistration {
            leader: BrokerId::NONE,
            leader_epoch: -1,
            partition_epoch: PartitionEpoch(-1),
            ..registration.clone()
        };
        let state = State {
            log,
            settings,
            registration: before,
            role: Role::Follower(Follower::new()),
            consumers: Waiters::default(),
            sessions: Subscriptions::default(),
            replicas: Waiters::default(),
            refetches: Refetches::default(),
            woken: WokenRequests::default(),
            idle_since: Offset::NONE,
            traffic: Traffic::default(),
            cut_to: None,
            lost_ends: Vec::new(),
            has_file_work: false,
        };
        let published = Arc::clone(state.log.published());
        let state = StateLock::new(state, Arc::clone(&context));
        let partition = Self {
            topic,
            topic_id,
            index,
            node_id: context.node_id,
            context,
            state,
            future: Mutex::new(None),
            moves_to: Mutex::new(None),
            claimed: AtomicBool::new(false),
            found: AtomicBool::new(false),
            known: AtomicBool::new(false),
            flushing: FlushLock::default(),
            outgoing: SentBytes::default(),
            published,
            leader_settings: RwLock::new(None),
            generation: AtomicU64::new(0),
        };
        partition.apply(registration);
        partition
    }

    /// The leader in the cluster's metadata, and the leader epoch.
    pub fn leader(&self) -> (BrokerId, i32) {
        let state = self.state.lock();
        (state.registration.leader, state.registration.leader_epoch)
    }

    /// The first of the consecutive epochs that this broker leads in, and the present one; `None` if it does
    /// not lead.
    pub fn leadership(&self) -> Option<(LeaderEpoch, LeaderEpoch)> {
        let state = self.state.lock();
        state.leader().map(|leader| (leader.led_since, state.leader_epoch()))
    }

    /// The log's offsets, readable without the lock.
    pub fn published_offsets(&self) -> Arc<PublishedOffsets> {
        Arc::clone(&self.published)
    }

    /// Size of the log in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.state.lock().log.size_bytes()
    }

    /// The directory of the log.
    pub fn dir(&self) -> std::path::PathBuf {
        self.state.lock().log.dir().to_owned()
    }

    /// Runs `work` on the log under the lock, for retention, flushing and checkpoints.
    pub fn with_log<T>(&self, work: impl FnOnce(&mut PartitionLog) -> T) -> T {
        work(&mut self.state.lock().log)
    }

    /// Releases open files and reserved blocks if nothing was appended since the last call.
    pub fn release_if_idle(&self) {
        let mut state = self.state.lock();
        let end = state.log.log_end_offset();
        if state.idle_since == end
            && let Err(error) = state.log.release_idle_resources()
        {
            tracing::warn!(partition = ?self, %error, "Failed to release an idle log");
        }
        state.idle_since = end;
    }

    /// Applies a registration. A new leader epoch starts at the log end.
    pub fn apply(&self, registration: &PartitionRegistration) {
        let mut state = self.state.lock();
        if state.is_retired() || registration.partition_epoch < state.registration.partition_epoch {
            return;
        }
        let new_epoch = registration.leader_epoch > state.registration.leader_epoch;
        let is_next = registration.leader_epoch == state.registration.leader_epoch.wrapping_add(1);
        let led_since = state.leader().map(|leader| leader.led_since);
        state.registration = registration.clone();
        let leads = registration.leader == self.node_id;
        let role_changes = new_epoch || led_since.is_some() != leads;
        if leads {
            if role_changes {
                state.lead_despite_loss(self);
                state.begin_to_lead(led_since.filter(|_| is_next));
            }
            state.know_followers(&self.context);
            state.raise_high_watermark(&self.context);
        } else if role_changes {
            state.role = Role::Follower(Follower::new());
            if new_epoch && registration.leader != BrokerId::NONE {
                state.begin_to_follow(self);
            }
        }
        if new_epoch && state.stale_epoch().is_some() {
            self.context.stale_epochs.report((self.topic_id, self.index));
        }
        if role_changes {
            self.publish_settings(&state);
            self.begin_generation(&mut state);
        }
    }

    /// True if the log is in one of these directories.
    pub fn lies_in(&self, directories: &[Uuid]) -> bool {
        let directory = self.with_log(|log| log.directory_id());
        directory.is_some_and(|directory| directories.contains(&directory))
    }

    /// Replaces the settings of the topic.
    pub fn configure(&self, settings: &Arc<EffectiveTopicConfig>, log: Arc<thalweg_log::LogConfig>) {
        let mut state = self.state.lock();
        state.settings = Arc::clone(settings);
        state.log.set_config(log);
        self.publish_settings(&state);
        // The new `min.insync.replicas` may be lower.
        state.raise_high_watermark(&self.context);
    }

    /// Ends the partition on this broker, `with_topic` if the topic was deleted. Waiting requests fail with
    /// UNKNOWN_TOPIC_OR_PARTITION then, and else with NOT_LEADER_OR_FOLLOWER.
    pub fn retire(&self, with_topic: bool) {
        let mut state = self.state.lock();
        state.role = Role::Retired { with_topic };
        self.publish_settings(&state);
        self.begin_generation(&mut state);
    }

    /// Makes all waiting requests check again, because the broker is stopping.
    pub fn wake(&self) {
        self.begin_generation(&mut self.state.lock());
    }

    /// Publishes the settings for validation without the lock; `None` if this broker does not lead.
    fn publish_settings(&self, state: &State) {
        *self.leader_settings.write() = state.leader().map(|_| Arc::clone(&state.settings));
    }

    /// Makes all waiting requests check again.
    fn begin_generation(&self, state: &mut State) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        state.wake_all();
    }
}

impl State {
    fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.registration.leader_epoch)
    }

    /// Number of replicas that must be in sync for acks=all, at most the number of replicas.
    fn effective_min_isr(&self) -> usize {
        let min = usize::try_from(self.settings.min_insync_replicas).unwrap_or(0);
        min.min(self.registration.replicas.len())
    }

    /// True if enough replicas are in sync.
    fn has_min_isr(&self) -> bool {
        self.registration.isr.len() >= self.effective_min_isr()
    }

    /// True if enough replicas are in sync, counting those about to join or leave.
    fn has_maximal_min_isr(&self) -> bool {
        let isr = match self.followers() {
            Some(followers) => followers.maximal_isr_len(),
            None => self.registration.isr.len(),
        };
        isr >= self.effective_min_isr()
    }

    fn high_watermark(&self) -> Offset {
        self.log.high_watermark()
    }

    /// Wakes all waiters after a change of role, or another change that concerns all of them.
    fn wake_all(&mut self) {
        let State { role, consumers, sessions, replicas, woken, .. } = self;
        consumers.take_all(woken);
        sessions.note(usize::MAX, &mut woken.sessions);
        replicas.take_all(woken);
        if let Role::Leader(leader) = role {
            leader.acks.take_all(woken);
            leader.deletions.take_all(woken);
        }
    }
}
