//! The sending end of the trail: wanted kinds, rate limits, and the queues to the outlets.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_config::{AuditKind, AuditSettings};
use thalweg_log::Clock;
use thalweg_security::acl::{Decision, Operation, ResourceType};
use thalweg_security::quota::{TokenBucket, Window};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::drops::{DropReason, KINDS, OutletState};
use crate::event::{AuthorizerDecision, Client, Event, EventContent};
use crate::inbox::Inbox;
use crate::ocsf::Origin;

/// Maximum events in the queue of an outlet.
const QUEUE_MAX: usize = 4096;
/// Share of the rate reserved for sources that have used less than this share.
const SPARE: f64 = 0.25;

/// The principal of unauthenticated clients.
const ANONYMOUS: &str = "User:ANONYMOUS";

/// The name and queue of an outlet.
struct Outlet {
    name: &'static str,
    queue: mpsc::Sender<Arc<Event>>,
    shared: Arc<OutletState>,
}

/// The rate limit of one kind. A source is a principal, or an address before authentication.
struct Room {
    bucket: TokenBucket,
    /// The second of `taken`.
    second: i64,
    /// Events of each source in the current second, by the hash of the source.
    taken: BTreeMap<u64, f64>,
    /// Events of each source in the previous second, so that a continuing flood cannot take the reserve when
    /// a second begins.
    taken_before: BTreeMap<u64, f64>,
}

impl Room {
    fn new(window: Window) -> Room {
        Room {
            bucket: TokenBucket::new(window),
            second: 0,
            taken: BTreeMap::new(),
            taken_before: BTreeMap::new(),
        }
    }

    /// Takes one event from the limit. A source above its share cannot take the reserve, so that a flood does
    /// not hide other sources.
    fn take(&mut self, source: u64, limit: f64, now_ms: i64) -> bool {
        let second = now_ms / 1000;
        if self.second != second {
            let before = std::mem::take(&mut self.taken);
            self.taken_before = if self.second + 1 == second { before } else { BTreeMap::new() };
            self.second = second;
        }
        let of = |taken: &BTreeMap<u64, f64>| taken.get(&source).copied().unwrap_or(0.0);
        let had = of(&self.taken);
        let spare = if had + of(&self.taken_before) < limit * SPARE { 0.0 } else { limit * SPARE };
        let has_room = self.bucket.tokens(limit, now_ms) >= 1.0 + spare;
        if has_room {
            self.bucket.take(1.0, limit, now_ms);
            self.taken.insert(source, had + 1.0);
        }
        has_room
    }
}

/// Queues the events of the wanted kinds for the outlets, within the limits of their rates.
pub struct Trail {
    wanted: [bool; KINDS],
    limit: f64,
    rooms: [Mutex<Room>; KINDS],
    began: Instant,
    clock: Clock,
    sequence: AtomicU64,
    recorded: [AtomicU64; KINDS],
    /// The trail's own topic. Permissions on this topic are not recorded, because each would cause another
    /// event.
    topic: Option<String>,
    outlets: Vec<Outlet>,
}

impl fmt::Debug for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trail").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// The counters of one outlet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutletFigures {
    /// The outlet name.
    pub outlet: &'static str,
    /// The number of events written.
    pub written: u64,
    /// The number of events dropped, by kind and reason.
    pub dropped: Vec<(AuditKind, DropReason, u64)>,
}

impl Trail {
    /// Creates a trail without outlets.
    pub fn new(settings: &AuditSettings, clock: Clock) -> Trail {
        let window = Window { samples: 1, sample_ms: 1000 };
        Trail {
            wanted: AuditKind::ALL.map(|kind| settings.kinds.contains(&kind)),
            limit: f64::from(settings.events_per_second),
            rooms: AuditKind::ALL.map(|_| Mutex::new(Room::new(window))),
            began: Instant::now(),
            clock,
            sequence: AtomicU64::new(0),
            recorded: Default::default(),
            topic: settings.topic.clone(),
            outlets: Vec::new(),
        }
    }

    /// Adds an outlet. Returns the receiving end of its queue.
    pub fn add_outlet(&mut self, name: &'static str, origin: Origin) -> Inbox {
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(OutletState::default());
        self.outlets.push(Outlet { name, queue, shared: Arc::clone(&shared) });
        Inbox::new(events, shared, origin, self.clock.clone())
    }

