//! Secrets, and the files that only their owner may read.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::{AuthorityError, FileFailed};

/// Random bytes of a password.
const PASSWORD_LEN: usize = 24;

/// A random password without characters that need quotes.
pub fn password() -> String {
    let mut random = [0; PASSWORD_LEN];
    getrandom::fill(&mut random).expect("the system gives randomness");
    URL_SAFE_NO_PAD.encode(random)
}

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
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = Path::new(&new);
    // What an interrupted attempt left.
    let _ = std::fs::remove_file(new);
    write_new_secret(new, text)?;
    Ok(std::fs::rename(new, file).map_err(FileFailed::at("write", file))?)
}

/// The same, where the text differs. A complete directory can be on a read-only file system.
pub(crate) fn refresh_secret(file: &Path, text: &str) -> Result<(), AuthorityError> {
    match std::fs::read_to_string(file) {
        Ok(known) if known == text => Ok(()),
        _ => replace_secret(file, text),
    }
}

/// Takes a secret's file from group and others. Returns whether they could read it.
pub(crate) fn protect(file: &Path) -> Result<bool, AuthorityError> {
    let metadata = std::fs::metadata(file).map_err(FileFailed::at("read", file))?;
    let is_open = metadata.permissions().mode() & 0o077 != 0;
    if is_open {
        let owners = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(file, owners).map_err(FileFailed::at("protect", file))?;
    }
    Ok(is_open)
}
