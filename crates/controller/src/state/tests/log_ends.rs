//! Elections by log ends: the partitions that need one, the replicas to wait for, and the effect.

use thalweg_metadata::{DIRECTORY_FULL, DIRECTORY_LOST, LeaderRecoveryState, PartitionEpoch};
use thalweg_wire::request::UnregisterBrokerRequest;

use super::steps::Cluster;
use super::*;

/// Brokers 1 to 3 with a topic of three replicas, and a controller that compares.
fn bench(elr: i16, min_isr: &str) -> Bench {
    let mut bench = Bench::of_three(elr, min_isr);
    bench.state.compares_log_ends = true;
    bench
}

fn all_sessions_end(bench: &mut Bench) {
    bench.now.monotonic_ms += SESSION_MS;
    while bench.fence_stale() {}
}

fn directory(id: i32) -> u128 {
    1000 + u128::from(id.unsigned_abs())
}

/// A new process registers after a kill, and is unfenced.
fn returns(bench: &mut Bench, id: i32) {
    bench.register(id, &[directory(id)]).expect("the session of the earlier process has ended");
    assert!(!bench.beat(id, |_| {}).is_fenced);
}

/// A broker stops cleanly, and registers again after the clean stop.
fn stops(bench: &mut Bench, id: i32) -> i64 {
    let epoch = bench.image().broker(BrokerId(id)).expect("registered").epoch.0;
    bench.beat(id, |request| request.want_fence = true);
    epoch
}

fn all_undecided(bench: &Bench) -> Vec<UndecidedPartition> {
    let leaderless = bench.state.partitions_where(|partition| !partition.has_leader());
    let leaderless: Vec<_> = leaderless.into_iter().map(|(topic, index, _)| (topic.id, index)).collect();
    bench.state.undecided(&leaderless, bench.now)
}

/// The candidates, the awaited replicas, and the last leader of the only partition.
fn undecided(bench: &Bench) -> Option<(Vec<i32>, Vec<i32>, Option<i32>)> {
    let undecided = all_undecided(bench);
    assert!(undecided.len() <= 1, "{undecided:?}");
    undecided.first().map(|one| {
        let last = one.last_leader.map(|id| id.0);
        (BrokerId::numbers(&one.candidates), BrokerId::numbers(&one.awaited), last)
    })
}

/// Returns true if a replica becomes leader by a comparison.
fn elect(bench: &mut Bench, leader: i32, epoch: Option<PartitionEpoch>) -> bool {
    let topic_id = bench.image().topic("t").expect("it is there").id;
    let partition_epoch = epoch.unwrap_or(bench.partition("t", 0).partition_epoch);
    let election = ComparedElection {
        topic_id,
        partition: PartitionIndex(0),
        partition_epoch,
        leader: BrokerId(leader),
    };
    let (records, made) = bench.state.elect_compared(&[election.clone(), election.clone()]);
    assert!(records.len() == made.len() && made.len() <= 1, "an election that is listed twice is made once");
    bench.apply(records);
    !made.is_empty()
}

#[test]
fn after_a_kill_of_all_the_best_log_leads_once_all_are_back() {
    for (elr, min_isr) in [(0, "1"), (0, "2"), (1, "1"), (1, "2")] {
        let mut bench = bench(elr, min_isr);
        all_sessions_end(&mut bench);
        for (count, id) in [1, 3, 2].into_iter().enumerate() {
            assert_eq!(bench.partition("t", 0).leader, NO_LEADER, "elr {elr}, {count} are back");
            returns(&mut bench, id);
        }
        assert_eq!(bench.partition("t", 0).leader, NO_LEADER, "elr {elr}: nobody leads by memory");
        let (candidates, awaited, last) = undecided(&bench).expect("nothing is known");
        assert_eq!((candidates, awaited, last), (vec![1, 2, 3], vec![], Some(1)), "elr {elr}");
        let before = bench.partition("t", 0).partition_epoch;
        assert!(!elect(&mut bench, 3, Some(PartitionEpoch(before.0 - 1))), "the partition has changed since");
        assert!(elect(&mut bench, 3, None));
        let partition = bench.partition("t", 0);
        assert_eq!((partition.leader, partition.isr.clone()), (3, vec![3]), "elr {elr}");
        assert_eq!(partition.leader_recovery_state, LeaderRecoveryState::Recovering);
        assert!(partition.last_known_elr.is_empty() && partition.eligible_leader_replicas.is_empty());
        assert_eq!(undecided(&bench), None);
        assert!(!elect(&mut bench, 2, None), "it has a leader");
    }
}

