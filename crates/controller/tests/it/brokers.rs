//! Registration, sessions, fencing, controlled shutdown.

use std::time::Duration;

use thalweg_metadata::{BrokerId, PartitionIndex};
use thalweg_wire::ErrorCode;
use thalweg_wire::Uuid;
use thalweg_wire::request::alter_partition_request::{BrokerState, PartitionData, TopicData};
use thalweg_wire::request::broker_registration_request::Feature;
use thalweg_wire::request::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{
    AllocateProducerIdsRequest, AlterPartitionRequest, CreateTopicsRequest, IncrementalAlterConfigsRequest,
    UnregisterBrokerRequest,
};

use crate::support::*;

#[tokio::test]
async fn a_broker_registers_and_is_unfenced_once_it_has_seen_its_registration() {
    let bench = Bench::new().await;
    let registered = bench.register(1).await;
    assert_eq!(registered.error_code, 0);
    let epoch = registered.broker_epoch;
    let image = bench.image().await;
    assert!(image.broker(BrokerId(1)).unwrap().fenced);
    assert_eq!(image.broker(BrokerId(1)).unwrap().epoch.0, epoch);

    let behind = bench.beat(1, epoch, epoch - 1, false, false).await;
    assert!(behind.is_fenced && !behind.is_caught_up);
    let there = bench.beat(1, epoch, epoch, false, false).await;
    assert!(!there.is_fenced && there.is_caught_up);
    assert!(bench.image().await.is_alive(BrokerId(1)));

    let stale = bench.beat(1, epoch + 1, epoch, false, false).await;
    assert_eq!(stale.error_code, ErrorCode::StaleBrokerEpoch.code());
}

#[tokio::test]
async fn registrations_that_do_not_fit_are_refused() {
    let bench = Bench::new().await;
    let code = |response: thalweg_wire::request::BrokerRegistrationResponse| {
        ErrorCode::from_i16(response.error_code).unwrap()
    };
    let good = || registration(1, Uuid::random());

    let mut request = good();
    request.cluster_id = "another".to_owned();
    assert_eq!(code(bench.send(request).await), ErrorCode::InconsistentClusterId);
    let mut request = good();
    request.log_dirs.clear();
    assert_eq!(code(bench.send(request).await), ErrorCode::InvalidRegistration);
    let mut request = good();
    request.log_dirs = vec![Uuid(5)];
    assert_eq!(code(bench.send(request).await), ErrorCode::InvalidRegistration);
    let mut request = good();
    request.features.retain(|feature| feature.name != "metadata.version");
    assert_eq!(code(bench.send(request).await), ErrorCode::InvalidRegistration);
    let mut request = good();
    request.features[0].max_supported_version = 29;
    assert_eq!(code(bench.send(request).await), ErrorCode::UnsupportedVersion);
    let mut request = good();
    request.features.retain(|feature| feature.name != "kraft.version");
    assert_eq!(code(bench.send(request).await), ErrorCode::UnsupportedVersion);
    let mut request = good();
    request.features.push(Feature { name: "share.version".to_owned(), ..Default::default() });
    assert_eq!(code(bench.send(request).await), ErrorCode::None, "levels of 0 are no demand");
}

#[tokio::test]
async fn another_process_of_a_living_broker_is_refused_and_the_same_one_may_amend() {
    let bench = Bench::new().await;
    let incarnation = Uuid::random();
    let first = bench.send(registration(2, incarnation)).await;
    bench.beat(2, first.broker_epoch, i64::MAX, false, false).await;
    let other = bench.register(2).await;
    assert_eq!(other.error_code, ErrorCode::DuplicateBrokerRegistration.code());
    let mut amended = registration(2, incarnation);
    amended.rack = Some("r1".to_owned());
    let again = bench.send(amended).await;
    assert_eq!((again.error_code, again.broker_epoch), (0, first.broker_epoch));
    let image = bench.image().await;
    assert!(!image.broker(BrokerId(2)).unwrap().fenced);
    assert_eq!(image.broker(BrokerId(2)).unwrap().rack.as_deref(), Some("r1"));
}

