//! Values gathered before families are written: every partition is read once, under one hold of its lock.

use super::lag::{self, GroupLag, LagSources};
use super::push::Exports;
use super::sample::Label;
use super::workers::WorkerFigures;
use super::{Entrance, Metrics};
use crate::broker::Broker;
use crate::secured::SecuredListeners;
use crate::telemetry::TelemetryFigures;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_audit::Trail;
use thalweg_config::MetricsSettings;
use thalweg_controller::ControllerFigures;
use thalweg_groups::GroupFigures;
use thalweg_metadata::Image;
use thalweg_net::Flow;
use thalweg_replica::partition::{Partition, PartitionFigures, Traffic};
use thalweg_shard::LoadFigures;
use thalweg_transactions::TransactionFigures;
use tokio::time::Instant;

/// The values that families read.
pub struct Figures {
    pub(super) now: Instant,
    pub(super) now_ms: i64,
    pub(super) started_ms: i64,
    broker: Option<BrokerFigures>,
    trail: Option<Arc<Trail>>,
    /// The controller's values, if there is one in this process.
    pub(super) controller: Option<ControllerFigures>,
    pub(super) entrances: Vec<Entrance>,
    pub(super) secured: Vec<Arc<SecuredListeners>>,
    pub(super) flow: Flow,
    pub(super) workers: WorkerFigures,
    pub(super) settings: MetricsSettings,
    pub(super) exports: Arc<Exports>,
}

/// Values of a broker.
pub(super) struct BrokerFigures {
    broker: Arc<Broker>,
    /// The image at that moment.
    pub image: Arc<Image>,
    /// Every partition, by topic and number.
    pub partitions: Vec<PartitionFigures>,
    /// Traffic of topics with partitions here.
    pub topics: BTreeMap<Arc<str>, Traffic>,
    /// Traffic of all topics, including topics without replicas here now.
    pub traffic: Traffic,
    /// The groups that this broker coordinates.
    pub groups: Vec<GroupFigures>,
    /// The lag of these groups.
    pub lags: Vec<GroupLag>,
    /// The partitions of the coordinators.
    pub group_partitions: LoadFigures,
    pub transaction_partitions: LoadFigures,
    pub share_state_partitions: LoadFigures,
    /// The transactions that this broker coordinates.
    pub open_transactions: TransactionFigures,
    /// The metrics pushed by clients.
    pub client_telemetry: TelemetryFigures,
}

impl std::ops::Deref for BrokerFigures {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}

impl Figures {
    pub(super) fn gather(metrics: &Metrics) -> Figures {
        let now = Instant::now();
        Figures {
            now,
            now_ms: metrics.clock.now_ms(),
            started_ms: metrics.started_ms,
            trail: metrics.trail.clone(),
            broker: metrics.broker.as_ref().map(|broker| BrokerFigures::gather(broker, &metrics.lag_sources)),
            controller: metrics.controller.as_ref().map(|controller| controller.figures()),
            entrances: metrics.entrances.clone(),
            secured: metrics.secured.clone(),
            flow: metrics.flow.clone(),
            workers: metrics.workers.figures(now),
            settings: metrics.settings(),
            exports: Arc::clone(&metrics.exports),
        }
    }

    /// The broker's values, if there is one in this process.
    pub(super) fn broker(&self) -> Option<&BrokerFigures> {
        self.broker.as_ref()
    }

    /// Every partition, if there are samples for each.
    pub(super) fn partitions(&self) -> impl Iterator<Item = &PartitionFigures> {
        let broker = self.broker.iter().filter(|_| self.settings.partitions);
        broker.flat_map(|broker| &broker.partitions)
    }

    /// The audit trail, if there is one.
    pub(super) fn trail(&self) -> Option<&Trail> {
        self.trail.as_deref()
    }
}

impl BrokerFigures {
    fn gather(broker: &Arc<Broker>, lag_sources: &LagSources) -> BrokerFigures {
        let mut partitions: Vec<PartitionFigures> = Vec::new();
        let mut topics: BTreeMap<Arc<str>, Traffic> = BTreeMap::new();
        let mut traffic = broker.partitions.departed();
        // Partitions of a topic are in order.
        let mut here = broker.partitions.topics();
        here.sort_by(|one, other| one.name.cmp(&other.name));
        for topic in here {
            let mut of_topic = topic.departed;
            for partition in topic.partitions() {
                let figures = Partition::figures(partition);
                of_topic += figures.traffic;
                partitions.push(figures);
            }
            traffic += of_topic;
            *topics.entry(Arc::clone(&topic.name)).or_default() += of_topic;
        }
        let (image, groups) = (broker.image(), broker.groups.figures());
        let lags = lag::of(broker, lag_sources, &image, &groups);
        BrokerFigures {
            image,
            partitions,
            topics,
            traffic,
            groups,
            lags,
            group_partitions: broker.groups.load_figures(),
            transaction_partitions: broker.transactions.load_figures(),
            share_state_partitions: broker.share_states.load_figures(),
            client_telemetry: broker.telemetry.figures(broker.clock.now_ms()),
            open_transactions: broker.transactions.figures(),
            broker: Arc::clone(broker),
        }
    }
}

/// The topic and the number of a partition.
pub(super) fn labels(partition: &PartitionFigures) -> [Label<'_>; 2] {
    [Label::Text(&partition.topic), Label::Whole(partition.index.0.into())]
}
