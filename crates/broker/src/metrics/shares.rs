//! Share groups, at the leaders of their partitions (Kafka's `ShareSessionCache`, `SharePartitionMetrics`,
//! `share-group-metrics`).

use super::exposition::Samples;
use super::sample::{Label, MetricKind};
use super::{Family, Figures};
use thalweg_share_groups::ShareFigures;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "kafka_server_sharesessioncache_sharesessionscount",
        kind: MetricKind::Gauge,
        help: "Members of share groups that read from this broker.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.share_partitions.sessions.counts().0);
            }
        },
    },
    Family {
        name: "kafka_server_sharesessioncache_sharepartitionscount",
        kind: MetricKind::Gauge,
        help: "Partitions that they read, counted for each of them.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.share_partitions.sessions.counts().1);
            }
        },
    },
    Family {
        name: "kafka_server_share_group_metrics_share_acknowledgement_total",
        kind: MetricKind::Counter,
        help: "Records that members of share groups have acknowledged, by the type of the acknowledgement.",
        labels: &["ack_type"],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            for (name, records) in broker.share_partitions.counters.acknowledged() {
                out.add(&[name], records);
            }
        },
    },
    Family {
        name: "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
        kind: MetricKind::Counter,
        help: "Records whose acquisition lock has ended without an acknowledgement.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.share_partitions.counters.expired());
            }
        },
    },
    Family {
        name: "thalweg_share_partition_load_seconds",
        kind: MetricKind::Histogram,
        help: "How long it took to load the state of a share partition.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.histogram(&[], &broker.share_partitions.counters.loads(), 1e6, &[]);
            }
        },
    },
    Family {
        name: "kafka_server_sharepartitionmetrics_inflightmessagecount",
        kind: MetricKind::Gauge,
        help: "Records in flight of a share partition: from the first whose delivery is not complete to the last that was delivered.",
        labels: &["group", "topic", "partition"],
        read: |figures, out| each(figures, out, |of| of.offsets),
    },
    Family {
        name: "kafka_server_sharepartitionmetrics_inflightbatchcount",
        kind: MetricKind::Gauge,
        help: "Batches of them that are tracked as one.",
        labels: &["group", "topic", "partition"],
        read: |figures, out| each(figures, out, |of| i64::try_from(of.runs).unwrap_or(i64::MAX)),
    },
];

fn each(figures: &Figures, out: &mut Samples<'_>, value: fn(&ShareFigures) -> i64) {
    let Some(broker) = figures.broker().filter(|_| figures.settings.group_partitions) else { return };
    let mut all = broker.share_partitions.all();
    if !out.fit(all.len()) {
        return;
    }
    all.sort_by(|one, other| one.key().cmp(other.key()));
    for led in all {
        let key = led.key();
        let Some(topic) = broker.image.topic_by_id(key.topic) else { continue };
        let labels =
            [Label::Text(&key.group), Label::Text(&topic.name), Label::Whole(key.partition.0.into())];
        out.add_labelled(&labels, value(&led.figures()));
    }
}
