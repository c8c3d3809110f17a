//! Answered requests: counts by API and version, times, errors.
//!
//! A request costs a few relaxed additions; derived values, such as quantiles, are computed at scrape time
//! (`metrics::requests`).

mod errors;

use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_wire::ApiKey;
use tokio::time::Instant;

/// Four for each power of two microseconds, up to an hour.
pub const BUCKETS: usize = 124;
/// More versions than any API has.
pub const VERSIONS: usize = 24;
/// Kafka's codes go from -1 to here, with room for more.
const CODES: usize = 160;
/// Quantiles cover at least this time, and at most twice that plus one scrape interval.
const WINDOW: Duration = Duration::from_secs(60);

/// Which line of the counters a request belongs to: an API, or the followers' part of Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(pub usize);

/// The counters of a broker.
#[derive(Debug)]
pub struct RequestMetrics {
    /// The APIs that are served, followed by the fetches of followers.
    pub apis: Vec<ApiMetrics>,
    /// The index of each API in `apis`.
    places: HashMap<ApiKey, usize>,
    /// Earlier counts, for quantiles; used only by scrapes.
    earlier: Mutex<VecDeque<(Instant, Vec<Counts>)>>,
}

/// Requests by bucket of time.
pub type Counts = [u64; BUCKETS];

/// The counters of one API.
#[derive(Debug)]
pub struct ApiMetrics {
    /// The API; `None` for the fetches of followers.
    pub key: Option<ApiKey>,
    pub versions: [AtomicU64; VERSIONS],
    buckets: [AtomicU64; BUCKETS],
    pub total_us: AtomicU64,
    /// By code, from -1; made with the first error.
    pub errors: OnceLock<Box<[AtomicU64]>>,
}

impl ApiMetrics {
    fn new(key: Option<ApiKey>) -> Self {
        Self {
            key,
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

impl RequestMetrics {
    /// For a broker that serves these APIs.
    pub fn new(served: &[ApiKey]) -> RequestMetrics {
        let keys = served.iter().copied().map(Some).chain([None]);
        let apis: Vec<_> = keys.map(ApiMetrics::new).collect();
        let places = served.iter().enumerate().map(|(place, key)| (*key, place)).collect();
        let nothing = vec![[0; BUCKETS]; apis.len()];
        RequestMetrics { apis, places, earlier: Mutex::new(VecDeque::from([(Instant::now(), nothing)])) }
    }

    /// The label of an API that is served.
    pub fn label(&self, key: ApiKey) -> Label {
        self.places.get(&key).map_or(self.label_of_followers(), |place| Label(*place))
    }

    /// The label of followers' fetches.
    pub fn label_of_followers(&self) -> Label {
        Label(self.apis.len() - 1)
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
    pub fn window(&self, now: Instant) -> (Vec<Counts>, Vec<Counts>) {
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
pub fn bucket(us: u64) -> usize {
    let us = us.min(u64::from(u32::MAX));
    if us < 4 {
        return usize::try_from(us).unwrap_or(0);
    }
    let power = us.ilog2();
    usize::try_from((power - 1) * 4).unwrap_or(0) + usize::try_from((us >> (power - 2)) & 3).unwrap_or(0)
}
