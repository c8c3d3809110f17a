//! The answer of a run: one sentence for a manager, which leads the page, the Markdown and the table on a
//! terminal.
//!
//! With two systems, the answer is the most conservative ratio: the weakest of all quotable pairs of figures,
//! at the weaker end of its interval, rounded towards 1. With one system, it is the best figure with its
//! spread. If no figure is quotable, the sentence gives the reason.

mod comparison;
mod words;

pub(super) use comparison::{ComparedFigure, at_most, compared};

use super::headline::obstacles;
use super::text::clean;
use crate::quantity;
use crate::result::{PointResult, RunResult, Subject, WorkloadResult, system};
use words::{at_least, fraction};

/// The sentence, and its basis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// One sentence.
    pub sentence: String,
    /// The basis of the sentence: one or two sentences; empty if there is nothing to add.
    pub basis: String,
    /// True if the sentence states a quotable figure.
    pub is_quotable: bool,
}

/// The answer of a run.
pub fn answer(run: &RunResult) -> Answer {
    let workloads: Vec<&WorkloadResult> = run.workloads.iter().collect();
    of(&workloads, &compared(run))
}

/// The answer of one workload of a run.
pub(super) fn of_workload(workload: &WorkloadResult, all: &[ComparedFigure]) -> Answer {
    let own: Vec<ComparedFigure> =
        all.iter().filter(|one| one.workload == workload.workload.name).cloned().collect();
    of(&[workload], &own)
}

fn of(workloads: &[&WorkloadResult], compared: &[ComparedFigure]) -> Answer {
    if workloads.iter().all(|workload| workload.points.is_empty()) {
        return refusal("Nothing was measured.".to_owned(), String::new());
    }
    match compared.first() {
        Some(first) => {
            let (ours, theirs) = (first.ours.clone(), first.theirs.clone());
            let same = compared.iter().filter(|one| one.ours == ours && one.theirs == theirs);
            of_two(&same.collect::<Vec<_>>(), workloads.len() > 1)
        }
        None => of_one(workloads),
    }
}

fn refusal(sentence: String, basis: String) -> Answer {
    Answer { sentence, basis, is_quotable: false }
}

/// Two systems, by the first kind of figure that has a quotable pair.
fn of_two(all: &[&ComparedFigure], several: bool) -> Answer {
    let kinds: [&[Subject]; 3] =
        [&[Subject::Knee, Subject::Produce, Subject::Consume], &[Subject::Latency], &[Subject::Drain]];
    for kind in kinds {
        let about: Vec<&ComparedFigure> =
            all.iter().copied().filter(|one| kind.contains(&one.subject)).collect();
        let quotable: Vec<&ComparedFigure> =
            about.iter().copied().filter(|one| one.obstacles.is_empty()).collect();
        if !quotable.is_empty() {
            let sentence = match kind[0] {
                Subject::Latency => sooner(&quotable, "delivers 99 of 100 records", ", at the same rate"),
                Subject::Drain => sooner(&quotable, "drains the same backlog", ""),
                _ => carries(&quotable),
            };
            let refused = all.iter().filter(|one| !one.obstacles.is_empty()).count();
            let others = all.len() - refused - quotable.len();
            let basis = basis(&quotable, (refused, others), several);
            return Answer { sentence, basis, is_quotable: true };
        }
    }
    let (ours, theirs) = (system(&all[0].ours), system(&all[0].theirs));
    let why = all[0].obstacles.first().cloned().unwrap_or_default();
    let more = match all.len() {
        1 => String::new(),
        count => format!(" None of {count} comparisons may be."),
    };
    let sentence = format!("No ratio of {ours} to {theirs} may be quoted from this run.");
    refusal(clean(&sentence), clean(&format!("{}: {why}.{more}", all[0].name(several))))
}

/// More records: at least this many times as many, by the weakest of all pairs.
fn carries(all: &[&ComparedFigure]) -> String {
    let (ours, theirs) = names(all);
    let low = all.iter().map(|one| one.interval.0).fold(f64::INFINITY, f64::min);
    let high = all.iter().map(|one| one.interval.1).fold(0.0, f64::max);
    let is_clear = |one: &&&ComparedFigure| one.interval.0 > 1.0;
    match (low, high) {
        (low, _) if low > 1.0 => {
            let cost = cpu_of(all, |one| one.cpu).map(|cpu| format!(", at {} processor time", fraction(cpu)));
            format!(
                "{ours} carries at least {} times what {theirs} does{}.",
                at_least(low),
                cost.unwrap_or_default()
            )
        }
        (_, high) if high < 1.0 => {
            format!("{theirs} carries at least {} times what {ours} does.", at_least(1.0 / high))
        }
        _ if all.iter().any(|one| is_clear(&one) || one.interval.1 < 1.0) => {
            let ratios = || all.iter().map(|one| one.ratio);
            format!(
                "{ours} carries {} to {} times what {theirs} does, depending on the workload.",
                quantity::digits(ratios().fold(f64::INFINITY, f64::min), 2),
                quantity::digits(ratios().fold(0.0, f64::max), 2)
            )
        }
        _ => format!(
            "No difference between {ours} and {theirs} can be shown: the ratio is between {} and {}.",
            quantity::digits(low, 2),
            quantity::digits(high, 2)
        ),
    }
}

