//! Where files enter: opened for reading, for appending, replaced by new ones. Other files of this crate open none.

#![expect(clippy::disallowed_types, reason = "the files that streams read and write are no data of a broker")]

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
}

impl Reader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Reader, IoFailed> {
        let file = File::open(path).map_err(|error| IoFailed::file("open", path, error))?;
        Ok(Reader { file, path: path.to_owned(), position: 0 })
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
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(IoFailed::file("read", &self.path, error)),
            }
        }
    }

    /// Goes back to the beginning, if the file has become shorter than what was read of it. Whether it was.
    pub fn rewind_if_cut(&mut self) -> Result<bool, IoFailed> {
        let failed = |error| IoFailed::file("read", &self.path, error);
        if self.file.metadata().map_err(failed)?.len() >= self.position {
            return Ok(false);
        }
        self.position = self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        Ok(true)
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

/// All of a file, up to a limit.
pub fn read_whole(path: &Path, bytes_max: usize) -> Result<Vec<u8>, IoFailed> {
    let failed = |error| IoFailed::file("read", path, error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > bytes_max {
        let error =
            io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes"));
        return Err(failed(error));
    }
    Ok(bytes)
}

/// A file that is written at its end, through a buffer.
pub struct Appender {
    file: BufWriter<File>,
    path: PathBuf,
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
        let file = options.open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        Ok(Appender { file: BufWriter::with_capacity(256 << 10, file), path: path.to_owned(), len })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes, those in the buffer among them.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Writes out what is in the buffer, and waits until it is on the medium.
    pub fn sync(&mut self) -> Result<(), IoFailed> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        synced.map_err(|error| IoFailed::file("write", &self.path, error))
    }
}

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.len += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
