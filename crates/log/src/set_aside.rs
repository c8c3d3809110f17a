//! Keeps removed parts of a log: segments that no longer belong to it, and truncated ends, because of damage
//! or because the leader lacks acknowledged records.
//!
//! ```text
//! <log dir>/<topic>-<partition>.<32 hex digits>-stray/
//!   <base offset>.log .index .timeindex .txnindex .snapshot   moved segments, under their own names
//!   <base offset>.log                                         the end of a segment, named by its first batch
//! ```
//! The directory is beside that of the partition and is not a partition: a start logs a warning and opens
//! none of its files. Each `.log` file in the directory is a segment that Kafka's tools can read.
//!
//! Owns: the order in which files move, so that after a power failure each file is in one of the two places.
//! Refuses: choosing the parts to remove, and deleting them, which is left to an operator.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_record::Offset;

use crate::segment::{Home, LOG_SUFFIX, Segment};
use crate::topic_partition::TopicPartition;

/// Bytes per copy step.
const COPY_BYTES: usize = 1024 * 1024;

/// A directory for removed parts of one log.
#[derive(Debug)]
pub(crate) struct SetAside {
    home: Home,
    dir: PathBuf,
}

impl SetAside {
    /// Creates the directory, durably: a file moved into it must not be lost with the directory's name.
    pub(crate) fn create(home: &Home, name: &TopicPartition) -> io::Result<SetAside> {
        let log_dir = home.dir.parent().unwrap_or(&home.dir);
        let dir = log_dir.join(name.stray_dir_name());
        home.disk.create_dir(&dir)?;
        let aside = SetAside { home: home.clone(), dir };
        match home.disk.sync_dir(log_dir) {
            Ok(()) => Ok(aside),
            Err(error) => {
                aside.discard();
                Err(error)
            }
        }
    }

    /// Keeps the end of a segment that will be truncated at `position`, where the batch at `base` starts. If
    /// there is no room for a copy, nothing is left behind.
    pub(crate) fn keep_end(
        home: &Home,
        name: &TopicPartition,
        segment: &mut Segment,
        position: u64,
        base: Offset,
    ) -> io::Result<SetAside> {
        let aside = SetAside::create(home, name)?;
        let kept = aside.copy_end(segment, position, base);
        match kept {
            Ok(()) => Ok(aside),
            Err(error) => {
                aside.discard();
                Err(error)
            }
        }
    }

    /// Removes the directory, if nothing was moved into it.
    pub(crate) fn discard(&self) {
        if let Err(error) = self.home.disk.remove_dir(&self.dir) {
            tracing::warn!(path = %self.dir.display(), %error, "Failed to remove the directory for truncated batches");
        }
    }

    /// Removes the directory if nothing was moved into it. Returns true if removed.
    pub(crate) fn discard_if_empty(&self) -> bool {
        let is_empty = self.home.disk.list(&self.dir).is_ok_and(|names| names.is_empty());
        if is_empty {
            self.discard();
        }
        is_empty
    }

    /// The path of the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Moves the segments from `index` on, last first and durably: if a power failure restored them, they
    /// would follow newer batches. A segment that cannot be moved stays, with the earlier ones.
    pub(crate) fn take_from(&self, segments: &mut Vec<Segment>, index: usize) -> io::Result<()> {
        while segments.len() > index {
            let last = segments.last_mut().expect("there are more than `index`");
            last.move_to(&self.home, &self.dir)?;
            segments.pop();
        }
        self.sync()
    }

    /// Moves one segment, durably.
    pub(crate) fn take_one(&self, segments: &mut Vec<Segment>, index: usize) -> io::Result<()> {
        segments[index].move_to(&self.home, &self.dir)?;
        segments.remove(index);
        self.sync()
    }

    /// Moves the files of the only remaining segment, which stays for the caller to replace.
    pub(crate) fn take_files(&self, segment: &mut Segment) -> io::Result<()> {
        segment.move_to(&self.home, &self.dir)?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        self.home.disk.sync_dir(&self.dir)?;
        self.home.disk.sync_dir(&self.home.dir)
    }

    /// Copies the end of a segment from `position` on, where the batch at `base` starts. The copy is synced
    /// when this function returns; after an error there is none.
    pub(crate) fn copy_end(&self, segment: &mut Segment, position: u64, base: Offset) -> io::Result<()> {
        if position >= segment.size_bytes() {
            return Ok(());
        }
        let path = self.dir.join(format!("{:020}{LOG_SUFFIX}", base.0));
        let copied = self.copy(segment, position, &path);
        copied.and_then(|()| self.home.disk.sync_dir(&self.dir)).inspect_err(|_| {
            if let Err(error) = self.home.disk.remove(&path) {
                tracing::warn!(path = %path.display(), %error, "Failed to remove an incomplete copy");
            }
        })
    }

    fn copy(&self, segment: &mut Segment, position: u64, path: &Path) -> io::Result<()> {
        let from = segment.file(&self.home)?;
        let to = self.home.disk.open_or_create(path)?;
        let mut chunk = vec![0; COPY_BYTES];
        let mut at = position;
        while at < segment.size_bytes() {
            let wanted =
                usize::try_from(segment.size_bytes() - at).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
            let read = from.read_at(&mut chunk[..wanted], at)?;
            // Another program has cut the file: no more bytes are left to keep.
            if read == 0 {
                break;
            }
            to.write_all_at(&chunk[..read], at - position)?;
            at += read as u64;
        }
        to.sync_data()
    }
}