#[tokio::test]
async fn a_silent_broker_is_fenced_and_its_partitions_lose_or_change_their_leader() {
    let bench = Bench::with(|options| options.broker_session_timeout = Duration::from_millis(150)).await;
    let (one, two) = (bench.join(1).await, bench.join(2).await);
    bench.create("both", 4, 2).await;
    bench.create("alone", 8, 1).await;
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(25)).await;
        bench.beat(2, two, i64::MAX, false, false).await;
    }
    let image = bench.image().await;
    assert!(!image.is_alive(BrokerId(1)) && image.is_alive(BrokerId(2)));
    for partition in image.topic("both").unwrap().partitions.values() {
        assert_eq!((partition.leader, partition.isr.as_slice()), (BrokerId(2), [BrokerId(2)].as_slice()));
    }
    for partition in image.topic("alone").unwrap().partitions.values() {
        // The last in-sync replica stays in sync although it is down: no other may lead.
        assert_eq!(partition.isr, partition.replicas);
        let two = BrokerId(2);
        assert_eq!(partition.leader, if partition.replicas == [two] { two } else { BrokerId::NONE });
    }
    bench.beat(1, one, i64::MAX, false, false).await;
    let image = bench.image().await;
    assert!(image.is_alive(BrokerId(1)));
    assert!(image.topic("alone").unwrap().partitions.values().all(|p| p.has_leader()));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the thread stands still, and the controller's task with it")]
async fn brokers_stay_in_sync_while_the_controller_is_held_up() {
    let session = Duration::from_secs(1);
    let bench = Bench::with(|options| options.broker_session_timeout = session).await;
    let epochs = [bench.join(1).await, bench.join(2).await];
    bench.create("t", 2, 2).await;
    for _ in 0..2 {
        std::thread::sleep(2 * session);
        // The controller continues before the next heartbeats arrive.
        tokio::time::sleep(session / 20).await;
        for (id, epoch) in (1..).zip(epochs) {
            assert!(!bench.beat(id, epoch, i64::MAX, false, false).await.is_fenced);
        }
    }
    let image = bench.image().await;
    assert!(image.topic("t").unwrap().partitions.values().all(|p| p.leader_epoch == 0 && p.isr.len() == 2));
    // One that is silent while the controller runs is fenced as ever.
    for _ in 0..30 {
        tokio::time::sleep(session / 20).await;
        bench.beat(2, epochs[1], i64::MAX, false, false).await;
    }
    assert!(!bench.image().await.is_alive(BrokerId(1)));
}

#[tokio::test]
async fn a_broker_that_leaves_gives_its_leaderships_away() {
    let bench = Bench::new().await;
    let (one, _two) = (bench.join(1).await, bench.join(2).await);
    bench.create("t", 6, 2).await;
    let offset = bench.image().await.offset();
    let first = bench.beat(1, one, offset, false, true).await;
    assert!(!first.should_shut_down, "it led partitions");
    let image = bench.image().await;
    assert!(image.broker(BrokerId(1)).unwrap().in_controlled_shutdown);
    assert!(
        image
            .topic("t")
            .unwrap()
            .partitions
            .values()
            .all(|p| p.leader == BrokerId(2) && p.isr == [BrokerId(2)])
    );
    let offset = image.offset();
    bench.beat(2, _two, offset, false, false).await;
    let second = bench.beat(1, one, offset, false, true).await;
    assert!(second.should_shut_down && second.is_fenced);
    assert!(!bench.image().await.is_alive(BrokerId(1)));
}

#[tokio::test]
async fn the_only_broker_may_leave_at_once() {
    let bench = Bench::new().await;
    let one = bench.join(1).await;
    bench.create("t", 2, 1).await;
    assert!(!bench.beat(1, one, i64::MAX, false, true).await.should_shut_down);
    assert!(bench.beat(1, one, i64::MAX, false, true).await.should_shut_down);
    // The next process of this node is admitted without waiting for a session to expire.
    let bench = bench.restart().await;
    let next = bench.join(1).await;
    assert!(next > one);
    assert!(bench.image().await.topic("t").unwrap().partitions.values().all(|p| p.leader == BrokerId(1)));
}

