//! Objections to quoting a figure.
//!
//! A figure is not quotable if the point's main figure ([`Subject`]) varies by more than 10 %, if a
//! repetition is shorter than 5 s, if there are fewer than two repetitions, if these differ by more than 10 %
//! from the knee that the search found, if the generator was the limit, if the evidence contradicts it, if
//! records failed, if consumers got less than 95 % of what was produced, or if the hypervisor took more than
//! 5 % of the processors, or processes outside the run more than 15 %. That of each agent's machine, too.

use super::{agents, others_share};
use crate::quantity;
use crate::result::{
    GENERATOR, Knee, Machine, ONCE, Repetition, Subject, Summary, VARIATION_MAX, consumers_fell_behind,
    varies,
};
use crate::run::saturation::fell_behind;
use crate::workload::{Load, Point};

/// Minimum share of temporary topics that must have been ready.
const TOPICS_READY_MIN: f64 = 0.95;
/// Minimum length of a measurement.
const MEASURED_S_MIN: f64 = 5.0;
/// Tolerance of the length: a measurement ends with its last answer, so it may be this much shorter than
/// specified.
const MEASURED_TOLERANCE: f64 = 0.02;
/// Maximum share of processors taken by the hypervisor (steal).
pub(super) const STEAL_MAX: f64 = 0.05;
/// Maximum share of processors used by processes outside the run, including the kernel's own work.
pub(super) const OTHERS_MAX: f64 = 0.15;

/// All objections, as text with figures.
pub(super) fn objections(
    point: &Point,
    repetitions: &[Repetition],
    summary: &Summary,
    machine: &Machine,
    limit: &str,
) -> Vec<String> {
    let mut against = Vec::new();
    if repetitions.is_empty() {
        return vec!["nothing was measured".to_owned()];
    }
    if repetitions.len() < 2 {
        against.push(ONCE.to_owned());
    }
    let figure = Subject::of(point).figure(summary);
    if let Some(spread) = summary.figures.get(figure).filter(|spread| spread.variation > VARIATION_MAX) {
        against.push(varies(figure, spread.variation, spread.count, VARIATION_MAX));
    }
    let shortest = repetitions.iter().map(|repetition| repetition.measured_s).fold(f64::INFINITY, f64::min);
    if shortest < MEASURED_S_MIN * (1.0 - MEASURED_TOLERANCE) {
        against.push(format!("a repetition took only {shortest:.2} s; the minimum is {MEASURED_S_MIN:.0} s"));
    }
    if limit == "generator CPU" {
        against.push(GENERATOR.to_owned());
    }
    let steal = repetitions.iter().map(|repetition| repetition.host.cpu_steal).fold(0.0, f64::max);
    if steal > STEAL_MAX {
        against.push(format!("the hypervisor took {:.1} % of the processors", steal * 100.0));
    }
    let others = repetitions.iter().map(|repetition| others_share(repetition, machine)).fold(0.0, f64::max);
    if others > OTHERS_MAX {
        against.push(format!("processes outside the run used {:.0} % of the processors", others * 100.0));
    }
    for repetition in repetitions {
        let number = repetition.number + 1;
        if repetition.given_up > 0 {
            against.push(format!(
                "repetition {number}: producers failed to send {} records",
                repetition.given_up
            ));
        }
        against
            .extend(repetition.evidence.faults.iter().map(|fault| format!("repetition {number}: {fault}")));
    }
    let requested = f64::from(point.topics.created_per_s);
    against.extend(repetitions.iter().filter_map(|repetition| {
        let ready =
            repetition.figures.topics_ready_per_s.filter(|ready| *ready < requested * TOPICS_READY_MIN)?;
        let (number, ready) = (repetition.number + 1, quantity::number(ready));
        Some(format!(
            "repetition {number}: the target fell behind: {ready} of {requested} topics a second were ready"
        ))
    }));
    if let Load::Rate { records_per_s } = point.load {
        against.extend(repetitions.iter().filter_map(|repetition| {
            let taken = repetition.figures.produced_records_per_s?;
            let why = fell_behind(records_per_s, taken, &repetition.produced)?;
            Some(format!("repetition {}: the target fell behind: {why}", repetition.number + 1))
        }));
    }
    against.extend(agents::objections(point, repetitions, summary));
    against.extend(repetitions.iter().filter_map(|repetition| {
        let why = consumers_fell_behind(&repetition.figures)?;
        Some(format!("repetition {}: {why}", repetition.number + 1))
    }));
    against
}

