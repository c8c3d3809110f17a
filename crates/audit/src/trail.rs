//! The near end of the trail: which events are wanted, how many in a second, and the queues to the outlets.

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

use crate::drops::{DropReason, KINDS, Shared};
use crate::event::{Client, Decided, Event, What};
use crate::inbox::Inbox;
use crate::ocsf::Origin;

/// Events that wait for an outlet.
const QUEUE_MAX: usize = 4096;
/// The part of the events of a second that is left to sources that have had less than that part of them.
const SPARE: f64 = 0.25;

/// A principal that did not have to authenticate.
const ANONYMOUS: &str = "User:ANONYMOUS";

/// An outlet: its name, and its queue.
struct Outlet {
    name: &'static str,
    queue: mpsc::Sender<Arc<Event>>,
    shared: Arc<Shared>,
}

/// How many events of a kind may be recorded now. A source is a principal, or an address where there is none yet.
struct Room {
    bucket: TokenBucket,
    /// The second that `taken` is of.
    second: i64,
    /// How many events of each source were recorded in it, by the source's hash.
    taken: BTreeMap<u64, f64>,
    /// The same of the second before: a flood that goes on takes nothing of what is left to others when a second begins.
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

    /// Takes room for an event. A source that has had its part leaves some for others: its flood does not hide them.
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

/// Takes events.
pub struct Trail {
    wanted: [bool; KINDS],
    limit: f64,
    rooms: [Mutex<Room>; KINDS],
    began: Instant,
    clock: Clock,
    sequence: AtomicU64,
    recorded: [AtomicU64; KINDS],
    /// Permissions on the trail's own topic are no events: each would cause the next.
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
pub struct Figures {
    /// The outlet's name.
    pub outlet: &'static str,
    /// Events written.
    pub written: u64,
    /// Events dropped, with kind and reason.
    pub dropped: Vec<(AuditKind, DropReason, u64)>,
}

impl Trail {
    /// A trail without outlets.
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

    /// Adds an outlet; events are read at the far end.
    pub fn add_outlet(&mut self, name: &'static str, origin: Origin) -> Inbox {
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(Shared::default());
        self.outlets.push(Outlet { name, queue, shared: Arc::clone(&shared) });
        Inbox::new(events, shared, origin, self.clock.clone())
    }

    /// Whether events of a kind are wanted.
    pub fn wants(&self, kind: AuditKind) -> bool {
        self.wanted[kind as usize]
    }

    /// Records an event of a kind, if it is wanted and there are not too many: it is made then. `source` is who causes it: a
    /// principal, or an address. Never waits.
    pub fn record(&self, kind: AuditKind, source: &str, make: impl FnOnce() -> (Client, What)) {
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

    /// Records a decision.
    pub fn record_decision(&self, decision: &Decision<'_>, client: impl FnOnce() -> Client) {
        let is_allowed = decision.answer.is_allowed;
        let kind = if is_allowed { AuditKind::Allowed } else { AuditKind::Denied };
        if !self.wants(kind) || is_allowed && self.is_of_brokers_or_itself(decision) {
            return;
        }
        let source = if decision.principal == ANONYMOUS { decision.host } else { decision.principal };
        self.record(kind, source, || (client(), What::Decision(Decided::of(decision))));
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

    /// Lets an outlet write what it has, and end.
    pub fn close(&self, name: &str) {
        for outlet in self.outlets.iter().filter(|outlet| outlet.name == name) {
            outlet.shared.is_closing.store(true, Ordering::Release);
            outlet.shared.noticed.notify_one();
        }
    }

    /// Events recorded, by kind.
    pub fn recorded(&self) -> impl Iterator<Item = (AuditKind, u64)> {
        AuditKind::ALL
            .into_iter()
            .zip(&self.recorded)
            .map(|(kind, count)| (kind, count.load(Ordering::Relaxed)))
    }

    /// The counters of the outlets.
    pub fn figures(&self) -> impl Iterator<Item = Figures> {
        self.outlets.iter().map(|outlet| {
            let of = |reason: DropReason| {
                let dropped = &outlet.shared.dropped[reason as usize];
                AuditKind::ALL.map(|kind| (kind, reason, dropped[kind as usize].load(Ordering::Relaxed)))
            };
            Figures {
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
