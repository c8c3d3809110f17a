//! The memory of requests, over all connections: from the first received byte to the end of the frame's last
//! use.
//!
//! Owns: the budget (`queued.max.request.bytes`), its charges, and the queue of waiters. A buffer is charged
//! by its allocated size, not by its content. Refuses: knowing the content of a buffer.
//!
//! Memory grows with the received bytes, so when the budget is used up, many frames may be incomplete and
//! none could be completed. Three rules prevent this deadlock:
//!
//! - Part of the budget, as large as the largest frame, is the reserve. It completes one frame at a time, the
//!   one that has waited longest. When that frame has been served, the next one gets the reserve.
//! - Growing buffers leave a share of the rest to connections that start to read.
//! - While a connection waits for memory, frames that arrive too slowly lose theirs
//!   ([`Charge::is_too_slow`]).
//!
//! No holder can take it all: the growing buffers of a holder may use as much as is free (a dynamic
//! threshold, as switches share buffers among ports), so one holder gets half, and three in turn leave an
//! eighth. Waiters within their holder's limit pass those beyond, the reserve goes to the holder with the
//! least memory, and frames of a holder that is beyond its limit have to arrive as fast as that with the
//! reserve.

use super::holder::Holder;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// Fraction of the budget that growing buffers leave free.
const SMALL_SHARE: usize = 4;
/// Maximum time without a byte of a frame while other connections wait for memory; below, for the frame with
/// the reserve, and for holders beyond their limit.
const STALL: Duration = Duration::from_secs(10);
const RESERVE_STALL: Duration = Duration::from_secs(3);
/// Time for a frame of any size before its pace counts.
const GRACE: Duration = Duration::from_secs(10);
/// Minimum bytes of a frame per second after that time.
const PACE: u64 = 64 * 1024;
/// Like [`PACE`], for the one frame with the reserve, and for holders beyond their limit.
const RESERVE_PACE: u64 = 1024 * 1024;

/// The memory budget of requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FrameMemory(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// The whole budget in bytes.
    budget: usize,
    /// The limit without the reserve.
    shared_max: usize,
    /// The limit for growing buffers.
    growth_max: usize,
    state: Mutex<State>,
    /// Memory in use without the reserve. Changes under the lock of `state`.
    shared: AtomicUsize,
    /// Number of waiting connections.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes in use of the reserve.
    reserve: usize,
    /// True while a frame may use the reserve.
    is_reserve_given: bool,
    beginning: VecDeque<Waiter>,
    growing: VecDeque<Waiter>,
    /// The memory in use of each holder with connections, and of some without.
    holders: BTreeMap<Holder, Weak<AtomicUsize>>,
    /// Number of holders at which those without connections are removed.
    holders_max: usize,
}

#[derive(Debug)]
struct Waiter {
    bytes: usize,
    share: MemoryShare,
    grant: oneshot::Sender<Charge>,
}

/// The part of the memory that one holder uses. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct MemoryShare {
    memory: FrameMemory,
    /// Number of bytes in use by the holder. Changes under the lock of the pool's state.
    used: Arc<AtomicUsize>,
}

/// The purpose of a request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Starts reading a frame.
    Begin,
    /// Continues a frame that is larger than its buffer.
    Grow,
}

