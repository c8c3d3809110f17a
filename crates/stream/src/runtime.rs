//! Runs a plan: each stream is one task, in which the stages call each other. Bounded channels of batches
//! connect streams. Backpressure reaches the source, so memory stays bounded and no message is dropped.

mod chain;
mod channel;
mod latency;
mod origins;
mod report;
mod stop;
mod storage;
mod tap;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bad::{BadMessages, OnError};
use crate::changelog::{StateStore, StoreSettings};
use crate::declaration::{Findings, Site, StageMaker, StageOutput};
use crate::durability::{StateKeeping, has_state, keeping};
use crate::message::Provenance;
use crate::plan::{Input, Output, Plan, StreamPlan};
use crate::reach::Reach;
use crate::stage::{Source, StageError};
use crate::{Cluster, Guarantee};
use chain::{Chain, Link};
use channel::{ChannelSource, Outlet, Readers, TopicSink, channel};
use origins::Origins;

pub use latency::Latency;
pub use report::{Figures, PartReport, StageFigures, StreamEnd, StreamFigures};
pub use stop::{Stop, Stopper, stop};
pub use tap::{Onlooker, Taps};

use report::{StageMeter, StreamMeter};

/// Options of a run.
pub struct RunOptions {
    /// The policy for bad messages.
    pub on_error: OnError,
    /// The cluster for dead letters.
    pub cluster: Cluster,
    /// The delivery guarantee.
    pub guarantee: Guarantee,
    /// The name of this process among all processes that run the same exactly-once streams. A process
    /// restarted under the same name fences its predecessor.
    pub instance: String,
    /// Receives the lines that stages print.
    pub console: Arc<dyn StageOutput>,
    /// Taps between streams of different runs.
    pub taps: Taps,
    /// The limits of the streams outside the cluster.
    pub reach: Arc<Reach>,
}

/// A failed stage.
#[derive(Debug, thiserror::Error)]
#[error("Stream {stream}, {stage}: {source}")]
pub struct StreamFailed {
    pub stream: Arc<str>,
    pub stage: Arc<str>,
    pub source: StageError,
}

/// Streams of a plan, while they run.
pub struct RunningStreams {
    tasks: JoinSet<Result<(), StreamFailed>>,
    meters: Meters,
    stopper: Stopper,
}

/// Reads the figures of running streams.
#[derive(Clone)]
pub struct Meters {
    streams: Vec<Arc<StreamMeter>>,
    started: Instant,
}

impl Meters {
    /// The current figures.
    pub fn figures(&self) -> Figures {
        Figures::of(&self.streams, self.started.elapsed())
    }
}

impl RunningStreams {
    /// The current figures.
    pub fn figures(&self) -> Figures {
        self.meters.figures()
    }

    /// A handle for the figures that outlives the wait for the end.
    pub fn meters(&self) -> Meters {
        self.meters.clone()
    }