    /// True if events of this kind are recorded.
    pub fn wants(&self, kind: AuditKind) -> bool {
        self.wanted[kind as usize]
    }

    /// Records an event if the kind is wanted and within the rate limit; only then, `make` is called.
    /// `source` is the principal or address that caused the event. Never waits.
    pub fn record(&self, kind: AuditKind, source: &str, make: impl FnOnce() -> (Client, EventContent)) {
        if !self.wants(kind) {
            return;
        }
        if !self.has_room(kind, source) {
            for outlet in &self.outlets {
                outlet.shared.drop_some(kind as usize, DropReason::Rate, 1);
            }
            return;
        }
        let (mut client, mut what) = make();
        debug_assert_eq!(what.kind(), kind);
        client.clip();
        what.clip();
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        self.recorded[kind as usize].fetch_add(1, Ordering::Relaxed);
        let event = Arc::new(Event { time_ms: self.clock.now_ms(), sequence, client, what });
        for outlet in &self.outlets {
            if outlet.queue.try_send(Arc::clone(&event)).is_err() {
                outlet.shared.drop_some(kind as usize, DropReason::Queue, 1);
            }
        }
    }

    /// Records a decision of the authorizer.
    pub fn record_decision(&self, decision: &Decision<'_>, client: impl FnOnce() -> Client) {
        let is_allowed = decision.answer.is_allowed;
        let kind = if is_allowed { AuditKind::Allowed } else { AuditKind::Denied };
        if !self.wants(kind) || is_allowed && self.is_of_brokers_or_itself(decision) {
            return;
        }
        let source = if decision.principal == ANONYMOUS { decision.host } else { decision.principal };
        self.record(kind, source, || (client(), EventContent::Decision(AuthorizerDecision::of(decision))));
    }

    fn is_of_brokers_or_itself(&self, decision: &Decision<'_>) -> bool {
        let is_topic = decision.resource_type == ResourceType::Topic;
        decision.operation == Operation::ClusterAction
            || is_topic && self.topic.as_deref() == Some(decision.resource_name)
    }

    fn has_room(&self, kind: AuditKind, source: &str) -> bool {
        let now_ms = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let mut hasher = DefaultHasher::new();
        source.hash(&mut hasher);
        self.rooms[kind as usize].lock().take(hasher.finish(), self.limit, now_ms)
    }

    /// Closes an outlet after its queue is written.
    pub fn close(&self, name: &str) {
        for outlet in self.outlets.iter().filter(|outlet| outlet.name == name) {
            outlet.shared.is_closing.store(true, Ordering::Release);
            outlet.shared.noticed.notify_one();
        }
    }

    /// The number of recorded events, by kind.
    pub fn recorded(&self) -> impl Iterator<Item = (AuditKind, u64)> {
        AuditKind::ALL
            .into_iter()
            .zip(&self.recorded)
            .map(|(kind, count)| (kind, count.load(Ordering::Relaxed)))
    }

    /// The counters of the outlets.
    pub fn figures(&self) -> impl Iterator<Item = OutletFigures> {
        self.outlets.iter().map(|outlet| {
            let of = |reason: DropReason| {
                let dropped = &outlet.shared.dropped[reason as usize];
                AuditKind::ALL.map(|kind| (kind, reason, dropped[kind as usize].load(Ordering::Relaxed)))
            };
            OutletFigures {
                outlet: outlet.name,
                written: outlet.shared.written.load(Ordering::Relaxed),
                dropped: DropReason::ALL.into_iter().flat_map(of).collect(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_source_leaves_room_for_others() {
        let mut room = Room::new(Window { samples: 1, sample_ms: 1000 });
        let (eve, ann, bob, limit) = (1, 2, 3, 100.0);
        let mut take =
            |source, events: u32, now_ms| (0..events).filter(|_| room.take(source, limit, now_ms)).count();
        assert_eq!(take(eve, 1000, 5_000), 75);
        assert_eq!((take(ann, 10, 5_000), take(bob, 1000, 5_000)), (10, 15), "what eve has left");
        let of_eve: usize = (1..=3_000).map(|ms| take(eve, 10, 5_000 + ms)).sum();
        assert!((200..=300).contains(&of_eve), "{of_eve} in three seconds: nobody else wants any");
        assert_eq!(take(ann, 20, 8_000), 20);
        assert!(room.taken.len() <= 3);
    }
}
