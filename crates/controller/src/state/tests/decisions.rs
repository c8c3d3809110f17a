//! Each decision on its own.

use std::collections::BTreeMap;

use thalweg_metadata::NO_LEADER;

use super::*;

#[test]
fn a_session_ends_when_its_time_is_over_and_not_before() {
    let mut bench = Bench::new();
    bench.join(1);
    assert_eq!(bench.state.next_session_end_ms(), Some(SESSION_MS));
    bench.now.monotonic_ms = SESSION_MS - 1;
    assert!(!bench.fence_stale());
    bench.beat(1, |_| {});
    bench.now.monotonic_ms = 2 * SESSION_MS - 2;
    assert!(!bench.fence_stale());
    bench.now.monotonic_ms += 1;
    assert!(bench.fence_stale() && !bench.fence_stale());
    assert!(bench.state.image().broker(1).expect("it is registered").fenced);
    assert_eq!(bench.state.next_session_end_ms(), None);
}

#[test]
fn another_process_gets_in_when_the_session_is_over() {
    let mut bench = Bench::new();
    bench.join(1);
    bench.now.monotonic_ms = SESSION_MS - 1;
    assert_eq!(bench.register(1, &[1001]), Err(ErrorCode::DuplicateBrokerRegistration));
    bench.now.monotonic_ms = SESSION_MS;
    assert!(bench.register(1, &[1001]).is_ok());
}

#[test]
fn after_a_start_other_brokers_have_a_session_and_the_own_one_has_none() {
    let mut bench = Bench::new();
    bench.join(1);
    bench.join(9);
    let (image, next) = (bench.state.image().clone(), bench.state.next_offset());
    bench.now.monotonic_ms = 77;
    bench.restart(image, next);
    assert_eq!(bench.register(1, &[1001]), Err(ErrorCode::DuplicateBrokerRegistration));
    assert!(bench.register(9, &[1009]).is_ok());
    bench.now.monotonic_ms += SESSION_MS;
    assert!(bench.fence_stale(), "the other one is fenced if it does not beat");
}

#[test]
fn a_directory_belongs_to_one_broker() {
    let mut bench = Bench::new();
    bench.join(1);
    assert_eq!(bench.register(2, &[1001]), Err(ErrorCode::InvalidRegistration));
    assert_eq!(bench.register(2, &[1002, 1002]), Err(ErrorCode::InvalidRegistration));
    assert!(bench.register(2, &[1002, 1003]).is_ok());
}

#[test]
fn the_last_in_sync_replica_is_waited_for_unless_losing_records_is_allowed() {
    let mut bench = Bench::new();
    [1, 2].into_iter().for_each(|id| bench.join(id));
    bench.create("clean", &[&[1, 2]], &[]);
    bench.create("unclean", &[&[1, 2]], &[("unclean.leader.election.enable", "true")]);
    for topic in ["clean", "unclean"] {
        assert_eq!(bench.propose(topic, &[1]), ErrorCode::None);
    }
    bench.beat(1, |request| request.want_fence = true);
    let clean = bench.partition("clean", 0);
    assert_eq!((clean.leader, clean.isr.as_slice()), (NO_LEADER, [1].as_slice()));
    let unclean = bench.partition("unclean", 0);
    assert_eq!((unclean.leader, unclean.isr.as_slice()), (2, [2].as_slice()));
    assert_eq!(unclean.leader_recovery_state, thalweg_metadata::LeaderRecoveryState::Recovering);
    bench.beat(1, |_| {});
    assert_eq!(bench.partition("clean", 0).leader, 1);
}

