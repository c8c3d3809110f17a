//! Network interfaces, and the kernel's limits for sockets.

use super::{Advice, size};
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
    let Ok(entries) = std::fs::read_dir("/sys/class/net") else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
        .into_iter()
        .filter_map(|name| {
            let read = |file: &str| line(&format!("/sys/class/net/{name}/{file}"));
            // The loopback interface has no carrier: its state is unknown.
            let is_up = matches!(read("operstate")?.as_str(), "up" | "unknown");
            let flags = u32::from_str_radix(read("flags")?.trim_start_matches("0x"), 16).ok()?;
            let bytes = read("mtu")?.parse().ok()?;
            // The lowest flag: the interface is up.
            (is_up && flags & 1 == 1).then(|| mtu(&name, bytes))
        })
        .collect()
}

fn mtu(name: &str, bytes: u32) -> Advice {
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
