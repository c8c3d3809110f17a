//! Answered requests: counts by API and version, times, errors.
//!
//! A request costs a few relaxed additions; derived values, such as quantiles, are computed at scrape time.

use super::exposition::{Kind, Samples};
use super::{Family, Figures, errors};
use crate::api::SERVED;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_wire::{ApiKey, ErrorCode};
use tokio::time::Instant;

/// Four for each power of two microseconds, up to an hour.
const BUCKETS: usize = 124;
/// More versions than any API has.
const VERSIONS: usize = 24;
/// Kafka's codes go from -1 to here, with room for more.
const CODES: usize = 160;
/// Quantiles cover at least this time, and at most twice that plus one scrape interval.
const WINDOW: Duration = Duration::from_secs(60);
/// As Kafka's exporters name them, with the share of requests that were at least as fast.
const QUANTILES: [(&str, f64); 6] =
    [("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999)];

/// The families.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "kafka_network_requestmetrics_requests_total",
        kind: Kind::Counter,
        help: "Requests that were answered, by API and version. FetchConsumer and FetchFollower are the parts of Fetch.",
        labels: &["request", "version"],
        read: requests,
    },
    Family {
        name: "kafka_network_requestmetrics_errors_total",
        kind: Kind::Counter,
        help: "Errors in answers to producers and consumers; each partition, topic or group counts.",
        labels: &["request", "error"],
        read: refusals,
    },
    Family {
        name: "kafka_network_requestmetrics_totaltimems",
        kind: Kind::Summary,
        help: "Milliseconds from reading a request to its complete answer, including waiting time.",
        labels: &["request"],
        read: times,
    },
];

/// Which line of the counters a request belongs to: an API, or the followers' part of Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// The counters of a broker.
#[derive(Debug)]
pub struct RequestMetrics {
    /// In the order of [`SERVED`], followed by the fetches of followers.
    apis: Vec<ApiMetrics>,
    /// Earlier counts, for quantiles; used only by scrapes.
    earlier: Mutex<VecDeque<(Instant, Vec<Counts>)>>,
}

type Counts = [u64; BUCKETS];

#[derive(Debug)]
struct ApiMetrics {
    versions: [AtomicU64; VERSIONS],
    buckets: [AtomicU64; BUCKETS],
    total_us: AtomicU64,
    /// Made with the first error.
    errors: OnceLock<Box<[AtomicU64]>>,
}

impl ApiMetrics {
    fn new() -> Self {
        Self {
            versions: std::array::from_fn(|_| AtomicU64::new(0)),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            total_us: AtomicU64::new(0),
            errors: OnceLock::new(),
        }
    }

    fn counts(&self) -> Counts {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed))
    }
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let apis: Vec<_> = (0..=SERVED.len()).map(|_| ApiMetrics::new()).collect();
        let nothing = vec![[0; BUCKETS]; apis.len()];
        Self { apis, earlier: Mutex::new(VecDeque::from([(Instant::now(), nothing)])) }
    }
}

impl RequestMetrics {
    /// The label of an API that is served.
    pub fn label(key: ApiKey) -> Label {
        Label(SERVED.iter().position(|api| api.key == key).unwrap_or(SERVED.len()))
    }

    /// The label of followers' fetches.
    pub fn label_of_followers() -> Label {
        Label(SERVED.len())
    }

    /// A request received at `received_at` is answered now.
    pub fn answered(&self, label: Label, version: i16, received_at: Instant) {
        let metrics = &self.apis[label.0];
        let version = usize::try_from(version).unwrap_or(0).min(VERSIONS - 1);
        let us = u64::try_from(received_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        metrics.versions[version].fetch_add(1, Ordering::Relaxed);
        metrics.buckets[bucket(us)].fetch_add(1, Ordering::Relaxed);
        metrics.total_us.fetch_add(us, Ordering::Relaxed);
    }

    /// An answer brings an error.
    pub fn failed(&self, label: Label, code: i16) {
        let errors = self.apis[label.0]
            .errors
            .get_or_init(|| (0..CODES).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into_boxed_slice());
        let index = usize::try_from(i32::from(code) + 1).unwrap_or(0).min(CODES - 1);
        errors[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the errors in an answer.
    pub fn failed_in(&self, label: Label, response: &dyn Any) {
        errors::each(response, |code| self.failed(label, code));
    }

    /// The counts at the start of the window, and those that later scrapes will use.
    fn window(&self, now: Instant) -> (Vec<Counts>, Vec<Counts>) {
        let counts: Vec<_> = self.apis.iter().map(ApiMetrics::counts).collect();
        let mut earlier = self.earlier.lock();
        while earlier.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
            earlier.pop_front();
        }
        let begin = earlier.front().map_or_else(|| counts.clone(), |(_, begin)| begin.clone());
        if earlier.back().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
            earlier.push_back((now, counts.clone()));
        }
        (begin, counts)
    }
}

/// The bucket of a time.
fn bucket(us: u64) -> usize {
    let us = us.min(u64::from(u32::MAX));
    if us < 4 {
        return usize::try_from(us).unwrap_or(0);
    }
    let power = us.ilog2();
    usize::try_from((power - 1) * 4).unwrap_or(0) + usize::try_from((us >> (power - 2)) & 3).unwrap_or(0)
}

/// The longest time of a bucket, in microseconds.
fn longest(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (power, quarter) = (bucket / 4 + 1, bucket % 4);
    ((5 + quarter as u64) << (power - 2)) - 1
}

/// The time below which a share of the requests lies, in milliseconds; NaN without requests.
fn quantile(counts: &Counts, share: f64) -> f64 {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return f64::NAN;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are far below 2^53"
    )]
    let rank = ((total as f64 * share).ceil() as u64).max(1);
    let mut below = 0;
    let reaches = |count: &u64| {
        below += count;
        below >= rank
    };
    let found = counts.iter().position(reaches).unwrap_or(BUCKETS - 1);
    milliseconds(longest(found))
}

