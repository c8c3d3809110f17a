//! Share groups (KIP-932) where their partitions are led: who has acquired which records. Kafka: `SharePartitionManager`.
//!
//! ```text
//! ShareSessions    which partitions a member reads           LedShare        one share partition: records in flight, locks
//! Shares           all of both; one task ends locks and      Persister       its state at the share coordinator
//!                  gives back what members have that are gone
//! ```
//! A share partition is loaded when a member first reads it, and is dropped when this broker does not lead the partition
//! any more, when the coordinator says that its state has begun again, or when no member of the group is left here.

mod counters;
mod led;
mod reading;
mod sessions;
mod settings;
mod settle_error;

pub use counters::ShareCounters;
pub use led::{Acknowledging, LedShare, Settled, ShareFigures};
pub use reading::{Batch, Reading, Request};
pub use sessions::{
    FINAL_EPOCH, INITIAL_EPOCH, SessionBegun, SessionEnd, SessionError, SessionKey, SessionPartition,
    SessionRequest, ShareSessions, TopicPartitionId,
};
pub use settings::{SettingsOfGroups, ShareSettings};
pub use settle_error::SettleError;

use crate::states::Persister;
use parking_lot::{Mutex, RwLock};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_net::Peer;
use thalweg_net::RepeatedFailures;
use thalweg_replica::partition::Partition;
use thalweg_share::ShareKey;
use thalweg_wire::ErrorCode;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The interval of the search for locks that have ended. Their records are available at most so much later.
const TICK: Duration = Duration::from_millis(50);

type OfGroup = HashMap<TopicPartitionId, Arc<LedShare>>;

/// See the head of this file.
pub struct Shares {
    /// What members read.
    pub sessions: ShareSessions,
    /// What happened since the start.
    pub counters: ShareCounters,
    /// Share partitions whose state could not be read.
    failures: RepeatedFailures<ShareKey>,
    persister: Arc<Persister>,
    disk: Disk,
    clock: Clock,
    began: Instant,
    settings: RwLock<Arc<SettingsOfGroups>>,
    groups: Mutex<HashMap<Arc<str>, OfGroup>>,
    /// Held while a session begins, and from the end of one until its member's records are released: a member that begins
    /// again in between would lose what it acquires.
    turnover: Mutex<()>,
    connections: AtomicU64,
    /// Connections that have ended, whose sessions have not.
    gone: Mutex<Vec<u64>>,
    /// There is something to do for the task.
    wanted: Notify,
    is_stopped: AtomicBool,
    stopped: Notify,
}

impl std::fmt::Debug for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shares").field("sessions", &self.sessions.counts()).finish_non_exhaustive()
    }
}

/// Kept with a connection that has share sessions: they end with it.
struct OfConnection {
    id: u64,
    shares: Arc<Shares>,
}

impl Drop for OfConnection {
    fn drop(&mut self) {
        self.shares.gone.lock().push(self.id);
        self.shares.wanted.notify_one();
    }
}

/// Ends what is being written and loaded together with the task.
struct Running<'a>(&'a Shares);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_stopped.store(true, Ordering::Release);
        self.0.stopped.notify_waiters();
    }
}

