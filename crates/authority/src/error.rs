//! Errors of the authority, each with the file or the host that is wrong.

use std::io;
use std::path::{Path, PathBuf};

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file or directory.
    #[error(transparent)]
    File(#[from] FileFailed),
    /// A file that is not what its name says.
    #[error("{path} is not in PEM, or damaged: {source}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rcgen::Error,
    },
    /// A host that is neither a name nor an address.
    #[error("the hosts {hosts} are not all names or addresses: {source}")]
    Hosts {
        /// All of them.
        hosts: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// A key or a signature.
    #[error("Cannot make a key or a certificate: {0}")]
    Signing(#[from] rcgen::Error),
}

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("Cannot {what} {path}: {source}")]
pub struct FileFailed {
    /// `read`, `write` or `create`.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl FileFailed {
    /// For `map_err`.
    pub(crate) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileFailed {
        let path = path.to_owned();
        move |source| FileFailed { what, path, source }
    }
}
