//! `RUST_LOG`: parses the filter, and reports meaningless parts. A misspelled level would otherwise be a
//! target name, and as the only directive would disable all logging.

use thalweg_config::{LogLevel, LogLevels};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};

/// Targets of log lines: this program's crates, and the libraries that log.
const TARGETS: [&str; 10] = [
    "thalweg",
    "axum",
    "h2",
    "hyper",
    "kafka.authorizer.logger",
    "librdkafka",
    "mio",
    "rdkafka",
    "rustls",
    "tokio",
];

/// The levels of a filter text, and the text's faults. Without a valid directive, all targets have `level`.
pub fn read(requested: &str, level: LogLevel) -> (LogLevels, Vec<String>) {
    let mut directives = Vec::new();
    let mut complaints = Vec::new();
    for text in split(requested) {
        match check(text) {
            Ok(()) => directives.push(text.to_owned()),
            Err(why) => complaints.push(format!(
                "RUST_LOG: {text:?} {why} and has no effect: use a level (off, error, warn, info, debug, trace) or TARGET=LEVEL, \
                 for example info,thalweg_broker=debug"
            )),
        }
    }
    // Targets without a directive log errors only.
    let root = if directives.is_empty() { level } else { LogLevel::Error };
    (LogLevels::new(&directives, root), complaints)
}

/// The filter for levels.
pub fn of(levels: &LogLevels) -> EnvFilter {
    let none = EnvFilter::builder().with_default_directive(LevelFilter::ERROR.into()).parse_lossy("");
    let directives = levels.directives();
    // `read` has checked the directives.
    let valid = directives.iter().filter_map(|text| text.parse::<Directive>().ok());
    valid.fold(none, EnvFilter::add_directive)
}

/// The directives of a text, separated by commas, except for commas in the fields of a span.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    let parts = text.split(move |c| {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

fn check(text: &str) -> Result<(), &'static str> {
    text.parse::<Directive>().map_err(|_| "is not a valid directive")?;
    let target = text.split(['=', '[']).next().unwrap_or_default();
    let is_level = target.parse::<LevelFilter>().is_ok() && !text.contains('=');
    let is_of = |known: &str| {
        let rest = target.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', ':']))
    };
    if target.is_empty() || is_level || TARGETS.iter().any(|known| is_of(known)) {
        Ok(())
    } else {
        Err("is neither a level nor a part of this program")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(requested: &str) -> (String, usize) {
        let (levels, complaints) = read(requested, LogLevel::Warn);
        (of(&levels).to_string(), complaints.len())
    }

    /// The level of targets without a directive.
    fn root(requested: &str) -> (LogLevel, usize) {
        let (levels, complaints) = read(requested, LogLevel::Warn);
        let root = levels.all().next().expect("the root is the first");
        (root.1, complaints.len())
    }

    #[test]
    fn levels_and_targets_are_taken() {
        assert_eq!(root(""), (LogLevel::Warn, 0));
        assert_eq!(root("debug"), (LogLevel::Debug, 0));
        assert_eq!(root("INFO"), (LogLevel::Info, 0));
        assert_eq!(root("thalweg_broker=debug"), (LogLevel::Error, 0), "only what was asked for");
        for text in [
            "thalweg_broker=debug",
            "thalweg_log::partition=trace",
            "hyper=info",
            "kafka.authorizer.logger=debug",
            "[produce{id=1,b=2}]=trace",
        ] {
            let (filter, complaints) = shown(text);
            assert!(complaints == 0 && filter.contains(text), "{filter}");
        }
        let (both, complaints) = shown("info, thalweg_broker=debug");
        for part in ["info", "thalweg_broker=debug", "thalweg_net=info"] {
            assert!(both.split(',').any(|known| known == part), "{part} in {both}");
        }
        assert_eq!(complaints, 0);
    }

    #[test]
    fn nonsense_is_named_and_has_no_effect() {
        for (text, expected) in [
            ("nonsense", LogLevel::Warn),
            ("broker=debug", LogLevel::Warn),
            ("debug,verbose", LogLevel::Debug),
        ] {
            let (levels, complaints) = read(text, LogLevel::Warn);
            assert!(levels.all().all(|(_, level)| level == expected), "{text}: {levels:?}");
            assert!(complaints[0].contains("info,thalweg_broker=debug"), "{complaints:?}");
        }
        assert_eq!(shown("thalweg_broker=loud").1, 1);
    }

    #[test]
    fn a_changed_level_is_that_of_one_logger() {
        let (mut levels, _) = read("", LogLevel::Info);
        let debug = thalweg_config::LoggerChange {
            logger: "thalweg.server".to_owned(),
            level: Some("DEBUG".to_owned()),
        };
        levels.alter(&[debug]).expect("it exists");
        let filter = of(&levels).to_string();
        assert!(filter.contains("thalweg=debug") && filter.contains("thalweg_net=info"), "{filter}");
    }
}
