//! Steps of a cluster, generated from a seed and performed on any controller that takes KRaft's requests.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use thalweg_hash::HashMap;
use thalweg_metadata::{BrokerId, ConfigResourceKind, Image, PartitionIndex, PartitionRegistration};
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use thalweg_wire::request::alter_partition_request::{BrokerState, PartitionData, TopicData};
use thalweg_wire::request::assign_replicas_to_dirs_request::{
    DirectoryData, PartitionData as DirectoryPartition, TopicData as DirectoryTopic,
};
use thalweg_wire::request::broker_registration_request::{Feature, Listener};
use thalweg_wire::request::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use thalweg_wire::request::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::elect_leaders_request::TopicPartitions;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{
    AlterPartitionReassignmentsRequest, AlterPartitionRequest, AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest, BrokerRegistrationRequest, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest, UnregisterBrokerRequest,
};
use thalweg_wire::{Request, Uuid};

/// Timeout of an operator's request, in milliseconds.
const TIMEOUT_MS: i32 = 30_000;

/// A controller that takes requests and shows its image.
pub(super) trait Cluster {
    fn cluster_id(&self) -> String;
    fn image(&mut self) -> Arc<Image>;
    fn call<R: Request>(&mut self, request: R) -> R::Response;
}

/// A step of a cluster. Steps refer to brokers and topics by name, so that they can be repeated on another
/// cluster.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Register { id: i32, same_process: bool, clean: bool, rack: Option<String> },
    Beat { id: i32, want_fence: bool, want_shut_down: bool, behind: bool, offline: Vec<Uuid> },
    Propose(Proposal),
    Reassign { topic: String, partition: i32, replicas: Option<Vec<i32>>, same_factor: bool },
    Create { topic: String, assignments: Vec<Vec<i32>> },
    Place { topic: String, partitions: i32, factor: i16 },
    Grow { topic: String, by: i32, assignments: Option<Vec<Vec<i32>>> },
    Delete { topic: String },
    Elect { unclean: bool, partition: Option<(String, i32)> },
    Configure { kind: i8, name: String, key: &'static str, value: Option<String> },
    Unregister { id: i32 },
    Assign { id: i32, directory: Uuid, topic: String, partition: i32 },
}

/// An AlterPartition of one partition.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    topic: String,
    partition: i32,
    /// The proposing broker; the leader if `None`.
    by: Option<i32>,
    isr: Vec<i32>,
    recovery: i8,
    /// The difference of the sent epochs to the current ones.
    leader_epoch_off: i32,
    partition_epoch_off: i32,
    broker_epoch_off: i64,
}

impl Proposal {
    /// True if the proposal adds a replica in an offline directory.
    pub fn adds_offline_replica(&self, image: &Image) -> bool {
        let partition =
            image.topic(&self.topic).and_then(|topic| topic.partition(PartitionIndex(self.partition)));
        partition.is_some_and(|partition| {
            self.isr.iter().any(|id| {
                let directory = partition.directory(BrokerId(*id)).zip(image.broker(BrokerId(*id)));
                let offline =
                    directory.is_some_and(|(directory, broker)| !broker.has_online_directory(directory));
                offline && !partition.isr.contains(&BrokerId(*id))
            })
        })
    }
}

/// The directories of a broker.
pub(super) fn directories(id: i32) -> Vec<Uuid> {
    let count = if id % 2 == 0 { 2 } else { 1 };
    (0..count).map(|n| Uuid(0x7777_0000_0000_4000_8000_0000_0000_0000 + id as u128 * 16 + n)).collect()
}

/// A generator of steps.
pub(super) struct Steps {
    pub rng: SmallRng,
    brokers: i32,
    created: usize,
}

impl Steps {
    pub fn new(seed: u64, brokers: i32) -> Steps {
        Steps { rng: SmallRng::seed_from_u64(seed), brokers, created: 0 }
    }

    fn chance(&mut self, of: f64) -> bool {
        self.rng.random_bool(of)
    }

    fn broker(&mut self) -> i32 {
        self.rng.random_range(1..=self.brokers)
    }

    /// Some brokers, in any order.
    fn some_brokers(&mut self) -> Vec<i32> {
        let mut all: Vec<i32> = (1..=self.brokers).collect();
        all.shuffle(&mut self.rng);
        all.truncate(self.rng.random_range(1..=3.min(all.len())));
        all
    }

