//! A single broker whose disk fails one call, or has a full directory. The short form takes a call of each
//! kind; the long one takes all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use thalweg_sim::{MadeCall, Trial, TrialOutcome};

/// Time limit of the short form, on any machine.
const TIME: Duration = Duration::from_secs(6);
/// How many failures there are at least in that time.
const TRIALS_MIN: usize = 5;

fn on_a_thread_of_its_own<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(work).join().expect("a trial does not panic")
}

fn whole(seed: u64) -> TrialOutcome {
    on_a_thread_of_its_own(move || Trial::of(seed).run())
}

fn fails_well(seed: u64, number: usize, whole: &TrialOutcome) {
    let trial = Trial::of(seed).failing(number, whole);
    let outcome = on_a_thread_of_its_own(move || trial.run());
    let TrialOutcome { failed, violations, lines, .. } = &outcome;
    let hint = format!("cargo run -p thalweg-sim -- --failing-calls --seeds {seed} --call {number}");
    assert!(failed.is_some(), "the call was not made again: {hint}");
    assert!(violations.is_empty(), "{hint}\n{failed:?}, {:?}\n{violations:#?}\n{lines:#?}", trial.failed);
}

#[test]
fn a_trial_without_a_failure_goes_the_same_way_twice() {
    let (first, second) = (whole(0), whole(0));
    assert_eq!(first.violations, [""; 0]);
    assert!(first.acknowledged > 100 && first.calls.len() > 1000, "something happens");
    // The order of independent calls may differ, as names that are listed have no order.
    let kinds = |outcome: &TrialOutcome| {
        let mut kinds = BTreeMap::new();
        outcome.calls.iter().for_each(|made| *kinds.entry((made.life, made.class())).or_insert(0) += 1);
        kinds
    };
    assert_eq!(kinds(&first), kinds(&second));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long the test itself takes")]
fn a_call_of_each_kind_fails_once_and_nothing_acknowledged_is_lost() {
    let began = Instant::now();
    let mut seen = BTreeSet::new();
    let mut trials = 0;
    for seed in 0..2 {
        let whole = whole(seed);
        assert_eq!(whole.violations, [""; 0], "seed {seed} without a failure");
        let firsts = whole.calls.iter().enumerate().filter(|(_, made)| seen.insert(made.class()));
        let mut numbers: Vec<_> = firsts.map(|(number, _)| number).collect();
        // From all over the run, if the time is not enough for all.
        numbers.sort_by_key(|number| number.wrapping_mul(0x9e37_79b9) % 1009);
        for number in numbers {
            if trials >= TRIALS_MIN && began.elapsed() > TIME {
                return;
            }
            fails_well(seed, number, &whole);
            trials += 1;
        }
    }
}

#[test]
#[ignore = "half an hour: cargo test -p thalweg-sim --test it every_call -- --ignored"]
fn every_call_fails_once_and_nothing_acknowledged_is_lost() {
    for seed in 0..2 {
        let whole = whole(seed);
        (0..whole.calls.len()).for_each(|number| fails_well(seed, number, &whole));
    }
}

#[test]
fn a_full_directory_stops_no_partition_of_another() {
    for seed in 0..3 {
        let trial = Trial::of(seed).with_full_dir();
        let outcome = on_a_thread_of_its_own(move || trial.run());
        let hint = format!("cargo run -p thalweg-sim -- --full-dir --seeds {seed}");
        assert_eq!(outcome.violations, [""; 0], "{hint}");
    }
}

#[test]
fn every_kind_of_call_is_made() {
    let classes: BTreeSet<_> = whole(0).calls.iter().map(MadeCall::class).collect();
    for class in [
        "Write log/#.log",
        "Rename log/#.log",
        "Remove log/#.log.deleted",
        "Write future/#.log",
        "Rename metadata/#.#.checkpoint.tmp",
        "Write log/#.txnindex",
        "List dir/kept.#",
    ] {
        assert!(classes.contains(class), "{class} is not among {classes:#?}");
    }
}
