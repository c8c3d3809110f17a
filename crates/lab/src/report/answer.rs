//! The answer of a run: one sentence for a manager, which leads the page, the Markdown and the table on a
//! terminal.
//!
//! With two systems, the answer is the most conservative ratio: the weakest of all points at which both
//! figures are quotable, at the weaker end of its interval, rounded towards 1. With one system, it is the
//! range of the quotable figures. The sentence counts the points behind it. Without enough quotable figures
//! there is no headline: the sentence says so, gives the reason, and follows the results.

mod comparison;
mod one;
mod quoted;
mod tails;
#[cfg(test)]
mod testing;
mod words;

pub(super) use comparison::{ComparedFigure, compared};
pub(super) use quoted::{QuotedPoint, QuotedPoints};
#[cfg(test)]
pub(super) use testing::compared_figure;
pub(super) use words::bound;

use std::cmp::Ordering;

use super::text::clean;
use crate::quantity;
use crate::result::{RunResult, Subject, WorkloadResult, system};
use crate::worker::Driver;
use words::{at_least, at_most, clearly, fraction, inverse};

/// A headline needs this share of the points of its kind: points that may not be quoted could otherwise
/// outnumber, and contradict, the points behind it.
const SHARE_MIN: f64 = 0.5;

/// The kinds of figures whose ratios make one sentence, in order of preference.
const KINDS: [&[Subject]; 3] =
    [&[Subject::Knee, Subject::Produce, Subject::Consume], &[Subject::Latency], &[Subject::Drain]];

/// The sentence, and its basis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub sentence: String,
    /// The basis of the sentence: some more sentences; empty if there is nothing to add.
    pub basis: String,
    /// True if the sentence states quotable figures; it then leads the results, and otherwise follows them.
    pub is_quotable: bool,
}

/// An answer, and the points behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headline {
    pub answer: Answer,
    /// The points behind the answer; empty if it is not quotable.
    pub points: QuotedPoints,
}

/// The answer of a run.
pub fn answer(run: &RunResult) -> Answer {
    of_run(run, &compared(run)).answer
}

/// The headline of a run.
pub(super) fn of_run(run: &RunResult, all: &[ComparedFigure]) -> Headline {
    let workloads: Vec<&WorkloadResult> = run.workloads.iter().collect();
    of(&workloads, all)
}

/// The headline of one workload of a run.
pub(super) fn of_workload(workload: &WorkloadResult, all: &[ComparedFigure]) -> Headline {
    let own: Vec<ComparedFigure> =
        all.iter().filter(|one| one.workload == workload.workload.name).cloned().collect();
    of(&[workload], &own)
}

fn of(workloads: &[&WorkloadResult], compared: &[ComparedFigure]) -> Headline {
    if workloads.iter().all(|workload| workload.points.is_empty()) {
        return refusal("Nothing was measured.", "");
    }
    let Some(first) = compared.first() else { return one::headline(workloads) };
    let pair = [first.ours.as_str(), first.theirs.as_str()];
    let same: Vec<&ComparedFigure> =
        compared.iter().filter(|one| [one.ours.as_str(), one.theirs.as_str()] == pair).collect();
    let mut headline = of_two(&same, &Scope::of(workloads, &pair));
    if same.len() < compared.len() {
        headline.answer.basis += " Other pairs of systems have their own ratios.";
    }
    headline
}

fn refusal(sentence: &str, basis: &str) -> Headline {
    let answer = Answer { sentence: clean(sentence), basis: clean(basis), is_quotable: false };
    Headline { answer, points: QuotedPoints::default() }
}

/// True if a headline may rest on so many of the points of its kind.
fn suffices(quotable: usize, all: usize) -> bool {
    quotable > 0 && quotable as f64 >= all as f64 * SHARE_MIN
}

/// The measured points that an answer is about, also those without a figure to compare.
struct Scope {
    /// True if there are several workloads, so that a label alone names no point.
    several: bool,
    subjects: Vec<Subject>,
    /// True if some points differ only in the driver.
    by_driver: bool,
    /// What is counted: points, or if they have several drivers, comparisons or measurements.
    noun: &'static str,
}

impl Scope {
    fn of(workloads: &[&WorkloadResult], targets: &[&str]) -> Scope {
        let mut points: Vec<(&str, &str, Driver, Subject)> = Vec::new();
        for workload in workloads {
            for point in workload.points.iter().filter(|point| targets.contains(&point.target.as_str())) {
                let name = workload.workload.name.as_str();
                let found = (name, point.point.label.as_str(), point.driver, Subject::of(&point.point));
                if !points.contains(&found) {
                    points.push(found);
                }
            }
        }
        let by_driver = points.iter().any(|point| point.2 != points[0].2);
        Scope {
            several: workloads.len() > 1,
            by_driver,
            noun: match (by_driver, targets.len()) {
                (false, _) => "points",
                (true, 1) => "measurements",
                (true, _) => "comparisons",
            },
            subjects: points.into_iter().map(|point| point.3).collect(),
        }
    }

