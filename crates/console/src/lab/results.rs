//! The directory of results: one directory per run, named after time, workload and target.

use std::path::{Path, PathBuf};

use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// The result file in the directory of a run.
const RESULT: &str = "result.json";
/// Maximum number of listed results, newest first.
pub const LISTED_MAX: usize = 200;
/// Maximum length of a name.
const NAME_MAX: usize = 120;

/// A result in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResultLine {
    /// The result name: time, workload and target.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// True if a text is a valid result name, which cannot lead out of the directory.
fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Lists the results, newest first. Blocks.
pub fn list(directory: &Path) -> std::io::Result<Vec<ResultLine>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        // The first run creates the directory.
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

/// The path of a result file. Blocks.
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

/// The name of a run that starts at `now_ms` (milliseconds since 1970). Names sort by time.
pub fn name(now_ms: i64, workload: &str, target: &str) -> String {
    let time = crate::format::time(now_ms).trim_end_matches('Z').replace([':', '.'], "-");
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
