//! A chart of the last minutes: an inline picture, with its values in a table for screen readers.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::format;

/// Size of the picture in its own units. The page stretches the picture.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;
/// Room for the line at the upper and lower edge.
const MARGIN: f64 = 3.0;
/// The shortest time span of the width, so that the first samples do not form a steep line.
const SPAN_MIN_MS: i64 = 60_000;
/// Rows in the table, spread over the time span.
const ROWS_MAX: usize = 20;

/// A value at a time in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub at_ms: i64,
    pub value: f64,
}

/// A chart of values, oldest first. `shown` formats a value with its unit. A chart needs a live part of the
/// page to itself, because an open table stops the refresh of its part.
pub fn chart(name: &str, samples: &[Sample], shown: impl Fn(f64) -> String) -> Markup {
    let top = samples.iter().map(|sample| sample.value).fold(0.0, f64::max);
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return measuring(name) };
    if samples.len() < 2 {
        return measuring(name);
    }
    let span = (last.at_ms - first.at_ms).max(SPAN_MIN_MS);
    let begin = last.at_ms - span;
    let label = format!(
        "{name} from {} to {} UTC: now {}, at most {}",
        format::of_day(first.at_ms),
        format::of_day(last.at_ms),
        shown(last.value),
        shown(top)
    );
    let (line, area) = paths(samples, begin, span, top);
    html! {
        figure class="chart" {
            figcaption { (name) ": " (shown(last.value)) span class="quiet" { ", at most " (shown(top)) } }
            svg viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label=(label) {
                path class="area" d=(PreEscaped(area)) {}
                path class="line" d=(PreEscaped(line)) {}
            }
            p class="axis quiet" aria-hidden="true" {
                span { (format::of_day(begin)) } span { (format::of_day(begin + span / 2)) } span { (format::of_day(last.at_ms)) " UTC" }
            }
            details {
                summary { "Values" span class="hidden" { " of " (name) } }
                (table(name, samples, shown))
            }
        }
    }
}

fn measuring(name: &str) -> Markup {
    html! { figure class="chart" { figcaption { (name) } p class="empty quiet" { "Measuring…" } } }
}

/// SVG paths of the line and of the area below the line.
fn paths(samples: &[Sample], begin: i64, span: i64, top: f64) -> (String, String) {
    let x = |at_ms: i64| (at_ms - begin) as f64 * WIDTH / span as f64;
    let y = |value: f64| {
        let share = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
        HEIGHT - MARGIN - share * (HEIGHT - 2.0 * MARGIN)
    };
    let mut line = String::with_capacity(samples.len() * 12);
    for (at, sample) in samples.iter().enumerate() {
        let step = if at == 0 { 'M' } else { 'L' };
        let _ = write!(line, "{step}{:.1} {:.1}", x(sample.at_ms), y(sample.value));
    }
    let (first, last) = (samples[0], samples[samples.len() - 1]);
    let area = format!("{line}L{:.1} {HEIGHT}L{:.1} {HEIGHT}Z", x(last.at_ms), x(first.at_ms));
    (line, area)
}

fn table(name: &str, samples: &[Sample], shown: impl Fn(f64) -> String) -> Markup {
    html! {
        div class="table" tabindex="0" role="region" aria-label=(format!("Values of {name}")) {
            table {
                thead { tr { th scope="col" { "Time" } th scope="col" class="number" { (name) } } }
                tbody {
                    @for sample in spread(samples) {
                        tr { th scope="row" { (format::time(sample.at_ms)) } td class="number" { (shown(sample.value)) } }
                    }
                }
            }
        }
    }
}

/// Up to `ROWS_MAX` samples, newest first, spread evenly from the newest to the oldest.
fn spread(samples: &[Sample]) -> impl Iterator<Item = &Sample> {
    let rows = samples.len().min(ROWS_MAX);
    let last = samples.len() - 1;
    (0..rows).rev().map(move |row| &samples[if rows < 2 { last } else { row * last / (rows - 1) }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Vec<Sample> {
        (0..).zip(values).map(|(at, value)| Sample { at_ms: at * 5000, value: *value }).collect()
    }

    #[test]
    fn the_table_has_the_newest_and_the_oldest_value() {
        let many = samples(&(0..240).map(f64::from).collect::<Vec<_>>());
        let rows: Vec<f64> = spread(&many).map(|sample| sample.value).collect();
        assert_eq!((rows.len(), rows[0], rows[ROWS_MAX - 1]), (ROWS_MAX, 239.0, 0.0));
        let two = samples(&[1.0, 2.0]);
        assert_eq!(spread(&two).map(|sample| sample.value).collect::<Vec<_>>(), [2.0, 1.0]);
    }

    #[test]
    fn a_line_ends_at_the_right_and_stays_in_the_picture() {
        let page = chart("Lag", &samples(&[0.0, 10.0, 5.0]), |value| value.to_string()).0;
        assert!(page.contains("L600.0 50.0") && page.contains("Lag: 5"), "{page}");
        let flat = chart("Lag", &samples(&[0.0, 0.0]), |value| value.to_string()).0;
        assert!(flat.contains("L600.0 97.0") && !flat.contains("NaN"), "{flat}");
        assert!(chart("Lag", &samples(&[1.0]), |value| value.to_string()).0.contains("Measuring"));
    }
}
