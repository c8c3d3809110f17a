//! The metrics of a node, with the names of Kafka's JMX exporter.
//!
//! Metrics are defined in tables of families: a family has a name, a help text, and a function that reads its
//! samples. [`Pages`] writes them, `docs/metrics.md` lists them. Names are those of Kafka's metrics behind
//! the JMX exporter with its example rules, so that dashboards for Kafka work; metrics that Kafka lacks begin
//! with `thalweg_`.
//!
//! Metrics cost nothing per record. Partitions count under their locks, requests in relaxed additions, and
//! everything else is read in place at scrape time.

mod audit;
mod cleaner;
mod cluster;
mod coordinators;
pub mod document;
mod exposition;
mod figures;
mod groups;
mod lag;
mod logs;
mod network;
mod otlp;
mod process;
mod push;
mod quotas;
mod replication;
mod requests;
mod sample;
mod shares;
mod stages;
mod telemetry;
mod text;
mod topics;
mod unread;
mod workers;

pub use exposition::{Exposition, Form, Samples};
pub(crate) use lag::LagSources;
use push::{Exports, Push};
pub(crate) use requests::quantile_us;
pub use sample::{Exemplar, Label, MetricKind, Number};

use crate::authentication::Authenticator;
use crate::broker::Broker;
use crate::secured::SecuredListeners;
use figures::Figures;
use std::sync::Arc;
use thalweg_audit::Trail;
use thalweg_config::{BrokerConfig, MetricsSettings};
use thalweg_controller::Controller;
use thalweg_log::Clock;
use thalweg_metadata::{BrokerId, ConfigResource};
use thalweg_net::{Connections, Flow};
use tokio::task::JoinSet;
use workers::WorkerReadings;

/// A family of metrics.
#[derive(Debug)]
pub struct Family {
    /// The name on the page, with unit and suffix.
    pub name: &'static str,
    /// The type of its samples.
    pub kind: MetricKind,
    /// The help text: one or two sentences.
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

/// All families, in the order of the page. With a limit on samples of topics and partitions, earlier families
/// fit first.
const CHAPTERS: &[Chapter] = &[
    Chapter { title: "Topics", families: topics::FAMILIES },
    Chapter { title: "Requests", families: requests::FAMILIES },
    Chapter { title: "Connections", families: network::FAMILIES },
    Chapter { title: "Quotas", families: quotas::FAMILIES },
    Chapter { title: "Groups", families: groups::FAMILIES },
    Chapter { title: "Share groups", families: shares::FAMILIES },
    Chapter { title: "Coordinators and transactions", families: coordinators::FAMILIES },
    Chapter { title: "Replication", families: replication::FAMILIES },
    Chapter { title: "Logs", families: logs::FAMILIES },
    Chapter { title: "Compaction", families: cleaner::FAMILIES },
    Chapter { title: "The cluster", families: cluster::FAMILIES },
    Chapter { title: "The audit trail", families: audit::FAMILIES },
    Chapter { title: "The process", families: process::FAMILIES },
    Chapter { title: "Metrics of clients", families: telemetry::FAMILIES },
];

/// The last family, because it counts the samples left out before.
const DROPPED: Family = Family {
    name: "thalweg_metrics_dropped_series",
    kind: MetricKind::Gauge,
    help: "Samples of a family that was left out because of thalweg.metrics.series.max.",
    labels: &["family"],
    read: |_, _| {},
};

/// Metrics about the page.
const OF_PAGE: Chapter = Chapter { title: "The page itself", families: &[DROPPED] };

/// A page is written in parts of about this size.
pub const PART_BYTES: usize = 512 * 1024;

/// The entrance of a broker or a controller: connections and logins.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    pub connections: Arc<Connections>,
    /// The authenticator of each listener with SASL.
    pub logins: Vec<(String, Arc<Authenticator>)>,
}

/// The parts of a node that are read for metrics.
pub(crate) struct Sources<'a> {
    pub broker: Option<&'a Arc<Broker>>,
    pub controller: Option<&'a Arc<Controller>>,
    pub entrances: Vec<Entrance>,
    pub secured: Vec<Arc<SecuredListeners>>,
    pub flow: &'a Flow,
    pub trail: Option<&'a Arc<Trail>>,
    pub config: &'a Arc<BrokerConfig>,
    pub clock: &'a Clock,
}