/// Without eligible leader replicas, no record shows brokers that returned after an unclean stop.
#[test]
fn next_controller_does_not_elect_those_that_wait_for_others() {
    let mut bench = bench(0, "1");
    let next = |bench: &mut Bench| {
        let (image, next_offset) = (bench.image(), bench.state.next_offset());
        bench.restart(image, next_offset);
        bench.state.compares_log_ends = true;
        let records = bench.state.balance_leaders().records;
        bench.apply(records);
    };
    all_sessions_end(&mut bench);
    for id in [1, 2, 3] {
        returns(&mut bench, id);
        next(&mut bench);
        assert_eq!(bench.partition("t", 0).leader, NO_LEADER, "{id} does not lead by memory");
    }
    assert_eq!(undecided(&bench), Some((vec![1, 2, 3], vec![], Some(1))));
    assert!(elect(&mut bench, 3, None));
    next(&mut bench);
    assert_eq!(bench.partition("t", 0).leader, 3);
}

#[test]
fn unregistered_replica_is_not_waited_for() {
    let mut bench = bench(0, "1");
    all_sessions_end(&mut bench);
    returns(&mut bench, 1);
    assert_eq!(undecided(&bench), None, "the others were in sync, and may return with all");
    for id in [2, 3] {
        bench.call(UnregisterBrokerRequest { broker_id: id });
    }
    assert_eq!(undecided(&bench), Some((vec![1], vec![], Some(1))));
    assert!(elect(&mut bench, 1, None));
}

/// Brokers 1 and 2 were killed and returned, and then broker 1 failed permanently.
#[test]
fn without_eligible_replicas_any_that_is_back_may_lead_after_the_wait() {
    let mut bench = bench(0, "1");
    assert_eq!(bench.propose("t", &[1, 2]), ErrorCode::None);
    all_sessions_end(&mut bench);
    returns(&mut bench, 1);
    assert_eq!(undecided(&bench), None, "2 was in sync, and its process may live");
    all_sessions_end(&mut bench);
    returns(&mut bench, 2);
    assert_eq!(undecided(&bench), Some((vec![2], vec![1], Some(2))), "1 knows no more than 2 does");
    bench.call(UnregisterBrokerRequest { broker_id: 1 });
    assert_eq!(undecided(&bench), Some((vec![2], vec![], Some(2))));
}

/// With eligible leader replicas, the last leader leads after the wait, unless its broker is unregistered.
#[test]
fn next_that_was_complete_takes_the_place_of_an_unregistered_last_leader() {
    let mut bench = bench(1, "2");
    all_sessions_end(&mut bench);
    returns(&mut bench, 1);
    returns(&mut bench, 2);
    returns(&mut bench, 3);
    all_sessions_end(&mut bench);
    returns(&mut bench, 2);
    assert_eq!(undecided(&bench), Some((vec![2], vec![1, 3], None)), "1 led last");
    bench.call(UnregisterBrokerRequest { broker_id: 1 });
    assert_eq!(undecided(&bench), Some((vec![2], vec![3], Some(2))));
}

