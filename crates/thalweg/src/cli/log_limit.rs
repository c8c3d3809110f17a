//! Limits the log lines that clients can cause.
//!
//! Owns: the number of lines per kind and source in a minute, and the count of suppressed ones, which is logged
//! later. The kind is the call site, the source is the address in the line. It applies to every line of the broker
//! and the controller. Lines about logs on disk name no client and are never suppressed; neither are lines below
//! info, which were requested.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The time in which lines are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines of a kind that name one address, in that time.
const LINES_OF_SOURCE: u64 = 10;
/// Lines of a kind that name none.
const LINES_OF_KIND: u64 = 1000;
/// Number of distinguished addresses; the lines of all others are counted together.
const SOURCES_MAX: usize = 1000;
/// Interval of logging the counts.
const REPORT: Duration = Duration::from_secs(10);
/// The targets of lines that no client causes.
const EXEMPT: [&str; 2] = ["thalweg_log", "thalweg::"];

static LIMIT: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);

/// The limit, as a layer before the formatting of lines.
pub fn layer<S: Subscriber>() -> impl Layer<S> {
    Limiting(&LIMIT)
}

/// Logs from time to time how many lines were left out. Never returns.
pub async fn report() {
    loop {
        tokio::time::sleep(REPORT).await;
        LIMIT.take_omitted(Instant::now(), false).iter().for_each(Omitted::log);
    }
}

/// Logs how many lines were left out that were not reported yet: the process ends.
pub fn report_rest() {
    LIMIT.take_omitted(Instant::now(), true).iter().for_each(Omitted::log);
}

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// A client, or the network of one that has IPv6: it has 2^64 addresses to itself.
    Address(IpAddr),
    /// Other addresses.
    OtherAddresses,
    /// No address is known.
    Unknown,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Address(IpAddr::V4(address)) => write!(f, " from {address}"),
            Source::Address(IpAddr::V6(network)) => write!(f, " from {network}/64"),
            Source::OtherAddresses => f.write_str(" from other addresses"),
            Source::Unknown => Ok(()),
        }
    }
}

#[derive(Debug, Default)]
struct LogLimit {
    lines: Mutex<HashMap<(Identifier, Source), Lines>>,
}

/// Lines of one kind and source.
#[derive(Debug)]
struct Lines {
    since: Instant,
    written: u64,
    omitted: u64,
    level: Level,
    message: String,
}

/// How many lines were left out.
#[derive(Debug, PartialEq, Eq)]
struct Omitted {
    level: Level,
    message: String,
    source: Source,
    count: u64,
    seconds: u64,
}

impl Omitted {
    fn log(&self) {
        let Omitted { level, message, source, count, seconds } = self;
        let text = format!("{message}: and {count} more{source} in the last {seconds} s");
        match *level {
            Level::ERROR => tracing::error!("{text}"),
            Level::WARN => tracing::warn!("{text}"),
            _ => tracing::info!("{text}"),
        }
    }
}

impl LogLimit {
    /// Counts a line, and returns whether it is written.
    fn admits(&self, kind: Identifier, level: Level, line: &Line, now: Instant) -> bool {
        let mut all = self.lines.lock();
        let mut source = line.source;
        if all.len() >= SOURCES_MAX && !all.contains_key(&(kind.clone(), source)) {
            all.retain(|_, lines| lines.omitted > 0 || now.duration_since(lines.since) < WINDOW);
            if all.len() >= SOURCES_MAX && matches!(source, Source::Address(_)) {
                source = Source::OtherAddresses;
            }
        }
        let new = || Lines { since: now, written: 0, omitted: 0, level, message: line.message.clone() };
        let lines = all.entry((kind, source)).or_insert_with(new);
        if lines.omitted == 0 && now.duration_since(lines.since) >= WINDOW {
            (lines.since, lines.written) = (now, 0);
        }
        let max = if source == Source::Unknown { LINES_OF_KIND } else { LINES_OF_SOURCE };
        let is_written = lines.written < max;
        match is_written {
            true => lines.written += 1,
            false => lines.omitted += 1,
        }
        is_written
    }

    /// Takes the counts of finished windows, or of all; they restart at zero.
    fn take_omitted(&self, now: Instant, all: bool) -> Vec<Omitted> {
        let mut found = Vec::new();
        self.lines.lock().retain(|(_, source), lines| {
            let age = now.duration_since(lines.since);
            if age < WINDOW && !all {
                return true;
            }
            if lines.omitted > 0 {
                let (level, message) = (lines.level, lines.message.clone());
                let seconds = age.as_secs().max(1);
                found.push(Omitted { level, message, source: *source, count: lines.omitted, seconds });
            }
            false
        });
        found
    }
}

