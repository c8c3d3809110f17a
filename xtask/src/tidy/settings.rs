//! Code names a setting by its field, not by a string: a misspelled key in a string would compile.

use super::manifest::{Manifest, members};
use super::tree::Tree;
use super::{Finding, Rule};
use std::collections::BTreeSet;

pub const RULE: Rule = Rule {
    name: "settings",
    reason: "a setting is declared once, in crates/config/src/table; others read its field or its `Setting`",
    check: |tree| Ok(check(tree, &OF_CLIENTS)),
};

const TABLE: &str = "crates/config/src/table/";

/// A client's settings, some of which have the name of a broker's.
const OF_CLIENTS: [(&str, &str); 1] = [("crates/cli/src/produce.rs", "compression.type")];

fn check(tree: &Tree, of_clients: &[(&str, &str)]) -> Vec<Finding> {
    let (keys, readers) = (keys(tree), readers(tree));
    let mut findings = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> = of_clients.iter().copied().collect();
    for source in
        tree.sources().filter(|source| !source.is_test() && can_name_settings(&readers, source.path))
    {
        for (number, line) in source.production_lines() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            // The texts between quotes. Crude, but keys contain no quotes.
            for text in line.split('"').filter(|text| keys.contains(text)) {
                unused.remove(&(source.path, text));
                if !of_clients.contains(&(source.path, text)) {
                    let message = format!("\"{text}\" by a string: take the `Setting` of that field");
                    findings.push(Finding::new(source.path, number, message));
                }
            }
        }
    }
    let unused = unused.into_iter();
    findings.extend(unused.map(|(path, key)| {
        Finding::new(path, 0, format!("does not name \"{key}\": remove it from the list of {}", file!()))
    }));
    findings
}

/// All declared keys with a dot; keys without a dot are also ordinary words.
fn keys(tree: &Tree) -> BTreeSet<&str> {
    let declarations = tree.sources().filter(|source| source.path.starts_with(TABLE));
    let entries = declarations.flat_map(|source| source.text.lines());
    let keys = entries.filter_map(|line| line.strip_prefix("    \"")?.split_once("\": "));
    keys.map(|(key, _)| key).filter(|key| key.contains('.')).collect()
}

/// The folders of the crates that use `config`, and the folder of `config`.
fn readers(tree: &Tree) -> Vec<&str> {
    let uses =
        |member: &Manifest<'_>| member.dependencies().any(|entry| entry.dependency() == "thalweg-config");
    let users = members(tree).filter(uses).map(|member| member.folder);
    users.chain(["crates/config/"]).collect()
}

/// True for a source file of a reader, outside the table.
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
        check(&tree, &[]).into_iter().map(|finding| finding.line).collect()
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
    fn exceptions_are_used() {
        let tree = Tree::of(&[LOG, MANIFEST, ("crates/broker/src/a.rs", "let a = \"log.dirs\";\n")]);
        assert_eq!(check(&tree, &[("crates/broker/src/a.rs", "log.dirs")]), []);
        let [first, second] =
            check(&tree, &[("crates/broker/src/b.rs", "log.dirs")]).try_into().expect("two");
        assert_eq!(
            (first.path.as_str(), second.path.as_str()),
            ("crates/broker/src/a.rs", "crates/broker/src/b.rs")
        );
    }

    #[test]
    fn words_in_a_message_are_no_reader() {
        assert_eq!(lines("crates/broker/src/a.rs", "warn!(\"A host in log.dirs has no address\");"), [0; 0]);
    }
}
