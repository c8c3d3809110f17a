//! Limits and objections of client machines.

use super::objections::{OTHERS_MAX, STEAL_MAX};
use super::{Finding, MACHINE_BUSY_MIN, brokers};
use crate::quantity;
use crate::result::{
    AgentUse, BrokerMachineUse, ProcessUse, Repetition, Summary, clock_unknown, clocks_unknown,
};
use crate::worker::NegativeLatencies;
use crate::workload::{Measure, Point};

/// The clocks' error, as a share of a median latency or of a drain, above which it cannot be quoted.
const CLOCK_ERROR_MAX: f64 = 0.1;

/// True for a process on the lab's machine.
pub(super) fn is_here(repetition: &Repetition, process: &ProcessUse) -> bool {
    let Some(address) = &process.agent else { return true };
    repetition.agents.iter().any(|agent| agent.address == *address && agent.is_on_lab_machine)
        || repetition.broker_machines.iter().any(|used| used.address == *address && used.is_on_lab_machine)
}

/// True for two agents of one machine, of clients or of brokers, by their addresses.
pub(super) fn is_on_one_machine(repetition: &Repetition, a: &str, b: &str) -> bool {
    let boot_id = |address: &str| {
        let of_clients = repetition.agents.iter().map(|agent| (&agent.address, &agent.boot_id));
        let of_brokers =
            repetition.broker_machines.iter().map(|machine| (&machine.address, &machine.boot_id));
        of_clients.chain(of_brokers).find(|(known, _)| *known == address).and_then(|(_, id)| id.clone())
    };
    a == b || boot_id(a).is_some_and(|id| boot_id(b) == Some(id))
}

/// The machines of brokers that an agent's workers share.
fn broker_machines<'a>(
    repetition: &'a Repetition,
    agent: &'a AgentUse,
) -> impl Iterator<Item = &'a BrokerMachineUse> {
    let all = repetition.broker_machines.iter();
    all.filter(|machine| is_on_one_machine(repetition, &machine.address, &agent.address))
}

/// An agent of another machine, without brokers, whose processors were busy.
pub(super) fn full(repetition: &Repetition) -> Option<Finding> {
    let busy = |agent: &&AgentUse| agent.host.cpu_busy + agent.host.cpu_steal >= MACHINE_BUSY_MIN;
    let alone =
        |agent: &&AgentUse| !agent.is_on_lab_machine && broker_machines(repetition, agent).next().is_none();
    let agent = repetition.agents.iter().filter(alone).find(busy)?;
    let share = (agent.host.cpu_busy + agent.host.cpu_steal) * 100.0;
    let reason =
        format!("{share:.0} % of {} processors of the agent {} were busy", agent.cpus, agent.address);
    Some(Finding::new("generator CPU", reason))
}

/// The objections of agents to a point: processors used by others, and clocks that are not known well enough
/// for its latencies.
pub(super) fn objections(point: &Point, repetitions: &[Repetition], summary: &Summary) -> Vec<String> {
    let mut against = Vec::new();
    let all = || repetitions.iter().flat_map(|repetition| &repetition.agents);
    let steal = all().max_by(|a, b| a.host.cpu_steal.total_cmp(&b.host.cpu_steal));
    if let Some(agent) = steal.filter(|agent| agent.host.cpu_steal > STEAL_MAX) {
        let share = agent.host.cpu_steal * 100.0;
        against.push(format!(
            "the hypervisor took {share:.1} % of the processors of the agent {}",
            agent.address
        ));
    }
    let others = repetitions.iter().flat_map(|repetition| {
        repetition.agents.iter().map(move |agent| (others_share(repetition, agent), agent))
    });
    if let Some((share, agent)) =
        others.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(share, _)| *share > OTHERS_MAX)
    {
        against.push(format!(
            "processes outside the run used {:.0} % of the processors of the agent {}",
            share * 100.0,
            agent.address
        ));
    }
    against.extend(brokers::objections(repetitions));
    against.extend(clocks(point, repetitions, summary));
    against
}

