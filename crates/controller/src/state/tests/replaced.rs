//! Possible leaders after brokers return without data, and after several brokers fail together.

use thalweg_metadata::LeaderRecoveryState;

use super::*;

/// The new directory of brokers that lost their directory.
const NEW: u128 = 2000;
const OLD: u128 = 1000;

/// Brokers 1 to 3 with a topic of three replicas, two of which must be in sync.
fn bench(elr: i16) -> Bench {
    Bench::of_three(elr, "2")
}

/// Advances the time beyond all sessions.
fn all_sessions_end(bench: &mut Bench) {
    bench.now.monotonic_ms += SESSION_MS;
    while bench.fence_stale() {}
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
}

fn directory(kind: u128, id: i32) -> u128 {
    kind + u128::from(id.unsigned_abs())
}

/// A new process registers, is unfenced, and reports the directory of its found or created replica.
fn comes_back(bench: &mut Bench, id: i32, kind: u128) {
    bench.register(id, &[directory(kind, id)]).expect("the session of the earlier process has ended");
    if kind == NEW {
        assert_eq!(bench.assign(id, directory(kind, id), "t"), ErrorCode::None);
    }
    assert!(!bench.beat(id, |_| {}).is_fenced);
}

fn orders() -> Vec<[i32; 3]> {
    vec![[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]]
}

#[test]
fn broker_that_stopped_uncleanly_waits_for_those_that_lived_on() {
    for (uncleanly, lives) in [(1, 2), (2, 3), (3, 1)] {
        let mut bench = bench(0);
        all_sessions_end(&mut bench);
        comes_back(&mut bench, uncleanly, OLD);
        assert_eq!(bench.partition("t", 0).leader, NO_LEADER, "{uncleanly} may lack records");
        let pass = bench.state.balance_leaders();
        assert!(pass.records.is_empty(), "and does not lead as the preferred leader either");
        assert!(!bench.beat(lives, |_| {}).is_fenced);
        let partition = bench.partition("t", 0);
        assert_eq!((partition.leader, partition.isr.clone()), (lives, vec![lives]));
        assert_eq!(bench.propose("t", &[lives, uncleanly]), ErrorCode::None, "it has fetched again");
        // The replica is complete again.
        all_sessions_end(&mut bench);
        assert!(!bench.beat(uncleanly, |_| {}).is_fenced);
        assert_eq!(bench.partition("t", 0).leader, uncleanly);
    }
}

#[test]
fn when_all_stopped_uncleanly_the_last_to_return_lets_one_lead() {
    for order in orders() {
        let mut bench = bench(0);
        all_sessions_end(&mut bench);
        for id in &order[..2] {
            comes_back(&mut bench, *id, OLD);
            assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
        }
        comes_back(&mut bench, order[2], OLD);
        let partition = bench.partition("t", 0);
        assert!(partition.leader != NO_LEADER, "{order:?}");
        assert_eq!(partition.isr, [partition.leader], "{order:?}");
    }
}

#[test]
fn replaced_broker_never_leads_after_all_sessions_ended_at_once() {
    for elr in [0, 1] {
        for replaced in 1..=3 {
            for order in orders() {
                let mut bench = bench(elr);
                all_sessions_end(&mut bench);
                for id in order {
                    comes_back(&mut bench, id, if id == replaced { NEW } else { OLD });
                    let leader = bench.partition("t", 0).leader;
                    assert_ne!(leader, replaced, "elr {elr}, {order:?}");
                }
                let partition = bench.partition("t", 0);
                assert!(partition.has_leader(), "elr {elr}, {replaced} of {order:?}: {partition:?}");
                assert_eq!(partition.isr, [partition.leader]);
            }
        }
    }
}

