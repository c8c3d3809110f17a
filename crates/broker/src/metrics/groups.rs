//! Groups that this broker coordinates (Kafka's `GroupMetadataManager`), and their lag. Kafka leaves lag to
//! separate exporters; the names follow a widely used exporter.

use super::exposition::Samples;
use super::lag::{GroupLag, Lag};
use super::sample::{Label, MetricKind, Number};
use super::{Family, Figures};
use std::collections::BTreeMap;
use thalweg_groups::GroupFigures;
use thalweg_metadata::PartitionIndex;

macro_rules! of_state {
    ($name:literal, $state:literal, $help:literal) => {
        Family {
            name: concat!("kafka_coordinator_group_groupmetadatamanager_", $name),
            kind: MetricKind::Gauge,
            help: $help,
            labels: &[],
            read: |figures, out| in_state(figures, out, $state),
        }
    };
}

pub(super) const FAMILIES: &[Family] = &[
    of_state!("numgroups", "", "Groups that this broker coordinates."),
    of_state!("numgroupsempty", "Empty", "Those without members."),
    of_state!("numgroupspreparingrebalance", "PreparingRebalance", "Those whose members are rejoining."),
    of_state!(
        "numgroupscompletingrebalance",
        "CompletingRebalance",
        "Those whose members wait for their partitions."
    ),
    of_state!("numgroupsstable", "Stable", "Those whose members consume."),
    Family {
        name: "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        kind: MetricKind::Gauge,
        help: "Committed offsets of these groups.",
        labels: &[],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            let count: usize = broker.groups.iter().map(|group| group.committed.len()).sum();
            out.add(&[], count);
        },
    },
    Family {
        name: "kafka_consumergroup_members",
        kind: MetricKind::Gauge,
        help: "Members of a group that this broker coordinates.",
        labels: &["consumergroup"],
        read: |figures, out| {
            for group in figures.broker().into_iter().flat_map(|broker| &broker.groups) {
                out.add(&[&group.id], group.members);
            }
        },
    },
    Family {
        name: "thalweg_group_lag",
        kind: MetricKind::Gauge,
        help: "The lag of a group over all its partitions: offsets between its committed offsets and the high watermarks. Of partitions without a replica here, the broker asks their leaders every 10 s, 10,000 at most; unknown ones do not count, and offsets beyond the end count as 0.",
        labels: &["consumergroup"],
        read: |figures, out| {
            each(figures, |group, lags| {
                if !lags.is_empty() {
                    out.add(&[&group.id], lags.iter().flatten().map(unread).sum::<i64>());
                }
            });
        },
    },
    Family {
        name: "thalweg_group_lag_seconds",
        kind: MetricKind::Gauge,
        help: "The lag of a group in time: the age of the oldest record that the group has not read, over all its partitions; 0 without lag. Of partitions without a replica here, the broker asks their leaders every 10 s; unknown ones, and those led by Apache Kafka's brokers, do not count.",
        labels: &["consumergroup"],
        read: |figures, out| {
            each(figures, |group, lags| {
                if let Some(age_ms) = lags.iter().flatten().filter_map(|lag| lag.age_ms).max() {
                    out.add(&[&group.id], seconds(age_ms));
                }
            });
        },
    },
    Family {
        name: "kafka_consumergroup_lag_sum",
        kind: MetricKind::Gauge,
        help: "The same for each of its topics.",
        labels: &["consumergroup", "topic"],
        read: topic_lags,
    },
    Family {
        name: "thalweg_group_lag_unknown_partitions",
        kind: MetricKind::Gauge,
        help: "Partitions with a committed offset whose high watermark is unknown: their leader has not answered, or they were deleted.",
        labels: &[],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            out.add(&[], broker.lags.iter().flatten().filter(|lag| lag.is_none()).count());
        },
    },
    Family {
        name: "kafka_consumergroup_current_offset",
        kind: MetricKind::Gauge,
        help: "The group's committed offset.",
        labels: &["consumergroup", "topic", "partition"],
        read: |figures, out| {
            each_partition(figures, out, |(_, _, offset), _| Some(*offset));
        },
    },
    Family {
        name: "kafka_consumergroup_lag",
        kind: MetricKind::Gauge,
        help: "Offsets between the committed offset and the high watermark, where that is known. Negative for an offset beyond the end of a partition that this broker leads, as in Kafka's tools.",
        labels: &["consumergroup", "topic", "partition"],
        read: |figures, out| each_partition(figures, out, |_, lag| lag.map(|lag| lag.records)),
    },
    Family {
        name: "thalweg_group_partition_lag_seconds",
        kind: MetricKind::Gauge,
        help: "The age of the first record that the group has not read, where that is known; 0 without lag.",
        labels: &["consumergroup", "topic", "partition"],
        read: |figures, out| each_partition(figures, out, |_, lag| lag?.age_ms.map(seconds)),
    },
];

/// A committed offset of a group: topic, partition, offset.
type CommittedOffset = (String, PartitionIndex, i64);

fn in_state(figures: &Figures, out: &mut Samples<'_>, state: &str) {
    let Some(broker) = figures.broker() else { return };
    out.add(&[], broker.groups.iter().filter(|group| state.is_empty() || group.state == state).count());
}

fn each(figures: &Figures, mut group: impl FnMut(&GroupFigures, &GroupLag)) {
    if let Some(broker) = figures.broker() {
        broker.groups.iter().zip(&broker.lags).for_each(|(of, lags)| group(of, lags));
    }
}

/// Records that a sum counts: an offset beyond the end of one partition makes up for nothing in another.
fn unread(lag: &Lag) -> i64 {
    lag.records.max(0)
}

#[expect(clippy::cast_precision_loss, reason = "ages are far below 2^53 ms")]
fn seconds(age_ms: i64) -> f64 {
    age_ms as f64 / 1000.0
}

fn each_partition<N: Into<Number>>(
    figures: &Figures,
    out: &mut Samples<'_>,
    read: fn(&CommittedOffset, Option<Lag>) -> Option<N>,
) {
    let Some(broker) = figures.broker().filter(|_| figures.settings.group_partitions) else { return };
    if !out.fit(broker.lags.iter().map(Vec::len).sum()) {
        return;
    }
    each(figures, |group, lags| {
        for (committed, lag) in group.committed.iter().zip(lags) {
            if let Some(value) = read(committed, *lag) {
                let (topic, partition, _) = committed;
                let labels = [Label::Text(&group.id), Label::Text(topic), Label::Whole(partition.0.into())];
                out.add_labelled(&labels, value);
            }
        }
    });
}

fn topic_lags(figures: &Figures, out: &mut Samples<'_>) {
    each(figures, |group, lags| {
        let mut topics: BTreeMap<&str, i64> = BTreeMap::new();
        for ((topic, ..), lag) in group.committed.iter().zip(lags) {
            *topics.entry(topic).or_default() += lag.as_ref().map_or(0, unread);
        }
        topics.into_iter().for_each(|(topic, lag)| out.add(&[&group.id, topic], lag));
    });
}
