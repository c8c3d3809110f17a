//! An average over a sliding window (Kafka's `Avg`), used for throttle times.

use super::Window;
use super::samples::Samples;

/// Kafka's default window of metrics (`metrics.num.samples`, `metrics.sample.window.ms`).
pub const METRICS_WINDOW: Window = Window { samples: 2, sample_ms: 30_000 };

/// The average of the values in a window.
#[derive(Clone, Debug)]
pub struct Average {
    samples: Samples,
}

impl Average {
    /// Creates an average without values.
    pub fn new(window: Window) -> Average {
        Average { samples: Samples::new(window) }
    }

    /// Records a value.
    pub fn record(&mut self, value: f64, now_ms: i64) {
        self.samples.record(value, now_ms);
    }

    /// The average; NaN without values in the window.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn get(&mut self, now_ms: i64) -> f64 {
        match self.samples.sum(now_ms) {
            (_, 0) => f64::NAN,
            (sum, count) => sum / count as f64,
        }
    }
}
