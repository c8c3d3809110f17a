//! Where the lines of a perf tool go.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::{MultiProgress, ProgressDrawTarget};

use super::bar::{Bar, Done};

/// Standard output, or something in its place. Clones write to the same.
#[derive(Clone)]
pub struct Output {
    to: Arc<Mutex<Box<dyn Write + Send>>>,
    progress: Arc<Mutex<Option<Box<dyn Write + Send>>>>,
    /// Bars under the lines. They are taken away while a line is written.
    bars: MultiProgress,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}

impl Output {
    /// Results go to standard output. With `json`, the lines that Kafka's tools print on the way go to standard error,
    /// where that is a terminal, and nowhere else. `bars` are for standard error, and hidden where that is no terminal.
    pub fn standard(json: bool, bars: MultiProgress) -> Output {
        let stderr = io::stderr();
        let progress: Option<Box<dyn Write + Send>> = match json {
            true if stderr.is_terminal() => Some(Box::new(stderr)),
            true => None,
            false => Some(Box::new(io::stdout())),
        };
        Output { to: shared(Box::new(io::stdout())), progress: Arc::new(Mutex::new(progress)), bars }
    }

    /// All lines go to `writer`; there are no bars.
    pub fn to(writer: impl Write + Send + Clone + 'static) -> Output {
        Output {
            to: shared(Box::new(writer.clone())),
            progress: Arc::new(Mutex::new(Some(Box::new(writer)))),
            bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
        }
    }

    /// Writes a line of the result.
    pub fn result(&self, line: &str) -> io::Result<()> {
        let mut to = lock(&self.to);
        self.bars.suspend(|| {
            writeln!(to, "{line}")?;
            to.flush()
        })
    }

    /// Writes a line that tells how things go.
    pub fn progress(&self, line: &str) -> io::Result<()> {
        match &mut *lock(&self.progress) {
            Some(to) => self.bars.suspend(|| {
                writeln!(to, "{line}")?;
                to.flush()
            }),
            None => Ok(()),
        }
    }

    /// Shows how many of `total` records are done, on a terminal, for as long as the bar is kept.
    pub(super) fn bar(&self, total: u64, done: &Done) -> Option<Bar> {
        Bar::show(&self.bars, total, done.clone())
    }
}

fn shared(writer: Box<dyn Write + Send>) -> Arc<Mutex<Box<dyn Write + Send>>> {
    Arc::new(Mutex::new(writer))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A line half written by a thread that panicked does no harm to the next.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