#[tokio::test]
async fn a_killed_node_registers_again_at_once() {
    let bench = Bench::new().await;
    bench.join(1).await;
    bench.create("t", 3, 1).await;
    let bench = bench.restart().await;
    assert!(bench.image().await.is_alive(BrokerId(1)), "nobody has fenced it yet");
    bench.join(1).await;
    let image = bench.image().await;
    let partitions = &image.topic("t").unwrap().partitions;
    assert!(
        partitions.values().all(|p| p.leader == BrokerId(1) && p.leader_epoch == 2 && p.isr == [BrokerId(1)])
    );
}

#[tokio::test]
async fn producer_ids_come_in_blocks_and_are_never_given_twice() {
    let bench = Bench::new().await;
    let epoch = bench.join(1).await;
    let ask = || AllocateProducerIdsRequest { broker_id: 1, broker_epoch: epoch };
    let first = bench.send(ask()).await;
    assert_eq!((first.error_code, first.producer_id_start, first.producer_id_len), (0, 0, 1000));
    assert_eq!(bench.send(ask()).await.producer_id_start, 1000);
    let stale = AllocateProducerIdsRequest { broker_id: 1, broker_epoch: epoch + 1 };
    assert_eq!(bench.send(stale).await.error_code, ErrorCode::StaleBrokerEpoch.code());
    let bench = bench.restart().await;
    let epoch = bench.join(1).await;
    let ask = AllocateProducerIdsRequest { broker_id: 1, broker_epoch: epoch };
    assert_eq!(bench.send(ask).await.producer_id_start, 2000);
}

#[tokio::test]
async fn leaders_propose_who_is_in_sync() {
    let bench = Bench::new().await;
    let epochs = [bench.join(1).await, bench.join(2).await, bench.join(3).await];
    bench.create("t", 1, 3).await;
    let image = bench.image().await;
    let topic = image.topic("t").unwrap();
    let partition = topic.partition(PartitionIndex(0)).unwrap();
    let leader = partition.leader.0;
    let broker_epoch = epochs[usize::try_from(leader - 1).unwrap()];
    let propose = |isr: Vec<(i32, i64)>, leader_epoch: i32, partition_epoch: i32| AlterPartitionRequest {
        broker_id: leader,
        broker_epoch,
        topics: vec![TopicData {
            topic_id: topic.id,
            partitions: vec![PartitionData {
                partition_index: 0,
                leader_epoch,
                new_isr_with_epochs: isr
                    .into_iter()
                    .map(|(broker_id, broker_epoch)| BrokerState { broker_id, broker_epoch })
                    .collect(),
                partition_epoch,
                ..Default::default()
            }],
        }],
    };
    let result =
        |response: thalweg_wire::request::AlterPartitionResponse| response.topics[0].partitions[0].clone();
    let shrunk = result(bench.send(propose(vec![(leader, -1)], 0, 0)).await);
    assert_eq!((shrunk.error_code, shrunk.isr.clone(), shrunk.partition_epoch), (0, vec![leader], 1));
    assert_eq!(shrunk.leader_epoch, 0);
    let old = result(bench.send(propose(vec![(leader, -1)], 0, 0)).await);
    assert_eq!(old.error_code, ErrorCode::InvalidUpdateVersion.code());
    let other = if leader == 1 { 2 } else { 1 };
    let wrong_epoch = result(bench.send(propose(vec![(leader, -1), (other, 999_999)], 0, 1)).await);
    assert_eq!(wrong_epoch.error_code, ErrorCode::IneligibleReplica.code());
    let foreign = result(bench.send(propose(vec![(leader, -1), (9, -1)], 0, 1)).await);
    assert_eq!(foreign.error_code, ErrorCode::InvalidRequest.code());
    let epoch = epochs[usize::try_from(other - 1).unwrap()];
    let grown = result(bench.send(propose(vec![(leader, -1), (other, epoch)], 0, 1)).await);
    assert_eq!((grown.error_code, grown.isr.len(), grown.partition_epoch), (0, 2, 2));
    // The leader's epoch is raised above the one that it knows.
    let future = result(bench.send(propose(vec![(leader, -1)], 5, 2)).await);
    assert_eq!(future.error_code, ErrorCode::NotController.code());
    let behind = result(bench.send(propose(vec![(leader, -1)], 0, 2)).await);
    assert_eq!(behind.error_code, ErrorCode::FencedLeaderEpoch.code());
}

