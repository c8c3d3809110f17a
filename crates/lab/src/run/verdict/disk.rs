//! A disk as the limit, with the device and its place below the brokers' data. A disk that the data is not on
//! limits no broker: it is a remark beside the limit.

use super::{BUSY_MIN, Finding};
use crate::quantity;
use crate::result::{DeviceUse, DiskUse, Repetition};

/// The share of processor time waiting for disks.
const IO_WAIT_MIN: f64 = 0.20;
/// Requests in queue and device (aqu-sz) of a full disk. The kernel counts busy time in ticks of its timer,
/// of 1 to 10 ms, so that one short request in each tick makes an idle disk 100 % busy; it sums the times
/// of requests in nanoseconds. A time of requests would be no such test: 250 requests of 1.5 ms in a second
/// leave the disk idle most of the time.
const QUEUE_MIN: f64 = 0.5;

pub(super) fn full(repetition: &Repetition) -> Option<Finding> {
    let host = &repetition.host;
    let is_full = |disk: &&DiskUse| {
        disk.busy >= BUSY_MIN && has_queue(repetition, disk) && !is_elsewhere(repetition, &disk.name)
    };
    if let Some(disk) = host.disks.iter().filter(is_full).max_by(|a, b| a.busy.total_cmp(&b.busy)) {
        let mut finding = Finding::new("disk", busy(repetition, disk));
        finding.reasons.extend(host.devices.iter().find(|device| device.name == disk.name).map(requests));
        finding.reasons.extend(place(repetition, &disk.name));
        return Some(finding);
    }
    (has_waits(repetition) && !waits_are_elsewhere(repetition)).then(|| {
        let mut finding = Finding::new("disk", waits(repetition));
        if let Some(disk) = busiest(repetition) {
            let busy = disk.busy * 100.0;
            let busiest = format!("{} was the busiest disk, for {busy:.0} % of the time", disk.name);
            finding.reasons.push(busiest);
            finding.reasons.extend(place(repetition, &disk.name));
        }
        finding
    })
}

/// Saturated disks that limit no broker, and disks that only seem saturated.
pub(super) fn remarks(repetition: &Repetition) -> Vec<String> {
    let mut remarks = Vec::new();
    for disk in repetition.host.disks.iter().filter(|disk| disk.busy >= BUSY_MIN) {
        if is_elsewhere(repetition, &disk.name) {
            remarks.push(busy(repetition, disk));
            remarks.extend(place(repetition, &disk.name));
        } else if !has_queue(repetition, disk) {
            let queue = queue_length(repetition, disk).unwrap_or_default();
            remarks.push(format!(
                "{} is no limit at {:.0} % busy: it had {} requests in the mean",
                disk.name,
                disk.busy * 100.0,
                quantity::number(queue)
            ));
        }
    }
    if has_waits(repetition) && waits_are_elsewhere(repetition) {
        remarks.push(waits(repetition));
        let disk = busiest(repetition).map_or("any disk", |disk| disk.name.as_str());
        remarks.extend(place(repetition, disk).filter(|place| !remarks.contains(place)));
    }
    remarks
}

fn busy(repetition: &Repetition, disk: &DiskUse) -> String {
    let written = disk.written_bytes as f64 / repetition.measured_s.max(0.001) / 1e6;
    let busy = disk.busy * 100.0;
    format!("{} was busy for {busy:.0} % of the time, writing {written:.0} MB/s", disk.name)
}

fn waits(repetition: &Repetition) -> String {
    let dirty = repetition.host.dirty_bytes_max as f64 / 1e6;
    let waited = repetition.host.cpu_io_wait * 100.0;
    format!("processors waited for disks for {waited:.0} % of the time, with {dirty:.0} MB dirty")
}

fn busiest(repetition: &Repetition) -> Option<&DiskUse> {
    repetition.host.disks.iter().max_by(|a, b| a.busy.total_cmp(&b.busy))
}

fn has_waits(repetition: &Repetition) -> bool {
    repetition.host.cpu_io_wait >= IO_WAIT_MIN
}

/// True if processors waited for a disk that the data is not on.
fn waits_are_elsewhere(repetition: &Repetition) -> bool {
    match busiest(repetition) {
        Some(disk) => is_elsewhere(repetition, &disk.name),
        None => {
            let storage = &repetition.host.storage;
            !storage.is_empty() && storage.iter().all(|chain| chain.is_known() && chain.layers.is_empty())
        }
    }
}

/// Requests in queue and device; `None` if unknown, as in results of earlier versions.
fn queue_length(repetition: &Repetition, disk: &DiskUse) -> Option<f64> {
    let device = repetition.host.devices.iter().find(|device| device.name == disk.name)?;
    Some(device.mean.queue_length)
}

fn has_queue(repetition: &Repetition, disk: &DiskUse) -> bool {
    queue_length(repetition, disk).is_none_or(|length| length >= QUEUE_MIN)
}

/// True if the data is certainly not on this disk.
fn is_elsewhere(repetition: &Repetition, disk: &str) -> bool {
    let storage = &repetition.host.storage;
    !storage.is_empty() && storage.iter().all(|chain| chain.is_known() && !chain.contains(disk))
}

