//! Seeds that once found a bug, one for each bug. A change to the creation of plans changes the meaning of a
//! seed, so each bug also has a smaller test at the place of its fix.

use std::num::NonZero;
use thalweg_sim::{FaultKind, Plan, run_plan};

const SEEDS: [(u64, &str); 15] = [
    (3, "a reassignment waited for a replica that another was adding and it removed"),
    (8, "more than five batches were stored behind one whose answer was late, which was then stored twice"),
    (64, "a producer's second batch of an epoch overtook the first, which had been refused"),
    (81, "the cluster's own topics were not flushed as topics of clients were"),
    (103, "the offsets topic stayed in creation when the connection that had asked for it ended"),
    (85, "batches were missing at the end of a segment, and the next one was taken as it was"),
    (2194, "a follower could not use an answer, whose high watermark the leader did not tell again"),
    (2204, "a member asked for its offsets, again and again, where the coordinator was no more"),
    (
        230,
        "batches that a follower had cut were in its log again after a power failure, before others of a later leader",
    ),
    (9, "a broker whose disk was replaced was the last in sync, led, and had the others cut all they had"),
    (
        20218,
        "a consumer believed a broker that was cut off from the controller, and read from a leader of a former epoch",
    ),
    (5249, "the simulation took the power of a broker while another was held up, and looked in sync"),
    (21791, "the simulation took the power of a broker while another had been told to stop"),
    (
        6758,
        "the only replica in sync was on a disk that was replaced, and the simulation had nobody elect another",
    ),
    (
        43638,
        "min.insync.replicas was lowered while nobody led, and who was eligible stayed so beside a leader that committed alone",
    ),
];

/// The same with members of all kinds.
const LATER_SEEDS: [(u64, &str); 2] = [
    (41, "a member of a streams group whose answer was lost never learned of its tasks"),
    (
        7978,
        "states of share partitions were asked for together, and one waited for a lock of another that was not polled",
    ),
];

/// The same with a crowd of transactions.
const CROWD_SEEDS: [(u64, &str); 1] =
    [(8, "a transaction that began behind a marker was the last stable offset of that marker")];

#[test]
#[ignore = "takes minutes; `scripts/test --nightly` runs it, with optimisation"]
fn seeds_that_found_something_find_nothing_more() {
    // The seeds are older than these clients, whose messages would change what happens.
    let later = |seed| Plan { crowd: 0, ..Plan::of(seed) };
    let older = |seed| Plan { consumer_members: 0, share_members: 0, streams_members: 0, ..later(seed) };
    let of_older = SEEDS.into_iter().map(|(seed, found)| (seed, older(seed), found));
    let of_later = LATER_SEEDS.into_iter().map(|(seed, found)| (seed, later(seed), found));
    let of_crowd = CROWD_SEEDS.into_iter().map(|(seed, found)| (seed, Plan::of(seed), found));
    let all: Vec<_> = of_older.chain(of_later).chain(of_crowd).collect();
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for first in 0..cores {
            let share = all.iter().skip(first).step_by(cores);
            scope.spawn(move || {
                share.for_each(|(seed, plan, found)| finds_nothing(*seed, plan.clone(), found))
            });
        }
    });
}

#[test]
fn plans_of_later_kinds_of_runs_take_no_seed_that_found_something() {
    let seeds = SEEDS.into_iter().chain(LATER_SEEDS).map(|(seed, _)| seed);
    let taken: Vec<u64> =
        seeds.filter(|&seed| Plan::of(seed).kinds.contains(&FaultKind::Successions)).collect();
    assert_eq!(taken, [0; 0]);
}

fn finds_nothing(seed: u64, plan: Plan, found: &str) {
    let outcome = run_plan(seed, plan);
    assert_eq!(outcome.violations, [""; 0], "seed {seed}, which found: {found}");
    assert_eq!(outcome.unrest, None, "seed {seed}, which found: {found}");
}
