//! `RUST_LOG`: parses the filter, and reports meaningless parts. A misspelled level would otherwise be a target name,
//! and on its own would disable all logging.

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

/// The filter for a text, and its faults. Without any valid part it is `level`.
pub fn read(asked: &str, level: &str) -> (EnvFilter, Vec<String>) {
    let mut directives: Vec<Directive> = Vec::new();
    let mut complaints = Vec::new();
    for text in split(asked) {
        match directive(text) {
            Ok(directive) => directives.push(directive),
            Err(why) => complaints.push(format!(
                "RUST_LOG: {text:?} {why} and has no effect: use a level (off, error, warn, info, debug, trace) or TARGET=LEVEL, \
                 for example info,thalweg_broker=debug"
            )),
        }
    }
    if directives.is_empty() {
        return (EnvFilter::new(level), complaints);
    }
    // Without a level for the rest, a filter starts with errors of all targets.
    let none = EnvFilter::builder().with_default_directive(LevelFilter::ERROR.into()).parse_lossy("");
    (directives.into_iter().fold(none, EnvFilter::add_directive), complaints)
}

/// The directives of a text: between commas, but for those in the fields of a span.
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

fn directive(text: &str) -> Result<Directive, &'static str> {
    let directive = text.parse().map_err(|_| "is not a valid directive")?;
    let target = text.split(['=', '[']).next().unwrap_or_default();
    let is_level = target.parse::<LevelFilter>().is_ok() && !text.contains('=');
    let is_of = |known: &str| {
        let rest = target.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', ':']))
    };
    if target.is_empty() || is_level || TARGETS.iter().any(|known| is_of(known)) {
        Ok(directive)
    } else {
        Err("is neither a level nor a part of this program")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(asked: &str) -> (String, usize) {
        let (filter, complaints) = read(asked, "warn");
        (filter.to_string(), complaints.len())
    }

    #[test]
    fn levels_and_targets_are_taken() {
        assert_eq!(shown(""), ("warn".to_owned(), 0));
        assert_eq!(shown("debug"), ("debug".to_owned(), 0));
        assert_eq!(shown("INFO"), ("info".to_owned(), 0));
        for text in [
            "thalweg_broker=debug",
            "thalweg_log::partition=trace",
            "hyper=info",
            "kafka.authorizer.logger=debug",
            "[produce{id=1,b=2}]=trace",
        ] {
            let (filter, complaints) = read(text, "warn");
            assert!(complaints.is_empty() && filter.to_string().contains(text), "{filter}: {complaints:?}");
        }
        let (both, complaints) = shown("info, thalweg_broker=debug");
        assert!(both.contains("info") && both.contains("thalweg_broker=debug"), "{both}");
        assert_eq!(complaints, 0);
    }

    #[test]
    fn nonsense_is_named_and_has_no_effect() {
        for (text, expected) in [("nonsense", "warn"), ("broker=debug", "warn"), ("debug,verbose", "debug")] {
            let (filter, complaints) = read(text, "warn");
            assert_eq!(filter.to_string(), expected, "{text}");
            assert!(complaints[0].contains("info,thalweg_broker=debug"), "{complaints:?}");
        }
        assert_eq!(shown("thalweg_broker=loud").1, 1);
    }
}
