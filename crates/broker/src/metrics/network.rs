//! Connections by listener: memory, logins, and reasons of ends (Kafka's `SocketServer`).

use super::Family;
use super::exposition::Samples;
use super::figures::Figures;
use super::sample::MetricKind;
use thalweg_net::Ends;

macro_rules! of_broker {
    ($name:literal, $kind:ident, $help:literal, $read:expr) => {
        Family {
            name: $name,
            kind: MetricKind::$kind,
            help: $help,
            labels: &[],
            read: |figures, out| {
                if let Some(broker) = figures.broker() {
                    let read: fn(&super::figures::BrokerFigures) -> u64 = $read;
                    out.add(&[], read(broker));
                }
            },
        }
    };
}

macro_rules! of_logins {
    ($name:literal, $help:literal, $read:expr) => {
        Family {
            name: concat!("kafka_server_socket_server_metrics_", $name, "_authentication_total"),
            kind: MetricKind::Counter,
            help: $help,
            labels: &["listener"],
            read: |figures, out| {
                for (listener, authenticator) in
                    figures.entrances.iter().flat_map(|entrance| &entrance.logins)
                {
                    let read: fn((u64, u64)) -> u64 = $read;
                    out.add(&[listener], read(authenticator.logins()));
                }
            },
        }
    };
}

pub(super) const FAMILIES: &[Family] = &[
    of_broker!(
        "kafka_server_socket_server_metrics_connection_count",
        Gauge,
        "Open connections to the broker's listeners.",
        |b| b.connections.open() as u64
    ),
    Family {
        name: "thalweg_listener_connections",
        kind: MetricKind::Gauge,
        help: "Open connections by listener, those of the controller too.",
        labels: &["listener"],
        read: |figures, out| {
            for entrance in &figures.entrances {
                for listener in entrance.connections.listener_figures() {
                    out.add(&[&listener.name], listener.open);
                }
            }
        },
    },
    of_broker!(
        "kafka_server_socket_server_metrics_connection_creation_total",
        Counter,
        "Accepted connections.",
        |b| b.connections.figures().admitted
    ),
    of_broker!(
        "thalweg_connections_refused_total",
        Counter,
        "Connections rejected by max.connections.per.ip, or to keep file descriptors for logs.",
        |b| b.connections.figures().refused
    ),
    of_broker!(
        "thalweg_connections_throttled_total",
        Counter,
        "Connections rejected because their address opened them faster than its quota.",
        |b| b.connections.figures().throttled
    ),
    of_broker!(
        "thalweg_connections_evicted_total",
        Counter,
        "Connections closed to make room for one between brokers, or because max.connections was lowered.",
        |b| b.connections.figures().evicted
    ),
    Family {
        name: "thalweg_connections_closed_total",
        kind: MetricKind::Counter,
        help: "Connections to the broker or the controller that ended for a reason: idle (expired by connections.max.idle.ms), slow (a request arrived too slowly while others waited for memory), unread (answers were not read while others needed the memory), unauthenticated (no login in time), refused (a request could not be served), network (an error of the network).",
        labels: &["reason"],
        read: closed,
    },
    of_logins!("successful", "Logins by SASL that succeeded.", |(succeeded, _)| succeeded),
    of_logins!("failed", "Logins by SASL that failed.", |(_, failed)| failed),
    Family {
        name: "thalweg_tls_handshakes_failed_total",
        kind: MetricKind::Counter,
        help: "TLS handshakes that failed, without those that the client broke off.",
        labels: &["listener"],
        read: |figures, out| {
            for (listener, _, failed) in figures.secured.iter().flat_map(|secured| secured.figures()) {
                out.add(&[listener], failed);
            }
        },
    },
    Family {
        name: "thalweg_certificate_expiry_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "When the first certificate of a listener's chain expires, in seconds since 1970.",
        labels: &["listener"],
        read: |figures, out| {
            for (listener, expires_s, _) in figures.secured.iter().flat_map(|secured| secured.figures()) {
                if let Some(expires_s) = expires_s {
                    out.add(&[listener], expires_s);
                }
            }
        },
    },
    of_broker!(
        "kafka_network_socketserver_memorypoolused",
        Gauge,
        "Memory used by requests, in bytes, limited by queued.max.request.bytes.",
        |b| b.request_memory.used() as u64
    ),
    of_broker!(
        "kafka_network_socketserver_memorypoolavailable",
        Gauge,
        "Memory that requests may still use, in bytes.",
        |b| b.request_memory.max().saturating_sub(b.request_memory.used()) as u64
    ),
    of_broker!(
        "thalweg_connections_waiting_for_memory",
        Gauge,
        "Connections that wait for memory to read on.",
        |b| b.request_memory.waiting() as u64
    ),
    of_broker!("thalweg_unread_answers_bytes", Gauge, "Memory of answers that clients have not read.", |b| b
        .answer_memory
        .used()
        as u64),
    of_broker!(
        "thalweg_unread_answers_limit_bytes",
        Gauge,
        "The limit of that memory: at it, the connection that uses the most for the longest time is closed.",
        |b| b.answer_memory.max() as u64
    ),
    of_broker!(
        "thalweg_connections_waiting_to_send",
        Gauge,
        "Connections whose clients do not read their answers.",
        |b| b.answer_memory.waiting() as u64
    ),
];

/// Reads the number of ends for one reason.
type EndCount = fn(&Ends) -> u64;

fn closed(figures: &Figures, out: &mut Samples<'_>) {
    let reasons: [(&str, EndCount); 6] = [
        ("idle", |ends| ends.idle),
        ("slow", |ends| ends.slow),
        ("unread", |ends| ends.unread),
        ("unauthenticated", |ends| ends.unproven),
        ("refused", |ends| ends.refused),
        ("network", |ends| ends.io),
    ];
    let ends: Vec<_> = figures.entrances.iter().map(|entrance| entrance.connections.figures().ends).collect();
    for (reason, read) in reasons {
        out.add(&[reason], ends.iter().map(read).sum::<u64>());
    }
}
