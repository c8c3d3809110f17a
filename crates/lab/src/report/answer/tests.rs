//! Sentences of made-up comparisons and results.

use super::tails::{ComparedLatency, LatencyKind};
use super::*;
use crate::report::testing;

fn scope_of(all: &[ComparedFigure]) -> Scope {
    Scope {
        several: false,
        by_driver: false,
        noun: "points",
        subjects: all.iter().map(|one| one.subject).collect(),
    }
}

fn headline_of(all: &[ComparedFigure]) -> Headline {
    of_two(&all.iter().collect::<Vec<_>>(), &scope_of(all))
}

fn sentence(all: &[ComparedFigure]) -> String {
    headline_of(all).answer.sentence
}

/// A point whose figures vary too much, and whose ratio is known all the same.
fn varying(subject: Subject, label: &str, interval: (f64, f64)) -> ComparedFigure {
    let mut one = compared_figure(subject, label, interval);
    one.figure_obstacles.push("Thalweg: the rate varies by 14.3 % over 5 repetitions".to_owned());
    one
}

fn rate(low: f64, high: f64) -> ComparedFigure {
    compared_figure(Subject::Produce, "3 brokers", (low, high))
}

fn time(low: f64, high: f64) -> ComparedFigure {
    compared_figure(Subject::Latency, "10,000/s", (low, high))
}

#[test]
fn the_weakest_end_of_the_weakest_figure_is_the_answer() {
    let all = [
        compared_figure(Subject::Produce, "3 brokers", (6.1, 8.0)),
        compared_figure(Subject::Consume, "6 brokers", (5.93, 7.0)),
        compared_figure(Subject::Latency, "at a rate", (0.1, 0.2)),
    ];
    let Headline { answer, points } = headline_of(&all);
    assert_eq!(
        answer.sentence,
        "At both points, Thalweg carries at least 5.9 times what Apache Kafka does, with at most an eighth of \
         the processor time per record."
    );
    assert_eq!(
        answer.basis,
        "The weakest: 6 brokers. The strongest: 3 brokers, at least 6.1 times. One more measures another \
         figure."
    );
    assert!(answer.is_quotable);
    let run = testing::run(&[("3 brokers", 1.0), ("6 brokers", 1.0), ("at a rate", 1.0)]);
    let workload = &run.workloads[0];
    let rests_on: Vec<bool> = workload.points.iter().map(|point| points.contain(workload, point)).collect();
    assert_eq!(rests_on, [true, true, true, true, false, false], "both systems at two points");
    assert_eq!(points.bound(workload), Some("6 brokers"));
}

#[test]
fn a_headline_rests_on_quotable_figures_only() {
    let all =
        [varying(Subject::Latency, "1 producer", (0.29, 0.48)), varying(Subject::Latency, "50", (0.2, 0.33))];
    let Headline { answer, points } = headline_of(&all);
    assert_eq!(
        answer.sentence,
        "No headline compares Thalweg with Apache Kafka: at none of 2 points may both figures and their \
         ratio be quoted."
    );
    assert_eq!(
        answer.basis,
        "1 producer: Thalweg: the rate varies by 14.3 % over 5 repetitions. The ratio of times, Thalweg to Apache \
         Kafka, is known at 2 of 2 points: at most 0.48."
    );
    assert!(!answer.is_quotable && points == QuotedPoints::default());
    // With one more point of another kind, that one is the headline.
    let sentence =
        sentence(&[all[0].clone(), all[1].clone(), compared_figure(Subject::Drain, "x", (0.1, 0.2))]);
    assert!(sentence.starts_with("Thalweg drains the same backlog in at most a fifth"), "{sentence}");
}

#[test]
fn a_single_point_that_may_not_be_quoted_is_no_answer() {
    let mut all = [rate(6.1, 8.0)];
    all[0].obstacles.push("a ratio needs 3 repetitions of each".to_owned());
    let answer = headline_of(&all).answer;
    assert_eq!(
        answer.sentence,
        "No headline compares Thalweg with Apache Kafka: the ratio may not be quoted."
    );
    assert_eq!(answer.basis, "3 brokers: a ratio needs 3 repetitions of each.");
    all[0].figure_obstacles.push("Thalweg: too short".to_owned());
    let answer = headline_of(&all).answer;
    assert!(answer.sentence.ends_with(": the figures may not be quoted."), "{answer:?}");
    assert_eq!(answer.basis, "3 brokers: Thalweg: too short.");
}