impl Shares {
    /// Room for `sessions_max` sessions. Nothing is led yet.
    pub fn new(
        sessions_max: usize,
        settings: SettingsOfGroups,
        persister: Arc<Persister>,
        disk: Disk,
        clock: Clock,
    ) -> Shares {
        Shares {
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

    /// The time that locks are measured by.
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

    /// Other settings from now on.
    pub fn configure(&self, settings: SettingsOfGroups) {
        *self.settings.write() = Arc::new(settings);
    }

    /// The number of a connection: its sessions end with it.
    pub fn connection(self: &Arc<Self>, peer: &Peer) -> u64 {
        let attached = peer.attached.get_or_attach(|| OfConnection {
            id: self.connections.fetch_add(1, Ordering::Relaxed),
            shares: Arc::clone(self),
        });
        attached.map_or(u64::MAX, |of| of.id)
    }

    /// The share partition of a group, where it is led here; it is loaded if it is not there yet.
    pub fn led(
        self: &Arc<Self>,
        group: &Arc<str>,
        partition: &Arc<Partition>,
    ) -> Result<Arc<LedShare>, ErrorCode> {
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
        let key = ShareKey { group: Arc::clone(group), topic: id.0, partition: id.1 };
        let led = Arc::new(LedShare::new(key, epoch));
        of_group.insert(id, Arc::clone(&led));
        drop(groups);
        if let Some(before) = &before {
            before.end(ErrorCode::NotLeaderOrFollower);
        }
        let before = before.filter(|before| before.is_writing());
        tokio::spawn(Arc::clone(&led).load(Arc::clone(self), Arc::clone(partition), before));
        // The task that ends locks may sleep.
        self.wanted.notify_one();
        Ok(led)
    }

    /// The share partition of a group, where it is here.
    pub fn find(&self, group: &str, id: TopicPartitionId) -> Option<Arc<LedShare>> {
        self.groups.lock().get(group)?.get(&id).cloned()
    }

    /// All share partitions here.
    pub fn all(&self) -> Vec<Arc<LedShare>> {
        self.groups.lock().values().flat_map(HashMap::values).cloned().collect()
    }

    fn of_group(&self, group: &str) -> Vec<Arc<LedShare>> {
        let groups = self.groups.lock();
        groups.get(group).into_iter().flat_map(HashMap::values).cloned().collect()
    }

    /// Drops the share partitions of a partition: it is led elsewhere, or deleted.
    pub fn drop_partition(&self, id: TopicPartitionId) {
        let gone: Vec<_> =
            self.groups.lock().values_mut().filter_map(|of_group| of_group.remove(&id)).collect();
        for led in gone {
            led.end(ErrorCode::NotLeaderOrFollower);
        }
    }

    /// Forgets a share partition that has ended, or whose group has no session here, once everything of it is written.
    fn forget_ended(&self, led: &Arc<LedShare>) {
        let key = led.key();
        if !led.is_ended() && self.sessions.has_group(&key.group) {
            return;
        }
        let mut groups = self.groups.lock();
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

    /// Begins, continues or ends the session of a request. If another session ended to make room, its member's records are
    /// released.
    pub fn begin_session(self: &Arc<Self>, request: SessionRequest) -> Result<SessionBegun, SessionError> {
        // Others neither begin nor end.
        let _turnover = (request.epoch == INITIAL_EPOCH).then(|| self.turnover.lock());
        let begun = self.sessions.begin(request)?;
        if let Some(key) = &begun.displaced {
            self.release(key);
        }
        Ok(begun)
    }

    /// Ends a session, and gives back what its member has, unless that has begun another.
    pub fn end_session(self: &Arc<Self>, key: &SessionKey, session: &SessionEnd) {
        let _turnover = self.turnover.lock();
        if self.sessions.end(key, session) {
            self.release(key);
        }
    }

    /// Ends the sessions of a connection, and gives back what their members have.
    fn end_sessions_of(self: &Arc<Self>, connection: u64) {
        let _turnover = self.turnover.lock();
        for key in self.sessions.end_of_connection(connection) {
            self.release(&key);
        }
    }

    /// Ends everything: share groups are not served any more. What members have is given back without a word, as when the
    /// leader of a partition stops. Kafka: `SharePartitionManager.onShareVersionToggle`.
    pub fn end_all(&self) {
        self.sessions.end_all();
        for led in self.all() {
            led.end(ErrorCode::NotLeaderOrFollower);
            self.forget_ended(&led);
        }
    }

    fn release(self: &Arc<Self>, key: &SessionKey) {
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

    /// Ends locks in time, and the sessions of connections that have ended.
    pub async fn run(self: Arc<Self>) {
        let _ends_with_it = Running(&self);
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
