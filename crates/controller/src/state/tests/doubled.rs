//! Requests with every element repeated, including odd and colliding elements: no decision makes a record
//! that does not fit, and after a kill the next start reads the same image from the log.

use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use thalweg_log::Clock;
use thalweg_log::disk::{Disk, MemoryDisk};
use thalweg_security::acl;
use thalweg_wire::request::alter_client_quotas_request::{EntityData, EntryData, OpData};
use thalweg_wire::request::alter_configs_request as legacy;
use thalweg_wire::request::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use thalweg_wire::request::delete_acls_request::DeleteAclsFilter;
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::elect_leaders_request::TopicPartitions;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::{
    AlterClientQuotasRequest, AlterConfigsRequest, AlterUserScramCredentialsRequest, CreateAclsRequest,
    CreatePartitionsRequest, DeleteAclsRequest, DeleteTopicsRequest, ElectLeadersRequest,
    IncrementalAlterConfigsRequest, UnregisterBrokerRequest, UpdateFeaturesRequest,
};
use thalweg_wire::{ApiKey, Refuse};

use super::*;
use crate::driver::Driver;

/// Clusters, and the requests to each between two kills.
const SEEDS: u64 = 1_000;
const REQUESTS: usize = 25;
const BROKERS: i32 = 5;

const NAMES: [&str; 9] = ["a", "b", "c.d", "c_d", "", ".", "no-topic", "__cluster_metadata", "e f"];

/// APIs without a list of elements that are decided one by one.
const WITHOUT_ELEMENTS: [ApiKey; 16] = [
    ApiKey::Fetch,
    ApiKey::FetchSnapshot,
    ApiKey::DescribeQuorum,
    ApiKey::Envelope,
    ApiKey::ApiVersions,
    ApiKey::SaslHandshake,
    ApiKey::SaslAuthenticate,
    ApiKey::DescribeCluster,
    ApiKey::ListPartitionReassignments,
    ApiKey::AllocateProducerIds,
    ApiKey::UnregisterBroker,
    ApiKey::CreateDelegationToken,
    ApiKey::RenewDelegationToken,
    ApiKey::ExpireDelegationToken,
    ApiKey::AddRaftVoter,
    ApiKey::RemoveRaftVoter,
];

/// APIs with such a list.
const DOUBLED: [ApiKey; 16] = [
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::CreatePartitions,
    ApiKey::AlterConfigs,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::ElectLeaders,
    ApiKey::AlterPartitionReassignments,
    ApiKey::AlterClientQuotas,
    ApiKey::AlterUserScramCredentials,
    ApiKey::CreateAcls,
    ApiKey::DeleteAcls,
    ApiKey::UpdateFeatures,
    ApiKey::AlterPartition,
    ApiKey::AssignReplicasToDirs,
    ApiKey::BrokerRegistration,
    ApiKey::BrokerHeartbeat,
];

/// A controller that is killed and started again on the same disk.
struct Node {
    memory: Arc<MemoryDisk>,
    options: ControllerOptions,
    driver: Driver,
    seed: u64,
}

impl Node {
    fn new(seed: u64) -> Node {
        let clock = Clock::manual(1_700_000_000_000);
        let memory = MemoryDisk::new(clock.clone());
        let disk = Disk::in_memory(Arc::clone(&memory));
        let authorizer = Some(acl::Rules { allow_everyone_if_no_acl_found: true, ..Default::default() });
        let options = ControllerOptions { clock, disk, authorizer, ..options() };
        let driver = Driver::open(options.clone(), Arc::new(Rules)).expect("a new log opens");
        Node { memory, options, driver, seed }
    }

    fn call<R: Refuse>(&mut self, request: &R) {
        let version = R::MAX_VERSION;
        let frame = frame::encode_request(request, version, 7, None).expect("a request can be written");
        let parsed = dispatch::parse(frame.slice(frame::LENGTH_LEN..), &crate::Requester::ThisProcess, false)
            .expect("a request can be read");
        let dispatch::ParsedFrame::Request(TaskRequest::Decide { decide, .. }) = parsed else {
            panic!("{:?} is not decided by the state", R::KEY)
        };
        let decided = self.driver.decide_unsynced(&decide);
        assert!(decided.is_ok(), "seed {}: {:?}: {request:?}", self.seed, decided.err());
        sequences::check(self.driver.image());
    }