#[test]
fn a_headline_counts_its_points_and_needs_half_of_them() {
    let of = |quotable: usize, all: usize| {
        let points = (0..all).map(|number| match number < quotable {
            true => compared_figure(Subject::Produce, &format!("point {number}"), (3.4, 5.0)),
            false => varying(Subject::Produce, &format!("point {number}"), (0.5, 0.6)),
        });
        headline_of(&points.collect::<Vec<_>>()).answer
    };
    assert!(of(12, 17).sentence.starts_with("At 12 of 17 points, Thalweg carries at least 3.4 times what"));
    assert!(of(4, 4).sentence.starts_with("At all 4 points, Thalweg carries"));
    assert!(
        of(1, 1).sentence.starts_with("Thalweg carries") && of(1, 2).is_quotable && of(9, 17).is_quotable
    );
    let refused = of(1, 17);
    assert_eq!(
        refused.sentence,
        "No headline compares Thalweg with Apache Kafka: only at 1 of 17 points may both figures and their \
         ratio be quoted."
    );
    assert!(
        refused.basis.contains("point 1: Thalweg: the rate varies") && !of(8, 17).is_quotable,
        "{refused:?}"
    );
}

#[test]
fn points_without_figures_of_both_count_against_a_headline() {
    let all = [rate(6.1, 8.0)];
    let subjects = vec![Subject::Produce; 3];
    let scope = Scope { several: false, by_driver: true, noun: "comparisons", subjects };
    let answer = of_two(&all.iter().collect::<Vec<_>>(), &scope).answer;
    assert!(!answer.is_quotable && answer.sentence.contains("only at 1 of 3 comparisons"), "{answer:?}");
    assert!(answer.basis.starts_with("Without figures of both: 2 of 3."), "{answer:?}");
}

#[test]
fn a_slower_system_an_equal_one_and_a_mixture_have_sentences() {
    let slow = [rate(0.4, 0.5), compared_figure(Subject::Produce, "6 brokers", (0.2, 0.25))];
    assert_eq!(
        sentence(&slow),
        "At both points, Apache Kafka carries at least 2.0 times what Thalweg does, with at most 10 times the \
         processor time per record."
    );
    let basis = headline_of(&slow).answer.basis;
    assert_eq!(basis, "The weakest: 3 brokers. The strongest: 6 brokers, at least 4.0 times.");
    assert_eq!(
        sentence(&[rate(0.9, 1.1)]),
        "No difference between Thalweg and Apache Kafka can be shown: the ratio is between 0.90 and 1.1."
    );
    assert_eq!(
        sentence(&[rate(0.9, 1.1), rate(2.0, 2.0)]),
        "At both points, Thalweg carries 0.99 to 2.0 times what Apache Kafka does: more at 1, and no difference \
         can be shown at 1."
    );
    let mixed = [rate(0.9, 1.1), rate(2.0, 2.0), rate(0.4, 0.5)];
    assert!(sentence(&mixed).ends_with(": more at 1, less at 1, and no difference can be shown at 1."));
    assert!(sentence(&[rate(0.9, 1.1), rate(0.9, 1.1)]).starts_with("At both points, no difference between"));
    let basis = headline_of(&mixed).answer.basis;
    assert!(basis.starts_with("The lowest ratio: 3 brokers, 0.45. The highest: 3 brokers, 2.0."), "{basis}");
}

#[test]
fn processor_time_that_may_be_the_same_is_not_stated() {
    let with = |cpu: (f64, f64)| ComparedFigure { cpu: Some(cpu), ..rate(2.0, 3.0) };
    let bare = "Thalweg carries at least 2.0 times what Apache Kafka does.";
    assert_eq!(sentence(&[with((0.8, 1.3))]), bare);
    assert_eq!(sentence(&[with((0.9, 1.0))]), bare);
    let more = sentence(&[with((1.1, 1.3))]);
    assert!(more.ends_with(" does, with at most 1.3 times the processor time per record."), "{more}");
    let mixed = sentence(&[with((0.1, 0.2)), with((0.8, 1.3))]);
    assert!(!mixed.contains("processor time"), "{mixed}");
}

