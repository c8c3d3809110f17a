//! The results of a run as Markdown tables, for a README or wiki.

use super::answer::{ComparedFigure, bound, compared, of_run};
use super::obstacles::obstacles;
use super::palette::Palette;
use super::text::clean;
use crate::quantity;
use crate::result::{
    Figure, PointResult, RunResult, Spread, State, Subject, VARIATION_MAX, WorkloadResult, system,
};

/// Figures with a row of their own if a point has them: side measurements of some workloads.
const BESIDE: [&str; 3] = ["topics_ready_per_s", "topic_ready_p99_us", "metadata_us"];

/// The answer, and a table per workload: a row per point (and driver, if there are several), a column per
/// system, and the bound of the ratio of the first system to the second. An answer without a quotable figure
/// follows the tables. Figures that are not quotable are in brackets. A ratio may hold even if its figures
/// vary too much, because pairs cancel common variation.
pub fn markdown(run: &RunResult) -> String {
    let palette = Palette::of(run);
    let all = compared(run);
    let answer = of_run(run, &all).answer;
    let sentence = format!("**{}** {}", cell(&answer.sentence), cell(&answer.basis)).trim_end().to_owned();
    let tables: Vec<String> =
        run.workloads.iter().map(|workload| table(workload, &palette.within(workload), &all)).collect();
    let key = key(&tables);
    let parts = match answer.is_quotable {
        true => [vec![format!("{sentence}\n")], tables, key].concat(),
        false => [tables, key, vec![format!("{sentence}\n")]].concat(),
    };
    let mut text = parts.join("\n");
    if let State::Partial { why } = &run.state {
        text += &format!("\nThis run is incomplete: {}\n", cell(why));
    }
    text
}

/// The meaning of signs in the tables; empty if there are none.
fn key(tables: &[String]) -> Vec<String> {
    let has = |sign: &str| tables.iter().any(|table| table.contains(sign));
    let mut signs = Vec::new();
    if has("| (") {
        signs.push("Figures in brackets may not be quoted.");
    }
    if has("| ≥") || has("| ≤") {
        signs.push("≥ and ≤ are the ends of 95 % intervals that are nearer to 1.");
    }
    if signs.is_empty() { Vec::new() } else { vec![format!("{}\n", signs.join(" "))] }
}

fn table(workload: &WorkloadResult, palette: &Palette, all: &[ComparedFigure]) -> String {
    let targets = palette.targets();
    let mut rows: Vec<(&str, &'static str, Vec<&PointResult>)> = Vec::new();
    for point in &workload.points {
        let (label, driver) = (point.point.label.as_str(), point.driver.words());
        match rows.iter_mut().find(|(of, by, _)| (*of, *by) == (label, driver)) {
            Some((_, _, points)) => points.push(point),
            None => rows.push((label, driver, vec![point])),
        }
    }
    let one_driver = rows.iter().all(|(_, driver, _)| *driver == rows[0].1);
    let compares = targets.len() == 2;
    let title = format!("{}: {}", workload.workload.name, workload.workload.title);
    let mut head = vec![cell(&title), "figure".to_owned()];
    for target in &targets {
        head.extend([cell(system(target)), "broker CPU".to_owned()]);
    }
    if compares {
        head.extend(["ratio".to_owned(), "of CPU".to_owned()]);
    }
    let mut text = line(&head) + &line(&vec!["---".to_owned(); head.len()]);
    for (label, driver, points) in rows {
        let subject = Subject::of(&points[0].point);
        let name = if one_driver { label.to_owned() } else { format!("{label}, {driver}") };
        let mut cells = vec![cell(&name), subject.title(points[0]).to_owned()];
        let of = |target: &str| points.iter().copied().find(|point| point.target == target);
        for target in &targets {
            cells.extend(match of(target) {
                Some(point) => [measured(subject, point), processor(point)],
                None => [String::new(), String::new()],
            });
        }
        if compares {
            let here = |one: &&ComparedFigure| {
                one.workload == workload.workload.name
                    && one.label == label
                    && one.driver == points[0].driver
                    && one.obstacles.is_empty()
            };
            cells.extend(match all.iter().find(here) {
                Some(one) => [bound(one.interval), one.cpu.map(bound).unwrap_or_default()],
                None => [String::new(), String::new()],
            });
        }
        text += &line(&cells);
        for figure in BESIDE.iter().filter_map(|name| Figure::named(name)) {
            let values = targets.iter().map(|target| of(target).and_then(|point| beside(figure, point)));
            let values: Vec<Option<String>> = values.collect();
            if values.iter().any(Option::is_some) {
                let mut cells = vec![cell(&name), figure.title.to_owned()];
                cells.extend(values.into_iter().flat_map(|value| [value.unwrap_or_default(), String::new()]));
                cells.resize(head.len(), String::new());
                text += &line(&cells);
            }
        }
    }
    text
}

/// A figure beside the main one, with its spread; in brackets if it is not quotable.
fn beside(figure: &Figure, point: &PointResult) -> Option<String> {
    let spread = point.summary.figures.get(figure.name)?;
    let text = figure.text(spread.mean) + &varies(spread);
    let is_quotable = obstacles(point).is_empty() && spread.variation <= VARIATION_MAX;
    Some(if is_quotable { text } else { format!("({text})") })
}

/// The variation of a figure; empty for a single measurement.
fn varies(spread: &Spread) -> String {
    if spread.count > 1 { format!(" ± {}", quantity::percent(spread.variation)) } else { String::new() }
}

/// The figure with its spread; in brackets if it is not quotable.
fn measured(subject: Subject, point: &PointResult) -> String {
    let Some(value) = subject.value(point) else {
        return if point.failure.is_some() { "failed".to_owned() } else { "not measured".to_owned() };
    };
    let spread = point.summary.figures.get(subject.figure(&point.summary));
    let text = subject.text(value) + &spread.map(varies).unwrap_or_default();
    if obstacles(point).is_empty() { text } else { format!("({text})") }
}

fn processor(point: &PointResult) -> String {
    processor_us(point).map(quantity::time_us).unwrap_or_default()
}

fn processor_us(point: &PointResult) -> Option<f64> {
    point.summary.figures.get("broker_cpu_us_per_record").map(|spread| spread.mean)
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    clean(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;")
}
