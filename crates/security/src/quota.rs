//! Client quotas: the limit of a client, the measurement of use, and throttle times.
//!
//! All functions are pure: times are milliseconds of a monotonic clock that the caller owns. Results equal
//! those of Kafka's `Rate`, `TokenBucket`, `QuotaUtils` and `ConnectionQuotas` to the last digit, except that
//! a [`Backlog`] adds to them.

use std::time::Duration;

mod average;
mod backlog;
mod connections;
mod limits;
mod mutations;
mod rate;
mod samples;
mod token_bucket;

pub use average::{Average, METRICS_WINDOW};
pub use backlog::Backlog;
pub use connections::{
    ConnectionLimits, ConnectionQuotas, IpRates, ListenerFigures, ListenerLimits, Refusal,
};
pub use limits::{Limit, LimitScope, Limits, Sharers};
pub use mutations::{Enforcement, MutationQuota, QuotaExceeded};
pub use rate::Rate;
pub use token_bucket::TokenBucket;

/// The sliding window of a measurement: `quota.window.num` samples of `quota.window.size.seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The number of samples, including the current one. At least 1.
    pub samples: usize,
    /// The length of a sample in milliseconds. At least 1.
    pub sample_ms: i64,
}

impl Window {
    /// Creates a window, with at least one sample of at least 1 ms.
    pub fn new(samples: usize, sample: Duration) -> Window {
        let sample_ms = i64::try_from(sample.as_millis()).unwrap_or(i64::MAX);
        Window { samples: samples.max(1), sample_ms: sample_ms.max(1) }
    }

    /// The length of all samples in milliseconds.
    pub fn length_ms(&self) -> i64 {
        self.sample_ms.saturating_mul(count(self.samples))
    }

    /// The value above which a single use is certain to be throttled
    /// (`ClientQuotaManager.maxValueInQuotaWindow`).
    #[expect(clippy::cast_precision_loss, reason = "samples and seconds are small")]
    pub fn burst(&self, limit: f64) -> f64 {
        limit * (self.samples.saturating_sub(1) as f64) * (self.sample_ms as f64 / 1000.0)
    }
}

fn count(samples: usize) -> i64 {
    i64::try_from(samples).unwrap_or(i64::MAX)
}

/// Java's `Math.round`: halves round up, and out-of-range values saturate.
#[expect(clippy::cast_possible_truncation, reason = "Rust's cast saturates as Java's does")]
fn round(value: f64) -> i64 {
    let floor = value.floor();
    (if value - floor >= 0.5 { floor + 1.0 } else { floor }) as i64
}