    fn partition(&mut self, image: &Image) -> Option<(String, i32, Arc<PartitionRegistration>)> {
        let all: Vec<_> = image
            .topics()
            .sorted()
            .into_iter()
            .flat_map(|topic| topic.partitions.iter().map(|(i, p)| (topic.name.to_string(), i.0, p.clone())))
            .collect();
        all.choose(&mut self.rng).cloned()
    }

    /// A step that is plausible for an image, or invalid in an interesting way.
    pub fn next(&mut self, image: &Image) -> Step {
        let id = self.broker();
        let dice = self.rng.random_range(0..100);
        if image.topics().is_empty() && dice < 20 {
            return self.create();
        }
        match dice {
            0..8 => Step::Register {
                id,
                same_process: self.chance(0.2),
                clean: self.chance(0.6),
                rack: (id % 2 == 0).then(|| "r".to_owned()),
            },
            8..40 => self.beat(id),
            40..62 => self.propose(image).unwrap_or_else(|| self.beat(id)),
            62..72 => self.reassign(image).unwrap_or_else(|| self.beat(id)),
            72..77 => self.create(),
            77..80 => self.grow(image).unwrap_or_else(|| self.create()),
            80..82 => Step::Delete {
                topic: self.partition(image).map_or_else(|| "nothing".to_owned(), |(topic, ..)| topic),
            },
            82..88 => {
                let unclean = self.chance(0.4);
                let one = self.partition(image).filter(|_| unclean || self.chance(0.8));
                Step::Elect { unclean, partition: one.map(|(topic, index, _)| (topic, index)) }
            }
            88..94 => self.configure(image),
            94..96 => Step::Unregister { id },
            _ => self.assign(id, image).unwrap_or_else(|| self.create()),
        }
    }

    fn beat(&mut self, id: i32) -> Step {
        // Never the first directory, because a broker without directories halts.
        let offline = directories(id).into_iter().skip(1).filter(|_| self.rng.random_bool(0.1)).collect();
        Step::Beat {
            id,
            want_fence: self.chance(0.12),
            want_shut_down: self.chance(0.15),
            behind: self.chance(0.1),
            offline,
        }
    }

    fn propose(&mut self, image: &Image) -> Option<Step> {
        let (topic, partition, registration) = self.partition(image)?;
        let mut isr = match self.rng.random_range(0..10) {
            0..5 => {
                let active = |id: &BrokerId| image.broker(*id).is_some_and(|broker| broker.is_active());
                let replicas = registration.replicas.iter().filter(|id| active(id));
                replicas.map(|id| id.0).collect()
            }
            5..9 => {
                let replicas = registration.replicas.iter().filter(|_| self.rng.random_bool(0.5));
                replicas.map(|id| id.0).collect()
            }
            _ => self.some_brokers(),
        };
        if !isr.contains(&registration.leader.0) && self.chance(0.95) {
            isr.push(registration.leader.0);
        }
        if self.chance(0.02) {
            isr.push(registration.replicas[0].0);
        }
        let recovers = self.chance(0.7);
        let mut off =
            |chance: f64| if self.rng.random_bool(chance) { self.rng.random_range(-1..=1) } else { 0 };
        Some(Step::Propose(Proposal {
            topic,
            partition,
            leader_epoch_off: off(0.1),
            partition_epoch_off: off(0.1),
            broker_epoch_off: i64::from(off(0.05)),
            by: self.rng.random_bool(0.05).then(|| self.broker()),
            isr,
            recovery: if recovers { 0 } else { registration.leader_recovery_state.id() },
        }))
    }

    fn reassign(&mut self, image: &Image) -> Option<Step> {
        let (topic, partition, registration) = self.partition(image)?;
        let replicas = if registration.is_reassigning() && self.chance(0.4) || self.chance(0.05) {
            None
        } else {
            Some(self.some_brokers())
        };
        Some(Step::Reassign { topic, partition, replicas, same_factor: self.chance(0.1) })
    }

    fn create(&mut self) -> Step {
        self.created += 1;
        let topic = format!("t{}", self.created);
        let count = self.rng.random_range(1..=2);
        let mut assignments = vec![self.some_brokers()];
        for _ in 1..count {
            let mut replicas = assignments[0].clone();
            replicas.shuffle(&mut self.rng);
            assignments.push(replicas);
        }
        Step::Create { topic, assignments }
    }

