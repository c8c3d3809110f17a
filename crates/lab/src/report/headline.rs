//! Headline figures, in large print if the verdict allows it; otherwise the reason.

use super::palette::{Palette, Series};
use super::text::escape;
use crate::quantity;
use crate::result::{
    Comparison, Figure, Judgement, Pairing, PointResult, Ratio, RunResult, Subject, WorkloadResult, compare,
};

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
    found.extend(point.verdict.no_headline.iter().cloned());
    if contradicted(point) {
        found.push("the evidence indicates lost records".to_owned());
    }
    found
}

/// Whether the evidence contradicts that nothing was lost.
pub(super) fn contradicted(point: &PointResult) -> bool {
    point.repetitions.iter().map(|repetition| &repetition.evidence).any(|evidence| {
        let lost = evidence.check.as_ref().is_some_and(|check| check.lost > 0 || check.damaged > 0);
        lost || !evidence.faults.is_empty()
    })
}

/// All pairs of targets of a run, compared by name.
pub(super) fn comparisons(run: &RunResult, palette: &Palette) -> Vec<Comparison> {
    let targets = palette.targets();
    let mut all = Vec::new();
    for (place, first) in targets.iter().enumerate() {
        for second in &targets[place + 1..] {
            let pairing = Pairing::Targets { a: (*second).to_owned(), b: (*first).to_owned() };
            all.extend(compare(run, run, &pairing));
        }
    }
    all
}

/// The cards of a workload: one per subject, for its best point.
pub(super) fn cards(workload: &WorkloadResult, palette: &Palette, comparisons: &[Comparison]) -> String {
    let mut markup = String::new();
    for subject in Subject::ALL {
        let points: Vec<&PointResult> =
            workload.points.iter().filter(|point| Subject::of(&point.point) == subject).collect();
        if let Some(best) = best(subject, &points) {
            let mut same: Vec<&PointResult> =
                points.into_iter().filter(|point| point.point.label == best.point.label).collect();
            same.sort_by_key(|point| palette.order(point));
            markup += &card(workload, subject, &same, palette, comparisons);
        }
    }
    markup
}

/// The point with the largest value, preferably a quotable one. For latencies and drains the first one, because their points
/// differ in the load.
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
    comparisons: &[Comparison],
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
            series.name.clone_from(&series.target);
        }
        markup += &line(subject, point, &series);
    }
    if points.iter().all(|point| obstacles(point).is_empty()) {
        for ratio in ratios(workload, subject, first, comparisons) {
            markup += &format!("<p class=\"ratio\">{}</p>", escape(&ratio));
        }
    }
    markup + "</article>"
}

fn line(subject: Subject, point: &PointResult, series: &Series) -> String {
    let obstacles = obstacles(point);
    let value = subject.value(point);
    let figure = match (value, obstacles.is_empty()) {
        (Some(value), true) => {
            let spread = point.summary.figures.get(subject.figure(&point.summary));
            let spread = match spread {
                Some(spread) if spread.count > 1 => format!("± {}", quantity::percent(spread.variation)),
                _ => "one repetition".to_owned(),
            };
            format!("<b class=\"big\">{}</b> <small>{spread}</small>", escape(&subject.text(value)))
        }
        (_, false) => format!("<span class=\"why\">No headline: {}</span>", escape(&obstacles.join("; "))),
        (None, true) => "<span class=\"why\">No headline: nothing was measured</span>".to_owned(),
    };
    format!("<div class=\"headline\">{}<div>{figure}</div></div>", series.markup())
}

fn ratios(
    workload: &WorkloadResult,
    subject: Subject,
    point: &PointResult,
    comparisons: &[Comparison],
) -> Vec<String> {
    let mut lines = Vec::new();
    for pair in comparisons.iter().flat_map(|comparison| &comparison.pairs) {
        let same = pair.a.workload == workload.workload.name
            && pair.a.label == point.point.label
            && pair.a.driver == point.driver;
        let ratio = pair.ratios.iter().find(|ratio| ratio.figure == subject.figure(&point.summary));
        if let (true, Some(ratio)) = (same, ratio) {
            lines.push(sentence(&pair.b.target, &pair.a.target, ratio));
        }
    }
    lines
}

fn sentence(ours: &str, theirs: &str, ratio: &Ratio) -> String {
    let times = quantity::number(ratio.ratio);
    let of = match Figure::named(&ratio.figure) {
        Some(figure) if figure.unit.more_is_better() => "",
        _ => "the time of ",
    };
    match (ratio.judgement, ratio.interval) {
        (Judgement::NoDifference, Some((low, high))) => format!(
            "{ours} and {theirs}: no difference beyond the noise (ratio {times}, 95 % interval {} to {})",
            quantity::number(low),
            quantity::number(high)
        ),
        (judgement, Some((low, high))) => format!(
            "{ours} is {}: {times} times {of}{theirs} (95 % interval {} to {})",
            judgement.words(),
            quantity::number(low),
            quantity::number(high)
        ),
        (_, None) => {
            format!("{ours}: {times} times {of}{theirs}; with fewer than 3 repetitions there is no interval")
        }
    }
}
