//! Counters of devices and interfaces since the first sample.
//!
//! The kernel's counters begin at its start. The differences are kept, so that a sample has only the devices
//! and interfaces that were used since: a machine of containers has hundreds of others. A new device counts
//! from zero, and so does one that replaced another of its name.

use std::collections::BTreeMap;

use super::readings::HostReading;
use crate::proc::{Disk, Interface, PacketCounters};

/// The number of counters of a block device, in the order of [`disk_counters`].
pub(super) const DISK_COUNTERS: usize = 12;
/// The counters in milliseconds, of which the kernel prints the lower 32 bits: they wrap after 49 days.
const IN_MS: [usize; 5] = [3, 7, 8, 9, 11];
/// The number of values of a counter in milliseconds.
const MS_VALUES: u64 = 1 << 32;

/// Counters since the first sample, by name.
#[derive(Debug, Default)]
pub(super) struct Totals {
    disks: NamedCounters<DISK_COUNTERS>,
    interfaces: NamedCounters<8>,
}

/// The last reading and the total of each name.
#[derive(Debug)]
struct NamedCounters<const N: usize> {
    has_begun: bool,
    known: BTreeMap<String, ([u64; N], [u64; N])>,
}

impl<const N: usize> Default for NamedCounters<N> {
    fn default() -> Self {
        NamedCounters { has_begun: false, known: BTreeMap::new() }
    }
}

impl<const N: usize> NamedCounters<N> {
    /// The total of a name after a reading; `wrapping` are the counters of 32 bits.
    fn total(&mut self, name: &str, reading: [u64; N], wrapping: &[usize]) -> [u64; N] {
        let Some((last, total)) = self.known.get_mut(name) else {
            let total = if self.has_begun { reading } else { [0; N] };
            self.known.insert(name.to_owned(), (reading, total));
            return total;
        };
        // A small step back is an imprecise sum over processors, and no growth.
        let falls = |index: usize| reading[index] < last[index] / 2;
        // Other counters have 64 bits, and fall only with the device.
        let is_replaced = (0..N).any(|index| falls(index) && !wrapping.contains(&index));
        for index in 0..N {
            total[index] += match reading[index].checked_sub(last[index]) {
                _ if is_replaced => reading[index],
                Some(grown) => grown,
                None if falls(index) => (reading[index] + MS_VALUES).saturating_sub(last[index]),
                None => 0,
            };
        }
        *last = reading;
        *total
    }
}

impl Totals {
    /// Replaces the counters of a reading by totals, and drops devices and interfaces without any.
    pub(super) fn apply(&mut self, reading: &mut HostReading) {
        reading.disks.retain_mut(|disk| {
            let total = self.disks.total(&disk.name, disk_counters(disk), &IN_MS);
            set_disk_counters(disk, total);
            total != [0; DISK_COUNTERS]
        });
        self.disks.has_begun = true;
        reading.interfaces.retain_mut(|interface| {
            let total = self.interfaces.total(&interface.name, interface_counters(interface), &[]);
            set_interface_counters(interface, total);
            total != [0; 8]
        });
        self.interfaces.has_begun = true;
    }
}

pub(super) fn disk_counters(disk: &Disk) -> [u64; DISK_COUNTERS] {
    let (flushes, flush_ms) = disk.flushes.unwrap_or_default();
    [
        disk.reads,
        disk.reads_merged,
        disk.read_bytes,
        disk.read_ms,
        disk.writes,
        disk.writes_merged,
        disk.written_bytes,
        disk.write_ms,
        disk.busy_ms,
        disk.queue_ms,
        flushes,
        flush_ms,
    ]
}

fn set_disk_counters(disk: &mut Disk, counters: [u64; DISK_COUNTERS]) {
    let flushes;
    let flush_ms;
    [
        disk.reads,
        disk.reads_merged,
        disk.read_bytes,
        disk.read_ms,
        disk.writes,
        disk.writes_merged,
        disk.written_bytes,
        disk.write_ms,
        disk.busy_ms,
        disk.queue_ms,
        flushes,
        flush_ms,
    ] = counters;
    disk.flushes = disk.flushes.map(|_| (flushes, flush_ms));
}

fn interface_counters(interface: &Interface) -> [u64; 8] {
    let of = |packets: PacketCounters| [packets.packets, packets.errors, packets.dropped];
    let ([in_packets, in_errors, in_dropped], [out_packets, out_errors, out_dropped]) =
        (of(interface.in_packets), of(interface.out_packets));
    [
        interface.received,
        interface.sent,
        in_packets,
        in_errors,
        in_dropped,
        out_packets,
        out_errors,
        out_dropped,
    ]
}

fn set_interface_counters(interface: &mut Interface, counters: [u64; 8]) {
    let (into, out) = (&mut interface.in_packets, &mut interface.out_packets);
    [
        interface.received,
        interface.sent,
        into.packets,
        into.errors,
        into.dropped,
        out.packets,
        out.errors,
        out.dropped,
    ] = counters;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, writes: u64, ms: u64) -> Disk {
        let name = name.to_owned();
        Disk { name, writes, written_bytes: writes * 512, busy_ms: ms, queue_ms: ms, ..Disk::default() }
    }

    fn link(name: &str, sent: u64) -> Interface {
        Interface { name: name.to_owned(), sent, ..Interface::default() }
    }

    /// The totals after each of these readings.
    fn totals(readings: Vec<(Vec<Disk>, Vec<Interface>)>) -> Vec<HostReading> {
        let mut totals = Totals::default();
        let of = |(disks, interfaces)| {
            let mut reading = HostReading { disks, interfaces, ..HostReading::default() };
            totals.apply(&mut reading);
            reading
        };
        readings.into_iter().map(of).collect()
    }

    #[test]
    fn times_in_milliseconds_grow_over_their_wrap() {
        let last = u64::from(u32::MAX);
        let found = totals(vec![
            (vec![disk("vda", 10, last - 99)], Vec::new()),
            (vec![disk("vda", 20, last)], Vec::new()),
            (vec![disk("vda", 30, 49)], Vec::new()),
        ]);
        let busy: Vec<_> = found[1..].iter().map(|one| (one.disks[0].writes, one.disks[0].busy_ms)).collect();
        assert_eq!(busy, [(10, 99), (20, 149)]);
        assert_eq!(found[2].disks[0].queue_ms, 149);
    }

    #[test]
    fn unused_devices_are_left_out_and_new_ones_count_from_zero() {
        let found = totals(vec![
            (vec![disk("vda", 7, 7), disk("vdb", 9, 9)], vec![link("eth0", 5), link("veth1", 6)]),
            (
                vec![disk("vda", 8, 9), disk("vdb", 9, 9), disk("vdc", 3, 3)],
                vec![link("eth0", 9), link("veth1", 6)],
            ),
            // A step back.
            (vec![disk("vda", 8, 8)], vec![link("eth0", 8)]),
            // A smaller one with the name of the removed one.
            (vec![disk("vda", 2, 1)], vec![link("eth0", 9)]),
        ]);
        assert!(found[0].disks.is_empty() && found[0].interfaces.is_empty(), "{:?}", found[0]);
        assert_eq!(found[1].disks, [disk("vda", 1, 2), disk("vdc", 3, 3)]);
        assert_eq!(found[1].interfaces, [link("eth0", 4)]);
        assert_eq!(
            (&found[2].disks[..], &found[2].interfaces[..]),
            (&[disk("vda", 1, 2)][..], &[link("eth0", 4)][..])
        );
        assert_eq!(found[3].disks, [disk("vda", 3, 3)]);
    }
}
