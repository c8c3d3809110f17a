//! Replicas: leaders, in-sync replicas, lag (Kafka's `ReplicaManager`, `Partition`, `FetcherLagMetrics`).

use super::exposition::Samples;
use super::figures::labels;
use super::sample::{Label, MetricKind, Number};
use super::{Family, Figures};
use std::sync::atomic::Ordering;
use thalweg_replica::partition::PartitionFigures;

macro_rules! of_broker {
    ($name:literal, $kind:ident, $help:literal, $read:expr) => {
        Family {
            name: concat!("kafka_server_replicamanager_", $name),
            kind: MetricKind::$kind,
            help: $help,
            labels: &[],
            read: |figures, out| {
                let Some(broker) = figures.broker() else { return };
                let read: fn(&super::figures::BrokerFigures) -> u64 = $read;
                out.add(&[], read(broker));
            },
        }
    };
}

macro_rules! of_partition {
    ($name:literal, $help:literal, $read:expr) => {
        Family {
            name: concat!("kafka_cluster_partition_", $name),
            kind: MetricKind::Gauge,
            help: $help,
            labels: &["topic", "partition"],
            read: |figures, out| each_led(figures, out, $read),
        }
    };
}

macro_rules! of_throttle {
    ($field:ident, $name:literal, $what:literal) => {
        Family {
            name: concat!("thalweg_", $name, "_throttled_bytes_total"),
            kind: MetricKind::Counter,
            help: concat!("Bytes ", $what, " while a limit is set."),
            labels: &[],
            read: |figures, out| {
                if let Some(broker) = figures.broker() {
                    out.add(&[], broker.replication.context.$field.copied());
                }
            },
        }
    };
}

/// The same time as in Kafka's brokers and `kafka-transactions.sh find-hanging`.
const LATE_GRACE_MS: i64 = 5 * 60 * 1000;

