//! The output of a perf tool.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::{MultiProgress, ProgressDrawTarget};

use super::bar::{Bar, DoneCount};

/// Standard output, or a replacement. Clones share it.
#[derive(Clone)]
pub struct PerfOutput {
    to: Arc<Mutex<Box<dyn Write + Send>>>,
    progress: Arc<Mutex<Option<Box<dyn Write + Send>>>>,
    /// Progress bars, hidden while a line is written.
    bars: MultiProgress,
}

impl std::fmt::Debug for PerfOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PerfOutput")
    }
}

impl PerfOutput {
    /// Results go to standard output. With `json`, the progress lines of Kafka's tools go to standard error
    /// if it is a terminal, and are otherwise dropped. `bars` are hidden unless standard error is a terminal.
    pub fn standard(json: bool, bars: MultiProgress) -> PerfOutput {
        let stderr = io::stderr();
        let progress: Option<Box<dyn Write + Send>> = match json {
            true if stderr.is_terminal() => Some(Box::new(stderr)),
            true => None,
            false => Some(Box::new(io::stdout())),
        };
        PerfOutput { to: shared(Box::new(io::stdout())), progress: Arc::new(Mutex::new(progress)), bars }
    }

    /// All lines go to `writer`; there are no bars.
    pub fn to(writer: impl Write + Send + Clone + 'static) -> PerfOutput {
        PerfOutput {
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

    /// Writes a progress line.
    pub fn progress(&self, line: &str) -> io::Result<()> {
        match &mut *lock(&self.progress) {
            Some(to) => self.bars.suspend(|| {
                writeln!(to, "{line}")?;
                to.flush()
            }),
            None => Ok(()),
        }
    }

    /// Shows progress out of `total` records on a terminal, as long as the returned bar exists.
    pub(super) fn bar(&self, total: u64, done: &DoneCount) -> Option<Bar> {
        Bar::show(&self.bars, total, done.clone())
    }
}

fn shared(writer: Box<dyn Write + Send>) -> Arc<Mutex<Box<dyn Write + Send>>> {
    Arc::new(Mutex::new(writer))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A partial line of a panicked thread does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
