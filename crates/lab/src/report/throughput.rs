//! Throughput: bars of rates, of drained backlogs and of processor time per record.

use super::chart::{Bar, Bars, Group, Part};
use super::obstacles::obstacles;
use super::palette::Palette;
use crate::quantity;
use crate::result::{Figure, PointResult, Spread, Subject, WorkloadResult};

/// The bars of a workload.
pub(super) fn markup(workload: &WorkloadResult, palette: &Palette) -> String {
    let points: Vec<&PointResult> = workload.points.iter().collect();
    let about = |subjects: &[Subject]| -> Vec<&PointResult> {
        points.iter().copied().filter(|point| subjects.contains(&Subject::of(&point.point))).collect()
    };
    let mut panels = match workload.workload.has_steps {
        true => step_charts(&points, palette),
        false => Vec::new(),
    };
    let (carried, produced): (Vec<&PointResult>, Vec<&PointResult>) =
        about(&[Subject::Knee, Subject::Produce])
            .into_iter()
            .partition(|point| point.summary.figures.contains_key("carried_records_per_s"));
    for (points, name, mb, title) in [
        (produced, "produced_records_per_s", "produced_mb_per_s", "Produced"),
        (carried, "carried_records_per_s", "carried_mb_per_s", "Produced and consumed, the lesser of both"),
        (about(&[Subject::Consume]), "consumed_records_per_s", "consumed_mb_per_s", "Consumed"),
    ] {
        if sizes(&points) > 1 {
            panels.push(bars(&format!("{title}, MB per second (2²⁰ bytes)"), &points, mb, palette));
        }
        panels.push(bars(&format!("{title}, records per second"), &points, name, palette));
    }
    let drains = about(&[Subject::Drain]);
    panels.push(bars("Backlog drained after, seconds (less is better)", &drains, "drain_s", palette));
    panels.push(processor_time(&points, palette));
    let panels: Vec<String> = panels.into_iter().filter(|panel| !panel.is_empty()).collect();
    match panels.is_empty() {
        true => String::new(),
        false => format!("<div class=\"panels\">{}</div>", panels.concat()),
    }
}

