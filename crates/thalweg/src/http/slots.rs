//! The slots of connections: a bounded number of strangers, and a bounded number of guests.
//!
//! A connection is a stranger until one of its requests is admitted, and a guest from then on. A new stranger
//! always gets a slot: if none is free, the oldest stranger of the network with the most strangers gives
//! way, so that a flood displaces itself. Strangers never displace guests. A new guest displaces a guest of
//! the user or network with the most slots, if that is clearly more than the new guest's owner has, so that
//! a flood after a login displaces itself, too. Otherwise the guest that has been idle longest gives way, or
//! a guest whose request takes minutes.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use thalweg_places::network;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Limit of connections without an admitted request.
pub(super) const STRANGERS_MAX: usize = 64;
/// Limit of connections with an admitted request.
pub(super) const GUESTS_MAX: usize = 64;
/// Shortest idle time before a guest gives way: its last answer may still be on its way.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// Shortest request time before a busy guest gives way: a download lasts at most five minutes,
/// a live tail fifteen.
const BUSY_MIN: Duration = Duration::from_secs(120);

/// The slots of a server.
#[derive(Default)]
pub(super) struct ConnectionSlots(Mutex<TakenSlots>);

#[derive(Default)]
struct TakenSlots {
    next: u64,
    /// By id, so the oldest first.
    strangers: BTreeMap<u64, Stranger>,
    guests: BTreeMap<u64, Guest>,
}

struct Stranger {
    network: IpAddr,
    leave: Arc<Notify>,
}

struct Guest {
    owner: Owner,
    leave: Arc<Notify>,
    /// True while a request is served.
    is_busy: bool,
    /// The start of the current request, or the end of the last one.
    since: Instant,
}

/// The owner of guests, by which they are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    User(String),
    /// The network of clients without a name.
    Network(IpAddr),
}

impl Owner {
    /// The owner of a request: its user, or the network of `address` if the user is unknown.
    pub fn of(user: Option<&str>, address: IpAddr) -> Owner {
        user.map_or_else(|| Owner::Network(network(address)), |user| Owner::User(user.to_owned()))
    }
}

/// The slot of one connection, given back when dropped.
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    network: IpAddr,
    leave: Arc<Notify>,
}

/// There is no slot for another guest, or this connection had to give way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoSlot;

impl ConnectionSlots {
    /// A slot for a connection from this address.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> ConnectionSlot {
        let mut taken = self.0.lock();
        if taken.strangers.len() >= STRANGERS_MAX {
            taken.displace_stranger();
        }
        taken.next += 1;
        let (id, leave, network) = (taken.next, Arc::new(Notify::new()), network(address));
        taken.strangers.insert(id, Stranger { network, leave: Arc::clone(&leave) });
        ConnectionSlot { slots: Arc::clone(self), id, network, leave }
    }
}

impl TakenSlots {
    fn displace_stranger(&mut self) {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for stranger in self.strangers.values() {
            *counts.entry(stranger.network).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        let oldest = self.strangers.iter().find(|(_, stranger)| counts[&stranger.network] == most);
        if let Some(stranger) = oldest.map(|(id, _)| *id).and_then(|id| self.strangers.remove(&id)) {
            stranger.leave.notify_one();
        }
    }

    /// Makes room for a guest of this owner; true if another guest gave way.
    fn displace_guest(&mut self, new: &Owner, now: Instant) -> bool {
        let mut counts: BTreeMap<&Owner, usize> = BTreeMap::new();
        for guest in self.guests.values() {
            *counts.entry(&guest.owner).or_default() += 1;
        }
        let own = counts.get(new).copied().unwrap_or(0);
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        if let Some((owner, _)) = most.filter(|(_, count)| *count > own + 1) {
            let guests = self.guests.iter().filter(|(_, guest)| guest.owner == *owner);
            let first = guests.min_by_key(|(_, guest)| (guest.is_busy, guest.since)).map(|(id, _)| *id);
            return self.remove_guest(first);
        }
        let gives_way = |guest: &Guest| {
            let least = if guest.is_busy { BUSY_MIN } else { IDLE_MIN };
            now.saturating_duration_since(guest.since) >= least
        };
        let candidates = self.guests.iter().filter(|(_, guest)| gives_way(guest));
        let first = candidates.min_by_key(|(_, guest)| (guest.is_busy, guest.since));
        let first = first.map(|(id, _)| *id);
        self.remove_guest(first)
    }

    fn remove_guest(&mut self, guest: Option<u64>) -> bool {
        let displaced = guest.and_then(|id| self.guests.remove(&id));
        displaced.inspect(|guest| guest.leave.notify_one()).is_some()
    }
}

impl ConnectionSlot {
    /// Returns when the connection must give way.
    pub async fn lost(&self) {
        self.leave.notified().await;
    }

    /// True until a request of the connection is admitted.
    pub fn is_strangers(&self) -> bool {
        !self.slots.0.lock().guests.contains_key(&self.id)
    }

    /// Begins a request, of a user if one is known. The connection is a guest from now on.
    pub fn begin(&self, user: Option<&str>) -> Result<(), NoSlot> {
        self.begin_at(user, Instant::now())
    }

