//! Limits and objections of brokers' machines that agents watched.

use super::agents::is_on_one_machine;
use super::objections::{OTHERS_MAX, STEAL_MAX};
use super::{BROKERS, CLIENTS, Finding, MACHINE_BUSY_MIN, Processors, is_one_of};
use crate::result::{BrokerMachineUse, Repetition};

/// The words for a watched machine.
pub(super) fn of(machine: &BrokerMachineUse) -> String {
    format!(" of the broker's machine {}", machine.address)
}

/// True if agents can find the brokers of the cluster, as not on Apache Pulsar.
pub(super) fn are_found(repetition: &Repetition) -> bool {
    !repetition.unwatched_brokers.is_empty()
        || repetition.broker_machines.iter().any(|machine| !machine.brokers.is_empty())
}

/// The watched machines with brokers. If agents cannot find brokers, all are taken for such.
pub(super) fn with_brokers(repetition: &Repetition) -> impl Iterator<Item = &BrokerMachineUse> {
    let are_found = are_found(repetition);
    repetition.broker_machines.iter().filter(move |machine| !are_found || !machine.brokers.is_empty())
}

/// The machines with brokers other than the lab's, whose processors are judged with the clients'.
pub(super) fn elsewhere(repetition: &Repetition) -> impl Iterator<Item = &BrokerMachineUse> {
    with_brokers(repetition).filter(|machine| !machine.is_on_lab_machine)
}

/// A machine of brokers, other than the lab's, whose processors were busy.
pub(super) fn processors(repetition: &Repetition) -> Option<Finding> {
    let busy =
        |machine: &&BrokerMachineUse| machine.host.cpu_busy + machine.host.cpu_steal >= MACHINE_BUSY_MIN;
    let machine = elsewhere(repetition).find(busy)?;
    Some(used(repetition, machine).finding(&of(machine)))
}

/// The processors of a machine, by the processes that used them.
fn used(repetition: &Repetition, machine: &BrokerMachineUse) -> Processors {
    let of_them = |prefixes: &[&str]| {
        let here = repetition.processes.iter().filter(|used| {
            used.agent.as_deref().is_some_and(|agent| is_on_one_machine(repetition, agent, &machine.address))
        });
        let used_s: f64 =
            here.filter(|used| is_one_of(&used.name, prefixes)).map(|used| used.user_s + used.system_s).sum();
        // The sum of nothing is -0.
        used_s / repetition.measured_s.max(0.001) + 0.0
    };
    Processors::new(&machine.host, machine.cpus, of_them(&CLIENTS), of_them(&BROKERS))
}

/// True if usage by processes outside the run is known, as the rest beside all brokers.
pub(super) fn has_all_brokers(machine: &BrokerMachineUse) -> bool {
    !machine.brokers.is_empty() && machine.has_all_processes()
}

/// The objections of brokers' machines to a point.
pub(super) fn objections(repetitions: &[Repetition]) -> Vec<String> {
    let mut against = Vec::new();
    for repetition in repetitions {
        let lost =
            repetition.broker_machines.iter().filter_map(|machine| Some((machine, machine.lost.as_ref()?)));
        against.extend(lost.map(|(machine, why)| {
            format!(
                "repetition {}: the broker's machine {} was not watched to the end: {why}",
                repetition.number + 1,
                machine.address
            )
        }));
    }
    let all = || repetitions.iter().flat_map(|one| elsewhere(one).map(move |machine| (one, machine)));
    let steal = all().map(|(_, machine)| (machine.host.cpu_steal, machine));
    if let Some((share, machine)) = most(steal, STEAL_MAX) {
        against.push(format!("the hypervisor took {:.1} % of the processors{}", share * 100.0, of(machine)));
    }
    let others = all().filter(|(_, machine)| has_all_brokers(machine)).map(|(repetition, machine)| {
        (used(repetition, machine).others / f64::from(machine.cpus.max(1)), machine)
    });
    if let Some((share, machine)) = most(others, OTHERS_MAX) {
        against.push(format!(
            "processes outside the run used {:.0} % of the processors{}",
            share * 100.0,
            of(machine)
        ));
    }
    against
}

