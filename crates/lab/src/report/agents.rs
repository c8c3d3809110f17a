//! The client machines of a run: facts, clocks, paths and traffic.

use super::settings::hardware;
use super::text::{escape, facts};
use crate::quantity;
use crate::result::{AgentInfo, AgentUse, HostUse, Machine, Repetition, RunResult};

/// The agents of a run; empty without agents.
pub(super) fn markup(run: &RunResult) -> String {
    if run.agents.is_empty() {
        return String::new();
    }
    let mut markup = "<h3>Client machines</h3><p>Producers and consumers ran on these machines, each with an agent. \
                      The lab measured the offset of each clock before and after every repetition, and corrected \
                      all times by the first of them.</p>"
        .to_owned();
    if let Some(rule) = &run.agents_place {
        markup += &format!("<p>Clients were placed by the rule {}.</p>", escape(rule));
    }
    for agent in &run.agents {
        let mut pairs = hardware_of(&agent.machine);
        pairs.extend(beside(run, agent));
        pairs.extend(devices(agent));
        pairs.extend(clock(run, &agent.address));
        pairs.extend(paths(agent));
        pairs.extend(traffic(
            uses(run, &agent.address).map(|(repetition, used)| (repetition.measured_s, &used.host)),
        ));
        markup += &format!("<h4>{}</h4>{}", escape(&agent.address), facts(&pairs));
    }
    markup
}

/// A fact and its value.
pub(super) type Pair = (String, String);

/// The other agents of the machine, with which it shares processors and links.
fn beside(run: &RunResult, agent: &AgentInfo) -> Option<Pair> {
    let is_beside = |other: &&AgentInfo| {
        other.address != agent.address && other.boot_id.is_some() && other.boot_id == agent.boot_id
    };
    let others: Vec<&str> = run.agents.iter().filter(is_beside).map(|other| &*other.address).collect();
    (!others.is_empty()).then(|| ("the same machine as".to_owned(), others.join(", ")))
}

/// The facts of a machine.
pub(super) fn hardware_of(machine: &Machine) -> Vec<Pair> {
    let mut pairs = hardware(machine);
    pairs.extend(machine.hypervisor.iter().map(|name| ("virtual machine".to_owned(), name.clone())));
    pairs.extend(machine.facts.clone());
    pairs
}

/// The interfaces and disks of a machine.
pub(super) fn devices(agent: &AgentInfo) -> Vec<Pair> {
    let interface = agent.interfaces.iter().map(|one| {
        let speed =
            one.speed_mbit_per_s.map_or("unknown speed".to_owned(), |speed| format!("{speed} Mbit/s"));
        let mtu = one.mtu_bytes.map(|bytes| format!(", MTU {bytes}")).unwrap_or_default();
        (format!("interface {}", one.name), format!("{}, {speed}{mtu}", one.state))
    });
    let disk = agent.disks.iter().map(|one| {
        let kind = if one.is_rotational { "rotational" } else { "not rotational" };
        let model = one.model.as_ref().map(|model| format!("{model}, ")).unwrap_or_default();
        (format!("disk {}", one.name), format!("{model}{}, {kind}", quantity::bytes(one.size_bytes as f64)))
    });
    interface.chain(disk).collect()
}

/// The use of an agent in each repetition.
fn uses<'a>(run: &'a RunResult, address: &'a str) -> impl Iterator<Item = (&'a Repetition, &'a AgentUse)> {
    let points = run.workloads.iter().flat_map(|workload| &workload.points);
    let repetitions = points.flat_map(|point| &point.repetitions);
    repetitions.filter_map(move |repetition| {
        let used = repetition.agents.iter().find(|used| used.address == address)?;
        Some((repetition, used))
    })
}

fn clock(run: &RunResult, address: &str) -> Vec<Pair> {
    let clocks = || {
        uses(run, address).flat_map(|(_, used)| std::iter::once(used.clock_before).chain(used.clock_after))
    };
    let offsets = || clocks().map(|clock| clock.offset_us);
    let (Some(least), Some(most)) = (offsets().min(), offsets().max()) else { return Vec::new() };
    let uncertainty_us = clocks().map(|clock| clock.uncertainty_us).max().unwrap_or_default();
    let error_us = uses(run, address).map(|(_, used)| used.clock_error_us()).max().unwrap_or_default();
    let error = match error_us {
        u64::MAX => "unknown: it did not answer after a repetition".to_owned(),
        error_us => quantity::time_us(error_us as f64),
    };
    let offset = match least == most {
        true => signed(least),
        false => format!("{} to {}", signed(least), signed(most)),
    };
    vec![
        (
            "clock, minus the lab's".to_owned(),
            format!("{offset}, each ± {} at most", quantity::time_us(uncertainty_us as f64)),
        ),
        ("largest error of its times".to_owned(), error),
    ]
}

fn signed(us: i64) -> String {
    let sign = if us < 0 { "−" } else { "+" };
    format!("{sign}{}", quantity::time_us(us.unsigned_abs() as f64))
}