/// Less time: at most this fraction, by the weakest of all pairs.
fn sooner(all: &[&ComparedFigure], does: &str, condition: &str) -> String {
    let (ours, theirs) = names(all);
    let low = all.iter().map(|one| one.interval.0).fold(f64::INFINITY, f64::min);
    let high = all.iter().map(|one| one.interval.1).fold(0.0, f64::max);
    match (low, high) {
        (_, high) if high < 1.0 => {
            format!("{ours} {does} in at most {} time that {theirs} takes{condition}.", fraction(high))
        }
        (low, _) if low > 1.0 => {
            format!("{theirs} {does} in at most {} time that {ours} takes{condition}.", fraction(1.0 / low))
        }
        (low, high) => format!(
            "{ours} {does} in {} to {} times the time that {theirs} takes{condition}.",
            quantity::digits(low, 2),
            quantity::digits(high, 2)
        ),
    }
}

fn names(all: &[&ComparedFigure]) -> (String, String) {
    (clean(system(&all[0].ours)), clean(system(&all[0].theirs)))
}

/// The largest upper end of all intervals; `None` if any is missing.
fn cpu_of(all: &[&ComparedFigure], of: fn(&ComparedFigure) -> Option<(f64, f64)>) -> Option<f64> {
    all.iter().map(|one| of(one).map(|(_, high)| high)).try_fold(0.0, |most, cpu| Some(f64::max(most, cpu?)))
}

fn basis(quotable: &[&ComparedFigure], (refused, others): (usize, usize), several: bool) -> String {
    let strength = |one: &ComparedFigure| match one.subject {
        Subject::Latency | Subject::Drain => 1.0 / one.interval.1,
        _ => one.interval.0,
    };
    let weakest = quotable.iter().min_by(|a, b| strength(a).total_cmp(&strength(b))).expect("not empty");
    let strongest = quotable.iter().max_by(|a, b| strength(a).total_cmp(&strength(b))).expect("not empty");
    let mut text = match quotable.len() {
        1 => match weakest.pairs {
            0 => format!("Measured at {}.", weakest.name(several)),
            pairs => format!("Measured at {}, in {pairs} turns.", weakest.name(several)),
        },
        count => format!(
            "The weakest of {count} comparisons: {}. The strongest: {}, {} times.",
            weakest.name(several),
            strongest.name(several),
            at_least(strength(strongest))
        ),
    };
    if others > 0 {
        text += " Latencies and backlogs have their own cards.";
    }
    match refused {
        0 => {}
        1 => text += " One comparison may not be quoted.",
        more => text += &format!(" {more} comparisons may not be quoted."),
    }
    clean(&text)
}

/// One system: its best quotable figure.
fn of_one(workloads: &[&WorkloadResult]) -> Answer {
    let points: Vec<(&WorkloadResult, &PointResult)> = workloads
        .iter()
        .flat_map(|workload| workload.points.iter().map(move |point| (*workload, point)))
        .collect();
    let quotable = points.iter().filter(|(_, point)| obstacles(point).is_empty());
    let best = quotable.filter_map(|(workload, point)| {
        let subject = Subject::of(&point.point);
        Some((*workload, *point, subject, subject.value(point)?))
    });
    let rank = |subject: Subject, value: f64| match subject {
        Subject::Knee | Subject::Produce => (2, value),
        Subject::Consume => (1, value),
        Subject::Latency | Subject::Drain => (0, -value),
    };
    let best = best.max_by(|a, b| {
        let (a, b) = (rank(a.2, a.3), rank(b.2, b.3));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let place = |workload: &WorkloadResult, point: &PointResult| match workloads.len() {
        1 => point.point.label.clone(),
        _ => format!("{}, {}", workload.workload.name, point.point.label),
    };
    let Some((workload, point, subject, value)) = best else {
        let (workload, point) = points[0];
        let why = obstacles(point).first().cloned().unwrap_or_else(|| "nothing was measured".to_owned());
        let sentence = format!("No figure of {} may be quoted from this run.", system(&point.target));
        return refusal(clean(&sentence), clean(&format!("{}: {why}.", place(workload, point))));
    };
    let name = system(&point.target);
    let sentence = match subject {
        Subject::Latency => format!("{name} delivers 99 of 100 records within {}.", subject.text(value)),
        Subject::Drain => format!("{name} drains the backlog in {}.", subject.text(value)),
        Subject::Consume => format!("{name} delivers {} records per second.", subject.text(value)),
        Subject::Knee | Subject::Produce => {
            format!("{name} carries {} records per second.", subject.text(value))
        }
    };
    let spread = point.summary.figures.get(subject.figure(&point.summary));
    let spread = spread.map_or_else(String::new, |spread| {
        format!(" The mean of {} repetitions, ± {}.", spread.count, quantity::percent(spread.variation))
    });
    let by = match points.iter().all(|(_, other)| other.driver == point.driver) {
        true => String::new(),
        false => format!(", with the client {}", point.driver.words()),
    };
    let basis = format!("Measured at {}{by}.{spread}", place(workload, point));
    Answer { sentence: clean(&sentence), basis: clean(&basis), is_quotable: true }
}

#[cfg(test)]
mod tests;
