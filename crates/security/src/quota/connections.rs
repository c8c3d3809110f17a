//! Admission of connections (Kafka's `ConnectionQuotas`, KIP-402, KIP-612).
//!
//! A connection passes three gates:
//!
//! 1. [`ConnectionQuotas::arrive`]: above the rate of the broker or the listener, the listener pauses for the
//!    returned time.
//! 2. [`ConnectionQuotas::has_slot`]: at the connection limit of the broker or the listener, the connection
//!    waits for another one to end.
//! 3. [`ConnectionQuotas::enter`]: above the rate or the number of its address, the connection is closed; for
//!    the rate after a pause, so that the client does not retry at once.
//!
//! The inter-broker listener is protected if other listeners exist: the broker's limits of number and rate do
//! not apply. If connections of the protected listener exceed the number, connections of other listeners are
//! closed instead ([`ConnectionQuotas::excess`]).
//!
//! Addresses are compared in their original form: an IPv4-mapped IPv6 address differs from the IPv4 address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use thalweg_hash::HashMap;

use super::{Average, METRICS_WINDOW, Rate, Window};

/// Maximum number of addresses with a recorded connection rate.
const ADDRESSES_MAX: usize = 10_000;

/// The limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListenerLimits {
    /// Maximum open connections.
    pub connections: usize,
    /// Maximum new connections per second.
    pub per_second: u32,
}

/// The limits of a broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionLimits {
    /// Maximum open connections on all listeners.
    pub connections: usize,
    /// Maximum new connections per second on all listeners.
    pub per_second: u32,
    /// Maximum open connections of one address.
    pub per_ip: usize,
    /// Exceptions to `per_ip`.
    pub per_ip_overrides: HashMap<IpAddr, usize>,
    /// Limits by listener name.
    pub listeners: BTreeMap<String, ListenerLimits>,
}

/// Limits of new connections per second by address: the quota `connection_creation_rate` of `ip` entities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IpRates {
    /// The limit of all other addresses.
    pub default: Option<u32>,
    /// Limits of specific addresses.
    pub named: HashMap<IpAddr, u32>,
}

/// The reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The address has reached its maximum number of connections.
    TooMany {
        /// The maximum of the address.
        max: usize,
    },
    /// The address opens connections too fast. The connection is closed after a pause.
    TooFast {
        /// The pause in milliseconds.
        pause_ms: i64,
    },
}

/// Open connections, and rates of new connections.
#[derive(Debug)]
pub struct ConnectionQuotas {
    window: Window,
    limits: ConnectionLimits,
    ip_rates: IpRates,
    /// Name of the inter-broker listener.
    protected: Option<String>,
    open: usize,
    rate: Rate,
    listeners: BTreeMap<String, ListenerConnections>,
    by_ip: HashMap<IpAddr, usize>,
    rate_by_ip: HashMap<IpAddr, Rate>,
}

/// The connections of a listener.
#[derive(Debug)]
struct ListenerConnections {
    open: usize,
    rate: Rate,
    pauses: Average,
    pauses_of_ips: Average,
}

/// Connection figures of one listener, for metrics. Average pauses in milliseconds cover the last 30 to 60
/// seconds; NaN without a pause.
#[derive(Clone, Debug)]
pub struct ListenerFigures {
    /// The listener name.
    pub name: String,
    /// The number of open connections.
    pub open: usize,
    /// New connections per second.
    pub per_second: f64,
    /// The average pause caused by the rate of the broker or the listener.
    pub pause_ms: f64,
    /// The average pause caused by the rate of an address.
    pub ip_pause_ms: f64,
}

impl ConnectionQuotas {
    /// Creates quotas without open connections. `window` is the window of client quotas; no pause is longer
    /// than one sample.
    pub fn new(window: Window, limits: ConnectionLimits, protected: Option<String>) -> ConnectionQuotas {
        let mut quotas = ConnectionQuotas {
            window,
            limits: ConnectionLimits::default(),
            ip_rates: IpRates::default(),
            protected,
            open: 0,
            rate: Rate::new(window),
            listeners: BTreeMap::new(),
            by_ip: HashMap::default(),
            rate_by_ip: HashMap::default(),
        };
        quotas.set_limits(limits);
        quotas
    }

    /// Replaces the limits.
    pub fn set_limits(&mut self, limits: ConnectionLimits) {
        for name in limits.listeners.keys() {
            self.listeners.entry(name.clone()).or_insert_with(|| ListenerConnections {
                open: 0,
                rate: Rate::new(self.window),
                pauses: Average::new(METRICS_WINDOW),
                pauses_of_ips: Average::new(METRICS_WINDOW),
            });
        }
        self.limits = limits;
    }

    /// Replaces the rates of addresses.
    pub fn set_ip_rates(&mut self, ip_rates: IpRates) {
        self.ip_rates = ip_rates;
    }