    /// Kill -9: written data stays, synced or not.
    fn restart(self) -> Node {
        let Node { memory, options, driver, seed } = self;
        let before = Arc::clone(driver.image());
        memory.end_process();
        drop(driver);
        let opened = Driver::open(options.clone(), Arc::new(Rules));
        let driver = opened.unwrap_or_else(|error| panic!("seed {seed} does not start: {error}"));
        let after = driver.image();
        assert!(after.topics() == before.topics(), "seed {seed}");
        assert!(after.configs() == before.configs(), "seed {seed}");
        assert!(after.quotas() == before.quotas(), "seed {seed}");
        assert!(after.acls() == before.acls(), "seed {seed}");
        assert!(after.scram_credentials() == before.scram_credentials(), "seed {seed}");
        assert!(after.features() == before.features(), "seed {seed}");
        assert!(after.cluster().brokers == before.cluster().brokers, "seed {seed}");
        Node { memory, options, driver, seed }
    }
}

/// A generator of requests.
struct Maker {
    rng: SmallRng,
}

impl Maker {
    fn chance(&mut self, of: f64) -> bool {
        self.rng.random_bool(of)
    }

    /// Each element twice, sometimes with other fields and the same name, in random order.
    fn doubled<T: Clone>(
        &mut self,
        make: impl Fn(&mut Maker) -> T,
        change: impl Fn(&mut Maker, &mut T),
    ) -> Vec<T> {
        let mut elements: Vec<T> = (0..self.rng.random_range(1..=3)).map(|_| make(self)).collect();
        for index in 0..elements.len() {
            let mut again = elements[index].clone();
            if self.chance(0.6) {
                change(self, &mut again);
            }
            elements.push(again);
        }
        if self.chance(0.5) {
            elements.shuffle(&mut self.rng);
        }
        elements
    }

    fn name(&mut self) -> String {
        (*NAMES.choose(&mut self.rng).expect("there are some")).to_owned()
    }

    fn known(&mut self, image: &Image) -> String {
        let names: Vec<_> = image.topics().sorted().into_iter().map(|topic| topic.name.to_string()).collect();
        let known = names.choose(&mut self.rng).filter(|_| self.rng.random_bool(0.9)).cloned();
        known.unwrap_or_else(|| self.name())
    }

    fn topic_id(&mut self, image: &Image) -> Uuid {
        let name = self.known(image);
        image.topic(&name).map_or(Uuid(77), |topic| topic.id)
    }

    fn brokers(&mut self) -> Vec<i32> {
        let mut all: Vec<i32> = (1..=BROKERS).collect();
        all.shuffle(&mut self.rng);
        all.truncate(self.rng.random_range(1..=3));
        if self.chance(0.05) {
            all.push(*[all[0], 99, -1].choose(&mut self.rng).expect("there are some"));
        }
        if self.chance(0.02) { Vec::new() } else { all }
    }

    fn index(&mut self) -> i32 {
        if self.chance(0.05) {
            *[-1, 3, 99].choose(&mut self.rng).expect("some")
        } else {
            self.rng.random_range(0..2)
        }
    }

    /// A request of a random API.
    fn send(&mut self, node: &mut Node) {
        let image = Arc::clone(node.driver.image());
        match self.rng.random_range(0..100) {
            0..8 => self.create_topics(node),
            8..12 => self.delete_topics(node, &image),
            12..17 => self.create_partitions(node, &image),
            17..22 => self.alter_configs(node, &image),
            22..30 => self.incremental_alter_configs(node, &image),
            30..38 => self.elect_leaders(node, &image),
            38..55 => self.reassign(node, &image),
            55..60 => self.alter_quotas(node),
            60..64 => self.alter_credentials(node),
            64..68 => self.create_acls(node),
            68..71 => self.delete_acls(node),
            71..74 => self.update_features(node),
            74..82 => self.alter_partition(node, &image),
            82..88 => self.assign_directories(node, &image),
            88..92 => self.register(node, &image),
            92..99 => self.beat(node, &image),
            _ => node.call(&UnregisterBrokerRequest { broker_id: self.rng.random_range(1..=BROKERS) }),
        }
    }

