//! A progress bar below the lines of a tool, on standard error if it is a terminal.
//!
//! The run stores a count, which costs almost nothing; a separate task reads it a few times per second and
//! draws.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The redraw interval.
const DRAW: Duration = Duration::from_millis(250);
const TEMPLATE: &str = "[{bar:14}] {human_pos} of {human_len} records{pace}";

/// The number of finished records.
#[derive(Clone, Debug, Default)]
pub(super) struct DoneCount(Arc<AtomicU64>);

impl DoneCount {
    pub(super) fn set(&self, records: u64) {
        self.0.store(records, Ordering::Relaxed);
    }

    pub(super) fn add(&self, records: u64) {
        self.0.fetch_add(records, Ordering::Relaxed);
    }
}

/// A bar, drawn until it is dropped and then erased.
#[derive(Debug)]
pub(super) struct Bar {
    bar: ProgressBar,
    drawing: JoinHandle<()>,
}

impl Bar {
    /// Shows progress out of `total` records, unless `bars` are hidden.
    pub(super) fn show(bars: &MultiProgress, total: u64, done: DoneCount) -> Option<Bar> {
        if bars.is_hidden() {
            return None;
        }
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is well formed");
        let style = style.with_key("pace", pace).progress_chars("=> ");
        let bar = bars.add(ProgressBar::new(total).with_style(style));
        let drawn = bar.clone();
        let drawing = tokio::spawn(async move {
            // A run that ends immediately shows no bar.
            let mut ticks = tokio::time::interval_at(Instant::now() + DRAW, DRAW);
            loop {
                ticks.tick().await;
                drawn.set_position(done.0.load(Ordering::Relaxed).min(total));
                drawn.tick();
            }
        });
        Some(Bar { bar, drawing })
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.drawing.abort();
        self.bar.finish_and_clear();
    }
}

/// Rate and remaining time, once they can be estimated.
fn pace(state: &ProgressState, to: &mut dyn Write) {
    if state.pos() > 0 {
        let (rate, left) = (HumanCount(state.per_sec() as u64), HumanDuration(state.eta()));
        // A failed write only delays the display.
        let _ = write!(to, ", {rate}/s, {left:#} left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::{InMemoryTerm, ProgressDrawTarget};

    #[tokio::test]
    async fn a_bar_shows_what_is_done_and_leaves_nothing_behind() {
        let terminal = InMemoryTerm::new(10, 120);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bars = MultiProgress::with_draw_target(target);
        let done = DoneCount::default();
        let bar = Bar::show(&bars, 4000, done.clone());
        tokio::time::sleep(DRAW / 2).await;
        assert_eq!(terminal.contents(), "", "not yet");
        tokio::time::sleep(DRAW).await;
        assert_eq!(terminal.contents(), format!("[{}] 0 of 4,000 records", " ".repeat(14)));
        done.set(500);
        done.add(500);
        tokio::time::sleep(DRAW).await;
        let shown = terminal.contents();
        assert!(shown.starts_with("[==="), "{shown}");
        assert!(shown.contains("] 1,000 of 4,000 records, ") && shown.ends_with(" left"), "{shown}");
        drop(bar);
        assert_eq!(terminal.contents(), "");
    }

    #[tokio::test]
    async fn nothing_is_drawn_where_there_is_no_terminal() {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        assert!(Bar::show(&bars, 1, DoneCount::default()).is_none());
    }
}
