//! Compaction (Kafka's `LogCleaner` and `LogCleanerManager`).

use super::sample::{Label, MetricKind, Number};
use super::{Family, Figures, Samples};
use thalweg_replica::upkeep::CleanerFigures;

macro_rules! of_cleaner {
    ($name:literal, $kind:ident, $help:literal, $read:expr) => {
        Family {
            name: $name,
            kind: MetricKind::$kind,
            help: $help,
            labels: &[],
            read: |figures, out| {
                let read: fn(&CleanerFigures) -> Number = $read;
                if let Some(broker) = figures.broker() {
                    out.add(&[], read(&broker.upkeep.cleaner.figures()));
                }
            },
        }
    };
}

pub(super) const FAMILIES: &[Family] = &[
    of_cleaner!(
        "kafka_log_logcleanermanager_max_dirty_percent",
        Gauge,
        "The largest dirty share, in percent, of the logs with enough to compact, when they were last looked at.",
        |cleaner| (cleaner.max_dirty_ratio * 100.0).into()
    ),
    of_cleaner!(
        "thalweg_cleaner_waiting_logs",
        Gauge,
        "Logs with enough to compact, when they were last looked at.",
        |cleaner| cleaner.waiting.into()
    ),
    Family {
        name: "kafka_log_logcleanermanager_time_since_last_run_ms",
        kind: MetricKind::Gauge,
        help: "Milliseconds since logs were last looked at for compaction; missing before the first time, or if log.cleaner.enable=false.",
        labels: &[],
        read: since_survey,
    },
    of_cleaner!("thalweg_cleaner_passes_total", Counter, "Logs that were compacted.", |cleaner| cleaner
        .passes
        .into()),
    of_cleaner!("thalweg_cleaner_read_bytes_total", Counter, "Their bytes before.", |cleaner| cleaner
        .bytes_before
        .into()),
    of_cleaner!("thalweg_cleaner_written_bytes_total", Counter, "Their bytes after.", |cleaner| cleaner
        .bytes_after
        .into()),
    of_cleaner!(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        Gauge,
        "Logs that cannot be compacted: they grow until that is mended.",
        |cleaner| cleaner.uncleanable_count.into()
    ),
    Family {
        name: "thalweg_cleaner_uncleanable",
        kind: MetricKind::Gauge,
        help: "1 for each of these logs, as many as 1000, with the reason: corrupt (batches that cannot be read), too_many_keys (log.cleaner.dedupe.buffer.size is too small).",
        labels: &["topic", "partition", "reason"],
        read: uncleanable,
    },
];

fn since_survey(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    if let Some(surveyed_at) = broker.upkeep.cleaner.figures().surveyed_at {
        let since_ms = figures.now.saturating_duration_since(surveyed_at).as_millis();
        out.add(&[], u64::try_from(since_ms).unwrap_or(u64::MAX));
    }
}

fn uncleanable(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    for log in broker.upkeep.cleaner.figures().uncleanable {
        let index = Label::Whole(log.partition.0.into());
        out.add_labelled(&[Label::Text(&log.topic), index, Label::Text(log.reason)], 1u32);
    }
}
