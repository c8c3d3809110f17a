//! Facts of an agent's machine: the lab's own, with the network interfaces and the disks.

use std::path::{Path, PathBuf};

use crate::machine::interfaces::{self, INTERFACES};
use crate::machine::storage::chain;
use crate::machine::{fingerprint, line};
use crate::proc::LOOPBACK;
use crate::result::{AgentInfo, Disk, Interface};
use crate::sample::whole_disks;

/// The sector size of `/sys/block`, independent of the disk's.
const SECTOR_BYTES: u64 = 512;

/// This machine, by this id; `address` is set by the lab. The machine's file system is that of the first data
/// directory, if there is one.
pub(super) fn facts(data_dirs: &[PathBuf], boot_id: Option<String>) -> AgentInfo {
    let here = || std::env::current_dir().unwrap_or_else(|_| "/".into());
    let here = data_dirs.first().cloned().unwrap_or_else(here);
    AgentInfo {
        address: String::new(),
        machine: fingerprint(&here),
        boot_id,
        interfaces: interfaces(Path::new(INTERFACES)),
        disks: whole_disks().iter().map(|name| disk(Path::new("/sys/block"), name)).collect(),
        path: None,
        brokers: Vec::new(),
        data: data_dirs.iter().filter_map(|dir| chain(dir)).collect(),
    }
}

/// The kernel's id of this start of the machine, which programs of one machine have in common.
pub(super) fn boot_id() -> Option<String> {
    line("/proc/sys/kernel/random/boot_id")
}

/// The interfaces below a directory, without the loopback one.
fn interfaces(of: &Path) -> Vec<Interface> {
    let mut found = interfaces::list(of);
    found.retain(|interface| interface.name != LOOPBACK);
    found
}

fn disk(of: &Path, name: &str) -> Disk {
    let read = |file: &str| line(of.join(name).join(file).to_str()?);
    let sectors: u64 = read("size").and_then(|size| size.parse().ok()).unwrap_or_default();
    Disk {
        name: name.to_owned(),
        model: read("device/model"),
        size_bytes: sectors.saturating_mul(SECTOR_BYTES),
        is_rotational: read("queue/rotational").is_some_and(|is| is == "1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_speed_is_none_and_that_of_a_virtual_link_is_unknown() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, speed) in [("lo", "10"), ("eth1", "-1"), ("eth0", "25000"), ("veth7", "10000")] {
            let own = dir.path().join(name);
            let made = if name.starts_with("eth") { own.join("device") } else { own.clone() };
            std::fs::create_dir_all(made).expect("made");
            for (file, text) in [("speed", speed), ("operstate", "up"), ("mtu", "9000")] {
                std::fs::write(own.join(file), format!("{text}\n")).expect("written");
            }
        }
        let found = interfaces(dir.path());
        let speeds: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.speed_mbit_per_s)).collect();
        assert_eq!(speeds, [("eth0", Some(25_000)), ("eth1", None), ("veth7", None)]);
        assert_eq!(found[0].mtu_bytes, Some(9000));
    }

    #[test]
    fn a_disk_has_its_size_in_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("sda/queue")).expect("made");
        std::fs::write(dir.path().join("sda/size"), "2048\n").expect("written");
        std::fs::write(dir.path().join("sda/queue/rotational"), "1\n").expect("written");
        let found = disk(dir.path(), "sda");
        assert_eq!((found.size_bytes, found.is_rotational, found.model), (1 << 20, true, None));
    }
}