    fn count(&self, kind: &[Subject]) -> usize {
        self.subjects.iter().filter(|subject| kind.contains(subject)).count()
    }

    /// The position of a pair in the run.
    fn name(&self, one: &ComparedFigure) -> String {
        self.place(&one.workload, &one.label, one.driver)
    }

    /// A workload, label and driver, as far as they distinguish points.
    fn place(&self, workload: &str, label: &str, driver: Driver) -> String {
        let by = match self.by_driver {
            true => format!(", with the client {}", driver.words()),
            false => String::new(),
        };
        match self.several {
            true => format!("{workload}, {label}{by}"),
            false => format!("{label}{by}"),
        }
    }

    /// The points with another kind of figure: a sentence, or nothing.
    fn others(&self, kind: &[Subject]) -> String {
        match self.subjects.len() - self.count(kind) {
            0 => String::new(),
            1 => " One more measures another figure.".to_owned(),
            count => format!(" {count} more {} measure another figure.", self.noun),
        }
    }

    /// `At 12 of 17 points, `; empty if there is only one.
    fn at(&self, some: usize, all: usize) -> String {
        match (some, all) {
            (_, 1) => String::new(),
            (2, 2) => format!("At both {}, ", self.noun),
            (some, all) if some == all => format!("At all {all} {}, ", self.noun),
            (some, all) => format!("At {some} of {all} {}, ", self.noun),
        }
    }
}

/// Two systems, by the first kind of figure with enough quotable points.
fn of_two(all: &[&ComparedFigure], scope: &Scope) -> Headline {
    for kind in KINDS {
        let about = all.iter().copied().filter(|one| kind.contains(&one.subject));
        let quotable: Vec<&ComparedFigure> = about.filter(|one| one.is_quotable()).collect();
        if suffices(quotable.len(), scope.count(kind)) {
            return quoted(all, &quotable, kind, scope);
        }
    }
    let (ours, theirs) = (system(&all[0].ours), system(&all[0].theirs));
    let quotable = all.iter().filter(|one| one.is_quotable()).count();
    let count = scope.subjects.len();
    let why = match (quotable, count) {
        (_, 1) if all[0].figure_obstacles.is_empty() => "the ratio may not be quoted".to_owned(),
        (_, 1) => "the figures may not be quoted".to_owned(),
        (0, count) => format!("at none of {count} {} may both figures and their ratio be quoted", scope.noun),
        (some, count) => {
            format!("only at {some} of {count} {} may both figures and their ratio be quoted", scope.noun)
        }
    };
    let mut basis = String::new();
    if let Some((one, why)) = all.iter().find_map(|one| Some((one, one.first_obstacle()?))) {
        basis += &format!("{}: {}", scope.name(one), ended(&why));
    }
    if let missing @ 1.. = count.saturating_sub(all.len()) {
        basis += &format!(" Without figures of both: {missing} of {count}.");
    }
    let (ratios, winner) = known_ratios(all, scope);
    basis += &ratios;
    basis += &tails::contrast(all, winner.as_deref(), scope);
    refusal(&format!("No headline compares {ours} with {theirs}: {why}."), basis.trim_start())
}

fn quoted(
    all: &[&ComparedFigure],
    quotable: &[&ComparedFigure],
    kind: &[Subject],
    scope: &Scope,
) -> Headline {
    let standing = Standing::of(quotable);
    let sentence = match kind[0] {
        Subject::Latency => {
            let does = format!("{} 99 of 100 records", latency_verb(quotable.iter().map(|one| one.figure)));
            sooner(quotable, &standing, &does, ", at the same rate")
        }
        Subject::Drain => sooner(quotable, &standing, "drains the same backlog", ""),
        _ => carries(quotable, &standing),
    };
    let at = scope.at(quotable.len(), scope.count(kind));
    let sentence = match (at.as_str(), sentence.strip_prefix("No ")) {
        ("", _) | (_, None) => format!("{at}{sentence}"),
        (at, Some(rest)) => format!("{at}no {rest}"),
    };
    let (mut basis, weakest) = basis(quotable, &standing, scope);
    basis += &scope.others(kind);
    let winner = standing.winner(quotable[0]);
    basis += &tails::contrast(all, winner.as_deref(), scope);
    let points = quotable.iter().map(|one| QuotedPoint {
        workload: one.workload.clone(),
        label: one.label.clone(),
        driver: one.driver,
        targets: vec![one.ours.clone(), one.theirs.clone()],
        is_bound: one.label == weakest.label && one.workload == weakest.workload,
    });
    let points = QuotedPoints::of(points.collect());
    Headline {
        answer: Answer { sentence: clean(&sentence), basis: clean(&basis), is_quotable: true },
        points,
    }
}

