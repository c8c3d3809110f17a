//! The clients that quotas know: the counters of each, and the bounds of their number.

use super::{KINDS, Kind};
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::{QuotaEntity, Quotas};
use thalweg_security::quota::{Limit, Limits, Rate, SharedBy, Window};

/// How many clients are remembered with their counters. More of them make all be looked up again.
const CLIENTS_MAX: usize = 10_000;
/// How many counters there may be of a kind. A client that names itself anew with each request makes one each time;
/// the least recently used make room.
const COUNTERS_MAX: usize = 10_000;

/// The limits of all clients, and the counters of those that have some.
#[derive(Debug)]
pub(super) struct Clients {
    window: Window,
    limits: [Limits; KINDS.len()],
    /// By user and client id. Emptied when limits change.
    known: HashMap<Box<str>, HashMap<Box<str>, Arc<Client>>>,
    known_len: usize,
    counters: [HashMap<Sharers, Arc<Counter>>; KINDS.len()],
}

/// A client's counter of each kind; `None` where it has no limit.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) counters: [Option<Arc<Counter>>; KINDS.len()],
}

/// Who shares a counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sharers {
    user: Option<Box<str>>,
    client_id: Option<Box<str>>,
}

/// What the clients that share a limit have used.
#[derive(Debug)]
pub(super) struct Counter(Mutex<Use>);

#[derive(Debug)]
struct Use {
    limit: f64,
    rate: Rate,
    used_ms: i64,
    throttled: u64,
    throttled_ms: u64,
}

/// What the clients that share a limit have used, for metrics.
#[derive(Debug)]
pub struct Usage {
    /// The user; empty if the limit is shared by users.
    pub user: String,
    /// The client id; empty if the limit is shared by client ids.
    pub client_id: String,
    /// Units per second.
    pub rate: f64,
    /// How often a pause was asked for.
    pub throttled: u64,
    /// The sum of those pauses, in milliseconds.
    pub throttled_ms: u64,
}

impl Counter {
    fn new(limit: f64, window: Window, now_ms: i64) -> Counter {
        let rate = Rate::new(window);
        Counter(Mutex::new(Use { limit, rate, used_ms: now_ms, throttled: 0, throttled_ms: 0 }))
    }

    pub(super) fn limit(&self) -> f64 {
        self.0.lock().limit
    }

    /// Counts use, and returns the pause in milliseconds.
    pub(super) fn charge(&self, value: f64, now_ms: i64) -> i64 {
        let mut used = self.0.lock();
        used.used_ms = now_ms;
        used.rate.record(value, now_ms);
        used.throttle(now_ms)
    }

    /// Counts bytes that are about to be sent, and returns the pause in milliseconds. With a pause, for these bytes or
    /// for another reason, they are not sent and do not count. The first bytes in a window are sent, however many.
    pub(super) fn charge_fetch(&self, bytes: f64, is_throttled: bool, now_ms: i64) -> i64 {
        let mut used = self.0.lock();
        used.used_ms = now_ms;
        let is_first = used.rate.per_second(now_ms) <= 0.0;
        used.rate.record(bytes, now_ms);
        let throttle_ms = if is_first { 0 } else { used.throttle(now_ms) };
        if throttle_ms > 0 || is_throttled {
            used.rate.record(-bytes, now_ms);
        }
        throttle_ms
    }
}

impl Use {
    fn throttle(&mut self, now_ms: i64) -> i64 {
        let throttle_ms = self.rate.throttle_ms(self.limit, now_ms).unwrap_or(0);
        if throttle_ms > 0 {
            self.throttled += 1;
            self.throttled_ms = self.throttled_ms.saturating_add(throttle_ms.unsigned_abs());
        }
        throttle_ms
    }
}

impl Clients {
    pub(super) fn new(window: Window) -> Clients {
        Clients {
            window,
            limits: Default::default(),
            known: HashMap::default(),
            known_len: 0,
            counters: Default::default(),
        }
    }

