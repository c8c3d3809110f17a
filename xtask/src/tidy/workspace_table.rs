//! The one table of dependencies: all versions in it, sorted, each entry used.

use super::manifest::{Manifest, entries, members};
use super::tree::{Tree, has_word};
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "workspace table",
    reason: "a dependency is adopted once, in the sorted table of the root manifest, and removed when unused",
    check: |tree| Ok(check(tree)),
};

/// Limit of the features of a crate: more features would be a matrix that is never tested.
const FEATURES_MAX: usize = 3;

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = check_table(tree);
    for manifest in members(tree) {
        check_member(tree, &manifest, &mut findings);
    }
    findings
}

fn check_table(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text("Cargo.toml") else { return Vec::new() };
    let table: Vec<_> = entries(text).filter(|entry| entry.section == "workspace.dependencies").collect();
    let mut findings = Vec::new();
    for pair in table.windows(2) {
        // A blank line starts another part of the table.
        if pair[1].line == pair[0].line + 1 && pair[1].key < pair[0].key {
            let message = format!("{} belongs before {}", pair[1].key, pair[0].key);
            findings.push(Finding::new("Cargo.toml", pair[1].line, message));
        }
    }
    for entry in &table {
        if !members(tree).any(|member| member.dependencies().any(|used| used.dependency() == entry.key)) {
            findings.push(Finding::new("Cargo.toml", entry.line, format!("no crate uses {}", entry.key)));
        }
    }
    findings
}

fn check_member(tree: &Tree, manifest: &Manifest<'_>, findings: &mut Vec<Finding>) {
    let mut last = None;
    for entry in manifest.dependencies() {
        let name = entry.dependency();
        let mut find = |message: String| findings.push(Finding::new(manifest.path, entry.line, message));
        let from_table = entry.key.ends_with(".workspace") || entry.value.contains("workspace = true");
        if !from_table {
            find(format!("{name} does not come from the table: write `{name}.workspace = true`"));
        }
        if last.is_some_and(|(section, before)| section == entry.section && before > name) {
            find(format!("{name} is not sorted"));
        }
        last = Some((entry.section, name));
        let word = name.replace('-', "_");
        let mut code =
            tree.texts().filter(|(path, _)| path.starts_with(manifest.folder) && path.ends_with(".rs"));
        let used = code.any(|(_, text)| has_word(text, &word));
        if !used {
            find(format!("no file of the crate names {word}"));
        }
    }
    let features =
        entries(manifest.text).filter(|entry| entry.section == "features" && entry.key != "default").count();
    if features > FEATURES_MAX {
        findings.push(Finding::new(manifest.path, 0, format!("{features} features; at most {FEATURES_MAX}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(table: &str, member: &str) -> Vec<String> {
        let root = format!("[workspace.dependencies]\n{table}");
        let member = format!("[package]\nname = \"x\"\n{member}");
        let source = "//! Uses aa::x and bb_b::y.\n";
        let tree = Tree::of(&[
            ("Cargo.toml", &root),
            ("crates/x/Cargo.toml", &member),
            ("crates/x/src/lib.rs", source),
            ("crates/y/src/lib.rs", "cc::z();"),
        ]);
        check(&tree)
            .into_iter()
            .map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.message))
            .collect()
    }

    #[test]
    fn a_sorted_table_whose_entries_are_used_is_fine() {
        let member = "[dependencies]\naa.workspace = true\nbb-b = { workspace = true, features = [\"x\"] }\n";
        assert_eq!(findings("bb-b = \"1\"\n\naa = \"1\"\n", member), [""; 0]);
    }

    #[test]
    fn disorder_and_waste_in_the_table_are_found() {
        let member = "[dependencies]\naa.workspace = true\nbb-b.workspace = true\n";
        let found = findings("bb-b = \"1\"\naa = \"1\"\ndd = \"1\"\n", member);
        assert_eq!(found, ["Cargo.toml:3: aa belongs before bb-b", "Cargo.toml:4: no crate uses dd"]);
    }

    #[test]
    fn a_member_takes_from_the_table_what_it_names() {
        let member =
            "[dependencies]\nbb-b.workspace = true\naa = \"2\"\n[dev-dependencies]\ncc.workspace = true\n";
        let found = findings("", member);
        let expected = [
            "crates/x/Cargo.toml:5: aa does not come from the table: write `aa.workspace = true`",
            "crates/x/Cargo.toml:5: aa is not sorted",
            "crates/x/Cargo.toml:7: no file of the crate names cc",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn features_are_few() {
        let member = "[features]\ndefault = []\na = []\nb = []\nc = []\nd = []\n";
        assert_eq!(findings("", member), ["crates/x/Cargo.toml:0: 4 features; at most 3"]);
    }
}
