//! `log-dirs-never-opened`: the directories of `log.dirs` that were unusable at the first start and ever
//! since, one path per line. Each usable directory has the file.
//!
//! An empty directory beside a used one may be an unmounted disk. A directory in this file never held a log:
//! once usable, it begins empty.
//!
//! Owns: the file. Refuses: any other reason to accept an empty directory.

use std::collections::BTreeSet;
use std::path::Path;

use crate::disk::{Disk, Durability};

const FILE: &str = "log-dirs-never-opened";

/// The directories listed in the file of a directory; none without the file.
pub(super) fn read(disk: &Disk, dir: &Path) -> BTreeSet<String> {
    let bytes = disk.read_if_exists(&dir.join(FILE)).ok().flatten().unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

/// Writes the file, or removes it if the list is empty. An outdated file only leads to a request for
/// `thalweg.log.dirs.add`, or lists a directory that is not empty.
pub(super) fn write(disk: &Disk, dir: &Path, never_opened: &BTreeSet<String>) {
    if read(disk, dir) == *never_opened {
        return;
    }
    let path = dir.join(FILE);
    let text: String = never_opened.iter().map(|named| format!("{named}\n")).collect();
    let written = match never_opened.is_empty() {
        true => disk.remove(&path),
        false => disk.replace(&path, text.as_bytes(), Durability::Synced),
    };
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "Failed to record which log directories were never opened");
    }
}

/// The spelling of a directory in the file.
pub(super) fn named(dir: &Path) -> String {
    dir.display().to_string()
}