#[tokio::test]
async fn a_broker_can_be_unregistered() {
    let bench = Bench::new().await;
    bench.join(1).await;
    bench.join(2).await;
    bench.create("t", 2, 2).await;
    assert_eq!(bench.send(UnregisterBrokerRequest { broker_id: 2 }).await.error_code, 0);
    let image = bench.image().await;
    assert!(image.broker(BrokerId(2)).is_none());
    assert!(
        image
            .topic("t")
            .unwrap()
            .partitions
            .values()
            .all(|p| p.leader == BrokerId(1) && p.isr == [BrokerId(1)])
    );
    let again = bench.send(UnregisterBrokerRequest { broker_id: 2 }).await;
    assert_eq!(again.error_code, ErrorCode::BrokerIdNotRegistered.code());
}

/// The leader of the only partition of topic `t`, once it is this one.
async fn wait_for_leader(bench: &Bench, wanted: i32) {
    for _ in 0..600 {
        if bench.image().await.partition("t", PartitionIndex(0)).unwrap().leader == BrokerId(wanted) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("broker {wanted} does not come to lead");
}

#[tokio::test]
async fn the_controller_runs_unclean_elections_and_restores_preferred_leaders() {
    let bench = Bench::with(|options| {
        options.unclean_election_interval = Duration::from_millis(10);
        options.rebalance_interval = Duration::from_millis(10);
    })
    .await;
    let epochs = [bench.join(1).await, bench.join(2).await];
    let assigned = CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1, 2] };
    let topic = CreatableTopic {
        name: "t".to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![assigned],
        ..Default::default()
    };
    bench.send(CreateTopicsRequest { topics: vec![topic], ..Default::default() }).await;
    let propose = |by: i32, isr: &[i32], image: &thalweg_metadata::Image| {
        let partition = image.partition("t", PartitionIndex(0)).unwrap();
        AlterPartitionRequest {
            broker_id: by,
            broker_epoch: epochs[usize::try_from(by - 1).unwrap()],
            topics: vec![TopicData {
                topic_id: image.topic("t").unwrap().id,
                partitions: vec![PartitionData {
                    leader_epoch: partition.leader_epoch,
                    partition_epoch: partition.partition_epoch.0,
                    new_isr_with_epochs: isr
                        .iter()
                        .map(|id| BrokerState { broker_id: *id, broker_epoch: -1 })
                        .collect(),
                    ..Default::default()
                }],
            }],
        }
    };
    let image = bench.image().await;
    bench.send(propose(1, &[1], &image)).await;
    bench.beat(1, epochs[0], i64::MAX, true, false).await;
    wait_for_leader(&bench, -1).await;
    let config = AlterableConfig {
        name: "unclean.leader.election.enable".to_owned(),
        config_operation: 0,
        value: Some("true".to_owned()),
    };
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: "t".to_owned(), configs: vec![config] };
    bench.send(IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() }).await;
    wait_for_leader(&bench, 2).await;

    bench.beat(1, epochs[0], i64::MAX, false, false).await;
    let image = bench.image().await;
    let grown = bench.send(propose(2, &[2], &image)).await;
    assert_eq!(grown.topics[0].partitions[0].error_code, 0, "it has recovered");
    let image = bench.image().await;
    let grown = bench.send(propose(2, &[2, 1], &image)).await;
    assert_eq!(grown.topics[0].partitions[0].error_code, 0);
    wait_for_leader(&bench, 1).await;
}
