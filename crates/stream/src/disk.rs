//! File access for this crate: reading, appending, replacing, compressing. No other module opens files.

#![expect(clippy::disallowed_types, reason = "files of streams are not broker data")]

mod archive;
mod content;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bytes::{Buf, BytesMut};

use crate::stage::IoFailed;

pub use archive::{Compression, compress};
pub use content::FileContent;

/// Identifies the file behind a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

/// A file that is read from its beginning and may grow meanwhile.
pub struct FileReader {
    file: File,
    path: PathBuf,
    position: u64,
    /// The last bytes read, to detect a file that was cut and has grown again.
    tail: Vec<u8>,
}

/// Size of that tail.
const TAIL_BYTES: usize = 64;

impl FileReader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<FileReader, IoFailed> {
        let file = open_regular(path)?;
        Ok(FileReader { file, path: path.to_owned(), position: 0, tail: Vec::new() })
    }

    /// Seeks to the current end.
    pub fn skip_to_end(&mut self) -> Result<(), IoFailed> {
        let end = self.file.seek(SeekFrom::End(0));
        self.position = end.map_err(|error| IoFailed::file("read", &self.path, error))?;
        Ok(())
    }

    /// Reads the next bytes. 0 means that no more are available yet.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, IoFailed> {
        loop {
            match self.file.read(into) {
                Ok(count) => {
                    self.position += count as u64;
                    self.remember(&into[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(IoFailed::file("read", &self.path, error)),
            }
        }
    }

    fn remember(&mut self, read: &[u8]) {
        self.tail.extend_from_slice(&read[read.len().saturating_sub(TAIL_BYTES)..]);
        let too_many = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..too_many);
    }

    /// Rewinds to the beginning if the file was cut: it is shorter than the read position, or its bytes
    /// before that position have changed. Returns true after a rewind.
    pub fn rewind_if_cut(&mut self) -> Result<bool, IoFailed> {
        let failed = |error| IoFailed::file("read", &self.path, error);
        let len = self.file.metadata().map_err(failed)?.len();
        let is_known = len == self.position || len > self.position && self.has_its_tail().map_err(failed)?;
        if is_known {
            return Ok(false);
        }
        self.position = self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.tail.clear();
        Ok(true)
    }

    fn has_its_tail(&self) -> io::Result<bool> {
        let mut found = [0; TAIL_BYTES];
        let found = &mut found[..self.tail.len()];
        match self.file.read_exact_at(found, self.position - self.tail.len() as u64) {
            Ok(()) => Ok(*found == *self.tail),
            // The file was cut concurrently.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The path as given to [`FileReader::open`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of the open file.
    pub fn identity(&self) -> Result<FileIdentity, IoFailed> {
        let metadata = self.file.metadata().map_err(|error| IoFailed::file("read", &self.path, error))?;
        Ok(FileIdentity { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The identity of the file behind a path, if the file exists.
pub fn identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity { device: metadata.dev(), inode: metadata.ino() })
}

/// The file behind a path, after resolving links and `..`. The last component may be missing, but not as the
/// target of a link: its directory is resolved then.
pub fn resolve(path: &Path) -> Result<PathBuf, IoFailed> {
    let failed = |error| IoFailed::file("open", path, error);
    match std::fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(error).map_err(failed)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = std::fs::canonicalize(parent.unwrap_or(Path::new("."))).map_err(failed)?;
            let missing = parent.join(name);
            if std::fs::symlink_metadata(&missing).is_ok_and(|metadata| metadata.is_symlink()) {
                let reason = "it is a link to a file that does not exist";
                return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, reason)));
            }
            Ok(missing)
        }
        resolved => resolved.map_err(failed),
    }
}

/// Opens a regular file for reading. Opening or reading anything else may block the stream's thread forever.
fn open_regular(path: &Path) -> Result<File, IoFailed> {
    let failed = |error| IoFailed::file("open", path, error);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    // A directory fails when it is read, with a clear error.
    if !metadata.is_file() && !metadata.is_dir() {
        let reason = "it is not a regular file; to read a pipe or a device, use stdin and run the stream in the foreground";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
    }
    File::open(path).map_err(failed)
}

