//! The clients of quotas: their counters, and limits on their number.

use super::{QUOTA_TYPES, QuotaType};
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::Quotas;
use thalweg_places::fairly;
use thalweg_security::quota::{Average, Backlog, Limit, Limits, METRICS_WINDOW, Rate, Sharers, Window};

/// Maximum number of cached clients. Beyond that, the clients of the user with the most clients are dropped
/// and looked up again.
const CLIENTS_MAX: usize = 10_000;
/// Maximum number of counters of a kind. A client with a new client id in each request creates a counter each
/// time; the least recently used counters of the user with the most make room.
const COUNTERS_MAX: usize = 10_000;

/// A user with more than one part in `PARTS` of the counters makes room alone.
const PARTS: usize = 10;

/// The limits of all clients, and the counters of limited clients.
#[derive(Debug)]
pub(super) struct Clients {
    window: Window,
    limits: [Limits; QUOTA_TYPES.len()],
    /// Clients by user and client id. Cleared when limits change.
    known: HashMap<Box<str>, HashMap<Box<str>, Arc<ClientCounters>>>,
    known_len: usize,
    counters: [HashMap<Sharers, Arc<Counter>>; QUOTA_TYPES.len()],
}

/// A client's counter of each kind; `None` without a limit.
#[derive(Debug)]
pub(super) struct ClientCounters {
    pub(super) counters: [Option<Arc<Counter>>; QUOTA_TYPES.len()],
}

/// The use of the clients that share a limit.
#[derive(Debug)]
pub(super) struct Counter(Mutex<Use>);

#[derive(Debug)]
struct Use {
    limit: f64,
    rate: Rate,
    used_ms: i64,
    /// The backlog for bytes. Time has no backlog: its pauses are short, and the excess is dropped.
    backlog: Option<Backlog>,
    pauses: Average,
}

/// The use of the clients that share a limit, for metrics.
#[derive(Debug)]
pub struct Usage {
    /// The user, the client id, or both that share the limit.
    pub sharers: Sharers,
    /// Units per second.
    pub rate: f64,
    /// Average of the throttle times in the last 30 to 60 seconds, in milliseconds; NaN without any.
    pub pause_ms: f64,
}

impl Counter {
    fn new(kind: QuotaType, limit: f64, window: Window, now_ms: i64) -> Counter {
        let backlog = (kind != QuotaType::Request).then(Backlog::default);
        let (rate, pauses) = (Rate::new(window), Average::new(METRICS_WINDOW));
        Counter(Mutex::new(Use { limit, rate, used_ms: now_ms, backlog, pauses }))
    }

    fn set_limit(&self, limit: f64) {
        let mut used = self.0.lock();
        if used.limit.to_bits() != limit.to_bits() {
            used.limit = limit;
            used.backlog.iter_mut().for_each(Backlog::clear);
        }
    }

    pub(super) fn limit(&self) -> f64 {
        self.0.lock().limit
    }

    /// Counts use, and returns the pause in milliseconds.
    pub(super) fn charge(&self, value: f64, now_ms: i64) -> i64 {
        let mut used = self.0.lock();
        used.used_ms = now_ms;
        used.rate.record(value, now_ms);
        used.throttle(value, now_ms)
    }

    /// Counts bytes that are about to be sent, and returns the pause in milliseconds. With a pause, for these
    /// bytes or for another reason, the bytes are not sent and do not count. The first bytes in a window are
    /// always sent.
    pub(super) fn charge_fetch(&self, bytes: f64, is_throttled: bool, now_ms: i64) -> i64 {
        let mut used = self.0.lock();
        used.used_ms = now_ms;
        let is_first = used.rate.per_second(now_ms) <= 0.0;
        used.rate.record(bytes, now_ms);
        let throttle_ms = if is_first {
            used.backlog.iter_mut().for_each(Backlog::clear);
            0
        } else {
            used.throttle(bytes, now_ms)
        };
        if throttle_ms > 0 || is_throttled {
            used.take_back(bytes, now_ms);
        }
        throttle_ms
    }
}

impl Use {
    fn throttle(&mut self, value: f64, now_ms: i64) -> i64 {
        let throttle_ms = match &mut self.backlog {
            Some(backlog) => backlog.charge(&mut self.rate, value, self.limit, now_ms),
            None => self.rate.throttle_ms(self.limit, now_ms).unwrap_or(0),
        };
        if throttle_ms > 0 {
            self.pauses.record(milliseconds(throttle_ms), now_ms);
        }
        throttle_ms
    }

