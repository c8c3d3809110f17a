//! The machines of a running cluster's brokers: facts, brokers, storage and traffic.

use super::agents::{Pair, devices, hardware_of, path, traffic};
use super::text::{escape, facts};
use crate::quantity;
use crate::result::{AgentInfo, BrokerMachineUse, ProcessUse, Repetition, RunResult};

/// The watched machines of a run; empty without any.
pub(super) fn markup(run: &RunResult) -> String {
    if run.broker_machines.is_empty() {
        return String::new();
    }
    let mut markup = "<h3>Brokers' machines</h3><p>An agent on each of these machines sampled it during the repetitions. \
                      Brokers are those that advertise an address of the machine, and a broker's process is the one that \
                      listens on its port.</p>"
        .to_owned();
    for machine in &run.broker_machines {
        let mut pairs = hardware_of(&machine.machine);
        pairs.extend(roles(run, machine));
        pairs.extend(devices(machine));
        pairs.extend(machine.data.iter().map(|chain| {
            ("data directory".to_owned(), format!("{}, on {chain} ({})", chain.directory, chain.filesystem))
        }));
        pairs.extend(path(machine));
        pairs.extend(brokers(run, &machine.address));
        pairs.extend(used(run, &machine.address));
        pairs.extend(traffic(
            uses(run, &machine.address).map(|(repetition, used)| (repetition.measured_s, &used.host)),
        ));
        markup += &format!("<h4>{}</h4>{}", escape(&machine.address), facts(&pairs));
    }
    markup
}

/// The other names of the machine: that of a client's agent, or of the lab.
fn roles(run: &RunResult, machine: &AgentInfo) -> Option<Pair> {
    let mut names = Vec::new();
    if uses(run, &machine.address).any(|(_, used)| used.is_on_lab_machine) {
        names.push("the lab".to_owned());
    }
    let is_beside = |agent: &&AgentInfo| {
        agent.address == machine.address || (agent.boot_id.is_some() && agent.boot_id == machine.boot_id)
    };
    names.extend(run.agents.iter().filter(is_beside).map(|agent| format!("clients on {}", agent.address)));
    (!names.is_empty()).then(|| ("the same machine as".to_owned(), names.join(", ")))
}

/// The use of a machine in each repetition.
fn uses<'a>(
    run: &'a RunResult,
    address: &'a str,
) -> impl Iterator<Item = (&'a Repetition, &'a BrokerMachineUse)> {
    let points = run.workloads.iter().flat_map(|workload| &workload.points);
    points.flat_map(|point| &point.repetitions).filter_map(move |repetition| {
        let used = repetition.broker_machines.iter().find(|used| used.address == address)?;
        Some((repetition, used))
    })
}

/// The brokers on a machine, each as often as it is described in another way.
fn brokers(run: &RunResult, address: &str) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    let mut add = |pair: Pair| {
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    };
    for (_, used) in uses(run, address) {
        for broker in &used.brokers {
            let text = match (&broker.process_unknown, broker.pid) {
                (Some(why), _) => format!("process unknown: {why}"),
                (None, Some(pid)) => {
                    format!("process {pid} ({})", broker.program.as_deref().unwrap_or("unknown program"))
                }
                (None, None) => "process unknown".to_owned(),
            };
            add((broker.name.clone(), text));
        }
        if let Some(why) = &used.lost {
            add(("not watched to the end".to_owned(), why.clone()));
        }
    }
    if pairs.is_empty() && uses(run, address).next().is_some() {
        pairs.push(("brokers".to_owned(), "none advertises an address of this machine".to_owned()));
    }
    pairs
}

