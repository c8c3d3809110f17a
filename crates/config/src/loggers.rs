//! The levels of log lines by logger, shown and changed by `kafka-configs --entity-type broker-loggers`
//! (KIP-412).
//!
//! Owns: the names and levels of the loggers. A logger is a part of the program. Its name is stable and maps
//! to the log targets of one crate, so that crates may be split differently. Refuses: filtering lines, which
//! follows [`LogLevels::directives`].
//!
//! Levels belong to a process: they are not in the metadata, and a restart drops changes, as in Kafka.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A level: lines of this level and of more severe levels are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// No lines are written. Kafka shows this level, but cannot set it.
    Off,
    /// No lines are written, because no line is fatal.
    Fatal,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The levels that can be set, in the order of Kafka's error messages.
const SETTABLE: [LogLevel; 6] =
    [LogLevel::Debug, LogLevel::Error, LogLevel::Fatal, LogLevel::Info, LogLevel::Trace, LogLevel::Warn];

/// The levels of directives, in the order of their numbers.
const DIRECTIVES: [LogLevel; 6] =
    [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

/// The logger whose level applies to loggers without a level.
pub const ROOT_LOGGER: &str = "root";

/// A part of the program that logs.
#[derive(Clone, Copy, Debug)]
pub struct Logger {
    /// Name of the logger.
    pub name: &'static str,
    /// Prefix of the log targets.
    pub target: &'static str,
    /// Description of the lines.
    pub about: &'static str,
}

/// The loggers besides the root, by name.
pub const LOGGERS: [Logger; 18] = [
    logger("kafka.authorizer.logger", "kafka.authorizer.logger", "decisions of the authorizer, as Kafka's"),
    logger("kafka.request.logger", "kafka.request.logger", "requests that took long"),
    logger("thalweg.audit", "thalweg_audit", "the audit trail's files"),
    logger("thalweg.broker", "thalweg_broker", "requests of clients, logins, start and stop"),
    logger("thalweg.client", "thalweg_client", "producers and consumers of hosted streams"),
    logger("thalweg.console", "thalweg_console", "pages and API of the console"),
    logger("thalweg.controller", "thalweg_controller", "the embedded controller"),
    logger("thalweg.groups", "thalweg_groups", "members and offsets of groups"),
    logger("thalweg.log", "thalweg_log", "data directories, segments, recovery, compaction"),
    logger("thalweg.membership", "thalweg_membership", "the broker's place in its cluster"),
    logger("thalweg.net", "thalweg_net", "listeners, connections, TLS handshakes"),
    logger("thalweg.replica", "thalweg_replica", "partitions, replication, retention"),
    logger("thalweg.security", "thalweg_security", "certificates and tokens"),
    logger("thalweg.server", "thalweg", "the process: settings, signals, HTTP, panics"),
    logger("thalweg.shard", "thalweg_shard", "loads and writes of all coordinators"),
    logger("thalweg.share-groups", "thalweg_share_groups", "share partitions and their states"),
    logger("thalweg.stream", "thalweg_stream", "hosted streams"),
    logger("thalweg.transactions", "thalweg_transactions", "transactions and their markers"),
];

const fn logger(name: &'static str, target: &'static str, about: &'static str) -> Logger {
    Logger { name, target, about }
}

impl LogLevel {
    /// Kafka's name of the level.
    pub const fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "OFF",
            LogLevel::Fatal => "FATAL",
            LogLevel::Error => "ERROR",
            LogLevel::Warn => "WARN",
            LogLevel::Info => "INFO",
            LogLevel::Debug => "DEBUG",
            LogLevel::Trace => "TRACE",
        }
    }

    /// The level of a `RUST_LOG` directive: a word, or its number.
    pub fn of_directive(text: &str) -> Option<LogLevel> {
        let number = text.parse::<usize>().ok();
        let is_meant = |at: usize, level: LogLevel| {
            number == Some(at) || level.in_directive().eq_ignore_ascii_case(text)
        };
        DIRECTIVES.iter().enumerate().find(|(at, level)| is_meant(*at, **level)).map(|(_, level)| *level)
    }

    fn in_directive(self) -> &'static str {
        match self {
            LogLevel::Off | LogLevel::Fatal => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }

    /// The level with this name. Kafka accepts upper case only.
    fn settable(name: &str) -> Option<LogLevel> {
        SETTABLE.into_iter().find(|level| level.name() == name)
    }
}

/// A change of a logger's level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggerChange {
    pub logger: String,
    /// The new level; `None` for the root's level.
    pub level: Option<String>,
}

/// Why a level cannot be changed, in Kafka's wording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoggerError {
    #[error("Logger {0} does not exist!")]
    Unknown(String),
    #[error(
        "Cannot set the log level of {logger} to {level} as it is not a supported log level. Valid log levels are DEBUG, ERROR, \
         FATAL, INFO, TRACE, WARN"
    )]
    Level { logger: String, level: String },
    #[error("Removing the log level of the root logger is not allowed")]
    Root,
}

/// The levels of all loggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevels {
    root: LogLevel,
    /// Levels that differ from the root's, by logger name.
    own: BTreeMap<&'static str, LogLevel>,
    /// Directives for targets smaller or larger than a logger.
    rest: Vec<String>,
}

