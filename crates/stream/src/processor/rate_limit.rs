//! `rate-limit`: limits the messages per second. Messages wait, which slows the source down.

use std::time::Duration;

use tokio::time::Instant;

use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::message::Batch;
use crate::stage::{Processor, StageError, Turn, Wait};

/// Interval at which messages are released while some wait.
const STEP: Duration = Duration::from_millis(5);

/// Maximum time spent in later stages that is made up for. After a longer stall, messages continue at the
/// rate, without a burst.
const CATCH_UP: Duration = Duration::from_secs(1);

pub const MODULE: Module = Module {
    name: "rate-limit",
    summary: "limits the messages per second",
    about: "Messages wait and slow the source down; none is dropped. When the stream stops, waiting messages continue at \
            once.",
    options: &[
        OptionSpec {
            name: "rate",
            takes: OptionType::Number(0.001, f64::MAX),
            default: OptionDefault::Required,
            summary: "Messages per second.",
        },
        OptionSpec {
            name: "burst",
            takes: OptionType::Integer(1, 1_000_000),
            default: OptionDefault::Value("1"),
            summary: "How many messages may pass at once after a pause.",
        },
    ],
    examples: &[(
        "stdin | rate-limit --rate=100 | http --url=http://127.0.0.1:9000/",
        "at most a hundred requests per second",
    )],
    check: declaration::any,
    make: StageMaker::Processor(|settings, _site| {
        let rate = settings.optional_number("rate").unwrap_or(f64::MAX);
        Ok(Box::new(RateLimit {
            rate,
            burst: settings.integer("burst") as f64,
            tokens: settings.integer("burst") as f64,
            refilled: None,
            idle: Duration::ZERO,
            waiting: Batch::new(),
            released: 0,
        }))
    }),
};

struct RateLimit {
    rate: f64,
    burst: f64,
    /// Number of messages that may pass now.
    tokens: f64,
    refilled: Option<Instant>,
    /// The source's total idle time at the last refill.
    idle: Duration,
    waiting: Batch,
    /// Number of waiting messages that have passed.
    released: usize,
}

impl RateLimit {
    /// Refills the tokens. While messages wait, or later stages work, elapsed time adds tokens, so that the
    /// average rate holds. While the source is idle, the tokens tend to the burst from above or below.
    fn refill(&mut self, now: Instant, idle: Duration) {
        let refilled = *self.refilled.get_or_insert(now);
        // The end of an idle period may be reported a little late, together with its start.
        let since = now.saturating_duration_since(refilled);
        let idle_since = idle.saturating_sub(self.idle).min(since);
        (self.refilled, self.idle) = (Some(refilled + since), idle);
        let most = self.burst.max(1.0 + self.rate * CATCH_UP.as_secs_f64());
        self.tokens = (self.tokens + (since - idle_since).as_secs_f64() * self.rate).min(most);
        let grown = idle_since.as_secs_f64() * self.rate;
        self.tokens = match self.tokens > self.burst {
            true => (self.tokens - grown).max(self.burst),
            false => (self.tokens + grown).min(self.burst),
        };
    }

    /// Releases messages while there are tokens.
    fn release(&mut self, batch: &mut Batch, now: Instant, idle: Duration) {
        self.refill(now, idle);
        let count = (self.tokens as usize).min(self.waiting.len() - self.released);
        self.tokens -= count as f64;
        let from = self.released;
        self.released += count;
        *batch = self.waiting.clone();
        batch.keep_range(from..self.released);
        if self.released == self.waiting.len() {
            self.waiting.clear();
            self.released = 0;
        }
    }
}

