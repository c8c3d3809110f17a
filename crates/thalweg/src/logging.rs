//! Log lines on standard error: selection, rate, length and form.
//!
//! Owns: the subscriber of this process. Lines pass the filter (`RUST_LOG`, and the levels that
//! `kafka-configs` changes), then the limit of lines that clients can cause, and are written as text for
//! people or as JSON.

mod bounded;
mod filter;
mod json;
pub mod limit;
mod panics;
#[cfg(test)]
mod testing;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bounded::BoundedLine;
use indicatif::MultiProgress;
use json::Json;
use thalweg_cli::notice;
use thalweg_config::{LogLevel, LogLevels, Loggers};
use thalweg_security::visible::visible_lines;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The form of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text, for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// True if lines are JSON. A static, because the code that writes the last line of a process has no settings.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Logs lines of this level or above to standard error, or the lines selected by `RUST_LOG`. Bars are hidden
/// while a line is written. Returns the loggers, whose levels can be changed.
pub fn begin(level: LogLevel, format: LogFormat, bars: &MultiProgress) -> Arc<Loggers> {
    let requested = std::env::var_os(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let (levels, complaints) = filter::read(&requested.to_string_lossy(), level);
    let (filtering, handle) = reload::Layer::<EnvFilter, Registry>::new(filter::of(&levels));
    // https://no-color.org
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_colours = format == LogFormat::Text && io::stderr().is_terminal() && !unwanted;
    let bars = bars.clone();
    let lines = tracing_subscriber::registry().with(filtering).with(limit::layer());
    match format {
        LogFormat::Text => {
            let writer = move || BoundedLine::new(AboveBars(bars.clone()), has_colours);
            lines.with(fmt::layer().with_writer(writer).with_ansi(has_colours).with_target(false)).init();
        }
        LogFormat::Json => {
            let writer = move || AboveBars(bars.clone());
            lines.with(fmt::layer().with_writer(writer).with_ansi(false).event_format(Json)).init();
        }
    }
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
    complaints.iter().for_each(|complaint| print_complaint(complaint));
    let put_in_force = move |levels: &LogLevels| {
        // A reload fails only without a subscriber, and this process keeps the subscriber.
        let _ = handle.reload(filter::of(levels));
    };
    Arc::new(Loggers::new(levels, put_in_force))
}

/// Logs warnings of a tool as text.
pub fn begin_for_tool(bars: &MultiProgress) {
    begin(LogLevel::Warn, LogFormat::Text, bars);
}

/// Lets [`print_complaint`] write JSON.
pub fn use_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// Logs panics, with their locations, in the form of the other lines.
pub fn log_panics(format: LogFormat) {
    panics::install(format);
}

/// Writes an unfiltered line to standard error: a complaint, or the reason for the end of the process.
pub fn print_complaint(text: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "{}", json::error_line(text));
    } else {
        notice::print_notice(text);
    }
}

/// Logs a title, with a text of several lines for people to copy from below it. As JSON, both are one event.
pub fn log_instructions(title: &str, text: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        tracing::info!("{title}\n{text}");
        return;
    }
    tracing::info!("{title}");
    if tracing::enabled!(tracing::Level::INFO) {
        // Standard error may be closed.
        let _ = io::stderr().write_all(visible_lines(text).as_bytes());
    }
}

/// Standard error, above any progress bars drawn there.
struct AboveBars(MultiProgress);

impl Write for AboveBars {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
