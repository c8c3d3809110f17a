//! Growth rates of topics, from the end offsets of all partitions, polled while the console is in use.
//!
//! Measurements are at least two seconds apart and take at most 1/100 of the time, regardless of the size of
//! the cluster.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use thalweg_client::ClientError;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::disks::Disks;
use super::{View, ends, now_ms};

/// The shortest time between two measurements.
const INTERVAL: Duration = Duration::from_secs(2);
/// Measurements take at most one part in this many of the time.
const SHARE: u32 = 100;
/// Measurements kept for the chart.
const HISTORY_MAX: usize = 120;
/// Maximum age of the previous measurement.
const STALE: Duration = Duration::from_secs(60);

/// Measurements of one view.
#[derive(Default)]
pub struct Rates(Mutex<State>);

#[derive(Default)]
struct State {
    is_measuring: bool,
    last: Option<Ends>,
    measured: Arc<MeasuredRates>,
    due: Option<Instant>,
}

/// The end offsets of all partitions at one time.
struct Ends {
    at: Instant,
    topics: HashMap<Arc<str>, EndSum>,
    disks: Arc<Disks>,
    /// True if sizes of replicas are missing.
    are_sizes_partial: bool,
}

/// The ends of a topic.
#[derive(Clone, Copy, Debug, Default)]
struct EndSum {
    sum: i64,
    /// Partitions whose leader did not answer, or that have none.
    unanswered: usize,
}

/// Results of the last measurements.
#[derive(Default)]
pub struct MeasuredRates {
    /// Records per second, for topics with a rate above zero.
    topics: HashMap<Arc<str>, f64>,
    /// Topics whose rate is unknown.
    unknown: HashSet<Arc<str>>,
    /// Partitions whose end is unknown in the last two polls.
    pub unanswered: usize,
    /// Rates of the whole cluster, oldest first.
    pub history: VecDeque<Point>,
}

/// Rates of the whole cluster at one time.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Point {
    /// Time of the measurement in milliseconds since 1970.
    pub at_ms: i64,
    /// Records produced per second; none if the end of a partition is unknown.
    pub records_per_second: Option<f64>,
    /// Growth of all logs in bytes per second, over all replicas. None before the second reading of the log
    /// directories, or if sizes of replicas are missing.
    pub bytes_per_second: Option<f64>,
}

impl Rates {
    /// Results of the last measurements.
    pub fn measured(&self) -> Arc<MeasuredRates> {
        Arc::clone(&self.0.lock().measured)
    }

    /// Starts a measurement if one is due and none is running.
    pub fn measure_if_due(&self, view: &Arc<View>) {
        let mut state = self.0.lock();
        if state.is_measuring || state.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        state.is_measuring = true;
        tokio::spawn(measure(Arc::clone(view)));
    }

    /// Drops all measurements.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        state.last = None;
        state.measured = Arc::default();
    }

    fn end(&self, begun: Instant, ends: Result<Ends, ClientError>) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.is_measuring = false;
        state.due = Some(now + INTERVAL.max((now - begun) * SHARE).saturating_sub(now - begun));
        let Ok(ends) = ends else { return };
        if let Some(last) = state.last.take().filter(|last| ends.at - last.at < STALE) {
            let measured = MeasuredRates::between(&last, &ends, &state.measured.history);
            state.measured = Arc::new(measured);
        }
        state.last = Some(ends);
    }
}

impl MeasuredRates {
    /// Records per second of a topic; none if unknown.
    pub fn of(&self, topic: &str) -> Option<f64> {
        let is_known = !self.history.is_empty() && !self.unknown.contains(topic);
        is_known.then(|| self.topics.get(topic).copied().unwrap_or(0.0))
    }

    fn between(last: &Ends, ends: &Ends, history: &VecDeque<Point>) -> MeasuredRates {
        let seconds = (ends.at - last.at).as_secs_f64().max(0.001);
        let (mut topics, mut unknown) = (HashMap::new(), HashSet::new());
        let (mut records, mut unanswered) = (0.0, 0);
        for (name, now) in &ends.topics {
            let before = last.topics.get(name);
            unanswered += now.unanswered.max(before.map_or(0, |before| before.unanswered));
            match before {
                Some(before) if now.unanswered > 0 || before.unanswered > 0 => {
                    unknown.insert(Arc::clone(name));
                }
                Some(before) if now.sum == before.sum => {}
                Some(before) if now.sum > before.sum => {
                    let rate = (now.sum - before.sum) as f64 / seconds;
                    records += rate;
                    topics.insert(Arc::clone(name), rate);
                }
                // A topic that was created again restarts at zero.
                _ => drop(unknown.insert(Arc::clone(name))),
            }
        }
        // Sizes are read less often than ends. Without a new reading the last rate counts, and a new one is
        // compared with the one before at the times of both.
        let bytes_per_second = match Arc::ptr_eq(&last.disks, &ends.disks) {
            _ if ends.are_sizes_partial || last.are_sizes_partial => None,
            true => history.back().and_then(|point| point.bytes_per_second),
            false => ends.disks.growth_since(&last.disks),
        };
        let records_per_second = (unanswered == 0).then_some(records);
        let mut history = history.clone();
        if history.len() >= HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(Point { at_ms: now_ms(), records_per_second, bytes_per_second });
        MeasuredRates { topics, unknown, unanswered, history }
    }
}

