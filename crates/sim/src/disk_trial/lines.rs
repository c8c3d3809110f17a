//! The log lines of a trial's processes, in the trial's thread only.

use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, LazyLock};
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::fmt::MakeWriter;

/// The lines so far, and the start of the relevant ones.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<RecordedLines>>);

#[derive(Default)]
struct RecordedLines {
    bytes: Vec<u8>,
    begin: usize,
}

pub(super) struct Writer(Lines);

impl Lines {
    /// Records the lines of `work`, from INFO up.
    pub(super) fn record<T>(self, work: impl FnOnce() -> T) -> T {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .without_time()
            .with_ansi(false)
            .with_target(false)
            .with_writer(self)
            .finish();
        // With a single subscriber alive, a thread without a subscriber that reaches a log statement first
        // would disable that statement for all threads. With two subscribers, every thread's subscriber is
        // asked.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
        LazyLock::force(&SECOND);
        tracing::subscriber::with_default(subscriber, work)
    }

    /// Marks the start of the relevant lines.
    pub(super) fn begin(&self) {
        let mut recorded = self.0.lock();
        recorded.begin = recorded.bytes.len();
    }

    /// The relevant lines.
    pub(super) fn since_begin(&self) -> Vec<String> {
        let recorded = self.0.lock();
        let text = String::from_utf8_lossy(&recorded.bytes[recorded.begin..]);
        text.lines().map(str::to_owned).collect()
    }
}

/// True if a line is a warning or an error.
pub(super) fn is_warning(line: &str) -> bool {
    let level = line.split_whitespace().next();
    matches!(level, Some("WARN" | "ERROR"))
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Writer;

    fn make_writer(&self) -> Writer {
        Writer(self.clone())
    }
}