impl LogLevels {
    /// Levels by the valid directives of `RUST_LOG`; `root` applies if no directive is for all targets.
    pub fn new(directives: &[String], root: LogLevel) -> LogLevels {
        let is_root = |text: &&String| LogLevel::of_directive(text).is_some();
        let mut roots = directives.iter().filter(is_root).filter_map(|text| LogLevel::of_directive(text));
        let rest: Vec<String> = directives.iter().filter(|text| !is_root(text)).cloned().collect();
        // For a target, the directive with the longest matching prefix wins; among equals, the last one.
        let of_target = |target: &str| {
            // A directive without a level enables all lines of the target.
            let parts = rest.iter().map(|text| text.split_once('=').unwrap_or((text, "trace")));
            let levels = parts.filter_map(|(start, level)| Some((start, LogLevel::of_directive(level)?)));
            levels.filter(|(start, _)| target.starts_with(start)).max_by_key(|(start, _)| start.len())
        };
        let own = LOGGERS.iter().filter_map(|logger| Some((logger.name, of_target(logger.target)?.1)));
        let own = own.collect();
        LogLevels { root: roots.next_back().unwrap_or(root), own, rest }
    }

    /// The level of each logger, the root included.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, LogLevel)> {
        let of = move |logger: &Logger| (logger.name, self.of(logger));
        [(ROOT_LOGGER, self.root)].into_iter().chain(LOGGERS.iter().map(of))
    }

    /// Applies all changes or none.
    pub fn alter(&mut self, changes: &[LoggerChange]) -> Result<(), LoggerError> {
        let mut next = self.clone();
        for change in changes {
            next.alter_one(change)?;
        }
        *self = next;
        Ok(())
    }

    fn alter_one(&mut self, change: &LoggerChange) -> Result<(), LoggerError> {
        let LoggerChange { logger, level } = change;
        let known = LOGGERS.iter().find(|known| known.name == logger);
        if known.is_none() && logger != ROOT_LOGGER {
            return Err(LoggerError::Unknown(logger.clone()));
        }
        let level = match level {
            None => None,
            Some(text) => Some(
                LogLevel::settable(text)
                    .ok_or_else(|| LoggerError::Level { logger: logger.clone(), level: text.clone() })?,
            ),
        };
        match (known, level) {
            (None, None) => return Err(LoggerError::Root),
            (None, Some(level)) => self.root = level,
            (Some(known), None) => {
                self.own.remove(known.name);
            }
            (Some(known), Some(level)) => {
                self.own.insert(known.name, level);
            }
        }
        Ok(())
    }

    fn of(&self, logger: &Logger) -> LogLevel {
        self.own.get(logger.name).copied().unwrap_or(self.root)
    }

    /// The filter in the syntax of `RUST_LOG`: later directives replace earlier ones for the same target.
    /// Each logger has a directive, so that no logger takes the level of another whose target is a prefix of
    /// its own.
    pub fn directives(&self) -> Vec<String> {
        let root = self.root.in_directive().to_owned();
        let of = |logger: &Logger| format!("{}={}", logger.target, self.of(logger).in_directive());
        let loggers = LOGGERS.iter().map(of);
        [root].into_iter().chain(self.rest.iter().cloned()).chain(loggers).collect()
    }
}

/// The levels of this process, and a function that applies new levels.
pub struct Loggers {
    levels: Mutex<LogLevels>,
    put_in_force: Box<dyn Fn(&LogLevels) + Send + Sync>,
}

impl fmt::Debug for Loggers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loggers").finish_non_exhaustive()
    }
}

impl Loggers {
    /// Loggers with these levels, which are already in effect.
    pub fn new(levels: LogLevels, put_in_force: impl Fn(&LogLevels) + Send + Sync + 'static) -> Loggers {
        Loggers { levels: Mutex::new(levels), put_in_force: Box::new(put_in_force) }
    }

