//! Time lines of a repetition: rate, p99, processors, steal, disk and in-sync replicas.

use super::chart::{Axis, Chart, Line, nice_ceiling};
use super::latency::{log_domain, quantity_of_tick};
use super::palette::{Palette, Series};
use super::text::{escape, folded};
use crate::quantity;
use crate::result::{PointResult, Repetition, Sample, WorkloadResult};
use crate::worker::Interval;

/// Maximum points of a line; longer lines are reduced to means or worst values of intervals.
const POINTS_MAX: usize = 240;
/// Maximum processes of one role drawn separately; more are drawn as their sum.
const PROCESSES_MAX: usize = 3;

/// The time lines of a workload: collapsed, one section per point.
pub(super) fn markup(workload: &WorkloadResult, palette: &Palette) -> String {
    let mut labels: Vec<&str> = Vec::new();
    let mut markup = String::new();
    for point in &workload.points {
        let label = point.point.label.as_str();
        if labels.contains(&label) {
            continue;
        }
        labels.push(label);
        let mut same: Vec<&PointResult> =
            workload.points.iter().filter(|point| point.point.label == label).collect();
        same.sort_by_key(|point| palette.order(point));
        let charts = charts(&same, palette);
        if !charts.is_empty() {
            markup += &folded(
                &format!("Over time: {label}"),
                &format!("<div class=\"figures\">{charts}</div>"),
                false,
            );
        }
    }
    markup
}

/// The index of the representative repetition: the one with the median rate.
pub(super) fn typical(point: &PointResult) -> Option<usize> {
    let rate = |index: &usize| {
        let figures = &point.repetitions[*index].figures;
        figures.records_per_s().or(figures.consumed_records_per_s).unwrap_or(0.0)
    };
    let mut sorted: Vec<usize> = (0..point.repetitions.len()).collect();
    sorted.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    sorted.get(sorted.len() / 2).copied()
}

fn charts(points: &[&PointResult], palette: &Palette) -> String {
    let mut charts = Vec::new();
    charts.extend(intervals("Produced", points, palette, |repetition| &repetition.produced));
    charts.extend(intervals("Consumed", points, palette, |repetition| &repetition.consumed));
    for point in points {
        if let Some(index) = typical(point) {
            charts.extend(processors(&point.repetitions[index], palette.of_point(point)));
        }
    }
    charts.extend(sampled(
        "Time taken by the hypervisor (steal)",
        "processors",
        points,
        palette,
        Extreme::None,
        |sample, _| Some(sample.steal_cpus),
    ));
    charts.extend(sampled("Written to disks", "MB/s", points, palette, Extreme::None, |sample, seconds| {
        Some(sample.disk_written_bytes as f64 / 1_048_576.0 / seconds)
    }));
    if points.iter().any(|point| point.point.topics.replication_factor > 1) {
        charts.extend(sampled(
            "Least number of in-sync replicas",
            "replicas",
            points,
            palette,
            Extreme::Least,
            |sample, _| sample.in_sync_replicas_min.map(f64::from),
        ));
    }
    charts.into_iter().filter(|chart| !chart.lines.is_empty()).map(|chart| figure(&chart)).collect()
}

fn figure(chart: &Chart) -> String {
    format!("<figure><figcaption>{}</figcaption>{}</figure>", escape(&chart.title), chart.markup())
}

fn chart(title: &str, unit: &str, lines: Vec<Line>) -> Chart {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_top = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let y_top = points().map(|(_, y)| *y).fold(0.0, f64::max);
    Chart {
        title: title.to_owned(),
        better: None,
        x: Axis {
            title: "seconds since the measurement began".to_owned(),
            domain: (0.0, x_top),
            log: false,
            // A short run has ticks of less than a second.
            tick: quantity::round,
            ticks: Vec::new(),
            names: Vec::new(),
        },
        y: Axis {
            title: unit.to_owned(),
            domain: (0.0, nice_ceiling(y_top)),
            log: false,
            tick: quantity::round,
            ticks: Vec::new(),
            names: Vec::new(),
        },
        bands: Vec::new(),
        lines,
        marks: Vec::new(),
        dots: Vec::new(),
    }
}

/// Rate and p99 of producers or consumers: the representative repetition labelled, the others faint.
fn intervals(
    what: &str,
    points: &[&PointResult],
    palette: &Palette,
    of: fn(&Repetition) -> &Vec<Interval>,
) -> Vec<Chart> {
    let rate = |interval: &Interval| Some(interval.records as f64 * 1e6 / interval.length_us.max(1) as f64);
    let p99 = |interval: &Interval| interval.p99_us.map(|p99| p99.max(1) as f64);
    let rates = lines(points, palette, Extreme::None, |repetition| over(repetition, of(repetition), rate));
    let waits = lines(points, palette, Extreme::Most, |repetition| over(repetition, of(repetition), p99));
    let mut slow = chart(&format!("{what}: p99 of each second"), "p99", waits);
    slow.y.log = true;
    slow.y.domain = log_domain(slow.lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y)));
    slow.y.tick = quantity_of_tick;
    vec![chart(&format!("{what}: records per second"), "records/s", rates), slow]
}

