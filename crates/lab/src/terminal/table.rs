//! Plain text tables of a run and of a comparison.

use std::collections::BTreeSet;

use super::columns::Columns;
use super::notes::Notes;
use super::{devices, profile};
use crate::quantity;
use crate::report::{self, Trend, clean};
use crate::result::{
    Check, Comparison, Figure, Judgement, Pair, PointResult, RunResult, Spread, State, Subject, system,
};

/// The results of a run: its answer, a row per point, target and driver, and below them the figures that are
/// not quotable, with reasons. An answer without a quotable figure follows the rows. With `colours` and the
/// number of columns for a terminal.
pub fn table(run: &RunResult, colours: bool, columns: Option<usize>) -> String {
    let paint = Paint { colours, columns };
    let answer = report::answer(run);
    let mut sentence = format!("\n{}\n", paint.bold(&answer.sentence));
    if !answer.basis.is_empty() {
        sentence += &format!("{}\n", answer.basis);
    }
    let (mut text, end) =
        if answer.is_quotable { (sentence, String::new()) } else { (String::new(), sentence) };
    for workload in &run.workloads {
        let name = &workload.workload.name;
        let scale = match workload.workload.scale {
            1.0 => String::new(),
            scale => format!(" (scaled by {})", quantity::round(scale)),
        };
        text +=
            &format!("\n{}{scale}\n", paint.bold(&format!("{name}: {}", clean(&workload.workload.title))));
        let mut grid = Grid::new(&[
            "point",
            "system",
            "driver",
            "records/s",
            "±",
            "MB/s",
            "drained in",
            "group start",
            "latency",
            "p50",
            "p99",
            "p99.9",
            "topic ready, p99",
            "all metadata",
            "broker CPU",
            "client CPU",
            "limited by",
            "",
        ]);
        let mut notes = Notes::default();
        for point in &workload.points {
            let mark = notes_of(point, &mut notes);
            rows(point, mark).into_iter().for_each(|row| grid.row(row));
        }
        text += &grid.text(&paint);
        for (number, note) in notes.texts().enumerate() {
            text += &paint.yellow(&format!("  [{}] {note}", number + 1));
            text.push('\n');
        }
        text += &evidence(&workload.points);
        text += &devices::lines(&workload.points);
        text += &profile::lines(&workload.points);
    }
    text += &end;
    if let State::Partial { why } = &run.state {
        text += &format!("\n{}\n", paint.red(&format!("This run is incomplete: {}", clean(why))));
    }
    text
}

/// The evidence of all points combined; faults are in the notes.
fn evidence(points: &[PointResult]) -> String {
    let all: Vec<_> =
        points.iter().flat_map(|point| &point.repetitions).map(|repetition| &repetition.evidence).collect();
    if all.is_empty() {
        return String::new();
    }
    let checks = || all.iter().filter_map(|evidence| evidence.check.as_ref());
    let of = |count: fn(&Check) -> u64| quantity::count(checks().map(count).sum());
    let mut text = format!(
        "  Evidence: {} records acknowledged, {} in the log",
        quantity::count(all.iter().map(|evidence| evidence.acknowledged).sum()),
        quantity::count(all.iter().map(|evidence| evidence.in_log).sum()),
    );
    if checks().next().is_some() {
        text += &format!(
            ", {} read back: {} lost, {} duplicated, {} reordered, {} damaged",
            of(|check| check.read),
            of(|check| check.lost),
            of(|check| check.duplicated),
            of(|check| check.reordered),
            of(|check| check.damaged),
        );
    }
    text.push('\n');
    let reasons: BTreeSet<String> =
        all.iter().filter_map(|evidence| evidence.not_read_back.as_deref()).map(clean).collect();
    for why in reasons {
        text += &format!("    not all was read back: {why}\n");
    }
    text
}

