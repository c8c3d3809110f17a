//! Single decisions.

use std::collections::BTreeMap;

use thalweg_metadata::LeaderRecoveryState;

use thalweg_wire::request::IncrementalAlterConfigsRequest;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};

use super::steps::Cluster;
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
    assert!(bench.state.image().broker(BrokerId(1)).expect("it is registered").fenced);
    assert_eq!(bench.state.next_session_end_ms(), None);
}

#[test]
fn another_process_gets_in_when_the_session_is_over() {
    let mut bench = Bench::new();
    bench.join(1);
    bench.now.monotonic_ms = SESSION_MS - 1;
    assert_eq!(bench.register(1, &[1001]), Err(ErrorCode::DuplicateBrokerRegistration));
    bench.now.monotonic_ms = SESSION_MS;
    assert_eq!(bench.register(1, &[1001]), Err(ErrorCode::DuplicateBrokerRegistration), "it is fenced first");
    assert!(bench.fence_stale());
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
    assert!(bench.register(9, &[1009]).is_err(), "the other one may have died with it");
    bench.beat(1, |_| {});
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
    assert_eq!(unclean.leader_recovery_state, LeaderRecoveryState::Recovering);
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
    assert_eq!(bench.partition("t", 0).directory(BrokerId(1)), Some(thalweg_metadata::DIRECTORY_UNASSIGNED));
    let request = AssignReplicasToDirsRequest {
        broker_id: 1,
        broker_epoch: image.broker(BrokerId(1)).expect("it is registered").epoch.0,
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

/// A failed directory returns only with another process: a process that registers again has not opened it.
#[test]
fn directory_does_not_return_with_a_further_registration_of_the_process() {
    let mut bench = Bench::new();
    bench.register(1, &[1101, 1102]).expect("the broker is taken in");
    bench.beat(1, |_| {});
    bench.create("t", &[&[1]], &[]);
    let directory = Uuid(1102);
    let topic_id = bench.image().topic("t").expect("it is there").id;
    let partitions = vec![DirectoryPartition { partition_index: 0 }];
    let topics = vec![DirectoryTopic { topic_id, partitions }];
    let broker_epoch = bench.image().broker(BrokerId(1)).expect("it is registered").epoch.0;
    let directories = vec![DirectoryData { id: directory, topics }];
    let outcome = bench.state.assign_replicas_to_dirs(&AssignReplicasToDirsRequest {
        broker_id: 1,
        broker_epoch,
        directories,
    });
    bench.done(outcome).expect("the broker's epoch is right");
    bench.beat(1, |request| request.offline_log_dirs = vec![directory]);
    assert_eq!(bench.partition("t", 0).leader, -1);
    let incarnation_id = bench.image().broker(BrokerId(1)).expect("it is registered").incarnation_id;
    let request = BrokerRegistrationRequest { incarnation_id, ..bench.registration(1, &[1101, 1102]) };
    let outcome = bench.state.register_broker(&request, bench.now);
    bench.done(outcome).expect("it is the same process");
    let image = bench.image();
    let broker = image.broker(BrokerId(1)).expect("it is registered");
    assert!(!broker.fenced && !broker.has_online_directory(directory), "{broker:?}");
}

#[test]
fn a_reassignment_ends_when_all_that_are_added_are_in_sync() {
    let mut bench = Bench::new();
    (1..=4).for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2]], &[]);
    bench.reassign("t", &[3, 4]);
    let partition = bench.partition("t", 0);
    assert_eq!(partition.replicas, [3, 4, 1, 2]);
    assert_eq!((partition.adding_replicas, partition.removing_replicas), (vec![3, 4], vec![1, 2]));
    assert_eq!(bench.propose("t", &[1, 2, 3]), ErrorCode::None);
    assert!(bench.partition("t", 0).is_reassigning());
    // The change completes the reassignment, and the leader is removed.
    assert_eq!(bench.propose("t", &[1, 2, 3, 4]), ErrorCode::NewLeaderElected);
    let partition = bench.partition("t", 0);
    assert_eq!((partition.replicas.as_slice(), partition.leader), ([3, 4].as_slice(), 3));
    assert_eq!((partition.isr.as_slice(), partition.is_reassigning()), ([3, 4].as_slice(), false));
    assert_eq!(partition.directories, [Uuid(1003), Uuid(1004)]);
}

