//! Admission of connections by `max.connections`, `max.connection.creation.rate`, `max.connections.per.ip`,
//! the quota of addresses, and the descriptors reserved for logs.
//!
//! [`ConnectionQuotas`] makes the decisions. This module owns the clock, the wait for a slot, the tasks of
//! connections that are closed in favour of new ones, and the list of open connections.

use super::peer::Peer;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_log::disk::{Descriptors, OpenConnection, TooFewDescriptors};
use thalweg_security::quota::{
    ConnectionLimits, ConnectionQuotas, IpRates, ListenerFigures, Refusal, Window,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Maximum number of connections whose closing is delayed because their address opened them too fast. Further
/// ones are closed at once.
const DELAYED_MAX: usize = 1_000;

/// The open connections and their limits. Shared by all listeners.
#[derive(Debug)]
pub struct Connections {
    state: Mutex<State>,
    began: Instant,
    /// Notified when a waiting connection may fit.
    freed: Notify,
    descriptors: Descriptors,
}

#[derive(Debug)]
struct State {
    quotas: ConnectionQuotas,
    slots: HashMap<u64, Slot>,
    next_id: u64,
    /// Connections that were asked to end and are still open.
    ending: usize,
    delayed: usize,
    figures: ConnectionFigures,
}

/// An open connection.
#[derive(Debug)]
struct Slot {
    is_protected: bool,
    opened_us: u64,
    used_us: Arc<AtomicU64>,
    task: Option<AbortHandle>,
    /// The peer, after the TLS handshake. Weak, because values attached to the peer end with the connection.
    peer: Weak<Peer>,
}

/// An open connection, for operators.
#[derive(Clone, Debug)]
pub struct OpenPeer {
    pub peer: Arc<Peer>,
    /// Time since the connection was accepted.
    pub open_for: Duration,
    /// Time since the connection was last read, served or sent to.
    pub idle_for: Duration,
}

/// Counts of connections since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionFigures {
    pub admitted: u64,
    /// Connections refused because their address had too many, or too few descriptors were left.
    pub refused: u64,
    /// Connections refused because their address opened connections too fast.
    pub throttled: u64,
    /// Connections closed in favour of the listener between brokers, or because a limit was lowered.
    pub evicted: u64,
    /// Ends by reason.
    pub ends: Ends,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer closed the connection, or the node stops.
    Regular,
    Idle,
    Slow,
    Unread,
    Unproven,
    Refused,
    Io,
}

/// Number of ended connections, by the reasons that matter to operators.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    /// Connections without progress for `connections.max.idle.ms`.
    pub idle: u64,
    /// Connections with a request that arrived too slowly while other connections waited for memory.
    pub slow: u64,
    /// Connections whose peer did not read answers while other connections needed the memory.
    pub unread: u64,
    /// Connections whose peer did not authenticate in time.
    pub unproven: u64,
    /// Connections with an unacceptable request: not Kafka's protocol, too large, or not allowed before
    /// authentication.
    pub refused: u64,
    /// Connections with a network error.
    pub io: u64,
}

/// Why a connection was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum RefusedConnection {
    #[error("max.connections.per.ip={max} are open from {ip}")]
    PerIp { ip: IpAddr, max: usize },
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    #[error("{ip} opens connections faster than its connection_creation_rate")]
    TooFast { ip: IpAddr, delay: Option<Delay> },
}

/// A slot for one connection, released when dropped.
#[derive(Debug)]
pub(super) struct Admission {
    connections: Arc<Connections>,
    listener: String,
    ip: IpAddr,
    id: u64,
    used_us: Arc<AtomicU64>,
    _descriptor: OpenConnection,
}

/// The delay before a refused connection is closed.
#[derive(Debug)]
pub(super) struct Delay {
    pub length: Duration,
    connections: Arc<Connections>,
    _descriptor: OpenConnection,
}

impl Connections {
    /// No open connections. Connections take descriptors from `descriptors`. `window` is the window of client
    /// quotas, and `between_brokers` the listener that is exempt from the broker's limits.
    pub fn new(
        window: Window,
        limits: ConnectionLimits,
        between_brokers: Option<String>,
        descriptors: Descriptors,
    ) -> Arc<Self> {
        let state = State {
            quotas: ConnectionQuotas::new(window, limits, between_brokers),
            slots: HashMap::default(),
            next_id: 0,
            ending: 0,
            delayed: 0,
            figures: ConnectionFigures::default(),
        };
        Arc::new(Self { state: Mutex::new(state), began: Instant::now(), freed: Notify::new(), descriptors })
    }

