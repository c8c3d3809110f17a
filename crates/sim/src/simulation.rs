//! One run of a cluster from a seed: start, faults while clients work, a quiet phase, the check.

mod faults;
mod full_disks;

use crate::chance::Chance;
use crate::check;
use crate::clients::Clients;
use crate::consumer_members;
use crate::history::{History, TOPIC};
use crate::isolation;
use crate::ledger::LEDGER;
use crate::machine::{ProcessEnd, SimMachine};
use crate::network::{MachineId, SharedNetwork};
use crate::operator::{OperatorTask, OperatorTasks};
use crate::panics;
use crate::plan::{Plan, TICK_MS};
use crate::share_ledger::DELIVERIES_MAX;
use crate::share_members::{self, QUEUE};
use crate::streams_members;
use crate::streams_topology::{CHANGELOG, REPARTITION};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use faults::Faults;
use thalweg_client::{Cluster, ConnectionOptions, Connector};
use thalweg_config::{
    ConsumerGroupKeys, ControllerSettings, EffectiveGroupConfig, EffectiveTopicConfig, GroupSettings,
    ListenerSettings, LogSettings, NetworkSettings, NodeSettings, ReplicationSettings, ServerProperties,
    ShareCoordinatorSettings, ShareGroupKeys, StreamsGroupKeys, TopicSettings, TransactionSettings,
};
use thalweg_ids::{BrokerId, PartitionIndex};
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::{
    CreateTopicsRequest, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    UpdateFeaturesRequest,
};

/// The machine of the controller.
pub const CONTROLLER: MachineId = 0;
/// Number of brokers: machines 1 to 3.
pub const BROKERS: usize = 3;
/// The machine of all clients.
const CLIENTS: MachineId = 4;
/// The topic whose partitions have one replica each.
const LONE_TOPIC: &str = "lone";
const NAMES: [&str; 5] = ["controller", "b1", "b2", "b3", "clients"];

/// Time limit for the cluster's recovery after the last fault.
const QUIET_WITHIN_MS: u64 = 90_000;
/// Time until a failed process is restarted.
const DOWN_MS: u64 = 1_000;

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Seed of the run.
    pub seed: u64,
    /// A hash of the history, equal for equal seeds.
    pub digest: u64,
    /// Violations of invariants.
    pub violations: Vec<String>,
    /// Why the cluster was not at rest in time after the last fault, which is no data loss. Replicas are not
    /// compared then.
    pub unrest: Option<String>,
    /// Number of acknowledged records.
    pub acknowledged: u64,
    /// Number of read records.
    pub read: u64,
    /// Number of committed transactions.
    pub committed: u64,
    /// Number of records that members of the share group acknowledged with an answer.
    pub shared: u64,
    /// Number of commits acknowledged to members of the streams group.
    pub streamed: u64,
    /// Number of delivered messages.
    pub messages: u64,
    /// Number of faults.
    pub faults: u64,
    /// Every message, if the plan records them.
    pub trace: Vec<String>,
    /// Duration in simulated time.
    pub simulated: Duration,
}

/// A cluster in simulation.
pub struct Simulation {
    /// The machines: controller, brokers, clients.
    pub machines: Vec<SimMachine>,
    /// The network between the machines.
    pub network: SharedNetwork,
    /// Simulated time since the start.
    pub now_ms: u64,
    /// Start time of each machine's process, if a start is pending.
    pub starts: Vec<Option<u64>>,
    /// The operator's tasks.
    pub tasks: OperatorTasks,
    plan: Plan,
    history: History,
    clients: Clients,
    unrest: Option<String>,
    /// The offsets of the images whose leaders are recorded in the history.
    images: [i64; BROKERS],
}

/// Runs a seed by its plan.
pub fn run(seed: u64) -> Outcome {
    run_plan(seed, Plan::of(seed))
}

/// Runs a seed with a given plan.
pub fn run_plan(seed: u64, plan: Plan) -> Outcome {
    thalweg_ids::seed_ids_of_this_thread(Some(seed));
    thalweg_hash::seed_maps_of_this_thread(Some(seed));
    panics::watch();
    let mut simulation = Simulation::new(seed, plan);
    let faults = simulation.run(seed);
    let outcome = simulation.outcome(seed, faults);
    // Drop all tasks while their ids still follow from the seed, so that nothing reaches the next run.
    drop(simulation);
    thalweg_ids::seed_ids_of_this_thread(None);
    thalweg_hash::seed_maps_of_this_thread(None);
    outcome
}

