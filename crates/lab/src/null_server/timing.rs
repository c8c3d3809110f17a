//! Timing of answers. Pure: maps the arrival of a request to the time of its answer.
//!
//! Three parts add up: the queue of a single server with a known rate, the service time of the request, and
//! stalls, at whose end all overdue answers are sent.

use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::{Settings, lock};

/// Number of service times in a round: random numbers are stratified, with one in each of as many equal
/// parts, so that the quantiles of a round are those of the distribution.
pub const DRAWS_PER_ROUND: u32 = 1000;

/// The service time of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ServiceTime {
    /// The same time for all requests.
    Fixed { us: f64 },
    /// Drawn from the distribution whose quantile function is linear between these points.
    Quantiles {
        /// Share of requests (first 0, last 1), and the maximum microseconds for that share.
        points: Vec<(f64, f64)>,
    },
}

/// Intervals without answers, relative to the first Produce request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Stalls {
    None,
    /// A stall at the end of each period.
    Every {
        /// Seconds between the ends of two stalls.
        period_s: f64,
        /// Duration of each stall, in seconds.
        length_s: f64,
    },
    /// Stalls at these times, sorted and disjoint.
    At {
        stalls: Vec<Stall>,
    },
}

/// An interval without answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Start, in seconds after the first Produce request.
    pub at_s: f64,
    /// Duration in seconds.
    pub length_s: f64,
}

impl ServiceTime {
    /// The maximum service time for a share of the requests.
    pub fn quantile_us(&self, share: f64) -> f64 {
        match self {
            ServiceTime::Fixed { us } => *us,
            ServiceTime::Quantiles { points } => {
                let above = points.partition_point(|&(at, _)| at < share).clamp(1, points.len() - 1);
                let ((from, low), (to, high)) = (points[above - 1], points[above]);
                low + (high - low) * (share - from) / (to - from)
            }
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        match self {
            ServiceTime::Fixed { us } => us.is_finite() && *us >= 0.0,
            ServiceTime::Quantiles { points } => {
                let ends = (points.first().map(|point| point.0), points.last().map(|point| point.0));
                points.len() >= 2
                    && ends == (Some(0.0), Some(1.0))
                    && points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)
                    && points.iter().all(|(_, us)| us.is_finite() && *us >= 0.0)
            }
        }
    }
}

impl Stalls {
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Stalls::None => true,
            Stalls::Every { period_s, length_s } => {
                period_s.is_finite() && *length_s > 0.0 && length_s < period_s
            }
            Stalls::At { stalls } => stalls.iter().all(|stall| {
                stall.at_s.is_finite()
                    && stall.length_s.is_finite()
                    && stall.at_s >= 0.0
                    && stall.length_s > 0.0
            }),
        }
    }

    /// The end of the stall that contains `at_s`; `at_s` itself if there is none.
    fn passed(&self, at_s: f64) -> f64 {
        match self {
            Stalls::None => at_s,
            Stalls::Every { period_s, length_s } => {
                let end = (at_s / period_s).floor() * period_s + period_s;
                if at_s >= end - length_s { end } else { at_s }
            }
            Stalls::At { stalls } => {
                let within = |stall: &&Stall| (stall.at_s..stall.at_s + stall.length_s).contains(&at_s);
                stalls.iter().find(within).map_or(at_s, |stall| stall.at_s + stall.length_s)
            }
        }
    }
}

/// Calculates the times of all answers.
#[derive(Debug)]
pub(super) struct Timing {
    service_time: ServiceTime,
    record_s: Option<f64>,
    stalls: Stalls,
    first: OnceLock<Instant>,
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    free_at: Option<Instant>,
    random: SmallRng,
    strata: Vec<u32>,
}

impl Timing {
    pub(super) fn new(settings: &Settings) -> Timing {
        let random = SmallRng::seed_from_u64(settings.seed);
        Timing {
            service_time: settings.service_time.clone(),
            record_s: settings.records_per_s_max.map(|rate| 1.0 / rate),
            stalls: settings.stalls.clone(),
            first: OnceLock::new(),
            queue: Mutex::new(Queue { free_at: None, random, strata: Vec::new() }),
        }
    }

