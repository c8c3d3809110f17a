//! Maps values to coordinates.

/// A scale: maps the range `from` to the range `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    from: (f64, f64),
    to: (f64, f64),
    log: bool,
}

impl Scale {
    /// A linear scale.
    pub fn linear(from: (f64, f64), to: (f64, f64)) -> Scale {
        Scale { from, to, log: false }
    }

    /// A logarithmic scale. All values are above 0.
    pub fn log(from: (f64, f64), to: (f64, f64)) -> Scale {
        Scale { from, to, log: true }
    }

    /// The coordinate of a value, clamped to the scale.
    pub fn at(self, value: f64) -> f64 {
        let place = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (low, high) = (place(self.from.0), place(self.from.1));
        let share = if high > low { (place(value) - low) / (high - low) } else { 0.0 };
        // NaN is drawn at the start of the scale: its text explains it.
        let share = if share.is_nan() { 0.0 } else { share };
        self.to.0 + share.clamp(0.0, 1.0) * (self.to.1 - self.to.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_distances_or_ratios() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 0.0));
        assert_eq!([0.0, 5.0, 10.0, 20.0].map(|v| linear.at(v)), [100.0, 50.0, 0.0, 0.0]);
        let log = Scale::log((1.0, 100.0), (0.0, 2.0));
        assert!((log.at(10.0) - 1.0).abs() < 1e-9);
        assert_eq!(log.at(0.0), 0.0);
        assert_eq!(Scale::linear((3.0, 3.0), (1.0, 2.0)).at(3.0), 1.0);
    }
}