impl Simulation {
    fn new(seed: u64, plan: Plan) -> Simulation {
        let network = SharedNetwork::new(seed, &NAMES, plan.delays);
        if plan.keeps_trace {
            network.keep_trace();
        }
        let machines: Vec<_> =
            (0..).zip(NAMES).map(|(id, name)| SimMachine::new(id, name, &network)).collect();
        machines[1..=BROKERS].iter().for_each(|machine| machine.disk.set_syncs_lie(plan.syncs_lie));
        let history = History::default();
        let clients = Clients {
            connector: network.connector(CLIENTS),
            bootstrap: (1..=BROKERS).map(|id| format!("b{id}:9092")).collect(),
            partitions: plan.partitions,
            history: history.clone(),
            ending: Arc::new(AtomicBool::new(false)),
            producing: Arc::new(AtomicUsize::new(usize::MAX)),
            attendance: Arc::default(),
            seed,
        };
        let starts = vec![None; NAMES.len()];
        Simulation {
            machines,
            network,
            now_ms: 0,
            starts,
            tasks: OperatorTasks::default(),
            plan,
            history,
            clients,
            unrest: None,
            images: [-1; BROKERS],
        }
    }

    /// Waits until the cluster is at rest. The wait is extended while a share group acknowledges records,
    /// because one member may have many.
    fn comes_to_rest(&mut self) -> bool {
        let partitions = self.plan.partitions;
        let described = |simulation: &Simulation| -> i64 {
            simulation
                .history
                .with(|known| (0..partitions).map(|partition| known.queue.described(partition)).sum())
        };
        loop {
            let before = described(self);
            if self.wait_until(QUIET_WITHIN_MS, |simulation| simulation.unquiet().is_none()) {
                return true;
            }
            if described(self) == before {
                return false;
            }
        }
    }

    /// Performs the run. Returns the number of faults.
    fn run(&mut self, seed: u64) -> u64 {
        tracing::info!(plan = ?self.plan, "Begins");
        for id in CONTROLLER..=BROKERS {
            self.start(id);
        }
        let program = clients(self.clients.clone(), self.plan.clone(), self.tasks.clone());
        self.machines[CLIENTS].start_program(0, program);
        if !self.wait_until(60_000, |simulation| simulation.deviation().is_none()) {
            let why = self.deviation().unwrap_or_default();
            self.history.violation(format!("the cluster did not start: {why}"));
            return 0;
        }
        let mut faults = Faults::new(Chance::new(seed, 1), self.plan.clone());
        let end_ms = self.now_ms + self.plan.faults_ms;
        while self.now_ms < end_ms && self.is_sound() {
            faults.act(self);
            self.step();
        }
        faults.end(self);
        self.clients.ending.store(true, Ordering::SeqCst);
        if self.is_sound()
            && !self.comes_to_rest()
            && !(self.elect_unclean(faults.replaced()) && self.comes_to_rest())
        {
            self.unrest = Some(self.unquiet().unwrap_or_default());
        }
        if self.is_sound() {
            self.check();
        }
        faults.count()
    }

    fn is_sound(&self) -> bool {
        self.history.with(|known| known.violations.is_empty()) && !panics::happened()
    }

    /// Waits for a condition. Returns false if it did not hold in time.
    fn wait_until(&mut self, within_ms: u64, holds: impl Fn(&Simulation) -> bool) -> bool {
        let until_ms = self.now_ms + within_ms;
        while self.now_ms < until_ms {
            // Checking costs more than a step.
            for _ in 0..50 {
                self.step();
            }
            if !self.is_sound() || holds(self) {
                return true;
            }
        }
        false
    }