    fn create_topics(&mut self, node: &mut Node) {
        let topics = self.doubled(
            |maker| {
                let config = |maker: &mut Maker| CreatableTopicConfig {
                    name: "min.insync.replicas".to_owned(),
                    value: Some(maker.rng.random_range(0..3).to_string()),
                };
                let assignments = maker.doubled(
                    |maker| CreatableReplicaAssignment {
                        partition_index: maker.index(),
                        broker_ids: maker.brokers(),
                    },
                    |maker, assignment| assignment.partition_index += maker.rng.random_range(0..2),
                );
                let is_placed = maker.chance(0.6);
                CreatableTopic {
                    name: maker.name(),
                    num_partitions: if is_placed { maker.rng.random_range(1..=3) } else { -1 },
                    replication_factor: if is_placed { maker.rng.random_range(1..=3) } else { -1 },
                    assignments: if is_placed { Vec::new() } else { assignments },
                    configs: maker.doubled(config, |_, _| {}),
                }
            },
            // An odd element may get a new name, and is created.
            |maker, topic| topic.name = maker.name(),
        );
        node.call(&CreateTopicsRequest { topics, ..Default::default() });
    }

    fn delete_topics(&mut self, node: &mut Node, image: &Image) {
        let topics = self.doubled(
            |maker| match maker.chance(0.5) {
                true => DeleteTopicState { name: Some(maker.known(image)), topic_id: Uuid::ZERO },
                false => DeleteTopicState { name: None, topic_id: maker.topic_id(image) },
            },
            |_, topic| {
                if let Some(known) = topic.name.take() {
                    topic.topic_id = image.topic(&known).map_or(Uuid(78), |topic| topic.id);
                }
            },
        );
        node.call(&DeleteTopicsRequest { topics, ..Default::default() });
    }

    fn create_partitions(&mut self, node: &mut Node, image: &Image) {
        let topics = self.doubled(
            |maker| {
                let name = maker.known(image);
                let present = image.topic(&name).map_or(0, |topic| topic.partitions.len());
                let by = maker.rng.random_range(0..=2);
                let assignment =
                    |maker: &mut Maker| CreatePartitionsAssignment { broker_ids: maker.brokers() };
                CreatePartitionsTopic {
                    name,
                    count: i32::try_from(present).expect("a few") + by,
                    assignments: maker.chance(0.3).then(|| (0..by).map(|_| assignment(maker)).collect()),
                }
            },
            |_, topic| topic.count += 1,
        );
        node.call(&CreatePartitionsRequest { topics, ..Default::default() });
    }

    fn setting(&mut self) -> (String, String) {
        let names = ["min.insync.replicas", "unclean.leader.election.enable", "x"];
        let values = ["1", "2", " 2", "True", "false", "", "no number"];
        let of = |rng: &mut SmallRng, list: &[&str]| (*list.choose(rng).expect("some")).to_owned();
        (of(&mut self.rng, &names), of(&mut self.rng, &values))
    }

    fn resource(&mut self, image: &Image) -> (i8, String) {
        match self.rng.random_range(0..8) {
            0 => (4, String::new()),
            1 => (4, self.rng.random_range(1..=BROKERS).to_string()),
            2 => (32, "group".to_owned()),
            3 => (16, "metrics".to_owned()),
            _ => (2, self.known(image)),
        }
    }

    fn alter_configs(&mut self, node: &mut Node, image: &Image) {
        let resources = self.doubled(
            |maker| {
                let (resource_type, resource_name) = maker.resource(image);
                let config = |maker: &mut Maker| {
                    let (name, value) = maker.setting();
                    legacy::AlterableConfig { name, value: Some(value) }
                };
                let configs = maker.doubled(config, |maker, config| config.value = Some(maker.setting().1));
                legacy::AlterConfigsResource { resource_type, resource_name, configs }
            },
            |maker, resource| (resource.resource_type, resource.resource_name) = maker.resource(image),
        );
        node.call(&AlterConfigsRequest { resources, ..Default::default() });
    }

