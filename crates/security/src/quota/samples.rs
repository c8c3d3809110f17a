//! Values in samples of time (Kafka's `SampledStat`), the basis of rates and averages.

use super::Window;

/// The samples of one measurement.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    pub window: Window,
    /// Samples in the order of Kafka's list, because floating-point sums depend on the order. At most one
    /// more than in the window.
    samples: Vec<Sample>,
    current: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    began_ms: i64,
    /// Time of the last record.
    last_ms: i64,
    sum: f64,
    count: u64,
}

impl Sample {
    fn new(now_ms: i64) -> Sample {
        Sample { began_ms: now_ms, last_ms: now_ms, sum: 0.0, count: 0 }
    }
}

impl Samples {
    pub fn new(window: Window) -> Samples {
        Samples { window, samples: Vec::new(), current: 0 }
    }

    pub fn record(&mut self, value: f64, now_ms: i64) {
        self.begin(now_ms);
        if now_ms - self.samples[self.current].began_ms >= self.window.sample_ms {
            // One more sample than in the window, because the window still covers part of the oldest.
            self.current = (self.current + 1) % (self.window.samples + 1);
            match self.samples.get_mut(self.current) {
                Some(oldest) => *oldest = Sample::new(now_ms),
                None => self.samples.push(Sample::new(now_ms)),
            }
        }
        let sample = &mut self.samples[self.current];
        sample.sum += value;
        sample.count += 1;
        sample.last_ms = now_ms;
    }

    /// The sum and the number of the values within the window.
    pub fn sum(&mut self, now_ms: i64) -> (f64, u64) {
        self.forget(now_ms);
        // As in Kafka, a query starts the first sample.
        self.begin(now_ms);
        self.samples.iter().fold((0.0, 0), |(sum, count), sample| (sum + sample.sum, count + sample.count))
    }

    /// The start of the oldest sample.
    pub fn began_ms(&self) -> Option<i64> {
        self.samples.iter().map(|sample| sample.began_ms).min()
    }

    /// The time of the last record, if any.
    pub fn last_ms(&self) -> Option<i64> {
        self.samples.iter().map(|sample| sample.last_ms).max()
    }

    /// True if no sample is within the window.
    pub fn is_idle(&self, now_ms: i64) -> bool {
        let length_ms = self.window.length_ms();
        self.samples.iter().all(|sample| now_ms - sample.last_ms >= length_ms)
    }

    /// The number of samples.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    fn begin(&mut self, now_ms: i64) {
        if self.samples.is_empty() {
            self.samples.push(Sample::new(now_ms));
        }
    }

    /// Resets samples outside the window.
    fn forget(&mut self, now_ms: i64) {
        let length_ms = self.window.length_ms();
        for sample in &mut self.samples {
            if now_ms - sample.last_ms >= length_ms {
                *sample = Sample::new(now_ms);
            }
        }
    }
}
