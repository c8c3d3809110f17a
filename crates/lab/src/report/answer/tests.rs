//! Sentences of made-up comparisons.

use super::*;
use crate::worker::Driver;

fn compared(subject: Subject, label: &str, interval: (f64, f64)) -> ComparedFigure {
    ComparedFigure {
        workload: "ibm-fast".to_owned(),
        label: label.to_owned(),
        driver: Driver::Thalweg,
        subject,
        ours: "embedded".to_owned(),
        theirs: "apache-kafka".to_owned(),
        ratio: (interval.0 * interval.1).sqrt(),
        interval,
        pairs: 5,
        cpu: Some((0.1, 0.112)),
        obstacles: Vec::new(),
    }
}

fn said(all: &[ComparedFigure]) -> Answer {
    of_two(&all.iter().collect::<Vec<_>>(), false)
}

#[test]
fn the_weakest_end_of_the_weakest_figure_is_the_answer() {
    let all = [
        compared(Subject::Produce, "3 brokers", (6.1, 8.0)),
        compared(Subject::Consume, "6 brokers", (5.93, 7.0)),
        compared(Subject::Latency, "at a rate", (0.1, 0.2)),
    ];
    let answer = said(&all);
    assert_eq!(
        answer.sentence,
        "Thalweg carries at least 5.9 times what Apache Kafka does, at an eighth of the processor time."
    );
    assert_eq!(
        answer.basis,
        "The weakest of 2 comparisons: 6 brokers. The strongest: 3 brokers, 6.1 times. Latencies and backlogs have their \
         own cards."
    );
    assert!(answer.is_quotable);
}

#[test]
fn figures_that_may_not_be_quoted_are_no_answer() {
    let mut all = [compared(Subject::Produce, "3 brokers", (6.1, 8.0))];
    all[0].obstacles.push("a ratio needs 3 repetitions of each".to_owned());
    let answer = said(&all);
    assert_eq!(answer.sentence, "No ratio of Thalweg to Apache Kafka may be quoted from this run.");
    assert!(answer.basis.contains("3 brokers: a ratio needs 3") && !answer.is_quotable, "{answer:?}");
}

#[test]
fn a_slower_system_an_equal_one_and_a_mixture_are_said() {
    let rate = |low, high| compared(Subject::Produce, "3 brokers", (low, high));
    let sentence = |all: &[ComparedFigure]| said(all).sentence;
    assert_eq!(sentence(&[rate(0.4, 0.5)]), "Apache Kafka carries at least 2.0 times what Thalweg does.");
    assert_eq!(
        sentence(&[rate(0.9, 1.1)]),
        "No difference between Thalweg and Apache Kafka can be shown: the ratio is between 0.90 and 1.1."
    );
    assert_eq!(
        sentence(&[rate(0.9, 1.1), rate(2.0, 2.0)]),
        "Thalweg carries 0.99 to 2.0 times what Apache Kafka does, depending on the workload."
    );
}

#[test]
fn less_time_is_a_fraction() {
    let sentence = said(&[compared(Subject::Latency, "10,000/s", (0.1, 0.2))]).sentence;
    assert_eq!(
        sentence,
        "Thalweg delivers 99 of 100 records in at most a fifth of the time that Apache Kafka takes, at the same rate."
    );
    let sentence = said(&[compared(Subject::Drain, "a backlog", (2.0, 4.0))]).sentence;
    assert_eq!(sentence, "Apache Kafka drains the same backlog in at most half the time that Thalweg takes.");
}