    fn incremental_alter_configs(&mut self, node: &mut Node, image: &Image) {
        let resources = self.doubled(
            |maker| {
                let (resource_type, resource_name) = maker.resource(image);
                let config = |maker: &mut Maker| {
                    let (name, value) = maker.setting();
                    let config_operation = maker.rng.random_range(0..4);
                    AlterableConfig { name, config_operation, value: Some(value) }
                };
                // A repeated key is refused, so some elements get a new key to be accepted.
                let configs = maker.doubled(config, |maker, config| config.name = maker.setting().0);
                AlterConfigsResource { resource_type, resource_name, configs }
            },
            |maker, resource| (resource.resource_type, resource.resource_name) = maker.resource(image),
        );
        node.call(&IncrementalAlterConfigsRequest { resources, ..Default::default() });
    }

    fn elect_leaders(&mut self, node: &mut Node, image: &Image) {
        let topics = self.doubled(
            |maker| TopicPartitions {
                topic: maker.known(image),
                partitions: maker.doubled(Maker::index, |maker, index| *index = maker.index()),
            },
            |maker, topic| topic.partitions = vec![maker.index()],
        );
        let election_type = i8::from(self.chance(0.6));
        let topic_partitions = Some(topics).filter(|_| self.rng.random_bool(0.9));
        node.call(&ElectLeadersRequest { election_type, topic_partitions, ..Default::default() });
    }

    fn reassign(&mut self, node: &mut Node, image: &Image) {
        let topics = self.doubled(
            |maker| {
                let partition = |maker: &mut Maker| ReassignablePartition {
                    partition_index: maker.index(),
                    replicas: maker.chance(0.8).then(|| maker.brokers()),
                };
                let another = |maker: &mut Maker, partition: &mut ReassignablePartition| {
                    partition.replicas = maker.chance(0.8).then(|| maker.brokers());
                };
                ReassignableTopic { name: maker.known(image), partitions: maker.doubled(partition, another) }
            },
            |maker, topic| {
                for partition in &mut topic.partitions {
                    partition.replicas = Some(maker.brokers());
                }
            },
        );
        let allow_replication_factor_change = self.chance(0.8);
        node.call(&AlterPartitionReassignmentsRequest {
            topics,
            allow_replication_factor_change,
            ..Default::default()
        });
    }

    fn alter_quotas(&mut self, node: &mut Node) {
        let entries = self.doubled(
            |maker| {
                let entity = maker.doubled(
                    |maker| EntityData {
                        entity_type: (*["user", "client-id"].choose(&mut maker.rng).expect("some"))
                            .to_owned(),
                        entity_name: maker.chance(0.7).then(|| maker.name()),
                    },
                    |_, _| {},
                );
                let entity = if maker.chance(0.2) { entity } else { entity[..1].to_vec() };
                let op = |maker: &mut Maker| OpData {
                    key: (*["producer_byte_rate", "consumer_byte_rate"]
                        .choose(&mut maker.rng)
                        .expect("some"))
                    .to_owned(),
                    value: f64::from(maker.rng.random_range(1..4)),
                    remove: maker.chance(0.3),
                };
                let ops = maker.doubled(op, |_, op| op.remove = !op.remove);
                EntryData { entity, ops: if maker.chance(0.2) { ops } else { ops[..1].to_vec() } }
            },
            |maker, entry| entry.ops[0].remove = maker.chance(0.5),
        );
        node.call(&AlterClientQuotasRequest { entries, ..Default::default() });
    }

    fn alter_credentials(&mut self, node: &mut Node) {
        let user = |maker: &mut Maker| format!("u{}", maker.rng.random_range(0..3));
        let mechanism = |maker: &mut Maker| maker.rng.random_range(0..=3);
        let upsertions = self.doubled(
            |maker| ScramCredentialUpsertion {
                name: user(maker),
                mechanism: mechanism(maker),
                iterations: 4096,
                salt: vec![1; 16].into(),
                salted_password: vec![2; 32].into(),
            },
            |maker, upsertion| upsertion.name = user(maker),
        );
        let deletion =
            |maker: &mut Maker| ScramCredentialDeletion { name: user(maker), mechanism: mechanism(maker) };
        let deletions = self.doubled(deletion, |maker, deletion| deletion.mechanism = mechanism(maker));
        node.call(&AlterUserScramCredentialsRequest { deletions, upsertions });
    }

