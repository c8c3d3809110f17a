//! This machine as lines of text and as JSON: processors, brokers' processes with their threads, block
//! devices with the columns of `iostat -x`, network interfaces. Pure.

use serde_json::{Value, json};
use thalweg_lab::live::{BrokerUse, MachineUse};
use thalweg_lab::quantity;
use thalweg_lab::result::{DeviceUse, HostUse, InterfaceUse, PacketUse, ThreadUse};

use super::layout::{Column, table};
use super::screen::{Line, Look, Room, dash, note_lines};

/// Kinds of threads of a broker in a table and in JSON.
const THREADS_MAX: usize = 5;

/// The lines of this machine.
pub(super) fn lines(used: Option<&MachineUse>, notes: &[String], room: Room) -> Vec<Line> {
    let Some(used) = used else {
        let wait = Line::plain("This machine: rates are known from the second sample on.");
        return std::iter::once(wait).chain(note_lines(notes.iter(), room)).collect();
    };
    let mut lines = vec![Line::plain(room.cut(&processors(used)))];
    lines.extend(used.brokers.iter().map(|broker| Line::plain(room.cut(&storage(broker)))));
    let missing: Vec<String> = missing(used).collect();
    let notes = note_lines(notes.iter().chain(&missing), room);
    let threads: usize = used.brokers.iter().map(|broker| broker.threads.len().min(THREADS_MAX)).sum();
    let (devices, links) = (sorted_devices(&used.host), sorted_links(&used.host));
    // Four tables, each with a blank line and a header.
    let taken = lines.len() + notes.len() + 4 * 2 + usize::from(!notes.is_empty());
    let needs = [used.brokers.len(), threads, devices.len(), links.len()];
    let [brokers, threads, in_devices, in_links] = room.divide(taken, &needs)[..] else { return lines };
    let mut add = |table: Vec<String>| {
        lines.push(Line::plain(""));
        lines.extend(table.into_iter().enumerate().map(|(number, line)| match number {
            0 => Line::new(line, Look::Heading),
            _ => Line::plain(line),
        }));
    };
    add(broker_table(used, brokers, room));
    add(thread_table(used, threads, room));
    add(device_table(&devices[..in_devices.min(devices.len())], room));
    add(link_table(&links[..in_links.min(links.len())], used.length_s, room));
    if !notes.is_empty() {
        lines.push(Line::plain(""));
        lines.extend(notes);
    }
    lines
}

fn processors(used: &MachineUse) -> String {
    let host = &used.host;
    let share = |share: f64| if host.is_unknown() { dash() } else { quantity::percent(share) };
    format!(
        "This machine: {} processors {} busy, interrupts {}, waiting for disks {}, stolen {}",
        used.cpus,
        share(host.cpu_busy),
        share(host.cpu_interrupts),
        share(host.cpu_io_wait),
        share(host.cpu_steal),
    )
}

/// The devices below the data of a broker.
fn storage(broker: &BrokerUse) -> String {
    let chains: Vec<String> =
        broker.storage.iter().map(|chain| format!("{} on {chain}", chain.directory)).collect();
    match chains.is_empty() {
        true => format!("Data of {}: unknown", name(broker)),
        false => format!("Data of {}: {}", name(broker), chains.join("; ")),
    }
}

fn name(broker: &BrokerUse) -> String {
    match &broker.node {
        Some((id, _)) => format!("{} {id}", broker.kind.name()),
        None => format!("{} of process {}", broker.kind.name(), broker.pid),
    }
}

fn missing(used: &MachineUse) -> impl Iterator<Item = String> {
    let of_brokers = used
        .brokers
        .iter()
        .flat_map(|broker| broker.missing.iter().map(move |missing| format!("{}: {missing}.", name(broker))));
    used.missing.iter().map(|missing| format!("Unknown: {missing}.")).chain(of_brokers)
}

fn broker_table(used: &MachineUse, shown: usize, room: Room) -> Vec<String> {
    let columns = [
        Column::number("PID"),
        Column::name("PROGRAM", 8),
        Column::number("NODE"),
        Column::name("CLUSTER", 8).optional(1),
        Column::number("CPU"),
        Column::number("MEMORY"),
    ];
    let row = |broker: &BrokerUse| {
        vec![
            broker.pid.to_string(),
            broker.kind.name().to_owned(),
            broker.node.as_ref().map_or_else(dash, |(id, _)| id.to_string()),
            broker.node.as_ref().map_or_else(dash, |(_, cluster)| cluster.clone()),
            broker.cpus.map_or_else(dash, quantity::percent),
            quantity::bytes(broker.memory_bytes as f64),
        ]
    };
    if used.brokers.is_empty() {
        return vec!["PID  PROGRAM  no broker runs on this machine, as far as /proc shows".to_owned()];
    }
    let rows: Vec<Vec<String>> = used.brokers.iter().take(shown).map(row).collect();
    table(&columns, &rows, 2, room.width)
}

