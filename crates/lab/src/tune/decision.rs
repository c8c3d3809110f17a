//! Decides if a change is kept: only if the gain exceeds the noise. Pure.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::result::PAIRS_MIN;
use crate::result::{Figure, Values, ratio_of};

/// Minimum gain, even if certain.
const GAIN_MIN: f64 = 0.02;
/// Half of the interval, as a share of the ratio, from which measurements tell nothing of a gain.
const NOISE_MAX: f64 = 0.25;
/// The figure that is compared.
const RATE: &str = "produced_records_per_s";

/// The gain of a change: the geometric mean of the pairs' ratios minus one, with Student's 95 % interval on
/// their logarithms, so that no end is below -100 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The gain: 0.1 is 10 % more records per second.
    pub gain: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// True if the interval is so wide that the measurements tell nothing.
    #[serde(default)]
    pub is_noise: bool,
    /// True if the change helps: the interval is above zero, and the gain above 2 %.
    pub helps: bool,
}

/// Compares measurements before and with a change, which took turns: they are pairs. `None` with fewer than
/// [`PAIRS_MIN`], because the noise is unknown then.
pub fn gain(before: &[f64], with: &[f64]) -> Option<Gain> {
    judge(&Values::Paired(before.iter().copied().zip(with.iter().copied()).collect()))
}

/// Compares measurements before and after a change that cannot be made and undone for each of them.
pub fn gain_after(before: &[f64], after: &[f64]) -> Option<Gain> {
    judge(&Values::Apart(before.to_vec(), after.to_vec()))
}

fn judge(values: &Values) -> Option<Gain> {
    let ratio = ratio_of(Figure::named(RATE)?, values)?;
    let (low, high) = ratio.interval?;
    let (gain, low, high) = (ratio.ratio - 1.0, low - 1.0, high - 1.0);
    let is_noise = ratio.half_width().is_none_or(|half| half > NOISE_MAX);
    Some(Gain { gain, low, high, is_noise, helps: low > 0.0 && gain >= GAIN_MIN && !is_noise })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_beyond_the_noise_helps() {
        let gain = gain(&[100.0, 102.0, 98.0], &[120.0, 122.0, 118.0]).expect("enough");
        assert!((gain.gain - 0.2).abs() < 1e-3 && gain.helps, "{gain:?}");
        assert!(gain.low > 0.1 && gain.high < 0.3, "{gain:?}");
    }

    #[test]
    fn measurements_one_after_the_other_have_a_wider_interval_than_pairs() {
        let (before, after) = ([100.0, 130.0, 115.0], [150.0, 195.0, 172.5]);
        let (pairs, apart) = (gain(&before, &after), gain_after(&before, &after));
        let width = |gain: Option<Gain>| gain.map(|gain| gain.high - gain.low).expect("enough");
        assert!(width(pairs) < 0.01 && width(apart) > 0.3, "{pairs:?} {apart:?}");
        assert!(gain_after(&[100.0, 101.0, 99.0], &[120.0, 121.0, 119.0]).expect("enough").helps);
    }

    #[test]
    fn noise_and_trifles_do_not_help() {
        assert!(!gain(&[100.0, 130.0, 80.0], &[120.0, 100.0, 110.0]).expect("enough").helps);
        assert!(!gain(&[100.0, 100.0, 100.0], &[101.0, 101.0, 101.0]).expect("enough").helps);
        assert!(!gain(&[100.0, 101.0, 99.0], &[80.0, 81.0, 79.0]).expect("enough").helps);
    }

    #[test]
    fn what_changes_for_both_of_a_pair_is_no_noise() {
        let gain = gain(&[100.0, 130.0, 80.0], &[110.0, 143.0, 88.0]).expect("enough");
        assert!(gain.helps && gain.high - gain.low < 0.001, "{gain:?}");
    }

    #[test]
    fn an_interval_never_promises_less_than_nothing_and_a_wide_one_is_noise() {
        let gain = gain(&[1000.0, 90.0, 400.0], &[100.0, 700.0, 300.0]).expect("enough");
        assert!(gain.low > -1.0 && gain.is_noise && !gain.helps, "{gain:?}");
        assert!(!super::gain(&[100.0, 101.0, 99.0], &[120.0, 122.0, 118.0]).expect("enough").is_noise);
    }

    #[test]
    fn one_value_has_no_noise() {
        assert_eq!(gain(&[100.0, 101.0], &[200.0, 201.0]), None);
        assert_eq!(gain(&[100.0, 101.0], &[]), None);
    }
}