    /// A handle that closes the sources, so that the streams drain.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until all streams have ended. If one fails, the others are stopped.
    pub async fn ended(&mut self) -> Result<(), StreamFailed> {
        let mut failed = None;
        while let Some(ended) = self.tasks.join_next().await {
            let ended = match ended {
                Ok(ended) => ended,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            if let Err(error) = ended {
                self.stopper.stop();
                // A lost reader is a consequence of the reader's own failure, which explains more.
                let explains = !matches!(error.source, StageError::ReaderGone(_));
                if failed.as_ref().is_none_or(|(_, explains_more)| !explains_more && explains) {
                    failed = Some((error, explains));
                }
            }
        }
        failed.map_or(Ok(()), |(error, _)| Err(error))
    }
}

/// Builds all stages of all streams, then starts the streams. If a stage cannot be built, no stream is
/// started.
pub fn start(plan: &Plan, options: &RunOptions) -> Result<RunningStreams, StreamFailed> {
    let (stopper, stop) = stop();
    let mut joints = Joints::of(plan);
    let origins = Origins::of(plan);
    let mut chains = Vec::new();
    let mut meters = Vec::new();
    for (index, stream) in plan.streams.iter().enumerate() {
        for instance in 0..stream.instances {
            let meter = Arc::new(StreamMeter::new(stream, instance));
            let transactional_id = options.guarantee.transactional_id(stream, &options.instance, instance);
            let is_stored = storage::stores(plan, index);
            let kept = keeping(stream, options.guarantee);
            let mut builder = Builder {
                options,
                stream: &stream.name,
                meter: &meter,
                is_stored,
                kept: &kept,
                sink_has_transactions: options.guarantee.sink_has_transactions(stream),
                transactional_id,
                origins: &origins,
                index,
                instance,
                gives_refused_back: options.on_error != OnError::Fail,
            };
            chains.push((index, builder.chain(plan, &mut joints, &stop)?));
            meters.push(meter);
        }
    }
    let with_clients = chains.iter().filter(|(_, chain)| chain.source.has_waiting_clients());
    let with_clients: BTreeSet<usize> =
        with_clients.flat_map(|(index, _)| storage::reached(plan, *index)).collect();
    let mut tasks = JoinSet::new();
    for (index, mut chain) in chains {
        chain.has_waiting_clients = with_clients.contains(&index);
        tasks.spawn(chain.run());
    }
    Ok(RunningStreams { tasks, meters: Meters { streams: meters, started: Instant::now() }, stopper })
}

/// The channels between streams, until both ends are taken.
struct Joints {
    /// By reading stream.
    sources: BTreeMap<usize, ChannelSource>,
    /// By name of the topic.
    topics: BTreeMap<Arc<str>, Readers>,
    /// By stream and stage.
    taps: BTreeMap<(usize, usize), Readers>,
}

impl Joints {
    fn of(plan: &Plan) -> Joints {
        let mut joints = Joints { sources: BTreeMap::new(), topics: BTreeMap::new(), taps: BTreeMap::new() };
        for (index, stream) in plan.streams.iter().enumerate() {
            let readers = match &stream.input {
                Input::Stage(_) | Input::Beside { .. } => continue,
                Input::Topic(name) => joints.topics.entry(name.clone()).or_default(),
                Input::Tap { stream, stage } => joints.taps.entry((*stream, *stage)).or_default(),
            };
            let (sender, source) = channel();
            readers.add(sender);
            joints.sources.insert(index, source);
        }
        joints
    }
}

struct Builder<'a> {
    options: &'a RunOptions,
    stream: &'a Arc<str>,
    meter: &'a Arc<StreamMeter>,
    is_stored: bool,
    /// Where the stages keep their state.
    kept: &'a StateKeeping,
    /// True if the output of the sink is part of transactions.
    sink_has_transactions: bool,
    transactional_id: Option<Arc<str>>,
    origins: &'a Origins<'a>,
    /// The number of the stream.
    index: usize,
    instance: usize,
    gives_refused_back: bool,
}