/// The share of an agent's processors used by processes outside the run, without interrupts, which belong to
/// its network. Zero on the lab's machine and on those of brokers, whose others are counted with the brokers.
fn others_share(repetition: &Repetition, agent: &AgentUse) -> f64 {
    if agent.is_on_lab_machine || broker_machines(repetition, agent).next().is_some() {
        return 0.0;
    }
    let beside = |address: &str| is_on_one_machine(repetition, address, &agent.address);
    let own = repetition.processes.iter().filter(|used| used.agent.as_deref().is_some_and(beside));
    let own_s: f64 = own.map(|used| used.user_s + used.system_s).sum();
    let own_share = own_s / (repetition.measured_s.max(0.001) * f64::from(agent.cpus.max(1)));
    (agent.host.cpu_busy - agent.host.cpu_interrupts - own_share).max(0.0)
}

/// The objections to times between two machines, and to a drain, which the consumers' clocks measure from a
/// start in the lab's time.
fn clocks(point: &Point, repetitions: &[Repetition], summary: &Summary) -> Vec<String> {
    let mut against = Vec::new();
    let mean = |figure: &str| summary.figures.get(figure).map(|spread| spread.mean);
    let is_much = |error_us: u64, of_us: f64| error_us as f64 > of_us * CLOCK_ERROR_MAX;
    let pairs = repetitions.iter().filter_map(|repetition| unlike_pair(point, repetition));
    if let Some((error_us, a, b)) = pairs.max_by_key(|pair| pair.0) {
        let end_to_end = summary.end_to_end_latency.as_ref().map(|of| of.p50_us as f64);
        let medians =
            [("end to end", end_to_end.or(mean("end_to_end_p50_us"))), ("drained", mean("drained_p50_us"))];
        for (latency, median_us) in medians {
            if let Some(median_us) = median_us.filter(|median_us| is_much(error_us, *median_us)) {
                against.push(clocks_unknown((a, b), error_us, latency, median_us));
            }
        }
    }
    let consumers = repetitions.iter().flat_map(|repetition| of_role(repetition, "consumer"));
    if let Some(drain_us) = mean("drain_s").map(|s| s * 1e6)
        && let Some(agent) = consumers.max_by_key(|agent| agent.clock_error_us())
        && is_much(agent.clock_error_us(), drain_us)
    {
        against.push(clock_unknown(&agent.address, agent.clock_error_us(), drain_us));
    }
    against
}

/// The error of two processes of one machine, which read its clock at different times.
const READING_ERROR_US: u64 = 100;

/// The contradiction in latencies below zero: the clocks differ by more than is known.
pub(in crate::run) fn negative_latencies(
    point: &Point,
    repetition: &Repetition,
    negative: NegativeLatencies,
) -> Option<String> {
    let known_us = unlike_pair(point, repetition).map_or(0, |pair| pair.0).saturating_add(READING_ERROR_US);
    (negative.us_max > known_us).then(|| {
        format!(
            "{} records reached a consumer before they were sent, by up to {}: the clocks differ by more than the known \
             error of {}",
            quantity::count(negative.records),
            quantity::time_us(negative.us_max as f64),
            quantity::time_us(known_us as f64)
        )
    })
}

/// The agents with processes of a role; all agents if none is known.
fn of_role<'a>(repetition: &'a Repetition, role: &str) -> Vec<&'a AgentUse> {
    let has = |agent: &&AgentUse| {
        let mut processes = repetition.processes.iter().filter(|used| used.name.starts_with(role));
        processes.any(|used| used.agent.as_deref() == Some(&agent.address))
    };
    let known: Vec<&AgentUse> = repetition.agents.iter().filter(has).collect();
    if known.is_empty() { repetition.agents.iter().collect() } else { known }
}

