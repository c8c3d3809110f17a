//! The outlet to files: lines are appended to one, which is renamed when it is full.
//!
//! A line is written whole or, after a failure, overwritten by the next: the position moves only when a batch is in the file.
//! Files are not synced; they survive the end of the process, as acknowledged records do.
//!
//! They name users and addresses, so only the process's user may read them (mode 0600). Files from before keep the rights of
//! their group, which an administrator may have given to a collector; other users lose theirs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_config::AuditSettings;
use thalweg_log::disk::{DirLock, Disk, LogFile};
use tokio::time::Instant;

use crate::inbox::{Batch, Inbox};

/// How often failures are logged.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// How much of a file is searched for the end of its last line. Lines are shorter.
const TAIL_BYTES: u64 = 64 * 1024;
/// The first byte of every line.
const BEGIN: u8 = b'{';

/// The audit file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}={}: {reason}", AuditSettings::file.name(), path.display())]
pub struct FileError {
    path: PathBuf,
    reason: FileReason,
}

/// Why it cannot be used.
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

/// Files of lines.
#[derive(Debug)]
pub struct TrailFile {
    disk: Disk,
    path: PathBuf,
    bytes_max: u64,
    files_max: usize,
    /// None after it was renamed and before there is a new one.
    open: Option<Open>,
    _lock: DirLock,
}

#[derive(Debug)]
struct Open {
    file: LogFile,
    position: u64,
}

impl Open {
    /// Cuts what a crash may have left of a last line.
    fn cut_torn_line(self) -> io::Result<Open> {
        let start = self.position.saturating_sub(TAIL_BYTES);
        let mut tail =
            vec![0; usize::try_from(self.position - start).expect("at most the length of the tail")];
        let read = self.file.read_at(&mut tail, start)?;
        let last = tail[..read].iter().rposition(|byte| *byte == b'\n');
        let position = last.map_or(start, |last| start + last as u64 + 1);
        self.file.trim(position)?;
        Ok(Open { position, ..self })
    }
}

impl TrailFile {
    /// Opens the file, or creates it. Its directory must exist.
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

    /// Appends lines.
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
        // A line that is longer than a file has one to itself.
        if self.position() > 0 && self.position() + bytes.len() as u64 > self.bytes_max {
            self.rotate()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(open(&self.disk, &self.path)?),
        };
        if let Err(error) = open.file.write_all_at(bytes, open.position) {
            // A part of it may be there. It goes with the next success otherwise.
            let _ = open.file.trim(open.position);
            return Err(error);
        }
        open.position += bytes.len() as u64;
        Ok(())
    }

    /// Renames the files, the oldest first, which makes place.
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

    /// Writes what the inbox has, until the trail is closed. A failure drops a batch, and ends nothing.
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

fn open(disk: &Disk, path: &Path) -> io::Result<Open> {
    let file = disk.private().open_or_create(path)?;
    let position = file.len()?;
    Ok(Open { file, position })
}

/// A user who may write to a directory may remove the trail from it.
fn warn_of_open_directory(disk: &Disk, dir: &Path) {
    if disk.is_open_to_others(dir).is_ok_and(|is_open| is_open) {
        let path = dir.display();
        tracing::warn!(%path, "Every user may remove the audit trail from its directory: chmod o-w the directory");
    }
}

/// Protects a file from before.
fn close_to_others(disk: &Disk, path: &Path) {
    if !disk.exists(path) {
        return;
    }
    if let Err(error) = disk.close_to_others(path) {
        let path = path.display();
        tracing::warn!(%path, %error, "Other users may read the audit trail, and its mode cannot be changed: chmod o= the file");
    }
}

/// The file, or an older one by its number.
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
