//! Answered requests: counts by API and version, times, errors.
//!
//! A request costs a few relaxed additions; derived values, such as quantiles, are computed at scrape time
//! (`metrics::requests`).

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_histogram::{BOUNDS_MAX, Histogram, microseconds};
use thalweg_log::Clock;
use thalweg_wire::{ApiKey, Response};
use tokio::time::Instant;

/// Number of buckets: four for each power of two microseconds, up to an hour.
pub const BUCKETS: usize = 124;
/// Counters for versions: more than any API has.
pub const VERSIONS: usize = 24;
/// Kafka's codes go from -1 to here, with room for more.
const CODES: usize = 160;
/// Quantiles cover at least this time, and at most twice that plus one scrape interval.
const WINDOW: Duration = Duration::from_secs(60);

/// The counters for a request: of an API, or of followers' fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLabel(pub usize);

/// The counters of a broker.
#[derive(Debug)]
pub struct RequestMetrics {
    /// The served APIs, then the fetches of followers.
    pub apis: Vec<ApiMetrics>,
    /// The index of each API in `apis`.
    places: HashMap<ApiKey, usize>,
    /// Earlier counts, for quantiles; used only by scrapes.
    earlier: Mutex<VecDeque<(Instant, Vec<Counts>)>>,
    /// Number of waiting requests.
    waiting: [AtomicUsize; Purgatory::ALL.len()],
    clock: Clock,
}

/// The kind of a waiting request (Kafka's purgatories).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purgatory {
    /// A wait for replicas or the disk.
    Produce,
    /// A wait for more records.
    Fetch,
    /// A wait for records to acquire.
    ShareFetch,
}

impl Purgatory {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Purgatory; 3] = [Self::Produce, Self::Fetch, Self::ShareFetch];

    /// Kafka's name of the purgatory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Produce => "Produce",
            Self::Fetch => "Fetch",
            Self::ShareFetch => "ShareFetch",
        }
    }
}

/// A guard that counts a waiting request until it is dropped.
#[derive(Debug)]
pub struct WaitGuard<'a>(&'a AtomicUsize);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that is answered.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest<'a> {
    /// The version of the request.
    pub version: i16,
    pub received_at: Instant,
    /// This broker's work time; `None` if it equals the total time.
    pub local: Option<Duration>,
    /// The client's throttle time.
    pub throttled: Duration,
    /// The client id.
    pub client_id: &'a str,
}

/// Number of requests in each bucket of time.
pub type Counts = [u64; BUCKETS];

/// The counters of one API.
#[derive(Debug)]
pub struct ApiMetrics {
    /// The API; `None` for the fetches of followers.
    pub key: Option<ApiKey>,
    pub versions: [AtomicU64; VERSIONS],
    buckets: [AtomicU64; BUCKETS],
    /// Times from the arrival of a request to its complete answer.
    pub total: Histogram,
    /// Work times of this broker.
    pub local: Histogram,
    /// Waiting times of requests that had to wait.
    pub remote: Histogram,
    /// Throttle times of throttled clients.
    pub throttle: Histogram,
    /// The last slow request of each bucket of `total`.
    slow: [SlowRequest; BOUNDS_MAX + 1],
    /// Errors by code, from -1 on; allocated at the first error.
    pub errors: OnceLock<Box<[AtomicU64]>>,
}

impl ApiMetrics {
    fn new(key: Option<ApiKey>) -> Self {
        Self {
            key,
            versions: std::array::from_fn(|_| AtomicU64::new(0)),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            total: Histogram::of_times(),
            local: Histogram::of_times(),
            remote: Histogram::of_times(),
            throttle: Histogram::of_times(),
            slow: std::array::from_fn(|_| SlowRequest::default()),
            errors: OnceLock::new(),
        }
    }

    /// The number of requests in each bucket of time so far.
    pub fn counts(&self) -> Counts {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed))
    }
}

impl ApiMetrics {
    /// Kafka's label for the API's requests. Kafka counts a fetch by its sender, and again as a fetch.
    pub fn name(&self) -> String {
        match self.key {
            None => "FetchFollower".to_owned(),
            Some(ApiKey::Fetch) => "FetchConsumer".to_owned(),
            Some(key) => format!("{key:?}"),
        }
    }

    /// An exemplar for each bucket of `total`, if there is one.
    pub fn slow(&self) -> impl Iterator<Item = Option<SlowFigures>> {
        self.slow.iter().map(SlowRequest::figures)
    }
}

/// Slower requests are kept as exemplars, one for each bucket. In microseconds.
const SLOW_US: u64 = 100_000;