#[test]
fn a_reassignment_does_not_wait_for_what_another_was_adding() {
    let mut bench = Bench::new();
    (1..=3).for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2]], &[]);
    bench.reassign("t", &[3, 1]);
    let partition = bench.partition("t", 0);
    assert_eq!((partition.adding_replicas, partition.removing_replicas), (vec![3], vec![2]));
    assert_eq!(bench.propose("t", &[1]), ErrorCode::None);
    bench.reassign("t", &[1, 2]);
    let partition = bench.partition("t", 0);
    assert_eq!((partition.adding_replicas, partition.removing_replicas), (vec![3], vec![3]));
    assert_eq!(bench.propose("t", &[1, 2]), ErrorCode::None);
    let partition = bench.partition("t", 0);
    assert_eq!((partition.replicas.as_slice(), partition.is_reassigning()), ([1, 2].as_slice(), false));
    assert_eq!(partition.isr, [1, 2]);
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
fn the_next_process_of_a_broker_that_left_in_order_is_let_in_at_once() {
    let mut bench = Bench::new();
    [1, 2].into_iter().for_each(|id| bench.join(id));
    bench.beat(1, |_| {});
    assert_eq!(bench.register(1, &[1001]), Err(ErrorCode::DuplicateBrokerRegistration), "it has not left");
    assert!(bench.beat(1, |request| request.want_shut_down = true).should_shut_down);
    assert!(bench.register(1, &[1001]).is_ok());
    // A broker that continues anyway keeps its session.
    assert!(bench.beat(2, |request| request.want_shut_down = true).should_shut_down);
    bench.beat(2, |_| {});
    assert_eq!(bench.register(2, &[1002]), Err(ErrorCode::DuplicateBrokerRegistration));
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

#[test]
fn a_leader_outside_the_isr_is_looked_for_once_that_is_allowed() {
    let mut bench = Bench::new();
    [1, 2].into_iter().for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2]], &[]);
    assert_eq!(bench.propose("t", &[1]), ErrorCode::None);
    bench.beat(1, |request| request.want_fence = true);
    assert!(bench.state.elect_unclean_leaders().records.is_empty(), "nobody allows it");
    // As Kafka's own tests write it.
    configure(&mut bench, "unclean.leader.election.enable", " True");
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER, "allowing it elects nobody yet");
    let pass = bench.state.elect_unclean_leaders();
    assert!(!pass.more);
    bench.apply(pass.records);
    let partition = bench.partition("t", 0);
    assert_eq!((partition.leader, partition.isr.as_slice()), (2, [2].as_slice()));
    assert_eq!(partition.leader_recovery_state, LeaderRecoveryState::Recovering);
    assert_eq!(bench.propose("t", &[2]), ErrorCode::None);
    assert!(bench.state.elect_unclean_leaders().records.is_empty());
}

fn configure(bench: &mut Bench, name: &str, value: &str) {
    let config =
        AlterableConfig { name: name.to_owned(), config_operation: 0, value: Some(value.to_owned()) };
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: "t".to_owned(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    bench.call(request);
}

#[test]
fn settings_are_read_without_regard_to_blanks() {
    let mut bench = Bench::new();
    (1..=3).for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2, 3]], &[]);
    let topic = bench.image().topic("t").expect("it is there").clone();
    for (value, wanted) in [(" 2", 2), ("+3\t", 3), ("two", 1), ("0", 1), ("9", 3)] {
        configure(&mut bench, "min.insync.replicas", value);
        assert_eq!(bench.state.effective_min_isr(&topic), wanted, "{value:?}");
    }
    for (value, wanted) in [("TRUE", true), ("False", false), ("true ", true), ("yes", false)] {
        configure(&mut bench, "unclean.leader.election.enable", value);
        assert_eq!(bench.state.unclean_election_enabled("t"), wanted, "{value:?}");
    }
}

#[test]
fn a_node_that_gave_up_its_broker_is_fenced_in_time() {
    let mut bench = Bench::new();
    [1, 9].into_iter().for_each(|id| bench.join(id));
    bench.create("t", &[&[9, 1]], &[]);
    let (image, next) = (bench.image(), bench.state.next_offset());
    bench.restart(image, next);
    bench.beat(1, |_| {});
    assert_eq!(bench.partition("t", 0).leader, 9, "it may come back");
    bench.now.monotonic_ms = SESSION_MS;
    bench.beat(1, |_| {});
    assert!(bench.fence_stale() && !bench.fence_stale());
    assert_eq!(bench.partition("t", 0).leader, 1);
}

#[test]
fn a_broker_that_loses_a_directory_as_it_is_unfenced_leads_nothing_there() {
    let mut bench = Bench::new();
    bench.register(1, &[1101, 1102]).expect("the broker is taken in");
    bench.beat(1, |_| {});
    bench.join(2);
    bench.create("t", &[&[1]], &[]);
    let request = AssignReplicasToDirsRequest {
        broker_id: 1,
        broker_epoch: bench.image().broker(BrokerId(1)).expect("it is registered").epoch.0,
        directories: vec![DirectoryData {
            id: Uuid(1102),
            topics: vec![DirectoryTopic {
                topic_id: bench.image().topic("t").expect("it is there").id,
                partitions: vec![DirectoryPartition { partition_index: 0 }],
            }],
        }],
    };
    bench.call(request);
    bench.beat(1, |request| request.want_fence = true);
    let answer = bench.beat(1, |request| request.offline_log_dirs = vec![Uuid(1102)]);
    assert!(!answer.is_fenced);
    assert_eq!(bench.partition("t", 0).leader, NO_LEADER);
    assert_eq!(bench.image().broker(BrokerId(1)).expect("it is registered").directories, [Uuid(1101)]);
}

