//! What speaks against a figure as a headline.
//!
//! No headline is printed when the point's figure ([`Subject`]) varies by more than 10 %, when a repetition is
//! shorter than 5 s or there are fewer than two, when they are more than 10 % from the knee that the search found,
//! when the generator was the limit, when evidence is against it, when records were given up, or when the host took
//! more than 5 % of the processors, or processes that are not of the run more than 15 %.

use super::others_share;
use crate::quantity;
use crate::result::{Knee, Machine, Repetition, Subject, Summary};
use crate::run::saturation::fell_behind;
use crate::workload::{Load, Point};

/// Variation of a figure beyond which it says too little.
const VARIATION_MAX: f64 = 0.10;
/// The shortest measurement that stands for more than its moment.
const MEASURED_S_MIN: f64 = 5.0;
/// A measurement ends with its last answer: what was asked to take so long may be this much shorter.
const MEASURED_TOLERANCE: f64 = 0.02;
/// Time that the host may take from this machine.
const STEAL_MAX: f64 = 0.05;
/// Of the processors, what those may take who have nothing to do with the run; the kernel's own work is among it.
const OTHERS_MAX: f64 = 0.15;

/// All of it, in words with figures.
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
        against.push("there is one repetition: nothing tells how far it varies".to_owned());
    }
    let figure = Subject::of(point).figure(summary);
    if let Some(spread) = summary.figures.get(figure).filter(|spread| spread.variation > VARIATION_MAX) {
        against.push(format!(
            "{figure} varies by {:.1} % over {} repetitions: at most {:.0} % would do",
            spread.variation * 100.0,
            spread.count,
            VARIATION_MAX * 100.0
        ));
    }
    let shortest = repetitions.iter().map(|repetition| repetition.measured_s).fold(f64::INFINITY, f64::min);
    if shortest < MEASURED_S_MIN * (1.0 - MEASURED_TOLERANCE) {
        against.push(format!(
            "a repetition took {shortest:.2} s: {MEASURED_S_MIN:.0} s would say more than its moment"
        ));
    }
    if limit == "generator CPU" {
        against.push("the generator was the limit: the target may well take more".to_owned());
    }
    let steal = repetitions.iter().map(|repetition| repetition.host.cpu_steal).fold(0.0, f64::max);
    if steal > STEAL_MAX {
        against.push(format!("the host took {:.1} % of the processors away", steal * 100.0));
    }
    let others = repetitions.iter().map(|repetition| others_share(repetition, machine)).fold(0.0, f64::max);
    if others > OTHERS_MAX {
        against.push(format!(
            "processes that are not of the run took {:.0} % of the processors",
            others * 100.0
        ));
    }
    for repetition in repetitions {
        let number = repetition.number + 1;
        if repetition.given_up > 0 {
            against.push(format!("repetition {number}: producers gave up {} records", repetition.given_up));
        }
        against
            .extend(repetition.evidence.faults.iter().map(|fault| format!("repetition {number}: {fault}")));
    }
    if let Load::Rate { records_per_s } = point.load {
        against.extend(repetitions.iter().filter_map(|repetition| {
            let taken = repetition.figures.produced_records_per_s?;
            let why = fell_behind(records_per_s, taken, &repetition.produced)?;
            Some(format!("repetition {}: the target fell behind: {why}", repetition.number + 1))
        }));
    }
    against
}

/// Where the repetitions with the load of the knee do not bear out what the search found.
pub(super) fn unlike(knee: &Knee, summary: &Summary) -> Option<String> {
    let found = knee.records_per_s;
    let taken = summary.figures.get("produced_records_per_s")?.mean;
    let apart = (taken / found - 1.0).abs();
    (apart > VARIATION_MAX).then(|| {
        format!(
            "the search found {} records/s, the repetitions with the same load took {}: at most {:.0} % between them \
             would do",
            quantity::number(found.round()),
            quantity::number(taken.round()),
            VARIATION_MAX * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{calm, limit, verdict};
    use super::*;
    use crate::result::Evidence;
    use crate::run::summary::summarize;
    use crate::run::testing::point;

    #[test]
    fn a_latency_is_no_headline_where_it_varies_though_the_rate_does_not() {
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
    fn a_knee_that_its_repetitions_do_not_bear_out_is_no_headline() {
        let summary = summarize(&[calm(120.0), calm(124.0)]).expect("readable");
        let unlike = |records_per_s| {
            let knee =
                Knee { records_per_s, low_records_per_s: 99.0, high_records_per_s: 125.0, producers: 3 };
            unlike(&knee, &summary)
        };
        assert_eq!(unlike(115.0), None);
        let said = unlike(100.0).expect("22 % apart");
        assert!(
            said.starts_with("the search found 100 records/s, the repetitions with the same load took 122:"),
            "{said}"
        );
    }

    #[test]
    fn a_headline_is_refused_with_its_reason() {
        let against = |change: fn(&mut Repetition), word: &str| {
            let verdict = limit(change);
            assert!(verdict.no_headline.iter().any(|reason| reason.contains(word)), "{word}: {verdict:?}");
        };
        against(|r| r.measured_s = 3.0, "took 3.00 s");
        against(|r| r.host.cpu_steal = 0.08, "8.0 %");
        against(|r| r.processes[1].busiest_thread = 0.96, "generator");
        against(|r| r.given_up = 3, "gave up 3");
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