    fn create_acls(&mut self, node: &mut Node) {
        let creations = self.doubled(
            |maker| AclCreation {
                resource_type: maker.rng.random_range(1..=4),
                resource_name: maker.name(),
                resource_pattern_type: maker.rng.random_range(2..=4),
                principal: "User:a".to_owned(),
                host: "*".to_owned(),
                operation: maker.rng.random_range(1..=4),
                permission_type: maker.rng.random_range(2..=3),
            },
            |maker, creation| creation.resource_name = maker.name(),
        );
        node.call(&CreateAclsRequest { creations });
    }

    fn delete_acls(&mut self, node: &mut Node) {
        let filters = self.doubled(
            |maker| DeleteAclsFilter {
                resource_type_filter: maker.rng.random_range(1..=4),
                resource_name_filter: maker.chance(0.6).then(|| maker.name()),
                pattern_type_filter: maker.rng.random_range(1..=4),
                operation: 1,
                permission_type: 1,
                ..Default::default()
            },
            |_, filter| filter.resource_name_filter = None,
        );
        node.call(&DeleteAclsRequest { filters });
    }

    fn update_features(&mut self, node: &mut Node) {
        let feature_updates = self.doubled(
            |maker| FeatureUpdateKey {
                feature: (*[feature::ELIGIBLE_LEADER_REPLICAS_VERSION, feature::METADATA_VERSION, "x"]
                    .choose(&mut maker.rng)
                    .expect("some"))
                .to_owned(),
                max_version_level: *[0, 1, 22, 29, 30].choose(&mut maker.rng).expect("some"),
                upgrade_type: maker.rng.random_range(1..=3),
                ..Default::default()
            },
            |maker, update| update.max_version_level = *[0, 1, 30].choose(&mut maker.rng).expect("some"),
        );
        node.call(&UpdateFeaturesRequest { feature_updates, ..Default::default() });
    }

    fn alter_partition(&mut self, node: &mut Node, image: &Image) {
        let leader = self.rng.random_range(1..=BROKERS);
        let broker_epoch = image.broker(BrokerId(leader)).map_or(-1, |broker| broker.epoch.0);
        let topics = self.doubled(
            |maker| {
                let topic_id = maker.topic_id(image);
                let partition = |maker: &mut Maker| {
                    let index = maker.index();
                    let known = image.partition_by_id(topic_id, PartitionIndex(index));
                    let mut isr =
                        known.map_or_else(|| maker.brokers(), |known| BrokerId::numbers(&known.replicas));
                    isr.retain(|id| *id == leader || maker.chance(0.7));
                    PartitionData {
                        partition_index: index,
                        leader_epoch: known.map_or(0, |known| known.leader_epoch),
                        partition_epoch: known.map_or(0, |known| known.partition_epoch.0),
                        new_isr_with_epochs: isr
                            .iter()
                            .map(|id| BrokerState { broker_id: *id, broker_epoch: -1 })
                            .collect(),
                        ..Default::default()
                    }
                };
                let partitions = maker.doubled(partition, |_, partition| {
                    partition.new_isr_with_epochs.retain(|state| state.broker_id == leader);
                });
                TopicData { topic_id, partitions }
            },
            |_, topic| topic.partitions.truncate(1),
        );
        node.call(&AlterPartitionRequest { broker_id: leader, broker_epoch, topics });
    }

    fn directory(&mut self, id: i32) -> Uuid {
        let all = steps::directories(id);
        if self.chance(0.05) { Uuid(4242) } else { *all.choose(&mut self.rng).expect("some") }
    }

