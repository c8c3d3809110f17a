//! Files that only their owner may read.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::{AuthorityError, FileFailed};

/// Writes a file that is not there yet.
#[expect(clippy::disallowed_types, reason = "a secret of the command line is no data of the log")]
pub fn write_new_secret(file: &Path, text: &str) -> Result<(), AuthorityError> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(file).and_then(|mut open| {
        open.write_all(text.as_bytes())?;
        open.sync_all()
    });
    Ok(written.map_err(FileFailed::at("write", file))?)
}

/// The same, in place of what is there: a reader finds the one or the other, whole.
pub fn replace_secret(file: &Path, text: &str) -> Result<(), AuthorityError> {
    let new = file.with_extension("new");
    // What an interrupted attempt left.
    let _ = std::fs::remove_file(&new);
    write_new_secret(&new, text)?;
    Ok(std::fs::rename(&new, file).map_err(FileFailed::at("write", file))?)
}
