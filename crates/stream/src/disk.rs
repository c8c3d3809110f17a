//! Where files enter: opened for reading, for appending, replaced by new ones. Other files of this crate open none.

#![expect(clippy::disallowed_types, reason = "the files that streams read and write are no data of a broker")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bytes::{Buf, BytesMut};

use crate::stage::IoFailed;

/// Which file a path names at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
}

/// A file that is read from its beginning on, and may grow meanwhile.
pub struct Reader {
    file: File,
    path: PathBuf,
    position: u64,
    /// The last bytes that were read.
    tail: Vec<u8>,
}

/// So many of the last bytes are kept, to know the file again.
const TAIL_BYTES: usize = 64;

impl Reader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Reader, IoFailed> {
        let file = open_regular(path)?;
        Ok(Reader { file, path: path.to_owned(), position: 0, tail: Vec::new() })
    }

    /// Goes on at the end of what there is.
    pub fn skip_to_end(&mut self) -> Result<(), IoFailed> {
        let end = self.file.seek(SeekFrom::End(0));
        self.position = end.map_err(|error| IoFailed::file("read", &self.path, error))?;
        Ok(())
    }

    /// Reads what follows. 0 says that there is no more at the moment.
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

    /// Goes back to the beginning, if the file was cut: it has become shorter than what was read of it, or has grown again
    /// since and has other bytes where the last were read. Whether it was.
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
            // It was cut a moment ago.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Its path, when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which file this is.
    pub fn identity(&self) -> Result<Identity, IoFailed> {
        let metadata = self.file.metadata().map_err(|error| IoFailed::file("read", &self.path, error))?;
        Ok(Identity { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Which file a path names; nothing if there is none.
pub fn identity(path: &Path) -> Option<Identity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Identity { device: metadata.dev(), inode: metadata.ino() })
}

/// A regular file, opened for reading. Opening and reading anything else may take for ever, and holds up the stream's thread.
fn open_regular(path: &Path) -> Result<File, IoFailed> {
    let failed = |error| IoFailed::file("open", path, error);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    // What reading a directory is answered with says enough.
    if !metadata.is_file() && !metadata.is_dir() {
        let reason = "it is no regular file; pipes and devices are read by stdin, where the stream runs in the foreground";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
    }
    File::open(path).map_err(failed)
}

/// All of a regular file, up to a limit.
pub fn read_regular(path: &Path, bytes_max: usize) -> Result<Vec<u8>, IoFailed> {
    read_to_end(open_regular(path)?, path, bytes_max)
}

/// All of what a path names, a pipe too, up to a limit.
pub fn read_whole(path: &Path, bytes_max: usize) -> Result<Vec<u8>, IoFailed> {
    read_to_end(File::open(path).map_err(|error| IoFailed::file("read", path, error))?, path, bytes_max)
}

fn read_to_end(file: File, path: &Path, bytes_max: usize) -> Result<Vec<u8>, IoFailed> {
    let failed = |error| IoFailed::file("read", path, error);
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > bytes_max {
        let reason = format!("it has more than {} MiB", bytes_max >> 20);
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
    }
    Ok(bytes)
}

/// What a buffer of an [`Appender`] holds before it is to be written out.
const BUFFER_BYTES: usize = 256 << 10;

/// A file that is written at its end, through a buffer. What could not be written stays in the buffer: writing it out may be
/// tried again.
pub struct Appender {
    file: File,
    path: PathBuf,
    buffer: BytesMut,
    len: u64,
}

impl Appender {
    /// Opens a file, or makes one.
    pub fn open(path: &Path) -> Result<Appender, IoFailed> {
        Appender::open_by(path, OpenOptions::new().create(true).append(true))
    }

    /// Makes a file, in place of one that may be there.
    pub fn replace(path: &Path) -> Result<Appender, IoFailed> {
        Appender::open_by(path, OpenOptions::new().create(true).write(true).truncate(true))
    }

    /// Makes a file that must not be there yet.
    pub fn create(path: &Path) -> Result<Appender, IoFailed> {
        Appender::open_by(path, OpenOptions::new().create_new(true).write(true))
    }

    fn open_by(path: &Path, options: &OpenOptions) -> Result<Appender, IoFailed> {
        let failed = |error| IoFailed::file("open", path, error);
        // One that nobody reads would hold up the stream's thread.
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            let reason =
                "it is a named pipe; stdout writes into one, where the stream runs in the foreground";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
        }
        let file = options.open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        Ok(Appender { file, path: path.to_owned(), buffer: BytesMut::with_capacity(BUFFER_BYTES), len })
    }

    /// Its bytes, those in the buffer among them.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Puts bytes into the buffer.
    pub fn append(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
    }

    /// Whether the buffer is to be written out before more comes.
    pub fn is_full(&self) -> bool {
        self.buffer.len() >= BUFFER_BYTES
    }

    /// Writes out what is in the buffer. After a failure, the rest of it is still there.
    pub fn flush(&mut self) -> Result<(), IoFailed> {
        while !self.buffer.is_empty() {
            match self.file.write(&self.buffer) {
                Ok(0) => {
                    let error = io::ErrorKind::WriteZero.into();
                    return Err(IoFailed::file("write", &self.path, error));
                }
                Ok(count) => self.buffer.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(IoFailed::file("write", &self.path, error)),
            }
        }
        Ok(())
    }

    /// Waits until all that was written out is on the medium.
    pub fn sync(&mut self) -> Result<(), IoFailed> {
        self.file.sync_data().map_err(|error| IoFailed::file("write", &self.path, error))
    }
}
