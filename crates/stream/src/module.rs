//! The registry of stages. From their declarations come parsing, checks, defaults, `thalweg stream modules` and the pages under
//! `docs/streams/`.

mod document;

use crate::{processor, sink, source};

pub use crate::declaration::{
    Absent, Console, Findings, Kind, Make, Maker, Module, OptionSpec, Settings, Site, Takes, Value, WrongMix,
    WrongValue, any,
};
pub use document::{page, summary, text};

/// A module that people may look for and that is not there yet.
pub struct Unserved {
    /// Its name.
    pub name: &'static str,
    /// What to do meanwhile.
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

/// What people may look for and is not served: a name of this list is told with what to do instead.
pub static UNSERVED: &[Unserved] = &[
    Unserved { name: "bridge", instead: "Leave it out: stages are joined by `|` alone." },
    Unserved { name: "field-value-counter", instead: "`counter --by=payload.NAME` counts by a field." },
    Unserved { name: "gauge", instead: "`histogram --of=...` tells how a number is spread." },
    Unserved { name: "header-enricher", instead: "`transform --headers=...` sets headers." },
    Unserved {
        name: "jdbc",
        instead: "`exec --command=...` can hand messages to a program that knows the database.",
    },
    Unserved {
        name: "json-to-tuple",
        instead: "Leave it out: every expression sees the message as JSON, `payload`.",
    },
    Unserved {
        name: "router",
        instead: "End in `topic:NAME`, and let a stream `topic:NAME > filter --expression=... | ...` lead each way.",
    },
    Unserved { name: "script", instead: "`transform` has expressions, `exec --command=...` runs a script." },
    Unserved { name: "shell", instead: "`exec --command=...` runs a program as a stage." },
    Unserved { name: "tail", instead: "`file --mode=follow` follows a file." },
    Unserved { name: "trigger", instead: "`time --fixedDelay=...` makes messages in time." },
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