/// The hottest kinds of threads of all brokers, the busiest first.
fn thread_table(used: &MachineUse, shown: usize, room: Room) -> Vec<String> {
    let columns = [
        Column::number("PID"),
        Column::name("THREADS", 15),
        Column::number("COUNT"),
        Column::number("CPU"),
        Column::number("HOTTEST"),
        Column::number("SWITCHES/s"),
        Column::number("FORCED/s").optional(1),
        Column::number("RUN-QUEUE"),
    ];
    let all = used.brokers.iter();
    let mut threads: Vec<(u32, &ThreadUse)> =
        all.flat_map(|broker| broker.threads.iter().take(THREADS_MAX).map(|one| (broker.pid, one))).collect();
    threads.sort_by(|(_, a), (_, b)| cpu_s(b).total_cmp(&cpu_s(a)));
    let per_s = |count: u64| quantity::short(count as f64 / used.length_s);
    let row = |(pid, one): (u32, &ThreadUse)| {
        vec![
            pid.to_string(),
            one.name.clone(),
            one.threads.to_string(),
            quantity::percent(cpu_s(one) / used.length_s),
            quantity::percent(one.busiest),
            per_s(one.voluntary_switches + one.involuntary_switches),
            per_s(one.involuntary_switches),
            one.run_queue_s.map_or_else(dash, |waited_s| quantity::percent(waited_s / used.length_s)),
        ]
    };
    let rows: Vec<Vec<String>> = threads.into_iter().take(shown).map(row).collect();
    table(&columns, &rows, 2, room.width)
}

fn cpu_s(used: &ThreadUse) -> f64 {
    used.user_s + used.system_s
}

/// The block devices with requests, the busiest first.
fn sorted_devices(host: &HostUse) -> Vec<&DeviceUse> {
    let mut devices: Vec<&DeviceUse> = host.devices.iter().collect();
    devices.sort_by(|a, b| b.mean.busy.total_cmp(&a.mean.busy).then_with(|| a.name.cmp(&b.name)));
    devices
}

fn device_table(devices: &[&DeviceUse], room: Room) -> Vec<String> {
    let columns = [
        Column::name("DEVICE", 6),
        Column::number("r/s"),
        Column::number("w/s"),
        Column::number("rkB/s"),
        Column::number("wkB/s"),
        Column::number("rrqm/s").optional(5),
        Column::number("wrqm/s").optional(4),
        Column::number("r_await"),
        Column::number("w_await"),
        Column::number("aqu-sz"),
        Column::number("rareq-sz").optional(3),
        Column::number("wareq-sz").optional(2),
        Column::number("f/s").optional(1),
        Column::number("f_await").optional(6),
        Column::number("%util"),
    ];
    let row = |device: &&DeviceUse| {
        let mean = &device.mean;
        let number = |value: f64| quantity::digits(value, 2);
        let optional = |value: Option<f64>| value.map_or_else(dash, number);
        // The time and the size of no request are unknown.
        let of = |value: f64, requests: f64| if requests > 0.0 { number(value) } else { dash() };
        let name = match &device.label {
            Some(label) => format!("{} ({label})", device.name),
            None => device.name.clone(),
        };
        vec![
            name,
            number(mean.reads_per_s),
            number(mean.writes_per_s),
            number(mean.read_kb_per_s),
            number(mean.written_kb_per_s),
            number(mean.reads_merged_per_s),
            number(mean.writes_merged_per_s),
            of(mean.read_await_ms, mean.reads_per_s),
            of(mean.write_await_ms, mean.writes_per_s),
            number(mean.queue_length),
            of(mean.read_size_kb, mean.reads_per_s),
            of(mean.write_size_kb, mean.writes_per_s),
            optional(mean.flushes_per_s),
            mean.flush_await_ms
                .map_or_else(dash, |await_ms| of(await_ms, mean.flushes_per_s.unwrap_or_default())),
            format!("{:.0}", mean.busy * 100.0),
        ]
    };
    let rows: Vec<Vec<String>> = devices.iter().map(row).collect();
    match rows.is_empty() {
        true => vec!["DEVICE  no block device had a request".to_owned()],
        false => table(&columns, &rows, 1, room.width),
    }
}

