//! Pending waits and repeated failures of a tool's clients, for a user who would otherwise see a silent
//! terminal.
//!
//! Connections, requests and retries report here, if the connection's options ask for it. The reports are
//! only kept: the tool decides when to print them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_wire::ApiKey;
use tokio::time::Instant;

/// A failure without a repetition for this long is over. Retries pause for less.
const FAILURE_AGE: Duration = Duration::from_secs(4);
/// Maximum number of subjects whose failures are kept.
const FAILURES_MAX: usize = 64;

/// Reports of waits and failures. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    pending: BTreeMap<u64, PendingWait>,
    next: u64,
    failures: BTreeMap<String, Failure>,
}

#[derive(Debug)]
struct PendingWait {
    what: WaitSubject,
    since: Instant,
}

#[derive(Debug)]
enum WaitSubject {
    Connection(Arc<str>),
    Answer(Arc<str>, ApiKey),
}

#[derive(Debug)]
struct Failure {
    text: String,
    first: Instant,
    last: Instant,
}

/// A tool's message about a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReport {
    /// A pending event, in a form that follows "waiting for".
    Pending(String),
    /// The last error of a repeated failure that is being retried.
    Failing(String),
}

/// A wait that lasts until this value is dropped.
#[derive(Debug)]
pub struct Wait {
    waits: Waits,
    number: u64,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waits.0.lock().pending.remove(&self.number);
    }
}

impl Waits {
    /// A wait or a repeated failure that has lasted for at least `patience`.
    pub fn longer_than(&self, patience: Duration) -> Option<WaitReport> {
        let now = Instant::now();
        let state = self.0.lock();
        if let Some(failure) = state.failure(now, patience) {
            return Some(WaitReport::Failing(failure.text.clone()));
        }
        let pending = state.pending.values().filter(|pending| pending.since + patience <= now);
        let oldest = pending.min_by_key(|pending| pending.since)?;
        Some(WaitReport::Pending(match &oldest.what {
            WaitSubject::Connection(peer) => format!("a connection to {peer}"),
            WaitSubject::Answer(peer, ApiKey::JoinGroup) => {
                format!("the other members of the group to join (JoinGroup at {peer})")
            }
            WaitSubject::Answer(peer, api) => format!("{peer} to answer {api:?}"),
        }))
    }

    /// The failure that causes waits, if there is one.
    pub fn trouble(&self) -> Option<String> {
        self.0.lock().failure(Instant::now(), Duration::ZERO).map(|failure| failure.text.clone())
    }

    /// Begins a wait for a connection.
    pub fn connection(&self, peer: &str) -> Wait {
        self.begin(WaitSubject::Connection(peer.into()), Duration::ZERO)
    }

    /// Begins a wait for an answer that the broker may delay by `held`.
    pub(crate) fn answer(&self, peer: &Arc<str>, api: ApiKey, held: Duration) -> Wait {
        self.begin(WaitSubject::Answer(Arc::clone(peer), api), held)
    }

    fn begin(&self, what: WaitSubject, held: Duration) -> Wait {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        state.pending.insert(number, PendingWait { what, since: Instant::now() + held });
        Wait { waits: self.clone(), number }
    }

    /// Records a failure of `subject` that is being retried.
    pub(crate) fn failed(&self, subject: &str, error: &impl ToString) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.failures.retain(|_, failure| failure.last + FAILURE_AGE > now);
        let text = error.to_string();
        let has_room = state.failures.len() < FAILURES_MAX;
        match state.failures.get_mut(subject) {
            Some(failure) => (failure.text, failure.last) = (text, now),
            None if has_room => {
                state.failures.insert(subject.to_owned(), Failure { text, first: now, last: now });
            }
            None => {}
        }
    }

    /// Records that `subject` works.
    pub(crate) fn succeeded(&self, subject: &str) {
        self.0.lock().failures.remove(subject);
    }
}

impl State {
    /// The oldest failure that is not over and began at least `patience` ago.
    fn failure(&self, now: Instant, patience: Duration) -> Option<&Failure> {
        let lasting = self.failures.values().filter(|failure| {
            // A failure without a repetition, such as the end of an idle connection, causes no wait.
            failure.first + patience <= now
                && failure.last + FAILURE_AGE > now
                && failure.last > failure.first
        });
        lasting.min_by_key(|failure| failure.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_named_and_what_is_held_back_is_not() {
        let waits = Waits::default();
        let peer: Arc<str> = "b:1".into();
        let metadata = waits.answer(&peer, ApiKey::Metadata, Duration::ZERO);
        let _fetch = waits.answer(&peer, ApiKey::Fetch, 5 * SECOND);
        tokio::time::advance(SECOND).await;
        assert_eq!(waits.longer_than(2 * SECOND), None);
        tokio::time::advance(SECOND).await;
        let pending = |text: &str| Some(WaitReport::Pending(text.to_owned()));
        assert_eq!(waits.longer_than(2 * SECOND), pending("b:1 to answer Metadata"));
        drop(metadata);
        assert_eq!(waits.longer_than(2 * SECOND), None);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(waits.longer_than(2 * SECOND), pending("b:1 to answer Fetch"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_count_while_they_are_repeated() {
        let waits = Waits::default();
        waits.failed("b:1", &"no route");
        tokio::time::advance(SECOND).await;
        assert_eq!(
            (waits.trouble(), waits.longer_than(SECOND)),
            (None, None),
            "it may have been the last one"
        );
        waits.failed("b:1", &"refused");
        assert_eq!(waits.longer_than(SECOND), Some(WaitReport::Failing("refused".to_owned())));
        waits.failed("b:2", &"later");
        assert_eq!(waits.trouble().as_deref(), Some("refused"));
        waits.succeeded("b:1");
        assert_eq!(waits.trouble(), None);
        waits.failed("b:2", &"later");
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(waits.trouble(), None, "it is over");
    }
}
