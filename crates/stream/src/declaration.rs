//! The declaration of a stage: name, documentation, options (each declared once), and constructor.

mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::guarantee::Guarantee;
use crate::message::SourceId;
use crate::reach::Reach;
use crate::stage::{Processor, Sink, Source, StageError};

pub use settings::{Settings, Value, WrongValue};

/// The kind of a stage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Source,
    Processor,
    Sink,
}

impl Kind {
    /// All kinds, in the order of a stream.
    pub const ALL: [Kind; 3] = [Kind::Source, Kind::Processor, Kind::Sink];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Source => "source",
            Kind::Processor => "processor",
            Kind::Sink => "sink",
        }
    }
}

/// A stage of the registry.
pub struct Module {
    /// The module's name in a stream's text.
    pub name: &'static str,
    /// One line of documentation.
    pub summary: &'static str,
    /// More documentation, in Markdown; empty if the summary suffices.
    pub about: &'static str,
    /// The declared options.
    pub options: &'static [OptionSpec],
    /// Examples: a stream with the stage, and its effect.
    pub examples: &'static [(&'static str, &'static str)],
    /// Checks combinations of options.
    pub check: fn(&Settings) -> Result<(), WrongMix>,
    pub make: StageMaker,
}

/// Options that are valid one by one but not together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongMix {
    /// The option to report.
    pub option: &'static str,
    pub message: String,
    /// The remedy, for the message.
    pub right: String,
}

impl WrongMix {
    /// A conflict reported for an option.
    pub fn new(option: &'static str, message: impl Into<String>, right: impl Into<String>) -> WrongMix {
        WrongMix { option, message: message.into(), right: right.into() }
    }
}

/// The check of a stage whose options can all be combined.
pub fn any(_settings: &Settings) -> Result<(), WrongMix> {
    Ok(())
}

/// Builds a stage from its settings.
pub enum StageMaker {
    Source(Maker<dyn Source>),
    Processor(Maker<dyn Processor>),
    Sink(Maker<dyn Sink>),
}

/// Makes one stage.
pub type Maker<S> = fn(&Settings, &Site) -> Result<Box<S>, StageError>;

/// The context in which a stage is built.
#[derive(Clone)]
pub struct Site {
    /// The name of the stream.
    pub stream: Arc<str>,
    /// The delivery guarantee of the run.
    pub guarantee: Guarantee,
    /// True if this stream and all downstream streams end in a sink that stores messages.
    pub is_stored: bool,
    /// True if a sink should give back messages that are refused for good, since the stream continues without
    /// them.
    pub gives_refused_back: bool,
    /// The transactional id of the sink, if its output and the source's offsets form transactions.
    pub transactional_id: Option<Arc<str>>,
    /// True if the stages keep their state in the cluster, written in transactions with the source's offsets.
    pub has_durable_state: bool,
    /// The sources whose messages reach this stage, as far as they are known.
    pub sources: Arc<[SourceId]>,
    /// True if some stage tracks the partitions of its messages.
    pub tracks_partitions: bool,
    /// Output for people.
    pub console: Arc<dyn StageOutput>,
    /// The limits of the stream outside the cluster.
    pub reach: Arc<Reach>,
    /// Counters and histograms, published for the report.
    pub findings: Findings,
}

/// Receives the lines that a stage prints.
pub trait StageOutput: Send + Sync {
    /// Prints a line; without its line end.
    fn line(&self, text: &str);
}

/// Results of a stage, for reports.
#[derive(Clone, Default)]
pub struct Findings(Arc<std::sync::Mutex<ReportedFigures>>);

#[derive(Default)]
struct ReportedFigures {
    left: serde_json::Map<String, serde_json::Value>,
    /// Counters that other tasks update; read when a report is made.
    counts: Vec<(&'static str, Arc<AtomicU64>)>,
}

impl Findings {
    fn lock(&self) -> std::sync::MutexGuard<'_, ReportedFigures> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Publishes a figure.
    pub fn set(&self, name: &str, value: impl Into<serde_json::Value>) {
        self.lock().left.insert(name.to_owned(), value.into());
    }

    /// Publishes a counter that is read whenever a report is made.
    pub fn count(&self, name: &'static str, count: Arc<AtomicU64>) {
        self.lock().counts.push((name, count));
    }

    /// All current figures.
    pub fn all(&self) -> serde_json::Map<String, serde_json::Value> {
        let found = self.lock();
        let mut all = found.left.clone();
        for (name, count) in &found.counts {
            all.insert((*name).to_owned(), count.load(Ordering::Acquire).into());
        }
        all
    }
}

impl Module {
    /// Source, processor or sink.
    pub fn kind(&self) -> Kind {
        match self.make {
            StageMaker::Source(_) => Kind::Source,
            StageMaker::Processor(_) => Kind::Processor,
            StageMaker::Sink(_) => Kind::Sink,
        }
    }
}

/// An option of a stage.
pub struct OptionSpec {
    /// The option's name.
    pub name: &'static str,
    /// The type of its value.
    pub takes: OptionType,
    /// The default of the option.
    pub default: OptionDefault,
    /// One line of documentation.
    pub summary: &'static str,
}

/// The default of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionDefault {
    Required,
    /// No default: the option's summary explains the effect.
    None,
    /// This default value, as written in a text.
    Value(&'static str),
}

/// The type of an option.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OptionType {
    /// Text, possibly empty.
    Text,
    /// Text that is not empty.
    Name,
    /// true or false.
    Flag,
    /// A whole number in a range, inclusive.
    Integer(u64, u64),
    /// A number in a range, inclusive.
    Number(f64, f64),
    /// A time such as 500ms, 10s, 5m or 1h; a bare number is milliseconds.
    Duration,
    /// A time; a bare number is seconds.
    Seconds,
    /// Bytes, such as 1000, 64KiB or 10MB.
    Size,
    /// Any of these words.
    Choice(&'static [&'static str]),
    /// A CEL expression.
    Expression,
    /// A target URL: http://HOST:PORT/PATH, or https.
    Url,
    /// Figures of an aggregate, separated by commas.
    Figures,
    /// Broker addresses, separated by commas.
    Brokers,
    /// A valid topic name.
    Topic,
    /// Topic names, separated by commas.
    Topics,
    /// A strftime format.
    TimeFormat,
    /// A start position in a topic.
    Begin,
    /// Partition numbers, separated by commas.
    Partitions,
}
