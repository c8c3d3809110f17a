//! Panics in the log: one line with the source location, limited per location, in the form of the other
//! lines.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};

use super::LogFormat;

/// Target of panic lines, below the target of the program, so that the program's level applies.
pub const TARGET: &str = "thalweg_panic";

/// Logs panics from now on. With `RUST_BACKTRACE` the backtrace is in the line of JSON, or below the line of
/// text.
pub fn install(format: LogFormat) {
    let earlier = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        let message = message(panic);
        let backtrace = Backtrace::capture();
        match (backtrace.status(), format) {
            (BacktraceStatus::Captured, LogFormat::Json) => {
                tracing::error!(target: TARGET, place, thread, panic = message, %backtrace, "{WHAT}");
            }
            (status, _) => {
                tracing::error!(target: TARGET, place, thread, panic = message, "{WHAT}");
                if status == BacktraceStatus::Captured {
                    earlier(panic);
                }
            }
        }
    }));
}

/// The message of the line, with advice.
const WHAT: &str = "Panicked: a bug in Thalweg. The request or task has ended, others go on; report this line with those \
                    before it, and with RUST_BACKTRACE=1 if it comes again";

fn message<'a>(panic: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::json::Json;
    use crate::logging::testing::CapturedLines;

    #[test]
    fn a_panic_is_one_line_with_its_place() {
        let lines = CapturedLines::default();
        let to = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || to.clone()).event_format(Json).finish();
        let ended = std::thread::Builder::new().name("worker-7".to_owned()).spawn(move || {
            tracing::subscriber::with_default(subscriber, || {
                install(LogFormat::Json);
                let number = 7;
                panic!("no such\npartition: {number}");
            });
        });
        let ended = ended.expect("a thread").join();
        // The hook belongs to the whole process.
        drop(panic::take_hook());
        assert!(ended.is_err(), "it panicked");
        let text = lines.text();
        let [line] = &text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &TARGET.into()));
        assert_eq!(line["fields"]["panic"], "no such\npartition: 7");
        assert_eq!(line["fields"]["thread"], "worker-7");
        let place = line["fields"]["place"].as_str().expect("a place");
        assert!(place.starts_with("crates/thalweg/src/logging/panics.rs:"), "{place}");
    }
}