impl FrameMemory {
    /// A budget of `bytes` for frames of up to `frame_max`. A budget hardly larger than one frame may be
    /// exceeded by at most a quarter, so that other connections can continue.
    pub fn new(bytes: usize, frame_max: usize) -> Self {
        let shared_max = bytes.saturating_sub(frame_max).max(bytes / 4).max(1);
        let growth_max = shared_max - shared_max / SMALL_SHARE;
        let (state, shared, waiting) = (Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Pool { budget: bytes, shared_max, growth_max, state, shared, waiting }))
    }

    /// Number of bytes in use.
    pub fn used(&self) -> usize {
        self.0.state.lock().reserve + self.0.shared.load(Ordering::Relaxed)
    }

    /// The budget. Usage may exceed it by a quarter if it is hardly larger than one frame.
    pub fn max(&self) -> usize {
        self.0.budget
    }

    /// Number of connections that wait for memory.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// True if a connection waits for memory.
    fn is_short(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// The share of a holder.
    pub(super) fn share(&self, holder: &Holder) -> MemoryShare {
        let mut state = self.0.state.lock();
        let known = state.holders.get(holder).and_then(Weak::upgrade);
        let used = known.unwrap_or_else(|| {
            if state.holders.len() >= state.holders_max {
                state.holders.retain(|_, used| used.strong_count() > 0);
                state.holders_max = 2 * state.holders.len() + 1;
            }
            let used = Arc::<AtomicUsize>::default();
            state.holders.insert(holder.clone(), Arc::downgrade(&used));
            used
        });
        MemoryShare { memory: self.clone(), used }
    }

    /// Grants free memory to waiters.
    fn grant(&self) {
        loop {
            // An unclaimed charge is released, which takes the lock again.
            let unclaimed = {
                let mut state = self.0.state.lock();
                let Some((waiter, charge)) = self.next_grant(&mut state) else { return };
                waiter.grant.send(charge)
            };
            drop(unclaimed);
        }
    }

    fn next_grant(&self, state: &mut State) -> Option<(Waiter, Charge)> {
        for purpose in [Purpose::Begin, Purpose::Grow] {
            let queue = state.queue(purpose);
            queue.retain(|waiter| !waiter.grant.is_closed());
            let place = queue.iter().position(|waiter| waiter.share.fits(waiter.bytes, purpose));
            if let Some(waiter) = place.and_then(|place| queue.remove(place)) {
                let charge = waiter.share.charge(waiter.bytes);
                return Some((waiter, charge));
            }
        }
        if state.is_reserve_given {
            return None;
        }
        let places = 0..state.growing.len();
        let place = places.min_by_key(|place| state.growing[*place].share.used.load(Ordering::Relaxed))?;
        let waiter = state.growing.remove(place)?;
        state.is_reserve_given = true;
        state.reserve += waiter.bytes;
        waiter.share.used.fetch_add(waiter.bytes, Ordering::Relaxed);
        let (share, reserve) = (waiter.share.clone(), waiter.bytes);
        Some((waiter, Charge { share, shared: 0, reserve, holds_reserve: true }))
    }
}

impl MemoryShare {
    /// True if more than half of all memory is in use, so that no buffers are kept in advance.
    pub(super) fn is_tight(&self) -> bool {
        let pool = &self.memory.0;
        pool.shared.load(Ordering::Relaxed) > pool.shared_max / 2
    }

    /// Takes memory for faster reads, if more than half stays free.
    pub(super) fn take_ahead(&self, bytes: usize) -> Option<Charge> {
        let pool = &self.memory.0;
        let _state = pool.state.lock();
        pool.fits(bytes, pool.shared_max / 2).then(|| self.charge(bytes))
    }

    /// Takes memory if there is enough, and no connection within its holder's limit has waited longer.
    pub(super) fn try_take(&self, bytes: usize, purpose: Purpose) -> Option<Charge> {
        let mut state = self.memory.0.state.lock();
        let is_first = !state.queue(purpose).iter().any(|waiter| waiter.share.fits(waiter.bytes, purpose));
        (is_first && self.fits(bytes, purpose)).then(|| self.charge(bytes))
    }

    /// Takes memory, in order of arrival among the connections within their holders' limits.
    pub(super) async fn take(&self, bytes: usize, purpose: Purpose) -> Charge {
        let (grant, granted) = oneshot::channel();
        let waiter = Waiter { bytes, share: self.clone(), grant };
        self.memory.0.state.lock().queue(purpose).push_back(waiter);
        let _waiting = WaitGuard::begin(&self.memory.0);
        self.memory.grant();
        granted.await.expect("a waiter stays in its queue until it is granted or gone")
    }

    /// True if there is so much memory, and the holder may have it.
    fn fits(&self, bytes: usize, purpose: Purpose) -> bool {
        let pool = &self.memory.0;
        if !pool.fits(bytes, pool.max(purpose)) {
            return false;
        }
        purpose == Purpose::Begin || self.is_within_limit(bytes)
    }

