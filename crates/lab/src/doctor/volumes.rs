//! The devices below the data: volumes over several disks, arrays and encryption.

use std::path::Path;

use super::Advice;
use crate::machine::line;
use crate::machine::storage::chain;
use crate::result::StorageChain;

const HOST: &str = "host";

/// Examines the devices from the mounted one down to the disks.
pub(super) fn examine(data_dir: &Path) -> Vec<Advice> {
    let Some(chain) = chain(data_dir) else { return Vec::new() };
    judge(&chain, &|device, file| line(&format!("/sys/class/block/{device}/{file}")))
}

/// Reads a file of a device.
type ReadFile<'a> = &'a dyn Fn(&str, &str) -> Option<String>;

fn judge(chain: &StorageChain, read: ReadFile<'_>) -> Vec<Advice> {
    if chain.layers.is_empty() {
        return Vec::new();
    }
    let why = "All data goes through these devices; the slowest one is the limit.";
    let mut advice = vec![Advice::fine(HOST, "devices of the data", chain.to_string(), why)];
    for (layer, below) in chain.layers.iter().zip(chain.layers.iter().skip(1)) {
        for device in layer {
            advice.extend(array(device, read));
            advice.extend(volume(device, layer.len(), below, read));
        }
    }
    advice
}

/// An array of the kernel, by its level and state.
fn array(device: &str, read: ReadFile<'_>) -> Vec<Advice> {
    let Some(level) = read(device, "md/level") else { return Vec::new() };
    let mut advice = Vec::new();
    let why = "An array with parity reads before it writes less than a stripe, and a segment grows by less.";
    let found = Advice::fine(HOST, "array", format!("{level} on {device}"), why);
    advice.push(match level.as_str() {
        "raid4" | "raid5" | "raid6" => {
            found.note("use raid10, or a directory per disk in log.dirs and replicas on other brokers")
        }
        _ => found,
    });
    let missing = read(device, "md/degraded").and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
    if missing > 0 {
        let why = "An array without all its disks is slower, and slower still while it is rebuilt.";
        let found = format!("{missing} of the disks of {device} are missing");
        advice.push(Advice::fine(HOST, "array state", found, why).warning("replace them before measuring"));
    }
    advice
}

