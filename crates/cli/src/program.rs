//! This program as a file, for the processes that it starts of itself.

use std::path::{Path, PathBuf};

/// This program, which is also the lab, its workers and embedded brokers.
pub fn binary() -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?;
    // The kernel adds this to the name of a replaced binary; the new one may differ.
    match binary.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) => {
            anyhow::bail!("{} was replaced while it ran: start it again", Path::new(path).display())
        }
        None => Ok(binary),
    }
}
