//! The cluster: this broker's view of its metadata, and the controller in this process (Kafka's
//! `KafkaController`, `ControllerStats` and `broker-metadata-metrics`).

use super::sample::{MetricKind, Number};
use super::{Family, Figures};
use thalweg_controller::ControllerFigures;
use thalweg_metadata::{BrokerId, Image};

macro_rules! of_controller {
    ($name:literal, $kind:ident, $help:literal, $read:expr) => {
        Family {
            name: $name,
            kind: MetricKind::$kind,
            help: $help,
            labels: &[],
            read: |figures, out| {
                let read: fn(&ControllerFigures) -> Number = $read;
                if let Some(controller) = &figures.controller {
                    out.add(&[], read(controller));
                }
            },
        }
    };
}

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        kind: MetricKind::Gauge,
        help: "The last offset of the metadata log that this broker has applied.",
        labels: &[],
        read: |figures, out| of_image(figures, out, |image, _| image.offset().into()),
    },
    Family {
        name: "kafka_server_broker_metadata_metrics_last_applied_record_timestamp",
        kind: MetricKind::Gauge,
        help: "The timestamp of that record, in milliseconds since 1970.",
        labels: &[],
        read: |figures, out| of_image(figures, out, |image, _| image.provenance().timestamp_ms.into()),
    },
    Family {
        name: "thalweg_broker_epoch",
        kind: MetricKind::Gauge,
        help: "The epoch of this broker's registration.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.registered.epoch());
            }
        },
    },
    of_controller!(
        "kafka_controller_kafkacontroller_activecontrollercount",
        Gauge,
        "1 for the controller in this process: it is the only voter.",
        |_| true.into()
    ),
    of_controller!(
        "kafka_controller_kafkacontroller_activebrokercount",
        Gauge,
        "Brokers that are registered and not fenced.",
        |c| brokers(c, false).into()
    ),
    of_controller!(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        Gauge,
        "Brokers that are registered and fenced: unresponsive, starting or stopped.",
        |c| brokers(c, true).into()
    ),
    of_controller!("kafka_controller_kafkacontroller_globaltopiccount", Gauge, "Topics.", |c| c
        .committed
        .topics()
        .len()
        .into()),
    of_controller!("kafka_controller_kafkacontroller_globalpartitioncount", Gauge, "Partitions.", |c| c
        .committed
        .topics()
        .partition_count()
        .into()),
    of_controller!(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        Gauge,
        "Partitions without a leader.",
        |c| partitions(&c.committed, |p| !p.has_leader()).into()
    ),
    of_controller!(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        Gauge,
        "Partitions not led by their preferred replica.",
        |c| partitions(&c.committed, |p| !p.has_preferred_leader()).into()
    ),
    of_controller!(
        "kafka_controller_kafkacontroller_lastcommittedrecordoffset",
        Gauge,
        "The offset of the last committed record of the metadata log.",
        |c| c.committed.offset().into()
    ),
    of_controller!(
        "kafka_controller_kafkacontroller_lastappliedrecordoffset",
        Gauge,
        "The offset of the last record that the controller's decisions are based on.",
        |c| (c.end_offset - 1).into()
    ),
    of_controller!(
        "kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount_total",
        Counter,
        "Brokers fenced because they sent no heartbeat for broker.session.timeout.ms.",
        |c| c.ended_sessions.into()
    ),
    of_controller!(
        "kafka_controller_kafkacontroller_eventqueueoperationsstartedcount_total",
        Counter,
        "Requests processed by the controller.",
        |c| c.requests.into()
    ),
    of_controller!(
        "thalweg_controller_event_queue_size",
        Gauge,
        "Requests waiting for the controller.",
        |c| c.waiting_requests.into()
    ),
    of_controller!(
        "thalweg_controller_disk_full_refusals_total",
        Counter,
        "Requests refused because the disk of the metadata log was full.",
        |c| c.refused_on_full_disk.into()
    ),
    of_controller!("thalweg_controller_epoch", Gauge, "The controller's epoch.", |c| c.epoch.into()),
    of_controller!(
        "thalweg_controller_leader_elections_total",
        Counter,
        "Partition leaders elected by the controller.",
        |c| c.elections.into()
    ),
    of_controller!(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        Counter,
        "Elected leaders that were not in sync: records may be lost.",
        |c| c.unclean_elections.into()
    ),
];

fn of_image(
    figures: &Figures,
    out: &mut super::Samples<'_>,
    read: fn(&Image, &super::figures::BrokerFigures) -> Number,
) {
    if let Some(broker) = figures.broker() {
        out.add(&[], read(&broker.image, broker));
    }
}

fn brokers(controller: &ControllerFigures, fenced: bool) -> usize {
    controller.committed.cluster().brokers.values().filter(|broker| broker.fenced == fenced).count()
}

fn partitions(image: &Image, holds: fn(&thalweg_metadata::PartitionRegistration) -> bool) -> usize {
    let all = image.topics().iter().flat_map(|topic| topic.partitions.values());
    all.filter(|partition| holds(partition)).count()
}

/// Number of replicas that the cluster places on a broker.
pub(super) fn replicas_of(image: &Image, broker: BrokerId) -> usize {
    let all = image.topics().iter().flat_map(|topic| topic.partitions.values());
    all.filter(|partition| partition.is_replica(broker)).count()
}