/// A slow request. The fields may come from two concurrent requests, which does not matter for an exemplar.
#[derive(Debug, Default)]
struct SlowRequest {
    us: AtomicU64,
    client_hash: AtomicU32,
    at_ms: AtomicI64,
}

/// A slow request, for exemplars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowFigures {
    /// Total time in microseconds.
    pub us: u64,
    /// A hash of the client's id.
    pub client_hash: u32,
    /// Time of the answer, in milliseconds since 1970.
    pub at_ms: i64,
}

impl SlowRequest {
    fn note(&self, us: u64, client_id: &str, at_ms: i64) {
        self.client_hash.store(hash(client_id), Ordering::Relaxed);
        self.at_ms.store(at_ms, Ordering::Relaxed);
        self.us.store(us, Ordering::Relaxed);
    }

    fn figures(&self) -> Option<SlowFigures> {
        let us = self.us.load(Ordering::Relaxed);
        let (client_hash, at_ms) = (&self.client_hash, &self.at_ms);
        (us > 0).then(|| SlowFigures {
            us,
            client_hash: client_hash.load(Ordering::Relaxed),
            at_ms: at_ms.load(Ordering::Relaxed),
        })
    }
}

/// FNV-1a: the same in every process, so that a client can be found by its id.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl RequestMetrics {
    /// Counters for these APIs.
    pub fn new(served: &[ApiKey], clock: Clock) -> RequestMetrics {
        let keys = served.iter().copied().map(Some).chain([None]);
        let apis: Vec<_> = keys.map(ApiMetrics::new).collect();
        let places = served.iter().enumerate().map(|(place, key)| (*key, place)).collect();
        let nothing = vec![[0; BUCKETS]; apis.len()];
        let earlier = Mutex::new(VecDeque::from([(Instant::now(), nothing)]));
        RequestMetrics { apis, places, earlier, waiting: Default::default(), clock }
    }

    /// The label of an API that is served.
    pub fn label(&self, key: ApiKey) -> RequestLabel {
        self.places.get(&key).map_or(self.label_of_followers(), |place| RequestLabel(*place))
    }

    /// The label of followers' fetches.
    pub fn label_of_followers(&self) -> RequestLabel {
        RequestLabel(self.apis.len() - 1)
    }

    /// Counts an answered request.
    pub fn answered(&self, label: RequestLabel, answered: &AnsweredRequest<'_>) {
        let metrics = &self.apis[label.0];
        let version = usize::try_from(answered.version).unwrap_or(0).min(VERSIONS - 1);
        let total = answered.received_at.elapsed();
        let us = microseconds(total);
        metrics.versions[version].fetch_add(1, Ordering::Relaxed);
        metrics.buckets[bucket(us)].fetch_add(1, Ordering::Relaxed);
        let place = metrics.total.record(us);
        metrics.local.record_time(answered.local.unwrap_or(total).min(total));
        if let Some(local) = answered.local {
            metrics.remote.record_time(total.saturating_sub(local));
        }
        if !answered.throttled.is_zero() {
            metrics.throttle.record_time(answered.throttled);
        }
        if us > SLOW_US {
            metrics.slow[place].note(us, answered.client_id, self.clock.now_ms());
        }
    }

    /// Counts a request as waiting until the guard is dropped.
    pub fn waits(&self, delayed: Purgatory) -> WaitGuard<'_> {
        let waiting = &self.waiting[delayed as usize];
        waiting.fetch_add(1, Ordering::Relaxed);
        WaitGuard(waiting)
    }

    /// Number of waiting requests.
    pub fn waiting(&self, delayed: Purgatory) -> usize {
        self.waiting[delayed as usize].load(Ordering::Relaxed)
    }

    /// Counts an error in an answer.
    pub fn failed(&self, label: RequestLabel, code: i16) {
        let errors = self.apis[label.0]
            .errors
            .get_or_init(|| (0..CODES).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into_boxed_slice());
        let index = usize::try_from(i32::from(code) + 1).unwrap_or(0).min(CODES - 1);
        errors[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the errors in an answer.
    pub fn failed_in(&self, label: RequestLabel, response: &impl Response) {
        response.each_error_code(&mut |code| {
            if code != 0 {
                self.failed(label, code);
            }
        });
    }

    /// The counts at the start of the window, and the current counts, which later scrapes will use.
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

/// A future's output, and the time that its polls took.
pub async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let (mut future, mut spent) = (pin!(future), Duration::ZERO);
    let output = poll_fn(|context| {
        let begun = Instant::now();
        let polled = future.as_mut().poll(context);
        spent += begun.elapsed();
        polled
    })
    .await;
    (output, spent)
}

/// The throttle time of an answer as a duration.
pub fn milliseconds(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
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
