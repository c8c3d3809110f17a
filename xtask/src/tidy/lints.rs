//! Every crate uses the lints of the workspace, which forbid unsafe code.

use super::manifest::{entries, members};
use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "lints",
    reason: "a crate without the workspace's lints has none, and could contain unsafe code",
    check: |tree| Ok(check(tree)),
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let root = tree.text("Cargo.toml").unwrap_or_default();
    let forbids = entries(root).any(|entry| {
        entry.section == "workspace.lints.rust"
            && entry.key == "unsafe_code"
            && entry.value.starts_with("\"forbid\"")
    });
    if !forbids {
        findings.push(Finding::new("Cargo.toml", 0, "[workspace.lints.rust] lacks unsafe_code = \"forbid\""));
    }
    for manifest in members(tree) {
        let mut lints = entries(manifest.text).filter(|entry| entry.section == "lints");
        if !lints.any(|entry| entry.key == "workspace" && entry.value.starts_with("true")) {
            findings.push(Finding::new(manifest.path, 0, "write `[lints]` and `workspace = true`"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[lints]\nworkspace = true\n";

    #[test]
    fn lints_of_the_workspace_hold_everywhere() {
        let root = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let tree =
            Tree::of(&[("Cargo.toml", root), ("crates/a/Cargo.toml", GOOD), ("xtask/Cargo.toml", GOOD)]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_crate_outside_of_them_is_found() {
        let root = "[workspace.lints.rust]\nunsafe_code = \"deny\"\n";
        let own = "[lints.rust]\nworkspace = true\n";
        let tree =
            Tree::of(&[("Cargo.toml", root), ("crates/a/Cargo.toml", own), ("xtask/Cargo.toml", GOOD)]);
        let paths: Vec<_> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["Cargo.toml", "crates/a/Cargo.toml"]);
    }
}