#[test]
fn those_that_were_complete_are_waited_for() {
    let mut bench = bench(1, "2");
    all_sessions_end(&mut bench);
    for id in [1, 2] {
        bench.register(id, &[directory(id)]).expect("its session has ended");
    }
    bench.register(3, &[directory(3)]).expect("its session has ended");
    bench.beat(1, |_| {});
    assert_eq!(undecided(&bench), Some((vec![1], vec![2, 3], Some(1))));
    bench.beat(3, |_| {});
    assert_eq!(undecided(&bench), Some((vec![1, 3], vec![2], Some(1))));
}

#[test]
fn replica_outside_the_isr_is_compared_but_not_waited_for() {
    let mut bench = bench(1, "1");
    assert_eq!(bench.propose("t", &[1, 2]), ErrorCode::None);
    all_sessions_end(&mut bench);
    bench.now.monotonic_ms += SESSION_MS;
    returns(&mut bench, 2);
    returns(&mut bench, 1);
    let found = undecided(&bench).expect("nobody is known to be complete");
    assert_eq!(found, (vec![1, 2], vec![], Some(1)), "3 is dead");
    let starting = |bench: &Bench| BrokerId::numbers(&all_undecided(bench)[0].starting);
    assert!(starting(&bench).is_empty());
    bench.register(3, &[directory(3)]).expect("its session has ended");
    bench.beat(3, |request| request.want_fence = true);
    assert_eq!(starting(&bench), [3]);
    bench.beat(3, |_| {});
    assert!(starting(&bench).is_empty());
    assert_eq!(undecided(&bench).expect("still").0, [1, 2, 3]);
}

#[test]
fn damaged_last_replica_waits_for_all_others() {
    let mut bench = bench(1, "1");
    let epochs: Vec<i64> = [3, 2, 1].into_iter().map(|id| stops(&mut bench, id)).collect();
    assert_eq!(bench.partition("t", 0).eligible_leader_replicas, [1]);
    bench.now.monotonic_ms += SESSION_MS;
    // The broker stopped cleanly but does not claim so, because its log has lost synced records since.
    bench.register(1, &[directory(1)]).expect("its session has ended");
    assert_eq!(bench.assign(1, DIRECTORY_LOST.0, "t"), ErrorCode::None);
    assert!(!bench.beat(1, |_| {}).is_fenced);
    assert_eq!(bench.assign(1, directory(1), "t"), ErrorCode::None);
    assert_eq!(undecided(&bench), Some((vec![1], vec![2, 3], Some(1))));
    for (id, previous_broker_epoch) in [(3, epochs[0]), (2, epochs[1])] {
        let request =
            BrokerRegistrationRequest { previous_broker_epoch, ..bench.registration(id, &[directory(id)]) };
        assert_eq!(bench.call(request).error_code, 0);
        bench.beat(id, |_| {});
    }
    assert_eq!(undecided(&bench), Some((vec![1, 2, 3], vec![], Some(1))));
}

#[test]
fn damaged_leader_hands_over_and_is_neither_in_sync_nor_eligible() {
    for (elr, min_isr) in [(0, "1"), (0, "2"), (1, "1"), (1, "2"), (1, "3")] {
        let mut bench = bench(elr, min_isr);
        assert_eq!(bench.partition("t", 0).leader, 1);
        assert_eq!(bench.assign(1, DIRECTORY_LOST.0, "t"), ErrorCode::None);
        let partition = bench.partition("t", 0);
        assert_eq!((partition.leader, partition.isr), (2, vec![2, 3]), "elr {elr}");
        assert_eq!(bench.propose("t", &[2, 3, 1]), ErrorCode::IneligibleReplica, "not from there");
        if min_isr == "2" {
            // An earlier report, which arrives late.
            assert_eq!(bench.assign(1, DIRECTORY_FULL.0, "t"), ErrorCode::None);
        }
        assert_eq!(bench.assign(1, directory(1), "t"), ErrorCode::None);
        let partition = bench.partition("t", 0);
        assert!(partition.eligible_leader_replicas.is_empty(), "elr {elr}, {min_isr}");
        assert_eq!(bench.propose("t", &[2, 3, 1]), ErrorCode::None, "it has fetched them again");
    }
}

