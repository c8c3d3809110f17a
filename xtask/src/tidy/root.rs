//! The top folder: only files that a newcomer expects.

use super::tree::Tree;
use super::{Finding, Rule};
use std::collections::BTreeSet;

pub const RULE: Rule = Rule {
    name: "clean root",
    reason: "newcomers see the root first; special files belong elsewhere",
    check: |tree| Ok(check(tree)),
};

/// Required entries of the root folder.
const EXPECTED: [&str; 14] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "NOTICE",
    "README.md",
    "crates",
    "docs",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "scripts",
    "xtask",
];

/// Other allowed entries.
const ALLOWED: [&str; 11] = [
    ".cargo",
    ".ci",
    ".github",
    ".gitattributes",
    ".gitignore",
    "Dockerfile",
    "clippy.toml",
    "compat",
    "deploy",
    "examples",
    "workloads",
];

/// The folders of the root: a path that starts with one of them refers to the repository.
pub const FOLDERS: [&str; 11] = [
    ".cargo",
    ".ci",
    ".github",
    "compat",
    "crates",
    "deploy",
    "docs",
    "examples",
    "scripts",
    "workloads",
    "xtask",
];

fn check(tree: &Tree) -> Vec<Finding> {
    let present: BTreeSet<_> = tree.paths().filter_map(|path| path.split('/').next()).collect();
    let missing = EXPECTED.iter().filter(|name| !present.contains(*name));
    let missing = missing.map(|name| Finding::new(name, 0, "is missing"));
    let surplus = present.iter().filter(|name| !EXPECTED.contains(name) && !ALLOWED.contains(name));
    let surplus = surplus.map(|name| Finding::new(name, 0, "does not belong in the root"));
    missing.chain(surplus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_and_missing_files_are_found() {
        let mut files: Vec<_> = EXPECTED.iter().map(|name| (*name, "")).collect();
        files.push((".ci/run", ""));
        assert_eq!(check(&Tree::of(&files)), []);
        files.push(("notes.txt", ""));
        files.retain(|(name, _)| *name != "NOTICE");
        let found = check(&Tree::of(&files));
        let expected = [
            Finding::new("NOTICE", 0, "is missing"),
            Finding::new("notes.txt", 0, "does not belong in the root"),
        ];
        assert_eq!(found, expected);
    }
}
