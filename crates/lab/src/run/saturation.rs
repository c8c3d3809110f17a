//! The search for saturation: chooses the next load, until the knee is found.
//!
//! Pure: maps the trials so far to the next trial or the knee. The search has no other state and is
//! recalculated each time, so a repeated trial near the knee can overturn earlier conclusions.
//!
//! - Producers are added one by one. A step without gain is repeated before it counts, and the knee is
//!   measured three times.
//! - A rate is raised until the cluster falls behind, then the knee is bisected. A rate at which the cluster
//!   fell behind is repeated, and a third time if the two trials disagree; the rate reported as sustained is
//!   tried twice.

use crate::result::Knee;
use crate::worker::Interval;
use crate::workload::Load;

/// A cluster that accepts less than this share of the requested rate has fallen behind.
const TAKEN_MIN: f64 = 0.98;
/// Latency that grows faster than this, in seconds per second, means that a backlog grows by that share of
/// the rate.
const LATENCY_SLOPE_MAX: f64 = 0.01;
/// Latency growth below this is no backlog: a pause, or noise.
const LATENCY_GROWTH_MIN_US: f64 = 20_000.0;
/// Minimum number of intervals for a slope.
const INTERVALS_MIN: usize = 4;
/// Maximum number of rates tried upwards or downwards from the first one.
const LADDER_MAX: i32 = 40;
/// Maximum number of trials in a search.
const TRIALS_MAX: usize = 80;
/// Number of measurements at the knee of a search by producers.
const KNEE_MEASUREMENTS: usize = 3;

/// A load to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Number of producers.
    pub producers: u32,
    /// Records per second; `None` for the maximum.
    pub records_per_s: Option<f64>,
}