#[test]
fn damaged_replica_without_which_records_are_lost_keeps_its_place() {
    for elr in [0, 1] {
        let mut bench = bench(elr, "1");
        assert_eq!(bench.propose("t", &[1]), ErrorCode::None);
        // Another replica was in sync at the time of the report.
        assert_eq!(bench.assign(1, DIRECTORY_LOST.0, "t"), ErrorCode::None);
        assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
        assert_eq!(bench.assign(1, directory(1), "t"), ErrorCode::None);
        if elr == 0 {
            assert_eq!(bench.partition("t", 0).isr, [1]);
        } else {
            assert_eq!(undecided(&bench), Some((vec![1, 2, 3], vec![], Some(1))), "the longest log leads");
        }
    }
}

#[test]
fn only_complete_log_that_is_gone_leaves_the_choice_to_an_operator() {
    let mut bench = bench(1, "1");
    assert_eq!(bench.propose("t", &[1]), ErrorCode::None);
    all_sessions_end(&mut bench);
    bench.register(1, &[2001]).expect("its session has ended");
    bench.assign(1, 2001, "t");
    bench.beat(1, |_| {});
    returns(&mut bench, 2);
    returns(&mut bench, 3);
    assert_eq!(undecided(&bench), None);
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
}

#[test]
fn later_epoch_in_a_log_raises_that_of_its_partition() {
    for (elr, replicas) in [(0, &[1, 2, 3][..]), (1, &[1, 2, 3]), (1, &[2])] {
        let mut bench = bench(elr, "1");
        bench.create("u", &[replicas], &[]);
        let image = bench.image();
        let (partition, topic_id) = (bench.partition("u", 0), image.topic("u").expect("it is there").id);
        let broker_epoch = image.broker(BrokerId(2)).expect("registered").epoch.0;
        let partition_epoch = partition.partition_epoch.0;
        let report = |bench: &mut Bench, broker_epoch, leader_epoch| {
            let data = PartitionData { leader_epoch, partition_epoch, ..Default::default() };
            let topics = vec![TopicData { topic_id, partitions: vec![data.clone(), data] }];
            let request = AlterPartitionRequest { broker_id: 2, broker_epoch, topics };
            let outcome = bench.state.alter_partition(&request, 3);
            bench.done(outcome).map(|answer| answer.topics[0].partitions[0].error_code)
        };
        let not_controller = Ok(ErrorCode::NotController.code());
        assert_eq!(report(&mut bench, broker_epoch, i32::MAX), not_controller);
        assert_eq!(report(&mut bench, broker_epoch, 1 << 30), not_controller);
        assert_eq!(*bench.partition("u", 0), *partition, "that is no epoch");
        assert_eq!(report(&mut bench, broker_epoch + 1, 17), Err(ErrorCode::StaleBrokerEpoch));
        assert_eq!(report(&mut bench, broker_epoch, 17), not_controller);
        let raised = bench.partition("u", 0);
        assert!(raised.leader_epoch > 17);
        assert!(raised.partition_epoch > partition.partition_epoch);
        if elr == 1 && replicas.len() > 1 {
            assert_eq!(
                (raised.leader, raised.last_known_elr),
                (NO_LEADER, vec![1, 2, 3]),
                "the best log leads"
            );
        } else {
            assert_eq!((raised.leader, raised.isr), (partition.leader, partition.isr.clone()));
        }
        assert_eq!(report(&mut bench, broker_epoch, 17), Ok(ErrorCode::FencedLeaderEpoch.code()));
    }
}