    /// Replaces all limits; returns the kinds that have some.
    pub(super) fn set(&mut self, quotas: &Quotas) -> Vec<Kind> {
        self.limits = KINDS.map(|kind| limits(quotas, kind));
        self.forget_all();
        for kind in KINDS {
            if self.limits[kind as usize].is_empty() {
                self.counters[kind as usize].clear();
            }
        }
        KINDS.into_iter().filter(|kind| !self.limits[*kind as usize].is_empty()).collect()
    }

    pub(super) fn find(&self, user: &str, client_id: &str) -> Option<Arc<Client>> {
        self.known.get(user)?.get(client_id).map(Arc::clone)
    }

    /// Finds the limits of a client that is not known yet.
    pub(super) fn add(&mut self, user: &str, client_id: &str, now_ms: i64) -> Arc<Client> {
        if self.known_len >= CLIENTS_MAX {
            self.forget_all();
        }
        let counters = KINDS.map(|kind| {
            let limit = self.limits[kind as usize].resolve(user, client_id)?;
            Some(self.counter(kind, user, client_id, limit, now_ms))
        });
        let client = Arc::new(Client { counters });
        let of_user = self.known.entry(user.into()).or_default();
        if of_user.insert(client_id.into(), Arc::clone(&client)).is_none() {
            self.known_len += 1;
        }
        client
    }

    fn counter(
        &mut self,
        kind: Kind,
        user: &str,
        client_id: &str,
        limit: Limit,
        now_ms: i64,
    ) -> Arc<Counter> {
        let by_user = limit.shared_by != SharedBy::ClientId;
        let by_client_id = limit.shared_by != SharedBy::User;
        let sharers =
            Sharers { user: by_user.then(|| user.into()), client_id: by_client_id.then(|| client_id.into()) };
        let counters = &mut self.counters[kind as usize];
        if let Some(counter) = counters.get(&sharers) {
            counter.0.lock().limit = limit.per_second;
            return Arc::clone(counter);
        }
        let counter = Arc::new(Counter::new(limit.per_second, self.window, now_ms));
        let is_full = counters.len() >= COUNTERS_MAX;
        if is_full {
            drop_oldest_half(counters);
        }
        counters.insert(sharers, Arc::clone(&counter));
        if is_full {
            // They hold counters that are gone, and would count apart from those that come after.
            self.forget_all();
        }
        counter
    }

    fn forget_all(&mut self) {
        self.known.clear();
        self.known_len = 0;
    }

    pub(super) fn usage(&self, kind: Kind, now_ms: i64) -> Vec<Usage> {
        let usage = |(sharers, counter): (&Sharers, &Arc<Counter>)| {
            let mut used = counter.0.lock();
            let name = |name: &Option<Box<str>>| name.as_deref().unwrap_or_default().to_owned();
            Usage {
                user: name(&sharers.user),
                client_id: name(&sharers.client_id),
                rate: used.rate.per_second(now_ms),
                throttled: used.throttled,
                throttled_ms: used.throttled_ms,
            }
        };
        self.counters[kind as usize].iter().map(usage).collect()
    }
}

/// The limits of one kind. Entities of addresses have none.
fn limits(quotas: &Quotas, kind: Kind) -> Limits {
    let mut limits = Limits::default();
    for (entity, values) in quotas.iter() {
        let part = |name: &str| entity.get(name).map(Option::as_deref);
        if let Some(limit) = values.get(kind.key())
            && is_of_clients(entity)
        {
            limits.set(part("user"), part("client-id"), *limit);
        }
    }
    limits
}

fn is_of_clients(entity: &QuotaEntity) -> bool {
    entity.keys().all(|key| key == "user" || key == "client-id")
}

/// Drops the half that was used least recently. Those that are idle for a window lose nothing by it.
fn drop_oldest_half(counters: &mut HashMap<Sharers, Arc<Counter>>) {
    let mut used_ms: Vec<_> = counters.values().map(|counter| counter.0.lock().used_ms).collect();
    let middle = used_ms.len() / 2;
    let (_, median, _) = used_ms.select_nth_unstable(middle);
    let (median, mut spare) = (*median, middle);
    counters.retain(|_, counter| {
        let used_ms = counter.0.lock().used_ms;
        let drops = used_ms < median || (used_ms == median && spare > 0);
        spare -= usize::from(drops && spare > 0);
        !drops
    });
}

#[cfg(test)]
mod tests;