#[test]
fn replaced_broker_never_leads_after_sessions_ended_one_after_another() {
    for elr in [0, 1] {
        for (fenced, order) in orders().into_iter().flat_map(|f| orders().into_iter().map(move |o| (f, o))) {
            let mut bench = bench(elr);
            for id in fenced {
                bench.beat(id, |request| request.want_fence = true);
            }
            bench.now.monotonic_ms += SESSION_MS;
            let replaced = fenced[2];
            for id in order {
                comes_back(&mut bench, id, if id == replaced { NEW } else { OLD });
                let leader = bench.partition("t", 0).leader;
                assert_ne!(leader, replaced, "elr {elr}, fenced {fenced:?}, back {order:?}");
            }
            let partition = bench.partition("t", 0);
            if elr == 1 {
                assert_eq!(partition.leader, fenced[1], "it left last but one: {order:?} {partition:?}");
            } else {
                // The only in-sync replica has lost its log.
                assert_eq!((partition.leader, partition.isr), (NO_LEADER, vec![]), "{order:?}");
            }
        }
    }
}

#[test]
fn replaced_leader_is_out_of_the_isr_when_it_registers() {
    for elr in [0, 1] {
        let mut bench = bench(elr);
        bench.now.monotonic_ms += SESSION_MS;
        bench.beat(2, |_| {});
        bench.beat(3, |_| {});
        let early = bench.register(1, &[directory(NEW, 1)]);
        assert_eq!(early, Err(ErrorCode::DuplicateBrokerRegistration), "it is fenced first");
        assert!(bench.fence_stale());
        bench.register(1, &[directory(NEW, 1)]).expect("its session has ended");
        let partition = bench.partition("t", 0);
        assert_eq!((partition.leader, partition.isr), (2, vec![2, 3]));
    }
}

#[test]
fn directory_that_comes_back_brings_its_replica_back() {
    for elr in [0, 1] {
        let mut bench = bench(elr);
        bench.create("u", &[&[1, 2, 3]], &[(MIN_INSYNC_REPLICAS, "1")]);
        assert_eq!(bench.propose("u", &[1]), ErrorCode::None);
        all_sessions_end(&mut bench);
        // The disk of the only complete replica is missing at first.
        bench.register(1, &[directory(NEW, 1)]).expect("its session has ended");
        bench.beat(1, |_| {});
        assert_eq!(bench.partition("u", 0).leader, NO_LEADER);
        all_sessions_end(&mut bench);
        bench.register(1, &[directory(NEW, 1), directory(OLD, 1)]).expect("its session has ended");
        bench.beat(1, |_| {});
        assert_eq!(bench.partition("u", 0).leader, 1, "elr {elr}");
    }
}

#[test]
fn only_partitions_of_the_lost_directory_are_lost() {
    let mut bench = Bench::new();
    for id in 1..=2 {
        bench.register(id, &[directory(OLD, id), directory(OLD, id) + 100]).expect("the broker is taken in");
        bench.beat(id, |_| {});
    }
    ["a", "b", "c"].iter().for_each(|topic| bench.create(topic, &[&[1, 2]], &[]));
    bench.assign(1, directory(OLD, 1), "a");
    bench.assign(1, directory(OLD, 1) + 100, "b");
    bench.beat(2, |request| request.want_fence = true);
    bench.beat(1, |request| request.want_fence = true);
    bench.now.monotonic_ms += SESSION_MS;
    bench.register(1, &[directory(OLD, 1), directory(NEW, 1)]).expect("its session has ended");
    bench.beat(1, |_| {});
    assert_eq!(bench.partition("a", 0).leader, 1, "its log is there");
    // The directory of the third replica was never reported, so it may be the lost one.
    for topic in ["b", "c"] {
        bench.assign(1, directory(NEW, 1), topic);
        let partition = bench.partition(topic, 0);
        assert_eq!((partition.leader, partition.isr), (NO_LEADER, vec![]), "{topic}");
    }
}

