//! The machines of a running cluster's brokers in a repetition, watched by their agents: usage of machines
//! and of brokers' processes, and the log files in data directories.
//!
//! No agent of a broker is needed for a measurement, so that a lost one does not end it. The usage of its
//! machine is unknown from then on, and the verdict objects. Figures of all brokers need the processes of
//! all.

use std::sync::Arc;

use thalweg_client::TopicPartition;
use tokio::task::JoinSet;

use crate::agent::{AdvertisedBroker, AgentError, Agents, MachineUse};
use crate::evidence::replica_bytes;
use crate::result::{
    AgentInfo, BrokerMachineUse, DataDirectory, Evidence, Figures, Interface, PartitionEvidence,
    PartitionFiles, ProcessUse, WatchedBroker,
};

/// Number of names in a note.
const NAMED_MAX: usize = 5;

/// The watched machines of a repetition.
#[derive(Debug)]
pub(super) struct BrokerMachines {
    agents: Agents,
    /// All brokers of the cluster; empty if agents cannot find them, as on Apache Pulsar.
    cluster: Vec<AdvertisedBroker>,
    watched: Vec<Result<WatchedMachine, String>>,
}

#[derive(Debug)]
struct WatchedMachine {
    /// The agent's clock minus the lab's.
    offset_us: i64,
    brokers: Vec<WatchedBroker>,
    machine: MachineUse,
}

/// What is known of brokers and their machines after a repetition.
#[derive(Debug, Default)]
pub(super) struct MachineUses {
    pub(super) machines: Vec<BrokerMachineUse>,
    /// The brokers that are on no watched machine.
    pub(super) unwatched: Vec<String>,
    /// Notes for readers of the result.
    pub(super) notes: Vec<String>,
    /// True if the processes of all brokers are known.
    has_all_processes: bool,
}

/// The brokers of a cluster and their addresses.
pub(super) fn advertised(cluster: &thalweg_client::Cluster) -> Vec<AdvertisedBroker> {
    let metadata = cluster.metadata();
    let brokers = metadata.brokers.values().filter_map(|broker| {
        let port = u16::try_from(broker.port).ok()?;
        Some(AdvertisedBroker { name: name(broker.id), host: broker.host.clone(), port })
    });
    brokers.collect()
}

fn name(broker: i32) -> String {
    format!("broker-{broker}")
}

impl BrokerMachines {
    /// Finds the brokers on the machines, and starts to sample.
    pub(super) async fn begin(agents: &Agents, cluster: Vec<AdvertisedBroker>) -> BrokerMachines {
        let of = |agent| {
            let (agents, cluster) = (agents.clone(), cluster.clone());
            async move {
                let begun = WatchedMachine::begin(&agents, agent, &cluster).await;
                begun.map_err(|error| error.to_string())
            }
        };
        let watched = at_once((0..agents.count()).map(of)).await;
        BrokerMachines { agents: agents.clone(), cluster, watched }
    }

    /// The usage between two times of the lab's clock, and that of the brokers' processes.
    pub(super) async fn finish(self, span_us: (u64, u64)) -> (MachineUses, Vec<ProcessUse>) {
        let infos = self.agents.infos();
        let (mut machines, mut processes) = (Vec::<BrokerMachineUse>::new(), Vec::new());
        let finishing = self.watched.into_iter().enumerate().map(|(agent, watched)| {
            let mut machine = BrokerMachineUse {
                boot_id: infos[agent].boot_id.clone(),
                cpus: infos[agent].machine.cpus,
                is_on_lab_machine: self.agents.is_here(agent),
                address: self.agents.address(agent).to_owned(),
                ..BrokerMachineUse::default()
            };
            async move {
                let usage = match watched {
                    Ok(watched) => watched.finish(&mut machine, span_us).await,
                    Err(why) => return (machine, Err(why)),
                };
                (machine, usage.map_err(|error| error.to_string()))
            }
        });
        for ((mut machine, usage), info) in at_once(finishing).await.into_iter().zip(&infos) {
            match usage {
                Ok(used) => {
                    set_speeds(&mut machine, &info.interfaces);
                    processes.extend(used.into_iter().filter(|used| counts(used, &machine, &machines)).map(
                        |used| ProcessUse { name: format!("{} on {}", used.name, machine.address), ..used },
                    ));
                }
                Err(why) => machine.lost = Some(why),
            }
            machines.push(machine);
        }
        (MachineUses::of(machines, &self.cluster), processes)
    }
}

