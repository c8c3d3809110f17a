//! The ratio of a figure in two results, with its confidence interval.
//!
//! Repetitions of targets that took turns are paired, the n-th of one with the n-th of the other: changes on
//! the machine between two turns affect both and cancel out. The ratio is the geometric mean of the pairs'
//! ratios, and its interval is Student's on their logarithms. Repetitions of different runs, and of targets
//! measured one after the other, have no pairs: the ratio divides geometric means, and its interval is
//! Welch's.

use serde::{Deserialize, Serialize};

use super::student;
use crate::figures::{Figure, FigureUnit};

/// Minimum pairs, or repetitions per side, for an interval: the standard deviation of two means little.
pub const PAIRS_MIN: usize = 3;
/// Differences below this are ignored: histograms have three digits.
pub(crate) const RESOLUTION: f64 = 0.002;

/// The statistical method, as text.
pub const METHOD: &str = "Targets of one run take turns, so that their repetitions are pairs, the n-th of one with the n-th of \
    the other. Each ratio is the geometric mean of the ratios of the pairs; its 95 % confidence interval is Student's, on their \
    logarithms. With fewer than 3 pairs there is none. Where there are no pairs, as between two runs, each ratio divides \
    geometric means, and its interval is Welch's, on the logarithms, from 3 repetitions a side on. \"At least\" and \"at most\" \
    are the ends of the interval. A difference counts if the interval excludes 1. About one in twenty comparisons of equals \
    differs by chance.";

/// The ratio of a figure, second result by first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub figure: String,
    /// The geometric mean in the first result.
    pub a: f64,
    /// The geometric mean in the second result.
    pub b: f64,
    /// Repetitions with the figure in the first result.
    pub repetitions_a: usize,
    /// Repetitions with the figure in the second result.
    pub repetitions_b: usize,
    /// The pairs, if the repetitions took turns; otherwise 0.
    pub pairs: usize,
    /// `b / a`.
    pub ratio: f64,
    /// The 95 % confidence interval; `None` with fewer than [`PAIRS_MIN`] pairs, or repetitions on a side.
    pub interval: Option<(f64, f64)>,
    pub judgement: Judgement,
}

/// A figure's values in both results, as far as present.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Values of repetitions that took turns: the first result's and the second's.
    Paired(Vec<(f64, f64)>),
    /// Values of independent repetitions.
    Apart(Vec<f64>, Vec<f64>),
}

/// The judgement of a ratio: the second result relative to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// More records in the same time, or lower latency.
    Faster,
    /// Fewer records in the same time, or higher latency.
    Slower,
    /// Lower cost: processor time or memory.
    Cheaper,
    /// Higher cost: processor time or memory.
    Dearer,
    /// A difference that is neither better nor worse, as of batches.
    Different,
    /// The interval contains 1.
    NoDifference,
    /// Too few repetitions.
    NotJudged,
}

impl Judgement {
    /// The judgement as text.
    pub fn words(self) -> &'static str {
        match self {
            Judgement::Faster => "faster",
            Judgement::Slower => "slower",
            Judgement::Cheaper => "cheaper",
            Judgement::Dearer => "dearer",
            Judgement::Different => "different",
            Judgement::NoDifference => "no difference beyond the noise",
            Judgement::NotJudged => "not judged: fewer than 3 repetitions",
        }
    }
}

