//! A disk as the limit, with the device and its place below the brokers' data.

use super::{BUSY_MIN, Finding};
use crate::quantity;
use crate::result::{DeviceUse, Repetition};

/// The share of processor time waiting for disks.
const IO_WAIT_MIN: f64 = 0.20;

pub(super) fn full(repetition: &Repetition) -> Option<Finding> {
    let host = &repetition.host;
    let busiest = host.disks.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let measured_s = repetition.measured_s.max(0.001);
    if let Some(disk) = busiest.filter(|disk| disk.busy >= BUSY_MIN) {
        let written = disk.written_bytes as f64 / measured_s / 1e6;
        let busy = disk.busy * 100.0;
        let mut finding = Finding::new(
            "disk",
            format!("{} was busy for {busy:.0} % of the time, writing {written:.0} MB/s", disk.name),
        );
        finding.reasons.extend(host.devices.iter().find(|device| device.name == disk.name).map(requests));
        finding.reasons.extend(place(repetition, &disk.name));
        return Some(finding);
    }
    let waited = host.cpu_io_wait;
    (waited >= IO_WAIT_MIN).then(|| {
        let dirty = host.dirty_bytes_max as f64 / 1e6;
        let reason = format!(
            "processors waited for disks for {:.0} % of the time, with {dirty:.0} MB dirty",
            waited * 100.0
        );
        let mut finding = Finding::new("disk", reason);
        if let Some(disk) = busiest {
            let busy = disk.busy * 100.0;
            let busiest = format!("{} was the busiest disk, for {busy:.0} % of the time", disk.name);
            finding.reasons.push(busiest);
            finding.reasons.extend(place(repetition, &disk.name));
        }
        finding
    })
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
    Some(match chain.contains(device) {
        true => data,
        false => format!("{data}, not on {device}"),
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
                let mean =
                    DeviceRates { writes_per_s: 120.0, write_size_kb: 512.0, ..DeviceRates::default() };
                let peak = DeviceRates { write_await_ms: 40.0, ..mean };
                one.host.devices = vec![DeviceUse { name: "vda".to_owned(), label: None, mean, peak }];
                one.host.storage = vec![chain.clone()];
            });
            assert_eq!(found.limit, "disk");
            found.reasons
        };
        let found = reasons(&on(&["vda", "vdb"]));
        assert!(found[1].contains("120 writes/s of 512 kB"), "{found:?}");
        assert!(found[1].contains("(at most 40.0 ms in a second)"), "{found:?}");
        assert_eq!(found[2], "the brokers' data in /data is on dm-0 → vda + vdb");
        let elsewhere = reasons(&on(&["vdc"]));
        assert_eq!(elsewhere[2], "the brokers' data in /data is on dm-0 → vdc, not on vda");
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
