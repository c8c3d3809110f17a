//! The processor time and memory of all searches in a process with other work, such as a broker.
//!
//! - **Turns.** Searches compute on low-priority threads, and only during a turn: there are half as many
//!   turns as processors, and one per principal. A turn is short, and ends early if the search waits for its
//!   reader.
//! - **Memory.** A batch of a few kilobytes may decompress to 100 MiB. Each search decompresses batches up to
//!   [`OPENED_BYTES`]; for batches up to [`OPENED_BYTES_MAX`] there are [`LARGE`] places, one per principal.
//! - **Fetched bytes.** A broker sends the first batch of an answer whole, whatever its size, and several
//!   answers of a search wait for its scan. The answers of all searches have [`FETCHED_BYTES`] together, and
//!   those of one principal [`FETCHED_BYTES_OF_ONE`]; a larger answer takes the whole share of its principal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_client::{AnswerBudget, AnswerPlace, AnswerPlaceFuture};
use thalweg_places::{FairPermit, FairSemaphore};
use thalweg_stream::expression::{Expression, NoExpression};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::filter::Filter;

/// Duration of a turn.
const TURN: Duration = Duration::from_millis(20);
/// Maximum decompressed bytes of a batch in any search.
pub const OPENED_BYTES: usize = 4 << 20;
/// Maximum decompressed bytes of a batch in a search with a place for large batches.
pub const OPENED_BYTES_MAX: usize = 64 << 20;
/// Maximum concurrent searches with a large batch.
const LARGE: usize = 2;
/// Maximum wait for a large-batch place.
const LARGE_PATIENCE: Duration = Duration::from_secs(2);
/// The limits of large batches, for error messages.
pub const LARGE_RULE: &str = "batches that open to more than 4 MiB are searched by two principals at once, and none to more than 64 MiB";
/// Maximum bytes of the answers of all searches, and of one principal, without the excess of an answer that
/// is larger than a share.
const FETCHED_BYTES: usize = 64 << 20;
const FETCHED_BYTES_OF_ONE: usize = 32 << 20;
/// Bytes of a place in the budget of fetched bytes.
const FETCHED_UNIT: usize = 1 << 10;
/// The limits of fetched bytes, for error messages.
pub const FETCHED_RULE: &str = "its next records are large, and other searches hold the memory for them (64 MiB, 32 MiB of one user): try again in a moment";
/// The lowest priority on Linux.
const NICE: i32 = 19;

/// The capacity shared by all searches.
#[derive(Debug)]
pub struct Capacity {
    turns: FairSemaphore<Arc<str>>,
    large: FairSemaphore<Arc<str>>,
    fetched: FairSemaphore<Arc<str>>,
}

/// A principal's access to the capacity.
#[derive(Clone, Debug)]
pub struct PrincipalCapacity {
    capacity: Arc<Capacity>,
    principal: Arc<str>,
}

impl Default for Capacity {
    /// Leaves half of the processors, and most of the memory, to the broker on this machine.
    fn default() -> Capacity {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Capacity::with_turns((processors / 2).max(1))
    }
}

impl Capacity {
    fn with_turns(turns: usize) -> Capacity {
        let fetched = FairSemaphore::new(FETCHED_BYTES / FETCHED_UNIT, FETCHED_BYTES_OF_ONE / FETCHED_UNIT);
        Capacity { turns: FairSemaphore::new(turns, 1), large: FairSemaphore::new(LARGE, 1), fetched }
    }
}

impl PrincipalCapacity {
    /// The share of a principal.
    pub fn new(capacity: &Arc<Capacity>, principal: &Arc<str>) -> PrincipalCapacity {
        PrincipalCapacity { capacity: Arc::clone(capacity), principal: Arc::clone(principal) }
    }

    /// Compiles an expression within a turn, because deep expressions and long patterns take time.
    pub async fn filter(&self, text: &str) -> Result<Filter, NoExpression> {
        let (to, compiled) = oneshot::channel();
        let (text, turn) = (text.to_owned(), self.capacity.turns.take(&self.principal).await);
        let compile = move || {
            lower_priority();
            // The caller may have been cancelled.
            let _ = to.send(Expression::compile(&text));
            drop(turn);
        };
        let thread = std::thread::Builder::new().name("browse-compile".to_owned());
        let thread = thread.stack_size(thalweg_stream::STACK_BYTES).spawn(compile);
        thread.map_err(|error| format!("no thread could be started to compile it: {error}"))?;
        let expression = compiled.await.map_err(|_| "its compilation was aborted")??;
        Ok(Filter { expression: Some(Arc::new(expression)), ..Filter::default() })
    }

    /// Waits for a place to decompress a large batch, for a short time.
    pub fn large(&self, runtime: &Handle) -> Option<FairPermit> {
        let place = self.capacity.large.take(&self.principal);
        runtime.block_on(async { tokio::time::timeout(LARGE_PATIENCE, place).await }).ok()
    }

    /// The user whose searches these shares are for.
    pub fn principal(&self) -> &Arc<str> {
        &self.principal
    }

