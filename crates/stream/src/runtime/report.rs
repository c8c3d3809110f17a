//! Figures of streams: counted by each stage per batch, readable at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::latency::{Latency, LatencyMeter};
use crate::declaration::Findings;
use crate::plan::{Input, Output, StagePlan, StreamPlan};

/// The counts of a stage.
pub struct StageMeter {
    pub label: Arc<str>,
    pub module: &'static str,
    pub findings: Findings,
    messages_in: AtomicU64,
    messages_out: AtomicU64,
    bytes_out: AtomicU64,
    busy_ns: AtomicU64,
    waited_ns: AtomicU64,
    /// Start of the current wait for the stage, in nanoseconds from the start; 0 if there is none.
    waiting_since_ns: AtomicU64,
    latency: LatencyMeter,
    started: Instant,
}

impl StageMeter {
    fn new(label: Arc<str>, module: &'static str, started: Instant) -> Arc<StageMeter> {
        let zero = AtomicU64::default;
        Arc::new(StageMeter {
            label,
            module,
            started,
            waiting_since_ns: zero(),
            latency: LatencyMeter::default(),
            findings: Findings::default(),
            messages_in: zero(),
            messages_out: zero(),
            bytes_out: zero(),
            busy_ns: zero(),
            waited_ns: zero(),
        })
    }

    /// Counts one batch and its processing time.
    pub fn worked(&self, messages_in: usize, messages_out: usize, bytes_out: u64, busy: Duration) {
        self.messages_in.fetch_add(messages_in as u64, Ordering::Relaxed);
        self.messages_out.fetch_add(messages_out as u64, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
        self.busy_ns.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Records processed messages and their age.
    #[inline]
    pub fn reached(&self, messages: usize, age: Duration) {
        self.latency.count(messages, age);
    }

    /// Awaits a future and counts the time, including the current wait.
    pub async fn waited_for<T>(&self, wait: impl Future<Output = T>) -> T {
        let since = self.started.elapsed().as_nanos() as u64;
        self.waiting_since_ns.store(since.max(1), Ordering::Relaxed);
        let waited = wait.await;
        self.waiting_since_ns.store(0, Ordering::Relaxed);
        let until = self.started.elapsed().as_nanos() as u64;
        self.waited_ns.fetch_add(until.saturating_sub(since), Ordering::Relaxed);
        waited
    }

    /// The current figures. A stream that does not run waits for nothing.
    fn figures(&self, is_running: bool) -> StageFigures {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let waited = get(&self.waited_ns)
            + match get(&self.waiting_since_ns) {
                _ if !is_running => 0,
                0 => 0,
                since => (self.started.elapsed().as_nanos() as u64).saturating_sub(since),
            };
        StageFigures {
            label: self.label.clone(),
            module: self.module,
            messages_in: get(&self.messages_in),
            messages_out: get(&self.messages_out),
            bytes_out: get(&self.bytes_out),
            busy: Duration::from_nanos(get(&self.busy_ns)),
            waited: Duration::from_nanos(waited),
            latency: self.latency.read(),
            findings: self.findings.all(),
        }
    }
}

/// The counts of a stream.
pub struct StreamMeter {
    pub name: Arc<str>,
    stream: Arc<str>,
    instance: usize,
    pub stages: Vec<Arc<StageMeter>>,
    pub bad: Arc<AtomicU64>,
    started: Instant,
    ended: OnceLock<(StreamEnd, Instant)>,
}

/// The end of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// The source ended.
    Complete,
    /// The stream was stopped.
    Stopped,
    /// The stream failed, with the reason.
    Failed(String),
}

impl StreamMeter {
    pub fn new(stream: &StreamPlan, instance: usize) -> StreamMeter {
        let started = Instant::now();
        let of = |stage: &StagePlan| StageMeter::new(stage.label.clone(), stage.module.name, started);
        let topic = |name: &str| StageMeter::new(format!("topic:{name}").into(), "topic", started);
        let first = match &stream.input {
            Input::Stage(stage) => of(stage),
            Input::Topic(name) => topic(name),
            Input::Tap { .. } | Input::Beside { .. } => StageMeter::new("tap".into(), "tap", started),
        };
        let last = match &stream.output {
            Output::Stage(stage) => of(stage),
            Output::Topic(name) => topic(name),
        };
        let between = stream.processors.iter().map(of);
        let stages = std::iter::once(first).chain(between).chain([last]).collect();
        StreamMeter {
            name: stream.name.clone(),
            stream: stream.origin.stream.clone(),
            instance,
            stages,
            bad: Arc::default(),
            started,
            ended: OnceLock::new(),
        }
    }