/// The interfaces with traffic, those with most packets first.
fn sorted_links(host: &HostUse) -> Vec<&InterfaceUse> {
    let packets = |link: &InterfaceUse| {
        link.received.unwrap_or_default().packets + link.sent.unwrap_or_default().packets
    };
    let mut links: Vec<&InterfaceUse> = host.interfaces.iter().collect();
    links.sort_by(|a, b| packets(b).cmp(&packets(a)).then_with(|| a.name.cmp(&b.name)));
    links
}

fn link_table(links: &[&InterfaceUse], length_s: f64, room: Room) -> Vec<String> {
    let columns = [
        Column::name("INTERFACE", 9),
        Column::number("IN/s"),
        Column::number("PACKETS/s"),
        Column::number("B/PACKET"),
        Column::number("DROPS"),
        Column::number("OUT/s"),
        Column::number("PACKETS/s"),
        Column::number("B/PACKET"),
        Column::number("DROPS"),
    ];
    let way = |bytes: u64, packets: Option<PacketUse>| {
        let count = packets.map(|used| used.packets);
        let size = count.and_then(|count| bytes.checked_div(count));
        [
            quantity::bytes(bytes as f64 / length_s),
            count.map_or_else(dash, |count| quantity::short(count as f64 / length_s)),
            size.map_or_else(dash, |size| size.to_string()),
            packets.map_or_else(dash, |used| used.dropped.to_string()),
        ]
    };
    let row = |link: &&InterfaceUse| {
        let ways = [way(link.received_bytes, link.received), way(link.sent_bytes, link.sent)];
        std::iter::once(link.name.clone()).chain(ways.into_iter().flatten()).collect()
    };
    let rows: Vec<Vec<String>> = links.iter().map(row).collect();
    match rows.is_empty() {
        true => vec!["INTERFACE  no interface had traffic".to_owned()],
        false => table(&columns, &rows, 1, room.width),
    }
}

/// This machine for programs: the fields of the lab's results, without peaks.
pub(super) fn to_json(used: &MachineUse) -> Value {
    let host = &used.host;
    let share = |share: f64| (!host.is_unknown()).then_some(share);
    let per_s = |count: u64| count as f64 / used.length_s;
    let way = |bytes: u64, packets: Option<PacketUse>| {
        json!({
            "bytes_per_s": per_s(bytes),
            "packets_per_s": packets.map(|used| per_s(used.packets)),
            "dropped": packets.map(|used| used.dropped),
            "errors": packets.map(|used| used.errors),
        })
    };
    let devices: Vec<Value> = sorted_devices(host)
        .into_iter()
        .map(|device| json!({ "name": device.name, "label": device.label, "rates": device.mean }))
        .collect();
    let links: Vec<Value> = sorted_links(host)
        .into_iter()
        .map(|link| {
            json!({
                "name": link.name,
                "speed_mbit_per_s": link.speed_mbit_per_s,
                "received": way(link.received_bytes, link.received),
                "sent": way(link.sent_bytes, link.sent),
            })
        })
        .collect();
    let brokers: Vec<Value> = used.brokers.iter().map(|broker| broker_json(broker, used.length_s)).collect();
    json!({
        "interval_s": used.length_s,
        "cpus": used.cpus,
        "cpu_busy": share(host.cpu_busy),
        "cpu_interrupts": share(host.cpu_interrupts),
        "cpu_io_wait": share(host.cpu_io_wait),
        "cpu_steal": share(host.cpu_steal),
        "brokers": brokers,
        "devices": devices,
        "interfaces": links,
        "missing": used.missing,
    })
}

fn broker_json(broker: &BrokerUse, length_s: f64) -> Value {
    let threads: Vec<Value> = broker
        .threads
        .iter()
        .map(|one| {
            json!({
                "name": one.name,
                "threads": one.threads,
                "cpus": cpu_s(one) / length_s,
                "busiest": one.busiest,
                "voluntary_switches_per_s": one.voluntary_switches as f64 / length_s,
                "involuntary_switches_per_s": one.involuntary_switches as f64 / length_s,
                "run_queue": one.run_queue_s.map(|waited_s| waited_s / length_s),
            })
        })
        .collect();
    json!({
        "pid": broker.pid,
        "program": broker.kind.name(),
        "node_id": broker.node.as_ref().map(|(id, _)| id),
        "cluster_id": broker.node.as_ref().map(|(_, cluster)| cluster),
        "cpus": broker.cpus,
        "memory_bytes": broker.memory_bytes,
        "threads": threads,
        "storage": broker.storage,
        "missing": broker.missing,
    })
}

#[cfg(test)]
mod tests;