/// The highest use of processors, memory and disks in a repetition.
fn used(run: &RunResult, address: &str) -> Vec<Pair> {
    // A condensed result has the traffic only.
    let known = || uses(run, address).filter(|(_, used)| !run.condensed && !used.host.is_unknown());
    let most = |of: fn(&BrokerMachineUse) -> f64| known().map(|(_, used)| of(used)).fold(f64::NAN, f64::max);
    let share = quantity::percent;
    let mut pairs = Vec::new();
    if known().next().is_some() {
        let disk = |used: &BrokerMachineUse| used.host.disks.iter().map(|disk| disk.busy).fold(0.0, f64::max);
        pairs.push((
            "most use in a repetition".to_owned(),
            format!(
                "processors {} busy, {} taken by a hypervisor; disks {} busy",
                share(most(|used| used.host.cpu_busy)),
                share(most(|used| used.host.cpu_steal)),
                share(most(disk))
            ),
        ));
    }
    let of_brokers = uses(run, address).flat_map(|(repetition, _)| {
        let processes = repetition.processes.iter();
        let own = processes
            .filter(|used| used.agent.as_deref() == Some(address) && used.name.starts_with("broker"));
        own.map(move |used| (repetition.measured_s.max(0.001), used))
    });
    let mut brokers: Vec<(String, f64, u64, Option<u64>)> = Vec::new();
    for (measured_s, ProcessUse { name, user_s, system_s, memory_bytes_max, disk_written_bytes, .. }) in
        of_brokers
    {
        let name = name.split(" on ").next().unwrap_or(name);
        let cpus = (user_s + system_s) / measured_s;
        match brokers.iter_mut().find(|known| known.0 == name) {
            Some((_, most_cpus, most_memory, most_written)) => {
                *most_cpus = most_cpus.max(cpus);
                *most_memory = (*most_memory).max(*memory_bytes_max);
                *most_written = (*most_written).max(*disk_written_bytes);
            }
            None => brokers.push((name.to_owned(), cpus, *memory_bytes_max, *disk_written_bytes)),
        }
    }
    pairs.extend(brokers.into_iter().map(|(name, cpus, memory, written)| {
        let written = written.map(|bytes| format!(", {} written to disks", quantity::bytes(bytes as f64)));
        let text = format!(
            "{} processors, {} of memory{}",
            quantity::number(cpus),
            quantity::bytes(memory as f64),
            written.unwrap_or_default()
        );
        (format!("most use of {name}"), text)
    }));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{HostUse, InterfaceUse, StorageChain, WatchedBroker};

    #[test]
    fn a_brokers_machine_is_shown_with_its_brokers_storage_and_traffic() {
        let mut run = crate::report::testing::run(&[("a point", 1.0)]);
        assert_eq!(markup(&run), "");
        let chain = StorageChain {
            directory: "/data".to_owned(),
            filesystem: "xfs".to_owned(),
            layers: vec![vec!["vda1".to_owned()], vec!["vda".to_owned()]],
        };
        for (address, data) in [("b:7000", vec![chain]), ("empty:7000", Vec::new())] {
            run.broker_machines.push(AgentInfo { address: address.to_owned(), data, ..AgentInfo::default() });
        }
        let link =
            InterfaceUse { name: "eth0".to_owned(), received_bytes: 10_000_000, ..InterfaceUse::default() };
        let broker = |name: &str, pid, why: Option<&str>| WatchedBroker {
            name: name.to_owned(),
            pid,
            program: Some("java<".to_owned()),
            process_unknown: why.map(str::to_owned),
        };
        let machine = BrokerMachineUse {
            address: "b:7000".to_owned(),
            brokers: vec![broker("broker-1", Some(7), None), broker("broker-2", None, Some("it is hidden"))],
            host: HostUse { cpu_busy: 0.5, interfaces: vec![link], ..HostUse::default() },
            ..BrokerMachineUse::default()
        };
        let process = ProcessUse {
            name: "broker-1 on b:7000".to_owned(),
            agent: Some("b:7000".to_owned()),
            user_s: 5.0,
            memory_bytes_max: 1 << 30,
            ..ProcessUse::default()
        };
        let empty = BrokerMachineUse { address: "empty:7000".to_owned(), ..BrokerMachineUse::default() };
        run.workloads[0].points[0].repetitions = vec![Repetition {
            measured_s: 10.0,
            broker_machines: vec![machine, empty],
            processes: vec![process],
            ..crate::result::testing::repetition()
        }];
        let text = markup(&run);
        for shown in [
            "<h4>b:7000</h4>",
            "<dt>data directory</dt><dd>/data, on vda1 → vda (xfs)",
            "<dt>broker-1</dt><dd>process 7 (java&lt;)",
            "<dt>broker-2</dt><dd>process unknown: it is hidden",
            "processors 50 % busy",
            "<dt>most use of broker-1</dt><dd>0.500 processors, ",
            "8.00 Mbit/s received, 0 Mbit/s sent",
            "<h4>empty:7000</h4>",
            "none advertises an address of this machine",
        ] {
            assert!(text.contains(shown), "{shown} in {text}");
        }
        assert!(crate::report::html(&run).contains("Brokers' machines"));
        let condensed = markup(&crate::report::condensed(run).expect("readable"));
        assert!(condensed.contains("8.00 Mbit/s received") && !condensed.contains("most use"), "{condensed}");
    }
}
