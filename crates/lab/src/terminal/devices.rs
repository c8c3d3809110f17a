//! The busiest block device and network interface of a workload, in a line each.

use crate::quantity;
use crate::report::clean;
use crate::result::{DeviceUse, HostUse, InterfaceUse, PointResult, Repetition, system};

/// The lines; empty if no device was seen.
pub(super) fn lines(points: &[PointResult]) -> String {
    let all = || points.iter().flat_map(|point| point.repetitions.iter().map(move |one| (point, one)));
    let hosts = || all().flat_map(|(point, one)| hosts(one).map(move |host| (point, one, host)));
    let devices = hosts().flat_map(|(point, one, (host, machine))| {
        host.devices.iter().map(move |device| (point, one, (host, machine), device))
    });
    let busiest = devices.max_by(|(.., a), (.., b)| a.mean.busy.total_cmp(&b.mean.busy));
    let links = hosts().flat_map(|(point, one, (host, machine))| {
        host.interfaces.iter().map(move |link| (point, one, machine, link))
    });
    let fullest =
        links.filter(|(.., link)| link.received.is_some()).max_by(|(_, one, _, a), (_, other, _, b)| {
            let rate =
                |one: &Repetition, link: &InterfaceUse| packets(link) as f64 / one.measured_s.max(0.001);
            rate(one, a).total_cmp(&rate(other, b))
        });
    let mut text = String::new();
    if let Some((point, _, host, device)) = busiest {
        text += &format!("  Busiest device: {}\n", clean(&device_line(point, host, device)));
    }
    if let Some((point, one, machine, link)) = fullest {
        text += &format!("  Busiest interface: {}\n", clean(&link_line(point, one, machine, link)));
    }
    text
}

/// A machine's usage, and its agent's address; `None` for the lab's machine.
type Host<'a> = (&'a HostUse, Option<&'a str>);

/// The lab's machine, and those of brokers.
fn hosts(repetition: &Repetition) -> impl Iterator<Item = Host<'_>> {
    let watched = repetition.broker_machines.iter();
    let watched = watched.map(|machine| (&machine.host, Some(machine.address.as_str())));
    // The agent on the lab's machine has the same devices, and knows the data.
    let is_watched =
        repetition.broker_machines.iter().any(|machine| machine.is_on_lab_machine && machine.lost.is_none());
    let here = (!is_watched).then_some((&repetition.host, None));
    here.into_iter().chain(watched)
}

/// Words for a device of a machine.
fn of(machine: Option<&str>) -> String {
    machine.map(|address| format!(" of the broker's machine {address}")).unwrap_or_default()
}

fn at(point: &PointResult) -> String {
    format!("{}, {}", point.point.label, system(&point.target))
}

fn device_line(point: &PointResult, (host, machine): Host<'_>, device: &DeviceUse) -> String {
    let (mean, peak) = (&device.mean, &device.peak);
    let chain = host.storage.first();
    let data = chain.map(|chain| format!("; the brokers' data is on {chain}")).unwrap_or_default();
    format!(
        "{}{}, {} busy (peak {}), {} w/s of {} kB, w_await {} (peak {}) at {}{data}",
        device.name,
        of(machine),
        quantity::percent(mean.busy),
        quantity::percent(peak.busy),
        quantity::number(mean.writes_per_s),
        quantity::number(mean.write_size_kb),
        quantity::time_us(mean.write_await_ms * 1e3),
        quantity::time_us(peak.write_await_ms * 1e3),
        at(point),
    )
}

fn link_line(
    point: &PointResult,
    repetition: &Repetition,
    machine: Option<&str>,
    link: &InterfaceUse,
) -> String {
    let ways = [("received", link.received_bytes, link.received), ("sent", link.sent_bytes, link.sent)];
    let of_way = ways.into_iter().filter_map(|(way, bytes, used)| {
        let used = used?;
        let bytes = bytes.checked_div(used.packets).unwrap_or_default();
        let per_s = used.packets as f64 / repetition.measured_s.max(0.001);
        Some(format!("{} packets/s of {bytes} B {way}, {} dropped", quantity::number(per_s), used.dropped))
    });
    let ways: Vec<String> = of_way.collect();
    format!("{}{}, {} at {}", link.name, of(machine), ways.join(", "), at(point))
}

fn packets(link: &InterfaceUse) -> u64 {
    let of = |used: Option<crate::result::PacketUse>| used.unwrap_or_default().packets;
    of(link.received) + of(link.sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::{point, repetition, result};
    use crate::result::{DeviceRates, PacketUse, StorageChain};

    #[test]
    fn the_busiest_of_each_has_a_line() {
        let device = |name: &str, busy| DeviceUse {
            name: name.to_owned(),
            label: None,
            mean: DeviceRates { busy, writes_per_s: 120.0, write_size_kb: 512.0, ..DeviceRates::default() },
            peak: DeviceRates { busy: 1.0, write_await_ms: 40.0, ..DeviceRates::default() },
        };
        let mut one = repetition();
        one.measured_s = 10.0;
        one.host.devices = vec![device("vda", 0.8), device("vdb", 0.1)];
        one.host.storage = vec![StorageChain { filesystem: "tmpfs".to_owned(), ..StorageChain::default() }];
        one.host.interfaces = vec![InterfaceUse {
            name: "eth0".to_owned(),
            received_bytes: 100_000,
            received: Some(PacketUse { packets: 1000, dropped: 3, ..PacketUse::default() }),
            ..InterfaceUse::default()
        }];
        let text = lines(&[result(point(), "embedded", vec![repetition(), one])]);
        assert_eq!(
            text,
            "  Busiest device: vda, 80 % busy (peak 100 %), 120 w/s of 512 kB, w_await 0 µs (peak 40.0 ms) at a point, Thalweg; \
             the brokers' data is on tmpfs without a block device\n  Busiest interface: eth0, 100 packets/s of 100 B received, 3 \
             dropped at a point, Thalweg\n"
        );
        assert_eq!(lines(&[result(point(), "embedded", vec![repetition()])]), "");
    }
}