impl Builder<'_> {
    fn failed(&self, stage: &Arc<str>, source: impl Into<StageError>) -> StreamFailed {
        StreamFailed { stream: self.stream.clone(), stage: stage.clone(), source: source.into() }
    }

    /// The provenance of messages that a place makes.
    fn provenance(&self, place: usize) -> Option<Provenance> {
        let source = self.origins.source(self.index, place, self.instance)?;
        // The runtime announces the end of a source, but not whether a processor has more output.
        Some(Provenance { has_ends: place == 0, ..Provenance::single(source) })
    }

    fn tracks_partitions(&self) -> bool {
        self.origins.are_tracked() || self.kept.is_durable()
    }

    /// The state of the stages, if it is durable. Otherwise, says so.
    fn store(&self, stream: &StreamPlan) -> Result<Option<StateStore>, StageError> {
        if let StateKeeping::Memory { stage, reason, is_in_group } = self.kept {
            let (name, stage) = (&**self.stream, &**stage);
            match is_in_group {
                true => tracing::warn!(stream = name, stage, reason, "State is kept in memory"),
                false => tracing::debug!(stream = name, stage, reason, "State is kept in memory"),
            }
            let sink = match &stream.output {
                Output::Stage(stage) => Some(stage),
                Output::Topic(_) => None,
            };
            let stages = stream.processors.iter().chain(sink);
            for (meter, _) in self.meter.stages[1..].iter().zip(stages).filter(|(_, stage)| has_state(stage))
            {
                meter.findings.set("state", "in memory");
            }
        }
        let (Input::Stage(source), Some(source_id)) = (&stream.input, self.provenance(0)) else {
            return Ok(None);
        };
        if !self.kept.is_durable() {
            return Ok(None);
        }
        for (place, topic) in self.kept.topics() {
            self.meter.stages[*place].findings.set("state", &**topic);
        }
        let settings = StoreSettings {
            source: &source.settings,
            source_id: source_id.source,
            topics: self.kept.topics().iter().map(|(_, topic)| topic.clone()).collect(),
            transactional_id: self.transactional_id.clone().filter(|_| !self.sink_has_transactions),
        };
        StateStore::new(settings).map(Some)
    }

    /// The site of a stage; places are counted from the source.
    fn site(&self, place: usize, findings: &Findings) -> Site {
        Site {
            stream: self.stream.clone(),
            guarantee: self.options.guarantee,
            is_stored: self.is_stored,
            gives_refused_back: self.gives_refused_back,
            sources: match place {
                0 => self.provenance(0).into_iter().map(|provenance| provenance.source).collect(),
                place => self.origins.reaching(self.index, place - 1).into_iter().collect(),
            },
            tracks_partitions: self.tracks_partitions(),
            transactional_id: self.transactional_id.clone().filter(|_| self.sink_has_transactions),
            has_durable_state: self.kept.is_durable(),
            console: self.options.console.clone(),
            findings: findings.clone(),
            reach: self.options.reach.clone(),
        }
    }

    fn source(&self, stream: &StreamPlan, joints: &mut Joints) -> Result<Box<dyn Source>, StreamFailed> {
        Ok(match &stream.input {
            Input::Stage(stage) => match stage.module.make {
                StageMaker::Source(make) => {
                    let site = self.site(0, &self.meter.stages[0].findings);
                    make(&stage.settings, &site).map_err(|error| self.failed(&stage.label, error))?
                }
                _ => unreachable!("every plan begins with a source"),
            },
            Input::Beside { stream, stage } => Box::new(self.options.taps.point(stream, *stage).listen()),
            Input::Topic(_) | Input::Tap { .. } => {
                let source = joints.sources.remove(&self.index);
                Box::new(source.expect("each downstream stream has a channel and is built once"))
            }
        })
    }

    fn chain(&mut self, plan: &Plan, joints: &mut Joints, stop: &Stop) -> Result<Chain, StreamFailed> {
        let index = self.index;
        let stream = &plan.streams[index];
        let RunOptions { on_error, cluster, reach, .. } = self.options;
        let mut bad = BadMessages::new(on_error, cluster, reach, stream.name.clone(), self.meter.bad.clone())
            .map_err(|error| self.failed(&stream.name, error))?;
        let source = self.source(stream, joints)?;
        if source.answers_senders() {
            bad.return_to_senders();
            self.gives_refused_back = true;
        }
        let mut is_traceable = true;
        let mut links = Vec::new();
        for (place, (stage, meter)) in (1..).zip(stream.processors.iter().zip(&self.meter.stages[1..])) {
            let StageMaker::Processor(make) = stage.module.make else {
                unreachable!("a plan has processors between its ends")
            };
            let processor = make(&stage.settings, &self.site(place, &meter.findings));
            let processor = processor.map_err(|error| self.failed(&stage.label, error))?;
            let (meter, provenance) = (meter.clone(), self.provenance(place));
            let keeps_sequences = processor.keeps_sequences();
            links.push(Link { processor, meter, provenance, is_announced: false, is_traceable });
            is_traceable &= keeps_sequences;
        }
        let last: &Arc<StageMeter> = self.meter.stages.last().expect("a stream has two ends");
        let sink = match &stream.output {
            Output::Stage(stage) => match stage.module.make {
                StageMaker::Sink(make) => {
                    let site = self.site(links.len() + 1, &last.findings);
                    make(&stage.settings, &site).map_err(|error| self.failed(&stage.label, error))?
                }
                _ => unreachable!("a plan ends with a sink"),
            },
            Output::Topic(name) => {
                Box::new(TopicSink::new(joints.topics.get(name).cloned().unwrap_or_default()))
            }
        };
        let taps = (0..=links.len())
            .map(|stage| Outlet::to(joints.taps.get(&(index, stage)).cloned().unwrap_or_default()));
        let state = self.store(stream).map_err(|error| self.failed(&self.meter.stages[0].label, error))?;
        let origin = &stream.origin;
        let points = (0..=links.len()).map(|place| {
            let stage = origin.stage(place);
            stage.map_or_else(Default::default, |stage| self.options.taps.point(&origin.stream, stage))
        });
        Ok(Chain {
            source_id: self.origins.source(index, 0, self.instance),
            provenance: self.provenance(0).filter(|_| !source.has_provenance()),
            announces: self.tracks_partitions(),
            is_piped: matches!(stream.output, Output::Topic(_)),
            reaches_windows: storage::reaches_windows(plan, index),
            points: points.collect(),
            taps: taps.collect(),
            source,
            first_with_state: self.kept.topics().first().map(|(place, _)| place - 1),
            has_transactions: self.transactional_id.is_some(),
            state,
            links,
            sink,
            meter: self.meter.clone(),
            bad,
            guarantee: self.options.guarantee,
            has_waiting_clients: false,
            stop: stop.clone(),
        })
    }
}
