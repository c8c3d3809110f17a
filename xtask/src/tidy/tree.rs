//! The files of the repository as input of rules: paths with slashes, and texts.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All files that git tracks or would add, except ignored ones.
pub struct Tree {
    /// The root of the repository; empty for a tree made by a test.
    pub root: PathBuf,
    /// Texts by path; `None` if a file is not UTF-8.
    files: BTreeMap<String, Option<String>>,
    folders: BTreeSet<String>,
}

/// A Rust file that is not generated.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub path: &'a str,
    pub text: &'a str,
}

impl Tree {
    /// Reads the files below `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git does not start")?;
        ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
        let mut files = BTreeMap::new();
        for path in String::from_utf8(output.stdout)?.split_terminator('\0') {
            // The list still has files whose deletion is not committed.
            if let Ok(bytes) = std::fs::read(root.join(path)) {
                files.insert(path.to_owned(), String::from_utf8(bytes).ok());
            }
        }
        Ok(Self::new(root.to_owned(), files))
    }

    fn new(root: PathBuf, files: BTreeMap<String, Option<String>>) -> Self {
        let folders = files.keys().flat_map(|path| ancestors(path)).map(str::to_owned).collect();
        Self { root, files, folders }
    }

    /// A tree of the given files, for testing rules.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))).collect();
        Self::new(PathBuf::new(), files)
    }

    /// The paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// All files that are text, with their texts.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// True if the path is a file or a folder.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.folders.contains(path)
    }

    /// The Rust files that are not generated.
    pub fn sources(&self) -> impl Iterator<Item = Source<'_>> {
        let rust = self.texts().filter(|(path, _)| path.ends_with(".rs") && !path.contains("/generated/"));
        rust.map(|(path, text)| Source { path, text })
    }
}

/// The folders of a path, innermost first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/'), |(folder, _)| folder.rsplit_once('/'))
        .map(|(folder, _)| folder)
}

impl<'a> Source<'a> {
    /// True if the whole file is for tests.
    pub fn is_test(self) -> bool {
        is_test(self.path)
    }

    /// The lines without the test modules in the file, each with its number.
    pub fn production_lines(self) -> impl Iterator<Item = (usize, &'a str)> {
        let mut lines = (1..).zip(self.text.lines()).peekable();
        std::iter::from_fn(move || {
            loop {
                let (number, line) = lines.next()?;
                let opens_tests = line == "#[cfg(test)]"
                    && lines.peek().is_some_and(|(_, next)| next.starts_with("mod ") && next.ends_with('{'));
                if !opens_tests {
                    return Some((number, line));
                }
                lines.by_ref().find(|(_, line)| *line == "}");
            }
        })
    }
}

/// True if the file at this path is for tests.
pub fn is_test(path: &str) -> bool {
    path.starts_with("compat/")
        || path.starts_with("trials/")
        || path.ends_with("/tests.rs")
        || path.contains("/tests/")
}

/// True if `word` occurs in `text` as a whole word.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_of_files() {
        let tree = Tree::of(&[("crates/log/src/lib.rs", ""), ("README.md", "")]);
        assert!(tree.has("crates/log/src/lib.rs") && tree.has("crates/log") && tree.has("crates"));
        assert!(!tree.has("crates/log/tests") && !tree.has("log"));
    }

    #[test]
    fn test_modules_are_not_production() {
        let text = "a\n#[cfg(test)]\nmod tests {\n    b\n}\nc\n#[cfg(test)]\nmod tests;\n";
        let lines: Vec<_> = Source { path: "x.rs", text }.production_lines().collect();
        assert_eq!(lines, [(1, "a"), (6, "c"), (7, "#[cfg(test)]"), (8, "mod tests;")]);
    }

    #[test]
    fn words_have_edges() {
        assert!(has_word("a NOTE: b", "NOTE") && has_word("NOTE", "NOTE"));
        assert!(!has_word("NOTED", "NOTE") && !has_word("\\uNOTE", "NOTE") && !has_word("A_NOTE", "NOTE"));
    }
}
