//! Share groups (KIP-932) on the leaders of their partitions: the records that members have acquired. Kafka:
//! `SharePartitionManager`.
//!
//! ```text
//! ShareSessions        partitions that a member reads
//! LedSharePartition    one share partition: records, locks
//! LedSharePartitions   all of both; one task expires locks and releases records
//! Persister            state at the share coordinator
//! ```
//! A share partition is loaded when a member first reads it. It is unloaded when this broker no longer leads
//! the partition, when its state is reset at the coordinator, or when the group has no session left here.

mod acknowledgement_failure;
mod counters;
mod led;
mod reading;
mod sessions;
mod settings;

pub use acknowledgement_failure::AcknowledgementFailure;
pub use counters::ShareCounters;
pub use led::{AcknowledgementOutcome, LedSharePartition, PendingAcknowledgement, ShareFigures};
pub use reading::{AcquiredBatches, ReadOutcome, ReadRequest};
pub use sessions::{
    FINAL_EPOCH, INITIAL_EPOCH, ShareSessionContext, ShareSessionEnd, ShareSessionError, ShareSessionKey,
    ShareSessionPartition, ShareSessionRequest, ShareSessions,
};
pub use settings::{SettingsOfGroups, ShareSettings};

use crate::states::Persister;
use parking_lot::{Mutex, RwLock};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_metadata::TopicIdPartition;
use thalweg_net::Peer;
use thalweg_net::RepeatedFailures;
use thalweg_replica::partition::Partition;
use thalweg_share::SharePartitionKey;
use thalweg_wire::ErrorCode;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Interval of checks for expired locks, and so the maximum delay until their records are available again.
const TICK: Duration = Duration::from_millis(50);

type GroupSharePartitions = HashMap<TopicIdPartition, Arc<LedSharePartition>>;

/// All share partitions led here, and the sessions of their members. One task expires locks.
pub struct LedSharePartitions {
    /// Share sessions of members.
    pub sessions: ShareSessions,
    /// Counts since the start.
    pub counters: ShareCounters,
    /// Share partitions whose state could not be read, for logging.
    failures: RepeatedFailures<SharePartitionKey>,
    persister: Arc<Persister>,
    disk: Disk,
    clock: Clock,
    began: Instant,
    settings: RwLock<Arc<SettingsOfGroups>>,
    groups: Mutex<HashMap<Arc<str>, GroupSharePartitions>>,
    /// Held while a session begins, and from the end of a session until its member's records are released.
    /// Otherwise a member with a new session in between would lose newly acquired records.
    turnover: Mutex<()>,
    connections: AtomicU64,
    /// Closed connections whose sessions have yet to end.
    gone: Mutex<Vec<u64>>,
    /// Wakes the task.
    wanted: Notify,
    is_stopped: AtomicBool,
    stopped: Notify,
}

impl std::fmt::Debug for LedSharePartitions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedSharePartitions")
            .field("sessions", &self.sessions.counts())
            .finish_non_exhaustive()
    }
}

/// Attached to a connection with share sessions, which end when the connection closes.
struct ConnectionGuard {
    id: u64,
    share_partitions: Arc<LedSharePartitions>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.share_partitions.gone.lock().push(self.id);
        self.share_partitions.wanted.notify_one();
    }
}

/// Stops loads and writes when the task is dropped.
struct TaskGuard<'a>(&'a LedSharePartitions);

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        self.0.is_stopped.store(true, Ordering::Release);
        self.0.stopped.notify_waiters();
    }
}

impl LedSharePartitions {
    /// Creates an instance without share partitions, for up to `sessions_max` sessions.
    pub fn new(
        sessions_max: usize,
        settings: SettingsOfGroups,
        persister: Arc<Persister>,
        disk: Disk,
        clock: Clock,
    ) -> LedSharePartitions {
        LedSharePartitions {
            sessions: ShareSessions::new(sessions_max),
            counters: ShareCounters::default(),
            failures: RepeatedFailures::default(),
            persister,
            disk,
            clock,
            began: Instant::now(),
            settings: RwLock::new(Arc::new(settings)),
            groups: Mutex::default(),
            turnover: Mutex::default(),
            connections: AtomicU64::new(0),
            gone: Mutex::default(),
            wanted: Notify::new(),
            is_stopped: AtomicBool::new(false),
            stopped: Notify::new(),
        }
    }

    /// The clock of acquisition locks: milliseconds since the start.
    pub fn now_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn clock_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// The settings of a group.
    pub fn settings(&self, group: &str) -> ShareSettings {
        self.settings.read().of(group)
    }

    /// Replaces the settings.
    pub fn configure(&self, settings: SettingsOfGroups) {
        *self.settings.write() = Arc::new(settings);
    }

    /// The id of a connection, which owns share sessions.
    pub fn connection(self: &Arc<Self>, peer: &Peer) -> u64 {
        let attached = peer.attached.get_or_attach(|| ConnectionGuard {
            id: self.connections.fetch_add(1, Ordering::Relaxed),
            share_partitions: Arc::clone(self),
        });
        attached.map_or(u64::MAX, |of| of.id)
    }