    /// The levels in effect.
    pub fn levels(&self) -> LogLevels {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks changes, and applies them unless `only_checks`.
    pub fn alter(&self, changes: &[LoggerChange], only_checks: bool) -> Result<(), LoggerError> {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = levels.clone();
        next.alter(changes)?;
        if !only_checks && next != *levels {
            (self.put_in_force)(&next);
            *levels = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn levels(directives: &[&str]) -> LogLevels {
        let directives: Vec<_> = directives.iter().map(|text| (*text).to_owned()).collect();
        LogLevels::new(&directives, LogLevel::Info)
    }

    fn change(logger: &str, level: Option<&str>) -> LoggerChange {
        LoggerChange { logger: logger.to_owned(), level: level.map(str::to_owned) }
    }

    fn of(levels: &LogLevels, name: &str) -> LogLevel {
        levels.all().find(|(known, _)| *known == name).expect("a logger").1
    }

    #[test]
    fn directives_give_the_levels_of_loggers() {
        let found = levels(&[]);
        assert!(found.all().all(|(_, level)| level == LogLevel::Info));
        assert_eq!(found.all().next(), Some((ROOT_LOGGER, LogLevel::Info)));
        let found = levels(&["WARN", "thalweg_log=debug", "thalweg_log::partition=trace", "hyper=off"]);
        assert_eq!(of(&found, "root"), LogLevel::Warn);
        assert_eq!(of(&found, "thalweg.log"), LogLevel::Debug);
        assert_eq!(of(&found, "thalweg.net"), LogLevel::Warn);
        // As in a filter, the prefix of a target is enough.
        let found = levels(&["thalweg=trace", "thalweg_net=error"]);
        assert_eq!(of(&found, "thalweg.broker"), LogLevel::Trace);
        assert_eq!(of(&found, "thalweg.net"), LogLevel::Error);
        assert_eq!(of(&found, "kafka.authorizer.logger"), LogLevel::Info);
        let found = levels(&["thalweg_client", "thalweg_net=4", "[request{id=1}]=trace", "2"]);
        assert_eq!(of(&found, "thalweg.client"), LogLevel::Trace);
        assert_eq!(of(&found, "thalweg.net"), LogLevel::Debug);
        assert_eq!(of(&found, "root"), LogLevel::Warn);
    }

    #[test]
    fn levels_change_and_return_to_that_of_the_root() {
        let mut found = levels(&["thalweg_log::partition=trace", "thalweg_net=debug"]);
        found.alter(&[change("thalweg.log", Some("DEBUG")), change("root", Some("ERROR"))]).expect("valid");
        assert_eq!(of(&found, "thalweg.log"), LogLevel::Debug);
        let directives = found.directives();
        assert_eq!(directives[..2], ["error", "thalweg_log::partition=trace"]);
        for expected in ["thalweg_log=debug", "thalweg_net=debug", "thalweg=error", "thalweg_broker=error"] {
            assert!(directives.iter().any(|text| text == expected), "{expected} in {directives:?}");
        }
        found.alter(&[change("thalweg.net", None), change("thalweg.log", None)]).expect("valid");
        assert_eq!(of(&found, "thalweg.net"), LogLevel::Error);
        found.alter(&[change("root", Some("FATAL"))]).expect("valid");
        assert_eq!((of(&found, "root"), &*found.directives()[0]), (LogLevel::Fatal, "off"));
    }

    #[test]
    fn invalid_changes_change_nothing() {
        let mut found = levels(&[]);
        let before = found.clone();
        for (logger, level, words) in [
            ("kafka.server.KafkaApis", Some("DEBUG"), "Logger kafka.server.KafkaApis does not exist!"),
            ("thalweg_net", None, "Logger thalweg_net does not exist!"),
            ("ROOT", Some("INFO"), "Logger ROOT does not exist!"),
            ("root", None, "Removing the log level of the root logger is not allowed"),
            ("thalweg.net", Some("debug"), "Cannot set the log level of thalweg.net to debug as it is not"),
            ("root", Some("OFF"), "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        ] {
            let changes = [change("thalweg.log", Some("TRACE")), change(logger, level)];
            let error = found.alter(&changes).expect_err(logger).to_string();
            assert!(error.contains(words), "{error}");
            assert_eq!(found, before);
        }
    }

    #[test]
    fn changes_are_put_in_force_unless_they_are_only_checked() {
        let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
        let sees = std::sync::Arc::clone(&seen);
        let loggers = Loggers::new(levels(&[]), move |levels| {
            sees.lock().expect("no panic").push(of(levels, "thalweg.net"));
        });
        let debug = [change("thalweg.net", Some("DEBUG"))];
        loggers.alter(&debug, true).expect("valid");
        assert_eq!(of(&loggers.levels(), "thalweg.net"), LogLevel::Info);
        loggers.alter(&debug, false).expect("valid");
        loggers.alter(&debug, false).expect("valid");
        assert_eq!(*seen.lock().expect("no panic"), [LogLevel::Debug]);
    }

    #[test]
    fn the_loggers_are_documented() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/logging.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        for Logger { name, target, about } in LOGGERS {
            let row = format!("| `{name}` | `{target}` | {about} |");
            assert!(page.lines().any(|line| line == row), "docs/logging.md lacks {row}");
        }
    }

    #[test]
    fn every_crate_of_a_node_that_logs_has_a_logger() {
        // Crates of tools are not part of a node. The targets of `cli` begin with that of `thalweg.server`.
        const TOOLS: [&str; 3] = ["cli", "lab", "sim"];
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a directory of crates");
        let mut log = BTreeSet::new();
        for entry in std::fs::read_dir(crates).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
            let (dependencies, _) = manifest.split_once("[dev-dependencies]").unwrap_or((&manifest, ""));
            if dependencies.contains("\ntracing.workspace") && !TOOLS.contains(&&*name) {
                let target = name.replace('-', "_");
                log.insert(if name == "thalweg" { name } else { format!("thalweg_{target}") });
            }
        }
        assert!(log.contains("thalweg_net"), "{log:?}");
        for target in log {
            assert!(LOGGERS.iter().any(|logger| logger.target == target), "{target} has no logger");
        }
        let names: Vec<_> = LOGGERS.iter().map(|logger| logger.name).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
