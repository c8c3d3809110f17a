//! The sessions of brokers, and the effects of heartbeats (Kafka's `BrokerHeartbeatManager`).

use std::collections::BTreeMap;

use super::Moment;
use thalweg_metadata::{BrokerEpoch, BrokerId};

/// The state of a broker, from fenced to shut down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BrokerState {
    Fenced,
    Unfenced,
    ControlledShutdown,
    ShutdownNow,
}

impl BrokerState {
    pub fn is_fenced(self) -> bool {
        matches!(self, BrokerState::Fenced | BrokerState::ShutdownNow)
    }
}

/// Fraction of the timeout within which expiring sessions end together. Brokers send heartbeats more often,
/// so that live brokers do not keep an expired session open.
const TOGETHER: i64 = 4;

/// An epoch that no registration has.
const NO_EPOCH: BrokerEpoch = BrokerEpoch(-1);

#[derive(Clone, Debug)]
struct HeartbeatState {
    fenced: bool,
    /// The broker's last reported offset; -1 if none.
    metadata_offset: i64,
    /// During a controlled shutdown, the offset that all active brokers must reach before the broker may
    /// stop.
    shutdown_offset: Option<i64>,
    /// Epoch and time of the last contact, on the monotonic clock.
    contact: Option<(BrokerEpoch, i64)>,
    /// True if the last contact was a heartbeat, not the start of this controller's leadership.
    heard: bool,
    /// True if the broker was allowed to stop and has been silent since.
    may_go: bool,
}

/// The requested changes in a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub metadata_offset: i64,
    pub want_fence: bool,
    pub want_shut_down: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Heartbeats {
    timeout_ms: i64,
    brokers: BTreeMap<BrokerId, HeartbeatState>,
}

impl Heartbeats {
    pub fn new(timeout_ms: i64) -> Heartbeats {
        Heartbeats { timeout_ms, brokers: BTreeMap::new() }
    }

    /// Adds a broker, or updates its fenced state. Fencing ends a controlled shutdown.
    pub fn register(&mut self, broker: BrokerId, fenced: bool) {
        let new = HeartbeatState {
            fenced,
            metadata_offset: -1,
            shutdown_offset: None,
            contact: None,
            heard: false,
            may_go: false,
        };
        let tracked = self.brokers.entry(broker).or_insert(new);
        tracked.fenced = fenced;
        if fenced {
            tracked.shutdown_offset = None;
        }
    }

    pub fn remove(&mut self, broker: BrokerId) {
        self.brokers.remove(&broker);
    }

    /// Gives a broker a session before its first heartbeat.
    pub fn expect(&mut self, broker: BrokerId, epoch: BrokerEpoch, now: Moment) {
        self.touch(broker, epoch, now);
        if let Some(tracked) = self.brokers.get_mut(&broker) {
            tracked.heard = false;
        }
    }

    /// Gives the broker of this node a normal session. Its earlier process has ended, and the next process
    /// may register when the state of the other brokers is known: registering leaves the ISRs, which must not
    /// be left to brokers that may have failed as well.
    pub fn await_return(&mut self, broker: BrokerId, now: Moment) {
        self.expect(broker, NO_EPOCH, now);
    }

    pub fn touch(&mut self, broker: BrokerId, epoch: BrokerEpoch, now: Moment) {
        if let Some(tracked) = self.brokers.get_mut(&broker) {
            tracked.contact = Some((epoch, now.monotonic_ms));
            tracked.heard = true;
            tracked.may_go = false;
        }
    }

    /// Allows a broker to stop. After fencing, its session does not block registrations, so that the next
    /// process of the node need not wait for the end of the session. In Kafka it has to wait.
    pub fn let_go(&mut self, broker: BrokerId) {
        if let Some(tracked) = self.brokers.get_mut(&broker) {
            tracked.may_go = true;
        }
    }

    pub fn set_metadata_offset(&mut self, broker: BrokerId, offset: i64) {
        if let Some(tracked) = self.brokers.get_mut(&broker) {
            tracked.metadata_offset = offset;
        }
    }

    /// True if a session prevents another process from registering. An expired session does so until its
    /// broker is fenced, together with other brokers.
    pub fn has_valid_session(&self, broker: BrokerId, epoch: BrokerEpoch, now: Moment) -> bool {
        let Some(tracked) = self.brokers.get(&broker) else { return false };
        let left = tracked.fenced && tracked.may_go;
        match tracked.contact.filter(|_| !left) {
            Some((known, at)) if known == epoch => !tracked.fenced || now.monotonic_ms - at < self.timeout_ms,
            Some((NO_EPOCH, _)) if !tracked.fenced => {
                self.brokers.iter().any(|(id, other)| *id != broker && !other.fenced && !other.heard)
            }
            _ => false,
        }
    }

