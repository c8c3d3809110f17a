//! The block devices and network interfaces of a workload's points: means and peaks of the representative
//! repetition of each, here, on agents and on brokers' machines.

use super::palette::Palette;
use super::text::{escape, folded, table};
use super::timeline::typical;
use crate::quantity;
use crate::result::{
    BrokerMachineUse, DeviceUse, HostUse, InterfaceUse, PacketUse, PointResult, Repetition, StorageChain,
    WorkloadResult,
};

/// The tables; empty if nothing is known, as of condensed results.
pub(super) fn markup(workload: &WorkloadResult, palette: &Palette) -> String {
    let devices = rows(workload, palette, |repetition, host, row| {
        host.devices.iter().for_each(|device| row(device_cells(repetition, host, device)));
    });
    let links = rows(workload, palette, |repetition, host, row| {
        for link in &host.interfaces {
            row(link_cells(repetition, link));
        }
    });
    let mut markup = String::new();
    for chain in chains(workload) {
        markup += &format!("<li>{}</li>", escape(&chain));
    }
    if !markup.is_empty() {
        markup = format!("<ul class=\"listed\">{markup}</ul>");
    }
    const NOTE: &str = "<p class=\"dim\">The repetition with the median rate: the mean over the measurement, and after it \
                        the second with the highest value. ";
    if !devices.is_empty() {
        let heads = [
            "point",
            "measured",
            "device",
            "r/s",
            "w/s",
            "rkB/s",
            "wkB/s",
            "rrqm/s",
            "wrqm/s",
            "r_await ms",
            "w_await ms",
            "aqu-sz",
            "rareq-sz kB",
            "wareq-sz kB",
            "f/s",
            "f_await ms",
            "%util",
        ];
        let text = format!(
            "{NOTE}Columns are those of iostat -x. Volumes and partitions repeat the requests of the disks below them.</p>{}",
            table(&heads, 3, &devices)
        );
        markup += &folded("Block devices", &text, false);
    }
    if !links.is_empty() {
        let heads = [
            "point",
            "measured",
            "interface",
            "packets/s in",
            "bytes a packet",
            "MB/s in",
            "dropped",
            "errors",
            "packets/s out",
            "bytes a packet",
            "MB/s out",
            "dropped",
            "errors",
        ];
        let text = format!("{NOTE}MB are 2<sup>20</sup> bytes.</p>{}", table(&heads, 3, &links));
        markup += &folded("Network interfaces", &text, false);
    }
    markup
}

