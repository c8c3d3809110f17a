//! A link as the limit: an interface that carried nearly its speed. Each interface is judged alone, because
//! the bytes of a bond are also those of its members.

use super::{BUSY_MIN, Finding, brokers};
use crate::result::{HostUse, InterfaceUse, Repetition};

/// A full interface of this machine.
pub(super) fn full(repetition: &Repetition) -> Option<Finding> {
    let loopback_bytes = repetition.host.loopback_bytes;
    // With brokers on this machine, traffic over links does not belong to the run.
    let is_remote = |link: &InterfaceUse| link.received_bytes + link.sent_bytes > loopback_bytes;
    finding(&repetition.host, repetition.measured_s, is_remote, "")
}

/// A full interface of an agent.
pub(super) fn full_of_agent(repetition: &Repetition) -> Option<Finding> {
    repetition.agents.iter().find_map(|agent| {
        let owner = format!(" of the agent {}", agent.address);
        finding(&agent.host, repetition.measured_s, |_| true, &owner)
    })
}

/// A full interface of a broker's machine other than the lab's.
pub(super) fn full_of_broker(repetition: &Repetition) -> Option<Finding> {
    brokers::elsewhere(repetition)
        .find_map(|machine| finding(&machine.host, repetition.measured_s, |_| true, &brokers::of(machine)))
}

fn finding(
    host: &HostUse,
    measured_s: f64,
    counts: impl Fn(&InterfaceUse) -> bool,
    owner: &str,
) -> Option<Finding> {
    let mut links = host.interfaces.iter().filter(|link| counts(link));
    links.find_map(|link| of_link(link, measured_s, owner))
}

fn of_link(link: &InterfaceUse, measured_s: f64, owner: &str) -> Option<Finding> {
    let mbit_per_s = |bytes: u64| bytes as f64 * 8.0 / 1e6 / measured_s.max(0.001);
    let is_full = |carried: f64, capacity: f64| capacity > 0.0 && carried >= capacity * BUSY_MIN;
    let name = &link.name;
    let sent = mbit_per_s(link.sent_bytes);
    if let Some(limit) =
        link.sent_limit_bit_per_s.map(|limit| limit as f64 / 1e6).filter(|limit| is_full(sent, *limit))
    {
        let reason = format!(
            "{sent:.0} Mbit/s were sent over {name}{owner}, which traffic control (tc) limits to {limit:.0} Mbit/s"
        );
        return Some(Finding::new("network", reason));
    }
    let speed = link.speed_mbit_per_s? as f64;
    // The capacity of a link applies to each direction.
    let (bytes, way) = (link.received_bytes, "received").max((link.sent_bytes, "sent"));
    let carried = mbit_per_s(bytes);
    is_full(carried, speed).then(|| {
        let reason =
            format!("{carried:.0} Mbit/s were {way} over {name}{owner}, a link of {speed:.0} Mbit/s");
        Finding::new("network", reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::AgentUse;
    use crate::run::verdict::tests::{calm, limit};

    fn link(name: &str, mbit_per_s: Option<u64>, sent_bytes: u64) -> InterfaceUse {
        InterfaceUse {
            name: name.to_owned(),
            speed_mbit_per_s: mbit_per_s,
            received_bytes: 7,
            sent_bytes,
            ..InterfaceUse::default()
        }
    }

    /// 930 Mbit/s for 10 s.
    const SENT: u64 = 1_162_500_000;

    #[test]
    fn a_full_link_is_the_limit_of_brokers_elsewhere() {
        let with = |mbit_per_s: Option<u64>, sent_bytes: u64, loopback_bytes: u64| {
            limit(|one| {
                one.host.loopback_bytes = loopback_bytes;
                one.host.interfaces = vec![link("eth0", mbit_per_s, sent_bytes)];
            })
        };
        let found = with(Some(1000), SENT, 0);
        assert_eq!(found.limit, "network");
        assert_eq!(found.reasons, ["930 Mbit/s were sent over eth0, a link of 1000 Mbit/s"]);
        assert_eq!(with(None, SENT, 0).limit, "unknown", "nothing tells what the link carries");
        assert_eq!(with(Some(10_000), SENT, 0).limit, "unknown");
        assert_eq!(with(Some(1000), SENT, 2_000_000_000).limit, "unknown");
        assert_eq!(with(Some(1000), SENT / 2, 0).limit, "unknown", "half of it");
    }

    #[test]
    fn a_limit_of_traffic_control_is_one_of_what_is_sent() {
        let with = |limit_bit_per_s: u64, received_bytes: u64, sent_bytes: u64| {
            limit(|one| {
                let link = link("veth0", None, sent_bytes);
                let sent_limit_bit_per_s = Some(limit_bit_per_s);
                one.host.interfaces = vec![InterfaceUse { received_bytes, sent_limit_bit_per_s, ..link }];
            })
        };
        let found = with(1_000_000_000, 7, SENT);
        assert_eq!(found.limit, "network");
        assert_eq!(
            found.reasons,
            ["930 Mbit/s were sent over veth0, which traffic control (tc) limits to 1000 Mbit/s"]
        );
        assert_eq!(with(1_000_000_000, SENT, 7).limit, "unknown", "receiving has no limit");
        assert_eq!(with(2_000_000_000, 7, SENT).limit, "unknown", "half of it");
    }

    #[test]
    fn a_bond_its_members_and_slower_links_are_not_summed() {
        let found = limit(|one| {
            (one.host.sent_bytes, one.host.received_bytes) = (2 * SENT + 1, 28);
            one.host.interfaces = vec![
                link("bond0", None, SENT),
                link("eth0", Some(1000), SENT / 2),
                link("eth1", Some(1000), SENT / 2),
                link("eth2", Some(100), 1),
            ];
        });
        assert_eq!(found.limit, "unknown", "{found:?}");
    }

    #[test]
    fn a_full_link_of_a_client_machine_is_the_limit() {
        let mut one = calm(100.0);
        let host = HostUse { interfaces: vec![link("eth0", Some(1000), SENT)], ..HostUse::default() };
        one.agents.push(AgentUse { address: "a:7000".to_owned(), host, ..AgentUse::default() });
        let found = full_of_agent(&one).expect("it is full");
        assert_eq!(
            found.reasons,
            ["930 Mbit/s were sent over eth0 of the agent a:7000, a link of 1000 Mbit/s"]
        );
        one.agents[0].host.interfaces[0].speed_mbit_per_s = None;
        assert_eq!(full_of_agent(&one), None);
    }
}
