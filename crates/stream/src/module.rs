//! The registry of stages. Parsing, checks, defaults, `thalweg stream modules` and the pages under
//! `docs/streams/` derive from the declarations.

mod document;
mod renamed;

use crate::{processor, sink, source};

pub use crate::declaration::{
    Findings, Kind, Maker, Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker,
    StageOutput, Value, WrongMix, WrongValue, any,
};
pub use document::{page, summary, text};
pub use renamed::replacement;

/// A module of Spring XD that Thalweg lacks.
pub struct MissingModule {
    /// The module's name in Spring XD.
    pub name: &'static str,
    /// The replacement in Thalweg.
    pub instead: &'static str,
}

/// All modules, sources first, each kind by name.
pub static MODULES: &[&Module] = &[
    &source::file::MODULE,
    &source::http::MODULE,
    &source::kafka::MODULE,
    &source::load_generator::MODULE,
    &source::stdin::MODULE,
    &source::time::MODULE,
    &processor::aggregate::MODULE,
    &processor::batch::MODULE,
    &processor::dedup::MODULE,
    &processor::enrich::MODULE,
    &processor::exec::MODULE,
    &processor::filter::MODULE,
    &processor::rate_limit::MODULE,
    &processor::splitter::MODULE,
    &processor::transform::MODULE,
    &sink::counter::MODULE,
    &sink::file::MODULE,
    &sink::histogram::MODULE,
    &sink::http::MODULE,
    &sink::kafka::MODULE,
    &sink::log::MODULE,
    &sink::null::MODULE,
    &sink::stdout::MODULE,
    &sink::throughput::MODULE,
];

/// Modules that users may look for, with a replacement each.
pub static UNSERVED: &[MissingModule] = &[
    MissingModule {
        name: "aggregate-counter",
        instead: "Use `aggregate --window=1h --key=...`, which counts by time, or `counter`.",
    },
    MissingModule {
        name: "aggregator",
        instead: "Use `batch --size=N`, which makes one message of several, or `aggregate` for figures.",
    },
    MissingModule { name: "bridge", instead: "Remove it: `|` alone connects stages." },
    MissingModule {
        name: "field-value-counter",
        instead: "Use `counter --by=payload.NAME`, which counts by a field.",
    },
    MissingModule {
        name: "gauge",
        instead: "Use `histogram --of=...`, which shows the distribution of a number.",
    },
    MissingModule {
        name: "hdfs",
        instead: "Use `file --rollSize=...`, and a program that moves finished files.",
    },
    MissingModule { name: "header-enricher", instead: "Use `transform --headers=...`, which sets headers." },
    MissingModule {
        name: "jdbc",
        instead: "Use `exec --command=...` to hand messages to a program that accesses the database.",
    },
    MissingModule {
        name: "join",
        instead: "Use `enrich --table=TOPIC --as=NAME`, which adds the value of a key in a topic.",
    },
    MissingModule {
        name: "json-to-tuple",
        instead: "Remove it: every expression sees the message as JSON, `payload`.",
    },
    MissingModule { name: "object-to-json", instead: "Remove it: messages are JSON, text or bytes already." },
    MissingModule {
        name: "rich-gauge",
        instead: "Use `histogram --of=...`, which shows the distribution of a number.",
    },
    MissingModule {
        name: "router",
        instead: "End in `topic:NAME`, and add a stream `topic:NAME > filter --expression=... | ...` for each route.",
    },
    MissingModule {
        name: "script",
        instead: "Use `transform` for expressions, `exec --command=...` to run a script.",
    },
    MissingModule { name: "shell", instead: "Use `exec --command=...`, which runs a program as a stage." },
    MissingModule { name: "tail", instead: "Use `file --mode=follow`." },
    MissingModule { name: "trigger", instead: "Use `time --fixedDelay=...`." },
];

/// The module of a kind with a name.
pub fn find(kind: Kind, name: &str) -> Option<&'static Module> {
    named(name).find(|module| module.kind() == kind)
}

/// The modules with a name, of any kind.
pub fn named(name: &str) -> impl Iterator<Item = &'static Module> {
    MODULES.iter().copied().filter(move |module| module.name == name)
}

/// The modules of a kind.
pub fn of_kind(kind: Kind) -> impl Iterator<Item = &'static Module> {
    MODULES.iter().copied().filter(move |module| module.kind() == kind)
}

#[cfg(test)]
mod tests;