    /// The turns of one thread, initially without a turn.
    pub fn turns(&self, runtime: Handle) -> Turns {
        Turns { share: self.clone(), runtime, place: None, until: Instant::now() }
    }
}

/// The budget of the fetched answers of one search.
#[derive(Debug)]
pub struct FetchedBytes {
    share: PrincipalCapacity,
    /// The number of answers that wait for a place.
    waiting: Arc<AtomicUsize>,
}

impl FetchedBytes {
    /// The budget of a search within a share.
    pub fn of(share: &PrincipalCapacity) -> Arc<FetchedBytes> {
        Arc::new(FetchedBytes { share: share.clone(), waiting: Arc::default() })
    }

    /// True if an answer waits for a place.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl AnswerBudget for FetchedBytes {
    fn place(&self, bytes: usize) -> AnswerPlaceFuture {
        let (share, waiting) = (self.share.clone(), WaitingAnswer::new(&self.waiting));
        Box::pin(async move {
            let count = bytes.div_ceil(FETCHED_UNIT);
            let place = share.capacity.fetched.take_many(&share.principal, count).await;
            drop(waiting);
            Box::new(place) as AnswerPlace
        })
    }
}

/// An answer that waits for a place.
struct WaitingAnswer(Arc<AtomicUsize>);

impl WaitingAnswer {
    fn new(count: &Arc<AtomicUsize>) -> WaitingAnswer {
        count.fetch_add(1, Ordering::Relaxed);
        WaitingAnswer(Arc::clone(count))
    }
}

impl Drop for WaitingAnswer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turns of a scanning thread, which must not be a runtime thread.
pub struct Turns {
    share: PrincipalCapacity,
    runtime: Handle,
    place: Option<FairPermit>,
    until: Instant,
}

impl Turns {
    /// Waits for a turn, unless the current turn has time left.
    pub fn take(&mut self) {
        if self.place.is_some() && Instant::now() < self.until {
            return;
        }
        self.give_up();
        self.place = Some(self.runtime.block_on(self.share.capacity.turns.take(&self.share.principal)));
        self.until = Instant::now() + TURN;
    }

    /// Gives up the turn.
    pub fn give_up(&mut self) {
        self.place = None;
    }
}

/// Gives this thread, and threads started by it, the lowest priority.
pub fn lower_priority() {
    // On other systems, `nice` applies to the whole process.
    if cfg!(target_os = "linux") {
        // If `nice` fails, the scheduler only preempts a search later.
        let _ = rustix::process::nice(NICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[test]
    fn threads_of_one_principal_have_one_turn_and_leave_one_to_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let capacity = Arc::new(Capacity::with_turns(2));
        let [eve, ann] = ["eve", "ann"].map(|name| PrincipalCapacity::new(&capacity, &Arc::from(name)));
        let (with_turn, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (is_over, laps) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 4]);
        std::thread::scope(|scope| {
            for laps in &laps {
                let mut turns = eve.turns(runtime.handle().clone());
                let (with_turn, most, is_over) = (&with_turn, &most, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::SeqCst) {
                        turns.take();
                        most.fetch_max(with_turn.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        laps.fetch_add(1, Ordering::SeqCst);
                        with_turn.fetch_sub(1, Ordering::SeqCst);
                    }
                    turns.give_up();
                });
            }
            let mut turns = ann.turns(runtime.handle().clone());
            (0..3).for_each(|_| {
                turns.take();
                turns.give_up();
            });
            while laps.iter().any(|laps| laps.load(Ordering::SeqCst) < 2) {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        assert_eq!(most.into_inner(), 1, "threads of eve that had a turn at once");
    }

    #[test]
    fn one_principal_opens_one_large_batch_at_a_time() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let (runtime, capacity) = (runtime.expect("a runtime"), Arc::new(Capacity::default()));
        let [eve, ann] = ["eve", "ann"].map(|name| PrincipalCapacity::new(&capacity, &Arc::from(name)));
        let held = eve.large(runtime.handle()).expect("the first");
        assert!(eve.large(runtime.handle()).is_none());
        assert!(ann.large(runtime.handle()).is_some());
        drop(held);
        assert!(eve.large(runtime.handle()).is_some());
    }

    #[tokio::test]
    async fn a_large_answer_takes_the_share_of_its_principal_and_leaves_that_of_another() {
        let capacity = Arc::new(Capacity::default());
        let [eve, ann] = ["eve", "ann"].map(|name| PrincipalCapacity::new(&capacity, &Arc::from(name)));
        let (first, second, third) = (FetchedBytes::of(&eve), FetchedBytes::of(&eve), FetchedBytes::of(&ann));
        let held = first.place(100 << 20).await;
        let soon = Duration::from_millis(20);
        let mut waiting = second.place(1 << 20);
        assert!(tokio::time::timeout(soon, &mut waiting).await.is_err());
        assert!(second.is_awaited() && !first.is_awaited());
        let of_ann = tokio::time::timeout(soon, third.place(100 << 20)).await;
        assert!(of_ann.is_ok(), "the other half is free");
        drop(held);
        waiting.await;
        assert!(!second.is_awaited());
    }
}
