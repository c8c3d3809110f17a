//! A disk as the limit, with the device and its place below the brokers' data. A disk that the data is not on
//! limits no broker: it is a remark beside the limit.

use super::{BUSY_MIN, Finding, brokers};
use crate::quantity;
use crate::result::{BrokerMachineUse, DeviceUse, DiskUse, HostUse, Repetition};

/// The share of processor time waiting for disks.
const IO_WAIT_MIN: f64 = 0.20;
/// Requests in queue and device (aqu-sz) of a full disk. The kernel counts busy time in ticks of its timer,
/// of 1 to 10 ms, so that one short request in each tick makes an idle disk 100 % busy; it sums the times
/// of requests in nanoseconds. A time of requests would be no such test: 250 requests of 1.5 ms in a second
/// leave the disk idle most of the time.
const QUEUE_MIN: f64 = 0.5;

/// A machine whose disks may limit brokers.
struct Machine<'a> {
    host: &'a HostUse,
    /// Words for the machine; empty for the lab's.
    of: String,
    measured_s: f64,
    /// True if its storage is that of all data of the brokers there.
    has_all_storage: bool,
}

/// The machines whose disks may limit brokers: the watched ones with brokers, and the lab's, unless all
/// brokers are known to be on watched ones. The agent on the lab's machine knows the devices below the data,
/// the lab does not.
fn machines(repetition: &Repetition) -> Vec<Machine<'_>> {
    let measured_s = repetition.measured_s;
    let watched: Vec<&BrokerMachineUse> = brokers::with_brokers(repetition).collect();
    let mut machines: Vec<Machine<'_>> = watched
        .iter()
        .map(|machine| Machine {
            host: &machine.host,
            of: brokers::of(machine),
            measured_s,
            has_all_storage: has_all_files(repetition, machine),
        })
        .collect();
    let is_watched = watched.iter().any(|machine| machine.is_on_lab_machine && machine.lost.is_none());
    let has_all = brokers::are_found(repetition) && repetition.unwatched_brokers.is_empty();
    let has_lost_here = watched.iter().any(|machine| machine.is_on_lab_machine && machine.lost.is_some());
    if !is_watched && (!has_all || has_lost_here) {
        let host = &repetition.host;
        machines.push(Machine { host, of: String::new(), measured_s, has_all_storage: true });
    }
    machines
}

/// True if the log files of each replica on the brokers of a machine were found in the data directories of
/// its agent. A directory that the agent does not know may be on any disk.
fn has_all_files(repetition: &Repetition, machine: &BrokerMachineUse) -> bool {
    let is_here = |id: i32| {
        machine.brokers.iter().any(|broker| broker.name.strip_prefix("broker-") == Some(&id.to_string()))
    };
    let partitions = &repetition.evidence.partitions;
    let mut replicas = partitions
        .iter()
        .flat_map(|partition| &partition.replicas)
        .filter(|replica| is_here(replica.broker))
        .peekable();
    replicas.peek().is_some() && replicas.all(|replica| replica.file_bytes.is_some())
}

/// A full disk below the brokers' data.
pub(super) fn full(repetition: &Repetition) -> Option<Finding> {
    machines(repetition).iter().find_map(Machine::full)
}

/// Saturated disks that limit no broker, and disks that only seem saturated.
pub(super) fn remarks(repetition: &Repetition) -> Vec<String> {
    machines(repetition).iter().flat_map(Machine::remarks).collect()
}

