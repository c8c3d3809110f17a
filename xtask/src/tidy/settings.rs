//! No setting is named by a string where the code could name its field: a key that is misspelled in a string compiles.

use super::manifest::{Manifest, members};
use super::tree::Tree;
use super::{Finding, Rule};
use std::collections::BTreeSet;

pub const RULE: Rule = Rule {
    name: "settings",
    reason: "a setting is declared once, in crates/config/src/table; others read its field or its `Setting`",
    check: |tree| Ok(check(tree)),
};

const TABLE: &str = "crates/config/src/table/";

/// A client's settings, some of which have the name of a broker's.
const OF_CLIENTS: [(&str, &str); 1] = [("crates/cli/src/produce.rs", "compression.type")];

fn check(tree: &Tree) -> Vec<Finding> {
    let (keys, readers) = (keys(tree), readers(tree));
    let mut findings = Vec::new();
    for source in
        tree.sources().filter(|source| !source.is_test() && can_name_settings(&readers, source.path))
    {
        for (number, line) in source.production_lines() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            // What stands between two quotes; crude, but a key holds no quote.
            for text in line.split('"').filter(|text| keys.contains(text)) {
                if !OF_CLIENTS.contains(&(source.path, text)) {
                    let message = format!("\"{text}\" by a string: take the `Setting` of that field");
                    findings.push(Finding::new(source.path, number, message));
                }
            }
        }
    }
    findings
}

/// Every key that is declared, apart from those that are words of the language too.
fn keys(tree: &Tree) -> BTreeSet<&str> {
    let declarations = tree.sources().filter(|source| source.path.starts_with(TABLE));
    let entries = declarations.flat_map(|source| source.text.lines());
    let keys = entries.filter_map(|line| line.strip_prefix("    \"")?.split_once("\": "));
    keys.map(|(key, _)| key).filter(|key| key.contains('.')).collect()
}

/// The folders of the crates that use `config`, and its own.
fn readers(tree: &Tree) -> Vec<&str> {
    let uses =
        |member: &Manifest<'_>| member.dependencies().any(|entry| entry.dependency() == "thalweg-config");
    let users = members(tree).filter(uses).map(|member| member.folder);
    users.chain(["crates/config/"]).collect()
}

/// Whether a file is of the sources of a reader, outside of the table.
fn can_name_settings(readers: &[&str], path: &str) -> bool {
    let is_source = |folder: &&str| path.strip_prefix(*folder).is_some_and(|rest| rest.starts_with("src/"));
    readers.iter().any(is_source) && !path.starts_with(TABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: (&str, &str) = (
        "crates/config/src/table/log.rs",
        "    \"log.dirs\": List = null, ANY,\n        \"Not `log.dir`.\";\n    \"preallocate\": Boolean",
    );
    const MANIFEST: (&str, &str) =
        ("crates/broker/Cargo.toml", "[dependencies]\nthalweg-config.workspace = true\n");

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[LOG, MANIFEST, (path, text)]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn strings_that_are_keys_are_found() {
        let text =
            "let a = config.get(\"log.dirs\");\n// \"log.dirs\"\nlet b = (\"log.dir\", \"preallocate\");\n";
        assert_eq!(lines("crates/broker/src/a.rs", text), [1]);
        assert_eq!(lines("crates/config/src/a.rs", text), [1]);
        assert_eq!(lines("crates/log/src/a.rs", text), [0; 0], "it does not see the settings");
        assert_eq!(lines("crates/broker/tests/it/a.rs", text), [0; 0]);
    }

    #[test]
    fn words_in_a_message_are_no_reader() {
        assert_eq!(lines("crates/broker/src/a.rs", "warn!(\"A host in log.dirs has no address\");"), [0; 0]);
    }
}
