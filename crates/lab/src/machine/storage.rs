//! The chain of block devices below a directory: the mounted device, the devices that it is made of, and the
//! disks, from `/sys`. A loop device is above the devices of its file.

use std::path::Path;

use super::line;
use super::mount::Mount;
use crate::result::StorageChain;

/// The depth at which a chain is cut: partitions on volumes on arrays on multipath have six.
const LAYERS_MAX: usize = 12;

/// The chain below a directory; `None` if its mount is unknown.
pub(crate) fn chain(directory: &Path) -> Option<StorageChain> {
    Some(chain_of_mount(directory, Mount::of(directory)?))
}

/// The chain below a directory of a process that may have other mounts; `None` if the mount is unknown.
/// The path is without links.
pub(crate) fn chain_of_process(pid: u32, directory: &Path) -> Option<StorageChain> {
    Some(chain_of_mount(directory, Mount::of_process(pid, directory)?))
}

fn chain_of_mount(directory: &Path, mount: Mount) -> StorageChain {
    StorageChain {
        directory: directory.display().to_string(),
        layers: mounted(&mount, Path::new("/sys"))
            .map(|names| layers(names, Path::new("/sys")))
            .unwrap_or_default(),
        filesystem: mount.kind,
    }
}

/// The name given to a device by an administrator, or the level of an array.
pub(crate) fn label(device: &str) -> Option<String> {
    let dir = Path::new("/sys/class/block").join(device);
    ["dm/name", "md/level"].iter().find_map(|file| line(dir.join(file).to_str()?))
}

/// The kernel's names of the mounted devices; `None` if unknown.
fn mounted(mount: &Mount, sys: &Path) -> Option<Vec<String>> {
    let name = |path: &Path| Some(path.canonicalize().ok()?.file_name()?.to_str()?.to_owned());
    if let Some(device) = name(&sys.join("dev/block").join(&mount.device)) {
        return Some(vec![device]);
    }
    // A file system that may have several devices has no device number of theirs, but names one of them as
    // its source.
    let device = mount.source.starts_with("/dev/").then(|| name(Path::new(&mount.source))).flatten()?;
    match mount.kind.as_str() {
        "btrfs" => members(&device, &sys.join("fs/btrfs")),
        _ => Some(vec![device]),
    }
}