/// The verb for figures that are all of one kind of latency, or of both.
fn latency_verb<'a>(figures: impl Iterator<Item = &'a str>) -> &'static str {
    let figures: Vec<bool> = figures.map(|figure| figure.starts_with("acknowledge")).collect();
    match (figures.contains(&true), figures.contains(&false)) {
        (true, false) => "acknowledges",
        (true, true) => "acknowledges or delivers",
        _ => "delivers",
    }
}

/// How many ratios are above 1, below 1, and neither, beyond the noise.
struct Standing {
    above: usize,
    below: usize,
    same: usize,
    is_time: bool,
}

impl Standing {
    fn of(all: &[&ComparedFigure]) -> Standing {
        let count = |side| all.iter().filter(|one| clearly(one.interval) == side).count();
        Standing {
            above: count(Ordering::Greater),
            below: count(Ordering::Less),
            same: count(Ordering::Equal),
            is_time: all[0].is_time(),
        }
    }

    /// The side of 1 on which all ratios are, if they are.
    fn side(&self) -> Ordering {
        match (self.above, self.below, self.same) {
            (1.., 0, 0) => Ordering::Greater,
            (0, 1.., 0) => Ordering::Less,
            _ => Ordering::Equal,
        }
    }

    /// The target that is better at every point.
    fn winner(&self, of: &ComparedFigure) -> Option<String> {
        let is_ours = match self.side() {
            Ordering::Equal => return None,
            side => (side == Ordering::Greater) != self.is_time,
        };
        Some(if is_ours { of.ours.clone() } else { of.theirs.clone() })
    }

    /// The counts in words: `more at 3, less at 1, and no difference can be shown at 2`.
    fn words(&self) -> String {
        let counts = [(self.above, "more at"), (self.below, "less at")];
        let mut parts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, at)| format!("{at} {count}"))
            .collect();
        if self.same > 0 {
            parts.push(format!("no difference can be shown at {}", self.same));
        }
        match parts.pop() {
            Some(last) if !parts.is_empty() => format!("{}, and {last}", parts.join(", ")),
            last => last.unwrap_or_default(),
        }
    }
}

/// More records: at least this many times as many, by the weakest of all pairs.
fn carries(all: &[&ComparedFigure], standing: &Standing) -> String {
    let (ours, theirs) = names(all);
    let (low, high) = reach(all);
    let cost = |cpu: Option<(f64, f64)>| match cpu {
        Some((_, high)) => format!(", with at most {} processor time per record", fraction(high)),
        None => String::new(),
    };
    match standing.side() {
        Ordering::Greater => {
            let cost = cost(processor_time(all));
            format!("{ours} carries at least {} times what {theirs} does{cost}.", at_least(low))
        }
        Ordering::Less => {
            let cost = cost(processor_time(all).map(inverse));
            format!("{theirs} carries at least {} times what {ours} does{cost}.", at_least(1.0 / high))
        }
        Ordering::Equal if standing.same == all.len() => {
            no_difference((&ours, &theirs), "the ratio", (low, high))
        }
        Ordering::Equal => {
            let (low, high) = ratios(all);
            format!("{ours} carries {low} to {high} times what {theirs} does: {}.", standing.words())
        }
    }
}

/// Less time: at most this fraction, by the weakest of all pairs.
fn sooner(all: &[&ComparedFigure], standing: &Standing, does: &str, condition: &str) -> String {
    let (ours, theirs) = names(all);
    let (low, high) = reach(all);
    match standing.side() {
        Ordering::Less => {
            format!("{ours} {does} in at most {} time that {theirs} takes{condition}.", fraction(high))
        }
        Ordering::Greater => {
            format!("{theirs} {does} in at most {} time that {ours} takes{condition}.", fraction(1.0 / low))
        }
        Ordering::Equal if standing.same == all.len() => {
            no_difference((&ours, &theirs), "the ratio of the times", (low, high))
        }
        Ordering::Equal => {
            let (low, high) = ratios(all);
            let counts = standing.words();
            format!(
                "{ours} {does} in {low} to {high} times the time that {theirs} takes{condition}: {counts}."
            )
        }
    }
}

fn no_difference((ours, theirs): (&str, &str), ratio: &str, (low, high): (f64, f64)) -> String {
    format!(
        "No difference between {ours} and {theirs} can be shown: {ratio} is between {} and {}.",
        quantity::digits(low, 2),
        quantity::digits(high, 2)
    )
}

