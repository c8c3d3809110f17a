//! Decides if a change is kept: only if the gain exceeds the noise. Pure.

use serde::{Deserialize, Serialize};

use crate::result::two_sided_95;

/// Minimum gain, even if certain.
const GAIN_MIN: f64 = 0.02;

/// The gain of a change: the ratio of the means minus one, with Welch's 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The gain: 0.1 is 10 % more records per second.
    pub gain: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// True if the change helps: the interval is above zero, and the gain above 2 %.
    pub helps: bool,
}

/// Compares measurements before and with a change, taken in turns. `None` if either has fewer than two
/// values, because the noise is unknown then.
pub fn gain(before: &[f64], with: &[f64]) -> Option<Gain> {
    let (a, b) = (Moments::of(before)?, Moments::of(with)?);
    let (error_a, error_b) = (a.variance / a.count, b.variance / b.count);
    let error = (error_a + error_b).sqrt();
    let freedom = match error > 0.0 {
        true => {
            (error_a + error_b).powi(2)
                / (error_a.powi(2) / (a.count - 1.0) + error_b.powi(2) / (b.count - 1.0))
        }
        false => a.count + b.count - 2.0,
    };
    let half = two_sided_95(freedom) * error;
    let difference = b.mean - a.mean;
    let share = |value: f64| value / a.mean;
    let (gain, low, high) = (share(difference), share(difference - half), share(difference + half));
    Some(Gain { gain, low, high, helps: low > 0.0 && gain >= GAIN_MIN })
}

/// Half of the 95 % interval of a mean; 0 for a single value.
pub fn half_interval(values: &[f64]) -> f64 {
    Moments::of(values).map_or(0.0, |of| two_sided_95(of.count - 1.0) * (of.variance / of.count).sqrt())
}

struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Option<Moments> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (values.len() >= 2 && mean > 0.0).then(|| Moments { count, mean, variance: squares / (count - 1.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_beyond_the_noise_helps() {
        let gain = gain(&[100.0, 102.0, 98.0], &[120.0, 122.0, 118.0]).expect("enough");
        assert!((gain.gain - 0.2).abs() < 1e-9 && gain.helps, "{gain:?}");
        assert!(gain.low > 0.1 && gain.high < 0.3, "{gain:?}");
    }

    #[test]
    fn noise_and_trifles_do_not_help() {
        assert!(!gain(&[100.0, 130.0, 80.0], &[110.0, 140.0, 90.0]).expect("enough").helps);
        assert!(!gain(&[100.0, 100.0, 100.0], &[101.0, 101.0, 101.0]).expect("enough").helps);
        assert!(!gain(&[100.0, 101.0, 99.0], &[80.0, 81.0, 79.0]).expect("enough").helps);
    }

    #[test]
    fn one_value_tells_nothing_of_the_noise() {
        assert_eq!(gain(&[100.0], &[200.0, 201.0]), None);
        assert_eq!(gain(&[100.0, 101.0], &[]), None);
        assert_eq!(half_interval(&[5.0]), 0.0);
        assert!(half_interval(&[5.0, 6.0]) > 1.0);
    }
}
