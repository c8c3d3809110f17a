//! The coordinators of groups, share partitions and transactions: their partitions, how long these took to
//! load, and transactions (Kafka's `group-coordinator-metrics`, `transaction-coordinator-metrics`).

use super::sample::{MetricKind, Number};
use super::{Family, Figures, Samples};
use thalweg_shard::LoadFigures;
use thalweg_transactions::TransactionFigures;

macro_rules! of_transactions {
    ($name:literal, $help:literal, $read:expr) => {
        Family {
            name: $name,
            kind: MetricKind::Gauge,
            help: $help,
            labels: &[],
            read: |figures, out| {
                let read: fn(&TransactionFigures) -> Number = $read;
                if let Some(broker) = figures.broker() {
                    out.add(&[], read(&broker.open_transactions));
                }
            },
        }
    };
}

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "kafka_server_group_coordinator_metrics_num_partitions",
        kind: MetricKind::Gauge,
        help: "Partitions of __consumer_offsets that this broker leads, by their state.",
        labels: &["state"],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                states(&broker.group_partitions, out);
            }
        },
    },
    Family {
        name: "kafka_server_transaction_coordinator_metrics_num_partitions",
        kind: MetricKind::Gauge,
        help: "Partitions of __transaction_state that this broker leads, by their state.",
        labels: &["state"],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                states(&broker.transaction_partitions, out);
            }
        },
    },
    Family {
        name: "kafka_server_share_coordinator_metrics_num_partitions",
        kind: MetricKind::Gauge,
        help: "Partitions of __share_group_state that this broker leads, by their state.",
        labels: &["state"],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                states(&broker.share_state_partitions, out);
            }
        },
    },
    Family {
        name: "thalweg_coordinator_load_seconds",
        kind: MetricKind::Histogram,
        help: "How long it took to load a partition of a coordinator: group, share or transaction.",
        labels: &["coordinator"],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            out.histogram(&["group"], &broker.group_partitions.loads, 1e6, &[]);
            out.histogram(&["share"], &broker.share_state_partitions.loads, 1e6, &[]);
            out.histogram(&["transaction"], &broker.transaction_partitions.loads, 1e6, &[]);
        },
    },
    Family {
        name: "thalweg_transactions",
        kind: MetricKind::Gauge,
        help: "Transactional ids that this broker coordinates, by the state of their transaction.",
        labels: &["state"],
        read: transactions,
    },
    of_transactions!(
        "thalweg_transactions_late",
        "Transactions coordinated here that have not ended within their timeout.",
        |figures| figures.late.into()
    ),
    of_transactions!(
        "thalweg_transaction_oldest_seconds",
        "How long the oldest open transaction coordinated here has been open.",
        |figures| seconds(figures.oldest_ms).into()
    ),
];

fn states(figures: &LoadFigures, out: &mut Samples<'_>) {
    out.add(&["active"], figures.active);
    out.add(&["loading"], figures.loading);
    out.add(&["failed"], figures.failed);
}

fn transactions(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    for (state, count) in &broker.open_transactions.states {
        out.add(&[state], *count);
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds are far below 2^53")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
