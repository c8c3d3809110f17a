//! Logs (Kafka's `Log` and `LogManager`): a sample for each replica on this broker.

use super::exposition::Samples;
use super::figures::labels;
use super::sample::{MetricKind, Number};
use super::{Family, Figures};
use thalweg_replica::partition::PartitionFigures;

macro_rules! of_log {
    ($name:literal, $help:literal, $read:expr) => {
        Family {
            name: concat!("kafka_log_log_", $name),
            kind: MetricKind::Gauge,
            help: $help,
            labels: &["topic", "partition"],
            read: |figures, out| each(figures, out, $read),
        }
    };
}

pub(super) const FAMILIES: &[Family] = &[
    of_log!("size", "Size of a log in bytes.", |p| p.size_bytes.into()),
    of_log!("numlogsegments", "Its segments.", |p| p.segments.into()),
    of_log!("logstartoffset", "Its first offset.", |p| p.log_start.0.into()),
    of_log!("logendoffset", "The offset of its next record.", |p| p.log_end.0.into()),
    Family {
        name: "thalweg_log_high_watermark",
        kind: MetricKind::Gauge,
        help: "The offset below which its records are replicated, and consumers may read.",
        labels: &["topic", "partition"],
        read: |figures, out| each(figures, out, |p| p.high_watermark.0.into()),
    },
    Family {
        name: "kafka_log_logmanager_offlinelogdirectorycount",
        kind: MetricKind::Gauge,
        help: "Data directories that have failed.",
        labels: &[],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            let (volumes, failed) = (broker.log_dirs.volumes(), broker.log_dirs.failed());
            out.add(&[], volumes.iter().filter(|volume| volume.is_offline).count() + failed.len());
        },
    },
    Family {
        name: "thalweg_logs_size_bytes",
        kind: MetricKind::Gauge,
        help: "Size of all logs of this broker.",
        labels: &[],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            out.add(&[], broker.partitions.iter().map(|partition| partition.size_bytes).sum::<u64>());
        },
    },
    Family {
        name: "thalweg_log_directory_total_bytes",
        kind: MetricKind::Gauge,
        help: "Size of the volume of a data directory.",
        labels: &["directory"],
        read: |figures, out| volumes(figures, out, |(total, _)| total),
    },
    Family {
        name: "thalweg_log_directory_free_bytes",
        kind: MetricKind::Gauge,
        help: "What is free of it for this process.",
        labels: &["directory"],
        read: |figures, out| volumes(figures, out, |(_, free)| free),
    },
    Family {
        name: "thalweg_log_flush_seconds",
        kind: MetricKind::Histogram,
        help: "How long syncs of logs take, by the policies of flushing.",
        labels: &[],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            out.histogram(&[], &broker.replication.context.flushes.snapshot(), 1e6, &[]);
        },
    },
    Family {
        name: "thalweg_partition_lock_wait_seconds",
        kind: MetricKind::Histogram,
        help: "How long threads waited for the lock of a partition that another thread held. A lock that was free is not counted.",
        labels: &[],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            out.histogram(&[], &broker.replication.context.lock_waits.snapshot(), 1e6, &[]);
        },
    },
];

fn volumes(figures: &Figures, out: &mut Samples<'_>, read: fn((u64, u64)) -> u64) {
    let Some(broker) = figures.broker() else { return };
    for volume in broker.log_dirs.volumes() {
        if let Some(space) = volume.space {
            out.add(&[&volume.path.display().to_string()], read(space));
        }
    }
}

fn each(figures: &Figures, out: &mut Samples<'_>, read: fn(&PartitionFigures) -> Number) {
    if out.fit(figures.partitions().count()) {
        figures.partitions().for_each(|partition| out.add_labelled(&labels(partition), read(partition)));
    }
}