#[test]
fn less_time_is_a_fraction() {
    assert_eq!(
        sentence(&[time(0.1, 0.2)]),
        "Thalweg delivers 99 of 100 records in at most a fifth of the time that Apache Kafka takes, at the same rate."
    );
    let drain = |low, high| compared_figure(Subject::Drain, "a backlog", (low, high));
    assert_eq!(
        sentence(&[drain(2.0, 4.0)]),
        "Apache Kafka drains the same backlog in at most half the time that Thalweg takes."
    );
    assert_eq!(
        sentence(&[time(0.8, 1.2)]),
        "No difference between Thalweg and Apache Kafka can be shown: the ratio of the times is between 0.80 and \
         1.2."
    );
    let basis = |all: &[ComparedFigure]| headline_of(all).answer.basis;
    assert_eq!(
        basis(&[time(0.1, 0.2), compared_figure(Subject::Latency, "calm", (0.01, 0.05))]),
        "The weakest: 10,000/s. The strongest: calm, at most 0.050 of the time."
    );
    assert_eq!(
        basis(&[time(2.0, 4.0), compared_figure(Subject::Latency, "calm", (8.0, 9.0))]),
        "The weakest: 10,000/s. The strongest: calm, at most 0.13 of the time."
    );
    let mixed = sentence(&[time(0.1, 0.2), time(2.0, 2.0)]);
    assert!(
        mixed.contains("0.14 to 2.0 times the time that") && mixed.ends_with("more at 1, and less at 1."),
        "{mixed}"
    );
}

#[test]
fn acknowledgements_are_no_deliveries() {
    let acknowledged = ComparedFigure { figure: "acknowledge_p99_us", ..time(0.1, 0.2) };
    let alone = sentence(std::slice::from_ref(&acknowledged));
    assert!(alone.starts_with("Thalweg acknowledges 99 of 100 records in"), "{alone}");
    let both = sentence(&[acknowledged, time(0.1, 0.2)]);
    assert!(both.starts_with("At both points, Thalweg acknowledges or delivers 99 of 100"), "{both}");
}