fn over(
    repetition: &Repetition,
    intervals: &[Interval],
    value: impl Fn(&Interval) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let points = intervals.iter().filter_map(|interval| {
        let x = since(repetition, interval.at_us)?;
        value(interval).map(|y| (x, y))
    });
    points.collect()
}

/// Seconds since the start of the measurement; `None` before it.
fn since(repetition: &Repetition, at_us: u64) -> Option<f64> {
    at_us.checked_sub(repetition.began_at_us).map(|us| us as f64 / 1e6)
}

fn lines(
    points: &[&PointResult],
    palette: &Palette,
    worst: Extreme,
    of: impl Fn(&Repetition) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let (mut faint, mut full) = (Vec::new(), Vec::new());
    for point in points {
        let typical = typical(point);
        let series = palette.of_point(point);
        for (index, repetition) in point.repetitions.iter().enumerate() {
            let points = thinned(of(repetition), worst);
            if points.is_empty() {
                continue;
            }
            match typical == Some(index) {
                true => full.push(line(&series.name, &series.class, points)),
                false => faint.push(line("", &format!("{} faint", series.class), points)),
            }
        }
    }
    faint.into_iter().chain(full).collect()
}

fn line(name: &str, class: &str, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_owned(), class: class.to_owned(), points, dots: false, within_noise: Vec::new() }
}

/// The representation of an interval of a reduced line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extreme {
    None,
    Most,
    Least,
}

fn thinned(points: Vec<(f64, f64)>, worst: Extreme) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points;
    }
    let stretch = points.len().div_ceil(POINTS_MAX);
    let stands_for = |stretch: &[(f64, f64)]| {
        let values = stretch.iter().map(|(_, y)| *y);
        let y = match worst {
            Extreme::None => values.sum::<f64>() / stretch.len() as f64,
            Extreme::Most => values.fold(f64::MIN, f64::max),
            Extreme::Least => values.fold(f64::MAX, f64::min),
        };
        (stretch[stretch.len() / 2].0, y)
    };
    points.chunks(stretch).map(stands_for).collect()
}

/// A figure of each sample of the representative repetitions; `figure` gets the seconds since the previous
/// sample.
fn sampled(
    title: &str,
    unit: &str,
    points: &[&PointResult],
    palette: &Palette,
    worst: Extreme,
    value: fn(&Sample, f64) -> Option<f64>,
) -> Option<Chart> {
    let mut lines = Vec::new();
    for point in points {
        let Some(index) = typical(point) else { continue };
        let repetition = &point.repetitions[index];
        let mut found = Vec::new();
        for pair in repetition.samples.windows(2) {
            let length = pair[1].at_us.saturating_sub(pair[0].at_us).max(1) as f64 / 1e6;
            if let (Some(x), Some(y)) = (since(repetition, pair[1].at_us), value(&pair[1], length)) {
                found.push((x, y));
            }
        }
        if !found.is_empty() {
            let series = palette.of_point(point);
            lines.push(line(&series.name, &series.class, thinned(found, worst)));
        }
    }
    (!lines.is_empty()).then(|| chart(title, unit, lines))
}

/// Processors used by each process of a repetition.
fn processors(repetition: &Repetition, series: &Series) -> Option<Chart> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in repetition.samples.iter().flat_map(|sample| &sample.process_cpus) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut lines = Vec::new();
    for (role, class) in [("broker", ""), ("producer", "dashed"), ("consumer", "dotted")] {
        let own: Vec<&str> = names.iter().copied().filter(|name| name.starts_with(role)).collect();
        let class = format!("{} plain {class}", series.class);
        match own.len() > PROCESSES_MAX {
            true => lines.push(line(&format!("{} {role}s", own.len()), &class, used(repetition, &own))),
            false => lines.extend(own.iter().map(|name| line(name, &class, used(repetition, &[name])))),
        }
    }
    lines.retain(|line| !line.points.is_empty());
    (!lines.is_empty()).then(|| chart(&format!("Processors used, {}", series.name), "processors", lines))
}

fn used(repetition: &Repetition, names: &[&str]) -> Vec<(f64, f64)> {
    let points = repetition.samples.iter().filter_map(|sample| {
        let x = since(repetition, sample.at_us)?;
        let own = sample.process_cpus.iter().filter(|(name, _)| names.contains(&name.as_str()));
        Some((x, own.map(|(_, cpus)| cpus).sum()))
    });
    thinned(points.collect(), Extreme::None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_keeps_its_worst_values() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|x| (f64::from(x), 1.0)).collect();
        points[5_000].1 = 99.0;
        let thin = thinned(points.clone(), Extreme::Most);
        assert!(thin.len() <= POINTS_MAX && thin.iter().any(|(_, y)| *y == 99.0));
        assert!(thinned(points, Extreme::Least).iter().all(|(_, y)| *y == 1.0));
    }
}
