//! Groups that this broker coordinates (Kafka's `GroupMetadataManager`), and their lag. Kafka leaves lag to separate
//! exporters; the names are those of a widely used one.

use super::exposition::{Kind, Samples};
use super::{Family, Figures};

macro_rules! of_state {
    ($name:literal, $state:literal, $help:literal) => {
        Family {
            name: concat!("kafka_coordinator_group_groupmetadatamanager_", $name),
            kind: Kind::Gauge,
            help: $help,
            labels: &[],
            read: |figures, out| in_state(figures, out, $state),
        }
    };
}

/// The families.
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
        kind: Kind::Gauge,
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
        kind: Kind::Gauge,
        help: "Members of a group that this broker coordinates.",
        labels: &["consumergroup"],
        read: |figures, out| {
            for group in figures.broker().into_iter().flat_map(|broker| &broker.groups) {
                out.add(&[&group.id], group.members);
            }
        },
    },
    Family {
        name: "kafka_consumergroup_current_offset",
        kind: Kind::Gauge,
        help: "The group's committed offset.",
        labels: &["consumergroup", "topic", "partition"],
        read: |figures, out| {
            for group in figures.broker().into_iter().flat_map(|broker| &broker.groups) {
                for (topic, partition, offset) in &group.committed {
                    out.add(&[&group.id, topic, &partition.to_string()], *offset);
                }
            }
        },
    },
    Family {
        name: "kafka_consumergroup_lag",
        kind: Kind::Gauge,
        help: "Offsets between the committed offset and the high watermark, if this broker has a replica of the partition.",
        labels: &["consumergroup", "topic", "partition"],
        read: lags,
    },
];

fn in_state(figures: &Figures, out: &mut Samples<'_>, state: &str) {
    let Some(broker) = figures.broker() else { return };
    out.add(&[], broker.groups.iter().filter(|group| state.is_empty() || group.state == state).count());
}

fn lags(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    for group in &broker.groups {
        for (topic, partition, offset) in &group.committed {
            if let Some(replica) = broker.replicas().get(topic, *partition) {
                let end = replica.published_offsets().high_watermark().0;
                out.add(&[&group.id, topic, &partition.to_string()], (end - offset).max(0));
            }
        }
    }
}
