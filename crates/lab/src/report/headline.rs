//! Headline figures in large print; in grey, with a badge and the reason, if they may not be quoted.

use super::answer::ComparedFigure;
use super::palette::{Palette, Series};
use super::text::{badge, badge_with, escape};
use crate::quantity;
use crate::result::{Figure, FigureUnit, PointResult, Subject, WorkloadResult, system};

impl Subject {
    /// A title.
    pub(super) fn title(self, point: &PointResult) -> &'static str {
        match self {
            Subject::Knee => "Maximum sustained records per second",
            Subject::Produce => "Records produced per second",
            Subject::Consume => "Records consumed per second",
            Subject::Drain => "Seconds until the backlog is drained",
            Subject::Latency if self.figure(&point.summary) == "end_to_end_p99_us" => "p99 end to end",
            Subject::Latency => "p99 until acknowledged",
        }
    }

    /// The headline value.
    pub(super) fn value(self, point: &PointResult) -> Option<f64> {
        match (self, &point.knee) {
            (Subject::Knee, Some(knee)) => Some(knee.records_per_s),
            _ => point.summary.figures.get(self.figure(&point.summary)).map(|spread| spread.mean),
        }
    }

    /// A value, in large print.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Subject::Latency => quantity::time_us(value),
            Subject::Drain => format!("{} s", quantity::number(value)),
            _ => quantity::short(value),
        }
    }
}

/// Why a point is not quotable; empty if it is.
pub(super) fn obstacles(point: &PointResult) -> Vec<String> {
    let mut found = Vec::new();
    // The verdict contains the failure if there is one.
    if let Some(failure) = &point.failure
        && !point.verdict.no_headline.iter().any(|reason| reason.contains(failure.as_str()))
    {
        found.push(failure.clone());
    }
    found.extend(point.verdict.no_headline.iter().map(|reason| in_words(reason)));
    if contradicted(point) {
        found.push("the evidence indicates lost records".to_owned());
    }
    found
}

/// A reason with the words of a figure in place of its name in results.
fn in_words(reason: &str) -> String {
    let figure = reason.split_once(' ').and_then(|(name, rest)| Some((Figure::named(name)?, rest)));
    match figure {
        Some((figure, rest)) if figure.unit == FigureUnit::RecordsPerSecond => format!("the rate {rest}"),
        Some((figure, rest)) if figure.unit == FigureUnit::LatencyUs => {
            format!("latency {} {rest}", figure.title)
        }
        Some((figure, rest)) => format!("{} {rest}", figure.title),
        None => reason.to_owned(),
    }
}

/// True if the evidence contradicts the claim that nothing was lost.
pub(super) fn contradicted(point: &PointResult) -> bool {
    point.repetitions.iter().map(|repetition| &repetition.evidence).any(|evidence| {
        let lost = evidence.check.as_ref().is_some_and(|check| check.lost > 0 || check.damaged > 0);
        lost || !evidence.faults.is_empty()
    })
}

/// The cards of a workload: one per subject, for its best point.
pub(super) fn cards(workload: &WorkloadResult, palette: &Palette, compared: &[ComparedFigure]) -> String {
    let mut markup = String::new();
    for subject in Subject::ALL {
        let points: Vec<&PointResult> =
            workload.points.iter().filter(|point| Subject::of(&point.point) == subject).collect();
        if let Some(best) = best(subject, &points) {
            let mut same: Vec<&PointResult> =
                points.into_iter().filter(|point| point.point.label == best.point.label).collect();
            same.sort_by_key(|point| palette.order(point));
            markup += &card(workload, subject, &same, palette, compared);
        }
    }
    markup
}

/// The point with the largest value, preferably a quotable one. For latencies and drains the first one,
/// because their points differ in the load.
fn best<'a>(subject: Subject, points: &[&'a PointResult]) -> Option<&'a PointResult> {
    let rank = |point: &&&PointResult| match subject {
        Subject::Latency | Subject::Drain => 0.0,
        _ => subject.value(point).unwrap_or(-1.0),
    };
    // `max_by` returns the last of equals; in reverse order, that is the first.
    points
        .iter()
        .rev()
        .max_by(|a, b| {
            let quotable = obstacles(a).is_empty().cmp(&obstacles(b).is_empty());
            quotable.then(rank(a).total_cmp(&rank(b)))
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
            let interval =
                format!("95 % interval {} to {}{how}", quantity::digits(low, 3), quantity::digits(high, 3));
            ("ratio", format!("<small>{}</small>", escape(&interval)))
        }
        false => ("ratio grey", badge_with(&one.obstacles, &own_reasons(one))),
    };
    format!("<p class=\"{class}\">{}: <b>{}</b> {more}</p>", escape(&names), escape(&times))
}