#[test]
fn a_lost_directory_takes_its_replicas_out_of_sync() {
    let mut bench = Bench::new();
    bench.register(1, &[1101, 1102]).expect("the broker is taken in");
    bench.beat(1, |_| {});
    bench.join(2);
    bench.create("t", &[&[1, 2]], &[]);
    let image = bench.state.image().clone();
    let topic = image.topic("t").expect("it is there");
    assert_eq!(bench.partition("t", 0).directory(1), Some(thalweg_metadata::DIRECTORY_UNASSIGNED));
    let request = AssignReplicasToDirsRequest {
        broker_id: 1,
        broker_epoch: image.broker(1).expect("it is registered").epoch.0,
        directories: vec![DirectoryData {
            id: Uuid(1102),
            topics: vec![DirectoryTopic {
                topic_id: topic.id,
                partitions: vec![
                    DirectoryPartition { partition_index: 0 },
                    DirectoryPartition { partition_index: 7 },
                ],
            }],
        }],
    };
    let outcome = bench.state.assign_replicas_to_dirs(&request);
    let response = bench.done(outcome).expect("the broker's epoch is right");
    let codes: Vec<i16> = response.directories[0].topics[0].partitions.iter().map(|p| p.error_code).collect();
    assert_eq!(codes, [0, ErrorCode::UnknownTopicOrPartition.code()]);
    assert_eq!(bench.partition("t", 0).directories, [Uuid(1102), Uuid(1002)]);
    bench.beat(1, |request| request.offline_log_dirs = vec![Uuid(1101)]);
    assert_eq!(bench.partition("t", 0).leader, 1, "the other directory was lost");
    bench.beat(1, |request| request.offline_log_dirs = vec![Uuid(1101), Uuid(1102)]);
    let partition = bench.partition("t", 0);
    assert_eq!((partition.leader, partition.isr.as_slice()), (2, [2].as_slice()));
}

#[test]
fn a_reassignment_ends_when_all_that_are_added_are_in_sync() {
    let mut bench = Bench::new();
    (1..=4).for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2]], &[]);
    let request = AlterPartitionReassignmentsRequest {
        topics: vec![ReassignableTopic {
            name: "t".to_owned(),
            partitions: vec![ReassignablePartition { partition_index: 0, replicas: Some(vec![3, 4]) }],
        }],
        ..Default::default()
    };
    let outcome = bench.state.alter_partition_reassignments(&request);
    bench.done(outcome).expect("the request is taken");
    let partition = bench.partition("t", 0);
    assert_eq!(partition.replicas, [3, 4, 1, 2]);
    assert_eq!((partition.adding_replicas, partition.removing_replicas), (vec![3, 4], vec![1, 2]));
    assert_eq!(bench.propose("t", &[1, 2, 3]), ErrorCode::None);
    assert!(bench.partition("t", 0).is_reassigning());
    // The change completes it, and the leader loses its place.
    assert_eq!(bench.propose("t", &[1, 2, 3, 4]), ErrorCode::NewLeaderElected);
    let partition = bench.partition("t", 0);
    assert_eq!((partition.replicas.as_slice(), partition.leader), ([3, 4].as_slice(), 3));
    assert_eq!((partition.isr.as_slice(), partition.is_reassigning()), ([3, 4].as_slice(), false));
    assert_eq!(partition.directories, [Uuid(1003), Uuid(1004)]);
}

#[test]
fn preferred_leaders_get_their_partitions_back() {
    let mut bench = Bench::new();
    [1, 2].into_iter().for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2]], &[]);
    bench.beat(1, |request| request.want_fence = true);
    assert_eq!(bench.partition("t", 0).leader, 2);
    assert!(bench.state.balance_leaders().records.is_empty(), "it is not in sync");
    bench.beat(1, |_| {});
    assert_eq!(bench.propose("t", &[2, 1]), ErrorCode::None);
    let records = bench.state.balance_leaders().records;
    bench.apply(records);
    assert_eq!(bench.partition("t", 0).leader, 1);
    assert!(bench.state.balance_leaders().records.is_empty());
}

#[test]
fn a_leaving_broker_waits_for_the_others_to_have_seen_that_it_leaves() {
    let mut bench = Bench::new();
    [1, 2].into_iter().for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2]], &[]);
    let before = bench.state.next_offset() - 1;
    bench.beat(2, |_| {});
    assert!(!bench.beat(1, |request| request.want_shut_down = true).should_shut_down);
    assert_eq!(bench.partition("t", 0).leader, 2);
    bench.beat(2, |request| request.current_metadata_offset = before);
    assert!(!bench.beat(1, |request| request.want_shut_down = true).should_shut_down, "2 has not seen it");
    bench.beat(2, |_| {});
    let gone = bench.beat(1, |request| request.want_shut_down = true);
    assert!(gone.should_shut_down && gone.is_fenced);
}

#[test]
fn the_features_of_a_new_cluster_are_those_that_are_served() {
    let bench = Bench::new();
    let features: BTreeMap<String, i16> = bench.state.finalized_features();
    assert_eq!(
        features,
        BTreeMap::from([("kraft.version".to_owned(), 1), ("metadata.version".to_owned(), 30)])
    );
}
