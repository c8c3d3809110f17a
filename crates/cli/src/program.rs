//! The path of this program, for child processes that run the same program.

use std::path::{Path, PathBuf};

/// The running executable, which also serves as lab, worker and embedded broker.
pub fn binary() -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?;
    // The kernel appends this suffix to the path of a replaced binary; the new binary may differ.
    match binary.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) => {
            anyhow::bail!("{} was replaced while it ran: start it again", Path::new(path).display())
        }
        None => Ok(binary),
    }
}
