//! Lines as JSON: `timestamp` (RFC 3339 in UTC), `level`, `target`, `message`, and `fields` with the keys and
//! values.
//!
//! Text from clients is in values only, and JSON escapes values: a line stays one valid line. Long texts are
//! cut.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};
use thalweg_security::visible::in_json;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Limit of a text, in bytes.
const TEXT_BYTES_MAX: usize = 2 * 1024;

/// Formats an event as one line of JSON.
pub struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut values = Values::default();
        event.record(&mut values);
        let metadata = event.metadata();
        let Values { message, fields } = values;
        writeln!(to, "{}", line(metadata.level().as_str(), metadata.target(), message, fields))
    }
}

/// The line of an error outside of tracing events.
pub fn error_line(text: &str) -> String {
    line("ERROR", "thalweg", text.to_owned(), Map::new())
}

/// The line of an event, with the keys that people look for first at the front.
fn line(level: &str, target: &str, message: String, fields: Map<String, Value>) -> String {
    let mut timestamp = String::new();
    // If the clock fails, the timestamp stays empty.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let [timestamp, level, target, message] =
        [timestamp, level.to_owned(), target.to_owned(), message].map(Value::String);
    let fields = Value::Object(fields);
    in_json(format!(
        "{{\"timestamp\":{timestamp},\"level\":{level},\"target\":{target},\"message\":{message},\"fields\":{fields}}}"
    ))
}

/// The message and the fields of an event.
#[derive(Default)]
struct Values {
    message: String,
    fields: Map<String, Value>,
}

impl Values {
    fn text(&mut self, field: &Field, text: String) {
        match field.name() {
            "message" => self.message = text,
            name => {
                self.fields.insert(name.to_owned(), Value::String(text));
            }
        }
    }

    fn value(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Values {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = ClippedText::default();
        // Formatting ends early once the text is full.
        let _ = write!(text, "{value:?}");
        self.text(field, text.end());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, clipped(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.value(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.value(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.value(field, value);
    }
}

/// A text of bounded length.
#[derive(Default)]
struct ClippedText {
    text: String,
    is_cut: bool,
}

impl ClippedText {
    fn end(mut self) -> String {
        if self.is_cut {
            self.text.push('…');
        }
        self.text
    }
}

impl fmt::Write for ClippedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_BYTES_MAX - self.text.len();
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        self.is_cut = true;
        Err(fmt::Error)
    }
}

fn clipped(text: &str) -> String {
    let mut kept = ClippedText::default();
    let _ = kept.write_str(text);
    kept.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::testing::CapturedLines;

    fn logged(log: impl FnOnce()) -> Vec<Value> {
        let lines = CapturedLines::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .with_ansi(false)
            .event_format(Json)
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let text = lines.text();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    #[test]
    fn values_have_their_types() {
        let lines = logged(|| {
            tracing::warn!(target: "thalweg_net", address = %"10.0.0.1:1", count = 3, ratio = 0.5, is_last = true, "Closed");
        });
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(
            (&line["level"], &line["target"], &line["message"]),
            (&"WARN".into(), &"thalweg_net".into(), &"Closed".into())
        );
        let expected =
            serde_json::json!({"address": "10.0.0.1:1", "count": 3, "ratio": 0.5, "is_last": true});
        assert_eq!(line["fields"], expected);
        let timestamp = line["timestamp"].as_str().expect("a text");
        assert!(
            chrono::DateTime::parse_from_rfc3339(timestamp).is_ok() && timestamp.ends_with('Z'),
            "{timestamp}"
        );
    }

    #[test]
    fn hostile_values_stay_values() {
        let hostile = "a\"},\"level\":\"INFO\n{\"x\": 1}\u{1b}[2J\u{2028}\0\\";
        let lines = logged(|| {
            tracing::info!(level = hostile, timestamp = ?hostile, "{hostile}");
            tracing::info!(client_id = hostile, ratio = f64::NAN, "{hostile}");
        });
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[1]["level"], &lines[1]["message"]), (&"INFO".into(), &hostile.into()));
        assert_eq!(lines[1]["fields"]["client_id"], hostile);
        assert_eq!(lines[0]["fields"]["level"], hostile);
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "ü".repeat(100_000);
        let lines = logged(|| tracing::info!(a = %long, b = ?long, c = &*long, "{long}"));
        for text in [
            &lines[0]["message"],
            &lines[0]["fields"]["a"],
            &lines[0]["fields"]["b"],
            &lines[0]["fields"]["c"],
        ] {
            let text = text.as_str().expect("a text");
            assert!(text.ends_with("ü…") && text.len() <= TEXT_BYTES_MAX + '…'.len_utf8(), "{}", text.len());
        }
    }

    #[test]
    fn the_last_line_of_a_process_is_a_line_too() {
        assert!(error_line("a\u{202e}b").contains("a\\u202eb"), "a terminal shows it as it is");
        let line: Value = serde_json::from_str(&error_line("it\nfailed")).expect("JSON");
        assert_eq!((&line["level"], &line["message"]), (&"ERROR".into(), &"it\nfailed".into()));
    }
}