fn names(all: &[&ComparedFigure]) -> (String, String) {
    (clean(system(&all[0].ours)), clean(system(&all[0].theirs)))
}

/// The lowest and the highest end of all intervals.
fn reach(all: &[&ComparedFigure]) -> (f64, f64) {
    let low = all.iter().map(|one| one.interval.0).fold(f64::INFINITY, f64::min);
    (low, all.iter().map(|one| one.interval.1).fold(0.0, f64::max))
}

/// The lowest and the highest ratio, as text.
fn ratios(all: &[&ComparedFigure]) -> (String, String) {
    let ratios = || all.iter().map(|one| one.ratio);
    (
        quantity::digits(ratios().fold(f64::INFINITY, f64::min), 2),
        quantity::digits(ratios().fold(0.0, f64::max), 2),
    )
}

/// The lowest and the highest end of all intervals of the ratio of processor time; `None` if an interval is
/// missing, or if 1 is between the ends.
fn processor_time(all: &[&ComparedFigure]) -> Option<(f64, f64)> {
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for one in all {
        let interval = one.cpu?;
        low = low.min(interval.0);
        high = high.max(interval.1);
    }
    (clearly((low, high)) != Ordering::Equal).then_some((low, high))
}

/// The points at both ends, and the one that bounds the sentence.
fn basis<'a>(
    quotable: &[&'a ComparedFigure],
    standing: &Standing,
    scope: &Scope,
) -> (String, &'a ComparedFigure) {
    let weakness = |one: &&&ComparedFigure| match standing.side() {
        Ordering::Less => -one.interval.1,
        Ordering::Greater => one.interval.0,
        Ordering::Equal => one.ratio,
    };
    let by_weakness = |a: &&&'a ComparedFigure, b: &&&'a ComparedFigure| weakness(a).total_cmp(&weakness(b));
    let weakest = quotable.iter().min_by(by_weakness).expect("not empty");
    let strongest = quotable.iter().max_by(by_weakness).expect("not empty");
    let text = match (quotable.len(), standing.side()) {
        (1, _) => match weakest.pairs {
            0 => format!("Measured at {}.", scope.name(weakest)),
            pairs => format!("Measured at {}, in {pairs} turns.", scope.name(weakest)),
        },
        (_, Ordering::Equal) => format!(
            "The lowest ratio: {}, {}. The highest: {}, {}.",
            scope.name(weakest),
            quantity::digits(weakest.ratio, 2),
            scope.name(strongest),
            quantity::digits(strongest.ratio, 2)
        ),
        (_, side) => {
            // The interval of the winner's figure by the other.
            let is_inverse = (side == Ordering::Greater) == standing.is_time;
            let interval = if is_inverse { inverse(strongest.interval) } else { strongest.interval };
            let strength = match standing.is_time {
                true => format!("at most {} of the time", at_most(interval.1)),
                false => format!("at least {} times", at_least(interval.0)),
            };
            format!(
                "The weakest: {}. The strongest: {}, {strength}.",
                scope.name(weakest),
                scope.name(strongest)
            )
        }
    };
    (text, weakest)
}

/// The ratios that hold although their figures vary, as a sentence, and the target that is better in all of
/// them: the variation is in their intervals.
fn known_ratios(all: &[&ComparedFigure], scope: &Scope) -> (String, Option<String>) {
    for kind in KINDS {
        let about = all.iter().copied().filter(|one| kind.contains(&one.subject));
        let known: Vec<&ComparedFigure> = about.filter(|one| one.obstacles.is_empty()).collect();
        let Some(first) = known.first() else { continue };
        let of = if first.is_time() { "times" } else { "rates" };
        let (ours, theirs) = names(&known);
        let (low, high) = reach(&known);
        let bound = match clearly((low, high)) {
            Ordering::Greater => format!("at least {}", at_least(low)),
            Ordering::Less => format!("at most {}", at_most(high)),
            Ordering::Equal => {
                format!("between {} and {}", quantity::digits(low, 2), quantity::digits(high, 2))
            }
        };
        let at = match (known.len(), scope.count(kind)) {
            (_, 1) => String::new(),
            (some, all) => format!(" at {some} of {all} {}", scope.noun),
        };
        let winner = Standing::of(&known).winner(first);
        return (format!(" The ratio of {of}, {ours} to {theirs}, is known{at}: {bound}."), winner);
    }
    (String::new(), None)
}

/// A reason as the end of a sentence.
fn ended(why: &str) -> String {
    if why.ends_with('.') { why.to_owned() } else { format!("{why}.") }
}

#[cfg(test)]
mod tests;