pub(super) const FAMILIES: &[Family] = &[
    of_broker!("partitioncount", Gauge, "Partitions with a replica on this broker.", |b| b.partitions.len()
        as u64),
    of_broker!("leadercount", Gauge, "Partitions that this broker leads.", |b| count(b, |_| true)),
    of_broker!(
        "offlinereplicacount",
        Gauge,
        "Replicas assigned to this broker that could not be opened, for example on a failed disk.",
        |b| super::cluster::replicas_of(&b.image, b.node_id).saturating_sub(b.partitions.len()) as u64
    ),
    of_broker!(
        "underreplicatedpartitions",
        Gauge,
        "Partitions led here whose replicas are not all in sync.",
        |b| count(b, is_under_replicated)
    ),
    of_broker!(
        "underminisrpartitioncount",
        Gauge,
        "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
        |b| count(b, is_under_min_isr)
    ),
    of_broker!(
        "atminisrpartitioncount",
        Gauge,
        "Partitions led here with exactly min.insync.replicas in sync: if one more is lost, acks=all is refused.",
        |b| count(b, is_at_min_isr)
    ),
    of_broker!(
        "reassigningpartitions",
        Gauge,
        "Partitions led here that are moving to other replicas.",
        |b| count(b, |p| p.is_reassigned)
    ),
    of_broker!(
        "isrshrinks_total",
        Counter,
        "Removals of followers from the in-sync replicas of a partition led here.",
        |b| b.replication.context.isr_changes.counters().shrinks.load(Ordering::Relaxed)
    ),
    of_broker!(
        "isrexpands_total",
        Counter,
        "Additions of followers to the in-sync replicas of a partition led here.",
        |b| b.replication.context.isr_changes.counters().expands.load(Ordering::Relaxed)
    ),
    of_broker!(
        "failedisrupdates_total",
        Counter,
        "Changes of in-sync replicas that the controller rejected.",
        |b| b.replication.context.isr_changes.counters().failures.load(Ordering::Relaxed)
    ),
    of_partition!("replicascount", "Replicas of a partition led here.", |p| p.replicas.into()),
    of_partition!("insyncreplicascount", "Its replicas in sync.", |p| p.in_sync.into()),
    of_partition!("underreplicated", "1 if not all of them are in sync.", |p| is_under_replicated(p).into()),
    of_partition!("underminisr", "1 if fewer than min.insync.replicas are in sync.", |p| {
        is_under_min_isr(p).into()
    }),
    of_partition!("atminisr", "1 if exactly min.insync.replicas are in sync.", |p| is_at_min_isr(p).into()),
    of_partition!(
        "laststableoffsetlag",
        "Offsets between the last stable offset and the high watermark, held back by an open transaction.",
        |p| (p.high_watermark.0 - p.last_stable_offset.0).into()
    ),
    of_throttle!(leader_throttle, "leaderreplication", "sent to throttled replicas on other brokers"),
    of_throttle!(follower_throttle, "followerreplication", "fetched by throttled replicas here"),
    Family {
        name: "kafka_server_replicamanager_partitionswithlatetransactionscount",
        kind: MetricKind::Gauge,
        help: "Partitions here with a transaction that has been open for five minutes longer than transaction.max.timeout.ms allows: its coordinator has lost it, and consumers of committed records wait.",
        labels: &[],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            let max_ms = i64::from(broker.config().transactions.max_timeout_ms);
            let is_late = |since_ms: i64| {
                since_ms > 0 && figures.now_ms - since_ms > max_ms.saturating_add(LATE_GRACE_MS)
            };
            let late = broker.partitions.iter().filter(|p| p.oldest_transaction_ms.is_some_and(is_late));
            out.add(&[], late.count());
        },
    },
    Family {
        name: "thalweg_replica_lag",
        kind: MetricKind::Gauge,
        help: "Offsets that a follower of a partition led here is behind the log end, by its last fetch.",
        labels: &["topic", "partition", "follower"],
        read: follower_lags,
    },
    Family {
        name: "kafka_server_fetcherlagmetrics_consumerlag",
        kind: MetricKind::Gauge,
        help: "Offsets that a replica here is behind its leader's high watermark.",
        labels: &["clientId", "topic", "partition"],
        read: own_lags,
    },
    Family {
        name: "kafka_server_replicafetchermanager_maxlag",
        kind: MetricKind::Gauge,
        help: "The largest of these.",
        labels: &["clientId"],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            out.add(&["Replica"], broker.partitions.iter().filter_map(|p| p.own_lag).max().unwrap_or(0));
        },
    },
];

fn is_under_replicated(p: &PartitionFigures) -> bool {
    p.in_sync < p.replicas
}

fn is_under_min_isr(p: &PartitionFigures) -> bool {
    p.in_sync < p.min_in_sync
}

fn is_at_min_isr(p: &PartitionFigures) -> bool {
    p.in_sync == p.min_in_sync
}

fn count(broker: &super::figures::BrokerFigures, holds: fn(&PartitionFigures) -> bool) -> u64 {
    broker.partitions.iter().filter(|p| p.is_leader && holds(p)).count() as u64
}

fn each_led(figures: &Figures, out: &mut Samples<'_>, read: fn(&PartitionFigures) -> Number) {
    let led = || figures.partitions().filter(|partition| partition.is_leader);
    if out.fit(led().count()) {
        led().for_each(|partition| out.add_labelled(&labels(partition), read(partition)));
    }
}

fn follower_lags(figures: &Figures, out: &mut Samples<'_>) {
    if !out.fit(figures.partitions().map(|partition| partition.followers.len()).sum()) {
        return;
    }
    for partition in figures.partitions() {
        for follower in &partition.followers {
            let Some(lag) = follower.lag else { continue };
            let [topic, index] = labels(partition);
            out.add_labelled(&[topic, index, Label::Whole(follower.id.0.into())], lag);
        }
    }
}

fn own_lags(figures: &Figures, out: &mut Samples<'_>) {
    if !out.fit(figures.partitions().filter(|partition| partition.own_lag.is_some()).count()) {
        return;
    }
    for partition in figures.partitions() {
        if let Some(lag) = partition.own_lag {
            let [topic, index] = labels(partition);
            out.add_labelled(&[Label::Text("ReplicaFetcherThread"), topic, index], lag);
        }
    }
}