    /// Sets the end of the stream.
    pub fn end(&self, ended: StreamEnd) {
        let _ = self.ended.set((ended, Instant::now()));
    }

    /// The time from the start to the end, if the stream has ended.
    fn ended_after(&self) -> Option<Duration> {
        self.ended.get().map(|(_, at)| at.duration_since(self.started))
    }
}

/// A snapshot of all streams.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Time since the start, or from the start to the end of the last stream.
    pub elapsed: Duration,
    /// The streams, in text order.
    pub streams: Vec<StreamFigures>,
}

/// A snapshot of a stream.
#[derive(Clone, Debug)]
pub struct StreamFigures {
    /// The stream's name.
    pub name: Arc<str>,
    /// The stream of the text that this part belongs to.
    pub stream: Arc<str>,
    /// The number of the instance, from 0.
    pub instance: usize,
    /// The stages, from source to sink.
    pub stages: Vec<StageFigures>,
    /// Bad messages that were skipped or sent to the dead letters.
    pub bad: u64,
    /// The end of the stream; `None` while it runs.
    pub ended: Option<StreamEnd>,
    /// Time from the start to the end.
    pub ended_after: Option<Duration>,
}

/// A snapshot of a stage.
#[derive(Clone, Debug)]
pub struct StageFigures {
    /// The stage's label.
    pub label: Arc<str>,
    /// The stage's module.
    pub module: &'static str,
    pub messages_in: u64,
    /// Messages passed on; for a sink, messages accepted.
    pub messages_out: u64,
    /// Total bytes of the passed values.
    pub bytes_out: u64,
    /// Time spent working.
    pub busy: Duration,
    /// Time that the stream waited for the stage.
    pub waited: Duration,
    /// Message ages when the stage had processed them.
    pub latency: Latency,
    /// The stage's published results.
    pub findings: Map<String, Value>,
}

impl Figures {
    pub(super) fn of(meters: &[Arc<StreamMeter>], elapsed: Duration) -> Figures {
        let stream = |meter: &Arc<StreamMeter>| StreamFigures {
            name: meter.name.clone(),
            stream: meter.stream.clone(),
            instance: meter.instance,
            stages: meter.stages.iter().map(|stage| stage.figures(meter.ended.get().is_none())).collect(),
            bad: meter.bad.load(Ordering::Relaxed),
            ended: meter.ended.get().map(|(ended, _)| ended.clone()),
            ended_after: meter.ended_after(),
        };
        // The time behind the last message is not part of any rate.
        let ends: Option<Vec<Duration>> = meters.iter().map(|meter| meter.ended_after()).collect();
        let elapsed = ends.and_then(|ends| ends.into_iter().max()).unwrap_or(elapsed);
        Figures { elapsed, streams: meters.iter().map(stream).collect() }
    }

    /// The report, as JSON.
    pub fn to_json(&self) -> Value {
        json!({ "elapsed_s": self.elapsed.as_secs_f64(), "streams": self.reports() })
    }

    /// Reports of the streams, for programs.
    pub fn reports(&self) -> Vec<PartReport> {
        self.streams.iter().map(|stream| stream.report(self.elapsed)).collect()
    }
}

