//! The search for saturation: accepted rate and processor usage at each step, and the knee.

use super::answer::QuotedPoints;
use super::chart::{Axis, Band, Better, Chart, Line, Mark, main_figure, nice_ceiling};
use super::palette::{Palette, Series};
use super::text::escape;
use crate::quantity;
use crate::result::{PointResult, Step, WorkloadResult};

/// The searches of a workload.
pub(super) fn markup(workload: &WorkloadResult, palette: &Palette) -> String {
    let mut labels: Vec<&str> = Vec::new();
    let mut markup = String::new();
    for point in workload.points.iter().filter(|point| !point.steps.is_empty()) {
        let label = point.point.label.as_str();
        if labels.contains(&label) {
            continue;
        }
        labels.push(label);
        let mut same: Vec<&PointResult> = workload
            .points
            .iter()
            .filter(|point| point.point.label == label && !point.steps.is_empty())
            .collect();
        same.sort_by_key(|point| palette.order(point));
        markup += &format!("<h4>Search for saturation, {}</h4>{}", escape(label), knees(&same, palette));
        markup += "<div class=\"figures\">";
        markup += &figure("Rate", &rates(&same, palette));
        for point in &same {
            let series = palette.of_point(point);
            markup += &figure(&format!("Processors, {}", series.name), &shares(point, series));
        }
        markup += "</div>";
    }
    markup
}

/// The searches of `points` of a workload, as main charts: one per label. `quoted` are the points behind
/// headlines. With `alone`, no other chart stands beside it.
pub(super) fn main(
    workload: &WorkloadResult,
    points: &[&PointResult],
    palette: &Palette,
    quoted: &QuotedPoints,
    alone: bool,
) -> String {
    let labels: Vec<&str> = points.iter().map(|point| point.point.label.as_str()).collect();
    let charts = labels.iter().enumerate().filter(|(place, label)| !labels[..*place].contains(label));
    let charts = charts.map(|(_, label)| {
        let own = points.iter().copied().filter(|point| point.point.label == *label);
        let mut same: Vec<&PointResult> = own.collect();
        same.sort_by_key(|point| palette.order(point));
        let caption =
            format!("{} · {label}: records per second at each step of the search", workload.workload.name);
        let mut chart = rates(&same, palette);
        if same.iter().any(|point| quoted.contain(workload, point)) {
            let knees = chart.marks.iter_mut().filter(|mark| mark.is_knee());
            knees.for_each(|mark| mark.class += " quoted");
        }
        main_figure(&caption, &chart, alone)
    });
    charts.collect()
}

fn figure(caption: &str, chart: &Chart) -> String {
    format!("<figure><figcaption>{}</figcaption>{}</figure>", escape(caption), chart.markup())
}

fn knees(points: &[&PointResult], palette: &Palette) -> String {
    let mut markup = "<ul class=\"listed\">".to_owned();
    for point in points {
        let text = match &point.knee {
            Some(knee) => format!(
                "knee at {} records/s (between {} and {}), {} {}",
                quantity::number(knee.records_per_s.round()),
                quantity::number(knee.low_records_per_s.round()),
                quantity::number(knee.high_records_per_s.round()),
                knee.producers,
                if knee.producers == 1 { "producer" } else { "producers" },
            ),
            None => "no knee found".to_owned(),
        };
        markup += &format!("<li>{} {}</li>", palette.of_point(point).markup(), escape(&text));
    }
    markup + "</ul>"
}

/// True if the search raised a rate; otherwise it added producers.
fn requested(points: &[&PointResult]) -> bool {
    points.iter().flat_map(|point| &point.steps).any(|step| step.asked_records_per_s.is_some())
}

fn x_of(step: &Step) -> f64 {
    step.asked_records_per_s.unwrap_or(f64::from(step.producers))
}

/// Sorts steps by the x axis: a search tries rates in any order.
fn by_x(steps: &[Step]) -> Vec<&Step> {
    let mut sorted: Vec<&Step> = steps.iter().collect();
    sorted.sort_by(|a, b| x_of(a).total_cmp(&x_of(b)));
    sorted
}