    /// One tick: delivers due messages, and then runs every machine up to the new time.
    fn step(&mut self) {
        self.now_ms += TICK_MS;
        self.network.advance(self.now_ms);
        for id in 0..self.machines.len() {
            if self.starts[id].is_some_and(|at_ms| at_ms <= self.now_ms) {
                self.starts[id] = None;
                self.start(id);
            }
            self.machines[id].run_until(self.now_ms);
            if self.starts[id].is_none()
                && id != CLIENTS
                && let Some(ended) = self.machines[id].ended()
            {
                if let ProcessEnd::Failed(why) = ended {
                    let name = &self.machines[id].name;
                    tracing::info!(name, why, "Process ended");
                }
                self.machines[id].kill();
                self.starts[id] = Some(self.now_ms + DOWN_MS);
            }
        }
        if self.plan.share_members > 0 {
            self.note_leaders();
        }
    }

    /// Records the newest leader epochs known to any broker.
    fn note_leaders(&mut self) {
        for id in 1..=BROKERS {
            let Some(broker) = self.machines[id].broker() else { continue };
            let image = broker.image();
            let offset = image.offset();
            if std::mem::replace(&mut self.images[id - 1], offset) == offset {
                continue;
            }
            for partition in 0..self.plan.partitions {
                if let Some(registration) = image.partition(TOPIC, PartitionIndex(partition)) {
                    let epoch = registration.leader_epoch;
                    self.history.with(|known| known.queue.knows_epoch(partition, epoch));
                }
            }
        }
    }

    fn start(&mut self, id: MachineId) {
        self.network.power_on(id);
        let properties = properties(id, &self.plan);
        let now_ms = self.now_ms;
        self.machines[id].start_node(now_ms, &properties);
    }

    /// A deviation from the faultless state; `None` if all brokers serve and all replicas are in sync.
    pub fn deviation(&self) -> Option<String> {
        let mut offsets = Vec::new();
        for id in 1..=BROKERS {
            let Some(broker) = self.machines[id].broker() else {
                return Some(format!("broker {id} does not serve"));
            };
            let image = broker.image();
            offsets.push(image.offset());
            if self.plan.topics().any(|topic| image.topic(topic).is_none()) {
                return Some(format!("broker {id} lacks a topic"));
            }
            for topic in image.topics().sorted() {
                for (partition, registration) in &topic.partitions {
                    let all_in_sync = registration.isr.len() == registration.replicas.len();
                    if !all_in_sync || !registration.has_leader() || registration.is_reassigning() {
                        let name = &topic.name;
                        return Some(format!("broker {id}: {name}-{partition} is {registration:?}"));
                    }
                }
            }
            let alive = image.alive_brokers().count();
            if alive < BROKERS {
                return Some(format!("broker {id} sees {alive} brokers"));
            }
        }
        offsets.windows(2).any(|pair| pair[0] != pair[1]).then(|| format!("images are at {offsets:?}"))
    }

    /// The operator's last step, in partitions whose only in-sync replica was on the replaced disk. That
    /// replica may have acknowledged records alone, so the controller elects no other replica; the operator
    /// knows that all replicas were in sync when the disk was replaced. If the controller must always know a
    /// second replica, it gets no help. Returns true if there is such a partition.
    fn elect_unclean(&self, replaced: Option<MachineId>) -> bool {
        let replaced = replaced.and_then(|id| i32::try_from(id).ok()).map(BrokerId);
        let broker = (1..=BROKERS).find_map(|id| self.machines[id].broker());
        let (Some(replaced), Some(broker)) = (replaced, broker) else { return false };
        let image = broker.image();
        let needs_no_help = |topic: &str| {
            let mut configs = image.configs().iter().filter(|(resource, _)| resource.name.as_str() == topic);
            let min_insync =
                configs.find_map(|(_, config)| config.get(EffectiveTopicConfig::min_insync_replicas.name()));
            self.plan.elr && min_insync.is_some_and(|min| min != "1")
        };
        let mut elections = 0;
        for topic in image.topics().sorted().into_iter().filter(|topic| !needs_no_help(&topic.name)) {
            for (&partition, registration) in &topic.partitions {
                let complete =
                    [&registration.isr, &registration.eligible_leader_replicas, &registration.last_known_elr];
                let is_any_known = complete.iter().any(|known| !known.is_empty());
                if registration.has_leader() || is_any_known || !registration.is_replica(replaced) {
                    continue;
                }
                let mut replicas = registration.replicas.clone();
                replicas.sort_by_key(|&id| id == replaced);
                let replicas = BrokerId::numbers(&replicas);
                self.tasks.add(OperatorTask::ElectUnclean(topic.name.to_string(), partition.0, replicas));
                elections += 1;
            }
        }
        elections > 0
    }