/// The number of record sizes: if they differ, records per second are not enough.
fn sizes(points: &[&PointResult]) -> usize {
    let mut sizes: Vec<u32> = points.iter().map(|point| point.point.records.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.len()
}

fn bars(title: &str, points: &[&PointResult], name: &str, palette: &Palette) -> String {
    let groups = grouped(points, palette, |point| {
        let spread = point.summary.figures.get(name).filter(|spread| spread.mean.is_finite());
        let value = |spread: &Spread| match Figure::named(name) {
            Some(_) if spread.mean >= 100.0 => quantity::number(spread.mean.round()),
            _ => quantity::number(spread.mean),
        };
        Some(Bar {
            name: palette.of_point(point).name.clone(),
            class: palette.of_point(point).class.clone(),
            parts: spread.map(|spread| Part { value: spread.mean, class: "" }).into_iter().collect(),
            whisker: spread.filter(|spread| spread.count > 1).map(|spread| (spread.min, spread.max)),
            value: spread.map_or_else(|| missing(point), value),
            remark: match spread {
                Some(spread) if spread.count > 1 => format!("± {}", quantity::percent(spread.variation)),
                _ => String::new(),
            },
            tip: spread.map_or_else(String::new, |spread| reach(spread, point)),
            hollow: !obstacles(point).is_empty(),
            is_quoted: false,
        })
    });
    Bars { title: title.to_owned(), groups, tick: quantity::round }.markup()
}

/// The extent of the repetitions, and the reason if the figure is not quotable.
fn reach(spread: &Spread, point: &PointResult) -> String {
    let extent = match spread.count {
        0 | 1 => "one repetition".to_owned(),
        count => format!(
            "{} to {} in {count} repetitions",
            quantity::number(spread.min),
            quantity::number(spread.max)
        ),
    };
    match obstacles(point).first() {
        Some(why) => format!("{extent}; not quotable: {why}"),
        None => extent,
    }
}

fn missing(point: &PointResult) -> String {
    match &point.failure {
        Some(_) => "failed".to_owned(),
        None => "not measured".to_owned(),
    }
}

/// Processor time, which explains rates limited by the clients. Per record, or per GiB if records differ in
/// size.
fn processor_time(points: &[&PointResult], palette: &Palette) -> String {
    const PARTS: [(&str, &str, &str); 3] = [
        ("broker_cpu_us_per_record", "", "brokers"),
        ("producer_cpu_us_per_record", "mid", "producers"),
        ("consumer_cpu_us_per_record", "light", "consumers"),
    ];
    let by_size = sizes(points) > 1;
    let groups = grouped(points, palette, |point| {
        let size = f64::from(point.point.records.size_bytes.max(1));
        let factor = if by_size { f64::from(1 << 30) / size / 1e6 } else { 1.0 };
        let mean = |name: &str| point.summary.figures.get(name).map(|spread| spread.mean * factor);
        let mean = |name: &str| mean(name).filter(|value| value.is_finite());
        let found: Vec<(f64, &'static str, &'static str)> = PARTS
            .iter()
            .filter_map(|(name, class, who)| mean(name).map(|value| (value, *class, *who)))
            .collect();
        let sum: f64 = found.iter().map(|(value, ..)| value).sum();
        let places = match sum {
            s if s >= 99.5 => 0,
            s if s >= 9.95 => 1,
            _ => 2,
        };
        let texts: Vec<String> = found.iter().map(|(value, ..)| format!("{value:.places$}")).collect();
        let tip: Vec<String> =
            found.iter().map(|(value, _, who)| format!("{who} {value:.places$}")).collect();
        (!found.is_empty()).then(|| Bar {
            name: palette.of_point(point).name.clone(),
            class: palette.of_point(point).class.clone(),
            parts: found.iter().map(|(value, class, _)| Part { value: *value, class }).collect(),
            whisker: None,
            value: texts.join(" + "),
            remark: String::new(),
            tip: tip.join(", "),
            hollow: false,
            is_quoted: false,
        })
    });
    let unit = if by_size { "GiB of records, seconds" } else { "record, µs" };
    let title = format!("Processor time for a {unit}: brokers + producers + consumers");
    Bars { title, groups, tick: quantity::round }.markup()
}

/// A group per label, in workload order.
fn grouped(
    points: &[&PointResult],
    palette: &Palette,
    bar: impl Fn(&PointResult) -> Option<Bar>,
) -> Vec<Group> {
    let mut labels: Vec<&str> = Vec::new();
    for point in points {
        if !labels.contains(&point.point.label.as_str()) {
            labels.push(&point.point.label);
        }
    }
    let mut groups = Vec::new();
    for label in labels {
        let mut same: Vec<&PointResult> =
            points.iter().copied().filter(|point| point.point.label == label).collect();
        same.sort_by_key(|point| palette.order(point));
        let bars: Vec<Bar> = same.into_iter().filter_map(&bar).collect();
        if !bars.is_empty() {
            groups.push(Group { name: label.to_owned(), bars });
        }
    }
    groups
}

/// A chart of steps for each target and driver. A step without a rate is left out: the next one is compared
/// with the one before.
fn step_charts(points: &[&PointResult], palette: &Palette) -> Vec<String> {
    let charts = palette.series().iter().filter_map(|series| {
        let of_series = points.iter().filter(|point| palette.of_point(point) == series);
        let steps: Vec<StepRate> = of_series.filter_map(|point| step_rate(point)).collect();
        let title = format!("Records per second, step by step: {}", series.name);
        (steps.len() > 1).then(|| cumulative_bars(&title, &steps))
    });
    charts.collect()
}

fn step_rate(point: &PointResult) -> Option<StepRate> {
    let subject = Subject::of(&point.point);
    let is_rate = matches!(subject, Subject::Knee | Subject::Produce | Subject::Consume);
    let spread = point.summary.figures.get(subject.figure(&point.summary))?;
    is_rate.then(|| StepRate {
        label: point.point.label.clone(),
        records_per_s: spread.mean,
        half_interval: spread.half_interval(),
        is_quotable: obstacles(point).is_empty(),
    })
}

/// The rate after a step of a study.
pub struct StepRate {
    pub label: String,
    pub records_per_s: f64,
    /// Half of the 95 % interval of the rate; 0 if unknown.
    pub half_interval: f64,
    pub is_quotable: bool,
}

/// Bars of a study whose steps build on each other. The gain of a step is beside its value, and in full
/// colour in its bar.
pub fn cumulative_bars(title: &str, steps: &[StepRate]) -> String {
    let mut before: Option<f64> = None;
    let mut bars = Vec::new();
    for step in steps {
        let (value, error) = (&step.records_per_s, &step.half_interval);
        let carried = before.unwrap_or(0.0).min(*value);
        let parts = match before {
            Some(_) => {
                vec![Part { value: carried, class: "mid" }, Part { value: value - carried, class: "" }]
            }
            None => vec![Part { value: *value, class: "mid" }],
        };
        bars.push(Bar {
            name: step.label.clone(),
            class: "s0 d0".to_owned(),
            parts,
            whisker: (*error > 0.0).then_some(((value - error).max(0.0), value + error)),
            value: quantity::number(value.round()),
            remark: match before {
                Some(before) if before > 0.0 => format!("{:+.1} %", (value / before - 1.0) * 100.0),
                _ => String::new(),
            },
            tip: match *error > 0.0 {
                true => format!(
                    "{} to {}",
                    quantity::number((value - error).max(0.0).round()),
                    quantity::number((value + error).round())
                ),
                false => String::new(),
            },
            hollow: !step.is_quotable,
            is_quoted: false,
        });
        before = Some(*value);
    }
    let groups = vec![Group { name: String::new(), bars }];
    Bars { title: title.to_owned(), groups, tick: quantity::round }.markup()
}