/// The devices below the data of each system, without repetitions.
fn chains(workload: &WorkloadResult) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let repetitions = workload.points.iter().flat_map(|point| &point.repetitions);
    let all = repetitions.flat_map(|repetition| {
        let here = repetition.host.storage.iter().map(|chain| (None, chain));
        let watched = repetition.broker_machines.iter().flat_map(|machine| {
            machine.host.storage.iter().map(move |chain| (Some(&machine.address), chain))
        });
        here.chain(watched)
    });
    for (machine, chain) in all {
        // The directory differs by target and repetition, the devices do not.
        let place = machine.map(|address| format!(" on the machine of {address}")).unwrap_or_default();
        let text = format!("The brokers' data{place} is on {chain} ({})", chain.filesystem);
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// The rows of all points, each from its representative repetition.
fn rows(
    workload: &WorkloadResult,
    palette: &Palette,
    of: impl Fn(&Repetition, &HostUse, &mut dyn FnMut(Vec<String>)),
) -> Vec<Vec<String>> {
    let mut points: Vec<&PointResult> = workload.points.iter().collect();
    let place = |point: &PointResult| {
        let label = &point.point.label;
        workload.points.iter().position(|other| other.point.label == *label)
    };
    points.sort_by_key(|point| (place(point), palette.order(point)));
    let mut rows = Vec::new();
    for point in points {
        let Some(repetition) = typical(point).map(|index| &point.repetitions[index]) else { continue };
        let elsewhere = repetition.agents.iter().filter(|agent| !agent.is_on_lab_machine);
        let hosts = std::iter::once((None, &repetition.host))
            .chain(elsewhere.map(|agent| (Some(&agent.address), &agent.host)));
        let brokers = repetition.broker_machines.iter().filter(|machine| !machine.is_on_lab_machine);
        // An agent of both clients and brokers has one row of each device.
        let is_new = |machine: &&BrokerMachineUse| {
            repetition.agents.iter().all(|agent| agent.address != machine.address)
        };
        let hosts =
            hosts.chain(brokers.filter(is_new).map(|machine| (Some(&machine.address), &machine.host)));
        for (agent, host) in hosts {
            of(repetition, host, &mut |mut cells: Vec<String>| {
                if let Some(address) = agent {
                    cells[0] += &format!(" <small>on {}</small>", escape(address));
                }
                let mut row = vec![escape(&point.point.label), palette.of_point(point).markup()];
                row.append(&mut cells);
                rows.push(row);
            });
        }
    }
    rows
}

fn device_cells(repetition: &Repetition, host: &HostUse, device: &DeviceUse) -> Vec<String> {
    let mut name = escape(&device.name);
    if let Some(label) = &device.label {
        name += &format!(" ({})", escape(label));
    }
    if storage(repetition, host).any(|chain| chain.contains(&device.name)) {
        name += " <small>data</small>";
    }
    let (mean, peak) = (&device.mean, &device.peak);
    let optional = |mean: Option<f64>, peak: Option<f64>| match (mean, peak) {
        (Some(mean), Some(peak)) => both(mean, peak),
        _ => "<span class=\"dim\">unknown</span>".to_owned(),
    };
    vec![
        name,
        both(mean.reads_per_s, peak.reads_per_s),
        both(mean.writes_per_s, peak.writes_per_s),
        both(mean.read_kb_per_s, peak.read_kb_per_s),
        both(mean.written_kb_per_s, peak.written_kb_per_s),
        both(mean.reads_merged_per_s, peak.reads_merged_per_s),
        both(mean.writes_merged_per_s, peak.writes_merged_per_s),
        both(mean.read_await_ms, peak.read_await_ms),
        both(mean.write_await_ms, peak.write_await_ms),
        both(mean.queue_length, peak.queue_length),
        both(mean.read_size_kb, peak.read_size_kb),
        both(mean.write_size_kb, peak.write_size_kb),
        optional(mean.flushes_per_s, peak.flushes_per_s),
        optional(mean.flush_await_ms, peak.flush_await_ms),
        both(mean.busy * 100.0, peak.busy * 100.0),
    ]
}

/// The devices below the brokers' data on a machine. On the lab's machine, an agent may know them, too.
fn storage<'a>(repetition: &'a Repetition, host: &'a HostUse) -> impl Iterator<Item = &'a StorageChain> {
    let here = std::ptr::eq(host, &raw const repetition.host);
    let watched = repetition.broker_machines.iter().filter(move |machine| here && machine.is_on_lab_machine);
    host.storage.iter().chain(watched.flat_map(|machine| &machine.host.storage))
}

fn link_cells(repetition: &Repetition, link: &InterfaceUse) -> Vec<String> {
    let measured_s = repetition.measured_s.max(0.001);
    let mut cells = vec![escape(&link.name)];
    for (bytes, packets) in [(link.received_bytes, link.received), (link.sent_bytes, link.sent)] {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        match packets {
            Some(PacketUse { packets, dropped, errors, packets_per_s_max, bytes_per_s_max }) => {
                cells.extend([
                    both(packets as f64 / measured_s, packets_per_s_max as f64),
                    quantity::count(bytes.checked_div(packets).unwrap_or_default()),
                    both(mib(bytes as f64 / measured_s), mib(bytes_per_s_max as f64)),
                    bad_if_any(dropped),
                    bad_if_any(errors),
                ]);
            }
            None => {
                let unknown = || "<span class=\"dim\">unknown</span>".to_owned();
                let mean = escape(&quantity::number(mib(bytes as f64 / measured_s)));
                cells.extend([unknown(), unknown(), mean, unknown(), unknown()]);
            }
        }
    }
    cells
}

fn bad_if_any(count: u64) -> String {
    match count {
        0 => "0".to_owned(),
        count => format!("<span class=\"bad\">{}</span>", quantity::count(count)),
    }
}

/// A mean, and its peak in small print.
fn both(mean: f64, peak: f64) -> String {
    let number = |value: f64| if value == 0.0 { "0".to_owned() } else { quantity::number(value) };
    format!("{} <small>{}</small>", number(mean), number(peak))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;
    use crate::result::{DeviceRates, RunResult};

    /// A run with this change in each of its repetitions.
    fn changed(change: impl Fn(&mut Repetition)) -> RunResult {
        let mut run = testing::run(&[("1 broker", 2.0)]);
        let points = run.workloads.iter_mut().flat_map(|workload| &mut workload.points);
        points.flat_map(|point| &mut point.repetitions).for_each(change);
        run
    }

    #[test]
    fn devices_and_links_have_means_and_peaks_and_the_data_its_chain() {
        let mean = DeviceRates { writes_per_s: 120.0, busy: 0.5, ..DeviceRates::default() };
        let peak = DeviceRates { writes_per_s: 480.0, busy: 1.0, ..mean };
        let run = changed(|repetition| {
            repetition.measured_s = 10.0;
            repetition.host.devices =
                vec![DeviceUse { name: "dm-0".to_owned(), label: Some("vg<a".to_owned()), mean, peak }];
            repetition.host.interfaces = vec![InterfaceUse {
                name: "eth0".to_owned(),
                received_bytes: 1_000_000,
                received: Some(PacketUse { packets: 1000, dropped: 7, ..PacketUse::default() }),
                ..InterfaceUse::default()
            }];
            repetition.host.storage = vec![StorageChain {
                directory: "/data".to_owned(),
                filesystem: "xfs".to_owned(),
                layers: vec![vec!["dm-0".to_owned()], vec!["vda".to_owned()]],
            }];
        });
        let page = crate::report::html(&run);
        assert!(page.contains("The brokers&#39; data is on dm-0 → vda (xfs)"), "{page}");
        assert!(page.contains("<td>dm-0 (vg&lt;a) <small>data</small></td>"), "{page}");
        assert!(
            page.contains("120 <small>480</small>") && page.contains("50.0 <small>100</small>"),
            "{page}"
        );
        assert!(page.contains("<td class=\"n\">1,000</td>"), "bytes a packet: {page}");
        assert!(page.contains("<span class=\"bad\">7</span>"), "{page}");
        assert!(page.contains(">unknown</span>"), "nothing is known of sent packets");
    }

    #[test]
    fn a_result_without_devices_has_no_such_section() {
        let page = crate::report::html(&changed(|_| ()));
        assert!(!page.contains("Devices and networks"), "{page}");
    }
}
