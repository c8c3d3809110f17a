//! Metrics of the process, with the names of Prometheus' client libraries, and of connections.

use super::Family;
use super::exposition::Kind;
use std::fs;

/// The families.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "process_cpu_seconds_total",
        kind: Kind::Counter,
        help: "User and system CPU time of the process, in seconds.",
        labels: &[],
        read: |_, out| {
            if let Some(seconds) = cpu_seconds() {
                out.add(&[], seconds);
            }
        },
    },
    Family {
        name: "process_resident_memory_bytes",
        kind: Kind::Gauge,
        help: "Resident memory of the process, without the page cache.",
        labels: &[],
        read: |_, out| {
            if let Some(bytes) = status("VmRSS:") {
                out.add(&[], bytes * 1024);
            }
        },
    },
    Family {
        name: "process_virtual_memory_bytes",
        kind: Kind::Gauge,
        help: "Address space of the process.",
        labels: &[],
        read: |_, out| {
            if let Some(bytes) = status("VmSize:") {
                out.add(&[], bytes * 1024);
            }
        },
    },
    Family {
        name: "process_threads",
        kind: Kind::Gauge,
        help: "Threads of the process.",
        labels: &[],
        read: |_, out| {
            if let Some(threads) = status("Threads:") {
                out.add(&[], threads);
            }
        },
    },
    Family {
        name: "process_open_fds",
        kind: Kind::Gauge,
        help: "Open file descriptors: one for each connection and each open segment.",
        labels: &[],
        read: |_, out| {
            if let Ok(open) = fs::read_dir("/proc/self/fd") {
                // One of them reads the directory.
                out.add(&[], open.count().saturating_sub(1));
            }
        },
    },
    Family {
        name: "process_max_fds",
        kind: Kind::Gauge,
        help: "The limit of open file descriptors.",
        labels: &[],
        read: |_, out| {
            if let Some(max) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
                out.add(&[], max);
            }
        },
    },
    Family {
        name: "process_start_time_seconds",
        kind: Kind::Gauge,
        help: "Start time of the node, in seconds since 1970.",
        labels: &[],
        read: |figures, out| out.add(&[], seconds(figures.started_ms)),
    },
    Family {
        name: "thalweg_uptime_seconds",
        kind: Kind::Gauge,
        help: "Seconds since the start.",
        labels: &[],
        read: |figures, out| out.add(&[], seconds(figures.now_ms - figures.started_ms)),
    },
    Family {
        name: "thalweg_build_info",
        kind: Kind::Gauge,
        help: "Always 1; the version is in the label.",
        labels: &["version"],
        read: |_, out| out.add(&[env!("CARGO_PKG_VERSION")], 1u32),
    },
    Family {
        name: "kafka_server_socket_server_metrics_connection_count",
        kind: Kind::Gauge,
        help: "Open connections to the broker's listeners.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.connections.open());
            }
        },
    },
    Family {
        name: "kafka_server_socket_server_metrics_connection_creation_total",
        kind: Kind::Counter,
        help: "Accepted connections.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.connections.figures().admitted);
            }
        },
    },
    Family {
        name: "kafka_network_socketserver_memorypoolused",
        kind: Kind::Gauge,
        help: "Memory used by requests, limited by queued.max.request.bytes.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.request_memory.used());
            }
        },
    },
    Family {
        name: "thalweg_unread_answers_bytes",
        kind: Kind::Gauge,
        help: "Memory of answers that clients have not read.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.answer_memory.used());
            }
        },
    },
    Family {
        name: "thalweg_connections_refused_total",
        kind: Kind::Counter,
        help: "Connections rejected by max.connections.per.ip, or to keep file descriptors for logs.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.connections.figures().refused);
            }
        },
    },
    Family {
        name: "thalweg_connections_throttled_total",
        kind: Kind::Counter,
        help: "Connections rejected because their address opened them faster than its quota.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.connections.figures().throttled);
            }
        },
    },
    Family {
        name: "thalweg_connections_evicted_total",
        kind: Kind::Counter,
        help: "Connections closed to make room for one between brokers, or because max.connections was lowered.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.connections.figures().evicted);
            }
        },
    },
    Family {
        name: "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        kind: Kind::Gauge,
        help: "Cached fetch sessions.",
        labels: &[],
        read: |figures, out| {
            if let Some(broker) = figures.broker() {
                out.add(&[], broker.fetch_sessions.len());
            }
        },
    },
];

#[expect(clippy::cast_precision_loss, reason = "milliseconds are far below 2^53")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// On systems with Linux' `/proc`.
#[expect(clippy::cast_precision_loss, reason = "ticks are far below 2^53")]
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let field = |index: usize| rest.split_whitespace().nth(index)?.parse::<u64>().ok();
    let ticks = field(11)? + field(12)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_the_process() {
        if cfg!(target_os = "linux") {
            assert!(cpu_seconds().is_some());
            assert!(status("VmRSS:").is_some_and(|kib| kib > 0));
            assert!(status("Threads:").is_some_and(|threads| threads >= 1));
        }
    }
}
