//! Latency: percentile curves of the merged histograms. The x axis counts nines, so that the tail has as much
//! room as the rest; both axes are logarithmic.

use super::chart::{Axis, Better, Chart, Line};
use super::obstacles::obstacles;
use super::palette::Palette;
use super::text::escape;
use crate::quantity;
use crate::result::{Histogram, HistogramUnreadable, PointResult, WorkloadResult};
use crate::workload::Load;

/// The x axis starts at 50 %: -log10(1 - 0.5).
const NINES_FROM: f64 = std::f64::consts::LOG10_2;
/// The x axis ends at five nines at most.
const NINES_MAX: f64 = 5.0;
const STEPS: u32 = 120;

/// A curve: nines and microseconds.
type Curve = Vec<(f64, f64)>;

/// The curves of a workload: a chart per point and kind of latency.
pub(super) fn markup(workload: &WorkloadResult, palette: &Palette) -> String {
    let mut charts = String::new();
    for (way, of) in [
        ("until acknowledged", acknowledge as fn(&PointResult) -> Option<&Histogram>),
        ("end to end", end_to_end),
    ] {
        let mut drawn: Vec<(&PointResult, Curve)> = Vec::new();
        for point in &workload.points {
            match of(point).map(curve) {
                Some(Ok(curve)) => drawn.push((point, curve)),
                Some(Err(error)) => {
                    let name = format!("{}, {}", point.point.label, palette.of_point(point).name);
                    charts += &format!(
                        "<p class=\"why\">{} ({way}): {}</p>",
                        escape(&name),
                        escape(&error.to_string())
                    );
                }
                None => {}
            }
        }
        charts += &panel(way, &drawn, palette);
    }
    charts
}

fn acknowledge(point: &PointResult) -> Option<&Histogram> {
    point.summary.acknowledge_latency.as_ref()
}

fn end_to_end(point: &PointResult) -> Option<&Histogram> {
    point.summary.end_to_end_latency.as_ref()
}

fn panel(way: &str, drawn: &[(&PointResult, Curve)], palette: &Palette) -> String {
    if drawn.is_empty() {
        return String::new();
    }
    // One scale for all charts of the panel, for comparison.
    let values = || drawn.iter().flat_map(|(_, curve)| curve.iter());
    let domain = log_domain(values().map(|(_, y)| *y));
    let nines = values().map(|(x, _)| *x).fold(3.0, f64::max);
    let mut labels: Vec<&str> = Vec::new();
    let mut charts = String::new();
    for (point, _) in drawn {
        let label = point.point.label.as_str();
        if labels.contains(&label) {
            continue;
        }
        labels.push(label);
        let mut same: Vec<&(&PointResult, Curve)> =
            drawn.iter().filter(|(point, _)| point.point.label == label).collect();
        same.sort_by_key(|(point, _)| palette.order(point));
        let refused = refused(same.iter().map(|(point, _)| *point), palette);
        let lines = same.into_iter().map(|(point, curve)| Line {
            name: palette.of_point(point).name.clone(),
            class: palette.of_point(point).class.clone(),
            points: curve.clone(),
            dots: false,
            within_noise: Vec::new(),
        });
        let chart = Chart {
            title: format!("Latency percentiles {way}, {label}"),
            better: Some(Better::Lower),
            x: Axis {
                title: "percentile".to_owned(),
                domain: (NINES_FROM, nines),
                log: false,
                tick: percentile,
                ticks: std::iter::once(NINES_FROM).chain((1..=nines as u32).map(f64::from)).collect(),
                names: Vec::new(),
            },
            y: Axis {
                title: "both axes are logarithmic".to_owned(),
                domain,
                log: true,
                tick: quantity_of_tick,
                ticks: Vec::new(),
                names: Vec::new(),
            },
            bands: Vec::new(),
            lines: lines.collect(),
            marks: Vec::new(),
            dots: Vec::new(),
        };
        charts += &format!(
            "<figure><figcaption>{}{}{refused}</figcaption>{}</figure>",
            escape(label),
            load(point),
            chart.markup()
        );
    }
    format!("<h4>Latency {way}</h4><div class=\"figures\">{charts}</div>")
}