    /// The time of the answer to a Produce request with this many records.
    pub(super) fn produce(&self, arrived: Instant, records: u64) -> Instant {
        self.first.get_or_init(|| arrived);
        let mut queue = lock(&self.queue);
        let mut served = arrived;
        if let Some(record_s) = self.record_s {
            let begins = queue.free_at.map_or(arrived, |free_at| free_at.max(arrived));
            served = begins + Duration::from_secs_f64(record_s * records as f64);
            queue.free_at = Some(served);
        }
        let us = match &self.service_time {
            ServiceTime::Fixed { us } => *us,
            drawn => drawn.quantile_us(queue.draw()),
        };
        drop(queue);
        self.other(served + Duration::from_secs_f64(us / 1e6))
    }

    /// The time of the answer to another request, ready at `ready`.
    pub(super) fn other(&self, ready: Instant) -> Instant {
        let Some(&first) = self.first.get() else { return ready };
        let at_s = ready.saturating_duration_since(first).as_secs_f64();
        let passed_s = self.stalls.passed(at_s);
        if passed_s > at_s { first + Duration::from_secs_f64(passed_s) } else { ready }
    }
}

impl Queue {
    /// A uniform random number between 0 and 1.
    fn draw(&mut self) -> f64 {
        if self.strata.is_empty() {
            self.strata.extend(0..DRAWS_PER_ROUND);
            self.strata.shuffle(&mut self.random);
        }
        let stratum = self.strata.pop().expect("filled above");
        (f64::from(stratum) + self.random.random::<f64>()) / f64::from(DRAWS_PER_ROUND)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "only differences of instants matter here")]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn drawn_times_have_the_quantiles_of_the_distribution() {
        let points = vec![(0.0, 1000.0), (0.5, 2000.0), (0.99, 9000.0), (1.0, 20_000.0)];
        let service_time = ServiceTime::Quantiles { points };
        let timing = Timing::new(&Settings { service_time: service_time.clone(), ..Settings::default() });
        let arrived = Instant::now();
        let mut drawn: Vec<f64> =
            (0..20_000).map(|_| (timing.produce(arrived, 1) - arrived).as_secs_f64() * 1e6).collect();
        drawn.sort_by(f64::total_cmp);
        for (share, at) in [(0.5, 10_000), (0.99, 19_800), (0.999, 19_980)] {
            let expected = service_time.quantile_us(share);
            assert!((drawn[at] / expected - 1.0).abs() < 0.01, "{share}: {} for {expected}", drawn[at]);
        }
    }

    #[test]
    fn beyond_its_rate_each_request_waits_for_those_before_it() {
        let settings = Settings { records_per_s_max: Some(1000.0), ..Settings::default() };
        let timing = Timing::new(&settings);
        let start = Instant::now();
        let waits = [0, 5, 10, 100].map(|at| timing.produce(start + ms(at), 10) - (start + ms(at)));
        assert_eq!(waits.map(|wait| wait.as_millis()), [10, 15, 20, 10]);
    }

    #[test]
    fn overdue_answers_are_sent_at_the_end_of_a_stall() {
        let stalls = Stalls::Every { period_s: 1.0, length_s: 0.02 };
        let timing = Timing::new(&Settings { stalls, ..Settings::default() });
        let start = Instant::now();
        let answers = [0, 970, 981, 999, 1001].map(|at| timing.produce(start + ms(at), 1) - start);
        assert_eq!(answers.map(|at| at.as_millis()), [0, 970, 1000, 1000, 1001]);
        let stalls = Stalls::At { stalls: vec![Stall { at_s: 0.1, length_s: 0.5 }] };
        let timing = Timing::new(&Settings { stalls, ..Settings::default() });
        assert_eq!(timing.other(start + ms(200)), start + ms(200), "nothing was produced yet");
        timing.produce(start, 1);
        assert_eq!(timing.other(start + ms(200)), start + ms(600));
        assert_eq!(timing.other(start + ms(601)), start + ms(601));
    }
}