#[test]
fn replica_that_begins_again_is_in_sync_only_in_a_known_directory() {
    let mut bench = bench(0);
    bench.beat(3, |request| request.want_fence = true);
    bench.now.monotonic_ms += SESSION_MS;
    bench.register(3, &[directory(NEW, 3)]).expect("its session has ended");
    bench.beat(3, |_| {});
    for id in 1..=2 {
        bench.beat(id, |_| {});
    }
    assert_eq!(bench.propose("t", &[1, 2, 3]), ErrorCode::IneligibleReplica);
    assert_eq!(bench.assign(3, directory(NEW, 3), "t"), ErrorCode::None);
    assert_eq!(bench.propose("t", &[1, 2, 3]), ErrorCode::None);
    assert_eq!(bench.partition("t", 0).isr, [1, 2, 3]);
}

#[test]
fn log_that_moves_between_directories_stays_in_sync() {
    let mut bench = Bench::new();
    for id in 1..=2 {
        bench.register(id, &[directory(OLD, id), directory(NEW, id)]).expect("the broker is taken in");
        bench.beat(id, |_| {});
    }
    bench.create("t", &[&[1, 2]], &[]);
    bench.assign(1, directory(OLD, 1), "t");
    bench.assign(1, directory(NEW, 1), "t");
    let partition = bench.partition("t", 0);
    assert_eq!((partition.leader, partition.isr), (1, vec![1, 2]));
}

#[test]
fn failed_disk_that_is_replaced_is_not_eligible() {
    let mut bench = Bench::new();
    for id in 1..=2 {
        bench.register(id, &[directory(OLD, id), directory(OLD, id) + 100]).expect("the broker is taken in");
        bench.beat(id, |_| {});
    }
    bench.create("t", &[&[1, 2]], &[(MIN_INSYNC_REPLICAS, "2")]);
    for id in 1..=2 {
        bench.assign(id, directory(OLD, id), "t");
    }
    bench.beat(2, |request| request.want_fence = true);
    bench.beat(1, |request| request.offline_log_dirs = vec![Uuid(directory(OLD, 1))]);
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
    all_sessions_end(&mut bench);
    bench.register(1, &[directory(NEW, 1), directory(OLD, 1) + 100]).expect("its session has ended");
    bench.assign(1, directory(NEW, 1), "t");
    bench.beat(1, |_| {});
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
}

#[test]
fn only_replica_leads_again_from_an_empty_directory() {
    for elr in [0, 1] {
        let mut bench = bench(elr);
        bench.create("one", &[&[3]], &[]);
        all_sessions_end(&mut bench);
        bench.register(3, &[directory(NEW, 3)]).expect("its session has ended");
        bench.assign(3, directory(NEW, 3), "one");
        bench.beat(3, |_| {});
        assert_eq!(
            bench.partition("one", 0).leader,
            3,
            "elr {elr}: as in Kafka, there is nothing to wait for"
        );
    }
}

#[test]
fn last_leader_leads_again_when_no_broker_was_stopped_in_order() {
    let mut bench = bench(1);
    all_sessions_end(&mut bench);
    for id in [2, 3, 1] {
        assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
        comes_back(&mut bench, id, OLD);
    }
    let partition = bench.partition("t", 0);
    assert_eq!((partition.leader, &partition.isr), (1, &vec![1]));
    assert_eq!(partition.leader_recovery_state, LeaderRecoveryState::Recovering);
    assert!(partition.last_known_elr.is_empty());
}

/// Brokers 2 and 3 are fenced, and the leader's session is still valid.
fn bench_with_a_leader_alone() -> Bench {
    let mut bench = bench(1);
    bench.now.monotonic_ms += SESSION_MS / 2;
    bench.beat(1, |_| {});
    bench.now.monotonic_ms += SESSION_MS / 2;
    assert!(bench.fence_stale());
    let partition = bench.partition("t", 0);
    assert_eq!((partition.leader, partition.isr), (1, vec![1]));
    bench
}