/// The systems whose figures at a point are not quotable, for a caption.
fn refused<'a>(points: impl Iterator<Item = &'a PointResult>, palette: &Palette) -> String {
    let names: Vec<&str> = points
        .filter(|point| !obstacles(point).is_empty())
        .map(|point| palette.of_point(point).name.as_str())
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" <small>not quotable: {}</small>", escape(&names.join(", "))),
    }
}

/// The kind of load, which readers must know: at the maximum rate there is always a queue.
fn load(point: &PointResult) -> &'static str {
    match point.point.load {
        Load::Rate { .. } => "",
        Load::Maximum => " <small>at the maximum rate</small>",
        Load::AddProducers { .. } | Load::RaiseRate { .. } => " <small>at the knee</small>",
    }
}

fn curve(histogram: &Histogram) -> Result<Curve, HistogramUnreadable> {
    let recorded = histogram.recorded()?;
    let at = |nines: f64| recorded.value_at_quantile(quantile(nines)).max(1) as f64;
    Ok(nines_of_curve(recorded.len()).map(|nines| (nines, at(nines))).collect())
}

/// The quantiles of a curve of so many values.
pub(super) fn quantiles(count: u64) -> impl Iterator<Item = f64> {
    nines_of_curve(count).map(quantile)
}

/// The nines of a curve of so many values. Beyond 1 in `count` there is only the maximum.
fn nines_of_curve(count: u64) -> impl Iterator<Item = f64> {
    let last = (count.max(2) as f64).log10().clamp(NINES_FROM, NINES_MAX);
    let step = (last - NINES_FROM) / f64::from(STEPS);
    (0..=STEPS).map(move |number| NINES_FROM + f64::from(number) * step)
}

fn quantile(nines: f64) -> f64 {
    1.0 - 10f64.powf(-nines)
}

/// The percentile of so many nines, with as many digits as nines: `50`, `90`, `96.8`, `99`, `99.9`.
fn percentile(nines: f64) -> String {
    // Nines of a curve are slightly inexact.
    let places = (nines - 1e-6).ceil().clamp(1.0, 9.0) as usize - 1;
    let text = format!("{:.places$}", 100.0 * quantile(nines));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Ticks are round: `1 ms`, not `1.00 ms`.
pub(super) fn quantity_of_tick(value_us: f64) -> String {
    match value_us {
        v if v >= 1e6 => format!("{} s", quantity::round(v / 1e6)),
        v if v >= 1e3 => format!("{} ms", quantity::round(v / 1e3)),
        v => format!("{} µs", quantity::round(v)),
    }
}

/// The range of a logarithmic axis: slightly beyond the values, and at least a factor of ten.
pub(super) fn log_domain(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for value in values.filter(|value| value.is_finite() && *value > 0.0) {
        (low, high) = (low.min(value), high.max(value));
    }
    if high <= 0.0 {
        return (1.0, 10.0);
    }
    let (low, high) = (low / 1.15, high * 1.15);
    match high / low < 10.0 {
        true => {
            let middle = (low * high).sqrt();
            (middle / 10f64.sqrt(), middle * 10f64.sqrt())
        }
        false => (low, high),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nines_are_written_as_percentiles() {
        let nines = [NINES_FROM, 1.0, 1.5, 2.0, 2.3, 3.0, 4.0];
        assert_eq!(nines.map(percentile), ["50", "90", "96.8", "99", "99.5", "99.9", "99.99"]);
    }

    #[test]
    fn a_curve_ends_where_its_values_do() {
        let mut recorded = Histogram::recorder();
        recorded.record_n(1000, 999).expect("within the bounds");
        recorded.record(50_000).expect("within the bounds");
        let curve = curve(&Histogram::of(&recorded).expect("not empty")).expect("readable");
        let (first, last) = (curve[0], curve[curve.len() - 1]);
        assert_eq!((first.0, last.0), (NINES_FROM, 3.0));
        assert!(first.1 < 1010.0 && last.1 > 900.0, "{first:?} {last:?}");
    }
}
