//! Tests of the decisions with a controlled clock, without log and task.

mod acls;
mod credentials;
mod decisions;
mod delegation_tokens;
mod doubled;
mod eligible;
mod log_ends;
mod oracle;
mod replaced;
mod sequences;
mod steps;

use std::sync::Arc;

use rand::Rng;
use thalweg_config::BrokerConfig;
use thalweg_hash::HashMap;
use thalweg_metadata::{
    ConfigMap, ConfigResource, ConfigResourceKind, Image, Loader, PartitionIndex, PartitionRegistration,
    VersionedRecord,
};
use thalweg_security::quota::MutationQuota;
use thalweg_wire::request::UpdateFeaturesRequest;
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
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::{
    AlterPartitionReassignmentsRequest, AlterPartitionRequest, AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, CreateTopicsRequest,
};
use thalweg_wire::{ErrorCode, MetadataRecord, Request, Uuid, frame};

use super::*;
use crate::dispatch;
use crate::options::{ConfigRefusal, EffectiveConfig};
use steps::Cluster;

/// The leader id of a leaderless partition.
const NO_LEADER: i32 = BrokerId::NONE.0;
const EPOCH: i32 = 3;
const SESSION_MS: i64 = 9_000;

/// Rules that allow everything.
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

/// A state, the time, and all records so far. Replaying the records must give the same image.
struct Bench {
    state: State,
    now: Moment,
    replayed: Loader,
}

fn options() -> ControllerOptions {
    let options = ControllerOptions::of(&BrokerConfig::default(), "c", Uuid(5000), "unused".into());
    let mut options = ControllerOptions { node_id: 9, ..options };
    let elr = VersionRange { min: 0, max: 1 };
    options.supported_features.insert(feature::ELIGIBLE_LEADER_REPLICAS_VERSION.to_owned(), elr);
    options
}

impl Bench {
    fn new() -> Bench {
        let options = options();
        let mut state = State::new(&options, Arc::new(Rules), 42);
        let now = Moment { wall_ms: 1_700_000_000_000, monotonic_ms: 0 };
        state.activate(Arc::new(Image::empty()), 0, HashMap::default(), now);
        let mut bench = Bench { state, now, replayed: Loader::new(Arc::new(Image::empty())) };
        let records = bench.state.activation_records(false);
        bench.apply(records);
        bench
    }

    /// Brokers 1 to 3 with a topic `t` of three replicas, at a level of eligible leader replicas.
    fn of_three(elr: i16, min_isr: &str) -> Bench {
        let mut bench = Bench::new();
        (1..=3).for_each(|id| bench.join(id));
        assert_eq!(bench.set_elr(elr), 0);
        bench.create("t", &[&[1, 2, 3]], &[(MIN_INSYNC_REPLICAS, min_isr)]);
        bench
    }

    /// Sets the level of eligible leader replicas; returns the error.
    fn set_elr(&mut self, level: i16) -> i16 {
        let update = FeatureUpdateKey {
            feature: feature::ELIGIBLE_LEADER_REPLICAS_VERSION.to_owned(),
            max_version_level: level,
            upgrade_type: if level == 0 { 2 } else { 1 },
            ..Default::default()
        };
        self.call(UpdateFeaturesRequest { feature_updates: vec![update], ..Default::default() }).error_code
    }

    /// Starts another controller process from the content of the log.
    fn restart(&mut self, image: Arc<Image>, next_offset: i64) {
        self.state = State::new(&options(), Arc::new(Rules), 42);
        self.state.activate(image, next_offset, HashMap::default(), self.now);
    }

    fn apply(&mut self, records: Vec<VersionedRecord>) {
        if records.is_empty() {
            return;
        }
        let batch = self.state.prepare(records, Extent::Several).expect("records fit");
        self.adopt(batch);
    }