/// The producers' and the consumers' agent whose clocks' errors are the largest together. The clock of an
/// agent with both roles has no error against itself.
fn unlike_pair<'a>(point: &Point, repetition: &'a Repetition) -> Option<(u64, &'a str, &'a str)> {
    // The producers of a backlog are not in the processes of the measurement.
    let producers = match point.measure {
        Measure::Produce => of_role(repetition, "producer"),
        Measure::Consume | Measure::Drain => repetition.agents.iter().collect(),
    };
    let consumers = of_role(repetition, "consumer");
    let pairs = producers.iter().flat_map(|from| consumers.iter().map(move |to| (*from, *to)));
    let pairs = pairs.filter(|(from, to)| from.address != to.address);
    let errors = pairs.map(|(from, to)| {
        let error_us = from.clock_error_us().saturating_add(to.clock_error_us());
        (error_us, from.address.as_str(), to.address.as_str())
    });
    errors.max_by_key(|pair| pair.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::point;
    use crate::result::{ClockOffset, HostUse};
    use crate::run::verdict::tests::{calm, limit};

    fn agent(cpu_busy: f64) -> AgentUse {
        let host = HostUse { cpu_busy, ..HostUse::default() };
        AgentUse { address: "a:7000".to_owned(), cpus: 4, host, ..AgentUse::default() }
    }

    #[test]
    fn a_full_client_machine_is_the_limit_and_its_processes_are_not_those_of_the_lab() {
        let with = |cpu_busy| limit(|one| one.agents.push(agent(cpu_busy))).limit;
        assert_eq!(with(0.95), "generator CPU");
        assert_eq!(with(0.5), "unknown");
        let elsewhere = limit(|one| {
            one.host.cpu_busy = 0.97;
            one.processes[0].user_s = 35.0;
            one.processes[1].user_s = 90.0;
            one.processes[1].agent = Some("a:7000".to_owned());
            one.agents.push(agent(0.5));
        });
        assert_eq!(elsewhere.limit, "broker CPU", "the producers are not on the brokers' machine");
        let here = limit(|one| {
            one.host.cpu_busy = 0.97;
            one.processes[1].user_s = 30.0;
            one.processes[1].agent = Some("a:7000".to_owned());
            one.agents.push(AgentUse { is_on_lab_machine: true, ..agent(0.97) });
        });
        assert_eq!(here.limit, "generator CPU");
        assert!(here.reasons[0].contains("clients used 3.00"), "{:?}", here.reasons);
    }

    #[test]
    fn other_processes_on_a_client_machine_are_an_objection() {
        let against = |change: &dyn Fn(&mut Repetition)| {
            let found = limit(|one| {
                let mut host = agent(0.6);
                host.boot_id = Some("one".to_owned());
                host.host.cpu_interrupts = 0.1;
                one.agents.push(host);
                one.processes[1].agent = Some("a:7000".to_owned());
                one.host.cpu_busy = 0.15;
                change(one);
            });
            found.no_headline
        };
        // 0.5 of 4 processors for 10 s, of which the producer used 5 s.
        assert_eq!(
            against(&|_| ()),
            ["processes outside the run used 38 % of the processors of the agent a:7000"]
        );
        assert_eq!(against(&|one| one.processes[1].user_s = 16.0), [""; 0]);
        assert_eq!(against(&|one| one.agents[0].is_on_lab_machine = true), [""; 0]);
        // Another agent of the machine has the rest.
        let beside = |one: &mut Repetition| {
            one.agents.push(AgentUse { address: "b:7000".to_owned(), ..one.agents[0].clone() });
            one.processes.push(ProcessUse {
                name: "consumer-0 on b:7000".to_owned(),
                agent: Some("b:7000".to_owned()),
                user_s: 14.0,
                ..ProcessUse::default()
            });
        };
        assert_eq!(against(&beside), [""; 0]);
    }

    #[test]
    fn latencies_need_clocks_that_are_known_ten_times_better() {
        let mut point = point();
        point.load = crate::workload::Load::Rate { records_per_s: 10.0 };
        let mut recorded = crate::result::Histogram::recorder();
        recorded.record_n(1000, 10).expect("within the bounds");
        let on = |name: &str, address: &str| ProcessUse {
            name: format!("{name}-0 on {address}"),
            agent: Some(address.to_owned()),
            ..ProcessUse::default()
        };
        let one = |uncertainty_us: u64, moved_us: i64| {
            let mut one = calm(10.0);
            one.figures.end_to_end_p99_us = Some(1000.0);
            one.end_to_end_latency = crate::result::Histogram::of(&recorded);
            let clock = |offset_us| ClockOffset { offset_us, uncertainty_us };
            let (clock_before, clock_after) = (clock(50_000), Some(clock(50_000 + moved_us)));
            for address in ["a:7000", "b:7000"] {
                let address = address.to_owned();
                one.agents.push(AgentUse { address, clock_before, clock_after, ..agent(0.1) });
            }
            one.processes.extend([on("producer", "a:7000"), on("consumer", "b:7000")]);
            one
        };
        let against = |point: &Point, repetition: Repetition| {
            let summary =
                crate::run::summary::summarize(std::slice::from_ref(&repetition)).expect("readable");
            objections(point, &[repetition], &summary)
        };
        assert_eq!(against(&point, one(45, 0)), [""; 0]);
        let found = against(&point, one(60, 0));
        assert_eq!(
            found,
            [
                "the clocks of the agents a:7000 and b:7000 are known to 120 µs together, more than a tenth of the median \
              end to end (1.00 ms)"
            ],
            "neither error alone is too large"
        );
        assert_eq!(against(&point, one(20, 40)).len(), 1, "both have moved by 40 µs");
        // Any load has latencies.
        point.load = crate::workload::Load::Maximum;
        assert_eq!(against(&point, one(60, 0)).len(), 1);
        // The agents with producers and consumers count only, and one clock has no error against itself.
        let mut idle = one(10, 0);
        idle.agents.push(AgentUse {
            address: "idle:7000".to_owned(),
            clock_before: ClockOffset { offset_us: 0, uncertainty_us: 9_000 },
            ..agent(0.1)
        });
        let mut unanswered = one(10, 0);
        unanswered.agents[1].clock_after = None;
        assert_eq!(
            against(&point, unanswered),
            [
                "the clocks of the agents a:7000 and b:7000 are unknown after the measurement: one did not answer"
            ]
        );
        assert_eq!(against(&point, idle), [""; 0]);
        let mut same = one(9_000, 0);
        same.processes.retain(|used| used.agent.as_deref() != Some("b:7000"));
        same.processes.push(on("consumer", "a:7000"));
        assert_eq!(against(&point, same), [""; 0]);
    }

    #[test]
    fn latencies_below_zero_are_a_fault_beyond_the_known_error() {
        let mut one = calm(10.0);
        let fault = |one: &Repetition, us_max| {
            negative_latencies(&point(), one, NegativeLatencies { records: 1234, us_max })
        };
        assert_eq!(fault(&one, 100), None);
        assert!(fault(&one, 101).is_some());
        let clock_before = ClockOffset { offset_us: 0, uncertainty_us: 400 };
        for address in ["a:7000", "b:7000"] {
            one.agents.push(AgentUse {
                address: address.to_owned(),
                clock_before,
                clock_after: Some(clock_before),
                ..agent(0.1)
            });
        }
        assert_eq!(fault(&one, 900), None);
        assert_eq!(
            fault(&one, 2_000).as_deref(),
            Some(
                "1,234 records reached a consumer before they were sent, by up to 2.00 ms: the clocks differ by more than \
                 the known error of 900 µs"
            )
        );
    }

    #[test]
    fn a_drain_needs_clocks_that_are_known_ten_times_better() {
        let mut point = point();
        point.measure = Measure::Drain;
        let mut one = calm(10.0);
        one.figures.drain_s = Some(2.0);
        let clock_before = ClockOffset { offset_us: 0, uncertainty_us: 300_000 };
        one.agents.push(AgentUse { clock_before, clock_after: Some(clock_before), ..agent(0.1) });
        let summary = crate::run::summary::summarize(std::slice::from_ref(&one)).expect("readable");
        assert_eq!(
            objections(&point, &[one], &summary),
            [
                "the clock of the agent a:7000 is known to 300 ms only, more than a tenth of the drain (2.00 s)"
            ]
        );
    }
}
