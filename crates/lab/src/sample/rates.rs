//! Rates of block devices and interfaces between two times, and their peaks over seconds.

use super::counters::growth;
use super::readings::HostReading;
use super::totals::{DISK_COUNTERS, disk_counters};
use crate::machine::storage::label;
use crate::proc::{Interface, PacketCounters};
use crate::result::{DeviceRates, DeviceUse, PacketUse};

/// The length of the windows whose highest value is a peak; five samples.
const WINDOW_US: u64 = 1_000_000;

/// The growth of a block device's counters.
type Counters = [f64; DISK_COUNTERS];

/// The block devices with requests between two times.
pub(super) fn devices(readings: &[(u64, HostReading)], from_us: u64, to_us: u64) -> Vec<DeviceUse> {
    let last = readings.last().map(|(_, reading)| &reading.disks[..]).unwrap_or_default();
    let used = last.iter().filter_map(|device| {
        let find = |reading: &HostReading| {
            // A new device counts from zero.
            let same = reading.disks.iter().find(|same| same.name == device.name);
            same.map_or([0; DISK_COUNTERS], disk_counters)
        };
        let of = |from_us, to_us| {
            let grown = growth(readings, from_us, to_us, find);
            rates(grown, (to_us - from_us) as f64 / 1e6, device.flushes.is_some())
        };
        let mean = of(from_us, to_us);
        let is_used = mean.reads_per_s + mean.writes_per_s + mean.flushes_per_s.unwrap_or_default() > 0.0;
        is_used.then(|| DeviceUse {
            name: device.name.clone(),
            label: label(&device.name),
            mean,
            peak: windows(from_us, to_us).map(|(from_us, to_us)| of(from_us, to_us)).fold(mean, highest),
        })
    });
    used.collect()
}

/// The packets of an interface between two times, received and sent.
pub(super) fn packets(
    readings: &[(u64, HostReading)],
    interface: &str,
    from_us: u64,
    to_us: u64,
) -> (PacketUse, PacketUse) {
    let of = |bytes: fn(&Interface) -> u64, packets: fn(&Interface) -> PacketCounters| {
        let find = |reading: &HostReading| {
            let same = reading.interfaces.iter().find(|same| same.name == interface);
            same.map_or([0; 4], |same| {
                let PacketCounters { packets, errors, dropped } = packets(same);
                [bytes(same), packets, errors, dropped]
            })
        };
        let grown = |from_us, to_us| growth(readings, from_us, to_us, find);
        let [_, packets, errors, dropped] = grown(from_us, to_us);
        let mut used = PacketUse {
            packets: packets.round() as u64,
            dropped: dropped.round() as u64,
            errors: errors.round() as u64,
            ..PacketUse::default()
        };
        for (from_us, to_us) in windows(from_us, to_us) {
            let length_s = (to_us - from_us) as f64 / 1e6;
            let [bytes, packets, ..] = grown(from_us, to_us);
            used.packets_per_s_max = used.packets_per_s_max.max((packets / length_s).round() as u64);
            used.bytes_per_s_max = used.bytes_per_s_max.max((bytes / length_s).round() as u64);
        }
        used
    };
    (of(|one| one.received, |one| one.in_packets), of(|one| one.sent, |one| one.out_packets))
}

/// Windows of about a second that divide an interval; none if it is empty.
fn windows(from_us: u64, to_us: u64) -> impl Iterator<Item = (u64, u64)> {
    let length_us = to_us.saturating_sub(from_us);
    let count = if length_us == 0 { 0 } else { (length_us / WINDOW_US).max(1) };
    let edge = move |number: u64| from_us + length_us * number / count;
    (0..count).map(move |number| (edge(number), edge(number + 1)))
}