    /// A deviation from the quiet state.
    fn unquiet(&self) -> Option<String> {
        if let Some(why) = self.deviation() {
            return Some(why);
        }
        if self.plan.streams_members > 0
            && let Some(why) = self.streams_unrest()
        {
            return Some(why);
        }
        let producing = self.clients.producing.load(Ordering::SeqCst);
        if producing > 0 {
            return Some(format!("{producing} producers have records that are not acknowledged"));
        }
        for partition in 0..self.plan.partitions {
            let end = match self.end_of(TOPIC, partition) {
                Ok(end) => end,
                Err(why) => return Some(why),
            };
            let (read, committed) = self.history.with(|known| {
                let last = known.read.get(&partition).and_then(|read| read.last_key_value());
                let committed = known.committed.get(&partition).copied();
                (last.map_or(0, |(at, _)| at + 1), committed.unwrap_or(0))
            });
            if read < end {
                return Some(format!("partition {partition}: {read} of {end} records are read"));
            }
            if self.plan.members > 0 && committed < end {
                return Some(format!("partition {partition}: the group has committed {committed} of {end}"));
            }
            let owner = self.history.with(|known| known.owners.get(&partition).copied());
            if self.plan.consumer_members > 0 && owner.is_none() && !self.plan.is_mixed() {
                return Some(format!(
                    "partition {partition} has no owner in the group of the consumer protocol"
                ));
            }
            let described = self.history.with(|known| known.queue.described(partition));
            if self.plan.share_members > 0 && described < end {
                return Some(format!(
                    "partition {partition}: the share group is done with {described} of {end}"
                ));
            }
            if self.plan.has_transactions() {
                let end = match self.end_of(LEDGER, partition) {
                    Ok(end) => end,
                    Err(why) => return Some(why),
                };
                let read = self.history.with(|known| known.ledger.positions.get(&partition).copied());
                if read.unwrap_or(0) < end {
                    return Some(format!("{LEDGER}-{partition}: {read:?} of {end} is read as committed"));
                }
            }
        }
        None
    }

    /// Why the streams group is not at rest, or its internal topics are wrong.
    fn streams_unrest(&self) -> Option<String> {
        let shape = self.plan.shape();
        let unrest =
            self.history.with(|known| known.streams.unrest(shape.tasks(), streams_members::STANDBYS));
        if unrest.is_some() {
            return unrest;
        }
        let expected = usize::try_from(shape.internal_partitions()).unwrap_or(0);
        for (name, cleanup) in [(REPARTITION, "delete"), (CHANGELOG, "compact")] {
            let broker = (1..=BROKERS).find_map(|id| self.machines[id].broker())?;
            let image = broker.image();
            let found = image.topic(name).map_or(0, |topic| topic.partitions.len());
            let config = image.configs().iter().find(|(resource, _)| resource.name.as_str() == name);
            let policy =
                config.and_then(|(_, config)| config.get(EffectiveTopicConfig::cleanup_policy.name()));
            if found != expected || policy.map(String::as_str) != Some(cleanup) {
                return Some(format!(
                    "{name} has {found} partitions, not {expected}, and is cleaned by {policy:?}"
                ));
            }
        }
        None
    }

    /// The common log end and high watermark of a partition's replicas, or their difference.
    fn end_of(&self, topic: &str, partition: i32) -> Result<i64, String> {
        let mut ends = Vec::new();
        for (id, _) in self.replicas(topic, partition) {
            let Some(broker) = self.machines[id].broker() else { return Err("a broker is down".to_owned()) };
            let Some(found) = broker.partitions.get(topic, PartitionIndex(partition)) else {
                return Err(format!("broker {id} has no {topic}-{partition}"));
            };
            let offsets = found.published_offsets();
            ends.push((offsets.log_end_offset().0, offsets.high_watermark().0));
        }
        let end = ends.first().map_or(0, |(end, _)| *end);
        match ends.iter().all(|&ends| ends == (end, end)) {
            true => Ok(end),
            false => Err(format!("{topic}-{partition}: log ends and high watermarks are {ends:?}")),
        }
    }

