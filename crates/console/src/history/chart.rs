//! A chart of the last hour: an inline picture with one or two lines, gaps, and marks of events, and its
//! values in a table.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::format;

/// Size of the picture in its own units. The page stretches the picture.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;
/// Room for lines at the upper and lower edge.
const MARGIN: f64 = 3.0;
/// Rows in the table, spread over the time.
const ROWS_MAX: usize = 20;
/// Events named in the description.
const EVENTS_NAMED: usize = 10;

/// A line of a chart.
pub struct Line {
    /// The name beside the value; empty for the only line.
    pub name: &'static str,
    /// A value for each time; none if unknown.
    pub values: Vec<Option<f64>>,
}

impl Line {
    /// A line of whole numbers.
    pub fn of_counts(name: &'static str, values: &[Option<u64>]) -> Line {
        Line { name, values: values.iter().map(|value| value.map(|value| value as f64)).collect() }
    }
}

/// The times of a chart, and the events between them.
pub struct ChartTimes<'a> {
    pub at_ms: &'a [i64],
    /// True for times after a gap.
    pub after_gap: &'a [bool],
    /// The time of the whole width.
    pub span_ms: i64,
    /// Times and texts.
    pub marks: &'a [(i64, String)],
}

/// A chart with the id `id`, in a live part of the page to itself. `shown` formats a value with its unit.
pub fn chart(
    id: &str,
    name: &str,
    times: &ChartTimes<'_>,
    lines: &[Line],
    shown: impl Fn(f64) -> String,
) -> Markup {
    let known = lines.iter().flat_map(|line| line.values.iter().copied().flatten());
    let top = known.fold(0.0, f64::max);
    let is_known = lines.iter().any(|line| line.values.iter().any(Option::is_some));
    let (Some(last), true) = (times.at_ms.last().copied(), is_known) else {
        return html! {
            div id=(id) data-live { figure class="chart" { figcaption { (name) } p class="empty quiet" { "Nothing is known yet." } } }
        };
    };
    let values: Vec<String> =
        lines.iter().enumerate().map(|(index, line)| now(index, line, &shown)).collect();
    let (begin, top_text) = (last - times.span_ms, shown(top));
    let title = format!("{name} from {} to {} UTC", format::of_day(begin), format::of_day(last));
    let (title_id, description_id) = (format!("{id}-title"), format!("{id}-text"));
    html! {
        div id=(id) data-live {
            figure class="chart hour" {
                figcaption { (name) ": " (values.join(", ")) span class="quiet" { ", at most " (top_text) } }
                svg viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-labelledby={ (title_id) " " (description_id) } {
                    title id=(title_id) { (title) }
                    desc id=(description_id) { (description(times, &values, &top_text)) }
                    (PreEscaped(picture(times, lines, begin, top)))
                }
                p class="axis quiet" aria-hidden="true" {
                    span { (format::of_day(begin)) } span { (format::of_day(begin + times.span_ms / 2)) } span { (format::of_day(last)) " UTC" }
                }
                details {
                    summary { "Values" span class="hidden" { " of " (name) } }
                    (table(name, times, lines, &shown))
                }
            }
        }
    }
}

/// The newest value of a line, with the look of the line if there are several.
fn now(index: usize, line: &Line, shown: &impl Fn(f64) -> String) -> String {
    let value = line.values.last().copied().flatten().map_or("–".to_owned(), shown);
    match (line.name, index) {
        ("", _) => value,
        (name, 0) => format!("{name} {value}"),
        (name, _) => format!("{name} (dashed) {value}"),
    }
}

fn description(times: &ChartTimes<'_>, values: &[String], top: &str) -> String {
    let gaps = times.after_gap.iter().skip(1).filter(|gap| **gap).count();
    let mut text = format!("Now {}; at most {top}.", values.join(", "));
    if gaps > 0 {
        let _ = write!(text, " {}.", format::counted(gaps, "gap"));
    }
    let first = times.marks.len().saturating_sub(EVENTS_NAMED);
    for (at_ms, event) in &times.marks[first..] {
        let _ = write!(text, " {} {event}.", format::of_day(*at_ms));
    }
    text
}

/// The elements of the picture: gaps, marks, the area of the first line, lines.
fn picture(times: &ChartTimes<'_>, lines: &[Line], begin: i64, top: f64) -> String {
    let x = |at_ms: i64| (at_ms - begin) as f64 * WIDTH / times.span_ms.max(1) as f64;
    let y = |value: f64| {
        let share = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
        HEIGHT - MARGIN - share * (HEIGHT - 2.0 * MARGIN)
    };
    let mut out = String::with_capacity(times.at_ms.len() * 12 * (lines.len() + 1));
    for (at, pair) in times.at_ms.windows(2).enumerate() {
        if times.after_gap[at + 1] {
            let (from, to) = (x(pair[0]), x(pair[1]));
            let _ = write!(
                out,
                "<rect class=\"gap\" x=\"{from:.1}\" width=\"{:.1}\" height=\"{HEIGHT}\"/>",
                to - from
            );
        }
    }
    for (index, line) in lines.iter().enumerate() {
        let points: Vec<Option<(f64, f64)>> = line
            .values
            .iter()
            .zip(times.at_ms)
            .map(|(value, at_ms)| Some((x(*at_ms), y((*value)?))))
            .collect();
        let (path, area) = paths(&points, times.after_gap);
        if index == 0 {
            let _ = write!(out, "<path class=\"area\" d=\"{area}\"/>");
        }
        let class = if index == 0 { "line" } else { "line second" };
        let _ = write!(out, "<path class=\"{class}\" d=\"{path}\"/>");
    }
    for (at_ms, event) in times.marks.iter().filter(|(at_ms, _)| *at_ms >= begin) {
        let title = html! { title { (format::of_day(*at_ms)) " " (event) } }.0;
        let _ = write!(out, "<path class=\"mark\" d=\"M{:.1} 0V{HEIGHT}\">{title}</path>", x(*at_ms));
    }
    out
}

