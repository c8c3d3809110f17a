//! Parsers for `/proc`. Pure: text in, numbers out; invalid text gives `None`. Only [`processor_time`] reads
//! files.

use std::time::Duration;

/// The sector size of `/proc/diskstats`, independent of the disk's.
const SECTOR_BYTES: u64 = 512;

/// The contents of `/proc/PID/stat` and `/proc/PID/task/TID/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Clock ticks in user mode.
    pub user_ticks: u64,
    /// Clock ticks in the kernel.
    pub system_ticks: u64,
    /// Start time in ticks since boot, which distinguishes the process from a later one with the same id.
    pub start_ticks: u64,
    /// Resident memory, in pages.
    pub resident_pages: u64,
}

/// Parses a stat line. The name in it is in parentheses and may contain parentheses.
pub(crate) fn stat(text: &str) -> Option<Stat> {
    // The first field here is the third of the line.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse().ok();
    Some(Stat {
        user_ticks: number(14)?,
        system_ticks: number(15)?,
        start_ticks: number(22)?,
        resident_pages: number(24)?,
    })
}

/// The processor time that a process has used; `None` if it has exited.
pub(crate) fn processor_time(pid: u32) -> Option<Duration> {
    let stat = stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let ticks = (stat.user_ticks + stat.system_ticks) as f64;
    Some(Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second() as f64))
}

/// Bytes read from and written to disks, from `/proc/PID/io`.
pub(crate) fn io(text: &str) -> Option<(u64, u64)> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((value("read_bytes:")?, value("write_bytes:")?))
}

/// The time of some processors since boot, in ticks, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    pub busy: u64,
    /// The busy part spent on interrupts, including network interrupts, which are charged to no process.
    pub interrupts: u64,
    /// Idle waiting for disks.
    pub io_wait: u64,
    /// Taken by the hypervisor (steal).
    pub steal: u64,
    /// Total, including idle.
    pub total: u64,
}

/// Parses the time of the processors that a process may use: those of `/proc/stat` allowed in its
/// `/proc/PID/status`, or all if that text lists none. Other processors may be busy or idle for unrelated
/// reasons.
pub(crate) fn cpu(stat: &str, status: &str) -> Option<CpuTicks> {
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let of_each = stat.lines().filter_map(|line| {
        let (number, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
        let number = number.parse().ok()?;
        allowed.is_some_and(|allowed| is_in_list(allowed, number)).then(|| cpu_ticks(ticks)).flatten()
    });
    let together = of_each.reduce(|sum, one| CpuTicks {
        busy: sum.busy + one.busy,
        interrupts: sum.interrupts + one.interrupts,
        io_wait: sum.io_wait + one.io_wait,
        steal: sum.steal + one.steal,
        total: sum.total + one.total,
    });
    together.or_else(|| stat.lines().find_map(|line| line.strip_prefix("cpu ")).and_then(cpu_ticks))
}

/// True if a kernel list such as `0-3,8` contains a number.
fn is_in_list(list: &str, number: u32) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u32>(), last.parse::<u32>()), (Ok(first), Ok(last)) if (first..=last).contains(&number))
    })
}

fn cpu_ticks(line: &str) -> Option<CpuTicks> {
    let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; the following guest ticks are included in user and
    // nice.
    let [user, nice, system, idle, io_wait, irq, soft_irq, steal] = *ticks.first_chunk::<8>()?;
    let busy = user + nice + system + irq + soft_irq;
    let total = busy + idle + io_wait + steal;
    Some(CpuTicks { busy, interrupts: irq + soft_irq, io_wait, steal, total })
}

/// The name of the loopback interface.
pub(crate) const LOOPBACK: &str = "lo";

/// Bytes through the interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    /// Bytes received through loopback.
    pub loopback: u64,
    /// Bytes received by all other interfaces.
    pub received: u64,
    /// Bytes sent by all other interfaces.
    pub sent: u64,
}

/// The counters of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    /// The kernel's name.
    pub name: String,
    /// Bytes received, and below them bytes sent.
    pub received: u64,
    pub sent: u64,
    /// Packets received, with errors and drops on the way in.
    pub in_packets: PacketCounters,
    /// Packets sent, with errors and drops on the way out.
    pub out_packets: PacketCounters,
}