#[test]
fn what_could_not_be_written_is_decided_again() {
    let mut bench = Bench::new();
    [1, 2].into_iter().for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2]], &[]);
    let request = BrokerHeartbeatRequest {
        broker_id: 1,
        broker_epoch: bench.image().broker(BrokerId(1)).expect("it is registered").epoch.0,
        current_metadata_offset: bench.state.next_offset() - 1,
        want_shut_down: true,
        ..Default::default()
    };
    // The disk is full, and the records are dropped.
    let lost = bench.state.broker_heartbeat(&request, bench.now).expect("the heartbeat is taken");
    assert!(!lost.records.is_empty());
    bench.beat(1, |request| request.want_shut_down = true);
    assert_eq!(bench.partition("t", 0).leader, 2);
    let mut again = bench.registration(2, &[1002]);
    again.broker_id = 2;
    bench.beat(2, |request| request.want_fence = true);
    bench.now.monotonic_ms = SESSION_MS;
    assert!(!bench.state.register_broker(&again, bench.now).expect("it is taken in").records.is_empty());
    assert!(!bench.beat(2, |_| {}).is_fenced, "what is registered stays");
}

/// Each check of AlterPartition, in Kafka's order.
#[test]
fn a_wrong_proposal_gets_the_reason() {
    let mut bench = Bench::new();
    (1..=4).for_each(|id| bench.join(id));
    bench.create("t", &[&[1, 2, 3]], &[]);
    bench.beat(3, |request| request.want_fence = true);
    let (image, partition) = (bench.image(), bench.partition("t", 0));
    let epoch = |id: i32| image.broker(BrokerId(id)).expect("it is registered").epoch.0;
    let good = PartitionData {
        leader_epoch: partition.leader_epoch,
        partition_epoch: partition.partition_epoch.0,
        new_isr_with_epochs: [1, 2].map(|id| BrokerState { broker_id: id, broker_epoch: epoch(id) }).to_vec(),
        ..Default::default()
    };
    let isr = |ids: &[i32]| -> Vec<BrokerState> {
        ids.iter().map(|id| BrokerState { broker_id: *id, broker_epoch: -1 }).collect()
    };
    let wrong = |change: fn(&mut PartitionData)| {
        let mut data = good.clone();
        change(&mut data);
        data
    };
    let topic_id = image.topic("t").expect("it is there").id;
    let mut propose = |by: i32, topic_id: Uuid, data: PartitionData| {
        let answer = bench.call(AlterPartitionRequest {
            broker_id: by,
            broker_epoch: epoch(by),
            topics: vec![TopicData { topic_id, partitions: vec![data] }],
        });
        let code = answer.topics.first().map_or(answer.error_code, |t| t.partitions[0].error_code);
        ErrorCode::from_i16(code).expect("a known code")
    };
    use ErrorCode::*;
    assert_eq!(propose(1, Uuid(9), good.clone()), UnknownTopicId);
    assert_eq!(propose(1, topic_id, wrong(|d| d.partition_index = 7)), UnknownTopicOrPartition);
    assert_eq!(propose(1, topic_id, wrong(|d| d.leader_epoch = i32::MAX)), NotController);
    assert_eq!(propose(1, topic_id, wrong(|d| d.partition_epoch += 1)), NotController);
    assert_eq!(propose(1, topic_id, wrong(|d| d.leader_epoch -= 1)), FencedLeaderEpoch);
    assert_eq!(propose(2, topic_id, good.clone()), InvalidRequest, "it does not lead");
    assert_eq!(propose(1, topic_id, wrong(|d| d.partition_epoch -= 1)), InvalidUpdateVersion);
    for ids in [&[][..], &[2], &[1, 1], &[1, 4]] {
        let data = PartitionData { new_isr_with_epochs: isr(ids), ..good.clone() };
        assert_eq!(propose(1, topic_id, data), InvalidRequest, "{ids:?}");
    }
    assert_eq!(propose(1, topic_id, wrong(|d| d.leader_recovery_state = 1)), InvalidRequest);
    let fenced = PartitionData { new_isr_with_epochs: isr(&[1, 2, 3]), ..good.clone() };
    assert_eq!(propose(1, topic_id, fenced), IneligibleReplica);
    let other_process = wrong(|d| d.new_isr_with_epochs[1].broker_epoch += 1);
    assert_eq!(propose(1, topic_id, other_process), IneligibleReplica);
    assert_eq!(propose(1, topic_id, good.clone()), None);
}
