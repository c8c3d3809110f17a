//! Limits and objections of client machines.

use super::objections::STEAL_MAX;
use super::{BUSY_MIN, Finding, MACHINE_BUSY_MIN};
use crate::quantity;
use crate::result::{AgentUse, ProcessUse, Repetition, Subject, Summary};
use crate::workload::Point;

/// The clocks' error, as a share of the median latency end to end, above which latencies cannot be quoted.
const CLOCK_ERROR_MAX: f64 = 0.1;

/// True for a process on the lab's machine.
pub(super) fn is_here(repetition: &Repetition, process: &ProcessUse) -> bool {
    let Some(address) = &process.agent else { return true };
    repetition.agents.iter().any(|agent| agent.address == *address && agent.is_on_lab_machine)
}

/// An agent of another machine whose processors were busy.
pub(super) fn full(repetition: &Repetition) -> Option<Finding> {
    let busy = |agent: &&AgentUse| agent.host.cpu_busy + agent.host.cpu_steal >= MACHINE_BUSY_MIN;
    let agent = repetition.agents.iter().filter(|agent| !agent.is_on_lab_machine).find(busy)?;
    let share = (agent.host.cpu_busy + agent.host.cpu_steal) * 100.0;
    let reason =
        format!("{share:.0} % of {} processors of the agent {} were busy", agent.cpus, agent.address);
    Some(Finding::new("generator CPU", reason))
}

/// An interface of an agent that was full.
pub(super) fn full_link(repetition: &Repetition) -> Option<Finding> {
    repetition.agents.iter().find_map(|agent| {
        agent.host.interfaces.iter().find_map(|link| {
            let mbit_per_s = link.speed_mbit_per_s? as f64;
            // The capacity of a link applies to each direction.
            let (bytes, way) = (link.received_bytes, "received").max((link.sent_bytes, "sent"));
            let carried = bytes as f64 * 8.0 / 1e6 / repetition.measured_s.max(0.001);
            (carried >= mbit_per_s * BUSY_MIN).then(|| {
                let reason = format!(
                    "{carried:.0} Mbit/s were {way} over {} of the agent {}, a link of {mbit_per_s:.0} Mbit/s",
                    link.name, agent.address
                );
                Finding::new("network", reason)
            })
        })
    })
}

/// The objections of agents to a point: stolen processors, and clocks that are not known well enough for its
/// latencies.
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
    let end_to_end = Subject::of(point).figure(summary) == "end_to_end_p99_us";
    let (Some(median), true) = (summary.end_to_end_latency.as_ref().map(|of| of.p50_us), end_to_end) else {
        return against;
    };
    let worst = all().max_by_key(|agent| agent.clock_error_us());
    if let Some(agent) = worst.filter(|agent| agent.clock_error_us() as f64 > median as f64 * CLOCK_ERROR_MAX)
    {
        against.push(format!(
            "the clock of the agent {} is known to {} only, more than a tenth of the median end to end ({})",
            agent.address,
            quantity::time_us(agent.clock_error_us() as f64),
            quantity::time_us(median as f64)
        ));
    }
    against
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::point;
    use crate::result::{ClockOffset, HostUse, InterfaceUse};
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
    fn a_full_link_of_a_client_machine_is_the_limit() {
        let mut one = calm(100.0);
        let mut of = agent(0.1);
        of.host.interfaces.push(InterfaceUse {
            name: "eth0".to_owned(),
            speed_mbit_per_s: Some(1000),
            received_bytes: 7,
            // 930 Mbit/s for 10 s.
            sent_bytes: 1_162_500_000,
        });
        one.agents.push(of);
        let found = full_link(&one).expect("it is full");
        assert_eq!(
            found.reasons,
            ["930 Mbit/s were sent over eth0 of the agent a:7000, a link of 1000 Mbit/s"]
        );
        one.agents[0].host.interfaces[0].speed_mbit_per_s = None;
        assert_eq!(full_link(&one), None);
    }

    #[test]
    fn latencies_need_clocks_that_are_known_ten_times_better() {
        let mut point = point();
        point.load = crate::workload::Load::Rate { records_per_s: 10.0 };
        let mut recorded = crate::result::Histogram::recorder();
        recorded.record_n(1000, 10).expect("within the bounds");
        let one = |uncertainty_us: u64, moved_us: i64| {
            let mut one = calm(10.0);
            one.figures.end_to_end_p99_us = Some(1000.0);
            one.end_to_end_latency = crate::result::Histogram::of(&recorded);
            let clock = |offset_us| ClockOffset { offset_us, uncertainty_us };
            let (clock_before, clock_after) = (clock(50_000), clock(50_000 + moved_us));
            one.agents.push(AgentUse { clock_before, clock_after, ..agent(0.1) });
            one
        };
        let against = |repetition: Repetition| {
            let summary =
                crate::run::summary::summarize(std::slice::from_ref(&repetition)).expect("readable");
            objections(&point, &[repetition], &summary)
        };
        assert_eq!(against(one(90, 0)), [""; 0]);
        assert!(against(one(150, 0))[0].contains("the clock of the agent a:7000 is known to 150 µs only"));
        assert_eq!(against(one(50, 80)).len(), 1, "it has moved by 80 µs");
    }
}
