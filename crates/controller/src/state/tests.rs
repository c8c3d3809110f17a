//! The decisions, one by one, with time in hand: no log, no task.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_metadata::{
    ConfigMap, ConfigResource, ConfigResourceKind, Image, Loader, NO_LEADER, PartitionRegistration,
    VersionedRecord,
};
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use thalweg_wire::request::alter_partition_request::{BrokerState, PartitionData, TopicData};
use thalweg_wire::request::assign_replicas_to_dirs_request::{
    DirectoryData, PartitionData as DirectoryPartition, TopicData as DirectoryTopic,
};
use thalweg_wire::request::broker_registration_request::{Feature, Listener};
use thalweg_wire::request::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use thalweg_wire::request::{
    AlterPartitionReassignmentsRequest, AlterPartitionRequest, AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, CreateTopicsRequest,
};
use thalweg_wire::{ErrorCode, Uuid};

use super::*;
use crate::options::{ConfigRefusal, EffectiveConfig};

const EPOCH: i32 = 3;
const SESSION_MS: i64 = 9_000;

/// Everything is allowed, and `unclean.leader.election.enable` is what the test says.
struct Rules;

impl ConfigRules for Rules {
    fn validate(&self, _: &ConfigResource, _: &ConfigMap, _: &ConfigMap) -> Result<(), ConfigRefusal> {
        Ok(())
    }

    fn is_list(&self, _: ConfigResourceKind, _: &str) -> bool {
        false
    }

    fn default_value(&self, _: ConfigResourceKind, _: &str) -> Option<String> {
        None
    }

    fn effective_topic_configs(&self, _: &ConfigMap, _: &ConfigMap, _: &ConfigMap) -> Vec<EffectiveConfig> {
        Vec::new()
    }
}

/// A state, the time, and every record that was made: replayed a second time, they must make the same image.
struct Bench {
    state: State,
    now: Now,
    replayed: Loader,
}

impl Bench {
    fn new() -> Bench {
        let options = ControllerOptions::new(9, "c", Uuid(5000), "unused".into());
        let mut state = State::new(&options, Arc::new(Rules), 42);
        let now = Now { wall_ms: 1_700_000_000_000, monotonic_ms: 0 };
        state.activate(Arc::new(Image::empty()), 0, HashMap::new(), now);
        let mut bench = Bench { state, now, replayed: Loader::new(Arc::new(Image::empty())) };
        let records = bench.state.activation_records(false);
        bench.apply(records);
        bench
    }

    fn apply(&mut self, records: Vec<VersionedRecord>) {
        if records.is_empty() {
            return;
        }
        for record in &records {
            record.to_value().expect("the version holds the record");
        }
        self.state.apply(&records, EPOCH, self.now).expect("records fit");
        let last = self.state.image().provenance();
        self.replayed.load(last, records.iter().map(|record| &record.record)).expect("records fit");
        self.replayed.publish();
        assert_eq!(**self.replayed.image(), **self.state.image());
    }

    fn done<R>(&mut self, outcome: Result<Outcome<R>, ApiError>) -> Result<R, ErrorCode> {
        let Outcome { records, response } = outcome.map_err(|error| error.code)?;
        self.apply(records);
        Ok(response)
    }

    fn register(&mut self, id: i32, directories: &[u128]) -> Result<i64, ErrorCode> {
        let feature = |name: &str, max| Feature {
            name: name.to_owned(),
            min_supported_version: 0,
            max_supported_version: max,
        };
        let request = BrokerRegistrationRequest {
            broker_id: id,
            cluster_id: "c".to_owned(),
            incarnation_id: Uuid::random(),
            listeners: vec![Listener {
                name: "L".to_owned(),
                host: "h".to_owned(),
                port: 1,
                security_protocol: 0,
            }],
            features: vec![feature("metadata.version", 30), feature("kraft.version", 1)],
            log_dirs: directories.iter().map(|id| Uuid(*id)).collect(),
            ..Default::default()
        };
        let outcome = self.state.register_broker(&request, self.now);
        self.done(outcome).map(|response| response.broker_epoch)
    }