/// The packets of an interface in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketCounters {
    pub packets: u64,
    pub errors: u64,
    pub dropped: u64,
}

/// The counters of each interface, from `/proc/net/dev`.
pub(crate) fn interfaces(text: &str) -> Vec<Interface> {
    let one = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> =
            counters.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
        let packets = |first: usize| {
            let [packets, errors, dropped] = *counters.get(first..)?.first_chunk::<3>()?;
            Some(PacketCounters { packets, errors, dropped })
        };
        Some(Interface {
            name: name.trim().to_owned(),
            received: *counters.first()?,
            sent: *counters.get(8)?,
            in_packets: packets(1)?,
            out_packets: packets(9)?,
        })
    };
    text.lines().filter_map(one).collect()
}

/// Bytes through the interfaces together.
pub(crate) fn network(interfaces: &[Interface]) -> Network {
    let mut network = Network::default();
    for one in interfaces {
        // Bytes sent on loopback are received there, and count once.
        if one.name == LOOPBACK {
            network.loopback += one.received;
        } else {
            network.received += one.received;
            network.sent += one.sent;
        }
    }
    network
}

/// One line of `/proc/diskstats`: the counters of a block device. Times are in milliseconds, summed over
/// requests, except that of `busy_ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The kernel's name.
    pub name: String,
    pub reads: u64,
    /// Reads that were merged with another one before they reached the device.
    pub reads_merged: u64,
    pub read_bytes: u64,
    /// Time from a read's arrival in the queue to its end.
    pub read_ms: u64,
    pub writes: u64,
    /// Writes that were merged with another one before they reached the device.
    pub writes_merged: u64,
    pub written_bytes: u64,
    /// Time from a write's arrival in the queue to its end.
    pub write_ms: u64,
    /// Time with a request in flight.
    pub busy_ms: u64,
    /// Time of each moment, multiplied by the requests in flight.
    pub queue_ms: u64,
    /// Flushes of the device's cache and their time; `None` before Linux 5.5.
    pub flushes: Option<(u64, u64)>,
}

/// Parses `/proc/diskstats`: disks, partitions and other block devices.
pub(crate) fn disks(text: &str) -> Vec<Disk> {
    text.lines().filter_map(disk).collect()
}

fn disk(line: &str) -> Option<Disk> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some(Disk {
        name: (*fields.get(2)?).to_owned(),
        reads: number(3)?,
        reads_merged: number(4)?,
        read_bytes: number(5)? * SECTOR_BYTES,
        read_ms: number(6)?,
        writes: number(7)?,
        writes_merged: number(8)?,
        written_bytes: number(9)? * SECTOR_BYTES,
        write_ms: number(10)?,
        busy_ms: number(12)?,
        queue_ms: number(13)?,
        // Fields 14 to 17 are discards.
        flushes: number(18).zip(number(19)),
    })
}

/// The name in `/proc/PID/stat`, at most 15 bytes long.
pub(crate) fn name(stat: &str) -> Option<&str> {
    let (_, rest) = stat.split_once('(')?;
    Some(rest.rsplit_once(')')?.0)
}

/// The thread with which OpenJDK's serial collector collects garbage. Under other collectors it does other
/// work, such as thread dumps.
pub(crate) const SERIAL_COLLECTOR: &str = "VM Thread";

