//! Bars of points that scale nothing, or not the parameter of the other points: the main charts then have
//! every point on which a headline rests.

use super::answer::QuotedPoints;
use super::chart::{Bar, Bars, Group, Part};
use super::latency::quantity_of_tick;
use super::obstacles::obstacles;
use super::palette::Palette;
use super::scaling::Layout;
use crate::quantity;
use crate::result::{PointResult, Subject, WorkloadResult};

/// The bars of points of one subject; empty if fewer than two have a value, unless the layout has single bars
/// and a headline rests on the point.
pub(super) fn markup(
    workload: &WorkloadResult,
    subject: Subject,
    points: &[&PointResult],
    palette: &Palette,
    quoted: &QuotedPoints,
    layout: Layout,
) -> String {
    let value = |point: &PointResult| subject.value(point).filter(|value| value.is_finite());
    let shown = points.iter().filter(|point| value(point).is_some());
    let is_quoted = points.iter().any(|point| quoted.contain(workload, point));
    match (shown.count(), layout.with_single_bars && is_quoted) {
        (0, _) | (1, false) => return String::new(),
        _ => {}
    }
    let mut groups: Vec<Group> = Vec::new();
    for point in points {
        let label = point.point.label.as_str();
        if groups.iter().any(|group| group.name == label) {
            continue;
        }
        let mut same: Vec<&PointResult> =
            points.iter().copied().filter(|point| point.point.label == label).collect();
        same.sort_by_key(|point| palette.order(point));
        let bars = same.into_iter().filter_map(|point| {
            let is_quoted = quoted.contain(workload, point);
            Some(bar(subject, point, value(point)?, palette, is_quoted))
        });
        groups.push(Group { name: label.to_owned(), bars: bars.collect() });
    }
    groups.retain(|group| !group.bars.is_empty());
    let title =
        format!("{} · {}", workload.workload.name, points.first().map_or("", |one| subject.title(one)));
    let tick = if subject == Subject::Latency { quantity_of_tick } else { quantity::round };
    let bars = Bars { title, groups, tick }.markup();
    match layout.alone {
        true => format!("<figure class=\"alone\">{bars}</figure>"),
        false => format!("<figure>{bars}</figure>"),
    }
}

fn bar(subject: Subject, point: &PointResult, value: f64, palette: &Palette, is_quoted: bool) -> Bar {
    let series = palette.of_point(point);
    let spread = point.summary.figures.get(subject.figure(&point.summary));
    let spread = spread.filter(|spread| spread.count > 1);
    Bar {
        name: series.name.clone(),
        class: series.class.clone(),
        parts: vec![Part { value, class: "" }],
        whisker: subject.reach(point),
        value: subject.text(value),
        remark: spread
            .map_or_else(String::new, |spread| format!("± {}", quantity::percent(spread.variation))),
        tip: obstacles(point).first().map_or_else(String::new, |why| format!("not quotable: {why}")),
        hollow: !obstacles(point).is_empty(),
        is_quoted,
    }
}