#[test]
fn crossing_tails_are_mentioned() {
    let latency = |kind, percentiles: &[(&'static str, bool)]| ComparedLatency {
        kind,
        percentiles: percentiles.to_vec(),
    };
    let mut all = [time(0.1, 0.2), compared_figure(Subject::Latency, "1,000/s", (0.1, 0.2)), rate(2.0, 3.0)];
    let crossing = latency(LatencyKind::EndToEnd, &[("p50", true), ("p99", true), ("p99.9", false)]);
    all[0].latencies.push(crossing.clone());
    all[1].latencies.push(crossing);
    all[2].latencies.push(latency(LatencyKind::UntilAcknowledged, &[("p50", true), ("p99.9", true)]));
    let basis = headline_of(&all[..2]).answer.basis;
    assert!(
        basis
            .ends_with(" But Thalweg delivers sooner at p50, Apache Kafka at p99.9 at 10,000/s and 1,000/s."),
        "{basis}"
    );
    assert!(!headline_of(&all[2..]).answer.basis.contains("But"), "the winner's is lower throughout");
    all[2].latencies[0] = latency(LatencyKind::UntilAcknowledged, &[("p50", false), ("p99", false)]);
    let basis = headline_of(&all[2..]).answer.basis;
    let note = " But Apache Kafka acknowledges sooner (p50, p99), each at its own rate, at 3 brokers.";
    assert!(basis.ends_with(note), "{basis}");
    // Also without a headline, as long as a ratio is known.
    all[2].figure_obstacles.push("Thalweg: too short".to_owned());
    assert!(headline_of(&all[2..]).answer.basis.ends_with(note));
    all[2].obstacles.push("Thalweg: too short".to_owned());
    assert!(!headline_of(&all[2..]).answer.basis.contains("But"));
    all[0].figure_obstacles.push("Thalweg: too short".to_owned());
    all[1].figure_obstacles.push("Thalweg: too short".to_owned());
    let Answer { basis, is_quotable, .. } = headline_of(&all[..2]).answer;
    assert!(
        !is_quotable && basis.contains(" But Thalweg delivers sooner at p50, Apache Kafka at p99.9"),
        "{basis}"
    );
}

#[test]
fn points_that_may_not_be_quoted_do_not_contrast_with_a_headline() {
    let mut all = [rate(2.0, 3.0), compared_figure(Subject::Produce, "6 brokers", (2.0, 3.0))];
    let percentiles = vec![("p50", false)];
    all[1].latencies.push(ComparedLatency { kind: LatencyKind::EndToEnd, percentiles });
    let basis = headline_of(&all).answer.basis;
    assert!(basis.contains(" But Apache Kafka delivers sooner (p50)"), "{basis}");
    all[1].obstacles.push("Thalweg: too short".to_owned());
    let answer = headline_of(&all).answer;
    assert!(answer.is_quotable && !answer.basis.contains("But"), "{answer:?}");
}

#[test]
fn crossing_tails_are_found_in_repetitions() {
    let of = |ours: [f64; 2], theirs: [f64; 2]| {
        let mut run = testing::run(&[("3 brokers", 2.0)]);
        for (point, [p50, p999]) in run.workloads[0].points.iter_mut().zip([ours, theirs]) {
            for (repetition, noise) in point.repetitions.iter_mut().zip([1.0, 1.01, 0.99]) {
                repetition.figures.acknowledge_p50_us = Some(p50 * noise);
                repetition.figures.acknowledge_p999_us = Some(p999 * noise);
            }
        }
        answer(&run).basis
    };
    assert!(
        of([1.0, 9.0], [2.0, 5.0]).contains("But Thalweg acknowledges sooner at p50, Apache Kafka at p99.9")
    );
    assert!(
        of([3.0, 4.0], [2.0, 5.0]).contains("But Apache Kafka acknowledges sooner at p50, Thalweg at p99.9")
    );
    assert!(!of([1.0, 5.0], [2.0, 5.0]).contains("But"), "equal tails do not cross");
}

#[test]
fn other_pairs_of_systems_are_mentioned() {
    let mut run = testing::run(&[("3 brokers", 2.0)]);
    let mut third = run.workloads[0].points[1].clone();
    third.target = "other:9092".to_owned();
    run.workloads[0].points.push(third);
    let basis = answer(&run).basis;
    assert!(basis.ends_with(" Other pairs of systems have their own ratios."), "{basis}");
}

/// One system of a run.
fn alone(points: &[(&str, f64)]) -> RunResult {
    let mut run = testing::run(points);
    run.workloads[0].points.retain(|point| point.target == "embedded");
    run
}

#[test]
fn one_system_has_the_range_of_its_quotable_figures() {
    let one = answer(&alone(&[("3 brokers", 2.0)]));
    assert_eq!(one.sentence, "Thalweg carries 200 records per second.");
    assert_eq!(one.basis, "Measured at 3 brokers: the mean of 3 repetitions, ± 1.0 %.");
    let mut run = alone(&[("3 brokers", 2.0), ("6 brokers", 4.0), ("9 brokers", 9.0)]);
    assert_eq!(answer(&run).sentence, "At all 3 points, Thalweg carries 200 to 900 records per second.");
    run.workloads[0].points[2].verdict.no_headline.push("the host was busy".to_owned());
    let two = answer(&run);
    assert_eq!(two.sentence, "At 2 of 3 points, Thalweg carries 200 to 400 records per second.");
    assert!(two.basis.starts_with("The highest at 6 brokers: "), "{two:?}");
    run.workloads[0].points[1].verdict.no_headline.push("the host was busy".to_owned());
    let refused = answer(&run);
    assert_eq!(refused.sentence, "No headline for Thalweg: only 1 of 3 points may be quoted.");
    assert_eq!(refused.basis, "6 brokers: the host was busy.");
    run.workloads[0].points[0].verdict.no_headline.push("the host was busy".to_owned());
    let refused = answer(&run);
    assert_eq!(refused.sentence, "No figure of Thalweg may be quoted from this run.");
    assert!(refused.basis == "3 brokers: the host was busy." && !refused.is_quotable, "{refused:?}");
}

#[test]
fn a_system_beside_one_without_figures_is_no_comparison() {
    let mut run = testing::run(&[("3 brokers", 2.0)]);
    let failed = &mut run.workloads[0].points[1];
    (failed.repetitions, failed.summary) = (Vec::new(), Default::default());
    failed.failure = Some("broker-1 died".to_owned());
    let one = answer(&run);
    assert_eq!(one.sentence, "Thalweg carries 200 records per second.");
    assert!(one.basis.ends_with(" Apache Kafka has no figure to compare."), "{one:?}");
}

#[test]
fn a_knee_is_found_by_a_search_and_drivers_are_named() {
    let mut run = alone(&[("3 brokers", 2.0)]);
    let point = &mut run.workloads[0].points[0];
    point.point.load = crate::workload::Load::AddProducers { producers_max: 4, gain_min: 0.03 };
    point.knee = Some(crate::result::Knee {
        records_per_s: 210.0,
        low_records_per_s: 205.0,
        high_records_per_s: 215.0,
        producers: 2,
    });
    let knee = answer(&run);
    assert_eq!(knee.sentence, "Thalweg carries 210 records per second.");
    assert_eq!(knee.basis, "Measured at 3 brokers: found by a search; 3 repetitions of its load, ± 1.0 %.");
    let mut other = run.workloads[0].points[0].clone();
    other.driver = Driver::Java;
    run.workloads[0].points.push(other);
    let two = answer(&run);
    assert_eq!(two.sentence, "At both measurements, Thalweg carries 210 records per second.");
    assert!(two.basis.contains("3 brokers, with the client "), "{two:?}");
}