/// A broker with a complete log needs no comparison and no wait.
#[test]
fn replica_that_was_handed_over_for_lack_of_room_is_still_eligible() {
    for is_restarted in [false, true] {
        let mut bench = bench(1, "2");
        assert_eq!(bench.propose("t", &[1, 2]), ErrorCode::None);
        assert_eq!(bench.assign(1, DIRECTORY_FULL.0, "t"), ErrorCode::None);
        let partition = bench.partition("t", 0);
        assert_eq!((partition.leader, partition.isr), (2, vec![2]));
        assert_eq!(partition.eligible_leader_replicas, [1]);
        assert_eq!(bench.propose("t", &[2, 1]), ErrorCode::IneligibleReplica, "not from there");
        stops(&mut bench, 2);
        assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
        if is_restarted {
            let previous_broker_epoch = stops(&mut bench, 1);
            let request =
                BrokerRegistrationRequest { previous_broker_epoch, ..bench.registration(1, &[directory(1)]) };
            bench.now.monotonic_ms += SESSION_MS;
            assert_eq!(bench.call(request).error_code, 0);
            bench.beat(1, |_| {});
        }
        assert_eq!(bench.assign(1, directory(1), "t"), ErrorCode::None);
        let partition = bench.partition("t", 0);
        assert_eq!((partition.leader, &partition.isr[..]), (1, &[1][..]), "{is_restarted}");
        assert_eq!(partition.leader_recovery_state, LeaderRecoveryState::Recovered);
    }
}

#[test]
fn handed_over_replica_whose_directory_may_be_gone_is_not_eligible() {
    let mut bench = bench(1, "2");
    assert_eq!(bench.propose("t", &[1, 2]), ErrorCode::None);
    assert_eq!(bench.assign(1, DIRECTORY_FULL.0, "t"), ErrorCode::None);
    assert_eq!(bench.partition("t", 0).eligible_leader_replicas, [1]);
    let previous_broker_epoch = stops(&mut bench, 1);
    bench.now.monotonic_ms += SESSION_MS;
    let request = BrokerRegistrationRequest { previous_broker_epoch, ..bench.registration(1, &[2001]) };
    assert_eq!(bench.call(request).error_code, 0);
    assert!(bench.partition("t", 0).eligible_leader_replicas.is_empty());
}

/// A broker has a later leader epoch in its log of `t` than this controller knows.
fn reports(bench: &mut Bench, id: i32, leader_epoch: i32) -> ErrorCode {
    let (partition, image) = (bench.partition("t", 0), bench.image());
    let topic_id = image.topic("t").expect("it is there").id;
    let broker_epoch = image.broker(BrokerId(id)).expect("registered").epoch.0;
    let partition_epoch = partition.partition_epoch.0;
    let data = PartitionData { leader_epoch, partition_epoch, ..Default::default() };
    let topics = vec![TopicData { topic_id, partitions: vec![data] }];
    let outcome =
        bench.state.alter_partition(&AlterPartitionRequest { broker_id: id, broker_epoch, topics }, 3);
    let answer = bench.done(outcome).expect("the broker is known");
    ErrorCode::from_i16(answer.topics[0].partitions[0].error_code).expect("a code")
}

/// Later elections are unknown to this controller, and each broker saw only some of them.
#[test]
fn raised_epoch_is_in_no_log() {
    let mut bench = bench(1, "1");
    assert_eq!(reports(&mut bench, 2, 9), ErrorCode::NotController);
    let raised = bench.partition("t", 0);
    assert_eq!(raised.leader, NO_LEADER);
    assert!(raised.leader_epoch >= 9 + 1000, "{}: another log may have a batch of it", raised.leader_epoch);
    // The registered epoch of a leaderless partition also occurs in a log.
    assert_eq!(reports(&mut bench, 3, raised.leader_epoch), ErrorCode::NotController);
    let again = bench.partition("t", 0);
    assert!(again.leader_epoch > raised.leader_epoch && again.partition_epoch > raised.partition_epoch);
    assert_eq!((again.leader, &again.last_known_elr), (NO_LEADER, &raised.last_known_elr));
    assert_eq!(reports(&mut bench, 3, raised.leader_epoch), ErrorCode::FencedLeaderEpoch);
    assert!(elect(&mut bench, 3, None));
    let led = bench.partition("t", 0);
    assert_eq!(reports(&mut bench, 2, led.leader_epoch), ErrorCode::InvalidRequest, "it is the leader's");
    assert_eq!(*bench.partition("t", 0), *led);
}

