//! Writes a folder of generated files, or checks that the committed ones are up to date.

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Paths below a folder, and their text.
pub type Files = BTreeMap<PathBuf, String>;

/// Makes the folder contain `files`, or with `check` fails if files differ. Other files directly in the
/// folder stay, but whole sub-folders belong to the generator.
pub fn write_or_check(dir: &Path, files: &Files, check: bool, command: &str) -> Result<()> {
    let folders: BTreeSet<_> =
        files.keys().filter_map(|p| p.parent()).filter(|p| *p != Path::new("")).collect();
    let mut stale = Vec::new();
    for folder in folders {
        let path = dir.join(folder);
        std::fs::create_dir_all(&path)?;
        for entry in std::fs::read_dir(&path)? {
            let name = folder.join(entry?.file_name());
            if !files.contains_key(&name) {
                stale.push(name);
            }
        }
    }
    let mut wrong = stale.clone();
    for (name, text) in files {
        let path = dir.join(name);
        if std::fs::read_to_string(&path).ok().as_ref() != Some(text) {
            wrong.push(name.clone());
            if !check {
                std::fs::write(&path, text).with_context(|| path.display().to_string())?;
            }
        }
    }
    if check && !wrong.is_empty() {
        bail!(
            "{}: {} files are outdated, the first is {}; run `{command}`",
            dir.display(),
            wrong.len(),
            wrong[0].display()
        );
    }
    for name in stale {
        std::fs::remove_file(dir.join(name))?;
    }
    Ok(())
}