    /// Records a new connection. Returns the time in milliseconds for which the listener accepts no other
    /// connection.
    pub fn arrive(&mut self, listener: &str, now_ms: i64) -> i64 {
        let bound = |pause: Option<i64>| pause.unwrap_or(0).min(self.window.sample_ms);
        let is_protected = self.is_protected(listener);
        let mut pause_ms = 0;
        if !is_protected {
            self.rate.record(1.0, now_ms);
            pause_ms = bound(self.rate.throttle_ms(f64::from(self.limits.per_second), now_ms));
        }
        let Some(of_listener) = self.listeners.get_mut(listener) else { return 0 };
        let limit = self.limits.listeners.get(listener).map_or(u32::MAX, |limits| limits.per_second);
        of_listener.rate.record(1.0, now_ms);
        pause_ms = pause_ms.max(bound(of_listener.rate.throttle_ms(f64::from(limit), now_ms)));
        if pause_ms > 0 {
            of_listener.pauses.record(milliseconds(pause_ms), now_ms);
        }
        pause_ms
    }

    /// True if the listener may have another connection.
    pub fn has_slot(&self, listener: &str) -> bool {
        let open = self.listeners.get(listener).map_or(0, |of_listener| of_listener.open);
        let max = self.limits.listeners.get(listener).map_or(usize::MAX, |limits| limits.connections);
        open < max && (self.is_protected(listener) || self.open < self.limits.connections)
    }

    /// Admits a new connection, or returns the reason to close it.
    pub fn enter(&mut self, listener: &str, ip: IpAddr, now_ms: i64) -> Result<(), Refusal> {
        if let Some(pause_ms) = self.pause_of_ip(ip, now_ms) {
            if !self.is_protected(listener) {
                self.rate.record(-1.0, now_ms);
            }
            if let Some(of_listener) = self.listeners.get_mut(listener) {
                of_listener.pauses_of_ips.record(milliseconds(pause_ms), now_ms);
                of_listener.rate.record(-1.0, now_ms);
            }
            return Err(Refusal::TooFast { pause_ms });
        }
        let max = self.limits.per_ip_overrides.get(&ip).copied().unwrap_or(self.limits.per_ip);
        let open = self.by_ip.get(&ip).copied().unwrap_or(0);
        if open >= max {
            return Err(Refusal::TooMany { max });
        }
        self.by_ip.insert(ip, open + 1);
        self.open += 1;
        if let Some(of_listener) = self.listeners.get_mut(listener) {
            of_listener.open += 1;
        }
        Ok(())
    }

    /// Removes an admitted connection that has ended.
    pub fn leave(&mut self, listener: &str, ip: IpAddr) {
        self.open -= 1;
        if let Some(of_listener) = self.listeners.get_mut(listener) {
            of_listener.open -= 1;
        }
        match self.by_ip.get_mut(&ip) {
            Some(open) if *open > 1 => *open -= 1,
            _ => {
                self.by_ip.remove(&ip);
            }
        }
    }

    /// The number of connections above the broker's limit. The caller closes this many connections of
    /// unprotected listeners, least recently used first.
    pub fn excess(&self) -> usize {
        self.open.saturating_sub(self.limits.connections)
    }

    /// True if the broker's limits do not apply to a listener.
    pub fn is_protected(&self, listener: &str) -> bool {
        self.protected.as_deref() == Some(listener) && self.listeners.len() > 1
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.open
    }

    /// New connections per second, excluding a protected listener.
    pub fn per_second(&mut self, now_ms: i64) -> f64 {
        self.rate.per_second(now_ms)
    }

    /// Figures of all listeners.
    pub fn figures(&mut self, now_ms: i64) -> Vec<ListenerFigures> {
        let figures = |(name, of_listener): (&String, &mut ListenerConnections)| ListenerFigures {
            name: name.clone(),
            open: of_listener.open,
            per_second: of_listener.rate.per_second(now_ms),
            pause_ms: of_listener.pauses.get(now_ms),
            ip_pause_ms: of_listener.pauses_of_ips.get(now_ms),
        };
        self.listeners.iter_mut().map(figures).collect()
    }

    /// New connections per second of addresses with a limit, active within the window: the `max` highest
    /// rates.
    pub fn ip_figures(&mut self, max: usize, now_ms: i64) -> Vec<(IpAddr, f64)> {
        let rates = self.rate_by_ip.iter_mut().filter(|(_, rate)| !rate.is_idle(now_ms));
        let mut rates: Vec<_> = rates.map(|(ip, rate)| (*ip, rate.per_second(now_ms))).collect();
        rates.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        rates.truncate(max);
        rates
    }

    /// The pause for an address above its rate, whose connection then does not count.
    fn pause_of_ip(&mut self, ip: IpAddr, now_ms: i64) -> Option<i64> {
        // Kafka's maximum value means no limit.
        let unlimited = i32::MAX.unsigned_abs();
        let limit = self.ip_rates.named.get(&ip).copied().or(self.ip_rates.default);
        let limit = limit.filter(|limit| *limit < unlimited)?;
        if self.rate_by_ip.len() >= ADDRESSES_MAX && !self.rate_by_ip.contains_key(&ip) {
            self.forget_addresses(now_ms);
        }
        let rate = self.rate_by_ip.entry(ip).or_insert_with(|| Rate::new(self.window));
        rate.record(1.0, now_ms);
        let pause_ms = rate.throttle_ms(f64::from(limit), now_ms)?.min(self.window.sample_ms);
        if pause_ms <= 0 {
            return None;
        }
        rate.record(-1.0, now_ms);
        Some(pause_ms)
    }