/// The machine with the largest share, if it is above a limit.
fn most<'a>(
    shares: impl Iterator<Item = (f64, &'a BrokerMachineUse)>,
    limit: f64,
) -> Option<(f64, &'a BrokerMachineUse)> {
    shares.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(share, _)| *share > limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{
        AgentUse, DeviceRates, DeviceUse, DiskUse, HostUse, InterfaceUse, Objection, PartitionEvidence,
        ProcessUse, ReplicaEvidence, StorageChain, Verdict, WatchedBroker,
    };
    use crate::run::verdict::tests::limit;

    /// The verdict on a calm lab's machine and the broker's machine, of 4 processors, which the broker uses a
    /// fifth of.
    fn with(change: impl Fn(&mut BrokerMachineUse, &mut ProcessUse)) -> Verdict {
        limit(|one| {
            one.processes.retain(|used| used.name != "broker-1");
            let mut machine = BrokerMachineUse {
                address: "b:7000".to_owned(),
                boot_id: Some("b".to_owned()),
                cpus: 4,
                brokers: vec![WatchedBroker {
                    name: "broker-1".to_owned(),
                    pid: Some(7),
                    ..WatchedBroker::default()
                }],
                host: HostUse { cpu_busy: 0.25, ..HostUse::default() },
                ..BrokerMachineUse::default()
            };
            let mut broker = ProcessUse {
                name: "broker-1 on b:7000".to_owned(),
                agent: Some("b:7000".to_owned()),
                user_s: 8.0,
                ..ProcessUse::default()
            };
            change(&mut machine, &mut broker);
            one.broker_machines.push(machine);
            one.processes.push(broker);
        })
    }

    #[test]
    fn a_full_machine_of_a_broker_is_the_limit_by_its_processes() {
        let calm = with(|_, _| ());
        assert_eq!((calm.limit.as_str(), calm.no_headline.len()), ("unknown", 0), "{calm:?}");
        assert!(calm.reasons[0].contains("of the broker's machine b:7000 25 % busy"), "{calm:?}");
        let by_broker = with(|machine, broker| {
            machine.host.cpu_busy = 0.97;
            broker.user_s = 37.0;
        });
        assert_eq!(by_broker.limit, "broker CPU");
        assert_eq!(
            by_broker.reasons[0],
            "97 % of 4 processors of the broker's machine b:7000 were busy: clients used 0.00, brokers 3.70, interrupts \
             0.00, others 0.18"
        );
        let by_others = with(|machine, _| machine.host.cpu_busy = 0.97);
        assert_eq!(by_others.limit, "machine CPU");
        assert_eq!(
            by_others.no_headline,
            ["processes outside the run used 77 % of the processors of the broker's machine b:7000"]
        );
        assert_eq!(Objection::of(&by_others.no_headline[0]), Objection::Disturbed);
    }

    #[test]
    fn a_broker_without_a_known_process_may_be_among_the_others() {
        let found = with(|machine, broker| {
            machine.host.cpu_busy = 0.97;
            machine.brokers[0].process_unknown = Some("it is another user's".to_owned());
            broker.user_s = 0.0;
        });
        assert_eq!((found.limit.as_str(), found.no_headline.len()), ("machine CPU", 0), "{found:?}");
    }

    #[test]
    fn clients_on_a_brokers_machine_are_its_clients() {
        let found = limit(|one| {
            one.processes.clear();
            let host = HostUse { cpu_busy: 0.97, ..HostUse::default() };
            for (name, address) in [("broker-1", "b:7000"), ("producer-0", "b:7001")] {
                one.processes.push(ProcessUse {
                    name: format!("{name} on {address}"),
                    agent: Some(address.to_owned()),
                    user_s: 19.0,
                    ..ProcessUse::default()
                });
            }
            let boot_id = Some("b".to_owned());
            one.agents.push(AgentUse {
                address: "b:7001".to_owned(),
                boot_id: boot_id.clone(),
                cpus: 4,
                host: host.clone(),
                ..AgentUse::default()
            });
            let brokers = vec![WatchedBroker { pid: Some(7), ..WatchedBroker::default() }];
            let address = "b:7000".to_owned();
            one.broker_machines.push(BrokerMachineUse {
                address,
                boot_id,
                cpus: 4,
                brokers,
                host,
                ..BrokerMachineUse::default()
            });
        });
        assert_eq!((found.limit.as_str(), found.no_headline.len()), ("machine CPU", 0), "{found:?}");
        assert!(found.reasons[0].contains("clients used 1.90, brokers 1.90"), "{found:?}");
    }

    #[test]
    fn a_full_disk_or_link_of_a_brokers_machine_is_named_with_the_machine() {
        let disk = |chain: Option<&str>| {
            with(|machine, _| {
                machine.host.disks =
                    vec![DiskUse { name: "vdb".to_owned(), busy: 0.95, ..DiskUse::default() }];
                let mean = DeviceRates { writes_per_s: 120.0, queue_length: 0.9, ..DeviceRates::default() };
                machine.host.devices =
                    vec![DeviceUse { name: "vdb".to_owned(), mean, peak: mean, ..DeviceUse::default() }];
                machine.host.storage = chain
                    .map(|name| StorageChain {
                        directory: "/data".to_owned(),
                        filesystem: "xfs".to_owned(),
                        layers: vec![vec![name.to_owned()]],
                    })
                    .into_iter()
                    .collect();
            })
        };
        for found in [disk(None), disk(Some("vdb"))] {
            assert_eq!(found.limit, "disk");
            assert!(
                found.reasons[0].starts_with("vdb of the broker's machine b:7000 was busy for 95 %"),
                "{found:?}"
            );
        }
        let elsewhere = disk(Some("vdc"));
        assert_eq!(elsewhere.limit, "disk", "the agent knows no data directory of the run's replicas");
        let place = "the brokers' data in /data is on vdc; that of other replicas may be on vdb";
        assert_eq!(elsewhere.reasons.last().map(String::as_str), Some(place));
        let link = with(|machine, _| {
            machine.host.interfaces = vec![InterfaceUse {
                name: "eth0".to_owned(),
                speed_mbit_per_s: Some(1000),
                sent_bytes: 1_162_500_000,
                ..InterfaceUse::default()
            }];
        });
        assert_eq!(link.limit, "network");
        assert_eq!(
            link.reasons[0],
            "930 Mbit/s were sent over eth0 of the broker's machine b:7000, a link of 1000 Mbit/s"
        );
    }

    #[test]
    fn disks_of_the_labs_machine_are_no_limit_of_watched_brokers_elsewhere() {
        let of = |watched: &[&str], unwatched: &[&str]| {
            limit(|one| {
                one.host.disks = vec![DiskUse { name: "vda".to_owned(), busy: 0.95, ..DiskUse::default() }];
                one.unwatched_brokers = unwatched.iter().map(|name| (*name).to_owned()).collect();
                let brokers = watched
                    .iter()
                    .map(|name| WatchedBroker { name: (*name).to_owned(), ..WatchedBroker::default() });
                one.broker_machines.push(BrokerMachineUse {
                    address: "b:7000".to_owned(),
                    brokers: brokers.collect(),
                    ..BrokerMachineUse::default()
                });
            })
        };
        assert_eq!(of(&["broker-1"], &[]).limit, "unknown");
        assert_eq!(of(&["broker-1"], &["broker-2"]).limit, "disk", "it may be on the lab's machine");
        assert_eq!(of(&[], &[]).limit, "disk", "brokers of Apache Pulsar may be anywhere");
    }

    #[test]
    fn a_full_disk_without_replicas_is_acquitted_if_the_files_of_all_are_elsewhere() {
        let of = |file_bytes: &[(i32, Option<u64>)]| {
            limit(|one| {
                let replica = |&(broker, file_bytes)| ReplicaEvidence {
                    broker,
                    file_bytes,
                    ..ReplicaEvidence::default()
                };
                one.evidence.partitions = vec![PartitionEvidence {
                    replicas: file_bytes.iter().map(replica).collect(),
                    ..PartitionEvidence::default()
                }];
                let chain = StorageChain {
                    directory: "/data".to_owned(),
                    filesystem: "xfs".to_owned(),
                    layers: vec![vec!["vdc".to_owned()]],
                };
                one.broker_machines.push(BrokerMachineUse {
                    address: "b:7000".to_owned(),
                    brokers: vec![WatchedBroker { name: "broker-1".to_owned(), ..WatchedBroker::default() }],
                    host: HostUse {
                        disks: vec![DiskUse { name: "vdb".to_owned(), busy: 0.95, ..DiskUse::default() }],
                        storage: vec![chain],
                        ..HostUse::default()
                    },
                    ..BrokerMachineUse::default()
                });
            })
            .limit
        };
        assert_ne!(of(&[(1, Some(7)), (2, None)]), "disk", "broker-2 is on another machine");
        assert_eq!(of(&[(1, Some(7)), (1, None)]), "disk", "a second data directory may be on it");
        assert_eq!(of(&[(2, Some(7))]), "disk", "nothing is known of broker-1");
        assert_eq!(of(&[]), "disk");
    }

    #[test]
    fn a_machine_without_brokers_limits_none() {
        let full = |brokers: &[&str], unwatched: &[&str]| {
            limit(|one| {
                one.unwatched_brokers = unwatched.iter().map(|name| (*name).to_owned()).collect();
                let link = InterfaceUse {
                    name: "eth0".to_owned(),
                    speed_mbit_per_s: Some(1000),
                    sent_bytes: 1_162_500_000,
                    ..InterfaceUse::default()
                };
                let disks = vec![DiskUse { name: "vdb".to_owned(), busy: 0.95, ..DiskUse::default() }];
                let named =
                    |name: &&str| WatchedBroker { name: (*name).to_owned(), ..WatchedBroker::default() };
                one.broker_machines.push(BrokerMachineUse {
                    address: "b:7000".to_owned(),
                    cpus: 4,
                    brokers: brokers.iter().map(named).collect(),
                    host: HostUse { cpu_busy: 0.97, disks, interfaces: vec![link], ..HostUse::default() },
                    ..BrokerMachineUse::default()
                });
            })
            .limit
        };
        assert_eq!(full(&["broker-1"], &[]), "disk");
        assert_eq!(full(&[], &["broker-1"]), "unknown");
        assert_eq!(full(&[], &[]), "disk", "the brokers of Apache Pulsar may be there");
    }

    #[test]
    fn a_lost_agent_and_a_hypervisor_are_objections() {
        let lost = with(|machine, _| machine.lost = Some("it is gone".to_owned()));
        assert_eq!(
            lost.no_headline[0],
            "repetition 1: the broker's machine b:7000 was not watched to the end: it is gone"
        );
        let stolen = with(|machine, _| machine.host.cpu_steal = 0.08);
        assert_eq!(
            stolen.no_headline,
            ["the hypervisor took 8.0 % of the processors of the broker's machine b:7000"]
        );
    }
}
