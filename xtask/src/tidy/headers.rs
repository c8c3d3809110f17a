//! Every file starts with its description.

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "file heads",
    reason: "a reader learns from a file's first lines what it is, what it owns and what it refuses",
    check: |tree| Ok(check(tree)),
};

fn check(tree: &Tree) -> Vec<Finding> {
    // `foo/tests.rs` has the tests of foo and needs no description.
    let sources = tree.sources().filter(|source| !source.path.ends_with("/tests.rs"));
    let bare = sources.filter(|source| !source.text.starts_with("//! "));
    bare.map(|source| Finding::new(source.path, 1, "does not open with `//!`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_head_is_found() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! The sea.\n"),
            ("crates/a/src/b.rs", "use c::d;\n\n//! Too late.\n"),
            ("crates/a/src/b/tests.rs", "use super::*;\n"),
            ("crates/a/src/generated/e.rs", "// Generated.\n"),
        ]);
        assert_eq!(check(&tree), [Finding::new("crates/a/src/b.rs", 1, "does not open with `//!`")]);
    }
}
