//! The directory of results: a directory for each run, named after its time, workload and target.

use std::path::{Path, PathBuf};

use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// The file of a result, in its directory.
const RESULT: &str = "result.json";
/// Results that are listed, newest first.
pub const LISTED_MAX: usize = 200;
/// The longest name.
const NAME_MAX: usize = 120;

/// A result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResultLine {
    /// Its name: time, workload and target.
    pub name: String,
    /// Bytes of it.
    pub bytes: u64,
}

/// Whether a text can be the name of a result: nothing that leads out of the directory.
fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The results, newest first. Blocks.
pub fn list(directory: &Path) -> std::io::Result<Vec<ResultLine>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        // It is made by the first run.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut results: Vec<ResultLine> = entries.filter_map(|entry| line(&entry.ok()?.path())).collect();
    results.sort_by(|a, b| b.name.cmp(&a.name));
    results.truncate(LISTED_MAX);
    Ok(results)
}

fn line(path: &Path) -> Option<ResultLine> {
    let name = path.file_name()?.to_str().filter(|name| is_name(name))?;
    let file = std::fs::metadata(path.join(RESULT)).ok().filter(std::fs::Metadata::is_file)?;
    Some(ResultLine { name: name.to_owned(), bytes: file.len() })
}

/// The file of a result. Blocks.
pub fn file(directory: &Path, name: &str) -> Result<PathBuf, Problem> {
    let path = is_name(name).then(|| directory.join(name).join(RESULT)).filter(|path| path.is_file());
    path.ok_or_else(|| Problem::missing(format!("There is no result {name}")))
}

/// Deletes a result. Blocks.
pub fn delete(directory: &Path, name: &str) -> Result<(), Problem> {
    file(directory, name)?;
    let path = directory.join(name);
    std::fs::remove_dir_all(&path)
        .map_err(|error| Problem::wrong(format!("{} cannot be deleted: {error}", path.display())))
}

/// A name for a run that begins at a time in milliseconds since 1970. It sorts by time.
pub fn name(now_ms: i64, workload: &str, target: &str) -> String {
    let time = crate::format::time(now_ms).replace(' ', "T").replace([':', '.'], "-");
    let plain = |text: &str| {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        text.chars().map(plain).take(40).collect::<String>()
    };
    format!("{time}-{}-{}", plain(workload), plain(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_directory() {
        assert!(is_name("2026-11-25T04-05-06-789-quick-embedded"));
        for wrong in ["", ".", "..", "a/b", "a\\b", "a b", "%2e", &"x".repeat(NAME_MAX + 1)] {
            assert!(!is_name(wrong), "{wrong}");
        }
        let name = name(1_795_000_000_123, "my/../workload", "this cluster");
        assert!(is_name(&name) && name.ends_with("-123-my----workload-this-cluster"), "{name}");
    }
}
