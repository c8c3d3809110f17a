//! Keeping what a truncation gives up, where it cuts records that were known to be replicated.
//!
//! A follower cuts below its high watermark when its leader lacks records that were acknowledged: after an unclean election,
//! or because replicas were lost. What it cuts may be their last copy. So the batches stay in the partition's directory, in
//! files that no start loads:
//!
//! ```text
//! <offset, 20 digits>.log.<milliseconds since 1970>-<number>.truncated
//! ```
//!
//! The offset is that of the first record that is given up, or the base offset of a whole segment; the content is that of a
//! `.log` file. They go with the partition, or by hand.
//!
//! Owns: that these files are there before the log is cut. Refuses: to cut when they cannot be written.

use std::path::{Path, PathBuf};

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::LogError;
use crate::disk::LogFile;
use crate::segment::{Home, LOG_SUFFIX};

/// What is put behind the name of a file that holds truncated batches.
const TRUNCATED_SUFFIX: &str = ".truncated";
/// How much is copied at once.
const COPY_BYTES: usize = 1 << 20;

impl PartitionLog {
    /// Copies the batches from `offset` to the end of the segment that holds it. Nothing is cut yet.
    pub(super) fn copy_aside(&mut self, offset: Offset) -> Result<(), LogError> {
        let Some(index) = self.floor_index(offset) else { return Ok(()) };
        let path = aside_path(&self.home, offset, self.clock.now_ms());
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let Some(cut) = segment.locate(&self.home, offset).map_err(LogError::in_segment(base))? else {
            return Ok(());
        };
        let range = cut.position..segment.size_bytes();
        let source = segment.file(&self.home)?;
        let disk = &self.home.disk;
        let copied = disk.open_or_create(&path).and_then(|target| copy(&source, range, &target));
        if let Err(error) = copied.and_then(|()| disk.sync_dir(&self.home.dir)) {
            // Half a copy is none, and takes room.
            disk.remove(&path)?;
            return Err(error.into());
        }
        self.report_aside(&path);
        Ok(())
    }

    /// Gives the batches of whole segments, from `index` on, names under which they stay; the last first, so that what is
    /// left after a crash has no hole. The other files of the segments are for the caller to remove.
    pub(super) fn rename_aside(&mut self, index: usize) -> Result<(), LogError> {
        let now_ms = self.clock.now_ms();
        for index in (index..self.segments.len()).rev() {
            let segment = &mut self.segments[index];
            if segment.size_bytes() == 0 {
                continue;
            }
            let path = aside_path(&self.home, segment.base_offset, now_ms);
            segment.leave_file(&self.home, &path)?;
            self.report_aside(&path);
        }
        Ok(())
    }

    fn report_aside(&self, path: &Path) {
        tracing::warn!(partition = %self.name, path = %path.display(), "Truncated batches are kept aside");
    }
}

fn copy(source: &LogFile, range: std::ops::Range<u64>, target: &LogFile) -> std::io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut position = range.start;
    while position < range.end {
        let wanted = usize::try_from(range.end - position).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let count = source.read_at(&mut buffer[..wanted], position)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        target.write_all_at(&buffer[..count], position - range.start)?;
        position += count as u64;
    }
    target.sync_data()
}

/// A name that is not taken.
fn aside_path(home: &Home, offset: Offset, now_ms: i64) -> PathBuf {
    let path = |number: u32| home.file(offset, &format!("{LOG_SUFFIX}.{now_ms}-{number}{TRUNCATED_SUFFIX}"));
    let taken = (0..u32::MAX).find(|number| !home.disk.exists(&path(*number)));
    path(taken.unwrap_or(u32::MAX))
}