#[expect(clippy::cast_precision_loss, reason = "times are far below 2^53 microseconds")]
fn milliseconds(us: u64) -> f64 {
    us as f64 / 1000.0
}

fn sum(of: &Counts, and: &Counts) -> Counts {
    std::array::from_fn(|bucket| of[bucket] + and[bucket])
}

fn difference(of: &Counts, before: &Counts) -> Counts {
    std::array::from_fn(|bucket| of[bucket].saturating_sub(before[bucket]))
}

/// Kafka counts a fetch by its sender, and again as a fetch.
fn name(index: usize) -> String {
    match SERVED.get(index).map(|api| api.key) {
        None => "FetchFollower".to_owned(),
        Some(ApiKey::Fetch) => "FetchConsumer".to_owned(),
        Some(key) => format!("{key:?}"),
    }
}

fn requests(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    let apis = &broker.requests.apis;
    let mut fetches = [0u64; VERSIONS];
    for (index, api) in apis.iter().enumerate() {
        let is_fetch = index == SERVED.len() || SERVED[index].key == ApiKey::Fetch;
        for (version, count) in api.versions.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if is_fetch {
                fetches[version] += count;
            }
            if count > 0 {
                out.add(&[&name(index), &version.to_string()], count);
            }
        }
    }
    for (version, count) in fetches.iter().enumerate().filter(|(_, count)| **count > 0) {
        out.add(&["Fetch", &version.to_string()], *count);
    }
}

fn refusals(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    for (index, api) in broker.requests.apis.iter().enumerate() {
        for (code, count) in api.errors.get().into_iter().flatten().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let code = i16::try_from(code).ok().and_then(|code| ErrorCode::from_i16(code - 1));
                out.add(&[&name(index), code.map_or("UNKNOWN", ErrorCode::name)], count);
            }
        }
    }
}

fn times(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    let metrics = &broker.requests;
    let (begin, now) = metrics.window(figures.now);
    let us = |index: usize| metrics.apis[index].total_us.load(Ordering::Relaxed);
    let fetch = RequestMetrics::label(ApiKey::Fetch).0;
    let followers = RequestMetrics::label_of_followers().0;
    for index in 0..now.len() {
        time(out, &name(index), &begin[index], &now[index], us(index));
    }
    let (begin, now) = (sum(&begin[fetch], &begin[followers]), sum(&now[fetch], &now[followers]));
    time(out, "Fetch", &begin, &now, us(fetch) + us(followers));
}

fn time(out: &mut Samples<'_>, name: &str, begin: &Counts, now: &Counts, total_us: u64) {
    let count: u64 = now.iter().sum();
    if count == 0 {
        return;
    }
    let counts = difference(now, begin);
    for (quantile_name, share) in QUANTILES {
        out.quantile(&[name], quantile_name, quantile(&counts, share));
    }
    out.count_and_sum(&[name], count, milliseconds(total_us));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_bucket_that_ends_at_most_a_fifth_above_it() {
        for us in (0..5000).chain([1 << 20, (1 << 31) + 7, u64::from(u32::MAX)]) {
            let longest = longest(bucket(us));
            assert!(longest >= us && longest - us <= us / 4, "{us}: {longest}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut counts = [0; BUCKETS];
        counts[bucket(100)] = 98;
        counts[bucket(9000)] = 2;
        assert!((0.1..0.13).contains(&quantile(&counts, 0.5)));
        assert!((0.1..0.13).contains(&quantile(&counts, 0.98)));
        assert!((9.0..11.3).contains(&quantile(&counts, 0.99)));
        assert!(quantile(&[0; BUCKETS], 0.5).is_nan());
    }

    #[test]
    fn quantiles_forget_what_was_minutes_ago() {
        let metrics = RequestMetrics::default();
        let produce = RequestMetrics::label(ApiKey::Produce);
        let start = Instant::now();
        let count_at = |seconds| {
            let (begin, now) = metrics.window(start + Duration::from_secs(seconds));
            difference(&now[produce.0], &begin[produce.0]).iter().sum::<u64>()
        };
        metrics.answered(produce, 9, start);
        // Scrapes every 15 seconds.
        let counts: Vec<_> = (0..=12).map(|scrape| count_at(15 * scrape)).collect();
        assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
        metrics.answered(produce, 9, start);
        assert_eq!((count_at(185), count_at(240), count_at(300)), (1, 1, 0));
    }
}
