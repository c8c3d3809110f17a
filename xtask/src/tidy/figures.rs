//! The table of `cargo xtask figures` has every published result, and names only existing paths.

use super::tree::Tree;
use super::{Finding, Rule};
use crate::figures::{MeasuredResult, TABLE};
use std::collections::BTreeSet;

pub const RULE: Rule = Rule {
    name: "figures",
    reason: "before a release, each published figure is compared with the age of the code that it measures",
    check: |tree| Ok(check(tree, TABLE)),
};

const PLACE: &str = "xtask/src/figures/table.rs";
const FOLDER: &str = "docs/results/";

fn check(tree: &Tree, table: &[MeasuredResult]) -> Vec<Finding> {
    let named = table.iter().flat_map(|measured| measured.code.iter().chain([&measured.result]));
    let gone: BTreeSet<&str> = named.copied().filter(|path| !tree.has(path)).collect();
    let gone = gone.into_iter().map(|path| format!("names {path}, which does not exist"));
    let is_listed = |path: &str| table.iter().any(|measured| measured.result == path);
    let results = tree.paths().filter(|path| path.starts_with(FOLDER) && path.ends_with(".json"));
    let missing = results.filter(|path| !is_listed(path)).map(|path| format!("leaves out {path}"));
    gone.chain(missing).map(|message| Finding::new(PLACE, 0, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(measured: MeasuredResult) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/results/a.json", ""),
            ("docs/results/a.md", ""),
            ("crates/log/src/lib.rs", ""),
        ]);
        check(&tree, &[measured]).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn results_and_code_exist() {
        let code: &[&str] = &["crates/log/src", "crates/log/src/lib.rs"];
        assert_eq!(messages(MeasuredResult { result: "docs/results/a.json", figures: "", code }), [""; 0]);
        let code: &[&str] = &["crates/log/src/gone.rs", "crates/gone"];
        let gone = messages(MeasuredResult { result: "docs/results/a.json", figures: "", code });
        assert_eq!(
            gone,
            ["crates/gone", "crates/log/src/gone.rs"]
                .map(|path| format!("names {path}, which does not exist"))
        );
    }

    #[test]
    fn every_result_is_listed() {
        let found = messages(MeasuredResult { result: "docs/results/b.json", figures: "", code: &[] });
        assert_eq!(
            found,
            ["names docs/results/b.json, which does not exist", "leaves out docs/results/a.json"]
        );
    }
}