impl StreamFigures {
    /// The report for programs, `elapsed` after the start.
    pub fn report(&self, elapsed: Duration) -> PartReport {
        let (ended, error) = match &self.ended {
            None => ("running", None),
            Some(StreamEnd::Complete) => ("complete", None),
            Some(StreamEnd::Stopped) => ("stopped", None),
            Some(StreamEnd::Failed(error)) => ("failed", Some(error.clone())),
        };
        let elapsed = self.ended_after.unwrap_or(elapsed);
        let first = self.stages.first().map_or(0.0, |stage| stage.messages_out as f64);
        PartReport {
            name: self.name.to_string(),
            stream: self.stream.to_string(),
            instance: self.instance,
            ended,
            error,
            bad_messages: self.bad,
            messages_per_s: first / elapsed.as_secs_f64().max(1e-9),
            stages: self.stages.iter().map(StageFigures::report).collect(),
        }
    }
}

impl StageFigures {
    /// Nanoseconds of work per message received; for a source, per message produced.
    pub fn cost_ns(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.messages_in.max(self.messages_out).max(1) as f64
    }

    fn report(&self) -> StageReport {
        StageReport {
            label: self.label.to_string(),
            module: self.module,
            messages_in: self.messages_in,
            messages_out: self.messages_out,
            bytes_out: self.bytes_out,
            busy_s: self.busy.as_secs_f64(),
            waited_s: self.waited.as_secs_f64(),
            cost_ns_per_message: self.cost_ns(),
            latency: LatencyReport {
                p50_us: self.latency.quantile_us(0.5),
                p99_us: self.latency.quantile_us(0.99),
                messages_by_us: self.latency.steps().collect(),
            },
            found: self.findings.clone(),
        }
    }
}

/// A part of a stream: a chain of stages in one instance.
#[derive(Debug, Serialize, ToSchema)]
pub struct PartReport {
    /// The name of the part.
    name: String,
    /// The name of the stream.
    stream: String,
    /// The number of the instance, from 0.
    instance: usize,
    /// The state: `running`, `complete`, `stopped` or `failed`.
    ended: &'static str,
    /// The reason of a failure.
    error: Option<String>,
    /// Bad messages that were skipped or sent to the dead letters.
    bad_messages: u64,
    /// Messages per second that the source has passed on, since the start.
    messages_per_s: f64,
    /// The stages, from source to sink.
    stages: Vec<StageReport>,
}

/// A stage, with figures since the start.
#[derive(Debug, Serialize, ToSchema)]
pub struct StageReport {
    /// The label of the stage.
    label: String,
    /// The module of the stage.
    module: &'static str,
    /// Number of messages received.
    messages_in: u64,
    /// Messages passed on; for a sink, messages accepted.
    messages_out: u64,
    /// Total size of the values passed on, in bytes.
    bytes_out: u64,
    /// Time spent working, in seconds.
    busy_s: f64,
    /// Time that the stream waited for the stage, in seconds.
    waited_s: f64,
    /// Nanoseconds of work per message received; for a source, per message produced.
    cost_ns_per_message: f64,
    /// The ages of messages when the stage had processed them.
    latency: LatencyReport,
    /// The results that the stage publishes, such as the counts of `counter`.
    #[schema(value_type = Object)]
    found: Map<String, Value>,
}

/// Ages of messages.
#[derive(Debug, Serialize, ToSchema)]
pub struct LatencyReport {
    /// The median age in microseconds.
    p50_us: Option<u64>,
    /// The 99th percentile of the ages in microseconds.
    p99_us: Option<u64>,
    /// The distribution of the ages: pairs of an age in microseconds, and the number of messages between the
    /// age of the previous pair and this age.
    #[schema(value_type = Vec<Vec<u64>>)]
    messages_by_us: Vec<(u64, u64)>,
}