    /// Replaces the limits. Connections above a lower limit of the broker are closed.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        let mut state = self.state.lock();
        state.quotas.set_limits(limits);
        state.end_excess();
        drop(state);
        self.freed.notify_waiters();
    }

    /// Replaces the rates of addresses.
    pub fn set_ip_rates(&self, ip_rates: IpRates) {
        self.state.lock().quotas.set_ip_rates(ip_rates);
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.state.lock().quotas.open()
    }

    /// The open connections after their TLS handshake, oldest first, at most `max`, and the number of further
    /// ones.
    pub fn peers(&self, max: usize) -> (Vec<OpenPeer>, usize) {
        let now_us = self.us(Instant::now());
        let since = |us: u64| Duration::from_micros(now_us.saturating_sub(us));
        let open = |(id, slot): (&u64, &Slot)| {
            let (open_for, idle_for) = (since(slot.opened_us), since(slot.used_us.load(Ordering::Relaxed)));
            Some((*id, OpenPeer { peer: slot.peer.upgrade()?, open_for, idle_for }))
        };
        // A peer whose connection ends meanwhile is dropped without the lock.
        let mut peers: Vec<(u64, OpenPeer)> = self.state.lock().slots.iter().filter_map(open).collect();
        peers.sort_unstable_by_key(|(id, _)| *id);
        let more = peers.len().saturating_sub(max);
        peers.truncate(max);
        (peers.into_iter().map(|(_, peer)| peer).collect(), more)
    }

    /// Counts since the start.
    pub fn figures(&self) -> ConnectionFigures {
        self.state.lock().figures
    }

    /// New connections per second over all listeners, except those between brokers.
    pub fn per_second(&self) -> f64 {
        self.state.lock().quotas.per_second(self.now_ms())
    }

    /// Figures per listener.
    pub fn listener_figures(&self) -> Vec<ListenerFigures> {
        self.state.lock().quotas.figures(self.now_ms())
    }

    /// The highest rates of addresses with a limit, at most `max`.
    pub fn ip_figures(&self, max: usize) -> Vec<(IpAddr, f64)> {
        self.state.lock().quotas.ip_figures(max, self.now_ms())
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// Counts a new connection. Returns how long its listener must not accept another one.
    pub(super) fn arrive(&self, listener: &str) -> Duration {
        let pause_ms = self.state.lock().quotas.arrive(listener, self.now_ms());
        Duration::from_millis(u64::try_from(pause_ms).unwrap_or(0))
    }

    /// Admits a new connection as soon as there is a slot. `full` is called if the connection has to wait.
    pub(super) async fn admit(
        self: &Arc<Self>,
        listener: &str,
        ip: IpAddr,
        full: impl FnOnce(),
    ) -> Result<Admission, RefusedConnection> {
        let mut full = Some(full);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(admitted) = self.try_admit(listener, ip) {
                return admitted;
            }
            if let Some(full) = full.take() {
                full();
            }
            freed.await;
        }
    }

    /// Admits or refuses a connection; `None` without a free slot.
    fn try_admit(
        self: &Arc<Self>,
        listener: &str,
        ip: IpAddr,
    ) -> Option<Result<Admission, RefusedConnection>> {
        let ip = ip.to_canonical();
        let mut state = self.state.lock();
        if !state.quotas.has_slot(listener) {
            return None;
        }
        Some(match state.quotas.enter(listener, ip, self.now_ms()) {
            Ok(()) => match self.descriptors.open_connection() {
                Ok(descriptor) => Ok(self.admitted(&mut state, listener, ip, descriptor)),
                Err(error) => {
                    state.quotas.leave(listener, ip);
                    state.figures.refused += 1;
                    Err(error.into())
                }
            },
            Err(Refusal::TooMany { max }) => {
                state.figures.refused += 1;
                Err(RefusedConnection::PerIp { ip, max })
            }
            Err(Refusal::TooFast { pause_ms }) => {
                state.figures.throttled += 1;
                Err(RefusedConnection::TooFast { ip, delay: self.delay(&mut state, pause_ms) })
            }
        })
    }

    fn admitted(
        self: &Arc<Self>,
        state: &mut State,
        listener: &str,
        ip: IpAddr,
        descriptor: OpenConnection,
    ) -> Admission {
        let opened_us = self.us(Instant::now());
        let used_us = Arc::new(AtomicU64::new(opened_us));
        let id = state.next_id;
        state.next_id += 1;
        state.figures.admitted += 1;
        let is_protected = state.quotas.is_protected(listener);
        let slot =
            Slot { is_protected, opened_us, used_us: Arc::clone(&used_us), task: None, peer: Weak::new() };
        state.slots.insert(id, slot);
        state.end_excess();
        let (connections, listener) = (Arc::clone(self), listener.to_owned());
        Admission { connections, listener, ip, id, used_us, _descriptor: descriptor }
    }

    fn delay(self: &Arc<Self>, state: &mut State, pause_ms: i64) -> Option<Delay> {
        if state.delayed >= DELAYED_MAX {
            return None;
        }
        let descriptor = self.descriptors.open_connection().ok()?;
        state.delayed += 1;
        let length = Duration::from_millis(u64::try_from(pause_ms).unwrap_or(0));
        Some(Delay { length, connections: Arc::clone(self), _descriptor: descriptor })
    }

    /// Counts the end of a connection.
    pub(super) fn ended(&self, end: End) {
        let ends = &mut self.state.lock().figures.ends;
        let count = match end {
            End::Regular => return,
            End::Idle => &mut ends.idle,
            End::Slow => &mut ends.slow,
            End::Unread => &mut ends.unread,
            End::Unproven => &mut ends.unproven,
            End::Refused => &mut ends.refused,
            End::Io => &mut ends.io,
        };
        *count += 1;
    }

    /// Sets the task that serves a connection.
    pub(super) fn served_by(&self, id: u64, task: AbortHandle) {
        if let Some(slot) = self.state.lock().slots.get_mut(&id) {
            slot.task = Some(task);
        }
    }
}