/// The ratio of a figure; `None` if a side lacks the figure, or it is zero.
pub fn ratio_of(figure: &Figure, values: &Values) -> Option<Ratio> {
    let (logs_a, logs_b) = match values {
        Values::Paired(pairs) => {
            let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
            (logarithms(&a)?, logarithms(&b)?)
        }
        Values::Apart(a, b) => (logarithms(a)?, logarithms(b)?),
    };
    let (mean_a, mean_b) = (mean(&logs_a), mean(&logs_b));
    let difference = mean_b - mean_a;
    let (pairs, half) = match values {
        Values::Paired(pairs) => {
            let logs: Vec<f64> = logs_a.iter().zip(&logs_b).map(|(a, b)| b - a).collect();
            (pairs.len(), half_width_of_pairs(&logs))
        }
        Values::Apart(..) => (0, half_width(&logs_a, &logs_b)),
    };
    Some(Ratio {
        figure: figure.name.to_owned(),
        a: mean_a.exp(),
        b: mean_b.exp(),
        repetitions_a: logs_a.len(),
        repetitions_b: logs_b.len(),
        pairs,
        ratio: difference.exp(),
        interval: half.map(|half| ((difference - half).exp(), (difference + half).exp())),
        judgement: judge(figure.unit, difference, half),
    })
}

impl Ratio {
    /// Half of the interval as a share of the ratio, such as 0.1 for ± 10 %; `None` without an interval.
    pub fn half_width(&self) -> Option<f64> {
        self.interval.map(|(low, high)| (high / low).sqrt() - 1.0)
    }
}

fn judge(unit: FigureUnit, difference: f64, half: Option<f64>) -> Judgement {
    let Some(half) = half else { return Judgement::NotJudged };
    if difference.abs() <= half.max(RESOLUTION) {
        return Judgement::NoDifference;
    }
    let better = (difference > 0.0) == unit.more_is_better();
    match (unit, better) {
        (FigureUnit::BatchRecords | FigureUnit::BatchBytes, _) => Judgement::Different,
        (FigureUnit::CpuUs | FigureUnit::Bytes, true) => Judgement::Cheaper,
        (FigureUnit::CpuUs | FigureUnit::Bytes, false) => Judgement::Dearer,
        (_, true) => Judgement::Faster,
        (_, false) => Judgement::Slower,
    }
}

fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    let sound = !values.is_empty() && values.iter().all(|value| value.is_finite() && *value > 0.0);
    sound.then(|| values.iter().map(|value| value.ln()).collect())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half of Student's 95 % interval for the mean of the pairs' logarithmic ratios.
fn half_width_of_pairs(logs: &[f64]) -> Option<f64> {
    let freedom = logs.len().checked_sub(1)? as f64;
    (logs.len() >= PAIRS_MIN).then(|| student::two_sided_95(freedom) * squared_error(logs).sqrt())
}

/// Half of Welch's 95 % interval for the difference of two means with unequal variances.
fn half_width(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() < PAIRS_MIN || b.len() < PAIRS_MIN {
        return None;
    }
    let (error_a, error_b) = (squared_error(a), squared_error(b));
    let both = error_a + error_b;
    if both <= 0.0 {
        return Some(0.0);
    }
    let part = |error: f64, count: usize| error * error / (count as f64 - 1.0);
    let freedom = both * both / (part(error_a, a.len()) + part(error_b, b.len()));
    Some(student::two_sided_95(freedom) * both.sqrt())
}