#[test]
fn replicas_that_return_beside_a_leader_whose_log_is_gone_are_not_forgotten() {
    // The returned brokers did not stop cleanly, so they are no longer eligible, but nothing was committed
    // without them.
    for others in [[2, 3], [3, 2]] {
        for unfenced_early in [false, true] {
            let mut bench = bench_with_a_leader_alone();
            for id in others {
                bench.register(id, &[directory(OLD, id)]).expect("its session has ended");
                if unfenced_early {
                    bench.beat(id, |_| {});
                }
            }
            bench.now.monotonic_ms += SESSION_MS / 2;
            for id in others.iter().filter(|_| unfenced_early) {
                bench.beat(*id, |_| {});
            }
            assert!(bench.fence_stale(), "the leader died as well");
            comes_back(&mut bench, 1, NEW);
            for id in others {
                bench.beat(id, |_| {});
            }
            let partition = bench.partition("t", 0);
            let what = format!("{others:?}, unfenced early {unfenced_early}: {partition:?}");
            assert_eq!((partition.leader, &*partition.isr), (others[0], &[others[0]][..]), "{what}");
        }
    }
}

#[test]
fn last_leader_comes_before_replicas_that_returned_beside_it() {
    let mut bench = bench_with_a_leader_alone();
    for id in [2, 3] {
        comes_back(&mut bench, id, OLD);
    }
    bench.now.monotonic_ms += SESSION_MS / 2;
    for id in [2, 3] {
        bench.beat(id, |_| {});
    }
    assert!(bench.fence_stale(), "the leader died as well");
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER, "it is waited for");
    comes_back(&mut bench, 1, OLD);
    assert_eq!(bench.partition("t", 0).leader, 1);
}

#[test]
fn replicas_that_returned_are_forgotten_once_more_is_committed_without_them() {
    let mut bench = bench_with_a_leader_alone();
    comes_back(&mut bench, 3, OLD);
    comes_back(&mut bench, 2, OLD);
    assert_eq!(bench.partition("t", 0).last_known_elr, [3, 2]);
    assert_eq!(bench.propose("t", &[1, 2]), ErrorCode::None);
    let partition = bench.partition("t", 0);
    assert!(
        partition.last_known_elr.is_empty() && partition.eligible_leader_replicas.is_empty(),
        "{partition:?}"
    );
}

#[test]
fn sessions_that_end_soon_after_each_other_end_together() {
    let mut bench = bench(0);
    bench.now.monotonic_ms += 1_000;
    bench.beat(2, |_| {});
    bench.now.monotonic_ms += 1_000;
    bench.beat(3, |_| {});
    bench.now.monotonic_ms += SESSION_MS - 1_000;
    assert!(!bench.fence_stale(), "the third is waited for");
    bench.now.monotonic_ms += 1_000;
    assert!(bench.fence_stale());
    let partition = bench.partition("t", 0);
    assert_eq!((partition.leader, partition.isr), (NO_LEADER, vec![1, 2, 3]));
    bench.register(2, &[directory(OLD, 2)]).expect("its session has ended");
    assert_eq!(bench.partition("t", 0).isr, [1, 2, 3], "while nobody leads, they lose nothing");
    bench.beat(3, |_| {});
    let partition = bench.partition("t", 0);
    assert_eq!((partition.leader, partition.isr), (3, vec![3]));
}

#[test]
fn broker_beside_the_controller_does_not_leave_its_partitions_to_dead_brokers() {
    const OWN: i32 = 9;
    for others_live in [false, true] {
        let mut bench = Bench::new();
        bench.join(OWN);
        bench.join(2);
        bench.create("t", &[&[2, OWN]], &[]);
        // Both nodes are killed, the controller among them.
        bench.restart(bench.state.image().clone(), bench.state.next_offset());
        let early = bench.register(OWN, &[directory(OLD, OWN)]);
        assert_eq!(early, Err(ErrorCode::DuplicateBrokerRegistration));
        if others_live {
            bench.beat(2, |_| {});
            comes_back(&mut bench, OWN, OLD);
            let partition = bench.partition("t", 0);
            assert_eq!((partition.leader, partition.isr), (2, vec![2]));
        } else {
            all_sessions_end(&mut bench);
            comes_back(&mut bench, 2, NEW);
            assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
            comes_back(&mut bench, OWN, OLD);
            assert_eq!(bench.partition("t", 0).leader, OWN);
        }
    }
}
