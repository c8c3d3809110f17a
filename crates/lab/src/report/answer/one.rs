//! The headline of one system: the range of its quotable figures.

use super::{Answer, Headline, QuotedPoint, QuotedPoints, Scope, ended, latency_verb, refusal, suffices};
use crate::quantity;
use crate::report::obstacles::obstacles;
use crate::report::text::clean;
use crate::result::{PointResult, Subject, WorkloadResult, system};

/// The kinds of figures that make one sentence, in order of preference.
const KINDS: [&[Subject]; 4] =
    [&[Subject::Knee, Subject::Produce], &[Subject::Consume], &[Subject::Latency], &[Subject::Drain]];

/// A point with its value.
type PointValue<'a> = (&'a WorkloadResult, &'a PointResult, f64);

/// The headline of the first system with a quotable figure.
pub(super) fn headline(workloads: &[&WorkloadResult]) -> Headline {
    let all: Vec<(&WorkloadResult, &PointResult)> = workloads
        .iter()
        .flat_map(|workload| workload.points.iter().map(move |point| (*workload, point)))
        .collect();
    let quotable: Vec<PointValue> = all
        .iter()
        .filter(|(_, point)| obstacles(point).is_empty())
        .filter_map(|(workload, point)| {
            let value = Subject::of(&point.point).value(point).filter(|value| value.is_finite())?;
            Some((*workload, *point, value))
        })
        .collect();
    let target = quotable.first().map_or(all[0].1.target.as_str(), |(_, point, _)| point.target.as_str());
    let scope = Scope::of(workloads, &[target]);
    let own: Vec<PointValue> = quotable.into_iter().filter(|(_, point, _)| point.target == target).collect();
    let mut headline = of_target(&all, target, &own, &scope);
    let others = || all.iter().map(|(_, point)| point.target.as_str()).filter(|other| *other != target);
    if let Some(other) = others().next() {
        headline.answer.basis += &clean(&format!(" {} has no figure to compare.", system(other)));
    }
    headline
}

fn of_target(
    all: &[(&WorkloadResult, &PointResult)],
    target: &str,
    own: &[PointValue],
    scope: &Scope,
) -> Headline {
    for kind in KINDS {
        let about: Vec<PointValue> =
            own.iter().copied().filter(|(_, point, _)| kind.contains(&Subject::of(&point.point))).collect();
        if suffices(about.len(), scope.count(kind)) {
            return quoted(about, kind, scope);
        }
    }
    let name = system(target);
    let sentence = match own.len() {
        0 => format!("No figure of {name} may be quoted from this run."),
        some => {
            let (count, noun) = (scope.subjects.len(), scope.noun);
            format!("No headline for {name}: only {some} of {count} {noun} may be quoted.")
        }
    };
    let refused = all.iter().filter(|(_, point)| point.target == target).find(|(workload, point)| {
        !own.iter().any(|(of, one, _)| std::ptr::eq(*of, *workload) && std::ptr::eq(*one, *point))
    });
    let basis = refused.map(|(workload, point)| {
        let why = obstacles(point).first().cloned().unwrap_or_else(|| "nothing was measured".to_owned());
        format!("{}: {}", place(workload, point, scope), ended(&why))
    });
    refusal(&sentence, &basis.unwrap_or_default())
}

fn place(workload: &WorkloadResult, point: &PointResult, scope: &Scope) -> String {
    scope.place(&workload.workload.name, &point.point.label, point.driver)
}

fn quoted(mut about: Vec<PointValue>, kind: &[Subject], scope: &Scope) -> Headline {
    about.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (lowest, highest) = (about[0], about[about.len() - 1]);
    let subject = Subject::of(&highest.1.point);
    let (low, high) = (subject.text(lowest.2), subject.text(highest.2));
    let range = if low == high { high } else { format!("{low} to {high}") };
    let name = system(&highest.1.target);
    let sentence = match subject {
        Subject::Latency => {
            let verb = latency_verb(about.iter().map(|(_, point, _)| subject.figure(&point.summary)));
            format!("{name} {verb} 99 of 100 records within {range}.")
        }
        Subject::Drain => format!("{name} drains the backlog in {range}."),
        Subject::Consume => format!("{name} delivers {range} records per second."),
        Subject::Knee | Subject::Produce => format!("{name} carries {range} records per second."),
    };
    let which = match (about.len(), subject) {
        (1, _) => "Measured",
        (_, Subject::Latency | Subject::Drain) => "The longest",
        _ => "The highest",
    };
    let (workload, point, _) = highest;
    let mut basis = format!("{which} at {}: {}.", place(workload, point, scope), source(point, subject));
    basis += &scope.others(kind);
    let points = about.iter().map(|(workload, point, _)| QuotedPoint {
        workload: workload.workload.name.clone(),
        label: point.point.label.clone(),
        driver: point.driver,
        targets: vec![point.target.clone()],
        is_bound: std::ptr::eq(*point, highest.1),
    });
    let points = QuotedPoints::of(points.collect());
    let sentence = format!("{}{sentence}", scope.at(about.len(), scope.count(kind)));
    Headline {
        answer: Answer { sentence: clean(&sentence), basis: clean(&basis), is_quotable: true },
        points,
    }
}

/// The origin of a value: repetitions, or a search whose result they repeat.
fn source(point: &PointResult, subject: Subject) -> String {
    let spread = point.summary.figures.get(subject.figure(&point.summary));
    let (count, variation) =
        spread.map_or((0, String::new()), |spread| (spread.count, quantity::percent(spread.variation)));
    match (subject, point.knee.is_some(), count) {
        (Subject::Knee, true, 0 | 1) => "found by a search".to_owned(),
        (Subject::Knee, true, count) => {
            format!("found by a search; {count} repetitions of its load, ± {variation}")
        }
        (_, _, 0 | 1) => "one repetition".to_owned(),
        (_, _, count) => format!("the mean of {count} repetitions, ± {variation}"),
    }
}