#[test]
fn later_epoch_outside_the_isr_does_not_unseat_the_leader() {
    let mut bench = bench(1, "1");
    bench.now.monotonic_ms += SESSION_MS / 2;
    [1, 3].into_iter().for_each(|id| _ = bench.beat(id, |_| {}));
    bench.now.monotonic_ms += SESSION_MS / 2;
    assert!(bench.fence_stale());
    returns(&mut bench, 2);
    let before = bench.partition("t", 0);
    assert_eq!((before.leader, before.isr.contains(&2)), (1, false));
    assert_eq!(reports(&mut bench, 2, 17), ErrorCode::NotController);
    let raised = bench.partition("t", 0);
    assert_eq!((raised.leader, raised.isr.clone()), (before.leader, before.isr.clone()));
    assert!(raised.leader_epoch >= 17 + 1000, "{}: a third log may have a batch of it", raised.leader_epoch);
}

/// The controller has consented to a move, and the target directory fails before the switch: the log is still
/// complete in its old directory.
#[test]
fn log_that_did_not_move_is_not_gone() {
    for elr in [1, 0] {
        for is_restarted in [false, true] {
            let mut bench = Bench::new();
            bench.state.compares_log_ends = true;
            bench.register(1, &[1001, 3001]).expect("taken");
            assert!(!bench.beat(1, |_| {}).is_fenced);
            bench.join(2);
            bench.join(3);
            assert_eq!(bench.set_elr(elr), 0);
            bench.create("t", &[&[1, 2, 3]], &[(MIN_INSYNC_REPLICAS, "1")]);
            assert_eq!(bench.assign(1, 1001, "t"), ErrorCode::None);
            assert_eq!(bench.propose("t", &[1]), ErrorCode::None, "2 and 3 lag");
            // The move: consent, and then the target directory fails.
            assert_eq!(bench.assign(1, 3001, "t"), ErrorCode::None);
            if is_restarted {
                let previous_broker_epoch = stops(&mut bench, 1);
                let request =
                    BrokerRegistrationRequest { previous_broker_epoch, ..bench.registration(1, &[1001]) };
                bench.now.monotonic_ms += SESSION_MS;
                assert_eq!(bench.call(request).error_code, 0);
                bench.beat(2, |_| {});
                bench.beat(3, |_| {});
                bench.beat(1, |_| {});
            } else {
                bench.beat(1, |request| request.offline_log_dirs = vec![Uuid(3001)]);
            }
            // The move is abandoned. The broker first reports that the log is complete, then its directory.
            // After a restart, the found log may lack records.
            let first = if is_restarted { DIRECTORY_LOST } else { DIRECTORY_FULL };
            assert_eq!(bench.assign(1, first.0, "t"), ErrorCode::None);
            assert_eq!(bench.assign(1, 1001, "t"), ErrorCode::None);
            // The replica leads, or its log is compared.
            let may_lead = undecided(&bench)
                .is_some_and(|(candidates, _, last)| candidates.contains(&1) && last == Some(1));
            let partition = bench.partition("t", 0);
            let what = format!("elr {elr}, restarted {is_restarted}: {partition:?}, {:?}", undecided(&bench));
            // Without eligible leader replicas, this is the only replica known to be complete.
            let is_compared = is_restarted && elr == 1;
            assert_eq!((partition.leader == 1, may_lead), (!is_compared, is_compared), "{what}");
        }
    }
}