async fn measure(view: Arc<View>) {
    let begun = Instant::now();
    let ends = read(&view).await;
    if let Err(error) = &ends {
        tracing::debug!(%error, "Failed to measure rates");
    }
    view.rates.end(begun, ends);
}

async fn read(view: &Arc<View>) -> Result<Ends, ClientError> {
    let catalog = view.catalog().await?;
    let disks = view.disks().await?;
    let at = Instant::now();
    let all = catalog.topics.iter();
    let all = all.map(|line| {
        let unanswered = line.leaders.len();
        (Arc::clone(&line.name), EndSum { sum: 0, unanswered })
    });
    let mut topics: HashMap<Arc<str>, EndSum> = all.collect();
    let add = |topic: &str, _, end| {
        if let Some(ends) = topics.get_mut(topic) {
            ends.sum += end;
            ends.unanswered = ends.unanswered.saturating_sub(1);
        }
    };
    ends::read(view, &catalog, |_, _| true, add).await;
    let are_sizes_partial = !disks.incomplete(&catalog).is_empty();
    Ok(Ends { at, topics, disks, are_sizes_partial })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cluster::disks::LogDirectory;

    fn disks(at: Instant, broker: i32, bytes: u64) -> Arc<Disks> {
        let directory = LogDirectory {
            broker,
            path: "/data".to_owned(),
            log_bytes: Some(bytes),
            replicas: Some(1),
            total_bytes: None,
            usable_bytes: None,
            error: None,
        };
        let sizes = HashMap::from([("orders".to_owned(), bytes)]);
        Arc::new(Disks { directories: vec![directory], unknown: BTreeMap::new(), sizes, at })
    }

    fn ends(at: Instant, disks: &Arc<Disks>) -> Ends {
        Ends { at, topics: HashMap::new(), disks: Arc::clone(disks), are_sizes_partial: false }
    }

    #[test]
    fn a_rate_is_unknown_without_the_end_of_a_partition() {
        let start = Instant::now();
        let sizes = disks(start, 1, 0);
        let at = |seconds: u64, topics: &[(&str, i64, usize)]| {
            let topics = topics.iter();
            let topics = topics.map(|(name, sum, unanswered)| {
                (Arc::from(*name), EndSum { sum: *sum, unanswered: *unanswered })
            });
            Ends { topics: topics.collect(), ..ends(start + Duration::from_secs(seconds), &sizes) }
        };
        let rates = |last: &Ends, now: &Ends| MeasuredRates::between(last, now, &VecDeque::new());
        assert_eq!(MeasuredRates::default().of("whole"), None, "nothing was measured");
        let (one, two) =
            (at(0, &[("whole", 10, 0), ("idle", 7, 0)]), at(2, &[("whole", 30, 0), ("idle", 7, 0)]));
        let known = rates(&one, &two);
        assert_eq!((known.of("whole"), known.of("idle"), known.unanswered), (Some(10.0), Some(0.0), 0));
        assert_eq!(known.history[0].records_per_second, Some(10.0));
        let short = at(4, &[("whole", 50, 0), ("idle", 3, 1), ("new", 5, 0)]);
        for partial in [rates(&two, &short), rates(&short, &two)] {
            assert_eq!((partial.of("idle"), partial.unanswered), (None, 1));
            assert_eq!(partial.history[0].records_per_second, None, "a part is not the sum");
        }
        let partial = rates(&two, &short);
        assert_eq!((partial.of("whole"), partial.of("new")), (Some(10.0), None));
    }

    #[test]
    fn growth_at_a_steady_rate_is_steady_although_sizes_are_read_less_often() {
        let start = Instant::now();
        let mut measured = MeasuredRates::default();
        let mut sizes = disks(start, 1, 0);
        let mut last = ends(start, &sizes);
        for round in 1..=20_u64 {
            let at = start + Duration::from_secs(3 * round);
            // Sizes are read in every other round, some time before the ends.
            if round % 2 == 0 {
                sizes = disks(at - Duration::from_millis(100 * round), 1, 1000 * 30 * round - 1000 * round);
            }
            let now = ends(at, &sizes);
            measured = MeasuredRates::between(&last, &now, &measured.history);
            last = now;
        }
        let rates: Vec<Option<f64>> = measured.history.iter().map(|point| point.bytes_per_second).collect();
        assert_eq!(rates[0], None, "there is one reading");
        for rate in &rates[1..] {
            assert!(rate.is_some_and(|rate| (rate - 10_000.0).abs() < 1.0), "{rates:?}");
        }
    }

    #[test]
    fn growth_of_other_brokers_is_unknown() {
        let start = Instant::now();
        let (before, now) = (disks(start, 1, 10), disks(start + Duration::from_secs(5), 2, 90));
        assert_eq!(now.growth_since(&before), None);
        assert_eq!(before.growth_since(&before), None, "no time has passed");
    }
}
