//! A token bucket (Kafka's `TokenBucket`, KIP-599), for the quota of controller mutations.
//!
//! The bucket fills at the rate of the limit, up to one window's worth. A request may leave the bucket in
//! debt, and no request may take tokens during the debt. Unlike with a rate, one large use counts only until
//! the debt is repaid.

use super::{Window, round};

/// The bucket of one client.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    window: Window,
    tokens: f64,
    updated_ms: Option<i64>,
}

impl TokenBucket {
    /// A full bucket: the first use fills it.
    pub fn new(window: Window) -> TokenBucket {
        TokenBucket { window, tokens: 0.0, updated_ms: None }
    }

    /// Takes tokens, even beyond the available ones.
    pub fn take(&mut self, tokens: f64, limit: f64, now_ms: i64) {
        self.refill(limit, now_ms);
        self.tokens = (self.tokens - tokens).min(self.burst(limit));
    }

    /// The number of tokens; negative in debt.
    pub fn tokens(&mut self, limit: f64, now_ms: i64) -> f64 {
        self.refill(limit, now_ms);
        self.tokens
    }

    /// The time until the debt is repaid; `None` without debt.
    pub fn throttle_ms(&mut self, limit: f64, now_ms: i64) -> Option<i64> {
        let tokens = self.tokens(limit, now_ms);
        (tokens < 0.0).then(|| round(-tokens / limit * 1000.0))
    }

    /// True for a full bucket: a new bucket would give the same results.
    pub fn is_idle(&mut self, limit: f64, now_ms: i64) -> bool {
        self.tokens(limit, now_ms) >= self.burst(limit)
    }

    #[expect(clippy::cast_precision_loss, reason = "samples and seconds are small")]
    fn burst(&self, limit: f64) -> f64 {
        self.window.samples as f64 * (self.window.sample_ms as f64 / 1000.0) * limit
    }

    #[expect(clippy::cast_precision_loss, reason = "differences of times are small")]
    fn refill(&mut self, limit: f64, now_ms: i64) {
        let burst = self.burst(limit);
        self.tokens = match self.updated_ms {
            Some(updated_ms) => burst.min(self.tokens + limit * ((now_ms - updated_ms) as f64 / 1000.0)),
            None => burst,
        };
        self.updated_ms = Some(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_are_made_up_for_at_the_rate_of_the_limit() {
        let mut bucket = TokenBucket::new(Window { samples: 10, sample_ms: 1000 });
        bucket.take(70.0, 5.0, 0);
        assert_eq!(bucket.throttle_ms(5.0, 0), Some(4000), "there were 50");
        assert_eq!(bucket.throttle_ms(5.0, 3999), Some(1));
        assert_eq!(bucket.throttle_ms(5.0, 4000), None);
        assert!(!bucket.is_idle(5.0, 13_999) && bucket.is_idle(5.0, 14_000));
    }
}
