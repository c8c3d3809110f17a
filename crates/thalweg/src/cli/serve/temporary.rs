//! `--temporary`: a data directory that exists as long as its node.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A directory below that for temporary files, removed with all that is in it.
pub(super) struct TemporaryData {
    dir: TempDir,
    /// A directory inside, so that other directories that belong to the data are removed with it, such as
    /// that of `--secure`.
    data: PathBuf,
}

impl TemporaryData {
    pub(super) fn create() -> Result<TemporaryData> {
        let dir = tempfile::Builder::new().prefix("thalweg-").tempdir();
        let dir = dir.with_context(|| {
            let parent = std::env::temp_dir();
            format!("--temporary cannot create a directory in {}: TMPDIR selects another", parent.display())
        })?;
        let data = dir.path().join("data");
        Ok(TemporaryData { dir, data })
    }

    /// The data directory, which does not exist yet.
    pub(super) fn path(&self) -> &Path {
        &self.data
    }

    /// The directory around it, which is removed.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Removes the directory of a stopped node.
    pub(super) fn remove(self) {
        let path = self.dir.path().to_owned();
        if let Err(error) = self.dir.close() {
            tracing::warn!(path = %path.display(), %error, "Failed to remove the temporary data");
        }
    }
}
