//! The results of a run as Markdown tables, for a README or wiki.

use super::headline::obstacles;
use super::palette::Palette;
use super::text::clean;
use crate::quantity;
use crate::result::{PointResult, RunResult, State, Subject, WorkloadResult};

/// A table per workload: a row per point (and driver, if there are several), a column per target, and the ratio of the first
/// target to the second. Figures that are not quotable are in brackets and have no ratio.
pub fn markdown(run: &RunResult) -> String {
    let palette = Palette::of(run);
    let mut text = String::new();
    for workload in &run.workloads {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &table(workload, &palette.within(workload));
    }
    if let State::Partial { why } = &run.state {
        text += &format!("\nThis run is incomplete: {}\n", cell(why));
    }
    text
}

fn table(workload: &WorkloadResult, palette: &Palette) -> String {
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
        head.extend([cell(target), "broker CPU".to_owned()]);
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
            let both = of(targets[0]).zip(of(targets[1]));
            let both = both.filter(|(a, b)| obstacles(a).is_empty() && obstacles(b).is_empty());
            let ratio = |value: &dyn Fn(&PointResult) -> Option<f64>| {
                let of_both = both.and_then(|(a, b)| Some(value(a)? / value(b)?));
                of_both
                    .filter(|ratio| ratio.is_finite())
                    .map(|ratio| quantity::digits(ratio, 2))
                    .unwrap_or_default()
            };
            cells.extend([ratio(&|point| subject.value(point)), ratio(&processor_us)]);
        }
        text += &line(&cells);
    }
    text
}

/// The figure with its spread; in brackets if it is not quotable.
fn measured(subject: Subject, point: &PointResult) -> String {
    let Some(value) = subject.value(point) else {
        return if point.failure.is_some() { "failed".to_owned() } else { "not measured".to_owned() };
    };
    let spread = point.summary.figures.get(subject.figure(&point.summary)).filter(|spread| spread.count > 1);
    let spread = spread.map(|spread| format!(" ± {}", quantity::percent(spread.variation)));
    let text = subject.text(value) + &spread.unwrap_or_default();
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
