//! The end of a worker's process, as the lab or an agent observes it. The agent of a worker on another
//! machine reports the end in a last line, in place of the worker.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// Maximum length of a line: a report contains histograms and ranges of sequences.
pub(crate) const LINE_BYTES_MAX: u64 = 1 << 30;
/// Number of lines of standard error kept for errors.
const STDERR_LINES_MAX: usize = 20;
/// Maximum time for a worker to exit after its last message.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without a line to a worker on another machine, after which the lab sends an empty one.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);
/// The beginning of an agent's last line, which no event has.
const ENDED: &[u8] = b"{\"ended\":";

/// The end of a worker's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerExit {
    /// The exit status, as text.
    pub(crate) status: String,
    /// The last lines on standard error.
    pub(crate) stderr: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    ended: WorkerExit,
}

impl WorkerExit {
    /// The agent's last line.
    pub(crate) fn line(self) -> Vec<u8> {
        let mut line = serde_json::to_vec(&Line { ended: self }).expect("strings are JSON");
        line.push(b'\n');
        line
    }

    /// The end that a line reports; `None` for a worker's event.
    pub(crate) fn of_line(line: &[u8]) -> Option<WorkerExit> {
        line.starts_with(ENDED)
            .then(|| serde_json::from_slice::<Line>(line).ok())
            .flatten()
            .map(|line| line.ended)
    }
}

/// An exit status as text.
pub(crate) fn status_in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with exit code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Keeps the last lines of standard error.
pub(crate) async fn keep_tail(stderr: tokio::process::ChildStderr, tail: Arc<Mutex<VecDeque<String>>>) {
    let mut input = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut input).take(64 << 10).read_until(b'\n', &mut line).await {
            Ok(bytes) if bytes > 0 => {}
            _ => return,
        }
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == STDERR_LINES_MAX {
            tail.pop_front();
        }
        tail.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_a_line_that_no_event_is() {
        let ended = WorkerExit { status: "by signal 9".to_owned(), stderr: vec!["one".to_owned()] };
        assert_eq!(WorkerExit::of_line(&ended.clone().line()), Some(ended));
        let failed = crate::worker::Event::Failed { error: "{\"ended\":".to_owned() };
        assert_eq!(WorkerExit::of_line(&serde_json::to_vec(&failed).expect("JSON")), None);
    }
}
