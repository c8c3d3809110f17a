//! Secrets, and files that only the owner can read.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::{AuthorityError, FileError};

/// Random bytes in a password.
const PASSWORD_LEN: usize = 24;

/// A random password without characters that need quoting.
pub fn password() -> String {
    let mut random = [0; PASSWORD_LEN];
    getrandom::fill(&mut random).expect("the system gives randomness");
    URL_SAFE_NO_PAD.encode(random)
}

/// File modes: readable by the owner, or by all users.
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Creates a secret file. Fails if the file exists.
pub fn write_new_secret(file: &Path, text: &str) -> Result<(), AuthorityError> {
    write_new(file, text, SECRET)
}

#[expect(clippy::disallowed_types, reason = "a secret of the command line is no data of the log")]
fn write_new(file: &Path, text: &str, mode: u32) -> Result<(), AuthorityError> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let written = options.open(file).and_then(|mut open| {
        open.write_all(text.as_bytes())?;
        open.sync_all()
    });
    Ok(written.map_err(FileError::at("write", file))?)
}

/// Creates a secret file atomically: readers find no file or a complete one. If several processes compete,
/// one creates the file, and the others use it. Returns true if this process created it.
pub(crate) fn write_first_secret(file: &Path, text: &str) -> Result<bool, AuthorityError> {
    write_first(file, text, SECRET)
}

/// Creates a public file atomically, as [`write_first_secret`] does.
pub(crate) fn write_first_public(file: &Path, text: &str) -> Result<bool, AuthorityError> {
    write_first(file, text, PUBLIC)
}

fn write_first(file: &Path, text: &str, mode: u32) -> Result<bool, AuthorityError> {
    let new = beside(file);
    write_new(&new, text, mode)?;
    let linked = std::fs::hard_link(&new, file);
    // At most a second link to the file.
    let _ = std::fs::remove_file(&new);
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        linked => Ok(linked.map(|()| true).map_err(FileError::at("write", file))?),
    }
}

/// Replaces a secret atomically: readers find the old or the new file, complete.
pub fn replace_secret(file: &Path, text: &str) -> Result<(), AuthorityError> {
    let new = beside(file);
    write_new_secret(&new, text)?;
    Ok(std::fs::rename(&new, file).map_err(FileError::at("write", file))?)
}

/// A unique name in the same directory, free of leftovers of an interrupted process.
fn beside(file: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let name = PathBuf::from(name);
    let _ = std::fs::remove_file(&name);
    name
}

/// Replaces a secret if the text differs, so that a complete directory may be on a read-only file system.
pub(crate) fn refresh_secret(file: &Path, text: &str) -> Result<(), AuthorityError> {
    match std::fs::read_to_string(file) {
        Ok(known) if known == text => Ok(()),
        _ => replace_secret(file, text),
    }
}

/// Removes the rights of group and others on a secret. Returns true if there were any.
pub(crate) fn protect(file: &Path) -> Result<bool, AuthorityError> {
    let metadata = std::fs::metadata(file).map_err(FileError::at("read", file))?;
    let is_open = metadata.permissions().mode() & 0o077 != 0;
    if is_open {
        let owners = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(file, owners).map_err(FileError::at("protect", file))?;
    }
    Ok(is_open)
}
