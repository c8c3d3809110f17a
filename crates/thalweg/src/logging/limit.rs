//! Limits the log lines that clients can cause.
//!
//! Owns the number of lines in a minute, per kind and source and per kind, and the counts of suppressed
//! lines, which are logged later, in one line per kind. The kind is the call site; the source is the address
//! in the line, or the location of a panic. The limit applies to every line of the broker and the controller,
//! except lines about logs on disk, which name no client, and lines below info, which an operator has
//! enabled.
//!
//! All addresses together have a limit, too, because one client may have thousands. Beyond that limit, all
//! lines of the kind are only counted until the minute ends.

use super::panics;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Window in which lines are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Lines of a kind from one source, per window.
const LINES_OF_SOURCE: u64 = 10;
/// Lines of a kind from all sources, per window.
const LINES_OF_SOURCES: u64 = 200;
/// Lines of a kind that name no source, per window.
const LINES_OF_KIND: u64 = 1000;
/// Number of distinguished sources of a kind; the lines of further sources are counted together.
const SOURCES_MAX: usize = 1000;
/// Bytes of a message that are repeated with the count of suppressed lines.
const MESSAGE_BYTES_MAX: usize = 200;
/// Interval of logging the counts.
const REPORT: Duration = Duration::from_secs(10);
/// The targets of lines that no client causes.
const EXEMPT: [&str; 3] = ["thalweg_cli::", "thalweg_log", "thalweg::"];

static LIMIT: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);

/// The limit, as a layer before the formatting of lines.
pub fn layer<S: Subscriber>() -> impl Layer<S> {
    LimitLayer(&LIMIT)
}

/// Logs the counts of suppressed lines at intervals. Never returns.
pub async fn report() {
    loop {
        tokio::time::sleep(REPORT).await;
        LIMIT.take_suppressed(Instant::now(), false).iter().for_each(SuppressedLines::log);
    }
}

/// Logs the remaining counts of suppressed lines, at the end of the process.
pub fn report_rest() {
    LIMIT.take_suppressed(Instant::now(), true).iter().for_each(SuppressedLines::log);
}

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// The address of a client, or its /64 network for IPv6, where one client has 2^64 addresses.
    Address(IpAddr),
    /// The location of a panic, as a hash.
    Location(u64),
    /// All sources beyond `SOURCES_MAX`.
    Others,
    /// The line names no source.
    Unknown,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Address(IpAddr::V4(address)) => write!(f, " from {address}"),
            Source::Address(IpAddr::V6(network)) => write!(f, " from {network}/64"),
            Source::Location(_) => f.write_str(" at the same place"),
            Source::Others => f.write_str(" from others"),
            Source::Unknown => Ok(()),
        }
    }
}

/// The kinds of lines in this minute: at most one per call site.
#[derive(Debug, Default)]
struct LogLimit {
    kinds: Mutex<HashMap<Identifier, Kind>>,
}

/// Lines of one kind.
#[derive(Debug)]
struct Kind {
    since: Instant,
    level: Level,
    message: String,
    /// Number of written lines with a source.
    written: u64,
    suppressed: u64,
    sources: HashMap<Source, Lines>,
}

/// Lines of one kind and source.
#[derive(Debug, Default)]
struct Lines {
    written: u64,
    suppressed: u64,
}

/// The count of suppressed lines of a kind.
#[derive(Debug, PartialEq, Eq)]
struct SuppressedLines {
    level: Level,
    message: String,
    count: u64,
    seconds: u64,
    /// The source of most suppressed lines, and the count of that source.
    busiest: (Source, u64),
    /// The number of distinguished sources.
    sources: usize,
}

impl SuppressedLines {
    fn text(&self) -> String {
        let SuppressedLines { message, count, seconds, busiest: (busiest, of_busiest), sources, .. } = self;
        match *sources {
            ..=1 => format!("{message}: and {count} more{busiest} in the last {seconds} s"),
            _ => format!(
                "{message}: and {count} more from {sources} sources in the last {seconds} s, {of_busiest} of them{busiest}"
            ),
        }
    }

    fn log(&self) {
        let text = self.text();
        match self.level {
            Level::ERROR => tracing::error!("{text}"),
            Level::WARN => tracing::warn!("{text}"),
            _ => tracing::info!("{text}"),
        }
    }
}

impl Kind {
    fn new(line: &Line, level: Level, now: Instant) -> Kind {
        let mut message = line.message.clone();
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Kind { since: now, level, message, written: 0, suppressed: 0, sources: HashMap::new() }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= WINDOW
    }

    /// Counts a line; true if the line may be written.
    fn admits(&mut self, source: Source) -> bool {
        let is_new = !self.sources.contains_key(&source);
        let source = if is_new && self.sources.len() >= SOURCES_MAX { Source::Others } else { source };
        let lines = self.sources.entry(source).or_default();
        let is_written = match source {
            Source::Unknown => lines.written < LINES_OF_KIND,
            _ => lines.written < LINES_OF_SOURCE && self.written < LINES_OF_SOURCES,
        };
        if is_written {
            lines.written += 1;
            self.written += u64::from(source != Source::Unknown);
        } else {
            lines.suppressed += 1;
            self.suppressed += 1;
        }
        is_written
    }

    fn suppressed(self, now: Instant) -> Option<SuppressedLines> {
        let Kind { since, level, message, suppressed, sources, .. } = self;
        let counts = sources.into_iter().map(|(source, lines)| (source, lines.suppressed));
        let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
        let busiest = *counts.iter().max_by_key(|(_, count)| *count)?;
        let seconds = now.duration_since(since).as_secs().max(1);
        Some(SuppressedLines { level, message, count: suppressed, seconds, busiest, sources: counts.len() })
    }
}

