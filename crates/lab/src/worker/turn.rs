//! The turn of a thread's producers, from the start command on: the same for all protocols.

use tokio::sync::watch;

use super::Assignment;
use super::clock::Clock;
use super::counts::Window;
use super::pace::Pace;
use super::threads::{Crew, Word};

/// Staggers clients of equal rate: the golden ratio's fraction spreads any number of them evenly.
const PHASE: f64 = 0.618_033_988_749_894_9;

/// The time and the pace of a thread's producers.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) window: Window,
    /// Number of clients of the thread.
    of_thread: u32,
    pub(super) word: watch::Receiver<Word>,
    pub(super) clock: Clock,
}

impl Turn {
    /// The turn of a crew with so many clients.
    pub(super) fn new(window: Window, of_thread: usize, crew: &Crew) -> Turn {
        let of_thread = u32::try_from(of_thread).unwrap_or(u32::MAX);
        Turn { window, of_thread, word: crew.word.clone(), clock: crew.clock }
    }

    /// The pace of a client, which has its share of the assignment's rate.
    pub(super) fn pace(&self, client: u32, assignment: &Assignment) -> Pace {
        let rate = assignment.records_per_s.map(|rate| rate / f64::from(assignment.clients.max(1)));
        let start = self.clock.instant(self.window.start_us);
        let phase = (f64::from(client) * PHASE).fract();
        Pace::new(rate, start, phase, self.of_thread)
    }
}