/// The results of requests to all agents at once, in the order of the requests: a slow machine makes the
/// others' usage no older.
async fn at_once<T: Send + 'static>(
    requests: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut running = JoinSet::new();
    for (place, request) in requests.enumerate() {
        running.spawn(async move { (place, request.await) });
    }
    let mut done = running.join_all().await;
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

impl WatchedMachine {
    async fn begin(
        agents: &Agents,
        agent: usize,
        cluster: &[AdvertisedBroker],
    ) -> Result<WatchedMachine, AgentError> {
        let offset_us = agents.clock(agent).await?.offset_us;
        let (brokers, machine) = agents.watch(agent, cluster).await?;
        Ok(WatchedMachine { offset_us, brokers, machine })
    }

    /// Sets the usage of the machine between two times of the lab's clock. Returns that of the processes.
    async fn finish(
        self,
        machine: &mut BrokerMachineUse,
        span_us: (u64, u64),
    ) -> Result<Vec<ProcessUse>, AgentError> {
        // Known, even if the agent is lost.
        machine.brokers = self.brokers;
        let usage = self.machine.finish(span_us, self.offset_us).await?;
        machine.host = usage.host;
        machine.brokers = usage.brokers;
        for broker in &mut machine.brokers {
            let has_usage = usage.processes.iter().any(|used| Some(used.pid) == broker.pid);
            if !has_usage && broker.process_unknown.is_none() {
                broker.process_unknown = Some("no sample was taken of it".to_owned());
            }
        }
        Ok(usage.processes)
    }
}

/// Sets the speeds of interfaces that samples do not have.
fn set_speeds(machine: &mut BrokerMachineUse, interfaces: &[Interface]) {
    for link in &mut machine.host.interfaces {
        let known = interfaces.iter().find(|known| known.name == link.name);
        link.speed_mbit_per_s = link.speed_mbit_per_s.or(known.and_then(|known| known.speed_mbit_per_s));
    }
}

/// True for a process whose usage is whole, of a broker that no agent before has on the same machine. A
/// process that serves several brokers counts once.
fn counts(used: &ProcessUse, machine: &BrokerMachineUse, before: &[BrokerMachineUse]) -> bool {
    let is_known = |broker: &WatchedBroker| broker.name == used.name && broker.process_unknown.is_none();
    let first = machine.brokers.iter().find(|broker| broker.pid == Some(used.pid));
    let mut earlier = before.iter().flat_map(|machine| &machine.brokers);
    first.is_some_and(is_known) && !earlier.any(is_known)
}