/// The metrics of this process.
#[derive(Clone, Debug)]
pub struct Metrics {
    broker: Option<Arc<Broker>>,
    controller: Option<Arc<Controller>>,
    entrances: Vec<Entrance>,
    secured: Vec<Arc<SecuredListeners>>,
    flow: Flow,
    trail: Option<Arc<Trail>>,
    config: Arc<BrokerConfig>,
    clock: Clock,
    started_ms: i64,
    workers: Arc<WorkerReadings>,
    exports: Arc<Exports>,
    lag_sources: Arc<LagSources>,
}

impl Metrics {
    /// The metrics of a starting node: a broker, a controller, or both.
    pub(crate) fn new(sources: Sources<'_>) -> Metrics {
        let Sources { broker, controller, entrances, secured, flow, trail, config, clock } = sources;
        Metrics {
            broker: broker.cloned(),
            controller: controller.cloned(),
            entrances,
            secured,
            flow: flow.clone(),
            trail: trail.cloned(),
            config: Arc::clone(config),
            started_ms: clock.now_ms(),
            clock: clock.clone(),
            workers: Arc::default(),
            exports: Arc::default(),
            lag_sources: Arc::default(),
        }
    }

    /// Starts the tasks of metrics: requests to other brokers for the lag of groups, while it is read, and
    /// the push to a configured receiver. The tasks end when the set is dropped.
    pub(crate) fn start(&self, tasks: &mut JoinSet<()>, cluster_id: &str, node_id: i32) {
        if let Some(broker) = &self.broker {
            tasks.spawn(Arc::clone(&self.lag_sources).run(Arc::clone(broker)));
        }
        if let Some(push) = Push::of(self, cluster_id, node_id) {
            tasks.spawn(push.run());
        }
    }

    /// The ends of logs that have no replica here.
    pub(crate) fn lag_sources(&self) -> &Arc<LagSources> {
        &self.lag_sources
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> MetricsSettings {
        match (&self.broker, &self.controller) {
            (Some(broker), _) => broker.config().metrics.clone(),
            (None, Some(controller)) => {
                let (image, node_id) = (controller.image(), BrokerId(self.config.node.id));
                let all = image.config(&ConfigResource::brokers());
                self.config.with_dynamic(&all, &image.config(&ConfigResource::broker(node_id))).0.metrics
            }
            (None, None) => self.config.metrics.clone(),
        }
    }

    /// Reads all figures. This reads each partition, which may take milliseconds for thousands of them.
    pub fn pages(&self) -> Pages {
        Pages { figures: Figures::gather(self), next: 0, has_begun: false }
    }

    /// Writes all families.
    pub fn expose(&self, page: &mut Exposition) {
        let mut pages = self.pages();
        while pages.write(page, usize::MAX) {}
    }
}

/// The families of one scrape, written one after another.
pub struct Pages {
    figures: Figures,
    next: usize,
    has_begun: bool,
}

impl Pages {
    /// Writes families until the page has `bytes` bytes. Returns true if there are more families.
    pub fn write(&mut self, page: &mut Exposition, bytes: usize) -> bool {
        if !std::mem::replace(&mut self.has_begun, true) {
            (page.started_ms, page.now_ms) = (self.figures.started_ms, self.figures.now_ms);
            page.limit(self.figures.settings.series_max);
        }
        for family in CHAPTERS.iter().flat_map(|chapter| chapter.families).skip(self.next) {
            let Family { name, kind, help, labels, read } = family;
            read(&self.figures, &mut page.family(name, *kind, help, labels));
            self.next += 1;
            if page.len() >= bytes {
                return true;
            }
        }
        let dropped = page.dropped().to_vec();
        let Family { name, kind, help, labels, .. } = DROPPED;
        let mut samples = page.family(name, kind, help, labels);
        dropped.iter().for_each(|(family, count)| samples.add(&[family], *count));
        false
    }
}
