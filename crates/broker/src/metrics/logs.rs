//! Logs (Kafka's `Log` and `LogManager`): a sample for each replica on this broker.

use super::exposition::{Kind, Number, Samples};
use super::{Family, Figures};
use thalweg_replica::partition::PartitionFigures;

macro_rules! of_log {
    ($name:literal, $help:literal, $read:expr) => {
        Family {
            name: concat!("kafka_log_log_", $name),
            kind: Kind::Gauge,
            help: $help,
            labels: &["topic", "partition"],
            read: |figures, out| each(figures, out, $read),
        }
    };
}

/// The families.
pub(super) const FAMILIES: &[Family] = &[
    of_log!("size", "Size of a log in bytes.", |p| p.size_bytes.into()),
    of_log!("numlogsegments", "Its segments.", |p| p.segments.into()),
    of_log!("logstartoffset", "Its first offset.", |p| p.log_start.0.into()),
    of_log!("logendoffset", "The offset of its next record.", |p| p.log_end.0.into()),
    Family {
        name: "thalweg_log_high_watermark",
        kind: Kind::Gauge,
        help: "The offset below which its records are replicated, and consumers may read.",
        labels: &["topic", "partition"],
        read: |figures, out| each(figures, out, |p| p.high_watermark.0.into()),
    },
    Family {
        name: "kafka_log_logmanager_offlinelogdirectorycount",
        kind: Kind::Gauge,
        help: "Data directories that have failed.",
        labels: &[],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            let (described, failed) = (broker.log_dirs.describe(), broker.log_dirs.failed());
            out.add(&[], described.iter().filter(|dir| dir.offline.is_some()).count() + failed.len());
        },
    },
];

fn each(figures: &Figures, out: &mut Samples<'_>, read: fn(&PartitionFigures) -> Number) {
    for partition in figures.broker().into_iter().flat_map(|broker| &broker.partitions) {
        out.add(&[&partition.topic, &partition.index], read(partition));
    }
}
