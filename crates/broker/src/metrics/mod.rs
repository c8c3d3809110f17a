//! The metrics of a node, with the names that Kafka's users know.
//!
//! Everything is in the tables of families: a family has a name, a meaning, and a function that reads its samples.
//! [`Metrics::expose`] writes them, `docs/metrics.md` lists them. Names are those of Kafka's metrics behind the JMX
//! exporter with its example rules, so that dashboards for Kafka work; metrics that Kafka lacks begin with
//! `thalweg_`.
//!
//! Metrics cost nothing per record. Partitions count under their locks, requests in relaxed additions, and everything
//! else is read in place at scrape time.

mod audit;
mod cluster;
pub mod document;
mod exposition;
mod figures;
mod groups;
mod logs;
mod process;
mod quotas;
mod replication;
mod requests;
mod topics;

pub use exposition::{CONTENT_TYPE, Exposition, Kind, Number, Samples};

use crate::broker::Broker;
use figures::Figures;
use std::sync::Arc;
use thalweg_audit::Trail;
use thalweg_controller::Controller;
use thalweg_log::Clock;

/// A family of metrics.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// The type of its samples.
    pub kind: Kind,
    /// Its meaning, in a sentence or two.
    pub help: &'static str,
    /// The labels of its samples.
    pub labels: &'static [&'static str],
    /// Reads its samples.
    read: fn(&Figures, &mut Samples<'_>),
}

/// Families that belong together, under a title.
struct Chapter {
    title: &'static str,
    families: &'static [Family],
}

/// All families, in the order of the page.
const CHAPTERS: &[Chapter] = &[
    Chapter { title: "Topics", families: topics::FAMILIES },
    Chapter { title: "Requests and connections", families: requests::FAMILIES },
    Chapter { title: "Quotas", families: quotas::FAMILIES },
    Chapter { title: "Replication", families: replication::FAMILIES },
    Chapter { title: "Logs", families: logs::FAMILIES },
    Chapter { title: "Groups", families: groups::FAMILIES },
    Chapter { title: "The cluster", families: cluster::FAMILIES },
    Chapter { title: "The audit trail", families: audit::FAMILIES },
    Chapter { title: "The process", families: process::FAMILIES },
];

/// The metrics of this process.
#[derive(Clone, Debug)]
pub struct Metrics {
    broker: Option<Arc<Broker>>,
    controller: Option<Arc<Controller>>,
    trail: Option<Arc<Trail>>,
    clock: Clock,
    started_ms: i64,
}

impl Metrics {
    /// Those of a node that starts now: a broker, a controller, or both.
    pub(crate) fn new(
        broker: Option<Arc<Broker>>,
        controller: Option<Arc<Controller>>,
        trail: Option<&Arc<Trail>>,
        clock: Clock,
    ) -> Metrics {
        let started_ms = clock.now_ms();
        Metrics { broker, controller, trail: trail.cloned(), clock, started_ms }
    }

    /// Writes all families. It reads each partition, which may take milliseconds for thousands of them.
    pub fn expose(&self, page: &mut Exposition) {
        let figures = Figures::gather(self);
        for family in CHAPTERS.iter().flat_map(|chapter| chapter.families) {
            let Family { name, kind, help, labels, read } = family;
            read(&figures, &mut page.family(name, *kind, help, labels));
        }
    }
}