    /// The machines with a replica of a partition by some broker's image, with their names.
    fn replicas(&self, topic: &str, partition: i32) -> Vec<(MachineId, String)> {
        let image = (1..=BROKERS).find_map(|id| self.machines[id].broker()).map(|broker| broker.image());
        let registration = image.and_then(|image| image.partition(topic, PartitionIndex(partition)).cloned());
        let replicas = registration.map(|registration| registration.replicas.clone()).unwrap_or_default();
        let machines = replicas.into_iter().filter_map(|id| MachineId::try_from(id.0).ok());
        machines.map(|id| (id, self.machines[id].name.clone())).collect()
    }

    /// The machine whose broker leads a partition in the newest leader epoch known to any broker.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<MachineId> {
        let brokers = (1..=BROKERS).filter_map(|id| self.machines[id].broker());
        let registrations =
            brokers.filter_map(|broker| broker.image().partition(topic, PartitionIndex(partition)).cloned());
        let newest = registrations.max_by_key(|registration| registration.leader_epoch)?;
        MachineId::try_from(newest.leader.0).ok()
    }

    /// Checks the disks of all replicas and the reads. If the cluster is not at rest, only the leaders' disks
    /// are checked.
    fn check(&self) {
        let mut wrong = Vec::new();
        for partition in 0..self.plan.partitions {
            let log = |id: MachineId, topic| check::log_of(&self.machines[id].disk, topic, partition);
            if self.unrest.is_none() {
                for topic in self.plan.topics() {
                    let replicas = self.replicas(topic, partition).into_iter();
                    let logs: Vec<_> = replicas.map(|(id, name)| (name, log(id, topic))).collect();
                    wrong.extend(check::differences(topic, partition, &logs));
                }
                if self.plan.has_transactions() {
                    wrong.extend(self.check_isolation(partition));
                }
            }
            // Without a leader, the correct replica is unknown.
            if let Some(leader) = self.leader(TOPIC, partition) {
                let log = log(leader, TOPIC);
                wrong.extend(self.history.with(|known| check::check(partition, &log, known)));
            }
            if self.plan.share_members > 0
                && self.unrest.is_none()
                && let Ok(end) = self.end_of(TOPIC, partition)
            {
                wrong.extend(self.history.with(|known| known.queue.check(partition, end)));
            }
        }
        wrong.extend(self.history.with(|known| known.ledger.check(self.unrest.is_none())));
        wrong.into_iter().for_each(|what| self.history.violation(what));
    }

    /// Compares the transaction indexes of a partition's replicas, and reads committed records from each
    /// replica.
    fn check_isolation(&self, partition: i32) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut indexes = Vec::new();
        for (id, name) in self.replicas(LEDGER, partition) {
            let disk = &self.machines[id].disk;
            indexes.push((name.clone(), check::txn_indexes_of(disk, LEDGER, partition)));
            let broker = self.machines[id].broker();
            let replica = broker.and_then(|broker| broker.partitions.get(LEDGER, PartitionIndex(partition)));
            if let Some(replica) = replica {
                let fault = isolation::check(&replica, &check::log_of(disk, LEDGER, partition));
                wrong.extend(fault.map(|fault| format!("{LEDGER}-{partition} on {name}: {fault}")));
            }
        }
        wrong.extend(check::index_differences(LEDGER, partition, &indexes));
        wrong
    }

    fn outcome(&self, seed: u64, faults: u64) -> Outcome {
        let digest = self.history.digest(&self.network);
        let mut violations = self.history.with(|known| known.violations.clone());
        violations.extend(panics::take());
        let (acknowledged, read, committed, shared) = self.history.with(|known| {
            let acknowledged = known.acknowledged.values().flatten().map(|run| run.records).sum();
            let read = known.read.values().map(|read| read.len() as u64).sum();
            (acknowledged, read, known.ledger.committed(), known.queue.acknowledged())
        });
        Outcome {
            seed,
            digest,
            violations,
            unrest: self.unrest.clone(),
            acknowledged,
            read,
            committed,
            shared,
            streamed: self.history.with(|known| known.streams.commits()),
            messages: self.network.delivered(),
            faults,
            trace: self.network.take_trace(),
            simulated: Duration::from_millis(self.now_ms),
        }
    }
}

