//! The addresses of this machine's interfaces, from `/proc/net/fib_trie` and `/proc/net/if_inet6`.
//!
//! An attempt to bind an address does not show whose it is: with `net.ipv4.ip_nonlocal_bind`, as on machines
//! of keepalived or HAProxy, every address can be bound.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kernel's words for an address of an interface. Those of loopback have a shorter prefix, too.
const HOST_LOCAL: &str = "/32 host LOCAL";

/// All addresses of this machine, as canonical ones.
pub(super) fn own_addresses() -> BTreeSet<IpAddr> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let of_v4 = v4(&read("/proc/net/fib_trie")).into_iter().map(IpAddr::from);
    of_v4.chain(v6(&read("/proc/net/if_inet6")).into_iter().map(IpAddr::from)).collect()
}

/// The leaves of the routing table with a local route: `|-- 10.0.0.7`, and `/32 host LOCAL` in one of the
/// next lines.
fn v4(trie: &str) -> BTreeSet<Ipv4Addr> {
    let (mut leaf, mut found) = (None::<Ipv4Addr>, BTreeSet::new());
    for line in trie.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => leaf = address.parse().ok(),
            None if line == HOST_LOCAL => found.extend(leaf),
            None => {}
        }
    }
    found
}

/// The addresses of lines such as `fe80000000000000fc00fffe00000001 04 40 20 80 eth0`.
fn v6(listed: &str) -> BTreeSet<Ipv6Addr> {
    let address = |line: &str| {
        let hex = line.split_ascii_whitespace().next().filter(|hex| hex.len() == 32)?;
        u128::from_str_radix(hex, 16).ok().map(Ipv6Addr::from)
    };
    listed.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.0
           /24 link UNICAST
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
Local:
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 10.0.0.9
           /32 universe UNICAST
";

    #[test]
    fn only_addresses_with_a_local_route_are_own() {
        let v4: Vec<String> = v4(TRIE).iter().map(Ipv4Addr::to_string).collect();
        assert_eq!(v4, ["10.0.0.7", "127.0.0.1"]);
        let v6 = v6("fd00000000000000000000000000000a 04 40 00 82     eth0\ntorn 04\n");
        assert_eq!(v6.iter().map(Ipv6Addr::to_string).collect::<Vec<_>>(), ["fd00::a"]);
    }

    #[test]
    fn the_loopback_address_is_this_machines() {
        assert!(own_addresses().contains(&IpAddr::from(Ipv4Addr::LOCALHOST)));
    }
}