impl Machine<'_> {
    fn full(&self) -> Option<Finding> {
        let host = self.host;
        let is_full =
            |disk: &&DiskUse| disk.busy >= BUSY_MIN && self.has_queue(disk) && !self.is_elsewhere(&disk.name);
        if let Some(disk) = host.disks.iter().filter(is_full).max_by(|a, b| a.busy.total_cmp(&b.busy)) {
            let mut finding = Finding::new("disk", self.busy(disk));
            finding.reasons.extend(host.devices.iter().find(|device| device.name == disk.name).map(requests));
            finding.reasons.extend(self.place(&disk.name));
            return Some(finding);
        }
        if let Some(finding) = self.full_volume() {
            return Some(finding);
        }
        (self.has_waits() && !self.waits_are_elsewhere()).then(|| {
            let mut finding = Finding::new("disk", self.waits());
            if let Some(disk) = self.busiest() {
                let busy = disk.busy * 100.0;
                let busiest = format!("{} was the busiest disk, for {busy:.0} % of the time", disk.name);
                finding.reasons.push(busiest);
                finding.reasons.extend(self.place(&disk.name));
            }
            finding
        })
    }

    /// A full device of the data that is no whole disk: a volume, an array or a loop device may make its
    /// requests wait while no disk below it is busy.
    fn full_volume(&self) -> Option<Finding> {
        let host = self.host;
        let holds_data = |name: &str| host.storage.iter().any(|chain| chain.contains(name));
        let is_full = |device: &&DeviceUse| {
            let mean = &device.mean;
            mean.busy >= BUSY_MIN && mean.queue_length >= QUEUE_MIN && holds_data(&device.name)
        };
        let full = host.devices.iter().filter(is_full);
        let device = full.max_by(|a, b| a.mean.busy.total_cmp(&b.mean.busy))?;
        let written = device.mean.written_kb_per_s * 1024.0 / 1e6;
        let busy = device.mean.busy * 100.0;
        let of = &self.of;
        let mut finding = Finding::new(
            "disk",
            format!("{}{of} was busy for {busy:.0} % of the time, writing {written:.0} MB/s", device.name),
        );
        finding.reasons.push(requests(device));
        finding.reasons.extend(self.place(&device.name));
        Some(finding)
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for disk in self.host.disks.iter().filter(|disk| disk.busy >= BUSY_MIN) {
            if self.is_elsewhere(&disk.name) {
                remarks.push(self.busy(disk));
                remarks.extend(self.place(&disk.name));
            } else if !self.has_queue(disk) {
                let queue = self.queue_length(disk).unwrap_or_default();
                remarks.push(format!(
                    "{}{} is no limit at {:.0} % busy: it had {} requests in the mean",
                    disk.name,
                    self.of,
                    disk.busy * 100.0,
                    quantity::number(queue)
                ));
            }
        }
        if self.has_waits() && self.waits_are_elsewhere() {
            remarks.push(self.waits());
            let disk = self.busiest().map_or("any disk", |disk| disk.name.as_str());
            remarks.extend(self.place(disk).filter(|place| !remarks.contains(place)));
        }
        remarks
    }

    fn busy(&self, disk: &DiskUse) -> String {
        let written = disk.written_bytes as f64 / self.measured_s.max(0.001) / 1e6;
        let (name, of, busy) = (&disk.name, &self.of, disk.busy * 100.0);
        format!("{name}{of} was busy for {busy:.0} % of the time, writing {written:.0} MB/s")
    }

    fn waits(&self) -> String {
        let dirty = self.host.dirty_bytes_max as f64 / 1e6;
        let (of, waited) = (&self.of, self.host.cpu_io_wait * 100.0);
        format!("processors{of} waited for disks for {waited:.0} % of the time, with {dirty:.0} MB dirty")
    }

    fn busiest(&self) -> Option<&DiskUse> {
        self.host.disks.iter().max_by(|a, b| a.busy.total_cmp(&b.busy))
    }

    fn has_waits(&self) -> bool {
        self.host.cpu_io_wait >= IO_WAIT_MIN
    }

    /// True if processors waited for a disk that the data is not on.
    fn waits_are_elsewhere(&self) -> bool {
        match self.busiest() {
            Some(disk) => self.is_elsewhere(&disk.name),
            None => {
                let storage = &self.host.storage;
                self.has_all_storage
                    && !storage.is_empty()
                    && storage.iter().all(|chain| chain.is_known() && chain.layers.is_empty())
            }
        }
    }

    /// Requests in queue and device; `None` if unknown, as in results of earlier versions.
    fn queue_length(&self, disk: &DiskUse) -> Option<f64> {
        let device = self.host.devices.iter().find(|device| device.name == disk.name)?;
        Some(device.mean.queue_length)
    }

    fn has_queue(&self, disk: &DiskUse) -> bool {
        self.queue_length(disk).is_none_or(|length| length >= QUEUE_MIN)
    }

    /// True if the data is certainly not on this disk.
    fn is_elsewhere(&self, disk: &str) -> bool {
        let storage = &self.host.storage;
        self.has_all_storage
            && !storage.is_empty()
            && storage.iter().all(|chain| chain.is_known() && !chain.contains(disk))
    }

    /// The place of a device below the brokers' data, if known.
    fn place(&self, device: &str) -> Option<String> {
        let storage = &self.host.storage;
        let chain = storage.iter().find(|chain| chain.contains(device)).or(storage.first())?;
        let data = format!("the brokers' data in {} is on {chain}", chain.directory);
        Some(match chain.is_known() && !chain.contains(device) {
            true if self.has_all_storage => format!("{data}, not on {device}"),
            true => format!("{data}; that of other replicas may be on {device}"),
            false => data,
        })
    }
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
        // The file of this loop device may be on any disk.
        assert_eq!(
            found(&StorageChain { layers: vec![vec!["loop3".to_owned()]], ..on(&[]) }, 0.0).limit,
            "disk"
        );
    }

    #[test]
    fn a_full_volume_of_the_data_is_the_limit_though_its_disk_is_not_busy() {
        let with = |queue_length: f64, volume: &str| {
            limit(|one| {
                one.host.disks = vec![DiskUse { name: "vda".to_owned(), busy: 0.2, ..DiskUse::default() }];
                let mean = DeviceRates {
                    busy: 0.97,
                    queue_length,
                    written_kb_per_s: 10_000.0,
                    ..DeviceRates::default()
                };
                one.host.devices = vec![DeviceUse { name: volume.to_owned(), mean, ..DeviceUse::default() }];
                one.host.storage = vec![on(&["vda"])];
            })
        };
        let full = with(0.9, "dm-0");
        assert_eq!(full.limit, "disk");
        assert_eq!(full.reasons[0], "dm-0 was busy for 97 % of the time, writing 10 MB/s");
        assert_eq!(full.reasons[2], "the brokers' data in /data is on dm-0 → vda");
        assert_eq!(with(0.2, "dm-0").limit, "unknown", "it has no queue");
        assert_eq!(with(0.9, "dm-1").limit, "unknown", "the data is elsewhere");
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
