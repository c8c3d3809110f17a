//! Logs slow writes and syncs: at most one line per minute, with the file, the duration, and the number of
//! slow calls.

use std::os::fd::AsRawFd;
use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The duration from which a call is slow. A write goes to the page cache at once, unless that is full of
/// unwritten pages.
const SLOW_WRITE: Duration = Duration::from_secs(1);
const SLOW_SYNC: Duration = Duration::from_secs(5);
/// Minimum interval between two lines.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// A call to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Write,
    Sync,
}

impl Operation {
    fn slow(self) -> Duration {
        match self {
            Operation::Write => SLOW_WRITE,
            Operation::Sync => SLOW_SYNC,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Sync => "sync",
        }
    }
}

/// Slow calls since the last line.
#[derive(Debug, Default)]
struct SlowCalls {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl SlowCalls {
    /// Counts a slow call. Returns the number since the last line, if another line is due.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self.logged_at.is_some_and(|at| now.duration_since(at) < LOGGED_EVERY) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

static SLOW_CALLS: LazyLock<Mutex<SlowCalls>> = LazyLock::new(Mutex::default);

/// Does work on a file, and logs it if it takes long.
pub(super) fn timed<T>(operation: Operation, file: &impl AsRawFd, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    let took = began.elapsed();
    if took >= operation.slow() {
        note(operation, file, took);
    }
    done
}

#[cold]
fn note(operation: Operation, file: &impl AsRawFd, took: Duration) {
    let Some(count) = SLOW_CALLS.lock().count(Instant::now()) else { return };
    // The system knows the name of an open file, so that no open file has to store its own.
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::warn!(
        path = %path.display(),
        operation = operation.name(),
        ms,
        count,
        "The disk is slow: see its use with iostat -x, and what else writes to it; requests wait meanwhile"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_counts_all() {
        let (mut calls, begin) = (SlowCalls::default(), Instant::now());
        assert_eq!(calls.count(begin), Some(1));
        for second in 1..=59 {
            assert_eq!(calls.count(begin + Duration::from_secs(second)), None);
        }
        assert_eq!(calls.count(begin + Duration::from_secs(60)), Some(60));
        assert_eq!(calls.count(begin + Duration::from_secs(61)), None);
        assert_eq!(calls.count(begin + Duration::from_secs(500)), Some(2));
    }
}
