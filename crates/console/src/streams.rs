//! Streams of this node: suggestions for the editor, and the current rates of stages.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use thalweg_stream::host::StreamStatus;
use thalweg_stream::module::{self, Kind};
use tokio::time::Instant;
use utoipa::ToSchema;

const SUGGESTIONS_MAX: usize = 14;
/// Maximum streams with stored rates.
const STREAMS_MAX: usize = 1000;
/// Minimum time between two counts of a rate.
const WINDOW: Duration = Duration::from_secs(1);

/// A suggestion for the cursor position.
#[derive(Debug, Serialize, ToSchema)]
pub struct Suggestion {
    /// The suggested text.
    pub text: String,
    /// A short description.
    pub about: String,
    /// Start of the replaced text, in UTF-16 units as in browsers.
    pub from: usize,
    /// End of the replaced text, in UTF-16 units.
    pub to: usize,
}

/// Suggests stages and options for a cursor position in UTF-16 units.
pub fn suggest(text: &str, cursor: usize) -> Vec<Suggestion> {
    let cursor = byte_of(text, cursor);
    let before = &text[..cursor];
    let stage_start = before.rfind(['|', '>', ';', '\n']).map_or(0, |at| at + 1);
    let is_first = !text[..stage_start].trim_end().ends_with(['|', '>']);
    let stage = &before[stage_start..];
    let word_start = stage_start + stage.trim_end_matches(|c: char| !c.is_whitespace()).len();
    let word = &before[word_start..];
    let (from, to) = (units(&text[..word_start]), units(before));
    let suggestion = |text: String, about: &str| Suggestion { text, about: about.to_owned(), from, to };
    let name = stage.split_whitespace().find(|word| !word.ends_with([':', '=']));
    if let Some(option) = word.strip_prefix("--") {
        let found = module::named(name.unwrap_or_default()).flat_map(|module| module.options);
        let found = found
            .filter(|spec| spec.name.starts_with(option) && !stage.contains(&format!("--{}=", spec.name)));
        return found
            .take(SUGGESTIONS_MAX)
            .map(|spec| suggestion(format!("--{}=", spec.name), spec.summary))
            .collect();
    }
    let is_name = stage[..word_start - stage_start].split_whitespace().all(|word| word.ends_with([':', '=']));
    if is_name {
        let kinds: &[Kind] = if is_first { &[Kind::Source] } else { &[Kind::Processor, Kind::Sink] };
        let found = kinds
            .iter()
            .flat_map(|kind| module::of_kind(*kind))
            .filter(|module| module.name.starts_with(word));
        return found.map(|module| suggestion(module.name.to_owned(), module.summary)).collect();
    }
    let mut found = Vec::new();
    if word.is_empty() {
        let options = module::named(name.unwrap_or_default()).flat_map(|module| module.options);
        let missing = options.filter(|spec| !stage.contains(&format!("--{}=", spec.name)));
        found.extend(
            missing.take(SUGGESTIONS_MAX).map(|spec| suggestion(format!("--{}=", spec.name), spec.summary)),
        );
        found.push(suggestion("| ".to_owned(), "the next stage"));
    }
    found
}

/// The byte offset of a position in UTF-16 units.
fn byte_of(text: &str, place: usize) -> usize {
    let mut units = 0;
    for (at, character) in text.char_indices() {
        if units >= place {
            return at;
        }
        units += character.len_utf16();
    }
    text.len()
}

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Rates of stages, between two calls of [`Rates::look`].
#[derive(Default)]
pub struct Rates(Mutex<HashMap<String, StreamMeasurement>>);

struct StreamMeasurement {
    at: Instant,
    counts: Vec<Counts>,
    rates: Vec<StageRate>,
}

/// The counters of a stage.
#[derive(Clone, Copy)]
struct Counts {
    messages: u64,
    waited: Duration,
}

/// The current rates of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageRate {
    /// Messages per second.
    pub per_second: f64,
    /// Share of the time spent waiting for the next stage: backpressure.
    pub waiting: f64,
}

impl Rates {
    /// The rates of all stages of a stream, in the order of parts and stages; empty at the first call.
    pub fn look(&self, status: &StreamStatus) -> Vec<StageRate> {
        let Some(figures) = &status.figures else { return Vec::new() };
        let counts: Vec<Counts> = figures
            .streams
            .iter()
            .flat_map(|part| &part.stages)
            .map(|stage| Counts { messages: stage.messages_in.max(stage.messages_out), waited: stage.waited })
            .collect();
        let now = Instant::now();
        let mut looked = self.0.lock();
        if looked.len() >= STREAMS_MAX {
            looked.clear();
        }
        let before = looked.get(&*status.name).filter(|before| before.counts.len() == counts.len());
        let Some(before) = before else {
            looked.insert(status.name.to_string(), StreamMeasurement { at: now, counts, rates: Vec::new() });
            return Vec::new();
        };
        let elapsed = now - before.at;
        if elapsed < WINDOW {
            return before.rates.clone();
        }
        let seconds = elapsed.as_secs_f64();
        let rate = |(now, before): (&Counts, &Counts)| StageRate {
            per_second: now.messages.saturating_sub(before.messages) as f64 / seconds,
            waiting: (now.waited.saturating_sub(before.waited).as_secs_f64() / seconds).min(1.0),
        };
        let rates: Vec<StageRate> = counts.iter().zip(&before.counts).map(rate).collect();
        looked.insert(status.name.to_string(), StreamMeasurement { at: now, counts, rates: rates.clone() });
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        suggest(text, units(text)).into_iter().map(|suggestion| suggestion.text).collect()
    }

    #[test]
    fn stages_and_options_are_suggested_where_they_fit() {
        assert!(texts("ti").contains(&"time".to_owned()));
        assert!(!texts("").contains(&"log".to_owned()), "a line begins with a source");
        assert!(texts("time | lo").contains(&"log".to_owned()));
        assert!(!texts("time | ti").contains(&"time".to_owned()), "a source comes first");
        assert!(texts("time --co").contains(&"--count=".to_owned()));
        assert!(!texts("time --count=3 --co").contains(&"--count=".to_owned()), "it is there already");
        assert!(texts("time ").contains(&"| ".to_owned()));
    }

    #[test]
    fn places_are_counted_as_browsers_do() {
        let text = "time | log --x=😀 | fi";
        let found = suggest(text, units(text));
        let filter = found.iter().find(|suggestion| suggestion.text == "filter").expect("a stage");
        assert_eq!((filter.from, filter.to), (units(text) - 2, units(text)));
        assert_eq!(byte_of("a😀b", 3), 5);
        // Multi-byte blanks.
        for blank in ['\u{a0}', '\u{3000}', '\u{2009}'] {
            let text = format!("time |{blank}lo");
            let found = suggest(&text, units(&text));
            let log = found.iter().find(|suggestion| suggestion.text == "log").expect("a stage");
            assert_eq!((log.from, log.to), (7, 9));
        }
    }
}