    /// Starts a controlled shutdown that ends at this offset, unless one is in progress.
    pub fn begin_shutdown(&mut self, broker: BrokerId, offset: i64) {
        if let Some(tracked) = self.brokers.get_mut(&broker) {
            tracked.shutdown_offset.get_or_insert(offset);
        }
    }

    /// Cancels a controlled shutdown.
    pub fn cancel_shutdown(&mut self, broker: BrokerId) {
        if let Some(tracked) = self.brokers.get_mut(&broker) {
            tracked.shutdown_offset = None;
        }
    }

    pub fn is_shutting_down(&self, broker: BrokerId) -> bool {
        self.brokers.get(&broker).is_some_and(|tracked| tracked.shutdown_offset.is_some())
    }

    fn lowest_active_offset(&self) -> i64 {
        let active = self.brokers.values().filter(|t| !t.fenced && t.shutdown_offset.is_none());
        active.map(|tracked| tracked.metadata_offset).min().unwrap_or(i64::MAX)
    }

    pub fn current(&self, broker: BrokerId) -> BrokerState {
        match self.brokers.get(&broker) {
            Some(tracked) if tracked.shutdown_offset.is_some() => BrokerState::ControlledShutdown,
            Some(tracked) if !tracked.fenced => BrokerState::Unfenced,
            _ => BrokerState::Fenced,
        }
    }

    /// The next state of a broker after a heartbeat.
    pub fn next(
        &self,
        broker: BrokerId,
        wish: Wish,
        registered_at: i64,
        leads: impl Fn() -> bool,
    ) -> BrokerState {
        match self.current(broker) {
            BrokerState::Fenced if wish.want_shut_down => BrokerState::ShutdownNow,
            BrokerState::Fenced if !wish.want_fence && wish.metadata_offset >= registered_at => {
                BrokerState::Unfenced
            }
            BrokerState::Fenced => BrokerState::Fenced,
            BrokerState::Unfenced if wish.want_fence && wish.want_shut_down => BrokerState::ShutdownNow,
            BrokerState::Unfenced if wish.want_fence => BrokerState::Fenced,
            BrokerState::Unfenced if wish.want_shut_down && leads() => BrokerState::ControlledShutdown,
            BrokerState::Unfenced if wish.want_shut_down => BrokerState::ShutdownNow,
            BrokerState::Unfenced => BrokerState::Unfenced,
            BrokerState::ControlledShutdown if leads() => BrokerState::ControlledShutdown,
            BrokerState::ControlledShutdown => {
                let until = self.brokers.get(&broker).and_then(|tracked| tracked.shutdown_offset);
                if until.is_none_or(|until| until <= self.lowest_active_offset()) {
                    BrokerState::ShutdownNow
                } else {
                    BrokerState::ControlledShutdown
                }
            }
            BrokerState::ShutdownNow => BrokerState::ShutdownNow,
        }
    }

    /// Time of the next expiry of an unfenced broker's session. Brokers that failed at the same time have
    /// different heartbeat times, so sessions that expire soon after the first expire together with it.
    pub fn next_end_ms(&self) -> Option<i64> {
        let unfenced = self.brokers.values().filter(|tracked| !tracked.fenced);
        let ends = unfenced.filter_map(|t| t.contact.map(|(_, at)| at.saturating_add(self.timeout_ms)));
        let mut ends: Vec<i64> = ends.collect();
        ends.sort_unstable();
        let together_until = ends.first()?.saturating_add(self.timeout_ms / TOGETHER);
        ends.into_iter().take_while(|end| *end <= together_until).last()
    }

    pub fn has_open_sessions(&self, monotonic_ms: i64) -> bool {
        let mut contacts = self.brokers.values().filter_map(|tracked| tracked.contact);
        contacts.any(|(_, at)| monotonic_ms - at < self.timeout_ms)
    }

    /// Postpones expired sessions for a while.
    pub fn postpone(&mut self, now: Moment, by_ms: i64) {
        let earliest = now.monotonic_ms.saturating_sub(self.timeout_ms).saturating_add(by_ms);
        for (_, at) in self.brokers.values_mut().filter_map(|tracked| tracked.contact.as_mut()) {
            *at = (*at).max(earliest);
        }
    }

    /// The unfenced brokers with expired sessions, in the order of their ids; see
    /// [`Heartbeats::next_end_ms`].
    pub fn stale(&self, now: Moment) -> Vec<BrokerId> {
        if self.next_end_ms().is_none_or(|end_ms| now.monotonic_ms < end_ms) {
            return Vec::new();
        }
        let expired = |tracked: &HeartbeatState| {
            !tracked.fenced && tracked.contact.is_some_and(|(_, at)| now.monotonic_ms - at >= self.timeout_ms)
        };
        self.brokers.iter().filter(|(_, tracked)| expired(tracked)).map(|(id, _)| *id).collect()
    }
}
