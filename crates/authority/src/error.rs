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
    /// A file without a certificate.
    #[error("{path} has no readable certificate")]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A host that is neither a name nor an address.
    #[error("the hosts {hosts} are not all names or addresses: {source}")]
    Hosts {
        /// All of them.
        hosts: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// A file without a password.
    #[error("{path} has no password: remove it, and start again for a new one")]
    NoPassword {
        /// The file.
        path: PathBuf,
    },
    /// A directory without an authority, for a node of a cluster that has one.
    #[error(
        "{dir} has no {file}. A node that joins a cluster needs its certificate from the cluster's authority. There, run \
         `thalweg security certificate node {name} --host HOST --export {name}-security`, and copy this directory to {dir}"
    )]
    NotIssued {
        /// The directory.
        dir: PathBuf,
        /// The missing file.
        file: String,
        /// The node.
        name: String,
    },
    /// A certificate that its holder cannot have signed again.
    #[error(
        "{path} {why}, and there is no ca.key beside it to sign another. Where the authority is, run \
         `thalweg security certificate node {name}{hosts} --export {name}-security`, and copy its files here"
    )]
    NotRenewable {
        /// The certificate.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The node.
        name: String,
        /// The options with its hosts.
        hosts: String,
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