    fn take_back(&mut self, value: f64, now_ms: i64) {
        self.rate.record(-value, now_ms);
        if let Some(backlog) = &mut self.backlog {
            backlog.take_back(value, self.limit);
        }
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

    /// Replaces all limits. Returns the kinds with limits.
    pub(super) fn set(&mut self, quotas: &Quotas) -> Vec<QuotaType> {
        self.limits = QUOTA_TYPES.map(|kind| quotas.limits(kind.key()));
        self.forget_all();
        for kind in QUOTA_TYPES {
            if self.limits[kind as usize].is_empty() {
                self.counters[kind as usize].clear();
            }
        }
        QUOTA_TYPES.into_iter().filter(|kind| !self.limits[*kind as usize].is_empty()).collect()
    }

    pub(super) fn find(&self, user: &str, client_id: &str) -> Option<Arc<ClientCounters>> {
        self.known.get(user)?.get(client_id).map(Arc::clone)
    }

    /// Finds the limits of a client that is not known yet.
    pub(super) fn add(&mut self, user: &str, client_id: &str, now_ms: i64) -> Arc<ClientCounters> {
        if self.known_len >= CLIENTS_MAX {
            self.forget_largest();
        }
        let counters = QUOTA_TYPES.map(|kind| {
            let limit = self.limits[kind as usize].resolve(user, client_id)?;
            Some(self.counter(kind, user, client_id, limit, now_ms))
        });
        let client = Arc::new(ClientCounters { counters });
        let of_user = self.known.entry(user.into()).or_default();
        if of_user.insert(client_id.into(), Arc::clone(&client)).is_none() {
            self.known_len += 1;
        }
        client
    }

    fn counter(
        &mut self,
        kind: QuotaType,
        user: &str,
        client_id: &str,
        limit: Limit,
        now_ms: i64,
    ) -> Arc<Counter> {
        let sharers = limit.sharers(user, client_id);
        let counters = &mut self.counters[kind as usize];
        if let Some(counter) = counters.get(&sharers) {
            counter.set_limit(limit.per_second);
            return Arc::clone(counter);
        }
        let counter = Arc::new(Counter::new(kind, limit.per_second, self.window, now_ms));
        let is_full = counters.len() >= COUNTERS_MAX;
        if is_full {
            drop_oldest_half(counters);
        }
        counters.insert(sharers, Arc::clone(&counter));
        if is_full {
            // Cached clients refer to dropped counters, and would count apart from later clients.
            self.forget_all();
        }
        counter
    }

    /// Drops the clients of the user with the most clients, or all clients if that user has few: repeated
    /// searches for that user would cost more than looking up clients.
    fn forget_largest(&mut self) {
        let largest = self.known.iter().max_by_key(|(_, clients)| clients.len());
        let largest = largest.filter(|(_, clients)| clients.len() >= self.known_len / PARTS);
        let Some(user) = largest.map(|(user, _)| user.clone()) else { return self.forget_all() };
        if let Some(clients) = self.known.remove(&user) {
            self.known_len -= clients.len();
        }
    }

    fn forget_all(&mut self) {
        self.known.clear();
        self.known_len = 0;
    }

    /// The use of at most `max` clients: the most recently active of each user.
    pub(super) fn usage(&self, kind: QuotaType, max: usize, now_ms: i64) -> Vec<Usage> {
        let counters = self.counters[kind as usize].iter();
        let mut counters: Vec<_> =
            counters.map(|(sharers, counter)| (counter.0.lock().used_ms, sharers, counter)).collect();
        counters.sort_unstable_by_key(|(used_ms, ..)| std::cmp::Reverse(*used_ms));
        let counters = fairly(counters, max, |(_, sharers, _)| sharers.user.clone());
        let usage = |(_, sharers, counter): (i64, &Sharers, &Arc<Counter>)| {
            let mut used = counter.0.lock();
            let (rate, pause_ms) = (used.rate.per_second(now_ms), used.pauses.get(now_ms));
            Usage { sharers: sharers.clone(), rate, pause_ms }
        };
        counters.into_iter().map(usage).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "pauses are far below 2^53 milliseconds")]
fn milliseconds(ms: i64) -> f64 {
    ms as f64
}

/// Drops the least recently used half: of the counters of the user with the most, if that user has a large
/// part, otherwise of all counters. A counter that was idle for a window loses nothing.
fn drop_oldest_half(counters: &mut HashMap<Sharers, Arc<Counter>>) {
    let mut of_users: HashMap<Option<Box<str>>, usize> = HashMap::default();
    for sharers in counters.keys() {
        *of_users.entry(sharers.user.clone()).or_default() += 1;
    }
    let largest = of_users.into_iter().max_by_key(|(_, count)| *count);
    let flooding = largest.filter(|(_, count)| count * PARTS > counters.len()).map(|(user, _)| user);
    let is_candidate = |sharers: &Sharers| flooding.as_ref().is_none_or(|user| sharers.user == *user);
    let candidates = counters.iter().filter(|(sharers, _)| is_candidate(sharers));
    let mut used_ms: Vec<_> = candidates.map(|(_, counter)| counter.0.lock().used_ms).collect();
    let middle = used_ms.len() / 2;
    let (_, median, _) = used_ms.select_nth_unstable(middle);
    let (median, mut spare) = (*median, middle);
    counters.retain(|sharers, counter| {
        if !is_candidate(sharers) {
            return true;
        }
        let used_ms = counter.0.lock().used_ms;
        let drops = used_ms < median || (used_ms == median && spare > 0);
        spare -= usize::from(drops && spare > 0);
        !drops
    });
}

#[cfg(test)]
mod tests;