    fn assign_directories(&mut self, node: &mut Node, image: &Image) {
        let id = self.rng.random_range(1..=BROKERS);
        let broker_epoch = image.broker(BrokerId(id)).map_or(-1, |broker| broker.epoch.0);
        let directories = self.doubled(
            |maker| {
                let partition = |maker: &mut Maker| DirectoryPartition { partition_index: maker.index() };
                let topic = |maker: &mut Maker| DirectoryTopic {
                    topic_id: maker.topic_id(image),
                    partitions: maker.doubled(partition, |_, _| {}),
                };
                DirectoryData { id: maker.directory(id), topics: maker.doubled(topic, |_, _| {}) }
            },
            |maker, directory| directory.id = maker.directory(id),
        );
        node.call(&AssignReplicasToDirsRequest { broker_id: id, broker_epoch, directories });
    }

    fn register(&mut self, node: &mut Node, image: &Image) {
        let id = self.rng.random_range(1..=BROKERS);
        let known = image.broker(BrokerId(id));
        let feature = |name: &str, max| Feature {
            name: name.to_owned(),
            min_supported_version: 0,
            max_supported_version: max,
        };
        let mut features = vec![
            feature(feature::METADATA_VERSION, 30),
            feature(feature::KRAFT_VERSION, 1),
            feature(feature::ELIGIBLE_LEADER_REPLICAS_VERSION, 1),
        ];
        features.extend(features.clone());
        let listener = |name: &str, port| Listener {
            name: name.to_owned(),
            host: "h".to_owned(),
            port,
            security_protocol: 0,
        };
        let is_same = self.chance(0.3);
        let mut log_dirs = steps::directories(id);
        if self.chance(0.1) {
            log_dirs.extend(log_dirs.clone());
        }
        node.call(&BrokerRegistrationRequest {
            broker_id: id,
            cluster_id: "c".to_owned(),
            incarnation_id: known.filter(|_| is_same).map_or_else(Uuid::random, |known| known.incarnation_id),
            listeners: vec![listener("L", 1), listener("L", 2)],
            features,
            log_dirs,
            previous_broker_epoch: if self.chance(0.5) {
                known.map_or(-1, |known| known.epoch.0)
            } else {
                -1
            },
            ..Default::default()
        });
    }

    fn beat(&mut self, node: &mut Node, image: &Image) {
        let id = self.rng.random_range(1..=BROKERS);
        // Never the first directory, because a broker without directories halts.
        let mut offline: Vec<Uuid> = steps::directories(id).into_iter().skip(1).collect();
        offline.retain(|_| self.rng.random_bool(0.2));
        offline.extend(offline.clone());
        let cordoned = self.chance(0.1).then(|| vec![self.directory(id); 2]);
        node.call(&BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: image.broker(BrokerId(id)).map_or(-1, |broker| broker.epoch.0),
            current_metadata_offset: image.offset(),
            want_fence: self.chance(0.1),
            want_shut_down: self.chance(0.1),
            offline_log_dirs: offline,
            cordoned_log_dirs: cordoned,
        });
    }
}

fn run(seed: u64) {
    let mut node = Node::new(seed);
    let mut maker = Maker { rng: SmallRng::seed_from_u64(seed) };
    for _ in 0..2 * BROKERS {
        let image = Arc::clone(node.driver.image());
        maker.register(&mut node, &image);
    }
    for _ in 0..BROKERS {
        let image = Arc::clone(node.driver.image());
        maker.beat(&mut node, &image);
        maker.create_topics(&mut node);
    }
    for _ in 0..REQUESTS {
        maker.send(&mut node);
    }
    node = node.restart();
    for _ in 0..5 {
        maker.send(&mut node);
    }
    node.restart();
}

#[test]
fn doubled_elements_leave_a_log_that_starts_again() {
    let broken: Vec<u64> =
        (0..SEEDS).filter(|seed| std::panic::catch_unwind(|| run(*seed)).is_err()).collect();
    assert!(broken.is_empty(), "{} of {SEEDS} seeds are broken, see above: {broken:?}", broken.len());
}

#[test]
fn every_api_with_elements_is_doubled() {
    for api in dispatch::served_keys() {
        assert!(DOUBLED.contains(&api) != WITHOUT_ELEMENTS.contains(&api), "{api:?}");
    }
}