    /// As [`Steps::next`], but the controller may also place replicas.
    pub fn next_or_placed(&mut self, image: &Image) -> Step {
        match self.next(image) {
            Step::Create { topic, assignments } if self.chance(0.5) => Step::Place {
                topic,
                partitions: i32::try_from(assignments.len()).expect("a few"),
                factor: i16::try_from(assignments[0].len()).expect("a few"),
            },
            Step::Grow { topic, by, .. } if self.chance(0.5) => Step::Grow { topic, by, assignments: None },
            step => step,
        }
    }

    fn grow(&mut self, image: &Image) -> Option<Step> {
        let (topic, _, _) = self.partition(image)?;
        let by = self.rng.random_range(0..=2);
        let assignments = (0..by.max(1)).map(|_| self.some_brokers()).collect();
        Some(Step::Grow { topic, by, assignments: Some(assignments) })
    }

    fn configure(&mut self, image: &Image) -> Step {
        let (kind, name) = match self.partition(image).filter(|_| self.rng.random_bool(0.9)) {
            Some((topic, ..)) => (ConfigResourceKind::Topic.id(), topic),
            None => (ConfigResourceKind::Broker.id(), String::new()),
        };
        let (key, value) = if self.chance(0.6) {
            ("min.insync.replicas", self.rng.random_range(1..=3).to_string())
        } else {
            ("unclean.leader.election.enable", self.chance(0.5).to_string())
        };
        Step::Configure { kind, name, key, value: self.rng.random_bool(0.85).then_some(value) }
    }

    fn assign(&mut self, id: i32, image: &Image) -> Option<Step> {
        let (topic, partition, _) = self.partition(image)?;
        let directory = *directories(id).choose(&mut self.rng)?;
        Some(Step::Assign { id, directory, topic, partition })
    }
}

/// A performer of steps, with the state of the brokers.
pub(super) struct Performer<C> {
    pub cluster: C,
    processes: HashMap<i32, Uuid>,
}

impl<C: Cluster> Performer<C> {
    pub fn new(cluster: C) -> Performer<C> {
        Performer { cluster, processes: HashMap::default() }
    }

    /// Performs a step; returns its answer, as numbers comparable between clusters.
    pub fn perform(&mut self, step: &Step) -> Vec<i32> {
        let image = self.cluster.image();
        let epoch = |id: i32| image.broker(BrokerId(id)).map_or(-7, |broker| broker.epoch.0);
        match step {
            Step::Register { id, same_process, clean, rack } => {
                let previous = if *clean { epoch(*id) } else { -1 };
                vec![self.register(*id, *same_process, previous, rack.clone())]
            }
            Step::Beat { id, want_fence, want_shut_down, behind, offline } => {
                let answer = self.cluster.call(BrokerHeartbeatRequest {
                    broker_id: *id,
                    broker_epoch: epoch(*id),
                    current_metadata_offset: if *behind { 0 } else { image.offset() },
                    want_fence: *want_fence,
                    want_shut_down: *want_shut_down,
                    offline_log_dirs: offline.clone(),
                    ..Default::default()
                });
                let flags = [answer.is_caught_up, answer.is_fenced, answer.should_shut_down];
                let code = i32::from(answer.error_code);
                // An error has no further content, and the flags are then meaningless.
                if code == 0 { [code].into_iter().chain(flags.map(i32::from)).collect() } else { vec![code] }
            }
            Step::Propose(proposal) => self.propose(&image, proposal),
            Step::Assign { id, directory, topic, partition } => {
                let answer = self.cluster.call(AssignReplicasToDirsRequest {
                    broker_id: *id,
                    broker_epoch: epoch(*id),
                    directories: vec![DirectoryData {
                        id: *directory,
                        topics: vec![DirectoryTopic {
                            topic_id: image.topic(topic).map_or(Uuid(9), |topic| topic.id),
                            partitions: vec![DirectoryPartition { partition_index: *partition }],
                        }],
                    }],
                });
                let parts = answer.directories.iter().flat_map(|d| &d.topics).flat_map(|t| &t.partitions);
                let codes = parts.map(|partition| i32::from(partition.error_code));
                [i32::from(answer.error_code)].into_iter().chain(codes).collect()
            }
            Step::Grow { topic, by, assignments } => {
                let count = image.topic(topic).map_or(0, |topic| topic.partitions.len());
                self.grow(topic, i32::try_from(count).expect("a few") + by, assignments.clone())
            }
            other => self.administer(other),
        }
    }

