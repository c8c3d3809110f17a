//! The near end of the trail: which events are wanted, how many in a second, and the queues to the outlets.

use std::fmt;
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

/// An outlet: its name, and its queue.
struct Outlet {
    name: &'static str,
    queue: mpsc::Sender<Arc<Event>>,
    shared: Arc<Shared>,
}

/// Takes events.
pub struct Trail {
    wanted: [bool; KINDS],
    limit: f64,
    buckets: [Mutex<TokenBucket>; KINDS],
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
            buckets: AuditKind::ALL.map(|_| Mutex::new(TokenBucket::new(window))),
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

    /// Records an event of a kind, if it is wanted and there are not too many: it is made then. Never waits.
    pub fn record(&self, kind: AuditKind, make: impl FnOnce() -> (Client, What)) {
        if !self.wants(kind) {
            return;
        }
        if !self.has_room(kind) {
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
        self.record(kind, || (client(), What::Decision(Decided::of(decision))));
    }

    fn is_of_brokers_or_itself(&self, decision: &Decision<'_>) -> bool {
        let is_topic = decision.resource_type == ResourceType::Topic;
        decision.operation == Operation::ClusterAction
            || is_topic && self.topic.as_deref() == Some(decision.resource_name)
    }

    fn has_room(&self, kind: AuditKind) -> bool {
        let now_ms = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let mut bucket = self.buckets[kind as usize].lock();
        let has_room = bucket.tokens(self.limit, now_ms) >= 1.0;
        if has_room {
            bucket.take(1.0, self.limit, now_ms);
        }
        has_room
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
