//! Values gathered before families are written: every partition is read once, under one hold of its lock.

use super::Metrics;
use crate::broker::Broker;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_audit::Trail;
use thalweg_controller::ControllerFigures;
use thalweg_coordinator::group::GroupFigures;
use thalweg_metadata::{Image, PartitionIndex};
use thalweg_replica::partition::{Partition, PartitionFigures, Partitions, Traffic};
use tokio::time::Instant;

/// All that families are read from.
pub struct Figures {
    /// The moment.
    pub(super) now: Instant,
    pub(super) now_ms: i64,
    pub(super) started_ms: i64,
    broker: Option<BrokerFigures>,
    trail: Option<Arc<Trail>>,
    /// The controller's, where there is one in this process.
    pub(super) controller: Option<ControllerFigures>,
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
    /// Traffic of all topics, including those that have left.
    pub traffic: Traffic,
    /// The groups that this broker coordinates.
    pub groups: Vec<GroupFigures>,
}

impl std::ops::Deref for BrokerFigures {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}

impl Figures {
    pub(super) fn gather(metrics: &Metrics) -> Figures {
        Figures {
            now: Instant::now(),
            now_ms: metrics.clock.now_ms(),
            started_ms: metrics.started_ms,
            trail: metrics.trail.clone(),
            broker: metrics.broker.as_ref().map(BrokerFigures::gather),
            controller: metrics.controller.as_ref().map(|controller| controller.figures()),
        }
    }

    /// The broker's, where there is one in this process.
    pub(super) fn broker(&self) -> Option<&BrokerFigures> {
        self.broker.as_ref()
    }

    /// The audit trail, where there is one.
    pub(super) fn trail(&self) -> Option<&Trail> {
        self.trail.as_deref()
    }
}

impl BrokerFigures {
    /// The partitions.
    pub fn replicas(&self) -> &Partitions {
        &self.broker.partitions
    }

    fn gather(broker: &Arc<Broker>) -> BrokerFigures {
        let mut partitions: Vec<(PartitionIndex, PartitionFigures)> = Vec::new();
        let mut topics: BTreeMap<Arc<str>, Traffic> = BTreeMap::new();
        let mut traffic = broker.partitions.departed();
        for topic in broker.partitions.topics() {
            let mut of_topic = topic.departed;
            for partition in topic.partitions() {
                let figures = Partition::figures(partition);
                of_topic += figures.traffic;
                partitions.push((partition.index, figures));
            }
            traffic += of_topic;
            *topics.entry(Arc::clone(&topic.name)).or_default() += of_topic;
        }
        partitions.sort_by(|(one, a), (other, b)| (&a.topic, one).cmp(&(&b.topic, other)));
        BrokerFigures {
            broker: Arc::clone(broker),
            image: broker.image(),
            partitions: partitions.into_iter().map(|(_, figures)| figures).collect(),
            topics,
            traffic,
            groups: broker.groups.figures(),
        }
    }
}
