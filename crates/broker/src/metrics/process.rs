//! Metrics of the process, with the names of Prometheus' client libraries, and of its threads.

use super::Family;
use super::sample::{Label, MetricKind};
use std::fs;
use std::sync::atomic::Ordering;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "process_cpu_seconds_total",
        kind: MetricKind::Counter,
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
        kind: MetricKind::Gauge,
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
        kind: MetricKind::Gauge,
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
        kind: MetricKind::Gauge,
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
        kind: MetricKind::Gauge,
        help: "Open file descriptors: one for each connection and each open segment.",
        labels: &[],
        read: |_, out| {
            if let Some(open) = open_descriptors() {
                out.add(&[], open);
            }
        },
    },
    Family {
        name: "process_max_fds",
        kind: MetricKind::Gauge,
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
        kind: MetricKind::Gauge,
        help: "Start time of the node, in seconds since 1970.",
        labels: &[],
        read: |figures, out| out.add(&[], seconds(figures.started_ms)),
    },
    Family {
        name: "thalweg_uptime_seconds",
        kind: MetricKind::Gauge,
        help: "Seconds since the start.",
        labels: &[],
        read: |figures, out| out.add(&[], seconds(figures.now_ms - figures.started_ms)),
    },
    Family {
        name: "thalweg_otlp_exports_total",
        kind: MetricKind::Counter,
        help: "Pages of metrics sent to thalweg.otlp.endpoint, by outcome.",
        labels: &["outcome"],
        read: |figures, out| {
            if figures.settings.otlp_endpoint.is_some() {
                out.add(&["sent"], figures.exports.sent.load(Ordering::Relaxed));
                out.add(&["failed"], figures.exports.failed.load(Ordering::Relaxed));
            }
        },
    },
    Family {
        name: "thalweg_build_info",
        kind: MetricKind::Gauge,
        help: "Always 1; the version is in the label.",
        labels: &["version"],
        read: |_, out| out.add(&[env!("CARGO_PKG_VERSION")], 1u32),
    },
    Family {
        name: "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        kind: MetricKind::Gauge,
        help: "The share of time, from 0 to 1, in which the threads that serve requests had nothing to do in the last 30 to 60 seconds.",
        labels: &[],
        read: |figures, out| {
            if let Some(idle) = figures.workers.idle {
                out.add(&[], idle);
            }
        },
    },
    Family {
        name: "thalweg_worker_busy_seconds_total",
        kind: MetricKind::Counter,
        help: "Time in which a thread that serves requests was busy.",
        labels: &["worker"],
        read: |figures, out| {
            for (worker, busy) in (0..).zip(&figures.workers.busy) {
                out.add_labelled(&[Label::Whole(worker)], busy.as_secs_f64());
            }
        },
    },
    Family {
        name: "thalweg_worker_queue_size",
        kind: MetricKind::Gauge,
        help: "Tasks that wait for any of these threads.",
        labels: &[],
        read: |figures, out| {
            if !figures.workers.busy.is_empty() {
                out.add(&[], figures.workers.queued);
            }
        },
    },
    Family {
        name: "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        kind: MetricKind::Gauge,
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

/// Times from Linux' `/proc`.
#[expect(clippy::cast_precision_loss, reason = "ticks are far below 2^53")]
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may contain any characters.
    let (_, rest) = stat.rsplit_once(')')?;
    let field = |index: usize| rest.split_whitespace().nth(index)?.parse::<u64>().ok();
    let ticks = field(11)? + field(12)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Linux 6.2 and later reports the number as the size of the directory. Listing the directory takes
/// milliseconds for a broker with thousands of segments.
fn open_descriptors() -> Option<u64> {
    const PLACE: &str = "/proc/self/fd";
    match fs::metadata(PLACE).ok()?.len() {
        // One descriptor belongs to this read.
        0 => Some(u64::try_from(fs::read_dir(PLACE).ok()?.count()).ok()?.saturating_sub(1)),
        open => Some(open),
    }
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
    fn the_system_describes_the_process() {
        if cfg!(target_os = "linux") {
            assert!(cpu_seconds().is_some());
            let before = open_descriptors().expect("it has some");
            let files: Vec<_> = (0..50).map(|_| tempfile::tempfile().expect("a file")).collect();
            let after = open_descriptors().expect("it has more");
            assert!(after + 10 >= before + 50, "{before}, then {after} with {} more", files.len());
            assert!(status("VmRSS:").is_some_and(|kib| kib > 0));
            assert!(status("Threads:").is_some_and(|threads| threads >= 1));
        }
    }
}
