//! The file system and disk of a directory.

use std::path::{Path, PathBuf};

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The mount point.
    pub point: PathBuf,
    /// The file system type, such as `ext4`.
    pub kind: String,
    /// The mounted source, such as `/dev/vda`.
    pub source: String,
    /// Options of the mount and of the file system.
    pub options: Vec<String>,
    /// The device's numbers, `254:0`.
    pub device: String,
}

impl Mount {
    /// The mount of `path` or its nearest existing parent.
    pub(crate) fn of(path: &Path) -> Option<Mount> {
        let absolute = std::path::absolute(path).ok()?;
        let real = absolute.ancestors().find_map(|path| path.canonicalize().ok())?;
        holding(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &real)
    }

    /// The mount of a process with a path of the process, which is without links.
    pub(crate) fn of_process(pid: u32, path: &Path) -> Option<Mount> {
        holding(&std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?, path)
    }

    /// The kernel's name of the whole disk, such as `vda`; `None` for file systems without a disk.
    pub(crate) fn disk(&self) -> Option<String> {
        let device = Path::new("/sys/dev/block").join(&self.device).canonicalize().ok()?;
        let whole = if device.join("partition").exists() { device.parent()? } else { &device };
        Some(whole.file_name()?.to_str()?.to_owned())
    }
}

/// The mount in a `mountinfo` with the longest prefix of `path`; a later mount covers an earlier one at the
/// same place.
fn holding(mountinfo: &str, path: &Path) -> Option<Mount> {
    let mounts = mountinfo.lines().filter_map(parse).filter(|mount| path.starts_with(&mount.point));
    mounts.max_by_key(|mount| mount.point.components().count())
}

/// Parses a line: `27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard`.
fn parse(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mount: Vec<&str> = mount.split(' ').collect();
    let file_system: Vec<&str> = file_system.split(' ').collect();
    let mut options: Vec<String> = Vec::new();
    for option in mount.get(5)?.split(',').chain(file_system.get(2)?.split(',')) {
        if !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    Some(Mount {
        point: PathBuf::from(unescape(mount.get(4)?)),
        kind: (*file_system.first()?).to_owned(),
        source: unescape(file_system.get(1)?),
        options,
        device: (*mount.get(2)?).to_owned(),
    })
}

/// Unescapes blanks and the like, which are three octal digits after a backslash.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                          25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24683668k\n\
                          40 27 254:16 / /mnt/fast\\040disk rw,noatime master:1 - xfs /dev/vdb1 rw,attr2\n\
                          41 40 0:50 / /mnt/fast\\040disk rw,relatime - overlay overlay rw\n";

    #[test]
    fn the_nearest_mount_holds_a_directory() {
        let kind = |path: &str| holding(MOUNTS, Path::new(path)).expect("the root holds all").kind;
        assert_eq!(kind("/var/lib"), "ext4");
        assert_eq!(kind("/dev/shm/x"), "tmpfs");
        assert_eq!(kind("/dev/shmx"), "ext4");
        assert_eq!(kind("/mnt/fast disk/a"), "overlay", "the later mount covers the earlier one");
    }

    #[test]
    fn a_mount_is_read_with_its_options() {
        let mount = parse(MOUNTS.lines().nth(2).expect("a third line")).expect("a mount");
        assert_eq!(mount.point, Path::new("/mnt/fast disk"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("xfs", "/dev/vdb1"));
        assert_eq!(mount.options, ["rw", "noatime", "attr2"]);
        assert_eq!(mount.device, "254:16");
    }

    #[test]
    fn every_directory_is_on_some_mount() {
        let mount = Mount::of(Path::new("not/there/yet")).expect("Linux tells");
        assert!(mount.point.is_absolute() && !mount.kind.is_empty(), "{mount:?}");
    }
}
