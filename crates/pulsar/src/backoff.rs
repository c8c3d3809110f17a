//! Pauses between attempts.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::PulsarError;
use crate::options::ClientOptions;

/// Pauses that double from attempt to attempt, until a deadline.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
    deadline: Instant,
}

impl Backoff {
    /// Pauses for attempts within `time` from now on.
    pub(crate) fn within(time: Duration, options: &ClientOptions) -> Backoff {
        let ClientOptions { backoff_min, backoff_max, .. } = *options;
        Backoff { next: backoff_min, max: backoff_max.max(backoff_min), deadline: Instant::now() + time }
    }

    /// Repeats an attempt until it succeeds, fails for good, or no time is left.
    pub(crate) async fn repeat<F>(
        mut self,
        mut attempt: impl FnMut() -> F,
        is_retriable: fn(&PulsarError) -> bool,
    ) -> Result<(), PulsarError>
    where
        F: Future<Output = Result<(), PulsarError>>,
    {
        loop {
            let Err(error) = attempt().await else { return Ok(()) };
            if !is_retriable(&error) || !self.pause().await {
                return Err(error);
            }
        }
    }

    /// Sleeps before the next attempt. False, without a pause, if no time is left.
    pub(crate) async fn pause(&mut self) -> bool {
        let pause = self.next;
        self.next = (2 * pause).min(self.max);
        let has_time = Instant::now() + pause < self.deadline;
        if has_time {
            tokio::time::sleep(pause).await;
        }
        has_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_a_limit_and_end_at_the_deadline() {
        let mut backoff = Backoff::within(Duration::from_secs(3), &ClientOptions::default());
        let mut pauses = Vec::new();
        loop {
            let before = Instant::now();
            if !backoff.pause().await {
                break;
            }
            pauses.push(before.elapsed().as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000]);
    }
}
