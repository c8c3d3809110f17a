//! Metrics of quotas: use and throttle times of limited clients, and the rates of new connections (Kafka's
//! groups `Produce`, `Fetch`, `Request`, `ControllerMutation` and `socket-server-metrics`).

use super::exposition::Samples;
use super::sample::MetricKind;
use super::{Family, Figures};
use crate::quotas::{QuotaType, Usage};
use thalweg_controller::MutationFigures;
use thalweg_security::quota::{ListenerFigures, Sharers};

/// Maximum number of clients or addresses in a family: the most recently active clients, or the addresses
/// with the highest rates.
const SAMPLES_MAX: usize = 1_000;

const CLIENTS: &[&str] = &["resource", "user", "clientId"];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "kafka_server_quota_byte_rate",
        kind: MetricKind::Gauge,
        help: "Bytes per second that clients with a limit produce and fetch, over the window of quotas. Clients that share a limit share a sample; in all families of clients there are the 1000 that were active last.",
        labels: CLIENTS,
        read: |figures, out| {
            of_clients(figures, out, QuotaType::Produce, |usage| usage.rate);
            of_clients(figures, out, QuotaType::Fetch, |usage| usage.rate);
        },
    },
    Family {
        name: "kafka_server_quota_request_time",
        kind: MetricKind::Gauge,
        help: "Time of the requests of clients with a limit, in percent of one thread.",
        labels: CLIENTS,
        read: |figures, out| of_clients(figures, out, QuotaType::Request, |usage| usage.rate),
    },
    Family {
        name: "kafka_server_quota_throttle_time",
        kind: MetricKind::Gauge,
        help: "The average pause that clients above their limit were asked to make in the last 30 to 60 seconds, in milliseconds; NaN without any.",
        labels: CLIENTS,
        read: |figures, out| {
            for quota in crate::quotas::QUOTA_TYPES {
                of_clients(figures, out, quota, |usage| usage.pause_ms);
            }
            of_controller(figures, out, |mutations| mutations.throttle_ms);
        },
    },
    Family {
        name: "thalweg_quota_pause_seconds",
        kind: MetricKind::Histogram,
        help: "Pauses that clients above a limit of this broker were asked to make, by the kind of quota.",
        labels: &["resource"],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            for quota in crate::quotas::QUOTA_TYPES {
                out.histogram(&[&format!("{quota:?}")], &broker.quotas.pauses(quota), 1e6, &[]);
            }
        },
    },
    Family {
        name: "kafka_server_quota_tokens",
        kind: MetricKind::Gauge,
        help: "Partitions that clients with a limit could create or delete after their last request; negative when they had to pause.",
        labels: CLIENTS,
        read: |figures, out| of_controller(figures, out, |mutations| mutations.tokens),
    },
    Family {
        name: "kafka_server_quota_mutation_rate",
        kind: MetricKind::Gauge,
        help: "Partitions per second that clients with a limit create and delete, over the last 30 to 60 seconds.",
        labels: CLIENTS,
        read: |figures, out| of_controller(figures, out, |mutations| mutations.per_second),
    },
    Family {
        name: "kafka_server_socket_server_metrics_broker_connection_accept_rate",
        kind: MetricKind::Gauge,
        help: "New connections per second over all listeners, without those between brokers where they have a listener to themselves.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.connections.per_second());
            }
        },
    },
    Family {
        name: "kafka_server_socket_server_metrics_connection_accept_rate",
        kind: MetricKind::Gauge,
        help: "New connections per second, by listener, and by address for those with a limit; of these the 1000 highest.",
        labels: &["listener", "ip"],
        read: |figures, out| {
            of_listeners(figures, |listener| out.add(&[&listener.name, ""], listener.per_second));
            if let Some(broker) = figures.broker() {
                for (ip, per_second) in broker.connections.ip_figures(SAMPLES_MAX) {
                    out.add(&["", &ip.to_string()], per_second);
                }
            }
        },
    },
    Family {
        name: "kafka_server_socket_server_metrics_connection_accept_throttle_time",
        kind: MetricKind::Gauge,
        help: "The average time for which a listener accepted no connection because of max.connection.creation.rate, in milliseconds; NaN without any.",
        labels: &["listener"],
        read: |figures, out| of_listeners(figures, |listener| out.add(&[&listener.name], listener.pause_ms)),
    },
    Family {
        name: "kafka_server_socket_server_metrics_ip_connection_accept_throttle_time",
        kind: MetricKind::Gauge,
        help: "The average delay before a connection was closed because of the rate of its address, in milliseconds; NaN without any.",
        labels: &["listener"],
        read: |figures, out| {
            of_listeners(figures, |listener| out.add(&[&listener.name], listener.ip_pause_ms))
        },
    },
];

fn add(out: &mut Samples<'_>, resource: &str, sharers: &Sharers, value: f64) {
    let name = |name: &Option<Box<str>>| name.as_deref().unwrap_or_default().to_owned();
    out.add(&[resource, &name(&sharers.user), &name(&sharers.client_id)], value);
}

fn of_clients(figures: &Figures, out: &mut Samples<'_>, quota: QuotaType, read: fn(&Usage) -> f64) {
    let Some(broker) = figures.broker() else { return };
    for usage in broker.quotas.usage(quota, SAMPLES_MAX) {
        add(out, &format!("{quota:?}"), &usage.sharers, read(&usage));
    }
}

fn of_controller(figures: &Figures, out: &mut Samples<'_>, read: fn(&MutationFigures) -> f64) {
    for mutations in figures.controller.iter().flat_map(|controller| &controller.mutations) {
        add(out, "ControllerMutation", &mutations.sharers, read(mutations));
    }
}

fn of_listeners(figures: &Figures, mut add: impl FnMut(&ListenerFigures)) {
    for entrance in &figures.entrances {
        entrance.connections.listener_figures().iter().for_each(&mut add);
    }
}
