//! Names without meaning.

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "names",
    reason: "a module without a specific name collects leftovers; name it after the noun it is about",
    check: |tree| Ok(check(tree)),
};

const MODULES: [&str; 9] =
    ["common", "core", "helper", "helpers", "misc", "shared", "types", "util", "utils"];

const TYPE_ENDINGS: [&str; 4] = ["Helper", "Impl", "Manager", "Util"];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources() {
        let path = source.path.trim_end_matches(".rs");
        if let Some(bad) = path.split('/').find(|part| MODULES.contains(part)) {
            findings.push(Finding::new(source.path, 0, format!("a module named {bad}")));
        }
        for (number, line) in (1..).zip(source.text.lines()) {
            if let Some(complaint) = complaint(line) {
                findings.push(Finding::new(source.path, number, complaint));
            }
        }
    }
    findings
}

/// The fault of the name that a line defines.
fn complaint(line: &str) -> Option<String> {
    let words = line.trim_start();
    let words = match words.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => words,
    };
    let (kind, rest) = words.trim_start().split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    match kind {
        "mod" if MODULES.contains(&name) => Some(format!("a module named {name}")),
        "struct" | "enum" | "trait" | "type" => {
            let ending = TYPE_ENDINGS.into_iter().find(|ending| name.ends_with(ending))?;
            Some(format!("`{name}`: {ending} has no meaning"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_found() {
        let lib =
            "//! A.\npub mod utils {}\npub(crate) struct GroupManager {\nenum Manager2 {}\nfn core() {}\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", lib),
            ("crates/a/src/common/b.rs", ""),
            ("crates/a/src/types.rs", ""),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line, f.message)).collect();
        let expected = [
            ("crates/a/src/common/b.rs", 0, "a module named common"),
            ("crates/a/src/lib.rs", 2, "a module named utils"),
            ("crates/a/src/lib.rs", 3, "`GroupManager`: Manager has no meaning"),
            ("crates/a/src/types.rs", 0, "a module named types"),
        ];
        assert_eq!(found, expected.map(|(path, line, message)| (path.to_owned(), line, message.to_owned())));
    }
}