/// The contradiction between the repetitions at the knee's load and the search; `None` if they agree.
pub(super) fn unlike(knee: &Knee, summary: &Summary) -> Option<String> {
    let found = knee.records_per_s;
    let taken = summary.figures.get(Subject::Knee.figure(summary))?.mean;
    let apart = (taken / found - 1.0).abs();
    (apart > VARIATION_MAX).then(|| {
        format!(
            "the search found {} records/s, but the repetitions with the same load reached {}; they may differ by at \
             most {:.0} %",
            quantity::number(found.round()),
            quantity::number(taken.round()),
            VARIATION_MAX * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Evidence;
    use crate::result::testing::point;
    use crate::run::summary::summarize;
    use crate::run::verdict::tests::{calm, limit, verdict};

    #[test]
    fn a_varying_latency_is_no_headline_even_if_the_rate_is_steady() {
        let mut point = point();
        point.load = Load::Rate { records_per_s: 100.0 };
        let repetition = |p99_us| {
            let mut repetition = calm(100.0);
            repetition.figures.end_to_end_p99_us = Some(p99_us);
            repetition
        };
        assert_eq!(
            verdict(&point, &[repetition(900.0), repetition(950.0)]).no_headline,
            Vec::<String>::new()
        );
        let varies = verdict(&point, &[repetition(900.0), repetition(1300.0)]);
        assert!(varies.no_headline[0].starts_with("end_to_end_p99_us varies by 25.7 %"), "{varies:?}");
    }

    #[test]
    fn a_knee_that_its_repetitions_contradict_is_no_headline() {
        let summary = summarize(&[calm(120.0), calm(124.0)]).expect("readable");
        let unlike = |records_per_s| {
            let knee =
                Knee { records_per_s, low_records_per_s: 99.0, high_records_per_s: 125.0, producers: 3 };
            unlike(&knee, &summary)
        };
        assert_eq!(unlike(115.0), None);
        let note = unlike(100.0).expect("22 % apart");
        assert!(
            note.starts_with(
                "the search found 100 records/s, but the repetitions with the same load reached 122; they may differ by at most 10 %"
            ),
            "{note}"
        );
    }

    #[test]
    fn a_headline_is_refused_with_its_reason() {
        let against = |change: fn(&mut Repetition), word: &str| {
            let verdict = limit(change);
            assert!(verdict.no_headline.iter().any(|reason| reason.contains(word)), "{word}: {verdict:?}");
        };
        against(|r| r.measured_s = 3.0, "took only 3.00 s");
        against(|r| r.host.cpu_steal = 0.08, "8.0 %");
        against(|r| r.processes[1].busiest_thread = 0.96, "generator");
        against(|r| r.given_up = 3, "failed to send 3");
        against(
            |r| {
                r.figures.consumed_records_per_s = Some(33.0);
                r.figures.set_carried(1);
            },
            "repetition 1: consumers fell behind: 33.0 of 100 records/s were consumed (33 %)",
        );
        against(
            |r| r.evidence = Evidence { faults: vec!["7 records lost".to_owned()], ..Evidence::default() },
            "7 records lost",
        );
        assert_eq!(limit(|_| ()).no_headline, Vec::<String>::new());
        let mut point = point();
        point.topics.partitions = 6;
        let varies = verdict(&point, &[calm(100.0), calm(140.0)]);
        assert!(varies.no_headline[0].contains("varies"), "{varies:?}");
        let once = verdict(&point, &[calm(100.0)]);
        assert!(once.no_headline[0].contains("one repetition"), "{once:?}");
        assert_eq!(verdict(&point, &[]).no_headline, ["nothing was measured"]);
    }
}
