//! Compressed copies of finished files: `orders.1.csv` becomes `orders.1.csv.gz`.
//!
//! The copy is written under a name with `.part`, and gets its own name when it is complete; then the file is
//! removed. A crash leaves the file, and perhaps a part, which the next attempt replaces.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;

use crate::stage::IoFailed;

/// The format of a compressed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// The format of a name; `None` for no compression.
    pub fn of(name: &str) -> Option<Compression> {
        match name {
            "gzip" => Some(Compression::Gzip),
            "zstd" => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The name of the compressed copy of a file.
    pub fn name(self, path: &Path) -> PathBuf {
        let ending = match self {
            Compression::Gzip => "gz",
            Compression::Zstd => "zst",
        };
        with_ending(path, ending)
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// Replaces a file by its compressed copy. Blocks.
pub fn compress(path: &Path, format: Compression, sync: bool) -> Result<(), IoFailed> {
    let failed = |error| IoFailed::file("compress", path, error);
    let to = format.name(path);
    let part = with_ending(&to, "part");
    let mut from = File::open(path).map_err(failed)?;
    let copied = File::create(&part).and_then(|out| {
        let mut out = match format {
            Compression::Gzip => {
                let mut out = GzEncoder::new(out, flate2::Compression::default());
                io::copy(&mut from, &mut out)?;
                out.finish()?
            }
            Compression::Zstd => {
                let mut out = zstd::stream::write::Encoder::new(out, 0)?;
                io::copy(&mut from, &mut out)?;
                out.finish()?
            }
        };
        out.flush()?;
        // The age of a file is that of its last message.
        out.set_modified(from.metadata()?.modified()?)?;
        if sync { out.sync_all() } else { Ok(()) }
    });
    if let Err(error) = copied {
        let _ = std::fs::remove_file(&part);
        return Err(failed(error));
    }
    std::fs::rename(&part, &to).map_err(failed)?;
    if sync {
        super::sync_directory(&to)?;
    }
    std::fs::remove_file(path).map_err(failed)
}