/// The requests of a device: rates, sizes and times.
fn requests(device: &DeviceUse) -> String {
    let (mean, peak) = (&device.mean, &device.peak);
    format!(
        "{}: {} reads/s of {} kB in {}, {} writes/s of {} kB in {} (at most {} in a second), {} requests in the queue",
        device.name,
        quantity::number(mean.reads_per_s),
        quantity::number(mean.read_size_kb),
        quantity::time_us(mean.read_await_ms * 1e3),
        quantity::number(mean.writes_per_s),
        quantity::number(mean.write_size_kb),
        quantity::time_us(mean.write_await_ms * 1e3),
        quantity::time_us(peak.write_await_ms * 1e3),
        quantity::number(mean.queue_length),
    )
}

/// The place of a device below the brokers' data, if known.
fn place(repetition: &Repetition, device: &str) -> Option<String> {
    let storage = &repetition.host.storage;
    let chain = storage.iter().find(|chain| chain.contains(device)).or(storage.first())?;
    let data = format!("the brokers' data in {} is on {chain}", chain.directory);
    Some(match chain.is_known() && !chain.contains(device) {
        true => format!("{data}, not on {device}"),
        false => data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{DeviceRates, DiskUse, StorageChain};
    use crate::run::verdict::tests::limit;

    fn on(disks: &[&str]) -> StorageChain {
        let disks = disks.iter().map(|name| (*name).to_owned()).collect();
        StorageChain {
            directory: "/data".to_owned(),
            filesystem: "xfs".to_owned(),
            layers: vec![vec!["dm-0".to_owned()], disks],
        }
    }

    #[test]
    fn a_full_disk_is_named_with_its_requests_and_the_chain_of_the_data() {
        let reasons = |chain: &StorageChain| {
            let found = limit(|one| {
                one.host.disks = vec![DiskUse { name: "vda".to_owned(), busy: 0.95, ..DiskUse::default() }];
                let mean = DeviceRates {
                    writes_per_s: 120.0,
                    write_size_kb: 512.0,
                    queue_length: 0.9,
                    ..DeviceRates::default()
                };
                let peak = DeviceRates { write_await_ms: 40.0, ..mean };
                one.host.devices = vec![DeviceUse { name: "vda".to_owned(), label: None, mean, peak }];
                one.host.storage = vec![chain.clone()];
            });
            (found.limit, found.reasons)
        };
        let (limit, found) = reasons(&on(&["vda", "vdb"]));
        assert_eq!(limit, "disk");
        assert!(found[1].contains("120 writes/s of 512 kB"), "{found:?}");
        assert!(found[1].contains("(at most 40.0 ms in a second)"), "{found:?}");
        assert_eq!(found[2], "the brokers' data in /data is on dm-0 → vda + vdb");
        let (limit, unknown) = reasons(&StorageChain { layers: Vec::new(), ..on(&[]) });
        assert_eq!(limit, "disk");
        assert_eq!(unknown[2], "the brokers' data in /data is on xfs with unknown devices");
    }

    #[test]
    fn a_full_disk_without_the_data_is_a_remark() {
        let found = |chain: &StorageChain, io_wait: f64| {
            limit(|one| {
                one.host.cpu_io_wait = io_wait;
                one.host.disks = vec![DiskUse { name: "vda".to_owned(), busy: 0.95, ..DiskUse::default() }];
                one.host.storage = vec![chain.clone()];
            })
        };
        let memory = StorageChain { filesystem: "tmpfs".to_owned(), layers: Vec::new(), ..on(&[]) };
        let busy = "vda was busy for 95 % of the time, writing 0 MB/s";
        let waits = "processors waited for disks for 30 % of the time, with 0 MB dirty";
        for (chain, place) in [
            (on(&["vdc"]), "the brokers' data in /data is on dm-0 → vdc, not on vda"),
            (memory, "the brokers' data in /data is on tmpfs without a block device, not on vda"),
        ] {
            let of = found(&chain, 0.0);
            assert_eq!(of.limit, "unknown");
            assert_eq!(of.reasons[1..], [busy, place]);
            let of = found(&chain, 0.3);
            assert_eq!(of.limit, "unknown");
            assert_eq!(of.reasons[1..], [busy, place, waits]);
        }
        // The file of a loop device may be on any disk.
        assert_eq!(
            found(&StorageChain { layers: vec![vec!["loop3".to_owned()]], ..on(&[]) }, 0.0).limit,
            "disk"
        );
    }

    #[test]
    fn a_busy_disk_without_a_queue_is_not_full() {
        let with = |queue_length: f64| {
            limit(|one| {
                one.host.disks = vec![DiskUse { name: "vda".to_owned(), busy: 0.99, ..DiskUse::default() }];
                let mean = DeviceRates { busy: 0.99, queue_length, ..DeviceRates::default() };
                one.host.devices = vec![DeviceUse { name: "vda".to_owned(), mean, ..DeviceUse::default() }];
            })
        };
        assert_eq!(with(0.8).limit, "disk");
        let idle = with(0.02);
        assert_eq!(idle.limit, "unknown");
        assert!(idle.reasons[1].starts_with("vda is no limit at 99 % busy: it had "), "{idle:?}");
    }

    #[test]
    fn waiting_processors_name_the_busiest_disk() {
        let found = limit(|one| {
            one.host.cpu_io_wait = 0.3;
            one.host.disks = vec![DiskUse { name: "vda".to_owned(), busy: 0.6, ..DiskUse::default() }];
        });
        assert_eq!(found.reasons[1..], ["vda was the busiest disk, for 60 % of the time"]);
    }
}