    fn begin_at(&self, user: Option<&str>, now: Instant) -> Result<(), NoSlot> {
        let owner = Owner::of(user, self.network);
        let mut taken = self.slots.0.lock();
        if let Some(guest) = taken.guests.get_mut(&self.id) {
            (guest.owner, guest.is_busy, guest.since) = (owner, true, now);
            return Ok(());
        }
        if !taken.strangers.contains_key(&self.id) {
            return Err(NoSlot);
        }
        if taken.guests.len() >= GUESTS_MAX && !taken.displace_guest(&owner, now) {
            return Err(NoSlot);
        }
        taken.strangers.remove(&self.id);
        taken
            .guests
            .insert(self.id, Guest { owner, leave: Arc::clone(&self.leave), is_busy: true, since: now });
        Ok(())
    }

    /// Ends the current request: the guest is idle.
    pub fn end(&self) {
        self.end_at(Instant::now());
    }

    fn end_at(&self, now: Instant) {
        if let Some(guest) = self.slots.0.lock().guests.get_mut(&self.id) {
            (guest.is_busy, guest.since) = (false, now);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.0.lock();
        taken.strangers.remove(&self.id);
        taken.guests.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    async fn is_lost(slot: &ConnectionSlot) -> bool {
        tokio::time::timeout(Duration::ZERO, slot.lost()).await.is_ok()
    }

    #[tokio::test]
    async fn a_flood_displaces_itself() {
        let slots = Arc::new(ConnectionSlots::default());
        let (guest, patient) = (slots.enter(address(1)), slots.enter(address(1)));
        guest.begin(None).expect("there is room");
        let flood: Vec<_> = (0..3 * STRANGERS_MAX).map(|_| slots.enter(address(66))).collect();
        assert!(!is_lost(&guest).await && !is_lost(&patient).await);
        let (mut displaced, mut at_end) = (0, None);
        for (at, slot) in flood.iter().enumerate() {
            if is_lost(slot).await {
                (displaced, at_end) = (displaced + 1, Some(at));
                assert_eq!(slot.begin(None), Err(NoSlot), "it had to give way");
            }
        }
        assert_eq!((displaced, at_end), (2 * STRANGERS_MAX + 1, Some(2 * STRANGERS_MAX)), "the oldest");
        patient.begin(None).expect("it still has its slot");
        drop(flood);
        assert_eq!(slots.0.lock().strangers.len(), 0);
    }

    #[tokio::test]
    async fn the_guest_that_was_idle_longest_gives_way_to_a_new_one() {
        let slots = Arc::new(ConnectionSlots::default());
        let guests: Vec<_> = (0..GUESTS_MAX).map(|_| slots.enter(address(1))).collect();
        guests.iter().for_each(|guest| guest.begin(None).expect("there is room"));
        let (new, now) = (slots.enter(address(1)), Instant::now());
        assert_eq!(new.begin_at(None, now), Err(NoSlot), "all are busy");
        guests[7].end_at(now);
        let later = now + IDLE_MIN / 2;
        guests[3].end_at(later);
        assert_eq!(new.begin_at(None, later), Err(NoSlot), "their answers may be on their way");
        new.begin_at(None, later + IDLE_MIN).expect("one is idle");
        assert!(is_lost(&guests[7]).await && !is_lost(&guests[3]).await);
        assert_eq!(guests[7].begin(None), Err(NoSlot));
        assert!(!new.is_strangers());
    }

    #[tokio::test]
    async fn a_request_that_takes_minutes_gives_way() {
        let (slots, now) = (Arc::new(ConnectionSlots::default()), Instant::now());
        let guests: Vec<_> = (0..GUESTS_MAX).map(|_| slots.enter(address(1))).collect();
        for (at, guest) in guests.iter().enumerate() {
            let begun = if at == 5 { now } else { now + IDLE_MIN };
            guest.begin_at(None, begun).expect("there is room");
        }
        let new = slots.enter(address(1));
        assert_eq!(new.begin_at(None, now + BUSY_MIN - IDLE_MIN), Err(NoSlot));
        guests[9].end_at(now + BUSY_MIN);
        new.begin_at(None, now + BUSY_MIN).expect("one is too slow, and none is idle for long enough");
        assert!(is_lost(&guests[5]).await && !is_lost(&guests[9]).await);
    }

    #[tokio::test]
    async fn a_flood_of_one_user_displaces_itself() {
        let slots = Arc::new(ConnectionSlots::default());
        let own = slots.enter(address(1));
        own.begin(Some("ann")).expect("there is room");
        let flood: Vec<_> = (1..GUESTS_MAX).map(|at| slots.enter(address(at as u8))).collect();
        flood.iter().for_each(|slot| slot.begin(Some("mallory")).expect("there is room"));
        let one_more = slots.enter(address(2));
        assert_eq!(one_more.begin(Some("mallory")), Err(NoSlot), "all of the same user are busy");
        for (user, from) in [(Some("ann"), 66), (Some("root"), 66), (None, 77)] {
            let slot = slots.enter(address(from));
            slot.begin(user).expect("one of the flood gives way");
            assert!(!is_lost(&slot).await && !is_lost(&own).await);
        }
        let lost = async |slot: &ConnectionSlot| is_lost(slot).await;
        assert!(lost(&flood[0]).await && !lost(&flood[GUESTS_MAX - 2]).await, "the oldest go first");
    }
}