/// The path between the lab and an agent.
pub(super) fn path(agent: &AgentInfo) -> Option<Pair> {
    agent.path.map(|path| {
        let rate = |mbit_per_s: f64| quantity::number(mbit_per_s.round());
        let text = format!(
            "round trip {}; {} Mbit/s to the agent, {} Mbit/s from it",
            quantity::time_us(path.round_trip_us as f64),
            rate(path.sent_mbit_per_s),
            rate(path.received_mbit_per_s)
        );
        ("path to the lab".to_owned(), text)
    })
}

fn paths(agent: &AgentInfo) -> Vec<Pair> {
    let broker = agent.brokers.iter().map(|path| {
        let time = |us: Option<u64>| us.map_or("unknown".to_owned(), |us| quantity::time_us(us as f64));
        let text = match &path.failure {
            Some(why) => why.clone(),
            None => format!("connect {}, round trip {}", time(path.connect_us), time(path.round_trip_us)),
        };
        (format!("path to {} ({})", path.broker, path.target), text)
    });
    path(agent).into_iter().chain(broker).collect()
}

/// The traffic of each interface, in the repetition with the most of it. `uses` are the lengths of
/// repetitions, and the usage of the machine.
pub(super) fn traffic<'a>(uses: impl Iterator<Item = (f64, &'a HostUse)>) -> Vec<Pair> {
    let mut most: Vec<(&str, f64, f64)> = Vec::new();
    for (measured_s, host) in uses {
        let per_s = |bytes: u64| bytes as f64 * 8.0 / 1e6 / measured_s.max(0.001);
        for one in &host.interfaces {
            let (received, sent) = (per_s(one.received_bytes), per_s(one.sent_bytes));
            match most.iter_mut().find(|known| known.0 == one.name) {
                Some(known) => (known.1, known.2) = (known.1.max(received), known.2.max(sent)),
                None => most.push((&one.name, received, sent)),
            }
        }
    }
    let pair = |(name, received, sent): (&str, f64, f64)| {
        let rate = quantity::number;
        (
            format!("most traffic of {name}"),
            format!("{} Mbit/s received, {} Mbit/s sent", rate(received), rate(sent)),
        )
    };
    most.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{BrokerPath, ClockOffset, Interface, InterfaceUse, LabPath};

    #[test]
    fn a_client_machine_is_shown_with_its_clock_paths_and_traffic() {
        let mut run = crate::report::testing::run(&[("a point", 1.0)]);
        assert_eq!(markup(&run), "");
        let interface = Interface {
            name: "eth<0>".to_owned(),
            state: "up".to_owned(),
            speed_mbit_per_s: Some(25_000),
            mtu_bytes: Some(9000),
        };
        let broker = BrokerPath {
            target: "embedded".to_owned(),
            broker: "b:9092".to_owned(),
            connect_us: Some(200),
            round_trip_us: Some(300),
            segment_bytes: None,
            failure: None,
        };
        let boot_id = Some("one".to_owned());
        run.agents.push(AgentInfo { address: "b:7000".to_owned(), boot_id, ..AgentInfo::default() });
        run.agents.push(AgentInfo {
            address: "a:7000".to_owned(),
            boot_id: Some("one".to_owned()),
            interfaces: vec![interface],
            path: Some(LabPath { round_trip_us: 90, sent_mbit_per_s: 900.0, received_mbit_per_s: 800.0 }),
            brokers: vec![broker],
            ..AgentInfo::default()
        });
        let link = InterfaceUse {
            name: "lo".to_owned(),
            speed_mbit_per_s: None,
            received_bytes: 10_000_000,
            sent_bytes: 5_000_000,
            ..InterfaceUse::default()
        };
        let clock = |offset_us| ClockOffset { offset_us, uncertainty_us: 40 };
        let repetition = Repetition {
            measured_s: 10.0,
            agents: vec![AgentUse {
                address: "a:7000".to_owned(),
                boot_id: Some("one".to_owned()),
                cpus: 4,
                is_on_lab_machine: false,
                clock_before: clock(50_000),
                clock_after: Some(clock(-50_000)),
                host: HostUse { interfaces: vec![link], ..HostUse::default() },
            }],
            ..crate::result::testing::repetition()
        };
        run.workloads[0].points[0].repetitions = vec![repetition];
        run.agents_place = Some("apart".to_owned());
        let text = markup(&run);
        for shown in [
            "by the rule apart",
            "<h4>a:7000</h4>",
            "<dt>the same machine as</dt><dd>b:7000",
            "interface eth&lt;0&gt;",
            "up, 25000 Mbit/s, MTU 9000",
            "−50.0 ms to +50.0 ms, each ± 40.0 µs at most",
            "<dt>largest error of its times</dt><dd>100 ms",
            "round trip 90.0 µs; 900 Mbit/s to the agent, 800 Mbit/s from it",
            "path to b:9092 (embedded)",
            "connect 200 µs, round trip 300 µs",
            "8.00 Mbit/s received, 4.00 Mbit/s sent",
        ] {
            assert!(text.contains(shown), "{shown} in {text}");
        }
    }
}
