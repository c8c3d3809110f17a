//! Result files: written atomically; read errors name the location.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::layout::laid_out;
use super::upgrade::upgrade;
use super::{RunResult, SCHEMA, Spread};

/// Size limit: the result of a long run has some tens of megabytes.
const BYTES_MAX: u64 = 1 << 30;

/// A result could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is too large.
    #[error("{}: has {bytes} bytes; the limit is {BYTES_MAX}", path.display())]
    TooLarge {
        path: PathBuf,
        /// The file's size in bytes.
        bytes: u64,
    },
    /// The file is not JSON.
    #[error("{}: is not JSON: {source}", path.display())]
    NotJson {
        path: PathBuf,
        /// Location and cause.
        source: serde_json::Error,
    },
    /// The document is not a result of the lab.
    #[error("{}: schema: is {found}, expected \"{SCHEMA}\": this is not a result of the lab", path.display())]
    NotAResult {
        path: PathBuf,
        /// The value found.
        found: String,
    },
    /// The document is of a newer version.
    #[error(
        "{}: schema: is \"{found}\", but this lab supports up to \"{SCHEMA}\": use the version that wrote it",
        path.display()
    )]
    Newer {
        path: PathBuf,
        /// The document's schema.
        found: String,
    },
    /// A field is missing or invalid.
    #[error("{}: {field}: {reason}", path.display())]
    Field {
        path: PathBuf,
        /// The field's path, such as `workloads[0].points[2].driver`.
        field: String,
        reason: String,
    },
}

/// A result could not be written; an existing file is unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written: {source}", path.display())]
pub struct WriteError {
    pub path: PathBuf,
    pub source: std::io::Error,
}

/// Reads a result, of this or an earlier version. Newer schemas are refused, because they may use the same
/// names differently.
pub fn read(path: &Path) -> Result<RunResult, ReadError> {
    let unreadable = |source| ReadError::Unreadable { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > BYTES_MAX {
        return Err(ReadError::TooLarge { path: path.to_owned(), bytes });
    }
    let text = std::fs::read(path).map_err(unreadable)?;
    parse(path, &text)
}

fn parse(path: &Path, text: &[u8]) -> Result<RunResult, ReadError> {
    let path = path.to_owned();
    let document: serde_json::Value = match serde_json::from_slice(text) {
        Ok(document) => document,
        Err(source) => return Err(ReadError::NotJson { path, source }),
    };
    let schema = match document.get("schema") {
        Some(serde_json::Value::String(schema)) => version(schema).map(|version| (schema, version)),
        _ => None,
    };
    let version = match (schema, document.get("schema")) {
        (Some((schema, found)), _) if Some(found) > version(SCHEMA) => {
            return Err(ReadError::Newer { path, found: schema.clone() });
        }
        (Some((_, found)), _) => found,
        (None, Some(other)) => return Err(ReadError::NotAResult { path, found: other.to_string() }),
        (None, None) => return Err(ReadError::NotAResult { path, found: "missing".to_owned() }),
    };
    let mut result: RunResult = serde_path_to_error::deserialize(document).map_err(|error| {
        ReadError::Field { path, field: error.path().to_string(), reason: error.inner().to_string() }
    })?;
    for point in result.workloads.iter_mut().flat_map(|workload| &mut workload.points) {
        if point.summary.figures.is_empty() {
            point.summary.figures = Spread::of_figures(&point.repetitions);
        }
    }
    upgrade(&mut result, version);
    Ok(result)
}

fn version(schema: &str) -> Option<u64> {
    let (name, _) = SCHEMA.split_once('/')?;
    schema.strip_prefix(name)?.strip_prefix('/')?.parse().ok()
}

/// Writes a result to `path` atomically.
pub fn write(path: &Path, result: &RunResult) -> Result<(), WriteError> {
    let text = to_json(result).map_err(|error| WriteError { path: path.to_owned(), source: error.into() })?;
    write_whole(path, &text)
}

/// The text of a result's file. A condensed result leaves out the spreads of figures, which [`read`]
/// calculates again.
pub fn to_json(result: &RunResult) -> serde_json::Result<Vec<u8>> {
    if !result.condensed {
        return Ok(laid_out(&serde_json::to_vec(result)?));
    }
    let mut result = result.clone();
    for point in result.workloads.iter_mut().flat_map(|workload| &mut workload.points) {
        if point.summary.figures == Spread::of_figures(&point.repetitions) {
            point.summary.figures.clear();
        }
    }
    Ok(laid_out(&serde_json::to_vec(&result)?))
}

/// Writes a file to `path` atomically: to a temporary file, then renamed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut beside = tempfile::Builder::new()
        .prefix(".thalweg-lab-")
        .permissions(mode())
        .tempfile_in(directory)
        .map_err(failed)?;
    beside.write_all(bytes).map_err(failed)?;
    beside.as_file().sync_all().map_err(failed)?;
    beside.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Sets the permissions of a new file according to the umask. Temporary files are private, also after
/// renaming.
fn mode() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}