/// Why points are not quotable; reasons that differ only in numbers share one.
fn notes_of(point: &PointResult, notes: &mut Notes) -> String {
    let mut own: Vec<String> = Vec::new();
    if let Some(failure) = &point.failure {
        own.push(format!("failed: {}", clean(failure)));
    }
    // A point that failed before it was measured has one reason.
    if point.failure.is_none() || !point.repetitions.is_empty() {
        let reasons = point.verdict.no_headline.iter().map(|reason| report::in_words(reason));
        own.extend(reasons.map(|reason| format!("no headline: {}", clean(&reason))));
    }
    for repetition in &point.repetitions {
        own.extend(repetition.evidence.faults.iter().map(|fault| format!("evidence: {}", clean(fault))));
    }
    let mut marks: Vec<usize> = Vec::new();
    for note in own {
        let number = notes.number(&note);
        if !marks.contains(&number) {
            marks.push(number);
        }
    }
    marks.iter().map(|number| format!("[{number}]")).collect()
}

/// The column of the kind of latency, before its percentiles.
const LATENCY_COLUMN: usize = 8;

/// The row of a point with the latency of its headline, and a line for each other kind of latency.
fn rows(point: &PointResult, mark: String) -> Vec<Vec<String>> {
    let kinds = latencies_of(point);
    let mut first = cells(point, mark);
    let count = first.len();
    let mut rows = Vec::new();
    for (place, (name, prefix)) in kinds.into_iter().enumerate() {
        let mut row = if place == 0 { std::mem::take(&mut first) } else { vec![String::new(); count] };
        let waited = |end: &str| point.summary.figures.get(&format!("{prefix}_{end}"));
        row[LATENCY_COLUMN] = name.to_owned();
        for (number, end) in ["p50_us", "p99_us", "p999_us"].into_iter().enumerate() {
            row[LATENCY_COLUMN + 1 + number] =
                waited(end).map(|spread| quantity::time_us(spread.mean)).unwrap_or_default();
        }
        rows.push(row);
    }
    if rows.is_empty() {
        rows.push(first);
    }
    rows
}