fn rates(points: &[&PointResult], palette: &Palette) -> Chart {
    let requested = requested(points);
    let steps = || points.iter().flat_map(|point| &point.steps);
    let x_top = steps().map(x_of).fold(0.0, f64::max);
    let y_top = steps().map(|step| step.records_per_s).fold(0.0, f64::max);
    let mut lines = Vec::new();
    let mut marks = Vec::new();
    let mut bands = Vec::new();
    if requested {
        let end = x_top.min(nice_ceiling(y_top));
        lines.push(Line {
            name: String::new(),
            class: "ideal".to_owned(),
            points: vec![(0.0, 0.0), (end, end)],
            dots: false,
            within_noise: Vec::new(),
        });
    }
    for point in points {
        let series = palette.of_point(point);
        let sorted = by_x(&point.steps);
        lines.push(Line {
            name: series.name.clone(),
            class: series.class.clone(),
            points: sorted.iter().map(|step| (x_of(step), step.records_per_s)).collect(),
            dots: true,
            within_noise: Vec::new(),
        });
        marks.extend(sorted.iter().filter(|step| step.fell_behind).map(|step| Mark {
            x: x_of(step),
            y: step.records_per_s,
            class: format!("{} behind", series.class),
            text: String::new(),
        }));
        if let Some(knee) = &point.knee {
            let x = if requested { knee.records_per_s } else { f64::from(knee.producers) };
            if requested {
                let x = (knee.low_records_per_s, knee.high_records_per_s);
                bands.push(Band { x, class: series.class.clone() });
            }
            let text = format!("knee {}/s", quantity::short(knee.records_per_s));
            marks.push(Mark { x, y: knee.records_per_s, class: format!("{} knee", series.class), text });
        }
    }
    Chart {
        title: "Records per second at each step of the search".to_owned(),
        better: Some(Better::Higher),
        x: x_axis(requested, x_top),
        y: Axis {
            title: "records/s carried".to_owned(),
            domain: (0.0, nice_ceiling(y_top * 1.05)),
            log: false,
            tick: quantity::round,
            ticks: Vec::new(),
            names: Vec::new(),
        },
        bands,
        lines,
        marks,
        dots: Vec::new(),
    }
}

fn x_axis(requested: bool, top: f64) -> Axis {
    Axis {
        title: if requested { "requested records/s" } else { "producers" }.to_owned(),
        domain: (0.0, if requested { nice_ceiling(top) } else { top.max(1.0) }),
        log: false,
        tick: if requested { quantity::short } else { whole },
        ticks: match requested {
            true => Vec::new(),
            false => producers(top),
        },
        names: Vec::new(),
    }
}

/// At most ten integer ticks.
fn producers(top: f64) -> Vec<f64> {
    let every = (top / 10.0).ceil().max(1.0) as u32;
    (0..=top as u32).filter(|count| count.is_multiple_of(every)).map(f64::from).collect()
}

fn whole(value: f64) -> String {
    quantity::count(value.round() as u64)
}

fn shares(point: &PointResult, series: &Series) -> Chart {
    let requested = requested(&[point]);
    let top = point.steps.iter().map(x_of).fold(0.0, f64::max);
    let line = |name: &str, class: &str, share: fn(&Step) -> f64| Line {
        name: name.to_owned(),
        class: format!("{} {class}", series.class),
        points: by_x(&point.steps).iter().map(|step| (x_of(step), share(step))).collect(),
        dots: true,
        within_noise: Vec::new(),
    };
    Chart {
        title: format!("Share of the machine's processors at each step, {}", series.name),
        better: None,
        x: x_axis(requested, top),
        y: Axis {
            title: "share of all processors".to_owned(),
            domain: (0.0, 1.0),
            log: false,
            tick: quantity::percent,
            ticks: vec![0.0, 0.25, 0.5, 0.75, 1.0],
            names: Vec::new(),
        },
        bands: Vec::new(),
        lines: vec![
            line("brokers", "plain", |step| step.broker_cpu_share),
            line("producers", "dashed", |step| step.producer_cpu_share),
        ],
        marks: Vec::new(),
        dots: Vec::new(),
    }
}