/// The devices of the btrfs with this one; `None` if unknown.
fn members(device: &str, of: &Path) -> Option<Vec<String>> {
    let all = std::fs::read_dir(of).ok()?.flatten().filter_map(|entry| {
        let devices = std::fs::read_dir(entry.path().join("devices")).ok()?;
        Some(devices.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    });
    let mut members: Vec<String> =
        all.into_iter().find(|members: &Vec<String>| members.iter().any(|member| member == device))?;
    members.sort();
    Some(members)
}

/// The layers from mounted devices down to the disks. A partition is above its disk.
fn layers(mounted: Vec<String>, sys: &Path) -> Vec<Vec<String>> {
    let mut layers = vec![mounted];
    while layers.len() < LAYERS_MAX {
        let last = layers.last().expect("the first layer is there");
        let mut below: Vec<String> = last.iter().flat_map(|name| below(name, sys)).collect();
        below.sort();
        below.dedup();
        if below.is_empty() {
            break;
        }
        layers.push(below);
    }
    layers
}

/// The devices directly below a device: its slaves, the disk of a partition, or the device of a loop
/// device's file.
fn below(device: &str, sys: &Path) -> Vec<String> {
    let Ok(dir) = sys.join("class/block").join(device).canonicalize() else { return Vec::new() };
    if dir.join("partition").exists() {
        let disk = dir.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        return disk.map(str::to_owned).into_iter().collect();
    }
    if let Some(file) = dir.join("loop/backing_file").to_str().and_then(line) {
        return below_file(Path::new(&file), sys);
    }
    let Ok(slaves) = std::fs::read_dir(dir.join("slaves")) else { return Vec::new() };
    slaves.filter_map(|slave| slave.ok()?.file_name().into_string().ok()).collect()
}

/// The devices that a file is on; none if they are unknown, as of a file of another container.
fn below_file(file: &Path, sys: &Path) -> Vec<String> {
    let mount = file.exists().then(|| Mount::of(file)).flatten();
    mount.and_then(|mount| mounted(&mount, sys)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/sys` with a volume on partitions of two disks.
    fn sys() -> tempfile::TempDir {
        let sys = tempfile::tempdir().expect("a directory");
        let make = |dir: &str| std::fs::create_dir_all(sys.path().join(dir)).expect("made");
        for dir in ["devices/vda/vda2", "devices/vdb/vdb1", "devices/dm-0/slaves", "dev/block", "class/block"]
        {
            make(dir);
        }
        for partition in ["vda/vda2", "vdb/vdb1"] {
            let file = sys.path().join("devices").join(partition).join("partition");
            std::fs::write(file, "1\n").expect("written");
        }
        let link = |from: &str, to: &str| {
            std::os::unix::fs::symlink(sys.path().join(to), sys.path().join(from)).expect("linked");
        };
        link("devices/dm-0/slaves/vda2", "devices/vda/vda2");
        link("devices/dm-0/slaves/vdb1", "devices/vdb/vdb1");
        link("dev/block/253:0", "devices/dm-0");
        for (name, device) in
            [("dm-0", "dm-0"), ("vda", "vda"), ("vda2", "vda/vda2"), ("vdb", "vdb"), ("vdb1", "vdb/vdb1")]
        {
            link(&format!("class/block/{name}"), &format!("devices/{device}"));
        }
        sys
    }

    #[test]
    fn a_volume_is_followed_to_its_disks() {
        let sys = sys();
        let mount = Mount { device: "253:0".to_owned(), ..Mount::default() };
        let device = mounted(&mount, sys.path()).expect("known by its number");
        let chain = StorageChain { layers: layers(device, sys.path()), ..StorageChain::default() };
        assert_eq!(chain.to_string(), "dm-0 → vda2 + vdb1 → vda + vdb");
        assert!(chain.contains("vdb") && !chain.contains("vdc"));
    }

    #[test]
    fn a_loop_device_is_on_the_device_of_its_file() {
        let sys = sys();
        let file = sys.path().join("image");
        std::fs::write(&file, "").expect("written");
        let loops = sys.path().join("class/block/loop0/loop");
        std::fs::create_dir_all(&loops).expect("made");
        let chain = |backing_file: &str| {
            std::fs::write(loops.join("backing_file"), format!("{backing_file}\n")).expect("written");
            let layers = layers(vec!["loop0".to_owned()], sys.path());
            StorageChain { layers, ..StorageChain::default() }
        };
        let missing = chain("/no/such/image (deleted)");
        assert_eq!((missing.to_string().as_str(), missing.is_known()), ("loop0", false));
        let device = Mount::of(&file).expect("it is on some mount").device;
        let to = sys.path().join("devices/vdb");
        std::os::unix::fs::symlink(to, sys.path().join("dev/block").join(device)).expect("linked");
        let found = chain(file.to_str().expect("UTF-8"));
        assert_eq!((found.to_string().as_str(), found.is_known()), ("loop0 → vdb", true));
    }

    #[test]
    fn a_file_system_without_a_device_has_no_chain() {
        let sys = sys();
        let mount = Mount { device: "0:23".to_owned(), source: "tmpfs".to_owned(), ..Mount::default() };
        assert_eq!(mounted(&mount, sys.path()), None);
        let chain = StorageChain { filesystem: "tmpfs".to_owned(), ..StorageChain::default() };
        assert_eq!(chain.to_string(), "tmpfs without a block device");
        assert!(chain.is_known());
    }

    #[test]
    fn file_systems_on_hidden_devices_have_unknown_ones() {
        let sys = sys();
        for kind in ["overlay", "zfs", "btrfs"] {
            // A source that exists may be one of several devices, which btrfs lists.
            let source = if kind == "btrfs" { "/dev/null" } else { "pool/data" };
            let mount = Mount {
                device: "0:23".to_owned(),
                kind: kind.to_owned(),
                source: source.to_owned(),
                ..Mount::default()
            };
            assert_eq!(mounted(&mount, sys.path()), None, "{kind}");
            let chain = StorageChain { filesystem: kind.to_owned(), ..StorageChain::default() };
            assert_eq!(chain.to_string(), format!("{kind} with unknown devices"));
            assert!(!chain.is_known());
        }
    }

    #[test]
    fn a_btrfs_has_all_its_devices() {
        let sys = sys();
        for (id, devices) in [("a", ["vdc", "vdd"]), ("b", ["vda2", "vdb1"])] {
            for device in devices {
                let dir = sys.path().join("fs/btrfs").join(id).join("devices").join(device);
                std::fs::create_dir_all(dir).expect("made");
            }
        }
        let of = sys.path().join("fs/btrfs");
        let found = members("vdb1", &of).expect("it is listed");
        assert_eq!(layers(found, sys.path()), [["vda2", "vdb1"], ["vda", "vdb"]]);
        assert_eq!(members("vdz", &of), None);
    }
}
