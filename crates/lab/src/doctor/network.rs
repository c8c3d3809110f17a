//! Network interfaces, and the kernel's limits for sockets.

use std::path::Path;

use super::{Advice, size};
use crate::machine::interfaces::{self, INTERFACES};
use crate::machine::line;

const HOST: &str = "host";

/// Examines interfaces and limits.
pub(super) fn examine() -> Vec<Advice> {
    let mut advice = interfaces();
    if let Some(bytes) = line("/proc/sys/net/core/rmem_max").and_then(|text| text.parse().ok()) {
        advice.push(socket_buffer(bytes));
    }
    if let Some(count) = line("/proc/sys/net/core/somaxconn").and_then(|text| text.parse().ok()) {
        advice.push(backlog(count));
    }
    advice
}

fn interfaces() -> Vec<Advice> {
    let up = interfaces::list(Path::new(INTERFACES)).into_iter().filter(|interface| {
        // The loopback interface has no carrier: its state is unknown.
        matches!(interface.state.as_str(), "up" | "unknown") && is_enabled(&interface.name)
    });
    up.filter_map(|interface| Some(mtu(&interface.name, interface.mtu_bytes?))).collect()
}

/// True if the lowest flag of an interface is set, with which the operator has enabled it.
fn is_enabled(name: &str) -> bool {
    let flags = line(&format!("{INTERFACES}/{name}/flags"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok());
    flags.is_some_and(|flags| flags & 1 == 1)
}

fn mtu(name: &str, bytes: u64) -> Advice {
    let why = "Each packet costs processor time on both sides: larger packets carry the same bytes with fewer of them.";
    let advice = Advice::fine(HOST, "MTU", format!("{bytes} on {name}"), why);
    match bytes {
        0..1500 => advice.warning("use 1500 or more, unless a tunnel requires less"),
        1500..9000 => {
            advice.note("use 9000, if every interface and switch between clients and brokers supports it")
        }
        _ => advice,
    }
}

fn socket_buffer(bytes: u64) -> Advice {
    let why = "It bounds socket.receive.buffer.bytes and receive.buffer.bytes; a connection carries no more than its \
               buffer per round trip. It does not matter for loopback and nearby brokers.";
    let advice = Advice::fine(HOST, "net.core.rmem_max", size(bytes), why);
    if bytes < 1 << 20 {
        advice.note("use 2 MB or more for brokers that are milliseconds away")
    } else {
        advice
    }
}

fn backlog(count: u32) -> Advice {
    let why = "If more connections than this arrive at once, the rest retry after a second.";
    let advice = Advice::fine(HOST, "net.core.somaxconn", count.to_string(), why);
    if count < 1024 { advice.note("use 4096 if hundreds of clients start together") } else { advice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    #[test]
    fn small_packets_are_reported() {
        assert_eq!(mtu("eth0", 1400).severity, Severity::Warning);
        assert_eq!(mtu("eth0", 1500).severity, Severity::Note);
        assert_eq!(mtu("eth0", 9000).severity, Severity::Fine);
        assert_eq!(mtu("lo", 65536).severity, Severity::Fine);
    }

    #[test]
    fn the_loopback_interface_is_found() {
        let interfaces = interfaces();
        assert!(interfaces.iter().any(|one| one.found.ends_with(" on lo")), "{interfaces:?}");
    }
}