impl Processor for RateLimit {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.waiting.is_empty() {
            self.waiting = std::mem::take(batch);
        } else {
            // An earlier processor has emitted a message from its tick.
            self.waiting.append(batch);
        }
        self.release(batch, turn.now, turn.source.waited);
        Ok(())
    }

    fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.waiting.is_empty() {
            return None;
        }
        let missing = Duration::from_secs_f64((1.0 - self.tokens).max(0.0) / self.rate);
        Some(self.refilled? + missing.max(STEP))
    }

    fn tick(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if !self.waiting.is_empty() {
            self.release(batch, turn.now, turn.source.waited);
        }
        Ok(())
    }

    fn relieve<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        self.finish(batch)
    }

    fn finish<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async {
            let len = self.waiting.len();
            *batch = std::mem::take(&mut self.waiting);
            batch.keep_range(self.released..len);
            self.released = 0;
            Ok(())
        })
    }

    fn held_since(&self) -> Option<u64> {
        self.waiting.messages().skip(self.released).map(|message| message.sequence).min()
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.released = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rate: f64, burst: f64) -> RateLimit {
        RateLimit {
            rate,
            burst,
            tokens: burst,
            refilled: None,
            idle: Duration::ZERO,
            waiting: Batch::new(),
            released: 0,
        }
    }

    /// A stream in simulated time: messages passed, and elapsed time.
    struct Flow {
        limit: RateLimit,
        now: Instant,
        idle: Duration,
    }

    impl Flow {
        fn new(rate: f64, burst: f64) -> Flow {
            Flow { limit: limit(rate, burst), now: Instant::now(), idle: Duration::ZERO }
        }

        /// Lets the source idle.
        fn pause(&mut self, time: Duration) {
            self.now += time;
            self.idle += time;
        }

        /// Number of messages of a burst that pass without waiting.
        fn go_of(&mut self, count: u64) -> usize {
            if self.limit.waiting.is_empty() {
                for sequence in 0..count {
                    self.limit.waiting.push(bytes::Bytes::from_static(b"x"), None, 0, sequence);
                }
            }
            let mut batch = Batch::new();
            self.limit.release(&mut batch, self.now, self.idle);
            batch.len()
        }

        /// Messages per second over a hundred seconds, with a source that never idles and a sink that takes
        /// some time per batch. The timer is a millisecond late.
        fn rate_behind(&mut self, mut sink: impl FnMut(usize) -> Duration) -> f64 {
            let begun = self.now;
            let mut gone = 0;
            while self.now - begun < Duration::from_secs(100) {
                let count = self.go_of(1);
                gone += count;
                if count > 0 {
                    self.now += sink(gone);
                }
                if let Some(due) = self.limit.deadline()
                    && due > self.now
                {
                    self.now = due + Duration::from_millis(1);
                }
            }
            gone as f64 / (self.now - begun).as_secs_f64()
        }
    }

    #[test]
    fn the_lowest_waiting_sequence_is_held() {
        let mut limit = limit(1.0, 1.0);
        for sequence in [90, 3, 40] {
            limit.waiting.push(bytes::Bytes::from_static(b"x"), None, 0, sequence);
        }
        limit.released = 1;
        assert_eq!(limit.held_since(), Some(3));
    }

    #[test]
    fn the_rate_holds_on_average_whatever_the_sink_takes() {
        let millis = Duration::from_millis;
        for rate in [10.0, 100.0, 150.0] {
            let even = Flow::new(rate, 1.0).rate_behind(|_| millis(3));
            assert!((even - rate).abs() < rate * 0.01, "{even} of {rate}");
            // Occasionally much longer than the interval of a message.
            let held_up = |gone: usize| if gone.is_multiple_of(50) { millis(150) } else { millis(2) };
            let uneven = Flow::new(rate, 1.0).rate_behind(held_up);
            assert!((uneven - rate).abs() < rate * 0.01, "{uneven} of {rate}");
        }
    }

    #[test]
    fn no_more_than_the_burst_go_at_once_after_a_pause() {
        for burst in [1, 20] {
            let mut flow = Flow::new(1000.0, f64::from(burst));
            flow.go_of(100);
            flow.limit.forget();
            // The source pauses while messages lag behind by more than the burst.
            flow.now += Duration::from_millis(500);
            flow.go_of(1);
            flow.pause(Duration::from_secs(2));
            assert_eq!(flow.go_of(100), burst as usize);
        }
    }

    #[test]
    fn what_was_held_up_for_long_does_not_go_all_at_once() {
        let mut flow = Flow::new(10.0, 1.0);
        flow.go_of(1000);
        flow.now += Duration::from_secs(60);
        assert_eq!(flow.go_of(1000), 11, "a second's, and one");
    }
}