    /// Drops idle addresses, which are unaffected, and then the least recently seen ones.
    fn forget_addresses(&mut self, now_ms: i64) {
        self.rate_by_ip.retain(|_, rate| !rate.is_idle(now_ms));
        if self.rate_by_ip.len() > ADDRESSES_MAX / 2 {
            let mut seen_ms: Vec<_> = self.rate_by_ip.values().filter_map(Rate::last_ms).collect();
            let middle = seen_ms.len() / 2;
            let (_, median, _) = seen_ms.select_nth_unstable(middle);
            let median = *median;
            self.rate_by_ip.retain(|_, rate| rate.last_ms().is_some_and(|seen_ms| seen_ms > median));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "pauses are short")]
fn milliseconds(ms: i64) -> f64 {
    ms as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { samples: 11, sample_ms: 1000 };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn limits(connections: usize, of_clients: ListenerLimits) -> ConnectionLimits {
        let between = ListenerLimits { connections: usize::MAX, per_second: u32::MAX };
        let listeners = [("CLIENTS".to_owned(), of_clients), ("BROKERS".to_owned(), between)];
        ConnectionLimits {
            connections,
            per_second: u32::MAX,
            per_ip: 3,
            per_ip_overrides: HashMap::default(),
            listeners: listeners.into(),
        }
    }

    #[test]
    fn the_listener_between_brokers_takes_more_than_the_broker_may_have() {
        let of_clients = ListenerLimits { connections: 2, per_second: u32::MAX };
        let mut quotas = ConnectionQuotas::new(WINDOW, limits(2, of_clients), Some("BROKERS".to_owned()));
        for _ in 0..2 {
            assert!(quotas.has_slot("CLIENTS"));
            assert_eq!(quotas.enter("CLIENTS", ip("10.0.0.1"), 0), Ok(()));
        }
        assert!(!quotas.has_slot("CLIENTS") && quotas.has_slot("BROKERS"));
        assert_eq!((quotas.enter("BROKERS", ip("10.0.0.2"), 0), quotas.excess()), (Ok(()), 1));
        quotas.leave("CLIENTS", ip("10.0.0.1"));
        assert_eq!((quotas.excess(), quotas.has_slot("CLIENTS")), (0, false), "the broker has two");

        let mut alone = limits(2, of_clients);
        alone.listeners.remove("CLIENTS");
        let mut quotas = ConnectionQuotas::new(WINDOW, alone, Some("BROKERS".to_owned()));
        for _ in 0..2 {
            assert_eq!(quotas.enter("BROKERS", ip("10.0.0.2"), 0), Ok(()));
        }
        assert!(!quotas.has_slot("BROKERS"), "the only listener is not protected");
    }

    #[test]
    fn an_address_above_its_rate_uses_up_no_other_rate() {
        let of_clients = ListenerLimits { connections: 100, per_second: 1 };
        let mut quotas = ConnectionQuotas::new(WINDOW, limits(100, of_clients), None);
        quotas.set_ip_rates(IpRates { default: Some(1), named: HashMap::from_iter([(ip("10.0.0.9"), 100)]) });
        for _ in 0..11 {
            assert_eq!(quotas.arrive("BROKERS", 0), 0);
            let outcome = quotas.enter("BROKERS", ip("10.0.0.1"), 0);
            assert!(
                !matches!(outcome, Err(Refusal::TooFast { .. })),
                "10 seconds' worth, and one that rounds"
            );
            if quotas.per_second(0) > 0.95 {
                break;
            }
        }
        let before = quotas.per_second(0);
        assert_eq!(quotas.arrive("BROKERS", 0), 0);
        assert_eq!(quotas.enter("BROKERS", ip("10.0.0.1"), 0), Err(Refusal::TooFast { pause_ms: 1000 }));
        assert!((quotas.per_second(0) - before).abs() < 1e-9, "it is not counted");
        assert!(!matches!(quotas.enter("BROKERS", ip("10.0.0.9"), 0), Err(Refusal::TooFast { .. })));
    }

    #[test]
    fn addresses_without_number_use_bounded_memory() {
        let mut quotas = ConnectionQuotas::new(
            WINDOW,
            limits(usize::MAX, ListenerLimits { connections: usize::MAX, per_second: u32::MAX }),
            None,
        );
        quotas.set_ip_rates(IpRates { default: Some(1), named: HashMap::default() });
        for n in 0..50_000u32 {
            let address = IpAddr::from(n.to_be_bytes());
            let now_ms = i64::from(n / 100);
            if quotas.enter("CLIENTS", address, now_ms).is_ok() {
                quotas.leave("CLIENTS", address);
            }
            assert!(quotas.rate_by_ip.len() <= ADDRESSES_MAX);
        }
        assert!(quotas.by_ip.is_empty());
    }
}