struct Limiting(&'static LogLimit);

impl<S: Subscriber> Layer<S> for Limiting {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let target = metadata.target();
        let is_exempt = target == "thalweg" || EXEMPT.iter().any(|exempt| target.starts_with(exempt));
        if is_exempt || *metadata.level() > Level::INFO {
            return true;
        }
        let mut line = Line { source: Source::Unknown, message: String::new() };
        event.record(&mut line);
        self.0.admits(metadata.callsite(), *metadata.level(), &line, Instant::now())
    }
}

/// The relevant fields of a line.
struct Line {
    source: Source,
    message: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "address" => self.source = source(&format!("{value:?}")),
            "message" => self.message = format!("{value:?}"),
            _ => {}
        }
    }
}

fn source(address: &str) -> Source {
    let ip = address.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| address.parse());
    match ip.map(|ip: IpAddr| ip.to_canonical()) {
        Ok(IpAddr::V6(ip)) => {
            let [a, b, c, d, ..] = ip.segments();
            Source::Address(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
        }
        Ok(ip) => Source::Address(ip),
        Err(_) => Source::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::registry;

    /// Counts the lines that are written.
    struct Counting(Arc<AtomicU64>);

    impl<S: Subscriber> Layer<S> for Counting {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs under a limit, and returns how many lines were written.
    fn written(limit: &'static LogLimit, log: impl FnOnce()) -> u64 {
        let count = Arc::new(AtomicU64::new(0));
        let subscriber = registry().with(Limiting(limit)).with(Counting(Arc::clone(&count)));
        tracing::subscriber::with_default(subscriber, log);
        count.load(Ordering::Relaxed)
    }

    fn limit() -> &'static LogLimit {
        Box::leak(Box::default())
    }

    fn from(address: &str, kind: &str) {
        match kind {
            "frame" => {
                tracing::warn!(target: "thalweg_net", %address, "Closed a connection");
            }
            _ => tracing::warn!(target: "thalweg_net", %address, "Rejected a connection"),
        }
    }

    #[test]
    fn lines_are_limited_by_source_and_kind() {
        let limit = limit();
        let lines = written(limit, || {
            for port in 0..5000 {
                from(&format!("10.0.0.1:{port}"), "frame");
                from(&format!("10.0.0.1:{port}"), "other");
            }
            from("10.0.0.2:1", "frame");
        });
        assert_eq!(lines, 2 * LINES_OF_SOURCE + 1);
        assert_eq!(limit.take_omitted(Instant::now(), false), [], "the minute is not over");
        let mut omitted = limit.take_omitted(Instant::now() + WINDOW, false);
        omitted.sort_by(|a, b| a.message.cmp(&b.message));
        let counts: Vec<_> =
            omitted.iter().map(|omitted| (omitted.message.as_str(), omitted.count)).collect();
        assert_eq!(counts, [("Closed a connection", 4990), ("Rejected a connection", 4990)]);
        assert_eq!(omitted[0].source, source("10.0.0.1"));
        assert_eq!(written(limit, || from("10.0.0.1:1", "frame")), 1, "a new minute has begun");
    }

    #[test]
    fn many_sources_take_bounded_memory() {
        let limit = limit();
        let lines = written(limit, || {
            for n in 0..100_000u32 {
                from(&format!("{}:1", std::net::Ipv4Addr::from(n)), "frame");
                // One network of IPv6.
                from(&format!("[2001:db8::{:x}:{:x}]:1", n >> 16, n & 0xffff), "other");
            }
        });
        assert!(limit.lines.lock().len() <= SOURCES_MAX + 2);
        assert!(lines <= SOURCES_MAX as u64 * LINES_OF_SOURCE + 2 * LINES_OF_SOURCE, "{lines}");
    }

    #[test]
    fn lines_without_a_client_are_not_limited() {
        let lines = written(limit(), || {
            for partition in 0..5000 {
                tracing::error!(target: "thalweg_log::partition::recover", partition, "Segment is damaged");
                tracing::debug!(target: "thalweg_net", address = "10.0.0.1:1", "Connection ended");
            }
            for _ in 0..5000 {
                tracing::info!(target: "thalweg_coordinator::group", "Preparing to rebalance group");
            }
        });
        assert_eq!(lines, 10_000 + LINES_OF_KIND);
    }
}
