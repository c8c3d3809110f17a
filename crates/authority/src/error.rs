//! Errors of the authority, each with the faulty file or host.

use std::io;
use std::path::{Path, PathBuf};

/// The reason for a failed operation of the authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file that cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file that is not in the expected format.
    #[error("{path} is not in PEM, or damaged: {source}")]
    Damaged { path: PathBuf, source: rcgen::Error },
    /// A file without a certificate.
    #[error("{path} has no readable certificate")]
    NoCertificate { path: PathBuf },
    /// A host that is neither a name nor an address.
    #[error("the hosts {hosts} are not all names or addresses: {source}")]
    Hosts {
        /// All requested hosts.
        hosts: String,
        source: rcgen::Error,
    },
    /// A file without a password.
    #[error("{path} has no password: remove it, and start again for a new one")]
    NoPassword { path: PathBuf },
    /// A missing file in the directory of a joining node.
    #[error(
        "{dir} has no {file}. A node that joins a cluster needs its certificate from the cluster's authority. There, run \
         `thalweg security certificate node {name} --host HOST --export {name}-security`, and copy this directory to {dir}"
    )]
    NotIssued {
        /// The directory of the joining node.
        dir: PathBuf,
        /// The missing file.
        file: String,
        /// The name of the node.
        name: String,
    },
    /// An unsuitable certificate that cannot be signed again here.
    #[error(
        "{path} {why}, and there is no ca.key beside it to sign another. Where the authority is, run \
         `thalweg security certificate node {name}{hosts} --export {name}-security`, and copy its files here"
    )]
    NotRenewable {
        path: PathBuf,
        /// The fault of the certificate.
        why: String,
        /// The name of the node.
        name: String,
        /// The `--host` options for a new certificate.
        hosts: String,
    },
    /// A failure to create a key or a certificate.
    #[error("Cannot make a key or a certificate: {0}")]
    Signing(#[from] rcgen::Error),
}

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("Cannot {what} {path}: {source}")]
pub struct FileError {
    /// `read`, `write` or `create`.
    pub what: &'static str,
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

impl FileError {
    /// Creates an error, for `map_err`.
    pub(crate) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError { what, path, source }
    }
}