    fn adopt(&mut self, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        let records = batch.records().to_vec();
        self.state.adopt(batch, EPOCH, self.now);
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

    fn registration(&self, id: i32, directories: &[u128]) -> BrokerRegistrationRequest {
        let range = |name: &str, max| Feature {
            name: name.to_owned(),
            min_supported_version: 0,
            max_supported_version: max,
        };
        BrokerRegistrationRequest {
            broker_id: id,
            cluster_id: "c".to_owned(),
            incarnation_id: Uuid::random(),
            listeners: vec![Listener {
                name: "L".to_owned(),
                host: "h".to_owned(),
                port: 1,
                security_protocol: 0,
            }],
            features: vec![
                range("metadata.version", 30),
                range("kraft.version", 1),
                range(feature::ELIGIBLE_LEADER_REPLICAS_VERSION, 1),
            ],
            log_dirs: directories.iter().map(|id| Uuid(*id)).collect(),
            ..Default::default()
        }
    }

    fn register(&mut self, id: i32, directories: &[u128]) -> Result<i64, ErrorCode> {
        let request = self.registration(id, directories);
        let outcome = self.state.register_broker(&request, self.now);
        self.done(outcome).map(|response| response.broker_epoch)
    }

    fn beat(&mut self, id: i32, change: impl FnOnce(&mut BrokerHeartbeatRequest)) -> BrokerHeartbeatResponse {
        let mut request = BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: self.state.image().broker(BrokerId(id)).expect("it is registered").epoch.0,
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
        let outcome = self.state.create_topics(&request, &mut MutationQuota::unlimited());
        let response = self.done(outcome).expect("the request is taken");
        assert_eq!(response.topics[0].error_code, 0, "{response:?}");
    }

    fn partition(&self, topic: &str, index: i32) -> PlainRegistration {
        PlainRegistration::new(
            self.state.image().partition(topic, PartitionIndex(index)).expect("it is there"),
        )
    }

    fn fence_stale(&mut self) -> bool {
        match self.state.fence_stale_brokers(self.now) {
            Some(fencing) => {
                self.apply(fencing.records);
                true
            }
            None => false,
        }
    }

    /// A broker reports the directory of its replica of partition 0. Returns the error code.
    fn assign(&mut self, id: i32, directory: u128, topic: &str) -> ErrorCode {
        let image = self.state.image().clone();
        let request = AssignReplicasToDirsRequest {
            broker_id: id,
            broker_epoch: image.broker(BrokerId(id)).expect("it is registered").epoch.0,
            directories: vec![DirectoryData {
                id: Uuid(directory),
                topics: vec![DirectoryTopic {
                    topic_id: image.topic(topic).expect("it is there").id,
                    partitions: vec![DirectoryPartition { partition_index: 0 }],
                }],
            }],
        };
        let outcome = self.state.assign_replicas_to_dirs(&request);
        let response = self.done(outcome).expect("the broker's epoch is right");
        let code = response.directories[0].topics[0].partitions[0].error_code;
        ErrorCode::from_i16(code).expect("a known code")
    }

    /// Starts a reassignment of partition 0.
    fn reassign(&mut self, topic: &str, replicas: &[i32]) {
        let partition = ReassignablePartition { partition_index: 0, replicas: Some(replicas.to_vec()) };
        let topic = ReassignableTopic { name: topic.to_owned(), partitions: vec![partition] };
        let request = AlterPartitionReassignmentsRequest { topics: vec![topic], ..Default::default() };
        let outcome = self.state.alter_partition_reassignments(&request);
        self.done(outcome).expect("the request is taken");
    }

    fn propose(&mut self, topic: &str, isr: &[i32]) -> ErrorCode {
        let image = self.state.image().clone();
        let partition = image.partition(topic, PartitionIndex(0)).expect("it is there");
        let leader = image.broker(partition.leader).expect("a broker leads");
        let request = AlterPartitionRequest {
            broker_id: leader.id.0,
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

/// A registration with its brokers as plain numbers, as the tests write them.
#[derive(Clone, Debug)]
struct PlainRegistration {
    leader: i32,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    adding_replicas: Vec<i32>,
    removing_replicas: Vec<i32>,
    eligible_leader_replicas: Vec<i32>,
    last_known_elr: Vec<i32>,
    registration: Arc<PartitionRegistration>,
}

impl PlainRegistration {
    fn new(registration: &Arc<PartitionRegistration>) -> PlainRegistration {
        PlainRegistration {
            leader: registration.leader.0,
            replicas: BrokerId::numbers(&registration.replicas),
            isr: BrokerId::numbers(&registration.isr),
            adding_replicas: BrokerId::numbers(&registration.adding_replicas),
            removing_replicas: BrokerId::numbers(&registration.removing_replicas),
            eligible_leader_replicas: BrokerId::numbers(&registration.eligible_leader_replicas),
            last_known_elr: BrokerId::numbers(&registration.last_known_elr),
            registration: Arc::clone(registration),
        }
    }
}

impl std::ops::Deref for PlainRegistration {
    type Target = PartitionRegistration;

    fn deref(&self) -> &PartitionRegistration {
        &self.registration
    }
}

impl Cluster for Bench {
    fn cluster_id(&self) -> String {
        self.state.cluster_id.clone()
    }

    fn image(&mut self) -> Arc<Image> {
        self.state.image().clone()
    }

    fn call<R: Request>(&mut self, request: R) -> R::Response {
        let version = R::MAX_VERSION;
        let frame = frame::encode_request(&request, version, 7, None).expect("a request can be written");
        let parsed = dispatch::parse(frame.slice(frame::LENGTH_LEN..), &crate::Requester::ThisProcess, false)
            .expect("a request can be read");
        let dispatch::ParsedFrame::Request(TaskRequest::Decide { decide, .. }) = parsed else {
            panic!("{:?} is not decided by the state", R::KEY)
        };
        let decision = decide(&mut self.state, self.now);
        assert_eq!(decision.unwritable, None);
        self.adopt(decision.batch);
        let answer = decision.answer.expect("a response can be written");
        frame::decode_response::<R>(answer, version).expect("a response can be read").1
    }
}