/// True for the names of threads with which OpenJDK's other collectors (Parallel, G1, ZGC, Shenandoah)
/// collect garbage.
pub(crate) fn is_collector(name: &str) -> bool {
    const COLLECTORS: [&str; 9] = [
        "GC Thread#",
        "ParGC Thread#",
        "G1 ",
        "ZDriver",
        "ZDirector",
        "ZWorker",
        "XDriver",
        "XWorker",
        "Shenandoah",
    ];
    COLLECTORS.iter().any(|collector| name.starts_with(collector))
}

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn memory(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name() {
        let text = "4711 (kafka) R (x) S 1 4711 4711 0 -1 4194560 54962 15216670 0 2212 263 1300 49538 12276 20 0 15 0 \
                    25 58404864 5456 18446744073709551615 1 1 0 0 0 0 0 4096 1256 0 0 0 17 1 0 0 0 0 0\n";
        let expected = Stat { user_ticks: 263, system_ticks: 1300, start_ticks: 25, resident_pages: 5456 };
        assert_eq!(stat(text), Some(expected));
        assert_eq!(name(text), Some("kafka) R (x"));
        assert_eq!(stat("4711 (short) S 1 2"), None);
        assert_eq!(stat(""), None);
    }

    #[test]
    fn io_is_disk_traffic() {
        let text = "rchar: 6976\nwchar: 12\nsyscr: 10\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: 8192\n\
                    cancelled_write_bytes: 0\n";
        assert_eq!(io(text), Some((4096, 8192)));
        assert_eq!(io("rchar: 6976\n"), None);
    }

    #[test]
    fn guests_are_not_counted_twice() {
        let text = "cpu  77252 51206 36295 720705 2900 10 1558 1028 500 0\ncpu0 17215 11109 7619 185753 439 0 316 276 0 0\n";
        let busy = 77252 + 51206 + 36295 + 10 + 1558;
        let total = busy + 720_705 + 2900 + 1028;
        let expected = CpuTicks { busy, interrupts: 1568, io_wait: 2900, steal: 1028, total };
        assert_eq!(cpu(text, ""), Some(expected));
        assert_eq!(cpu("cpu  1 2 3\n", ""), None);
        let first = CpuTicks { busy: 36_259, interrupts: 316, io_wait: 439, steal: 276, total: 222_727 };
        let status = "Name:\tthalweg\nCpus_allowed:\t1\nCpus_allowed_list:\t0\n";
        assert_eq!(cpu(text, status), Some(first), "the first processor only");
        let elsewhere = "Cpus_allowed_list:\t1-3,7\n";
        assert_eq!(cpu(text, elsewhere), Some(expected), "none of the list is told");
    }

    #[test]
    fn lists_of_the_kernel_hold_numbers_and_ranges() {
        for (list, number, expected) in
            [("0-3", 2, true), ("0-3", 4, false), ("\t1,4-5\n", 5, true), ("1,4-5", 2, false), ("", 0, false)]
        {
            assert_eq!(is_in_list(list, number), expected, "{list:?} {number}");
        }
    }

    #[test]
    fn loopback_counts_once_and_other_interfaces_both_ways() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                    lo: 23567622249 1156274    0    0    0     0          0         0 23567622249 1156274    0    0    0     0       0          0\n  \
                    ifb0:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n  \
                    eth0:363462743   11505    0    0    0     0          0         0  1020984    7467    0    0    0     0       0          0\n";
        let found = Network { loopback: 23_567_622_249, received: 363_462_743, sent: 1_020_984 };
        assert_eq!(network(&interfaces(text)), found);
        let counters = |packets| PacketCounters { packets, ..PacketCounters::default() };
        let eth0 = Interface {
            name: "eth0".to_owned(),
            received: 363_462_743,
            sent: 1_020_984,
            in_packets: counters(11_505),
            out_packets: counters(7467),
        };
        assert_eq!(interfaces(text)[2], eth0);
    }

    #[test]
    fn disks_are_counted_in_bytes() {
        let text = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
                    254       0 vda 233262 21259 16416154 338510 110608 92827 69755648 578879 0 48280 928224 29888 253 70580312 9429 11055 1405\n";
        let found = disks(text);
        assert_eq!(found.len(), 2);
        let expected = Disk {
            name: "vda".to_owned(),
            reads: 233_262,
            reads_merged: 21_259,
            read_bytes: 16_416_154 * 512,
            read_ms: 338_510,
            writes: 110_608,
            writes_merged: 92_827,
            written_bytes: 69_755_648 * 512,
            write_ms: 578_879,
            busy_ms: 48_280,
            queue_ms: 928_224,
            flushes: Some((11_055, 1405)),
        };
        assert_eq!(found[1], expected);
        let old = " 8 0 sda 1 2 3 4 5 6 7 8 0 9 10\n";
        assert_eq!(disks(old)[0].flushes, None, "Linux before 5.5 has no flushes");
    }

    #[test]
    fn memory_is_in_bytes() {
        let text = "MemTotal:       24683668 kB\nDirty:            129712 kB\nHugePages_Total:       0\n";
        assert_eq!(memory(text, "Dirty"), Some(129_712 * 1024));
        assert_eq!(memory(text, "Mem"), None);
        assert_eq!(memory(text, "HugePages_Total"), None);
    }
}
