//! The simulation, over seeds: the same way each time, nothing acknowledged is lost, and a broken disk is
//! found out.

mod disk_trials;
mod regressions;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thalweg_sim::{FaultKind, Outcome, Plan, run, run_plan};

/// Maximum number of seeds run here; `scripts/test` runs more of them, faster.
const SEEDS: u64 = 40;
/// Minimum number of seeds, whatever the time: some have no transaction.
const SEEDS_MIN: u64 = 16;
/// Seeds of runs in which coordinators succeed each other.
const SUCCESSIONS: u64 = 8;
/// Time limit here, on any machine.
const TIME: Duration = Duration::from_secs(10);

fn on_a_thread_of_its_own<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(work).join().expect("a simulation does not panic")
}

#[test]
fn the_same_seed_goes_the_same_way() {
    let [first, second, other] = on_a_thread_of_its_own(|| [4, 4, 5].map(run));
    assert!(first.messages > 1000 && first.acknowledged > 0, "something happens");
    assert_eq!(first.digest, second.digest, "cargo run -p thalweg-sim -- --seeds 4 --twice");
    assert_ne!(first.digest, other.digest, "another seed goes another way");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long the test itself takes")]
fn nothing_acknowledged_is_lost() {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(4);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let runners: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut outcomes = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= SEEDS || (seed >= SEEDS_MIN && began.elapsed() > TIME) {
                            return outcomes;
                        }
                        outcomes.push(run(seed));
                    }
                })
            })
            .collect();
        runners.into_iter().flat_map(|runner| runner.join().expect("a simulation does not panic")).collect()
    });
    for outcome in &outcomes {
        let Outcome { seed, violations, unrest, .. } = outcome;
        assert!(violations.is_empty(), "cargo run -p thalweg-sim -- --seeds {seed}\n{violations:#?}");
        assert_eq!(*unrest, None, "cargo run -p thalweg-sim -- --seeds {seed}");
    }
    assert!(
        outcomes
            .iter()
            .any(|outcome| outcome.acknowledged > 0 && outcome.committed > 0 && outcome.faults > 0),
        "something was done"
    );
    assert!(outcomes.iter().any(|outcome| outcome.streamed > 100), "tasks of a streams group were owned");
}

#[test]
fn plans_lose_replicas_with_and_without_eligible_leader_replicas() {
    for kind in FaultKind::OF_LOST_REPLICAS {
        for elr in [false, true] {
            let count =
                (0..200).map(Plan::of).filter(|plan| plan.elr == elr && plan.kinds.contains(&kind)).count();
            assert!(count > 10, "{kind:?} with elr {elr}: {count} of 200 seeds");
        }
    }
}

#[test]
fn plans_have_streams_groups_with_both_kinds_of_repartition_topics() {
    for follows_source in [false, true] {
        let is_it = |plan: &Plan| plan.streams_members > 1 && (plan.repartitions == 0) == follows_source;
        let count = (0..200).map(Plan::of).filter(is_it).count();
        assert!(count > 20, "as many partitions as the source: {follows_source}: {count} of 200 seeds");
    }
}

#[test]
fn a_transaction_outlives_its_coordinators() {
    let outcome = |seed| run_plan(seed, Plan::of(seed).of_successions());
    let runners: Vec<_> = (0..2)
        .map(|first| {
            std::thread::spawn(move || (first..SUCCESSIONS).step_by(2).map(outcome).collect::<Vec<_>>())
        })
        .collect();
    let outcomes: Vec<Outcome> =
        runners.into_iter().flat_map(|runner| runner.join().expect("a simulation does not panic")).collect();
    for Outcome { seed, violations, unrest, .. } in &outcomes {
        assert_eq!((violations, unrest), (&Vec::new(), &None), "seed {seed}");
    }
    let count = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert!(count(|run| run.faults) >= SUCCESSIONS && count(|run| run.committed) > 10, "something happened");
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    let outcome = |seed, syncs_lie| {
        let plan = Plan { kinds: vec![FaultKind::PowerFailures], flushes: true, syncs_lie, ..Plan::of(seed) };
        on_a_thread_of_its_own(move || run_plan(seed, plan))
    };
    let finds = |seed| !outcome(seed, true).violations.is_empty();
    let found = (0..100).step_by(2).find_map(|seed| {
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(|| finds(seed + 1));
            (finds(seed), other.join().expect("a simulation does not panic"))
        });
        first.then_some(seed).or(second.then_some(seed + 1))
    });
    let seed = found.expect("records were acknowledged as synced, and the disks forgot them");
    assert_eq!(outcome(seed, false).violations, [""; 0], "seed {seed}: with disks that do not lie");
}
