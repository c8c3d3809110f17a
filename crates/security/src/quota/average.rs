//! An average over a sliding window (Kafka's `Avg`): of the pauses that clients were asked to make.

use super::Window;
use super::samples::Samples;

/// The window of Kafka's metrics by default (`metrics.num.samples`, `metrics.sample.window.ms`).
pub const METRICS_WINDOW: Window = Window { samples: 2, sample_ms: 30_000 };

/// The average of what was recorded in a window.
#[derive(Clone, Debug)]
pub struct Average {
    samples: Samples,
}

impl Average {
    /// An average of nothing so far.
    pub fn new(window: Window) -> Average {
        Average { samples: Samples::new(window) }
    }

    /// Records a value.
    pub fn record(&mut self, value: f64, now_ms: i64) {
        self.samples.record(value, now_ms);
    }

    /// The average; NaN if nothing is in the window.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn get(&mut self, now_ms: i64) -> f64 {
        match self.samples.sum(now_ms) {
            (_, 0) => f64::NAN,
            (sum, count) => sum / count as f64,
        }
    }
}