    fn beat(&mut self, id: i32, change: impl FnOnce(&mut BrokerHeartbeatRequest)) -> BrokerHeartbeatResponse {
        let mut request = BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: self.state.image().broker(id).expect("it is registered").epoch.0,
            current_metadata_offset: self.state.next_offset() - 1,
            want_fence: false,
            ..Default::default()
        };
        change(&mut request);
        let outcome = self.state.broker_heartbeat(&request, self.now);
        self.done(outcome).expect("the heartbeat is taken")
    }

    fn join(&mut self, id: i32) {
        self.register(id, &[1000 + u128::from(id.unsigned_abs())]).expect("the broker is taken in");
        assert!(!self.beat(id, |_| {}).is_fenced);
    }

    fn create(&mut self, name: &str, assignments: &[&[i32]], configs: &[(&str, &str)]) {
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: (0..)
                .zip(assignments)
                .map(|(partition_index, ids)| CreatableReplicaAssignment {
                    partition_index,
                    broker_ids: ids.to_vec(),
                })
                .collect(),
            configs: configs
                .iter()
                .map(|(name, value)| CreatableTopicConfig {
                    name: (*name).to_owned(),
                    value: Some((*value).to_owned()),
                })
                .collect(),
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let outcome = self.state.create_topics(&request);
        let response = self.done(outcome).expect("the request is taken");
        assert_eq!(response.topics[0].error_code, 0, "{response:?}");
    }

    fn partition(&self, topic: &str, index: i32) -> PartitionRegistration {
        (**self.state.image().partition(topic, index).expect("it is there")).clone()
    }

    fn fence_stale(&mut self) -> bool {
        match self.state.fence_stale_broker(self.now) {
            Some(records) => {
                self.apply(records);
                true
            }
            None => false,
        }
    }

    /// The leader proposes an ISR; the code.
    fn propose(&mut self, topic: &str, isr: &[i32]) -> ErrorCode {
        let image = self.state.image().clone();
        let partition = image.partition(topic, 0).expect("it is there");
        let leader = image.broker(partition.leader).expect("a broker leads");
        let request = AlterPartitionRequest {
            broker_id: leader.id,
            broker_epoch: leader.epoch.0,
            topics: vec![TopicData {
                topic_id: image.topic(topic).expect("it is there").id,
                partitions: vec![PartitionData {
                    partition_index: 0,
                    leader_epoch: partition.leader_epoch,
                    partition_epoch: partition.partition_epoch.0,
                    new_isr_with_epochs: isr
                        .iter()
                        .map(|id| BrokerState { broker_id: *id, broker_epoch: -1 })
                        .collect(),
                    leader_recovery_state: partition.leader_recovery_state.id(),
                    ..Default::default()
                }],
            }],
        };
        let outcome = self.state.alter_partition(&request, 3);
        let response = self.done(outcome).expect("the broker's epoch is right");
        ErrorCode::from_i16(response.topics[0].partitions[0].error_code).expect("a known code")
    }
}

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
    let options = ControllerOptions::new(9, "c", Uuid(5000), "unused".into());
    bench.state = State::new(&options, Arc::new(Rules), 42);
    bench.state.activate(image, next, HashMap::new(), bench.now);
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

/// What holds of every partition, whatever has happened.
fn check(image: &Image) {
    for topic in image.topics().iter() {
        for partition in topic.partitions.values() {
            assert!(!partition.isr.is_empty(), "{partition:?}");
            assert!(partition.isr.iter().all(|id| partition.is_replica(*id)), "{partition:?}");
            assert_eq!(partition.replicas.len(), partition.directories.len());
            if partition.has_leader() {
                assert!(partition.isr.contains(&partition.leader), "{partition:?}");
                // Not even one that was let go and then changed its mind, as Kafka has it, leads while it is fenced.
                assert!(image.is_alive(partition.leader), "{partition:?}");
            } else {
                // Somebody in sync who is up would lead.
                let up = |id: &i32| image.broker(*id).is_some_and(|broker| broker.is_active());
                assert!(!partition.isr.iter().any(up), "{partition:?}");
            }
        }
    }
}

#[test]
fn whatever_brokers_do_leaders_are_up_and_in_sync() {
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bench = Bench::new();
        (1..=4).for_each(|id| bench.join(id));
        for index in 0..3 {
            let replicas: Vec<i32> = (1..=4).filter(|_| rng.random_bool(0.6)).collect();
            let replicas = if replicas.is_empty() { vec![1] } else { replicas };
            bench.create(&format!("t{index}"), &[&replicas], &[]);
        }
        for _ in 0..120 {
            let id = rng.random_range(1..=4);
            match rng.random_range(0..7) {
                0 => bench.now.monotonic_ms += rng.random_range(0..SESSION_MS),
                1 => while bench.fence_stale() {},
                2 => drop(bench.register(id, &[1000 + u128::from(id.unsigned_abs())])),
                3 => drop(bench.beat(id, |request| request.want_shut_down = true)),
                4 => drop(bench.beat(id, |request| request.want_fence = true)),
                5 => {
                    let topic = format!("t{}", rng.random_range(0..3));
                    let partition = bench.partition(&topic, 0);
                    if partition.has_leader() {
                        let mut isr: Vec<i32> =
                            partition.replicas.iter().copied().filter(|_| rng.random_bool(0.5)).collect();
                        isr.retain(|id| *id != partition.leader);
                        isr.push(partition.leader);
                        bench.propose(&topic, &isr);
                    }
                }
                _ => drop(bench.beat(id, |_| {})),
            }
            check(bench.state.image());
        }
    }
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
