//! The content of a file that is read once, from its beginning. Files in the formats of gzip and zstd are
//! recognised by their first bytes, and decompressed as they are read.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::open_regular;
use crate::stage::IoFailed;

/// The first bytes of a file in the format of gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// The first bytes of a file in the format of zstd.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A file's content, decompressed.
pub struct FileContent {
    reader: Box<dyn Read + Send>,
    path: PathBuf,
}

impl FileContent {
    /// Opens a regular file. Without `decompress` its bytes are read as they are.
    pub fn open(path: &Path, decompress: bool) -> Result<FileContent, IoFailed> {
        let mut file = open_regular(path)?;
        let failed = |error| IoFailed::file("read", path, error);
        let mut begin = Vec::new();
        (&mut file).take(ZSTD.len() as u64).read_to_end(&mut begin).map_err(failed)?;
        let reader: Box<dyn Read + Send> = match &begin {
            begin if decompress && begin.starts_with(GZIP) => {
                Box::new(MultiGzDecoder::new(whole(begin, file)))
            }
            begin if decompress && begin.starts_with(ZSTD) => {
                Box::new(zstd::stream::read::Decoder::new(whole(begin, file)).map_err(failed)?)
            }
            begin => Box::new(whole(begin, file)),
        };
        Ok(FileContent { reader, path: path.to_owned() })
    }

    /// Reads the next bytes; 0 at the end.
    pub fn read_some(&mut self, into: &mut [u8]) -> Result<usize, IoFailed> {
        loop {
            match self.reader.read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| IoFailed::file("read", &self.path, error)),
            }
        }
    }

    /// Reads the rest, up to a limit.
    pub fn read_rest(self, bytes_max: usize) -> Result<Vec<u8>, IoFailed> {
        super::read_to_end(self.reader, &self.path, bytes_max)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Read for FileContent {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

/// A file from its beginning, whose first bytes were read.
fn whole(begin: &[u8], rest: File) -> impl Read + Send + use<> {
    Cursor::new(begin.to_vec()).chain(rest)
}
