//! The registry of stages. Parsing, checks, defaults, `thalweg stream modules` and the pages under
//! `docs/streams/` derive from the declarations.

mod document;

use crate::{processor, sink, source};

pub use crate::declaration::{
    Findings, Kind, Maker, Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker,
    StageOutput, Value, WrongMix, WrongValue, any,
};
pub use document::{page, summary, text};

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
    MissingModule { name: "bridge", instead: "Remove it: `|` alone connects stages." },
    MissingModule {
        name: "field-value-counter",
        instead: "Use `counter --by=payload.NAME`, which counts by a field.",
    },
    MissingModule {
        name: "gauge",
        instead: "Use `histogram --of=...`, which shows the distribution of a number.",
    },
    MissingModule { name: "header-enricher", instead: "Use `transform --headers=...`, which sets headers." },
    MissingModule {
        name: "jdbc",
        instead: "Use `exec --command=...` to hand messages to a program that accesses the database.",
    },
    MissingModule {
        name: "json-to-tuple",
        instead: "Remove it: every expression sees the message as JSON, `payload`.",
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