    /// True if the holder would use no more than is free for growth with so many bytes more.
    fn is_within_limit(&self, more: usize) -> bool {
        let pool = &self.memory.0;
        let free = pool.growth_max.saturating_sub(pool.shared.load(Ordering::Relaxed) + more);
        self.used.load(Ordering::Relaxed) + more <= free
    }

    /// Must be called under the lock.
    fn charge(&self, bytes: usize) -> Charge {
        self.memory.0.shared.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { share: self.clone(), shared: bytes, reserve: 0, holds_reserve: false }
    }
}

impl State {
    fn queue(&mut self, purpose: Purpose) -> &mut VecDeque<Waiter> {
        match purpose {
            Purpose::Begin => &mut self.beginning,
            Purpose::Grow => &mut self.growing,
        }
    }
}

impl Pool {
    fn max(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Begin => self.shared_max,
            Purpose::Grow => self.growth_max,
        }
    }

    fn fits(&self, bytes: usize, max: usize) -> bool {
        self.shared.load(Ordering::Relaxed).saturating_add(bytes) <= max
    }
}

/// Counts a connection as waiting.
struct WaitGuard<'a>(&'a Pool);

impl<'a> WaitGuard<'a> {
    fn begin(pool: &'a Pool) -> Self {
        pool.waiting.fetch_add(1, Ordering::Relaxed);
        Self(pool)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory in use, released when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    share: MemoryShare,
    shared: usize,
    reserve: usize,
    holds_reserve: bool,
}

impl Charge {
    /// Number of charged bytes.
    pub(super) fn bytes(&self) -> usize {
        self.shared + self.reserve
    }

    /// True if the charge belongs to the one frame with the reserve.
    pub(super) fn holds_reserve(&self) -> bool {
        self.holds_reserve
    }

    /// Extends the charge, if there is enough memory. The frame with the reserve always succeeds.
    pub(super) fn try_grow(&mut self, bytes: usize) -> bool {
        if self.holds_reserve {
            self.share.memory.0.state.lock().reserve += bytes;
            self.share.used.fetch_add(bytes, Ordering::Relaxed);
            self.reserve += bytes;
            return true;
        }
        let more = self.share.try_take(bytes, Purpose::Grow);
        more.map(|more| self.absorb(more)).is_some()
    }

    /// Waits for an extension of the charge.
    pub(super) async fn grow(&mut self, bytes: usize) {
        let more = self.share.take(bytes, Purpose::Grow).await;
        self.absorb(more);
    }

    /// Merges another charge of the same holder into this one.
    fn absorb(&mut self, mut more: Charge) {
        self.shared += std::mem::take(&mut more.shared);
        self.reserve += std::mem::take(&mut more.reserve);
        self.holds_reserve |= std::mem::take(&mut more.holds_reserve);
    }

    /// Releases the shared memory beyond `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let shared = self.shared.saturating_sub(bytes);
        drop(Charge { share: self.share.clone(), shared, reserve: 0, holds_reserve: false });
        self.shared -= shared;
    }

