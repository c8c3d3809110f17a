//! Fair shares of limited resources: semaphores with a limit per principal; tables in which entries of the
//! principal with the most give way first; and parts of the descriptors of the process.

mod counts;
mod descriptors;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

pub use counts::{Counts, fairly, gives_way};
pub use descriptors::{DescriptorPart, DescriptorPermit};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A semaphore with a limit per principal, such as a user or an address. A principal at its limit waits in
/// its own queue.
pub struct FairSemaphore<K> {
    permits: usize,
    of_one: usize,
    all: Arc<Semaphore>,
    /// Shares of principals that hold or await a permit.
    shares: Mutex<BTreeMap<K, Arc<Semaphore>>>,
}

/// One permit, or several at once, released on drop.
#[derive(Debug)]
pub struct FairPermit {
    _of_one: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The address of a client; for IPv6 its /64 network, since one site controls all 2^64 addresses in the
/// network.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

/// The reason why no permit is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// The principal holds its maximum number of permits.
    Share(usize),
    /// All permits are taken; the number is the total.
    All(usize),
}

impl<K: Clone + Ord> FairSemaphore<K> {
    /// Creates `permits` permits, of which one principal may hold at most `of_one`.
    pub fn new(permits: usize, of_one: usize) -> FairSemaphore<K> {
        FairSemaphore { permits, of_one, all: Arc::new(Semaphore::new(permits)), shares: Mutex::default() }
    }

    /// Creates permits without a limit per principal. Waiting principals are served in turn.
    pub fn in_turn(permits: usize) -> FairSemaphore<K> {
        FairSemaphore::new(permits, permits)
    }

    /// Takes a permit if one is free.
    pub fn try_take(&self, principal: &K) -> Result<FairPermit, ReachedLimit> {
        let share = self.share(principal).try_acquire_owned();
        let of_one = share.map_err(|_| ReachedLimit::Share(self.of_one))?;
        let of_all =
            Arc::clone(&self.all).try_acquire_owned().map_err(|_| ReachedLimit::All(self.permits))?;
        Ok(FairPermit { _of_one: of_one, _of_all: of_all })
    }

    /// Waits for a permit, first in the principal's share, then among all permits.
    pub async fn take(&self, principal: &K) -> FairPermit {
        self.take_many(principal, 1).await
    }

    /// Waits for a number of permits at once, at most the whole share of the principal.
    pub async fn take_many(&self, principal: &K, count: usize) -> FairPermit {
        let count = u32::try_from(count.min(self.of_one).min(self.permits)).unwrap_or(u32::MAX);
        let of_one = self.share(principal).acquire_many_owned(count).await.expect("it is never closed");
        let of_all = Arc::clone(&self.all).acquire_many_owned(count).await.expect("it is never closed");
        FairPermit { _of_one: of_one, _of_all: of_all }
    }

    /// The limit that blocks a principal without a permit.
    pub fn full(&self, principal: &K) -> ReachedLimit {
        match self.share(principal).available_permits() {
            0 => ReachedLimit::Share(self.of_one),
            _ => ReachedLimit::All(self.permits),
        }
    }

    fn share(&self, principal: &K) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(principal) {
            return Arc::clone(share);
        }
        // Held permits and waiting principals keep a reference to their share.
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        let share = Arc::new(Semaphore::new(self.of_one));
        shares.insert(principal.clone(), Arc::clone(&share));
        share
    }
}

impl<K> fmt::Debug for FairSemaphore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} permits are free", self.all.available_permits(), self.permits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> [Arc<str>; 2] {
        ["eve", "ann"].map(Arc::from)
    }

    #[test]
    fn a_principal_takes_no_more_than_its_share() {
        let (shares, [eve, ann]) = (FairSemaphore::<Arc<str>>::new(3, 2), names());
        let [first, _second] = [0; 2].map(|_| shares.try_take(&eve).expect("a share of two"));
        assert_eq!(shares.try_take(&eve).err(), Some(ReachedLimit::Share(2)));
        assert_eq!(shares.full(&eve), ReachedLimit::Share(2));
        let _third = shares.try_take(&ann).expect("there is one more");
        assert_eq!(
            (shares.try_take(&ann).err(), shares.full(&ann)),
            (Some(ReachedLimit::All(3)), ReachedLimit::All(3))
        );
        drop(first);
        shares.try_take(&ann).expect("it was given back");
        assert_eq!(shares.shares.lock().len(), 2);
    }

    #[tokio::test]
    async fn permits_are_taken_together_up_to_the_share() {
        let (memory, [eve, ann]) = (FairSemaphore::<Arc<str>>::new(10, 6), names());
        let held = memory.take_many(&eve, 1000).await;
        assert_eq!(memory.full(&eve), ReachedLimit::Share(6));
        let of_ann = memory.take_many(&ann, 4).await;
        assert_eq!(memory.try_take(&ann).err(), Some(ReachedLimit::All(10)));
        drop((held, of_ann));
        assert_eq!(memory.all.available_permits(), 10);
    }

    #[tokio::test]
    async fn a_principal_waits_for_one_turn_of_another_that_has_a_hundred_to_wait_for() {
        let (turns, [eve, ann]) = (Arc::new(FairSemaphore::in_turn(1)), names());
        let (taken, mut turn) = tokio::sync::mpsc::channel(200);
        let wait = |principal: &Arc<str>| {
            let (turns, taken, principal) = (Arc::clone(&turns), taken.clone(), Arc::clone(principal));
            tokio::spawn(async move {
                let permit = turns.take(&principal).await;
                taken.send(principal).await.expect("it is received");
                drop(permit);
            })
        };
        let first = turns.take(&eve).await;
        let waiting: Vec<_> = (0..100).map(|_| wait(&eve)).collect();
        tokio::task::yield_now().await;
        let of_ann = wait(&ann);
        tokio::task::yield_now().await;
        drop(first);
        of_ann.await.expect("it has its turn");
        let before = std::iter::from_fn(|| turn.try_recv().ok()).take_while(|who| *who != ann).count();
        assert!(before <= 2, "{before} turns of the other");
        for waiting in waiting {
            waiting.await.expect("it has its turn");
        }
    }

    #[test]
    fn a_site_of_ipv6_is_one_network() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::7"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.7"), of("10.0.0.7"));
    }

    #[tokio::test]
    async fn who_waits_for_its_share_is_in_nobodys_way() {
        let (shares, [eve, ann]) = (Arc::new(FairSemaphore::new(3, 2)), names());
        let held = [shares.take(&eve).await, shares.take(&eve).await];
        let waiting = tokio::spawn({
            let (shares, eve) = (Arc::clone(&shares), Arc::clone(&eve));
            async move { shares.take(&eve).await }
        });
        tokio::task::yield_now().await;
        drop(shares.take(&ann).await);
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.expect("there is room");
        shares.try_take(&Arc::from("bob")).expect("all are free");
        assert_eq!(shares.shares.lock().len(), 1, "shares of principals without permits are forgotten");
    }
}
