//! Headline figures in large print; in grey, with a badge and the reason, if they may not be quoted.

use super::answer::{ComparedFigure, QuotedPoints};
use super::obstacles::obstacles;
use super::palette::{Palette, Series};
use super::text::{badge, badge_with, escape};
use crate::quantity;
use crate::result::{PointResult, Subject, WorkloadResult, system};

/// The cards of a workload: one per subject, for the point that bounds a headline, or else its best point.
/// Points that the published report does not have come last.
pub(super) fn cards(
    workload: &WorkloadResult,
    palette: &Palette,
    compared: &[ComparedFigure],
    quoted: &QuotedPoints,
) -> String {
    let mut markup = String::new();
    for subject in Subject::ALL {
        let points: Vec<&PointResult> =
            workload.points.iter().filter(|point| Subject::of(&point.point) == subject).collect();
        let bound = quoted.bound(workload);
        let bound = points.iter().copied().find(|point| Some(point.point.label.as_str()) == bound);
        let has_reported = points.iter().any(|point| workload.reports(point));
        let bound = bound.filter(|point| workload.reports(point) || !has_reported);
        if let Some(best) = bound.or_else(|| best(workload, subject, &points)) {
            let mut same: Vec<&PointResult> =
                points.into_iter().filter(|point| point.point.label == best.point.label).collect();
            same.sort_by_key(|point| palette.order(point));
            markup += &card(workload, subject, &same, palette, compared);
        }
    }
    markup
}

/// The point with the largest value, preferably one of the report, and a quotable one. For latencies and
/// drains the first one, because their points differ in the load.
fn best<'a>(
    workload: &WorkloadResult,
    subject: Subject,
    points: &[&'a PointResult],
) -> Option<&'a PointResult> {
    let rank = |point: &&&PointResult| match subject {
        Subject::Latency | Subject::Drain => 0.0,
        _ => subject.value(point).unwrap_or(-1.0),
    };
    // `max_by` returns the last of equals; in reverse order, that is the first.
    points
        .iter()
        .rev()
        .max_by(|a, b| {
            let reported = workload.reports(a).cmp(&workload.reports(b));
            let quotable = obstacles(a).is_empty().cmp(&obstacles(b).is_empty());
            reported.then(quotable).then(rank(a).total_cmp(&rank(b)))
        })
        .copied()
}

fn card(
    workload: &WorkloadResult,
    subject: Subject,
    points: &[&PointResult],
    palette: &Palette,
    compared: &[ComparedFigure],
) -> String {
    let first = points[0];
    let mut markup = format!(
        "<article class=\"card\"><p class=\"over\">{} · {}</p><h3>{}</h3>",
        escape(&workload.workload.name),
        escape(&first.point.label),
        escape(subject.title(first)),
    );
    let one_driver = points.iter().all(|point| point.driver == first.driver);
    for point in points {
        let mut series = palette.of_point(point).clone();
        if one_driver {
            series.name = system(&series.target).to_owned();
        }
        markup += &line(subject, point, &series);
    }
    let here =
        |one: &&ComparedFigure| one.workload == workload.workload.name && one.label == first.point.label;
    for one in compared.iter().filter(here) {
        markup += &ratio(one, one_driver);
    }
    markup + "</article>"
}

fn line(subject: Subject, point: &PointResult, series: &Series) -> String {
    let obstacles = obstacles(point);
    let value = subject.value(point).filter(|value| value.is_finite());
    let class = if obstacles.is_empty() { "big" } else { "big grey" };
    let mut figure = match value {
        Some(value) => {
            let spread = point.summary.figures.get(subject.figure(&point.summary));
            let spread = match spread {
                Some(spread) if spread.count > 1 => format!("± {}", quantity::percent(spread.variation)),
                _ => "one repetition".to_owned(),
            };
            format!("<b class=\"{class}\">{}</b> <small>{spread}</small>", escape(&subject.text(value)))
        }
        None => "<b class=\"big grey\">–</b>".to_owned(),
    };
    if !obstacles.is_empty() {
        figure += &badge(&obstacles);
    } else if value.is_none() {
        figure += &badge(&["nothing was measured".to_owned()]);
    }
    format!("<div class=\"headline\">{}<div>{figure}</div></div>", series.markup())
}

/// The reasons against a ratio that do not apply to its figures.
fn own_reasons(one: &ComparedFigure) -> Vec<String> {
    let of_figure = |reason: &str| {
        [&one.ours, &one.theirs]
            .into_iter()
            .any(|target| reason.strip_prefix(system(target)).is_some_and(|rest| rest.starts_with(": ")))
    };
    let own: Vec<String> = one.obstacles.iter().filter(|reason| !of_figure(reason)).cloned().collect();
    if own.is_empty() { vec!["for the reasons above".to_owned()] } else { own }
}

/// The ratio of two systems. If it is not quotable, only the reasons not yet given by the figures above.
fn ratio(one: &ComparedFigure, one_driver: bool) -> String {
    let by = if one_driver { String::new() } else { format!(" ({})", one.driver.words()) };
    let names = format!("{} to {}{by}", system(&one.ours), system(&one.theirs));
    let times = quantity::digits(one.ratio, 3);
    let (class, more) = match one.obstacles.is_empty() {
        true => {
            let (low, high) = one.interval;
            let how = match one.pairs {
                0 => String::new(),
                pairs => format!(", {pairs} pairs"),
            };
            let why = match one.figure_obstacles.is_empty() {
                true => "",
                false => {
                    "<span class=\"why\">No headline rests on it: a figure above is not quotable.</span>"
                }
            };
            let (low, high) = (quantity::digits(low, 3), quantity::digits(high, 3));
            let interval = format!("95 % interval {low} to {high}{how}");
            ("ratio", format!("<small>{}</small>{why}", escape(&interval)))
        }
        false => ("ratio grey", badge_with(&one.obstacles, &own_reasons(one))),
    };
    format!("<p class=\"{class}\">{}: <b>{}</b> {more}</p>", escape(&names), escape(&times))
}