    /// The share partition of a group on this leader. A missing share partition is created, and one that has
    /// ended or is of an earlier leadership is replaced; the new one is loaded in the background.
    pub fn find_or_load(
        self: &Arc<Self>,
        group: &Arc<str>,
        partition: &Arc<Partition>,
    ) -> Result<Arc<LedSharePartition>, ErrorCode> {
        let (led_since, epoch) = partition.leadership().ok_or(ErrorCode::NotLeaderOrFollower)?;
        let id = (partition.topic_id, partition.index);
        let mut groups = self.groups.lock();
        let of_group = match groups.get_mut(group) {
            Some(of_group) => of_group,
            None => groups.entry(Arc::clone(group)).or_default(),
        };
        let before = match of_group.entry(id) {
            Entry::Occupied(known) => {
                if known.get().leader_epoch() >= led_since && !known.get().is_ended() {
                    return Ok(Arc::clone(known.get()));
                }
                Some(known.remove())
            }
            Entry::Vacant(_) => None,
        };
        let key = SharePartitionKey { group: Arc::clone(group), topic: id.0, partition: id.1 };
        let led = Arc::new(LedSharePartition::new(key, epoch));
        of_group.insert(id, Arc::clone(&led));
        drop(groups);
        if let Some(before) = &before {
            before.end(ErrorCode::NotLeaderOrFollower);
        }
        let before = before.filter(|before| before.is_writing());
        tokio::spawn(Arc::clone(&led).load(Arc::clone(self), Arc::clone(partition), before));
        // The task sleeps while there are no share partitions.
        self.wanted.notify_one();
        Ok(led)
    }

    /// The share partition of a group, if it is loaded or loading here.
    pub fn find(&self, group: &str, id: TopicIdPartition) -> Option<Arc<LedSharePartition>> {
        self.groups.lock().get(group)?.get(&id).cloned()
    }

    /// All share partitions here.
    pub fn all(&self) -> Vec<Arc<LedSharePartition>> {
        self.groups.lock().values().flat_map(HashMap::values).cloned().collect()
    }

    fn of_group(&self, group: &str) -> Vec<Arc<LedSharePartition>> {
        let groups = self.groups.lock();
        groups.get(group).into_iter().flat_map(HashMap::values).cloned().collect()
    }

    /// Drops the share partitions of a partition that is deleted or led elsewhere.
    pub fn drop_partition(&self, id: TopicIdPartition) {
        let gone: Vec<_> =
            self.groups.lock().values_mut().filter_map(|of_group| of_group.remove(&id)).collect();
        for led in gone {
            led.end(ErrorCode::NotLeaderOrFollower);
        }
    }

    /// Removes a share partition that has ended, or whose group has no session here, once all its changes are
    /// written.
    fn forget_ended(&self, led: &Arc<LedSharePartition>) {
        let key = led.key();
        // Read under the lock: a session that begins afterwards does not find this share partition any more.
        let mut groups = self.groups.lock();
        if !led.is_ended() && self.sessions.has_group(&key.group) {
            return;
        }
        let Some(of_group) = groups.get_mut(&key.group) else { return };
        let id = (key.topic, key.partition);
        let is_known = of_group.get(&id).is_some_and(|known| Arc::ptr_eq(known, led));
        if is_known && led.end_if_idle() {
            of_group.remove(&id);
            if of_group.is_empty() {
                groups.remove(&key.group);
            }
        }
    }

    /// Begins, continues or ends the session of a request. If the member of another session lost it for lack
    /// of room, that member's records are released.
    pub fn begin_session(
        self: &Arc<Self>,
        request: ShareSessionRequest,
    ) -> Result<ShareSessionContext, ShareSessionError> {
        // No other session begins or ends meanwhile.
        let _turnover = (request.epoch == INITIAL_EPOCH).then(|| self.turnover.lock());
        let begun = self.sessions.begin(request)?;
        if let Some(key) = &begun.displaced {
            self.release(key);
        }
        Ok(begun)
    }

    /// Ends a session and releases its member's records, unless the member has begun another session.
    pub fn end_session(self: &Arc<Self>, key: &ShareSessionKey, session: &ShareSessionEnd) {
        let _turnover = self.turnover.lock();
        if self.sessions.end(key, session) {
            self.release(key);
        }
    }

    /// Ends the sessions of a connection and releases their members' records.
    fn end_sessions_of(self: &Arc<Self>, connection: u64) {
        let _turnover = self.turnover.lock();
        for key in self.sessions.end_of_connection(connection) {
            self.release(&key);
        }
    }

    /// Ends all sessions and share partitions: share groups are disabled. Acquired records are released
    /// without notifying members, as on a leader change. Kafka: `SharePartitionManager.onShareVersionToggle`.
    pub fn end_all(&self) {
        self.sessions.end_all();
        for led in self.all() {
            led.end(ErrorCode::NotLeaderOrFollower);
            self.forget_ended(&led);
        }
    }

    fn release(self: &Arc<Self>, key: &ShareSessionKey) {
        let of_group = self.of_group(&key.group);
        for led in &of_group {
            led.release(self, &key.member);
        }
        if !self.sessions.has_group(&key.group) {
            of_group.iter().for_each(|led| self.forget_ended(led));
        }
    }

    /// Returns when the broker stops.
    async fn stopped(&self) {
        let stopped = self.stopped.notified();
        if !self.is_stopped.load(Ordering::Acquire) {
            stopped.await;
        }
    }

    /// Expires locks in time, and ends the sessions of closed connections.
    pub async fn run(self: Arc<Self>) {
        let _ends_with_it = TaskGuard(&self);
        loop {
            let gone = std::mem::take(&mut *self.gone.lock());
            gone.into_iter().for_each(|connection| self.end_sessions_of(connection));
            let now_ms = self.now_ms();
            let (mut is_idle, mut due) = (true, Vec::new());
            for led in self.groups.lock().values().flat_map(HashMap::values) {
                is_idle = false;
                if led.next_deadline_ms() <= now_ms {
                    due.push(Arc::clone(led));
                }
            }
            due.iter().for_each(|led| led.expire(&self));
            let wanted = self.wanted.notified();
            if is_idle {
                wanted.await;
            } else {
                let _ = tokio::time::timeout(TICK, wanted).await;
            }
        }
    }
}