/// The outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Records acknowledged per second.
    pub records_per_s: f64,
    /// True if the cluster fell behind the requested rate.
    pub fell_behind: bool,
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchStep {
    /// Try this load.
    Try(Trial),
    /// The knee is found.
    Found(Knee),
    /// There is no knee, for this reason.
    NotFound(String),
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Search {
    plan: Plan,
    producers: u32,
    tried: Vec<(Trial, Outcome)>,
}

#[derive(Clone, Copy, Debug)]
enum Plan {
    AddProducers { producers_max: u32, gain_min: f64 },
    RaiseRate { first_records_per_s: f64, factor: f64, precision: f64 },
}

impl Search {
    /// A search that starts with this many producers; `None` if the load is not a search.
    pub fn new(load: &Load, producers: u32) -> Option<Search> {
        let plan = match *load {
            Load::AddProducers { producers_max, gain_min } => Plan::AddProducers { producers_max, gain_min },
            Load::RaiseRate { first_records_per_s, factor, precision } => Plan::RaiseRate {
                first_records_per_s,
                // A factor or precision without effect would search forever.
                factor: factor.max(1.01),
                precision: precision.max(0.001),
            },
            Load::Maximum | Load::Rate { .. } => return None,
        };
        Some(Search { plan, producers: producers.max(1), tried: Vec::new() })
    }

    /// Records the outcome of a trial.
    pub fn observe(&mut self, trial: Trial, outcome: Outcome) {
        self.tried.push((trial, outcome));
    }

    /// The next action.
    pub fn next(&self) -> SearchStep {
        match self.plan {
            _ if self.tried.len() >= TRIALS_MAX => SearchStep::NotFound(format!(
                "the measurements are still inconsistent after {TRIALS_MAX} trials"
            )),
            Plan::AddProducers { producers_max, gain_min } => self.add_producers(producers_max, gain_min),
            Plan::RaiseRate { first_records_per_s, factor, precision } => {
                self.raise_rate(first_records_per_s, factor, precision)
            }
        }
    }

    fn add_producers(&self, producers_max: u32, gain_min: f64) -> SearchStep {
        let again = |producers| SearchStep::Try(Trial { producers, records_per_s: None });
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let (mut knee, mut knee_rates) = (self.producers, self.rates_with(self.producers));
        let mut most: f64 = 0.0;
        for producers in self.producers..=producers_max.max(self.producers) {
            let rates = self.rates_with(producers);
            if rates.is_empty() {
                return again(producers);
            }
            most = rates.iter().copied().fold(most, f64::max);
            if producers == self.producers || mean(&rates) > mean(&knee_rates) * (1.0 + gain_min) {
                (knee, knee_rates) = (producers, rates);
            } else if rates.len() < 2 {
                return again(producers);
            } else {
                break;
            }
        }
        if knee_rates.len() < KNEE_MEASUREMENTS {
            return again(knee);
        }
        SearchStep::Found(Knee {
            records_per_s: mean(&knee_rates),
            low_records_per_s: knee_rates.iter().copied().fold(f64::INFINITY, f64::min),
            high_records_per_s: most,
            producers: knee,
        })
    }

    fn rates_with(&self, producers: u32) -> Vec<f64> {
        let same = self.tried.iter().filter(|(trial, _)| trial.producers == producers);
        same.map(|(_, outcome)| outcome.records_per_s).collect()
    }

    fn raise_rate(&self, first: f64, factor: f64, precision: f64) -> SearchStep {
        let again = |rate| SearchStep::Try(Trial { producers: self.producers, records_per_s: Some(rate) });
        let (mut low, mut high) = match self.ladder(first, factor) {
            Ok(enclosed) => enclosed,
            Err(next) => return next,
        };
        while high / low > 1.0 + precision {
            let middle = (low * high).sqrt();
            match self.carried(middle) {
                Some(true) => low = middle,
                Some(false) => high = middle,
                None => return again(middle),
            }
        }
        if self.votes(low).0 < 2 {
            return again(low);
        }
        SearchStep::Found(Knee {
            records_per_s: (low * high).sqrt(),
            low_records_per_s: low,
            high_records_per_s: high,
            producers: self.producers,
        })
    }

    /// The highest sustained and lowest unsustained rate, or the next action to find them.
    fn ladder(&self, first: f64, factor: f64) -> Result<(f64, f64), SearchStep> {
        let again = |rate| SearchStep::Try(Trial { producers: self.producers, records_per_s: Some(rate) });
        let rung = |step: i32| first * factor.powi(step);
        let mut step = 0;
        loop {
            let rate = rung(step);
            match self.carried(rate) {
                None => return Err(again(rate)),
                Some(true) if step < 0 => return Ok((rate, rung(step + 1))),
                Some(true) if step >= LADDER_MAX => {
                    return Err(SearchStep::NotFound(format!("{rate:.0} records/s were still sustained")));
                }
                Some(true) => step += 1,
                Some(false) if step > 0 => return Ok((rung(step - 1), rate)),
                Some(false) if -step >= LADDER_MAX => {
                    return Err(SearchStep::NotFound(format!("even {rate:.0} records/s were not sustained")));
                }
                Some(false) => step -= 1,
            }
        }
    }

    /// True if a rate was sustained; `None` if it must be tried, or tried again.
    fn carried(&self, rate: f64) -> Option<bool> {
        match self.votes(rate) {
            (0, 0) => None,
            (_, 0) => Some(true),
            (for_it, against) if for_it + against < 2 || for_it == against => None,
            (for_it, against) => Some(for_it > against),
        }
    }

    /// Number of trials in which a rate was sustained, and in which it was not.
    fn votes(&self, rate: f64) -> (usize, usize) {
        let same = self.tried.iter().filter(|(trial, _)| {
            // Rates are calculated the same way each time, so equal rates have equal bits.
            trial.records_per_s.is_some_and(|tried| tried.to_bits() == rate.to_bits())
        });
        let behind = same.clone().filter(|(_, outcome)| outcome.fell_behind).count();
        (same.count() - behind, behind)
    }
}

/// Why a cluster has fallen behind a rate; `None` if it has not.
///
/// The intervals are those of the measurement. In an open loop, a backlog shows as growing latency: if 1 % of
/// the records accumulate, latency grows by 10 ms per second.
pub fn fell_behind(
    asked_records_per_s: f64,
    taken_records_per_s: f64,
    intervals: &[Interval],
) -> Option<String> {
    let share = taken_records_per_s / asked_records_per_s;
    if share < TAKEN_MIN {
        return Some(format!(
            "{taken_records_per_s:.0} of {asked_records_per_s:.0} requested records/s were accepted ({:.1} %)",
            share * 100.0
        ));
    }
    let slope = latency_slope(intervals)?;
    (slope > LATENCY_SLOPE_MAX).then(|| format!("the latency grew by {:.0} ms per second", slope * 1000.0))
}

/// The growth of the median latency in seconds per second, by least squares; `None` if insignificant.
fn latency_slope(intervals: &[Interval]) -> Option<f64> {
    let points: Vec<(f64, f64)> = intervals
        .iter()
        .filter_map(|interval| Some((interval.at_us as f64, interval.p50_us? as f64)))
        .collect();
    if points.len() < INTERVALS_MIN {
        return None;
    }
    let count = points.len() as f64;
    let mean_at = points.iter().map(|(at, _)| at).sum::<f64>() / count;
    let mean_latency = points.iter().map(|(_, latency)| latency).sum::<f64>() / count;
    let (mut together, mut alone) = (0.0, 0.0);
    for (at, latency) in &points {
        together += (at - mean_at) * (latency - mean_latency);
        alone += (at - mean_at).powi(2);
    }
    let slope = together / alone;
    let length = points.last()?.0 - points.first()?.0;
    (alone > 0.0 && slope * length >= LATENCY_GROWTH_MIN_US).then_some(slope)
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Searches to the end; `cluster` returns the outcome of each trial.
    fn search(
        load: &Load,
        producers: u32,
        mut cluster: impl FnMut(Trial) -> Outcome,
    ) -> (SearchStep, Vec<Trial>) {
        let mut search = Search::new(load, producers).expect("a search");
        let mut trials = Vec::new();
        loop {
            match search.next() {
                SearchStep::Try(trial) => {
                    trials.push(trial);
                    search.observe(trial, cluster(trial));
                }
                end => return (end, trials),
            }
        }
    }

    fn found(next: &SearchStep) -> Knee {
        match next {
            SearchStep::Found(knee) => *knee,
            other => panic!("no knee: {other:?}"),
        }
    }

    /// A cluster that sustains `capacity`, with `noise`.
    fn carries(capacity: f64, noise: f64, seed: u64) -> impl FnMut(Trial) -> Outcome {
        let mut random = SmallRng::seed_from_u64(seed);
        move |trial| {
            let now = capacity * (1.0 + random.random_range(-noise..=noise));
            let requested = trial.records_per_s.expect("a rate");
            Outcome { records_per_s: requested.min(now), fell_behind: requested > now }
        }
    }

    #[test]
    fn a_raised_rate_encloses_the_knee_within_the_precision() {
        let load = Load::RaiseRate { first_records_per_s: 1_000.0, factor: 1.5, precision: 0.05 };
        for capacity in [1_400.0, 50_000.0, 1_234_567.0] {
            let (end, trials) = search(&load, 2, carries(capacity, 0.0, 1));
            let knee = found(&end);
            assert!(knee.low_records_per_s <= capacity && capacity < knee.high_records_per_s, "{knee:?}");
            assert!((knee.records_per_s / capacity - 1.0).abs() <= 0.05, "{knee:?} of {capacity}");
            assert!(trials.len() < 40, "{} trials", trials.len());
        }
    }

    #[test]
    fn a_first_rate_that_is_too_high_is_lowered() {
        let load = Load::RaiseRate { first_records_per_s: 1e6, factor: 2.0, precision: 0.05 };
        let knee = found(&search(&load, 1, carries(70_000.0, 0.0, 1)).0);
        assert!((knee.records_per_s / 70_000.0 - 1.0).abs() <= 0.05, "{knee:?}");
    }

    #[test]
    fn one_pause_does_not_pass_for_the_knee() {
        let load = Load::RaiseRate { first_records_per_s: 1_000.0, factor: 2.0, precision: 0.05 };
        let mut steady = carries(100_000.0, 0.0, 1);
        let mut paused = false;
        let (end, _) = search(&load, 1, |trial| {
            let outcome = steady(trial);
            let pauses = !std::mem::replace(&mut paused, trial.records_per_s == Some(8_000.0));
            Outcome {
                fell_behind: outcome.fell_behind || (pauses && trial.records_per_s == Some(8_000.0)),
                ..outcome
            }
        });
        assert!((found(&end).records_per_s / 100_000.0 - 1.0).abs() <= 0.05);
    }

    #[test]
    fn noise_moves_the_knee_by_no_more_than_itself() {
        let load = Load::RaiseRate { first_records_per_s: 10_000.0, factor: 1.5, precision: 0.05 };
        for seed in 0..200 {
            let (end, trials) = search(&load, 1, carries(500_000.0, 0.03, seed));
            let knee = found(&end);
            assert!((knee.records_per_s / 500_000.0 - 1.0).abs() <= 0.085, "seed {seed}: {knee:?}");
            assert!(trials.len() < TRIALS_MAX, "seed {seed}");
        }
    }

    #[test]
    fn what_carries_everything_has_no_knee() {
        let load = Load::RaiseRate { first_records_per_s: 1.0, factor: 1.5, precision: 0.05 };
        let (end, _) = search(&load, 1, |trial| Outcome {
            records_per_s: trial.records_per_s.expect("a rate"),
            fell_behind: false,
        });
        assert!(matches!(end, SearchStep::NotFound(_)), "{end:?}");
        let nothing = |_| Outcome { records_per_s: 0.0, fell_behind: true };
        assert!(matches!(search(&load, 1, nothing).0, SearchStep::NotFound(_)));
    }

    /// A cluster in which each producer adds `each`, up to `capacity`.
    fn takes(each: f64, capacity: f64, noise: f64, seed: u64) -> impl FnMut(Trial) -> Outcome {
        let mut random = SmallRng::seed_from_u64(seed);
        move |trial| {
            let rate = (f64::from(trial.producers) * each).min(capacity);
            Outcome { records_per_s: rate * (1.0 + random.random_range(-noise..=noise)), fell_behind: false }
        }
    }

    #[test]
    fn producers_are_added_until_one_more_brings_nothing() {
        let load = Load::AddProducers { producers_max: 20, gain_min: 0.03 };
        let (end, trials) = search(&load, 1, takes(100.0, 450.0, 0.0, 1));
        let knee = found(&end);
        assert_eq!((knee.producers, knee.records_per_s), (5, 450.0));
        let producers: Vec<u32> = trials.iter().map(|trial| trial.producers).collect();
        assert_eq!(producers, [1, 2, 3, 4, 5, 6, 6, 5, 5]);
    }

    #[test]
    fn noise_does_not_end_the_adding_early() {
        let load = Load::AddProducers { producers_max: 20, gain_min: 0.03 };
        for seed in 0..100 {
            let knee = found(&search(&load, 1, takes(100.0, 800.0, 0.02, seed)).0);
            assert!((knee.records_per_s / 800.0 - 1.0).abs() <= 0.05, "seed {seed}: {knee:?}");
            assert!(knee.low_records_per_s <= knee.records_per_s, "seed {seed}: {knee:?}");
            assert!(knee.high_records_per_s >= knee.records_per_s, "seed {seed}: {knee:?}");
        }
    }

    #[test]
    fn the_most_producers_are_the_end() {
        let load = Load::AddProducers { producers_max: 3, gain_min: 0.03 };
        let knee = found(&search(&load, 1, takes(100.0, 1e9, 0.0, 1)).0);
        assert_eq!((knee.producers, knee.records_per_s), (3, 300.0));
        assert_eq!(found(&search(&load, 5, takes(100.0, 1e9, 0.0, 1)).0).producers, 5);
    }

    fn intervals(latency_us: impl Fn(u64) -> u64) -> Vec<Interval> {
        (1..=10)
            .map(|second| Interval {
                at_us: second * 1_000_000,
                length_us: 1_000_000,
                p50_us: Some(latency_us(second)),
                ..Interval::default()
            })
            .collect()
    }

    #[test]
    fn too_little_taken_is_falling_behind() {
        assert!(fell_behind(100.0, 97.0, &[]).is_some());
        assert!(fell_behind(100.0, 98.5, &[]).is_none());
    }

    #[test]
    fn growing_latency_is_falling_behind_and_one_pause_is_not() {
        let grows = fell_behind(100.0, 99.0, &intervals(|second| 1_000 + second * 15_000));
        assert!(grows.expect("a backlog").contains("15 ms per second"));
        assert_eq!(fell_behind(100.0, 99.9, &intervals(|_| 400)), None);
        assert_eq!(
            fell_behind(100.0, 99.9, &intervals(|second| if second == 5 { 80_000 } else { 400 })),
            None
        );
        assert_eq!(fell_behind(100.0, 99.9, &intervals(|second| 400 + second * 500)), None);
    }
}