    /// True if a frame is too slow to keep memory that other connections wait for. `received` bytes arrived
    /// within `elapsed`, and none in the last `quiet`.
    pub(super) fn is_too_slow(&self, received: usize, elapsed: Duration, quiet: Duration) -> bool {
        if !self.share.memory.is_short() {
            return false;
        }
        let is_pressed = self.holds_reserve || !self.share.is_within_limit(0);
        let (pace, stall) = if is_pressed { (RESERVE_PACE, RESERVE_STALL) } else { (PACE, STALL) };
        let due = elapsed.saturating_sub(GRACE).as_secs().saturating_mul(pace);
        quiet >= stall || (received as u64) < due
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes() == 0 && !self.holds_reserve {
            return;
        }
        let memory = &self.share.memory;
        {
            let mut state = memory.0.state.lock();
            memory.0.shared.fetch_sub(self.shared, Ordering::Relaxed);
            self.share.used.fetch_sub(self.bytes(), Ordering::Relaxed);
            state.reserve -= self.reserve;
            if self.holds_reserve {
                state.is_reserve_given = false;
            }
        }
        if memory.is_short() {
            memory.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 100;

    fn share_of(memory: &FrameMemory, address: u8) -> MemoryShare {
        memory.share(&Holder::Network([127, 0, 0, address].into()))
    }

    #[tokio::test]
    async fn a_holder_that_takes_all_it_can_leaves_room_for_others() {
        let memory = FrameMemory::new(100 * FRAME, FRAME);
        let greedy: Vec<MemoryShare> = (1..=3).map(|address| share_of(&memory, address)).collect();
        let mut held = Vec::new();
        while let Some(charge) = greedy.iter().find_map(|share| share.try_take(FRAME / 4, Purpose::Grow)) {
            held.push(charge);
        }
        // They wait for more, and one of them has the reserve.
        let mut waiting: Vec<_> =
            greedy.iter().map(|share| Box::pin(share.take(FRAME, Purpose::Grow))).collect();
        let reserved: Vec<Charge> =
            waiting.iter_mut().filter_map(|waiting| polled(waiting.as_mut())).collect();
        assert!(reserved.len() == 1 && reserved[0].holds_reserve());
        let other = share_of(&memory, 100);
        let own: Vec<Charge> = (0..4).map_while(|_| other.try_take(FRAME / 4, Purpose::Grow)).collect();
        assert_eq!(own.len(), 4);
        // The next reserve is for the holder with the least.
        let more = tokio::spawn({
            let other = other.clone();
            async move { other.take(50 * FRAME, Purpose::Grow).await }
        });
        tokio::task::yield_now().await;
        assert!(!more.is_finished());
        drop(reserved);
        assert!(more.await.expect("it is granted").holds_reserve());
        drop((held, own, waiting));
        assert_eq!(memory.used(), 0);
    }

    /// Polls a future once, and returns its result if it is complete.
    fn polled<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn one_frame_at_a_time_is_completed_from_the_reserve() {
        let memory = FrameMemory::new(4 * FRAME, FRAME);
        let share = share_of(&memory, 1);
        let mut half: Vec<Charge> = Vec::new();
        while let Some(charge) = share.try_take(FRAME / 2, Purpose::Grow) {
            half.push(charge);
        }
        assert!(memory.used() <= 3 * FRAME && memory.used() >= FRAME, "{}", memory.used());
        assert!(share.try_take(FRAME / 4, Purpose::Begin).is_some(), "others can begin");
        let mut first = half.remove(0);
        assert!(!first.try_grow(FRAME / 2));
        first.grow(FRAME / 2).await;
        assert!(first.holds_reserve() && memory.used() <= 4 * FRAME);
        let second = tokio::spawn({
            let share = share.clone();
            async move { share.take(FRAME / 2, Purpose::Grow).await }
        });
        tokio::task::yield_now().await;
        assert!(memory.is_short() && !second.is_finished());
        drop(first);
        let second = second.await.expect("it is granted");
        drop((half, second));
        assert_eq!(memory.used(), 0);
        assert!(!memory.is_short());
    }

    #[tokio::test]
    async fn waiters_that_are_gone_take_nothing() {
        let memory = FrameMemory::new(4 * FRAME, FRAME);
        let share = share_of(&memory, 1);
        let all = share.try_take(3 * FRAME, Purpose::Begin).expect("there is room");
        let gone = tokio::time::timeout(Duration::from_millis(1), share.take(FRAME, Purpose::Begin)).await;
        assert!(gone.is_err());
        let next = tokio::spawn({
            let share = share.clone();
            async move { share.take(FRAME, Purpose::Begin).await }
        });
        tokio::task::yield_now().await;
        drop(all);
        assert_eq!(next.await.expect("it is granted").bytes(), FRAME);
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_frames_lose_their_memory_only_to_others() {
        let memory = FrameMemory::new(4 * FRAME, FRAME);
        let share = share_of(&memory, 1);
        let frame = share.try_take(FRAME, Purpose::Grow).expect("there is room");
        let (long, not) = (Duration::from_secs(3600), Duration::ZERO);
        assert!(!frame.is_too_slow(1, long, long), "no other connection wants it");
        let _waiting = WaitGuard::begin(&memory.0);
        assert!(frame.is_too_slow(1, long, not) && frame.is_too_slow(FRAME, STALL, STALL));
        assert!(!frame.is_too_slow(1, GRACE, not), "it has a while to arrive");
        assert!(!frame.is_too_slow(usize::MAX, long, not));
    }
}
