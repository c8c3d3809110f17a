//! `log-dirs-never-opened`: the directories of `log.dirs` that could not be used at the first start, nor at one since, a path
//! a line. Each of the others has the file.
//!
//! An empty directory beside one that was used may be a disk that is not mounted. One that is named here never held a
//! log: once it can be used, it begins empty.
//!
//! Owns: the file. Refuses: any other reason to take an empty directory in.

use std::collections::BTreeSet;
use std::path::Path;

use crate::disk::{Disk, Durability};

const FILE: &str = "log-dirs-never-opened";

/// The directories that a directory names; none without the file.
pub(super) fn read(disk: &Disk, dir: &Path) -> BTreeSet<String> {
    let bytes = disk.read_if_exists(&dir.join(FILE)).ok().flatten().unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

/// Writes the file, or removes it where there are none. An older file only asks for `thalweg.log.dirs.add`, or names one
/// that is not empty.
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

/// A directory as the file names it.
pub(super) fn named(dir: &Path) -> String {
    dir.display().to_string()
}
