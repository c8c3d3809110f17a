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

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Fraction of the budget that growing buffers leave free.
const SMALL_SHARE: usize = 4;
/// Maximum time without a byte of a frame while other connections wait for memory; below, for the frame with
/// the reserve.
const STALL: Duration = Duration::from_secs(10);
const RESERVE_STALL: Duration = Duration::from_secs(3);
/// Time for a frame of any size before its pace counts.
const GRACE: Duration = Duration::from_secs(10);
/// Minimum bytes of a frame per second after that time.
const PACE: u64 = 64 * 1024;
/// Like [`PACE`], for the one frame with the reserve.
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
}

#[derive(Debug)]
struct Waiter {
    bytes: usize,
    grant: oneshot::Sender<Charge>,
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
    pub(super) fn is_short(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// True if more than half is in use, so that no buffers are kept in advance.
    pub(super) fn is_tight(&self) -> bool {
        self.0.shared.load(Ordering::Relaxed) > self.0.shared_max / 2
    }

    /// Takes memory for faster reads, if more than half stays free.
    pub(super) fn take_ahead(&self, bytes: usize) -> Option<Charge> {
        let _state = self.0.state.lock();
        self.0.fits(bytes, self.0.shared_max / 2).then(|| self.charge(bytes))
    }

    /// Takes memory if there is enough and no other connection has waited longer.
    pub(super) fn try_take(&self, bytes: usize, purpose: Purpose) -> Option<Charge> {
        let mut state = self.0.state.lock();
        let fits = state.queue(purpose).is_empty() && self.0.fits(bytes, self.0.max(purpose));
        fits.then(|| self.charge(bytes))
    }

    /// Takes memory, in order of arrival.
    pub(super) async fn take(&self, bytes: usize, purpose: Purpose) -> Charge {
        let (grant, granted) = oneshot::channel();
        self.0.state.lock().queue(purpose).push_back(Waiter { bytes, grant });
        let _waiting = WaitGuard::begin(&self.0);
        self.grant();
        granted.await.expect("a waiter stays in its queue until it is granted or gone")
    }

    /// Must be called under the lock.
    fn charge(&self, bytes: usize) -> Charge {
        self.0.shared.fetch_add(bytes, Ordering::Relaxed);
        Charge { memory: self.clone(), shared: bytes, reserve: 0, holds_reserve: false }
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
            while queue.front().is_some_and(|waiter| waiter.grant.is_closed()) {
                queue.pop_front();
            }
            let fits = |waiter: &Waiter| self.0.fits(waiter.bytes, self.0.max(purpose));
            if queue.front().is_some_and(fits) {
                let waiter = queue.pop_front()?;
                let charge = self.charge(waiter.bytes);
                return Some((waiter, charge));
            }
        }
        if state.is_reserve_given {
            return None;
        }
        let waiter = state.growing.pop_front()?;
        state.is_reserve_given = true;
        state.reserve += waiter.bytes;
        let reserve = waiter.bytes;
        let charge = Charge { memory: self.clone(), shared: 0, reserve, holds_reserve: true };
        Some((waiter, charge))
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
    memory: FrameMemory,
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
            self.memory.0.state.lock().reserve += bytes;
            self.reserve += bytes;
            return true;
        }
        let more = self.memory.try_take(bytes, Purpose::Grow);
        more.map(|more| self.absorb(more)).is_some()
    }

    /// Merges another charge into this one.
    pub(super) fn absorb(&mut self, mut more: Charge) {
        self.shared += std::mem::take(&mut more.shared);
        self.reserve += std::mem::take(&mut more.reserve);
        self.holds_reserve |= std::mem::take(&mut more.holds_reserve);
    }

    /// Releases the shared memory beyond `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let shared = self.shared.saturating_sub(bytes);
        drop(Charge { memory: self.memory.clone(), shared, reserve: 0, holds_reserve: false });
        self.shared -= shared;
    }

    /// True if a frame is too slow to keep memory that other connections wait for. `received` bytes arrived
    /// within `elapsed`, and none in the last `quiet`.
    pub(super) fn is_too_slow(&self, received: usize, elapsed: Duration, quiet: Duration) -> bool {
        if !self.memory.is_short() {
            return false;
        }
        let (pace, stall) = if self.holds_reserve { (RESERVE_PACE, RESERVE_STALL) } else { (PACE, STALL) };
        let due = elapsed.saturating_sub(GRACE).as_secs().saturating_mul(pace);
        quiet >= stall || (received as u64) < due
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes() == 0 && !self.holds_reserve {
            return;
        }
        {
            let mut state = self.memory.0.state.lock();
            self.memory.0.shared.fetch_sub(self.shared, Ordering::Relaxed);
            state.reserve -= self.reserve;
            if self.holds_reserve {
                state.is_reserve_given = false;
            }
        }
        if self.memory.is_short() {
            self.memory.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 100;

    #[tokio::test]
    async fn one_frame_at_a_time_is_completed_from_the_reserve() {
        let memory = FrameMemory::new(4 * FRAME, FRAME);
        let mut half: Vec<Charge> = Vec::new();
        while let Some(charge) = memory.try_take(FRAME / 2, Purpose::Grow) {
            half.push(charge);
        }
        assert!(memory.used() <= 3 * FRAME && memory.used() >= 2 * FRAME, "{}", memory.used());
        assert!(memory.try_take(FRAME / 4, Purpose::Begin).is_some(), "others can begin");
        let mut first = half.remove(0);
        assert!(!first.try_grow(FRAME / 2));
        first.absorb(memory.take(FRAME / 2, Purpose::Grow).await);
        assert!(first.holds_reserve() && memory.used() <= 4 * FRAME);
        let second = tokio::spawn({
            let memory = memory.clone();
            async move { memory.take(FRAME / 2, Purpose::Grow).await }
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
        let all = memory.try_take(3 * FRAME, Purpose::Begin).expect("there is room");
        let gone = tokio::time::timeout(Duration::from_millis(1), memory.take(FRAME, Purpose::Begin)).await;
        assert!(gone.is_err());
        let next = tokio::spawn({
            let memory = memory.clone();
            async move { memory.take(FRAME, Purpose::Begin).await }
        });
        tokio::task::yield_now().await;
        drop(all);
        assert_eq!(next.await.expect("it is granted").bytes(), FRAME);
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_frames_lose_their_memory_only_to_others() {
        let memory = FrameMemory::new(4 * FRAME, FRAME);
        let frame = memory.try_take(2 * FRAME, Purpose::Grow).expect("there is room");
        let (long, not) = (Duration::from_secs(3600), Duration::ZERO);
        assert!(!frame.is_too_slow(1, long, long), "no other connection wants it");
        let _waiting = WaitGuard::begin(&memory.0);
        assert!(frame.is_too_slow(1, long, not) && frame.is_too_slow(FRAME, STALL, STALL));
        assert!(!frame.is_too_slow(1, GRACE, not), "it has a while to arrive");
        assert!(!frame.is_too_slow(usize::MAX, long, not));
    }
}
