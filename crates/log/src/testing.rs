//! Shared by unit tests: a temporary directory.

use std::path::{Path, PathBuf};

use crate::disk::Disk;
use thalweg_ids::Uuid;

/// A new directory below the system's temporary one, removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        let path = std::env::temp_dir().join(format!("thalweg-log-{}", Uuid::random()));
        Disk::real().create_dir(&path).expect("the temporary directory is writable");
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = Disk::real().remove_dir(&self.0);
    }
}