/// Reads a path to its end, pipes included, up to a limit.
pub fn read_whole(path: &Path, bytes_max: usize) -> Result<Vec<u8>, IoFailed> {
    read_to_end(File::open(path).map_err(|error| IoFailed::file("read", path, error))?, path, bytes_max)
}

fn read_to_end(file: impl Read, path: &Path, bytes_max: usize) -> Result<Vec<u8>, IoFailed> {
    let failed = |error| IoFailed::file("read", path, error);
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > bytes_max {
        let reason = format!("it has more than {} MiB", bytes_max >> 20);
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
    }
    Ok(bytes)
}

/// Syncs the directory of a file to the medium: the names of created and renamed files are in it.
pub fn sync_directory(path: &Path) -> Result<(), IoFailed> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| IoFailed::file("sync", directory, error))
}

/// The fill level at which an [`Appender`] must be flushed.
const BUFFER_BYTES: usize = 256 << 10;

/// A file of records that is written at its end, through a buffer. Bytes that could not be written stay in
/// the buffer, so a flush can be retried. A record is written as a whole, or taken back: see
/// [`Appender::take_back`].
pub struct Appender {
    file: File,
    path: PathBuf,
    /// The unwritten bytes, from the beginning of a record.
    buffer: BytesMut,
    /// The ends of the records in the buffer, counted by all bytes ever appended.
    ends: VecDeque<u64>,
    /// The number of bytes ever appended, and of those that have left the buffer.
    appended: u64,
    left: u64,
    /// The number of bytes at the beginning of the buffer that are in the file: a torn record.
    torn: usize,
    /// The size of the file without the bytes of other writers.
    written: u64,
}

impl Appender {
    /// Opens or creates a file. If its last record is torn, because it does not end with the delimiter, the
    /// next one begins behind a delimiter.
    pub fn open(path: &Path, delimiter: &[u8]) -> Result<Appender, IoFailed> {
        let mut appender = Appender::open_by(path, OpenOptions::new().create(true).append(true))?;
        let failed = |error| IoFailed::file("read", path, error);
        // A device has no end to read.
        let is_regular = appender.file.metadata().map_err(failed)?.is_file();
        if is_regular && appender.written > 0 && !appender.ends_with(delimiter).map_err(failed)? {
            appender.append(&[delimiter]);
        }
        Ok(appender)
    }

    /// Creates a file, replacing an existing one.
    pub fn replace(path: &Path) -> Result<Appender, IoFailed> {
        Appender::open_by(path, OpenOptions::new().create(true).write(true).truncate(true))
    }

    /// Creates a file that must not exist.
    pub fn create(path: &Path) -> Result<Appender, IoFailed> {
        Appender::open_by(path, OpenOptions::new().create_new(true).write(true))
    }

