//! Retries of failed requests: whether, and after which pause. Pure.

use std::time::Duration;

use thalweg_wire::ErrorCode;
use tokio::time::Instant;

use crate::error::ClientError;

/// Retry backoff for CONCURRENT_TRANSACTIONS: the markers of the last transaction are usually written within
/// milliseconds.
pub const CONCURRENT_TRANSACTIONS_BACKOFF: Duration = Duration::from_millis(20);

/// `retry.backoff.max.ms` of Kafka's clients: the maximum pause.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// After this long without a failure, the pause is short again.
const QUIET: Duration = Duration::from_secs(10);

/// Pauses that grow from failure to failure, because thousands of clients may retry at the same broker.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// `retry.backoff.ms`.
    first: Duration,
    current: Duration,
    failed_at: Instant,
}

impl Backoff {
    pub fn new(first: Duration) -> Backoff {
        Backoff { first, current: first, failed_at: Instant::now() }
    }

    /// The pause after a failure.
    pub fn next_pause(&mut self) -> Duration {
        let now = Instant::now();
        if self.failed_at + QUIET < now {
            self.current = self.first;
        }
        self.failed_at = now;
        let pause = self.current;
        self.current = (2 * pause).min(BACKOFF_MAX.max(self.first));
        pause
    }
}

/// Backoff and time limit of a request's retries.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    backoff: Backoff,
    pub until: Instant,
    /// Error codes to retry although they are not retriable for other requests.
    pub also: &'static [ErrorCode],
}

impl Retry {
    /// Retries with this initial pause, for this time from now on.
    pub fn within(backoff: Duration, time: Duration) -> Retry {
        Retry { backoff: Backoff::new(backoff), until: Instant::now() + time, also: &[] }
    }

    /// The pause before the next attempt; `None` if the failure is final or no time is left.
    pub fn pause_after(&mut self, error: &ClientError) -> Option<Duration> {
        let code = error.error_code();
        let passes = error.is_retriable() || code.is_some_and(|code| self.also.contains(&code));
        let pause = backoff_after(self.backoff.next_pause(), code);
        (passes && Instant::now() + pause < self.until).then_some(pause)
    }
}

/// The pause after an error. `configured` is the usual pause.
pub fn backoff_after(configured: Duration, error_code: Option<ErrorCode>) -> Duration {
    match error_code {
        Some(ErrorCode::ConcurrentTransactions) => configured.min(CONCURRENT_TRANSACTIONS_BACKOFF),
        _ => configured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RefusedRequest;

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_passes_is_waited_out_while_there_is_time() {
        let refused = |error_code| {
            ClientError::from(RefusedRequest { what: "a request".to_owned(), error_code, message: None })
        };
        let mut retry = Retry::within(Duration::from_millis(100), Duration::from_secs(1));
        let pause =
            |retry: &mut Retry, code| retry.pause_after(&refused(code)).map(|pause| pause.as_millis());
        assert_eq!(pause(&mut retry, ErrorCode::CoordinatorLoadInProgress), Some(100));
        assert_eq!(pause(&mut retry, ErrorCode::ConcurrentTransactions), Some(20));
        assert_eq!(pause(&mut retry, ErrorCode::RebalanceInProgress), None);
        retry.also = &[ErrorCode::RebalanceInProgress];
        assert_eq!(pause(&mut retry, ErrorCode::RebalanceInProgress), Some(800));
        tokio::time::advance(Duration::from_millis(950)).await;
        assert_eq!(pause(&mut retry, ErrorCode::CoordinatorLoadInProgress), None);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_it_is_quiet_for_a_while() {
        let mut backoff = Backoff::new(Duration::from_millis(100));
        let pauses: Vec<u128> = (0..6).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(backoff.next_pause(), Duration::from_millis(100));
        let mut slow = Backoff::new(Duration::from_secs(5));
        assert_eq!((slow.next_pause(), slow.next_pause()), (Duration::from_secs(5), Duration::from_secs(5)));
    }
}