impl MachineUses {
    fn of(machines: Vec<BrokerMachineUse>, cluster: &[AdvertisedBroker]) -> MachineUses {
        let machine_of = |name: &str| {
            machines.iter().find(|machine| machine.brokers.iter().any(|broker| broker.name == name))
        };
        let (mut unwatched, mut notes) = (Vec::new(), Vec::new());
        let mut has_all_processes = !cluster.is_empty();
        for broker in cluster {
            match machine_of(&broker.name) {
                Some(machine) => has_all_processes &= machine.has_all_processes(),
                None => unwatched.push(broker.name.clone()),
            }
        }
        has_all_processes &= unwatched.is_empty();
        for machine in &machines {
            let address = &machine.address;
            notes.extend(machine.lost.iter().map(|why| {
                format!("The machine of the broker agent {address} was not watched to the end: {why}")
            }));
            if cluster.is_empty() {
                notes.push(format!(
                    "The brokers' processes on the machine of {address} are not watched: agents find no brokers and bookies of \
                     Apache Pulsar"
                ));
            } else if machine.brokers.is_empty() && machine.lost.is_none() {
                notes.push(format!(
                    "No broker advertises an address of the machine of {address}: its usage is in the result, but limits no \
                     broker"
                ));
            }
            for broker in &machine.brokers {
                notes.extend(broker.process_unknown.iter().map(|why| {
                    format!(
                        "The process of {} on the machine of {address} is not watched: {why}",
                        broker.name
                    )
                }));
            }
        }
        if !unwatched.is_empty() {
            notes.push(format!(
                "On no watched machine: {}. Figures of all brokers' processes are left out",
                named(&unwatched)
            ));
        }
        MachineUses { machines, unwatched, notes, has_all_processes }
    }

    /// Leaves out the figures of brokers' processes that not all brokers are in.
    pub(super) fn limit_figures(&self, figures: &mut Figures) {
        if !self.has_all_processes {
            (figures.broker_cpu_us_per_record, figures.broker_memory_bytes_max) = (None, None);
        }
    }

    /// Compares the log files in the data directories of the machines with what the brokers report, and adds
    /// the devices below those with files of the run.
    pub(super) async fn add_logs(
        &mut self,
        agents: &Agents,
        cluster: Option<&thalweg_client::Cluster>,
        topics: &[String],
        evidence: &mut Evidence,
    ) {
        let infos = agents.infos();
        let is_known =
            |machine: &BrokerMachineUse, info: &AgentInfo| machine.lost.is_none() && !info.data.is_empty();
        let asked = (0..infos.len().min(self.machines.len()))
            .filter(|agent| is_known(&self.machines[*agent], &infos[*agent]));
        let topics_of_run: Arc<[String]> = topics.into();
        let found = at_once(asked.map(|agent| {
            let (agents, topics) = (agents.clone(), Arc::clone(&topics_of_run));
            async move { (agent, agents.logs(agent, &topics).await) }
        }));
        let mut short = Vec::new();
        for (agent, logs) in found.await {
            let machine = &mut self.machines[agent];
            match logs {
                Ok(directories) => {
                    for directory in directories {
                        self.notes.extend(add_directory(machine, directory, evidence, &mut short));
                    }
                }
                Err(error) => {
                    let address = &machine.address;
                    self.notes
                        .push(format!("The log files on the machine of {address} are unknown: {error}"));
                }
            }
        }
        if let Some(cluster) = cluster.filter(|_| !short.is_empty()) {
            let now = replica_bytes(cluster, topics).await;
            let bytes = |of: &ShortFiles| {
                now.get(&of.broker)?.get(&TopicPartition::new(of.topic.as_str(), of.partition)).copied()
            };
            evidence.faults.extend(short.iter().filter_map(|of| of.fault(bytes(of)?)));
        }
    }
}

/// The log files of a replica with fewer bytes than its broker reported before. Retention may have deleted
/// segments since, so that the broker's report after the look decides.
#[derive(Debug, PartialEq, Eq)]
struct ShortFiles {
    topic: String,
    partition: i32,
    broker: i32,
    place: String,
    bytes: u64,
}

impl ShortFiles {
    /// The fault of files with fewer bytes than the broker reports after the look at them.
    fn fault(&self, reported: u64) -> Option<String> {
        let ShortFiles { topic, partition, broker, place, bytes } = self;
        (*bytes < reported).then(|| {
            format!(
                "The log files of {topic}-{partition} in {place} have {bytes} bytes, but broker {broker} reports {reported}"
            )
        })
    }
}