fn properties(id: MachineId, plan: &Plan) -> ServerProperties {
    let mut properties = ServerProperties::default();
    let mut set = |key: &str, value: &str| properties.set(key, value);
    let dirs = if id == CONTROLLER { vec!["/data".to_owned()] } else { plan.dirs() };
    set(LogSettings::dirs.name(), &dirs.join(","));
    set(ControllerSettings::session_timeout.name(), "3000");
    set(ControllerSettings::heartbeat_interval.name(), "500");
    set(TopicSettings::auto_create.name(), "false");
    set(ControllerSettings::rebalances_leaders.name(), if plan.rebalances { "true" } else { "false" });
    set(ControllerSettings::leader_imbalance_check_interval.name(), "5");
    set(ControllerSettings::request_timeout.name(), "1500");
    set(NetworkSettings::request_timeout.name(), "4000");
    set(ControllerSettings::initial_registration_timeout.name(), "20000");
    if id == CONTROLLER {
        set(NodeSettings::roles.name(), "controller");
        set(NodeSettings::id.name(), "100");
        set(ControllerSettings::listener_names.name(), "CONTROLLER");
        set(ListenerSettings::listeners.name(), "CONTROLLER://controller:9093");
        return properties;
    }
    set(NodeSettings::roles.name(), "broker");
    set(NodeSettings::id.name(), &id.to_string());
    set(ControllerSettings::bootstrap_servers.name(), "controller:9093");
    set(ControllerSettings::listener_names.name(), "CONTROLLER");
    set(ListenerSettings::listeners.name(), &format!("PLAINTEXT://b{id}:9092"));
    set(LogSettings::recovery_threads_per_dir.name(), "1");
    set(ReplicationSettings::lag_time_max.name(), "2500");
    set(ReplicationSettings::socket_timeout.name(), "3000");
    set(ReplicationSettings::fetch_wait_max.name(), "200");
    set(ReplicationSettings::fetch_backoff.name(), "200");
    set(ReplicationSettings::high_watermark_checkpoint_interval.name(), "1000");
    set(LogSettings::initial_task_delay.name(), "500");
    set(LogSettings::retention_ms.name(), "-1");
    if plan.flushes {
        // Includes the internal topics.
        set(LogSettings::flush_interval_messages.name(), "1");
    }
    set(GroupSettings::offsets_topic_partitions.name(), "1");
    set(GroupSettings::offsets_topic_replication_factor.name(), "3");
    let session_ms = consumer_members::SESSION.as_millis().to_string();
    set(ConsumerGroupKeys::min_session_timeout_ms.name(), &session_ms);
    set(ConsumerGroupKeys::session_timeout_ms.name(), &session_ms);
    let [session_ms, lock_ms] =
        [share_members::SESSION, share_members::LOCK].map(|time| time.as_millis().to_string());
    set(ShareGroupKeys::min_session_timeout_ms.name(), &session_ms);
    set(ShareGroupKeys::session_timeout_ms.name(), &session_ms);
    set(ShareGroupKeys::min_record_lock_duration_ms.name(), "1000");
    set(ShareGroupKeys::record_lock_duration_ms.name(), &lock_ms);
    set(ShareGroupKeys::delivery_count_limit.name(), &DELIVERIES_MAX.to_string());
    set(ShareGroupKeys::partition_max_record_locks.name(), "400");
    let session_ms = streams_members::SESSION.as_millis().to_string();
    set(StreamsGroupKeys::min_session_timeout_ms.name(), &session_ms);
    set(StreamsGroupKeys::session_timeout_ms.name(), &session_ms);
    set(StreamsGroupKeys::min_heartbeat_interval_ms.name(), "500");
    set(StreamsGroupKeys::heartbeat_interval_ms.name(), "500");
    set(StreamsGroupKeys::initial_rebalance_delay_ms.name(), "500");
    set(StreamsGroupKeys::num_standby_replicas.name(), &streams_members::STANDBYS.to_string());
    set(ShareCoordinatorSettings::state_topic_partitions.name(), "1");
    set(ShareCoordinatorSettings::state_topic_replication_factor.name(), "3");
    set(ShareCoordinatorSettings::state_topic_min_isr.name(), "2");
    set(TransactionSettings::state_topic_partitions.name(), "1");
    set(TransactionSettings::state_topic_replication_factor.name(), "3");
    set(TransactionSettings::state_topic_min_isr.name(), "2");
    set(TransactionSettings::abort_timed_out_interval.name(), "1000");
    properties
}

