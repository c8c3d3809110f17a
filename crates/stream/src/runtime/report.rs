//! What streams have done: counted by each stage, batch by batch, and read by anybody at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::module::Findings;
use crate::plan::{Input, Output, StreamPlan};

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
}

impl StageMeter {
    fn new(label: Arc<str>, module: &'static str) -> Arc<StageMeter> {
        let zero = AtomicU64::default;
        Arc::new(StageMeter {
            label,
            module,
            findings: Findings::default(),
            messages_in: zero(),
            messages_out: zero(),
            bytes_out: zero(),
            busy_ns: zero(),
            waited_ns: zero(),
        })
    }

    /// One batch, and the time that it took.
    pub fn worked(&self, messages_in: usize, messages_out: usize, bytes_out: u64, busy: Duration) {
        self.messages_in.fetch_add(messages_in as u64, Ordering::Relaxed);
        self.messages_out.fetch_add(messages_out as u64, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
        self.busy_ns.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The time that it was waited for.
    pub fn waited(&self, time: Duration) {
        self.waited_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// The counts of a stream.
pub struct StreamMeter {
    pub name: Arc<str>,
    pub stages: Vec<Arc<StageMeter>>,
    pub bad: Arc<AtomicU64>,
    ended: OnceLock<Ended>,
}

/// How a stream ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Its source had no more.
    Complete,
    /// It was told to.
    Stopped,
    /// It failed.
    Failed(String),
}

impl StreamMeter {
    pub fn new(stream: &StreamPlan) -> StreamMeter {
        let first = match &stream.input {
            Input::Stage(stage) => StageMeter::new(stage.label.clone(), stage.module.name),
            Input::Topic(name) => StageMeter::new(format!("topic:{name}").into(), "topic"),
            Input::Tap { .. } => StageMeter::new("tap".into(), "tap"),
        };
        let last = match &stream.output {
            Output::Stage(stage) => StageMeter::new(stage.label.clone(), stage.module.name),
            Output::Topic(name) => StageMeter::new(format!("topic:{name}").into(), "topic"),
        };
        let between =
            stream.processors.iter().map(|stage| StageMeter::new(stage.label.clone(), stage.module.name));
        let stages = std::iter::once(first).chain(between).chain([last]).collect();
        StreamMeter { name: stream.name.clone(), stages, bad: Arc::default(), ended: OnceLock::new() }
    }

    /// Says how it ended.
    pub fn end(&self, ended: Ended) {
        let _ = self.ended.set(ended);
    }
}

/// The counts of all streams at one moment.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Since they were started.
    pub elapsed: Duration,
    /// In the order of the text.
    pub streams: Vec<StreamFigures>,
}

/// The counts of a stream at one moment.
#[derive(Clone, Debug)]
pub struct StreamFigures {
    /// Its name.
    pub name: Arc<str>,
    /// From source to sink.
    pub stages: Vec<StageFigures>,
    /// Messages that could not be worked on and were left out.
    pub bad: u64,
    /// How it ended, if it has.
    pub ended: Option<Ended>,
}

/// The counts of a stage at one moment.
#[derive(Clone, Debug)]
pub struct StageFigures {
    /// Its label.
    pub label: Arc<str>,
    /// What it is.
    pub module: &'static str,
    /// Messages that came.
    pub messages_in: u64,
    /// Messages that went on; of a sink, those that it took.
    pub messages_out: u64,
    /// The bytes of their values.
    pub bytes_out: u64,
    /// How long it worked.
    pub busy: Duration,
    /// How long it was waited for.
    pub waited: Duration,
    /// What it found out.
    pub findings: Map<String, Value>,
}

impl Figures {
    pub(super) fn of(meters: &[Arc<StreamMeter>], elapsed: Duration) -> Figures {
        let stage = |meter: &Arc<StageMeter>| {
            let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
            StageFigures {
                label: meter.label.clone(),
                module: meter.module,
                messages_in: get(&meter.messages_in),
                messages_out: get(&meter.messages_out),
                bytes_out: get(&meter.bytes_out),
                busy: Duration::from_nanos(get(&meter.busy_ns)),
                waited: Duration::from_nanos(get(&meter.waited_ns)),
                findings: meter.findings.all(),
            }
        };
        let stream = |meter: &Arc<StreamMeter>| StreamFigures {
            name: meter.name.clone(),
            stages: meter.stages.iter().map(stage).collect(),
            bad: meter.bad.load(Ordering::Relaxed),
            ended: meter.ended.get().cloned(),
        };
        Figures { elapsed, streams: meters.iter().map(stream).collect() }
    }

    /// The report, as JSON.
    pub fn to_json(&self) -> Value {
        let streams: Vec<Value> = self.streams.iter().map(|stream| stream.to_json(self.elapsed)).collect();
        json!({ "elapsed_s": self.elapsed.as_secs_f64(), "streams": streams })
    }
}

impl StreamFigures {
    fn to_json(&self, elapsed: Duration) -> Value {
        let (ended, error) = match &self.ended {
            None => ("running", None),
            Some(Ended::Complete) => ("complete", None),
            Some(Ended::Stopped) => ("stopped", None),
            Some(Ended::Failed(error)) => ("failed", Some(error)),
        };
        let stages: Vec<Value> = self.stages.iter().map(StageFigures::to_json).collect();
        json!({
            "name": &*self.name,
            "ended": ended,
            "error": error,
            "bad_messages": self.bad,
            "messages_per_s": self.stages.first().map_or(0.0, |stage| stage.messages_out as f64) / elapsed.as_secs_f64().max(1e-9),
            "stages": stages,
        })
    }
}

impl StageFigures {
    /// Nanoseconds of work for each message that came; of a source, for each that it made.
    pub fn cost_ns(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.messages_in.max(self.messages_out).max(1) as f64
    }

    fn to_json(&self) -> Value {
        json!({
            "label": &*self.label,
            "module": self.module,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "bytes_out": self.bytes_out,
            "busy_s": self.busy.as_secs_f64(),
            "waited_s": self.waited.as_secs_f64(),
            "cost_ns_per_message": self.cost_ns(),
            "found": self.findings,
        })
    }
}