/// Adds a data directory. Returns why it is not known to have the data.
fn add_directory(
    machine: &mut BrokerMachineUse,
    directory: DataDirectory,
    evidence: &mut Evidence,
    short: &mut Vec<ShortFiles>,
) -> Option<String> {
    let DataDirectory { path, storage, broker, partitions, failure } = directory;
    let place = format!("{path} on the machine of {}", machine.address);
    if let Some(why) = failure {
        return Some(format!("The data directory {place} cannot be read: {why}"));
    }
    let Some(broker) = broker else {
        return Some(format!("{place} is no data directory of a broker: it has no meta.properties"));
    };
    let mut found = 0;
    for files in &partitions {
        found += usize::from(note_files(files, broker, &place, evidence, short));
    }
    if found == 0 {
        return Some(format!(
            "The data directory {place} has no log files of the run's replicas on broker {broker}"
        ));
    }
    machine.host.storage.extend(storage);
    None
}

/// Notes the log files of a replica, and those with fewer bytes than the broker reported. Files may have
/// more, such as preallocated ones. False if the broker has no such replica.
fn note_files(
    files: &PartitionFiles,
    broker: i32,
    place: &str,
    evidence: &mut Evidence,
    short: &mut Vec<ShortFiles>,
) -> bool {
    let is_of =
        |known: &&mut PartitionEvidence| known.topic == files.topic && known.partition == files.partition;
    let partition = evidence.partitions.iter_mut().find(is_of);
    let Some(replica) = partition
        .and_then(|partition| partition.replicas.iter_mut().find(|replica| replica.broker == broker))
    else {
        return false;
    };
    replica.file_bytes = Some(files.bytes);
    if files.bytes < replica.bytes {
        short.push(ShortFiles {
            topic: files.topic.clone(),
            partition: files.partition,
            broker,
            place: place.to_owned(),
            bytes: files.bytes,
        });
    }
    true
}

fn named(names: &[String]) -> String {
    match names.len().checked_sub(NAMED_MAX) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMED_MAX].join(", ")),
    }
}