    fn open_by(path: &Path, options: &OpenOptions) -> Result<Appender, IoFailed> {
        let failed = |error| IoFailed::file("open", path, error);
        // A pipe without a reader would block the stream's thread.
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            let reason =
                "it is a named pipe; to write to one, use stdout and run the stream in the foreground";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
        }
        let file = options.open(path).map_err(failed)?;
        let written = file.metadata().map_err(failed)?.len();
        Ok(Appender {
            file,
            path: path.to_owned(),
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            ends: VecDeque::new(),
            appended: 0,
            left: 0,
            torn: 0,
            written,
        })
    }

    fn ends_with(&self, delimiter: &[u8]) -> io::Result<bool> {
        let mut end = vec![0; delimiter.len()];
        let Some(at) = self.written.checked_sub(delimiter.len() as u64) else { return Ok(false) };
        match File::open(&self.path).and_then(|file| file.read_exact_at(&mut end, at)) {
            Ok(()) => Ok(end == delimiter),
            // The end of a file that may only be written is unknown, and a delimiter more does no harm.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Size including buffered bytes.
    pub fn len(&self) -> u64 {
        self.written + (self.buffer.len() - self.torn) as u64
    }

    /// Appends a record, in parts, to the buffer.
    pub fn append(&mut self, parts: &[&[u8]]) {
        // Without a byte there is nothing to write, and no flush would end the record.
        if parts.iter().all(|part| part.is_empty()) {
            return;
        }
        for part in parts {
            self.buffer.extend_from_slice(part);
            self.appended += part.len() as u64;
        }
        self.ends.push_back(self.appended);
    }

    /// True if the buffer must be flushed before the next append.
    pub fn is_full(&self) -> bool {
        self.buffer.len() >= BUFFER_BYTES
    }

    /// Writes the buffer to the file. After a failure, the rest stays in the buffer.
    pub fn flush(&mut self) -> Result<(), IoFailed> {
        while self.torn < self.buffer.len() {
            match self.file.write(&self.buffer[self.torn..]) {
                Ok(0) => {
                    let error = io::ErrorKind::WriteZero.into();
                    return Err(IoFailed::file("write", &self.path, error));
                }
                Ok(count) => self.has_written(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(IoFailed::file("write", &self.path, error)),
            }
        }
        Ok(())
    }

    /// Removes whole records from the buffer.
    fn has_written(&mut self, count: usize) {
        self.torn += count;
        self.written += count as u64;
        let reached = self.left + self.torn as u64;
        let mut whole = self.left;
        while let Some(end) = self.ends.pop_front_if(|end| *end <= reached) {
            whole = end;
        }
        let count = (whole - self.left) as usize;
        self.buffer.advance(count);
        self.left = whole;
        self.torn -= count;
    }

    /// Removes a torn record from the end of the file, for example when the medium is full and the program
    /// gives up. The record stays in the buffer. Returns false if it cannot be removed: another program has
    /// appended to the file.
    pub fn take_back(&mut self) -> Result<bool, IoFailed> {
        if self.torn == 0 {
            return Ok(true);
        }
        let failed = |error| IoFailed::file("cut", &self.path, error);
        if self.file.metadata().map_err(failed)?.len() != self.written {
            return Ok(false);
        }
        let whole = self.written - self.torn as u64;
        self.file.set_len(whole).map_err(failed)?;
        // A file that is not opened for appending has a position.
        self.file.seek(SeekFrom::Start(whole)).map_err(failed)?;
        (self.written, self.torn) = (whole, 0);
        Ok(true)
    }

    /// Syncs all flushed bytes to the medium.
    pub fn sync(&mut self) -> Result<(), IoFailed> {
        self.file.sync_data().map_err(|error| IoFailed::file("write", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).expect("it is there")
    }

    #[test]
    fn a_torn_record_is_taken_back_and_written_again_as_a_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("out");
        let mut appender = Appender::open(&path, b"\n").expect("it opens");
        for record in ["one", "two", "three"] {
            appender.append(&[record.as_bytes(), b"\n"]);
        }
        // As a full medium does.
        let written = appender.file.write(b"one\ntw").expect("it is written");
        appender.has_written(written);
        assert_eq!((appender.torn, &*appender.buffer, appender.len()), (2, &b"two\nthree\n"[..], 14));
        assert!(appender.take_back().expect("it can be cut"));
        assert_eq!(text(&path), "one\n");
        appender.flush().expect("there is room");
        assert_eq!((text(&path).as_str(), appender.len()), ("one\ntwo\nthree\n", 14));
    }

    #[test]
    fn empty_records_take_no_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut appender = Appender::open(&dir.path().join("out"), b"").expect("it opens");
        (0..1000).for_each(|_| appender.append(&[b"", b""]));
        assert_eq!((appender.ends.len(), appender.len()), (0, 0));
    }

    #[test]
    fn bytes_of_others_are_not_taken_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("out");
        let mut appender = Appender::open(&path, b"\n").expect("it opens");
        appender.append(&[b"two\n"]);
        let written = appender.file.write(b"tw").expect("it is written");
        appender.has_written(written);
        std::fs::write(&path, "twother\n").expect("it is written");
        assert!(!appender.take_back().expect("it can be looked at"));
        assert_eq!(text(&path), "twother\n");
    }

    #[test]
    fn nothing_is_glued_to_a_torn_record() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("out");
        for (before, delimiter, after) in [
            ("", "\n", "new\n"),
            ("whole\n", "\n", "whole\nnew\n"),
            ("whole\nto", "\n", "whole\nto\nnew\n"),
            ("a--b-", "--", "a--b---new--"),
            ("x", "", "xnew"),
        ] {
            std::fs::write(&path, before).expect("it is written");
            let mut appender = Appender::open(&path, delimiter.as_bytes()).expect("it opens");
            appender.append(&[b"new", delimiter.as_bytes()]);
            appender.flush().expect("it is written");
            assert_eq!(text(&path), after);
        }
    }
}