/// The cells of a point without its latencies.
fn cells(point: &PointResult, mark: String) -> Vec<String> {
    let figure = |name: &str| point.summary.figures.get(name);
    let mean = |name: &str| figure(name).map(|spread| spread.mean);
    // A drain has producers beside it, at their own rate.
    let sides: &[&str] = match Subject::of(&point.point) {
        Subject::Drain => &["consumed"],
        _ => &["carried", "produced", "consumed"],
    };
    let rate = sides.iter().find_map(|side| figure(&format!("{side}_records_per_s")));
    let mb = sides.iter().find_map(|side| mean(&format!("{side}_mb_per_s")));
    let client = match (mean("producer_cpu_us_per_record"), mean("consumer_cpu_us_per_record")) {
        (_, consumer @ Some(_)) if Subject::of(&point.point) == Subject::Drain => consumer,
        (Some(producer), Some(consumer)) => Some(producer + consumer),
        (producer, consumer) => producer.or(consumer),
    };
    let number = |value: Option<f64>| value.map(quantity::number).unwrap_or_default();
    let time = |value: Option<f64>| value.map(quantity::time_us).unwrap_or_default();
    let spread = match rate {
        Some(rate) if rate.count > 1 => quantity::percent(rate.variation),
        _ => String::new(),
    };
    vec![
        clean(&point.point.label),
        clean(system(&point.target)),
        point.driver.words().to_owned(),
        rate.map(|rate| quantity::number(rate.mean.round())).unwrap_or_default(),
        spread,
        number(mb),
        mean("drain_s").map(|seconds| format!("{} s", quantity::number(seconds))).unwrap_or_default(),
        mean("group_start_s").map(|seconds| format!("{} s", quantity::number(seconds))).unwrap_or_default(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        time(mean("topic_ready_p99_us")),
        time(mean("metadata_us")),
        mean("broker_cpu_us_per_record").map(quantity::time_us).unwrap_or_default(),
        client.map(quantity::time_us).unwrap_or_default(),
        clean(&point.verdict.limit),
        mark,
    ]
}

/// The latencies of a point, as words and as the prefix of their figures; at a rate, that of the headline
/// first.
fn latencies_of(point: &PointResult) -> Vec<(&'static str, &'static str)> {
    const ACKNOWLEDGED: (&str, &str) = ("acknowledged", "acknowledge");
    const END_TO_END: (&str, &str) = ("end to end", "end_to_end");
    const DRAINED: (&str, &str) = ("drained", "drained");
    let order = match Subject::of(&point.point) {
        Subject::Latency => [END_TO_END, ACKNOWLEDGED, DRAINED],
        _ => [DRAINED, ACKNOWLEDGED, END_TO_END],
    };
    let has = |(_, prefix): &(&str, &str)| point.summary.figures.contains_key(&format!("{prefix}_p99_us"));
    order.into_iter().filter(has).collect()
}

/// A comparison: a row per figure of each pair.
pub fn comparison(of: &Comparison, colours: bool, columns: Option<usize>) -> String {
    let paint = Paint { colours, columns };
    let mut text = String::new();
    if !of.machines.is_empty() {
        let why = "There are no ratios, because the machines differ:";
        text += &format!("\n{}\n", paint.yellow(why));
        for difference in &of.machines {
            text += &format!("  {}\n", clean(&difference.to_string()));
        }
    }
    for pair in &of.pairs {
        let title = match pair.a.target == pair.b.target {
            true => pair.a.to_string(),
            false => format!("{} → {}", pair.a, pair.b.target),
        };
        text += &format!("\n{}\n", paint.bold(&clean(&title)));
        if !pair.figures.is_empty() {
            text += &side_by_side(pair).text(&paint);
            continue;
        }
        let mut grid = Grid::new(&["figure", "first", "second", "ratio", "95 % interval", ""]);
        for ratio in &pair.ratios {
            let described = Figure::named(&ratio.figure);
            let shown = |value: f64| match described {
                Some(figure) => figure.text(value),
                None => quantity::number(value),
            };
            let interval = match ratio.interval {
                Some((low, high)) => format!("{low:.3} – {high:.3}"),
                None => "none".to_owned(),
            };
            let title = described.map_or(ratio.figure.as_str(), |figure| figure.title);
            let words = ratio.judgement.words();
            let words = match ratio.judgement {
                Judgement::Faster | Judgement::Cheaper => paint.green(words),
                Judgement::Slower | Judgement::Dearer => paint.red(words),
                _ => words.to_owned(),
            };
            grid.row(vec![
                title.to_owned(),
                shown(ratio.a),
                shown(ratio.b),
                format!("{:.3}", ratio.ratio),
                interval,
                words,
            ]);
        }
        text += &grid.text(&paint);
    }
    text += &besides(of, &paint);
    text
}

/// The figures of a pair without ratios: each with its variation.
fn side_by_side(pair: &Pair) -> Grid {
    let mut grid = Grid::new(&["figure", "first", "±", "second", "±"]);
    for both in &pair.figures {
        let described = Figure::named(&both.figure);
        let shown = |spread: &Spread| match described {
            Some(figure) => figure.text(spread.mean),
            None => quantity::number(spread.mean),
        };
        let varies = |spread: &Spread| match spread.count {
            0 | 1 => String::new(),
            _ => quantity::percent(spread.variation),
        };
        grid.row(vec![
            described.map_or(both.figure.as_str(), |figure| figure.title).to_owned(),
            shown(&both.a),
            varies(&both.a),
            shown(&both.b),
            varies(&both.b),
        ]);
    }
    grid
}

/// A trend: a row per point, a column per result.
pub fn trend(of: &Trend, colours: bool, columns: Option<usize>) -> String {
    let paint = Paint { colours, columns };
    let mut text = String::new();
    for point in &of.points {
        let title = format!("{}: {}", point.point, point.title());
        text += &format!("\n{}\n", paint.bold(&clean(&title)));
        let mut grid = Grid::new(&["result", "value", "±", "change since the one before", ""]);
        for (result, (value, failure)) in of.results.iter().zip(point.values.iter().zip(&point.failures)) {
            let Some(value) = value else {
                grid.failure(&result.name, failure.as_deref());
                continue;
            };
            let varies = match value.spread.count {
                0 | 1 => String::new(),
                _ => quantity::percent(value.spread.variation),
            };
            let objection = value.objection.as_ref().map(|why| format!("not quotable: {}", clean(why)));
            grid.row(vec![
                clean(&result.name),
                point.text(value),
                varies,
                value.change(),
                objection.unwrap_or_default(),
            ]);
        }
        text += &grid.text(&paint);
    }
    if of.points.is_empty() {
        text += "\nNo point is in two of the results.\n";
    }
    for result in &of.results {
        if let Some(why) = &result.incomplete {
            let line = format!("{} is incomplete: {why}", result.name);
            text += &format!("\n{}\n", paint.yellow(&clean(&line)));
        }
    }
    for result in of.results.iter().filter(|result| !result.differences.is_empty()) {
        text += &format!(
            "\n{}\n",
            paint.yellow(&clean(&format!("No ratios to the result before {}:", result.name)))
        );
        for difference in &result.differences {
            text += &format!("  {}\n", clean(difference));
        }
    }
    text
}

fn besides(of: &Comparison, paint: &Paint) -> String {
    let mut text = String::new();
    for refused in &of.refused {
        text += &format!("\n{}\n", paint.yellow(&format!("Not compared: {}", clean(&refused.a.to_string()))));
        for difference in &refused.differences {
            text += &format!("  {}\n", clean(&difference.to_string()));
        }
    }
    for (names, place) in [(&of.only_in_a, "first"), (&of.only_in_b, "second")] {
        for name in names {
            text += &format!("Only in the {place}: {}\n", clean(&name.to_string()));
        }
    }
    if !of.differences.is_empty() {
        text += "\nOther differences:\n";
        for difference in &of.differences {
            text += &format!("  {}\n", clean(&difference.to_string()));
        }
    }
    match of.machines.is_empty() {
        true => text + "\n" + &of.method + "\n",
        false => text,
    }
}

struct Paint {
    colours: bool,
    /// The columns of the terminal, if there is one.
    columns: Option<usize>,
}

impl Paint {
    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }
    fn dim(&self, text: &str) -> String {
        self.with("2", text)
    }
    fn red(&self, text: &str) -> String {
        self.with("31", text)
    }
    fn green(&self, text: &str) -> String {
        self.with("32", text)
    }
    fn yellow(&self, text: &str) -> String {
        self.with("33", text)
    }
    fn with(&self, code: &str, text: &str) -> String {
        match self.colours {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }
}

/// The width of a text without its colours.
fn shown_width(text: &str) -> usize {
    let coloured = text.split('\u{1b}').enumerate().map(|(number, part)| match number {
        0 => part,
        _ => part.split_once('m').map_or("", |(_, rest)| rest),
    });
    coloured.map(|part| part.chars().count()).sum()
}

/// Aligned columns; columns whose cells all begin with a digit are right-aligned.
struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    fn new(heads: &[&str]) -> Grid {
        Grid { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// A row of a name, with a failure in the last column; none without a failure.
    fn failure(&mut self, name: &str, failure: Option<&str>) {
        let Some(failure) = failure else { return };
        let mut cells = vec![String::new(); self.rows[0].len()];
        cells[0] = clean(name);
        if let Some(last) = cells.last_mut() {
            *last = format!("failed: {}", clean(failure));
        }
        self.row(cells);
    }

    fn text(&self, paint: &Paint) -> String {
        let columns = self.rows[0].len();
        let kept: Vec<usize> = (0..columns)
            .filter(|column| self.rows.iter().skip(1).any(|row| !row[*column].is_empty()))
            .collect();
        let right = |column: usize| {
            let mut cells = self.rows.iter().skip(1).map(|row| &row[column]);
            column > 0
                && cells
                    .all(|cell| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || c == '<'))
        };
        let cells = |row: &Vec<String>| -> Vec<String> {
            kept.iter()
                .enumerate()
                .map(|(place, &column)| {
                    let margin = if place == 0 { "  " } else { "" };
                    format!("{margin}{}", row[column])
                })
                .collect()
        };
        let rows: Vec<Vec<String>> = self.rows.iter().map(cells).collect();
        let columns = Columns::of(&rows, paint.columns, shown_width);
        let mut text = String::new();
        for (number, row) in rows.iter().enumerate() {
            for line in columns.row(row, |place| right(kept[place])) {
                text += &if number == 0 { paint.dim(&line) } else { line };
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    #[test]
    fn results_precede_a_refusal_and_follow_an_answer() {
        let mut run = report::testing::run(&[("3 brokers", 2.0), ("6 brokers", 3.0)]);
        let order = |run: &RunResult, result: &str| {
            let (text, sentence) = (table(run, false, None), report::answer(run).sentence);
            let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing: {text}"));
            at(result).cmp(&at(&sentence))
        };
        assert_eq!(order(&run, "3 brokers  Thalweg"), Ordering::Greater);
        for point in &mut run.workloads[0].points {
            point.verdict.no_headline.push("other processes used 30 % of the processors".to_owned());
        }
        for result in ["3 brokers  Thalweg", "[1] no headline: other processes"] {
            assert_eq!(order(&run, result), Ordering::Less, "{result}");
        }
    }

    #[test]
    fn the_latency_of_a_row_is_named_and_that_of_the_headline() {
        let mut run = report::testing::run(&[("3 brokers", 2.0), ("quiet at a rate", 2.0)]);
        for point in &mut run.workloads[0].points {
            for (prefix, value) in [("acknowledge", 275.0), ("end_to_end", 519.0)] {
                let spread = Spread::of(&[value]);
                point.summary.figures.insert(format!("{prefix}_p99_us"), spread);
            }
        }
        let text = table(&run, false, None);
        let row = |label: &str| {
            let row = text.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_default();
            row.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert!(row("3 brokers").windows(2).any(|cells| cells == ["acknowledged", "275 µs"]), "{text}");
        assert!(row("quiet").windows(2).any(|cells| cells == ["end to end", "519 µs"]), "{text}");
        assert!(row("point").contains(&"latency".to_owned()), "{text}");
        // The other kind is on the next line.
        let next = |kind: &str| {
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let found = lines.windows(2).find(|pair| pair[0].contains(kind) && pair[0].contains("Thalweg "));
            found.map_or_else(String::new, |pair| pair[1].split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(next("acknowledged"), "end to end 519 µs");
        assert_eq!(next("end to end"), "acknowledged 275 µs");
    }

    #[test]
    fn a_drain_shows_its_own_rate_and_latency() {
        let mut run = report::testing::run(&[("drain", 2.0)]);
        for point in &mut run.workloads[0].points {
            point.point.measure = crate::workload::Measure::Drain;
            for (name, value) in [
                ("produced_records_per_s", 30_000.0),
                ("consumed_records_per_s", 900_000.0),
                ("drain_s", 1.25),
                ("group_start_s", 0.125),
                ("drained_p99_us", 4_000_000.0),
                ("end_to_end_p99_us", 519.0),
            ] {
                point.summary.figures.insert(name.to_owned(), Spread::of(&[value]));
            }
        }
        let text = table(&run, false, None);
        let row = text.lines().find(|line| line.starts_with("  drain  Thalweg")).unwrap_or_default();
        for part in ["900,000", "1.25 s", "0.125 s", "drained", "4.00 s"] {
            assert!(row.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("30,000"), "{text}");
    }

    #[test]
    fn a_row_with_consumers_shows_what_reached_them() {
        let mut run = report::testing::run(&[("3 brokers", 2.0)]);
        for point in &mut run.workloads[0].points {
            point.summary.figures.insert("carried_records_per_s".to_owned(), Spread::of(&[77.0]));
        }
        assert!(table(&run, false, None).contains("  77"), "{}", table(&run, false, None));
    }
}