/// Watches the machines for a repetition, if they are to be watched. Never fails: see the module.
pub(super) async fn begin(
    agents: Option<&Agents>,
    admin: Option<&thalweg_client::Cluster>,
) -> Option<BrokerMachines> {
    Some(BrokerMachines::begin(agents?, admin.map(advertised).unwrap_or_default()).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{ReplicaEvidence, StorageChain};

    fn advertised(id: i32) -> AdvertisedBroker {
        AdvertisedBroker { name: name(id), host: "127.0.0.1".to_owned(), port: 9092 }
    }

    fn machine(address: &str, brokers: &[i32]) -> BrokerMachineUse {
        let brokers = brokers.iter().map(|id| WatchedBroker {
            name: name(*id),
            pid: Some(id.unsigned_abs()),
            ..WatchedBroker::default()
        });
        BrokerMachineUse {
            address: address.to_owned(),
            brokers: brokers.collect(),
            ..BrokerMachineUse::default()
        }
    }

    fn limited(uses: &MachineUses) -> bool {
        let mut figures = Figures { broker_cpu_us_per_record: Some(1.0), ..Figures::default() };
        uses.limit_figures(&mut figures);
        figures.broker_cpu_us_per_record.is_none()
    }

    #[test]
    fn figures_of_all_brokers_need_the_processes_of_all() {
        let cluster = [advertised(1), advertised(2)];
        let whole = MachineUses::of(vec![machine("a:7000", &[1]), machine("b:7000", &[2])], &cluster);
        assert!(!limited(&whole) && whole.notes.is_empty() && whole.unwatched.is_empty(), "{whole:?}");
        let part = MachineUses::of(vec![machine("a:7000", &[1])], &cluster);
        assert!(limited(&part) && part.unwatched == ["broker-2"], "{part:?}");
        assert!(part.notes[0].contains("On no watched machine: broker-2."), "{part:?}");
        let mut lost = machine("b:7000", &[2]);
        lost.lost = Some("it is gone".to_owned());
        let lost = MachineUses::of(vec![machine("a:7000", &[1]), lost], &cluster);
        assert!(limited(&lost) && lost.unwatched.is_empty() && lost.notes[0].contains("b:7000"), "{lost:?}");
        let mut hidden = machine("b:7000", &[2]);
        hidden.brokers[0].process_unknown = Some("it is another user's".to_owned());
        let hidden = MachineUses::of(vec![machine("a:7000", &[1]), hidden], &cluster);
        assert!(limited(&hidden) && hidden.notes[0].contains("it is another user's"), "{hidden:?}");
        let none = MachineUses::of(vec![machine("a:7000", &[])], &cluster);
        assert!(
            none.notes[0].starts_with("No broker advertises an address of the machine of a:7000"),
            "{none:?}"
        );
        assert!(limited(&MachineUses::of(vec![machine("a:7000", &[])], &[])), "Apache Pulsar");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_agents_run_at_once_and_keep_their_order() {
        let begun = tokio::time::Instant::now();
        let wait = |seconds| async move {
            tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
            seconds
        };
        assert_eq!(at_once([60, 30, 60].into_iter().map(wait)).await, [60, 30, 60]);
        assert_eq!(begun.elapsed().as_secs(), 60);
    }

    #[test]
    fn a_process_counts_once_whoever_sees_it() {
        let used = |name: &str, pid| ProcessUse { name: name.to_owned(), pid, ..ProcessUse::default() };
        let mut first = machine("a:7000", &[1, 2]);
        first.brokers[1].pid = Some(1);
        assert!(counts(&used("broker-1", 1), &first, &[]));
        assert!(!counts(&used("broker-2", 1), &first, &[]), "one process of two brokers");
        assert!(
            !counts(&used("broker-1", 1), &machine("b:7000", &[1]), &[first.clone()]),
            "two agents of a machine"
        );
        first.brokers[0].process_unknown = Some("it ended".to_owned());
        assert!(!counts(&used("broker-1", 1), &first, &[]));
    }

    #[test]
    fn log_files_confirm_the_data_directory_and_contradict_the_broker() {
        let replica = ReplicaEvidence { broker: 1, bytes: 100, ..ReplicaEvidence::default() };
        let partition = PartitionEvidence {
            topic: "t".to_owned(),
            replicas: vec![replica],
            ..PartitionEvidence::default()
        };
        let of = |broker, bytes| {
            let mut evidence = Evidence { partitions: vec![partition.clone()], ..Evidence::default() };
            let mut machine = machine("a:7000", &[1]);
            let files = PartitionFiles { topic: "t".to_owned(), partition: 0, bytes };
            let directory = DataDirectory {
                path: "/data".to_owned(),
                storage: Some(StorageChain::default()),
                broker,
                partitions: vec![files],
                failure: None,
            };
            let mut short = Vec::new();
            let note = add_directory(&mut machine, directory, &mut evidence, &mut short);
            (note, machine.host.storage.len(), evidence.partitions[0].replicas[0].file_bytes, short)
        };
        assert_eq!(of(Some(1), 100), (None, 1, Some(100), Vec::new()));
        assert_eq!(of(Some(1), 4096).3, [], "a preallocated file");
        let (.., short) = of(Some(1), 99);
        let [short] = &short[..] else { panic!("{short:?}") };
        assert_eq!(
            short.fault(100).as_deref(),
            Some(
                "The log files of t-0 in /data on the machine of a:7000 have 99 bytes, but broker 1 reports 100"
            )
        );
        assert_eq!(short.fault(99), None, "retention deleted a segment before the look");
        let (note, storage, bytes, _) = of(Some(2), 100);
        assert!(note.is_some_and(|note| note.contains("has no log files of the run's replicas on broker 2")));
        assert_eq!((storage, bytes), (0, None), "the data of another broker");
        assert!(of(None, 100).0.is_some_and(|note| note.contains("no meta.properties")));
    }
}
