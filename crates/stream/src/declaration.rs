//! What a stage declares: what it is called, what it is for, and its options, each declared once; and what it is made of.

mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::guarantee::Guarantee;
use crate::stage::{Processor, Sink, Source, StageError};

pub use settings::{Settings, Value, WrongValue};

/// Which end of a stream a stage is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Where messages come from.
    Source,
    /// What works on them.
    Processor,
    /// Where they go.
    Sink,
}

impl Kind {
    /// All kinds, in the order of a stream.
    pub const ALL: [Kind; 3] = [Kind::Source, Kind::Processor, Kind::Sink];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Source => "source",
            Kind::Processor => "processor",
            Kind::Sink => "sink",
        }
    }
}

/// A stage that there is.
pub struct Module {
    /// Its name in the text.
    pub name: &'static str,
    /// In one line, what it does.
    pub summary: &'static str,
    /// More about it, in Markdown; empty where the summary says all.
    pub about: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Streams with it, each with a word on what it does.
    pub examples: &'static [(&'static str, &'static str)],
    /// Which options do not go together.
    pub check: fn(&Settings) -> Result<(), WrongMix>,
    /// How one is made.
    pub make: Make,
}

/// Options that are right each by itself do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongMix {
    /// The option to look at.
    pub option: &'static str,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub right: String,
}

impl WrongMix {
    /// Of an option.
    pub fn new(option: &'static str, message: impl Into<String>, right: impl Into<String>) -> WrongMix {
        WrongMix { option, message: message.into(), right: right.into() }
    }
}

/// The check of a stage whose options all go together.
pub fn any(_settings: &Settings) -> Result<(), WrongMix> {
    Ok(())
}

/// How a stage is made of its settings.
pub enum Make {
    /// A source.
    Source(Maker<dyn Source>),
    /// A processor.
    Processor(Maker<dyn Processor>),
    /// A sink.
    Sink(Maker<dyn Sink>),
}

/// Makes one stage.
pub type Maker<S> = fn(&Settings, &Site) -> Result<Box<S>, StageError>;

/// Where a stage is put up, and what it may use there.
#[derive(Clone)]
pub struct Site {
    /// The name of the stream.
    pub stream: Arc<str>,
    /// How often a message may arrive.
    pub guarantee: Guarantee,
    /// Whether the stream, and every stream behind it, ends in something that stores messages.
    pub is_stored: bool,
    /// The name under which the cluster knows the transactions of this instance, in a stream that runs exactly once.
    pub transactional_id: Option<Arc<str>>,
    /// Where lines for people go.
    pub console: Arc<dyn Console>,
    /// Where counters and histograms leave what they have seen, for the report.
    pub findings: Findings,
}

/// Takes lines that a stage has for people.
pub trait Console: Send + Sync {
    /// Shows a line, without its end.
    fn line(&self, text: &str);
}

/// What a stage has found out, for reports.
#[derive(Clone, Default)]
pub struct Findings(Arc<std::sync::Mutex<Found>>);

#[derive(Default)]
struct Found {
    left: serde_json::Map<String, serde_json::Value>,
    /// Counts that go on without the stage's task, read where they lie.
    counts: Vec<(&'static str, Arc<AtomicU64>)>,
}

impl Findings {
    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Leaves a figure.
    pub fn set(&self, name: &str, value: impl Into<serde_json::Value>) {
        self.lock().left.insert(name.to_owned(), value.into());
    }

    /// Leaves a count that is read whenever a report is made.
    pub fn count(&self, name: &'static str, count: Arc<AtomicU64>) {
        self.lock().counts.push((name, count));
    }

    /// All figures of this moment.
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
    /// Which end of a stream it is for.
    pub fn kind(&self) -> Kind {
        match self.make {
            Make::Source(_) => Kind::Source,
            Make::Processor(_) => Kind::Processor,
            Make::Sink(_) => Kind::Sink,
        }
    }
}

/// An option of a stage.
pub struct OptionSpec {
    /// Its name.
    pub name: &'static str,
    /// What values it takes.
    pub takes: Takes,
    /// What holds without it.
    pub default: Absent,
    /// What it does.
    pub summary: &'static str,
}

/// What holds where an option is not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// It must be given.
    Required,
    /// Nothing: what that means is in the option's summary.
    None,
    /// This value, as it would be written.
    Value(&'static str),
}

/// What values an option takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Takes {
    /// Any text.
    Text,
    /// Any text that is not empty.
    Name,
    /// true or false.
    Flag,
    /// A whole number, from one to another.
    Integer(u64, u64),
    /// A number, from one to another.
    Number(f64, f64),
    /// A time such as 500ms, 10s, 5m or 1h; a bare number is milliseconds.
    Duration,
    /// The same; a bare number is seconds.
    Seconds,
    /// Bytes, such as 1000, 64KiB or 10MB.
    Size,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An expression.
    Expression,
    /// Where to post to: http://HOST:PORT/PATH, or https.
    Url,
    /// Figures of an aggregate, with commas between.
    Figures,
    /// Addresses of brokers, with commas between.
    Brokers,
    /// A name that a topic can have.
    Topic,
    /// Such names, with commas between.
    Topics,
    /// A time in the directives of strftime.
    TimeFormat,
    /// Where to begin in a topic.
    Begin,
    /// Numbers of partitions, with commas between.
    Partitions,
}