    fn register(&mut self, id: i32, same_process: bool, previous_epoch: i64, rack: Option<String>) -> i32 {
        let registered = self.cluster.image().broker(BrokerId(id)).cloned();
        let known = self.processes.get(&id).copied().filter(|_| same_process);
        let incarnation_id = known.unwrap_or_else(Uuid::random);
        // A lost directory returns only with the next process.
        let log_dirs = match registered {
            Some(broker) if broker.incarnation_id == incarnation_id => broker.directories.clone(),
            _ => directories(id),
        };
        let feature = |name: &str, max| Feature {
            name: name.to_owned(),
            min_supported_version: 0,
            max_supported_version: max,
        };
        let answer = self.cluster.call(BrokerRegistrationRequest {
            broker_id: id,
            cluster_id: self.cluster.cluster_id(),
            incarnation_id,
            listeners: vec![Listener {
                name: "PLAINTEXT".to_owned(),
                host: "localhost".to_owned(),
                port: 9092,
                security_protocol: 0,
            }],
            features: vec![
                feature("metadata.version", 30),
                feature("kraft.version", 1),
                feature("eligible.leader.replicas.version", 1),
                feature("group.version", 1),
                feature("transaction.version", 2),
                feature("share.version", 2),
                feature("streams.version", 2),
            ],
            log_dirs,
            previous_broker_epoch: previous_epoch,
            rack,
            ..Default::default()
        });
        if answer.error_code == 0 {
            self.processes.insert(id, incarnation_id);
        }
        i32::from(answer.error_code)
    }