/// The program of the clients' machine: creates topics, then runs the clients.
async fn clients(clients: Clients, plan: Plan, tasks: OperatorTasks) {
    create_topics(&clients.connector, &clients.bootstrap, &plan).await;
    let operator = tasks.work(clients.connector.clone(), clients.bootstrap.clone());
    tokio::join!(clients.run(&plan), operator);
}

async fn create_topics(connector: &Connector, bootstrap: &[String], plan: &Plan) {
    let config = |name: &str, value: &str| CreatableTopicConfig {
        name: name.to_owned(),
        value: Some(value.to_owned()),
    };
    let segment_bytes = plan.segment_bytes.to_string();
    let mut configs = vec![
        config(EffectiveTopicConfig::min_insync_replicas.name(), "2"),
        config(EffectiveTopicConfig::internal_segment_bytes.name(), &segment_bytes),
    ];
    if plan.flushes {
        configs.push(config(EffectiveTopicConfig::flush_messages.name(), "1"));
    }
    let topic = |name: &str| CreatableTopic {
        name: name.to_owned(),
        num_partitions: plan.partitions,
        replication_factor: if name == LEDGER { plan.ledger_replicas } else { 3 },
        configs: configs.clone(),
        ..CreatableTopic::default()
    };
    let lone = plan.has_lone_topic.then(|| CreatableTopic {
        name: LONE_TOPIC.to_owned(),
        num_partitions: 3,
        replication_factor: 1,
        ..CreatableTopic::default()
    });
    let topics = plan.topics().map(topic).chain(lone).collect();
    let request = CreateTopicsRequest { topics, timeout_ms: 5000, ..Default::default() };
    let features = eligible_leader_replicas(plan.elr);
    loop {
        let options = ConnectionOptions { connect_timeout: Duration::from_secs(2), ..Default::default() };
        if let Ok(cluster) = Cluster::connect_by(connector.clone(), bootstrap, &options).await
            && cluster.metadata().brokers.len() == BROKERS
            && let Ok(updated) = cluster.send_any(&features).await
            && updated.error_code == 0
            && (plan.share_members == 0
                || cluster.send_any(&reads_from_the_beginning()).await.is_ok_and(is_set))
            && let Ok(created) = cluster.send_any(&request).await
            && created.topics.iter().all(|topic| matches!(topic.error_code, 0 | 36))
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Makes the share group read from the start. A broker that knows the topic knows this setting, too.
fn reads_from_the_beginning() -> IncrementalAlterConfigsRequest {
    /// Kafka's resource type of groups.
    const OF_GROUP: i8 = 32;
    let config = AlterableConfig {
        name: EffectiveGroupConfig::share_auto_offset_reset.name().to_owned(),
        config_operation: 0,
        value: Some("earliest".to_owned()),
    };
    let resource = AlterConfigsResource {
        resource_type: OF_GROUP,
        resource_name: QUEUE.to_owned(),
        configs: vec![config],
    };
    IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false }
}

fn is_set(answer: IncrementalAlterConfigsResponse) -> bool {
    answer.responses.iter().all(|resource| resource.error_code == 0)
}

/// Sets the feature, regardless of a new cluster's default.
fn eligible_leader_replicas(on: bool) -> UpdateFeaturesRequest {
    const UPGRADE: i8 = 1;
    const SAFE_DOWNGRADE: i8 = 2;
    let update = FeatureUpdateKey {
        feature: "eligible.leader.replicas.version".to_owned(),
        max_version_level: i16::from(on),
        upgrade_type: if on { UPGRADE } else { SAFE_DOWNGRADE },
        ..FeatureUpdateKey::default()
    };
    UpdateFeaturesRequest { timeout_ms: 5000, feature_updates: vec![update], ..Default::default() }
}