/// A volume of the device mapper: striped or not, encrypted or not.
fn volume(device: &str, devices: usize, below: &[String], read: ReadFile<'_>) -> Option<Advice> {
    let kind = read(device, "dm/uuid")?;
    let name = read(device, "dm/name").unwrap_or_else(|| device.to_owned());
    if kind.starts_with("CRYPT-") {
        let why = "Each byte is encrypted by a processor on its way to the disk.";
        return Some(Advice::fine(HOST, "encryption", format!("{name} is encrypted"), why).note(
            "measure with it if production has it; processors with AES instructions take a few percent",
        ));
    }
    // With several devices in the layer, the parts of each are unknown. Of the device mapper's other devices,
    // multipath has several paths to one disk; volumes made of volumes are LVM's mirrors and thin pools.
    let is_of_lvm = |kind: &str| kind.starts_with("LVM-");
    let is_on_volumes =
        || below.iter().any(|part| read(part, "dm/uuid").is_some_and(|kind| is_of_lvm(&kind)));
    if below.len() < 2 || devices > 1 || !is_of_lvm(&kind) || is_on_volumes() {
        return None;
    }
    let size = |file: &str| read(device, file)?.parse::<u64>().ok();
    // A striped volume has an optimal size of a stripe over all its disks.
    let is_striped = match (size("queue/optimal_io_size"), size("queue/minimum_io_size")) {
        (Some(optimal), Some(minimum)) => minimum > 0 && optimal / minimum.max(1) >= below.len() as u64,
        _ => false,
    };
    let parts = below.join(", ");
    let why =
        "A striped volume writes to all its disks at once; a linear one fills one disk after the other.";
    Some(match is_striped {
        true => Advice::fine(HOST, "volume", format!("{name} is striped over {parts}"), why),
        false => Advice::fine(HOST, "volume", format!("{name} is probably linear over {parts}"), why).note(
            "stripe it (lvcreate --stripes), or use a directory per disk in log.dirs; `lvs --segments` shows which it is",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity::{self, Fine, Note, Warning};

    fn chain_of(layers: &[&[&str]]) -> StorageChain {
        let layers = layers.iter().map(|layer| layer.iter().map(|&name| name.to_owned()).collect()).collect();
        StorageChain { layers, filesystem: "ext4".to_owned(), ..StorageChain::default() }
    }

    /// The findings by subject and severity, with these files of devices.
    fn found(layers: &[&[&str]], files: &[(&str, &str, &str)]) -> Vec<(String, Severity)> {
        let read = |device: &str, file: &str| {
            let known = files.iter().find(|(of, name, _)| (*of, *name) == (device, file));
            known.map(|(_, _, text)| (*text).to_owned())
        };
        judge(&chain_of(layers), &read).into_iter().map(|one| (one.subject, one.severity)).collect()
    }

    fn pairs(of: &[(&str, Severity)]) -> Vec<(String, Severity)> {
        of.iter().map(|(subject, severity)| ((*subject).to_owned(), *severity)).collect()
    }

    #[test]
    fn a_linear_volume_gets_advice_and_a_striped_one_none() {
        let layers: &[&[&str]] = &[&["dm-0"], &["vda", "vdb"]];
        let volume = ("dm-0", "dm/uuid", "LVM-abc");
        let linear =
            [volume, ("dm-0", "queue/optimal_io_size", "0"), ("dm-0", "queue/minimum_io_size", "512")];
        let striped =
            [volume, ("dm-0", "queue/optimal_io_size", "131072"), ("dm-0", "queue/minimum_io_size", "65536")];
        let devices = ("devices of the data", Fine);
        assert_eq!(found(layers, &linear), pairs(&[devices, ("volume", Note)]));
        assert_eq!(found(layers, &striped), pairs(&[devices, ("volume", Fine)]));
        assert_eq!(found(&[&["dm-0"], &["vda"]], &linear), pairs(&[devices]), "one disk needs no stripes");
    }

    #[test]
    fn multipath_and_volumes_of_volumes_have_their_chain_alone() {
        let devices = pairs(&[("devices of the data", Fine)]);
        let paths = [("dm-0", "dm/uuid", "mpath-3600a"), ("dm-0", "queue/optimal_io_size", "0")];
        assert_eq!(found(&[&["dm-0"], &["sda", "sdb"]], &paths), devices);
        let layers: &[&[&str]] = &[&["dm-4"], &["dm-0", "dm-1"], &["sda"]];
        for parts in [["vg-lv_rimage_0", "vg-lv_rmeta_0"], ["vg-pool_tdata", "vg-pool_tmeta"]] {
            let files = [
                ("dm-4", "dm/uuid", "LVM-abc"),
                ("dm-0", "dm/uuid", "LVM-def"),
                ("dm-1", "dm/uuid", "LVM-ghi"),
                ("dm-0", "dm/name", parts[0]),
                ("dm-1", "dm/name", parts[1]),
            ];
            assert_eq!(found(layers, &files), devices);
        }
        let encrypted = [("dm-4", "dm/uuid", "LVM-abc"), ("dm-0", "dm/uuid", "CRYPT-LUKS2-a")];
        let of = found(layers, &encrypted);
        assert!(of.contains(&("volume".to_owned(), Note)), "physical volumes may be encrypted: {of:?}");
    }

    #[test]
    fn arrays_are_judged_by_level_and_state() {
        let layers: &[&[&str]] = &[&["md0"], &["sda", "sdb", "sdc"]];
        let devices = ("devices of the data", Fine);
        let parity = [("md0", "md/level", "raid5"), ("md0", "md/degraded", "1")];
        assert_eq!(found(layers, &parity), pairs(&[devices, ("array", Note), ("array state", Warning)]));
        let mirror = [("md0", "md/level", "raid10"), ("md0", "md/degraded", "0")];
        assert_eq!(found(layers, &mirror), pairs(&[devices, ("array", Fine)]));
    }

    #[test]
    fn encryption_is_mentioned_and_a_plain_disk_has_its_chain_alone() {
        let crypt = [("dm-1", "dm/uuid", "CRYPT-LUKS2-abc")];
        let devices = ("devices of the data", Fine);
        assert_eq!(
            found(&[&["dm-1"], &["nvme0n1p2"], &["nvme0n1"]], &crypt),
            pairs(&[devices, ("encryption", Note)])
        );
        assert_eq!(found(&[&["vda"]], &[]), pairs(&[devices]));
        assert_eq!(found(&[], &[]), []);
    }
}
