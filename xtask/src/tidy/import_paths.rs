//! Imports from above the parent module are written from the root of the crate.

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "import paths",
    reason: "`crate::consumer::member` names a module that can be looked up; `super::super::member` has to be counted",
    check: |tree| Ok(check(tree)),
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources().filter(|source| !source.path.starts_with("xtask/src/tidy/")) {
        for (number, line) in (1..).zip(source.text.lines()) {
            // A visibility ends with `super::super)`.
            if line.contains("super::super::") && !line.trim_start().starts_with("//") {
                findings.push(Finding::new(source.path, number, "write the path from `crate::`"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_above_the_parent_begin_at_the_crate() {
        let text =
            "use super::super::a::A;\nuse super::b::B;\npub(in super::super) fn c() {}\n// super::super::\n";
        let tree = Tree::of(&[("crates/a/src/b/c.rs", text)]);
        assert_eq!(check(&tree), [Finding::new("crates/a/src/b/c.rs", 1, "write the path from `crate::`")]);
    }
}
