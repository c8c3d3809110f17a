//! The files of a data directory: names, sizes and times, no contents.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use thalweg_security::visible::visible;

/// Limit of listed files.
const FILES_MAX: usize = 200_000;
/// Limit of the depth. Partitions, and snapshots below them, are two deep.
const DEPTH_MAX: usize = 4;

/// A line for each file and directory below `dir`: bytes, allocated bytes, time of change in seconds since
/// 1970, path.
pub(crate) fn layout(dir: &Path) -> anyhow::Result<String> {
    let mut text = "bytes\tallocated\tmodified_s\tpath\n".to_owned();
    let mut left = FILES_MAX;
    // The directory itself must be readable; directories below may vanish meanwhile.
    std::fs::read_dir(dir).with_context(|| format!("Cannot read {}", dir.display()))?;
    list(&mut text, dir, PathBuf::new(), &mut left, 0);
    if left == 0 {
        writeln!(text, "more than {FILES_MAX} files: the rest is left out")?;
    }
    Ok(text)
}

fn list(text: &mut String, root: &Path, below: PathBuf, left: &mut usize, depth: usize) {
    let Ok(entries) = std::fs::read_dir(root.join(&below)) else { return };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let path = below.join(name);
        // Links are not followed, because a link may lead anywhere.
        let Ok(metadata) = std::fs::symlink_metadata(root.join(&path)) else { continue };
        let is_dir = metadata.is_dir();
        let mark = if is_dir { "/" } else { "" };
        let shown = path.to_string_lossy();
        writeln!(
            text,
            "{}\t{}\t{}\t{}{mark}",
            metadata.len(),
            metadata.blocks() * 512,
            metadata.mtime(),
            visible(&shown),
        )
        .expect("a string takes everything");
        if is_dir && depth < DEPTH_MAX {
            list(text, root, path, left, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_without_their_contents() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("t-0")).expect("a directory");
        std::fs::write(dir.path().join("t-0/00.log"), "PLANTED").expect("a file");
        std::fs::write(dir.path().join("odd\nname"), "").expect("a file");
        let text = layout(dir.path()).expect("it is there");
        let paths: Vec<&str> = text.lines().filter_map(|line| line.split('\t').nth(3)).collect();
        assert_eq!(paths, ["path", "odd\\nname", "t-0/", "t-0/00.log"]);
        assert!(text.lines().last().is_some_and(|line| line.starts_with("7\t")), "{text}");
        assert!(!text.contains("PLANTED"));
        layout(&dir.path().join("none")).expect_err("it is not there");
    }
}