/// The path of a line, which is broken at unknown values and gaps, and the area below it.
fn paths(points: &[Option<(f64, f64)>], after_gap: &[bool]) -> (String, String) {
    let (mut line, mut area) = (String::new(), String::new());
    let mut run: Vec<(f64, f64)> = Vec::new();
    let mut end = |run: &mut Vec<(f64, f64)>| {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let mut path = String::with_capacity(run.len() * 12);
        for (at, (x, y)) in run.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
        }
        // A single point is a dot, by the round ends of lines.
        let dot = if run.len() == 1 { "h0" } else { "" };
        let _ = write!(line, "{path}{dot}");
        let _ = write!(area, "{path}L{:.1} {HEIGHT}L{:.1} {HEIGHT}Z", last.0, first.0);
        run.clear();
    };
    for (point, is_after_gap) in points.iter().zip(after_gap) {
        if point.is_none() || *is_after_gap {
            end(&mut run);
        }
        run.extend(*point);
    }
    end(&mut run);
    (line, area)
}

fn table(name: &str, times: &ChartTimes<'_>, lines: &[Line], shown: &impl Fn(f64) -> String) -> Markup {
    html! {
        div class="table" tabindex="0" role="region" aria-label=(format!("Values of {name}")) {
            table {
                thead { tr {
                    th scope="col" { "Time" }
                    @for line in lines { th scope="col" class="number" { (if line.name.is_empty() { name } else { line.name }) } }
                } }
                tbody {
                    @for at in spread(times.at_ms.len()) {
                        tr {
                            th scope="row" { (format::time(times.at_ms[at])) }
                            @for line in lines {
                                td class="number" { @match line.values.get(at).copied().flatten() {
                                    Some(value) => (shown(value)),
                                    None => span class="quiet" title="not known" { "–" },
                                } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Up to `ROWS_MAX` places of so many, last first, spread evenly from the first to the last.
fn spread(count: usize) -> impl Iterator<Item = usize> {
    let (rows, last) = (count.min(ROWS_MAX), count.saturating_sub(1));
    (0..rows).rev().map(move |row| if rows < 2 { last } else { row * last / (rows - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(values: &[Option<f64>], after_gap: &[bool], marks: &[(i64, String)]) -> String {
        let at_ms: Vec<i64> = (0..).map(|at| at * 10_000).take(values.len()).collect();
        let times = ChartTimes { at_ms: &at_ms, after_gap, span_ms: 60_000, marks };
        let lines = [Line { name: "", values: values.to_vec() }];
        chart("bytes", "Bytes", &times, &lines, |value| format!("{value} B")).0
    }

    #[test]
    fn a_line_is_broken_where_nothing_is_known() {
        let values = [None, Some(10.0), Some(20.0), None, Some(20.0), Some(0.0)];
        let page = drawn(&values, &[true, false, false, true, false, false], &[]);
        assert!(page.contains("d=\"M200.0 50.0L300.0 3.0M500.0 3.0L600.0 97.0\""), "{page}");
        assert!(page.contains("<rect class=\"gap\" x=\"300.0\" width=\"100.0\""), "{page}");
        assert!(page.contains("Bytes: 0 B") && page.contains("at most 20 B. 1 gap."), "{page}");
        assert_eq!(page.matches("title=\"not known\"").count(), 2, "{page}");
    }

    #[test]
    fn a_level_after_a_gap_begins_another_line() {
        let values = [Some(1.0), Some(1.0), Some(1.0), Some(1.0)];
        let page = drawn(&values, &[true, false, true, false], &[]);
        assert!(page.contains("d=\"M300.0 3.0L400.0 3.0M500.0 3.0L600.0 3.0\""), "{page}");
        let alone = drawn(&[Some(1.0), None], &[true, false], &[]);
        assert!(alone.contains("d=\"M500.0 3.0h0\"") && alone.contains("Bytes: –"), "{alone}");
    }

    #[test]
    fn events_are_marks_with_their_text() {
        let marks = [(0, "Broker <1> started".to_owned()), (-90_000, "long ago".to_owned())];
        let page = drawn(&[Some(1.0), Some(2.0)], &[true, false], &marks);
        assert!(
            page.contains(
                "<path class=\"mark\" d=\"M500.0 0V100\"><title>00:00:00 Broker &lt;1&gt; started</title>"
            ),
            "{page}"
        );
        assert_eq!(page.matches("class=\"mark\"").count(), 1, "{page}");
        assert!(drawn(&[None, None], &[true, true], &marks).contains("Nothing is known yet."));
    }
}