impl LogLimit {
    /// Counts a line; true if the line may be written.
    fn admits(&self, kind: Identifier, level: Level, line: &Line, now: Instant) -> bool {
        let mut kinds = self.kinds.lock();
        let kind = kinds.entry(kind).or_insert_with(|| Kind::new(line, level, now));
        // A minute with suppressed lines lasts until their count is reported.
        if kind.suppressed == 0 && kind.is_over(now) {
            *kind = Kind::new(line, level, now);
        }
        kind.admits(line.source)
    }

    /// Takes the counts of finished minutes, or of all minutes; the counts restart at zero.
    fn take_suppressed(&self, now: Instant, all: bool) -> Vec<SuppressedLines> {
        let mut kinds = self.kinds.lock();
        let finished: Vec<_> =
            kinds.iter().filter(|(_, kind)| all || kind.is_over(now)).map(|(id, _)| id.clone()).collect();
        let taken = finished.iter().filter_map(|id| kinds.remove(id)?.suppressed(now));
        taken.collect()
    }
}

struct LimitLayer(&'static LogLimit);

impl<S: Subscriber> Layer<S> for LimitLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let target = metadata.target();
        let is_exempt = target == "thalweg" || EXEMPT.iter().any(|exempt| target.starts_with(exempt));
        if is_exempt || *metadata.level() > Level::INFO {
            return true;
        }
        let mut line =
            Line { source: Source::Unknown, message: String::new(), panics: target == panics::TARGET };
        event.record(&mut line);
        self.0.admits(metadata.callsite(), *metadata.level(), &line, Instant::now())
    }
}

/// The relevant fields of a line.
struct Line {
    source: Source,
    message: String,
    /// True for a panic, whose location is the source.
    panics: bool,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "address" => self.source = source(&format!("{value:?}")),
            "place" if self.panics => {
                let mut hasher = DefaultHasher::new();
                format!("{value:?}").hash(&mut hasher);
                self.source = Source::Location(hasher.finish());
            }
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
    struct CountLayer(Arc<AtomicU64>);

    impl<S: Subscriber> Layer<S> for CountLayer {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs under a limit, and returns the number of written lines.
    fn written(limit: &'static LogLimit, log: impl FnOnce()) -> u64 {
        let count = Arc::new(AtomicU64::new(0));
        let subscriber = registry().with(LimitLayer(limit)).with(CountLayer(Arc::clone(&count)));
        tracing::subscriber::with_default(subscriber, log);
        count.load(Ordering::Relaxed)
    }

    fn limit() -> &'static LogLimit {
        Box::leak(Box::default())
    }

    /// The reports of suppressed lines a minute later, sorted.
    fn suppressed_in_a_minute(limit: &LogLimit) -> Vec<String> {
        let suppressed = limit.take_suppressed(Instant::now() + WINDOW, false).into_iter();
        let mut texts: Vec<_> = suppressed.map(|one| SuppressedLines { seconds: 60, ..one }.text()).collect();
        texts.sort_unstable();
        texts
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
        assert_eq!(limit.take_suppressed(Instant::now(), false), [], "the minute is not over");
        let texts = suppressed_in_a_minute(limit);
        let expected = ["Closed", "Rejected"]
            .map(|what| format!("{what} a connection: and 4990 more from 10.0.0.1 in the last 60 s"));
        assert_eq!(texts, expected);
        assert_eq!(written(limit, || from("10.0.0.1:1", "frame")), 1, "a new minute has begun");
    }

    #[test]
    fn many_sources_write_few_lines_and_take_bounded_memory() {
        let limit = limit();
        let lines = written(limit, || {
            for n in 0..100_000u32 {
                from(&format!("{}:1", std::net::Ipv4Addr::from(n)), "frame");
                // One network of IPv6.
                from(&format!("[2001:db8::{:x}:{:x}]:1", n >> 16, n & 0xffff), "other");
            }
        });
        assert_eq!(lines, LINES_OF_SOURCES + LINES_OF_SOURCE);
        for kind in limit.kinds.lock().values() {
            assert!(kind.sources.len() <= SOURCES_MAX + 1, "{}", kind.sources.len());
        }
        let texts = suppressed_in_a_minute(limit);
        // A line for each kind: the count, the number of sources, and the busiest source.
        let of_many = "Closed a connection: and 99800 more from 801 sources in the last 60 s, 99000 of them from others";
        let of_network = "Rejected a connection: and 99990 more from 2001:db8::/64 in the last 60 s";
        assert_eq!(texts, [of_many, of_network]);
    }

    #[test]
    fn a_panic_is_limited_by_its_place() {
        let limit = limit();
        let lines = written(limit, || {
            for _ in 0..1000 {
                for place in ["a.rs:1:1", "b.rs:2:2"] {
                    tracing::error!(target: panics::TARGET, place, "Panicked");
                }
            }
        });
        assert_eq!(lines, 2 * LINES_OF_SOURCE);
    }

    #[test]
    fn lines_without_a_client_are_not_limited() {
        let lines = written(limit(), || {
            for partition in 0..5000 {
                tracing::error!(target: "thalweg_log::partition::recover", partition, "Segment is damaged");
                tracing::debug!(target: "thalweg_net", address = "10.0.0.1:1", "Connection ended");
            }
            for _ in 0..5000 {
                tracing::info!(target: "thalweg_groups", "Preparing to rebalance group");
            }
        });
        assert_eq!(lines, 10_000 + LINES_OF_KIND);
    }
}