/// The squared standard error of the mean.
fn squared_error(values: &[f64]) -> f64 {
    let (mean, count) = (mean(values), values.len() as f64);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0) / count
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn of(name: &str, a: &[f64], b: &[f64]) -> Ratio {
        let values = Values::Apart(a.to_vec(), b.to_vec());
        ratio_of(Figure::named(name).expect("a figure"), &values).expect("values")
    }

    #[test]
    fn more_records_are_faster_and_more_waiting_is_slower() {
        let (less, more) = ([100.0, 101.0, 99.0], [150.0, 151.0, 149.0]);
        assert_eq!(of("produced_records_per_s", &less, &more).judgement, Judgement::Faster);
        assert_eq!(of("acknowledge_p99_us", &less, &more).judgement, Judgement::Slower);
        assert_eq!(of("broker_cpu_us_per_record", &more, &less).judgement, Judgement::Cheaper);
        let ratio = of("produced_records_per_s", &less, &more);
        let (low, high) = ratio.interval.expect("three repetitions");
        assert!((ratio.ratio - 1.5).abs() < 0.001 && low > 1.45 && high < 1.55, "{ratio:?}");
    }

    #[test]
    fn two_repetitions_give_no_interval_and_no_verdict() {
        let ratio = of("produced_records_per_s", &[1.0, 1.0], &[9.0, 9.0, 9.0]);
        assert_eq!((ratio.interval, ratio.judgement), (None, Judgement::NotJudged));
    }

    #[test]
    fn what_is_nil_or_missing_has_no_ratio() {
        let figure = Figure::named("drain_s").expect("a figure");
        for first in [vec![], vec![0.0], vec![f64::NAN]] {
            assert_eq!(ratio_of(figure, &Values::Apart(first, vec![1.0])), None);
        }
        assert_eq!(ratio_of(figure, &Values::Paired(Vec::new())), None);
    }

    #[test]
    fn equal_histogram_buckets_are_no_proof_of_a_difference() {
        assert_eq!(of("acknowledge_p50_us", &[1000.0; 3], &[1001.0; 3]).judgement, Judgement::NoDifference);
    }

    #[test]
    fn intervals_contain_the_true_ratio_nineteen_times_in_twenty() {
        let mut random = SmallRng::seed_from_u64(20_260_801);
        let mut draw = |level: f64, spread: f64| -> f64 {
            let normal: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            level * (normal * spread).exp()
        };
        let rounds = 2000;
        let held = (0..rounds)
            .filter(|_| {
                let a: Vec<f64> = (0..4).map(|_| draw(100.0, 0.03)).collect();
                let b: Vec<f64> = (0..4).map(|_| draw(120.0, 0.09)).collect();
                let (low, high) = of("produced_records_per_s", &a, &b).interval.expect("enough");
                (low..=high).contains(&1.2)
            })
            .count();
        let share = held as f64 / f64::from(rounds);
        assert!((0.93..0.975).contains(&share), "{share}");
    }

    fn paired(pairs: &[(f64, f64)]) -> Ratio {
        let figure = Figure::named("produced_records_per_s").expect("a figure");
        ratio_of(figure, &Values::Paired(pairs.to_vec())).expect("values")
    }

    #[test]
    fn what_changes_for_both_of_a_pair_cancels_out() {
        let twice = paired(&[(100.0, 201.0), (50.0, 100.0), (20.0, 39.8)]);
        let (low, high) = twice.interval.expect("three pairs");
        assert!(low > 1.97 && high < 2.03, "{twice:?}");
        let apart = of("produced_records_per_s", &[100.0, 50.0, 20.0], &[201.0, 100.0, 39.8]);
        assert!(
            apart.interval.expect("three each").0 < 0.5,
            "unpaired, the same values say nothing: {apart:?}"
        );
        assert_eq!(paired(&[(1.0, 2.0), (1.0, 2.0)]).interval, None, "two pairs");
        assert!((twice.half_width().expect("an interval") - ((high / low).sqrt() - 1.0)).abs() < 1e-9);
    }

    #[test]
    fn intervals_of_pairs_contain_the_true_ratio_nineteen_times_in_twenty() {
        let mut random = SmallRng::seed_from_u64(20_261_125);
        let mut noise = |spread: f64| -> f64 {
            let normal: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            (normal * spread).exp()
        };
        for pairs in [3, 5, 10] {
            let rounds = 2000;
            let held = (0..rounds)
                .filter(|_| {
                    let turns = (0..pairs).map(|_| {
                        let machine = noise(0.3);
                        (100.0 * machine * noise(0.05), 120.0 * machine * noise(0.05))
                    });
                    let (low, high) = paired(&turns.collect::<Vec<_>>()).interval.expect("enough");
                    (low..=high).contains(&1.2)
                })
                .count();
            let share = held as f64 / f64::from(rounds);
            assert!((0.935..0.965).contains(&share), "{pairs} pairs: {share}");
        }
    }
}