    fn propose(&mut self, image: &Image, proposal: &Proposal) -> Vec<i32> {
        let topic = image.topic(&proposal.topic);
        let partition = topic.and_then(|topic| topic.partition(PartitionIndex(proposal.partition)));
        let broker = proposal.by.or(partition.map(|partition| partition.leader.0)).unwrap_or(1);
        let epoch = |id: i32| image.broker(BrokerId(id)).map_or(-7, |broker| broker.epoch.0);
        let isr = proposal.isr.iter().map(|id| BrokerState {
            broker_id: *id,
            broker_epoch: if *id == broker { epoch(*id) } else { epoch(*id) + proposal.broker_epoch_off },
        });
        let answer = self.cluster.call(AlterPartitionRequest {
            broker_id: broker,
            broker_epoch: epoch(broker),
            topics: vec![TopicData {
                topic_id: topic.map_or(Uuid(9), |topic| topic.id),
                partitions: vec![PartitionData {
                    partition_index: proposal.partition,
                    leader_epoch: partition.map_or(0, |p| p.leader_epoch) + proposal.leader_epoch_off,
                    partition_epoch: partition.map_or(0, |p| p.partition_epoch.0)
                        + proposal.partition_epoch_off,
                    new_isr_with_epochs: isr.collect(),
                    leader_recovery_state: proposal.recovery,
                    ..Default::default()
                }],
            }],
        });
        let mut codes = vec![i32::from(answer.error_code)];
        for p in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            codes.push(i32::from(p.error_code));
            if p.error_code == 0 {
                codes.extend([p.leader_id, p.leader_epoch, p.partition_epoch]);
                codes.push(i32::from(p.leader_recovery_state));
                codes.extend(&p.isr);
            }
        }
        codes
    }

    fn grow(&mut self, topic: &str, count: i32, assignments: Option<Vec<Vec<i32>>>) -> Vec<i32> {
        let assignments = assignments.map(|assignments| {
            let each = |broker_ids| CreatePartitionsAssignment { broker_ids };
            assignments.into_iter().map(each).collect()
        });
        let topic = CreatePartitionsTopic { name: topic.to_owned(), count, assignments };
        let answer = self.cluster.call(CreatePartitionsRequest {
            topics: vec![topic],
            timeout_ms: TIMEOUT_MS,
            ..Default::default()
        });
        answer.results.iter().map(|result| i32::from(result.error_code)).collect()
    }

    fn create(&mut self, topic: CreatableTopic) -> Vec<i32> {
        let answer = self.cluster.call(CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: TIMEOUT_MS,
            ..Default::default()
        });
        answer.topics.iter().map(|topic| i32::from(topic.error_code)).collect()
    }

    fn administer(&mut self, step: &Step) -> Vec<i32> {
        match step {
            Step::Reassign { topic, partition, replicas, same_factor } => {
                let partition =
                    ReassignablePartition { partition_index: *partition, replicas: replicas.clone() };
                let topic = ReassignableTopic { name: topic.clone(), partitions: vec![partition] };
                let answer = self.cluster.call(AlterPartitionReassignmentsRequest {
                    allow_replication_factor_change: !same_factor,
                    timeout_ms: TIMEOUT_MS,
                    topics: vec![topic],
                });
                let parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
                parts.map(|partition| i32::from(partition.error_code)).collect()
            }
            Step::Create { topic, assignments } => {
                let assigned = (0..).zip(assignments).map(|(partition_index, ids)| {
                    CreatableReplicaAssignment { partition_index, broker_ids: ids.clone() }
                });
                self.create(CreatableTopic {
                    name: topic.clone(),
                    num_partitions: -1,
                    replication_factor: -1,
                    assignments: assigned.collect(),
                    ..Default::default()
                })
            }
            Step::Place { topic, partitions, factor } => self.create(CreatableTopic {
                name: topic.clone(),
                num_partitions: *partitions,
                replication_factor: *factor,
                ..Default::default()
            }),
            Step::Delete { topic } => {
                let topic = DeleteTopicState { name: Some(topic.clone()), ..Default::default() };
                let request =
                    DeleteTopicsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, ..Default::default() };
                let answer = self.cluster.call(request);
                answer.responses.iter().map(|topic| i32::from(topic.error_code)).collect()
            }
            Step::Elect { unclean, partition } => {
                let one = partition.as_ref().map(|(topic, partition)| {
                    vec![TopicPartitions { topic: topic.clone(), partitions: vec![*partition] }]
                });
                let answer = self.cluster.call(ElectLeadersRequest {
                    election_type: i8::from(*unclean),
                    topic_partitions: one,
                    timeout_ms: TIMEOUT_MS,
                });
                let mut results = answer.replica_election_results;
                results.sort_by(|one, other| one.topic.cmp(&other.topic));
                let parts = results.iter().flat_map(|topic| &topic.partition_result);
                parts.map(|partition| i32::from(partition.error_code)).collect()
            }
            Step::Configure { kind, name, key, value } => {
                let config = AlterableConfig {
                    name: (*key).to_owned(),
                    config_operation: i8::from(value.is_none()),
                    value: value.clone(),
                };
                let resource = AlterConfigsResource {
                    resource_type: *kind,
                    resource_name: name.clone(),
                    configs: vec![config],
                };
                let request =
                    IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
                let answer = self.cluster.call(request);
                answer.responses.iter().map(|resource| i32::from(resource.error_code)).collect()
            }
            Step::Unregister { id } => {
                let answer = self.cluster.call(UnregisterBrokerRequest { broker_id: *id });
                vec![i32::from(answer.error_code)]
            }
            _ => unreachable!("the others are requests of brokers"),
        }
    }
}

/// The state that must be equal in two clusters after the same steps, with this many last known replicas.
pub(super) fn view(image: &Image, last_known: usize) -> Vec<String> {
    let brokers = image.cluster().brokers.values().map(|b| {
        let (fenced, leaving) = (b.fenced, b.in_controlled_shutdown);
        format!("broker {} fenced {fenced} leaving {leaving} in {:?}", b.id, b.directories)
    });
    let partitions = image.topics().sorted().into_iter().flat_map(|topic| {
        topic.partitions.iter().map(|(index, partition)| {
            let mut partition = (**partition).clone();
            // Kafka drops all of them when there is a leader, although nothing is committed without them.
            let known = if partition.has_leader() && last_known == 1 { 0 } else { last_known };
            partition.last_known_elr.truncate(known);
            format!("{}-{index} {partition:?}", topic.name)
        })
    });
    brokers.chain(partitions).collect()
}
