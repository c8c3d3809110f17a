//! The file outlet: appends lines to a file, which is renamed when full.
//!
//! A line is written completely or, after a failure, overwritten by the next one: the position only moves
//! after a whole batch. Like acknowledged records, files are not synced, but survive the end of the process.
//!
//! The files contain users and addresses, so only the process's user may read new files (mode 0600). Existing
//! files keep the rights of their group, which an administrator may have granted to a collector, and lose the
//! rights of other users.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_config::AuditSettings;
use thalweg_log::disk::{DirLock, Disk, LogFile};
use tokio::time::Instant;

use crate::inbox::{Batch, Inbox};

/// Minimum interval between logged failures.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Bytes searched for the end of the last line. Lines are shorter.
const TAIL_BYTES: u64 = 64 * 1024;
/// The first byte of every line.
const BEGIN: u8 = b'{';

/// An unusable audit file.
#[derive(Debug, thiserror::Error)]
#[error("{}={}: {reason}", AuditSettings::file.name(), path.display())]
pub struct FileError {
    path: PathBuf,
    reason: FileReason,
}

/// The reason for an unusable file.
#[derive(Debug, thiserror::Error)]
enum FileReason {
    #[error("its directory does not exist: create it, or name a file in another one")]
    NoDirectory,
    #[error("another process writes to it: each node needs its own file")]
    InUse,
    #[error("it begins like no audit trail: nothing is written to other files")]
    Foreign,
    #[error("it cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// The audit files, with rotation.
#[derive(Debug)]
pub struct TrailFile {
    disk: Disk,
    path: PathBuf,
    bytes_max: u64,
    files_max: usize,
    /// The current file. None after a rotation, until the next write.
    open: Option<OpenFile>,
    _lock: DirLock,
}

#[derive(Debug)]
struct OpenFile {
    file: LogFile,
    position: u64,
}

impl OpenFile {
    /// Truncates an incomplete last line, which a crash may have left.
    fn cut_torn_line(self) -> io::Result<OpenFile> {
        let start = self.position.saturating_sub(TAIL_BYTES);
        let mut tail =
            vec![0; usize::try_from(self.position - start).expect("at most the length of the tail")];
        let read = self.file.read_at(&mut tail, start)?;
        let last = tail[..read].iter().rposition(|byte| *byte == b'\n');
        let position = last.map_or(start, |last| start + last as u64 + 1);
        self.file.trim(position)?;
        Ok(OpenFile { position, ..self })
    }
}

impl TrailFile {
    /// Opens or creates the file. The directory must exist.
    pub fn open(disk: &Disk, path: &Path, settings: &AuditSettings) -> Result<TrailFile, FileError> {
        let error = |reason| FileError { path: path.to_owned(), reason };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if parent.is_some_and(|parent| !disk.exists(parent)) {
            return Err(error(FileReason::NoDirectory));
        }
        warn_of_open_directory(disk, parent.unwrap_or(Path::new(".")));
        let lock = disk.lock(&suffixed(path, "lock")).map_err(|io| error(io.into()))?;
        let lock = lock.ok_or_else(|| error(FileReason::InUse))?;
        let mut first = [BEGIN];
        let open = open(disk, path).map_err(|io| error(io.into()))?;
        open.file.read_at(&mut first, 0).map_err(|io| error(io.into()))?;
        if first != [BEGIN] {
            return Err(error(FileReason::Foreign));
        }
        let open = open.cut_torn_line().map_err(|io| error(io.into()))?;
        (0..settings.files_max).for_each(|number| close_to_others(disk, &numbered(path, number)));
        Ok(TrailFile {
            disk: disk.clone(),
            path: path.to_owned(),
            bytes_max: settings.file_bytes_max,
            files_max: settings.files_max,
            open: Some(open),
            _lock: lock,
        })
    }

    /// Appends the lines of a batch.
    fn append(&mut self, batch: &Batch) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in batch.lines() {
            let len = bytes.len() + line.len() + 1;
            if !bytes.is_empty() && self.position() + len as u64 > self.bytes_max {
                self.write(&bytes)?;
                bytes.clear();
            }
            bytes.extend(line);
            bytes.push(b'\n');
        }
        self.write(&bytes)
    }

    fn position(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.position)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // A line longer than the maximum file size gets its own file.
        if self.position() > 0 && self.position() + bytes.len() as u64 > self.bytes_max {
            self.rotate()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(open(&self.disk, &self.path)?),
        };
        if let Err(error) = open.file.write_all_at(bytes, open.position) {
            // Removes a partially written batch. If that fails, the next write overwrites the rest.
            let _ = open.file.trim(open.position);
            return Err(error);
        }
        open.position += bytes.len() as u64;
        Ok(())
    }

    /// Renames the files, and deletes the oldest.
    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        self.disk.remove(&numbered(&self.path, self.files_max - 1))?;
        for number in (0..self.files_max - 1).rev() {
            let from = numbered(&self.path, number);
            if self.disk.exists(&from) {
                self.disk.rename(&from, &numbered(&self.path, number + 1))?;
            }
        }
        Ok(())
    }

    /// Writes batches until the trail is closed. After a failure, the batch is dropped and writing continues.
    pub async fn run(self, mut inbox: Inbox) {
        let (disk, path) = (self.disk.clone(), self.path.clone());
        let file = Arc::new(Mutex::new(self));
        let mut failed_at: Option<Instant> = None;
        while let Some(batch) = inbox.next().await {
            let (batch, to) = (Arc::new(batch), Arc::clone(&file));
            let appended = Arc::clone(&batch);
            let written = disk.spawn(move || to.lock().append(&appended)).await;
            match written.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                Ok(()) => {
                    batch.written();
                    if failed_at.take().is_some() {
                        tracing::info!(path = %path.display(), "The audit file can be written again");
                    }
                }
                Err(error) => {
                    batch.unwritten();
                    if failed_at.is_none_or(|at| at.elapsed() >= LOGGED_EVERY) {
                        failed_at = Some(Instant::now());
                        tracing::error!(path = %path.display(), %error, "Failed to write the audit file; events are dropped");
                    }
                }
            }
        }
    }
}

fn open(disk: &Disk, path: &Path) -> io::Result<OpenFile> {
    let file = disk.private().open_or_create(path)?;
    let position = file.len()?;
    Ok(OpenFile { file, position })
}

/// Warns about a directory in which other users may delete the trail.
fn warn_of_open_directory(disk: &Disk, dir: &Path) {
    if disk.is_open_to_others(dir).is_ok_and(|is_open| is_open) {
        let path = dir.display();
        tracing::warn!(%path, "Every user may remove the audit trail from its directory: chmod o-w the directory");
    }
}

/// Removes the rights of other users on an existing file.
fn close_to_others(disk: &Disk, path: &Path) {
    if !disk.exists(path) {
        return;
    }
    if let Err(error) = disk.close_to_others(path) {
        let path = path.display();
        tracing::warn!(%path, %error, "Other users may read the audit trail, and its mode cannot be changed: chmod o= the file");
    }
}

/// The path of the current file (0) or of an older one.
fn numbered(path: &Path, number: usize) -> PathBuf {
    match number {
        0 => path.to_owned(),
        _ => suffixed(path, &number.to_string()),
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}
