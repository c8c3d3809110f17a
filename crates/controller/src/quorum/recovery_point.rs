//! `recovery-point`: the offset below which the metadata log is on the medium, and its records are committed.
//!
//! ```text
//! 00000000000000000123<newline>
//! ```
//! The file is overwritten after each sync and never synced itself. It is exact after a crash of the process,
//! and may be older or unusable after a power failure. Kafka has no such file and ignores it.
//!
//! A malformed file is ignored, and recovery relies on the batches alone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_log::disk::Disk;
use thalweg_record::Offset;

pub(crate) const FILE: &str = "recovery-point";

/// The file of one log.
#[derive(Clone, Debug)]
pub(crate) struct RecoveryPoint {
    disk: Disk,
    path: PathBuf,
    /// True if the last write failed, so that a series of failures is logged once.
    has_failed: Arc<AtomicBool>,
}

impl RecoveryPoint {
    pub fn new(disk: Disk, dir: &Path) -> RecoveryPoint {
        RecoveryPoint { disk, path: dir.join(FILE), has_failed: Arc::default() }
    }

    /// The recorded offset; zero without a usable file.
    pub fn read(&self) -> io::Result<Offset> {
        let bytes = self.disk.read_if_exists(&self.path)?.unwrap_or_default();
        Ok(parse(&bytes).unwrap_or(Offset::ZERO))
    }

    /// Records that all records below an offset are synced. An older value does no harm.
    pub fn write(&self, offset: Offset) {
        let written = self.disk.overwrite(&self.path, format!("{:020}\n", offset.0).as_bytes());
        let had_failed = self.has_failed.swap(written.is_err(), Ordering::Relaxed);
        if let Err(error) = written
            && !had_failed
        {
            tracing::warn!(
                path = %self.path.display(), %error,
                "Failed to record the recovery point of the metadata log, trying again with each sync: until then a start \
                 trusts less of the log"
            );
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Offset> {
    let digits = bytes.strip_suffix(b"\n").filter(|digits| digits.len() == 20)?;
    std::str::from_utf8(digits).ok()?.parse().ok().map(Offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_form_is_of_no_use() {
        assert_eq!(parse(b"00000000000000000123\n"), Some(Offset(123)));
        for bytes in [&b""[..], b"00000000000000000123", b"123\n", b"000000000000000001\0\0\n"] {
            assert_eq!(parse(bytes), None);
        }
    }
}