impl State {
    /// Ends the excess connections, least recently used first.
    fn end_excess(&mut self) {
        let excess = self.quotas.excess().saturating_sub(self.ending);
        if excess == 0 {
            return;
        }
        let candidates = self.slots.iter().filter(|(_, slot)| !slot.is_protected && slot.task.is_some());
        let mut candidates: Vec<_> =
            candidates.map(|(id, slot)| (slot.used_us.load(Ordering::Relaxed), *id)).collect();
        if candidates.len() > excess {
            candidates.select_nth_unstable(excess);
        }
        for (_, id) in candidates.into_iter().take(excess) {
            if let Some(Slot { task: Some(task), .. }) = self.slots.remove(&id) {
                task.abort();
                self.ending += 1;
                self.figures.evicted += 1;
            }
        }
        tracing::debug!(excess, "Closed the connections used least recently (max.connections)");
    }
}

impl Admission {
    /// Id of the connection.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Sets the peer of the connection.
    pub(super) fn serves(&self, peer: &Arc<Peer>) {
        if let Some(slot) = self.connections.state.lock().slots.get_mut(&self.id) {
            slot.peer = Arc::downgrade(peer);
        }
    }

    /// Marks the connection as used.
    pub(super) fn touch(&self, now: Instant) {
        self.used_us.store(self.connections.us(now), Ordering::Relaxed);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.quotas.leave(&self.listener, self.ip);
        if state.slots.remove(&self.id).is_none() {
            state.ending -= 1;
        }
        drop(state);
        self.connections.freed.notify_waiters();
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.connections.state.lock().delayed -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_security::quota::ListenerLimits;

    const WINDOW: Window = Window { samples: 11, sample_ms: 1000 };
    const UNLIMITED: ListenerLimits = ListenerLimits { connections: usize::MAX, per_second: u32::MAX };

    fn limits(connections: usize, per_ip: usize) -> ConnectionLimits {
        let listeners = [("CLIENTS".to_owned(), UNLIMITED), ("BROKERS".to_owned(), UNLIMITED)];
        ConnectionLimits {
            connections,
            per_second: u32::MAX,
            per_ip,
            listeners: listeners.into(),
            ..Default::default()
        }
    }

    fn connections(limits: ConnectionLimits, descriptors: Descriptors) -> Arc<Connections> {
        Connections::new(WINDOW, limits, Some("BROKERS".to_owned()), descriptors)
    }

    fn admit(
        connections: &Arc<Connections>,
        listener: &str,
        ip: &str,
    ) -> Option<Result<Admission, RefusedConnection>> {
        connections.try_admit(listener, ip.parse().expect("an address"))
    }

    #[tokio::test]
    async fn a_place_is_given_back() {
        let mut limits = limits(2, 1);
        limits.per_ip_overrides.insert("127.0.0.2".parse().expect("an address"), 2);
        let connections = connections(limits.clone(), Descriptors::default());
        let first = admit(&connections, "CLIENTS", "127.0.0.1").expect("a slot").expect("the first fits");
        let second = |ip| admit(&connections, "CLIENTS", ip).expect("a slot");
        assert!(matches!(second("127.0.0.1"), Err(RefusedConnection::PerIp { max: 1, .. })));
        assert!(second("::ffff:127.0.0.1").is_err(), "an IPv4 address in IPv6 clothes is the same address");
        drop(first);
        let held = [second("127.0.0.2").expect("one"), second("127.0.0.2").expect("two")];
        assert!(admit(&connections, "CLIENTS", "127.0.0.1").is_none(), "two are open");
        let waiting = tokio::spawn({
            let waiting = connections.clone();
            async move { waiting.admit("CLIENTS", "127.0.0.3".parse().expect("an address"), || {}).await.is_ok() }
        });
        drop(held);
        assert!(waiting.await.expect("no panic"), "it waited for a slot");
        let figures = connections.figures();
        assert_eq!((connections.open(), figures.admitted, figures.refused), (0, 4, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn open_connections_are_listed_until_they_end() {
        let connections = connections(limits(9, 9), Descriptors::default());
        let peer = |client_id: &str| {
            let peer = Peer {
                address: ([10, 0, 0, 1], 7).into(),
                listener: "CLIENTS".to_owned(),
                tls: None,
                mute: Default::default(),
                software: Default::default(),
                client_id: Default::default(),
                identified: Default::default(),
                attached: Default::default(),
            };
            peer.note_client_id(client_id);
            Arc::new(peer)
        };
        let admission = || admit(&connections, "CLIENTS", "10.0.0.1").expect("a slot").expect("it fits");
        let (first, second) = (admission(), admission());
        let (one, two) = (peer("one"), peer("two"));
        second.serves(&two);
        let listed = |max| {
            let (peers, more) = connections.peers(max);
            let named = peers.iter().map(|open| open.peer.client_id.get().cloned().expect("named"));
            (named.collect::<Vec<_>>(), more)
        };
        assert_eq!(listed(9), (vec!["two".to_owned()], 0), "the other has not finished its TLS handshake");
        first.serves(&one);
        tokio::time::advance(Duration::from_secs(5)).await;
        second.touch(Instant::now());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(listed(1), (vec!["one".to_owned()], 1));
        let (peers, _) = connections.peers(9);
        let times: Vec<_> =
            peers.iter().map(|open| (open.open_for.as_secs(), open.idle_for.as_secs())).collect();
        assert_eq!(times, [(7, 7), (7, 2)]);
        drop((peers, first, one));
        assert_eq!(listed(9), (vec!["two".to_owned()], 0));
    }

    #[tokio::test]
    async fn connections_between_brokers_close_those_of_clients_that_rest() {
        let connections = connections(limits(2, 10), Descriptors::default());
        let client = |used_after_ms| {
            let admission = admit(&connections, "CLIENTS", "127.0.0.1").expect("a slot").expect("it fits");
            admission.touch(connections.began + Duration::from_millis(used_after_ms));
            let id = admission.id();
            let task = tokio::spawn(async move {
                let _admission = admission;
                std::future::pending::<()>().await;
            });
            connections.served_by(id, task.abort_handle());
            task
        };
        let (busy, resting) = (client(20), client(10));
        let _broker = admit(&connections, "BROKERS", "127.0.0.1").expect("a slot").expect("it fits");
        assert!(resting.await.expect_err("it was closed").is_cancelled());
        assert!(!busy.is_finished());
        assert_eq!((connections.open(), connections.figures().evicted), (2, 1));
        connections.set_limits(limits(1, 10));
        assert!(busy.await.expect_err("it was closed").is_cancelled());
        assert_eq!(connections.open(), 1, "the one between brokers stays");
    }

    #[test]
    fn connections_leave_descriptors_to_logs() {
        let descriptors = Descriptors::limited(100);
        let connections = connections(limits(1000, 1000), descriptors.clone());
        let held: Vec<_> =
            std::iter::from_fn(|| admit(&connections, "CLIENTS", "127.0.0.1").and_then(Result::ok)).collect();
        assert_eq!(Some(held.len()), descriptors.connections_max());
        let refused = admit(&connections, "CLIENTS", "127.0.0.1");
        assert!(matches!(refused, Some(Err(RefusedConnection::Descriptors(_)))));
        drop(held);
        assert!(admit(&connections, "CLIENTS", "127.0.0.1").is_some_and(|admitted| admitted.is_ok()));
    }

    #[test]
    fn connections_of_an_address_that_is_too_fast_are_closed_late() {
        let connections = connections(limits(1000, 1000), Descriptors::default());
        connections.set_ip_rates(IpRates { default: Some(1), named: Default::default() });
        let mut delays = Vec::new();
        for _ in 0..DELAYED_MAX + 50 {
            match admit(&connections, "CLIENTS", "127.0.0.1").expect("a slot") {
                Ok(admission) => drop(admission),
                Err(RefusedConnection::TooFast { delay, .. }) => delays.push(delay),
                Err(other) => panic!("{other}"),
            }
        }
        let delayed: Vec<_> = delays.iter().flatten().collect();
        assert_eq!(delayed.len(), DELAYED_MAX);
        assert!(delayed.iter().all(|delay| delay.length <= Duration::from_secs(1)));
        drop(delays);
        assert_eq!(connections.state.lock().delayed, 0);
    }
}