/// The rates of counters that have grown by this much.
fn rates(grown: Counters, length_s: f64, has_flushes: bool) -> DeviceRates {
    let [
        reads,
        reads_merged,
        read_bytes,
        read_ms,
        writes,
        writes_merged,
        written_bytes,
        write_ms,
        busy_ms,
        queue_ms,
        flushes,
        flush_ms,
    ] = grown;
    let per_s = |value: f64| ratio(value, length_s);
    DeviceRates {
        reads_per_s: per_s(reads),
        writes_per_s: per_s(writes),
        read_kb_per_s: per_s(read_bytes / 1024.0),
        written_kb_per_s: per_s(written_bytes / 1024.0),
        reads_merged_per_s: per_s(reads_merged),
        writes_merged_per_s: per_s(writes_merged),
        read_await_ms: ratio(read_ms, reads),
        write_await_ms: ratio(write_ms, writes),
        queue_length: per_s(queue_ms / 1e3),
        read_size_kb: ratio(read_bytes / 1024.0, reads),
        write_size_kb: ratio(written_bytes / 1024.0, writes),
        flushes_per_s: has_flushes.then(|| per_s(flushes)),
        flush_await_ms: has_flushes.then(|| ratio(flush_ms, flushes)),
        busy: per_s(busy_ms / 1e3).min(1.0),
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The higher value of each column.
fn highest(a: DeviceRates, b: DeviceRates) -> DeviceRates {
    let optional = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
    DeviceRates {
        reads_per_s: a.reads_per_s.max(b.reads_per_s),
        writes_per_s: a.writes_per_s.max(b.writes_per_s),
        read_kb_per_s: a.read_kb_per_s.max(b.read_kb_per_s),
        written_kb_per_s: a.written_kb_per_s.max(b.written_kb_per_s),
        reads_merged_per_s: a.reads_merged_per_s.max(b.reads_merged_per_s),
        writes_merged_per_s: a.writes_merged_per_s.max(b.writes_merged_per_s),
        read_await_ms: a.read_await_ms.max(b.read_await_ms),
        write_await_ms: a.write_await_ms.max(b.write_await_ms),
        queue_length: a.queue_length.max(b.queue_length),
        read_size_kb: a.read_size_kb.max(b.read_size_kb),
        write_size_kb: a.write_size_kb.max(b.write_size_kb),
        flushes_per_s: optional(a.flushes_per_s, b.flushes_per_s),
        flush_await_ms: optional(a.flush_await_ms, b.flush_await_ms),
        busy: a.busy.max(b.busy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Disk;

    const S: u64 = 1_000_000;

    /// A reading of a volume with this many writes of 8 kB, each of 4 ms, and packets of 100 bytes.
    fn reading(writes: u64) -> HostReading {
        let dm = Disk {
            name: "dm-0".to_owned(),
            writes,
            writes_merged: writes / 2,
            written_bytes: writes * 8192,
            write_ms: writes * 4,
            queue_ms: writes * 4,
            busy_ms: writes,
            flushes: Some((writes / 10, writes)),
            ..Disk::default()
        };
        let idle = Disk { name: "vdz".to_owned(), reads: 7, ..Disk::default() };
        let counters = PacketCounters { packets: writes, errors: 0, dropped: writes / 100 };
        let eth0 = Interface {
            name: "eth0".to_owned(),
            received: writes * 100,
            in_packets: counters,
            ..Interface::default()
        };
        HostReading { disks: vec![dm, idle], interfaces: vec![eth0], ..HostReading::default() }
    }

    /// Ten seconds with 100 writes each, but 600 in the fifth.
    fn readings() -> Vec<(u64, HostReading)> {
        (0..=10)
            .map(|second| (second * S, reading(second * 100 + if second > 4 { 500 } else { 0 })))
            .collect()
    }

    #[test]
    fn rates_are_those_of_iostat_with_the_peak_of_a_second() {
        let found = devices(&readings(), 0, 10 * S);
        assert_eq!(found.len(), 1, "the idle disk is left out: {found:?}");
        let DeviceUse { name, mean, peak, .. } = &found[0];
        assert_eq!(name, "dm-0");
        assert_eq!((mean.writes_per_s, peak.writes_per_s), (150.0, 600.0));
        assert_eq!((mean.written_kb_per_s, peak.written_kb_per_s), (1200.0, 4800.0));
        assert_eq!((mean.writes_merged_per_s, mean.reads_per_s), (75.0, 0.0));
        assert_eq!((mean.write_await_ms, mean.write_size_kb, mean.read_await_ms), (4.0, 8.0, 0.0));
        assert_eq!((mean.queue_length, peak.queue_length), (0.6, 2.4));
        assert_eq!((mean.flushes_per_s, mean.flush_await_ms), (Some(15.0), Some(10.0)));
        assert_eq!((mean.busy, peak.busy), (0.15, 0.6));
    }

    #[test]
    fn packets_have_a_rate_a_peak_and_drops() {
        let (received, sent) = packets(&readings(), "eth0", 0, 10 * S);
        let expected = PacketUse {
            packets: 1500,
            dropped: 15,
            errors: 0,
            packets_per_s_max: 600,
            bytes_per_s_max: 60_000,
        };
        assert_eq!((received, sent), (expected, PacketUse::default()));
    }

    #[test]
    fn a_short_or_empty_interval_has_its_mean_as_peak_or_nothing() {
        let found = devices(&readings(), 4 * S, 4 * S + S / 2);
        assert_eq!(found[0].peak, found[0].mean);
        assert_eq!(devices(&readings(), 4 * S, 4 * S), []);
        assert_eq!(devices(&[], 0, S), []);
    }
}
