//! Unfinished work left in the code.

use super::tree::{Tree, has_word};
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "leftovers",
    reason: "unfinished work is finished now, or has its reason beside it",
    check: |tree| Ok(check(tree)),
};

/// Macros that must not be called.
const MACROS: [&str; 3] = ["dbg!", "todo!", "unimplemented!"];

/// Minimum number of words of a reason.
const REASON_WORDS_MIN: usize = 4;

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_code(path)) {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(complaint) = complaint(line) {
                findings.push(Finding::new(path, number, complaint));
            }
        }
    }
    findings
}

/// True for files of code. Files without an ending are scripts.
fn is_code(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    let code =
        ending.is_none_or(|e| matches!(e, "rs" | "py" | "go" | "java" | "js" | "mjs" | "ts" | "sh" | "toml"));
    code && !path.starts_with("xtask/src/tidy/")
}

fn complaint(line: &str) -> Option<String> {
    if let Some(name) = MACROS.into_iter().find(|name| has_word(line, name)) {
        return Some(format!("calls {name}"));
    }
    if line.trim_start().starts_with("#[ignore]") {
        return Some("an ignored test: write `#[ignore = \"why\"]`".to_owned());
    }
    if let Some(word) = ["FIXME", "XXX"].into_iter().find(|word| has_word(line, word)) {
        return Some(format!("{word}: fix it"));
    }
    if has_word(line, "TODO") {
        let reason = line.split_once("TODO:").map_or("", |(_, reason)| reason);
        if reason.split_whitespace().count() < REASON_WORDS_MIN {
            return Some("TODO without its reason: write `TODO: what, and why not now`".to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_found() {
        let bad = [
            "    todo!()",
            "    dbg!(x);",
            "let x = unimplemented!(\"later\");",
            "#[ignore]",
            "// FIXME: slow",
            "// XXX",
            "// TODO",
            "// TODO: later",
        ];
        for line in bad {
            assert!(complaint(line).is_some(), "{line}");
        }
    }

    #[test]
    fn reasons_and_likenesses_are_let_be() {
        let good = [
            "my_todo!()",
            "// `\\uXXXX` is a unit",
            "#[ignore = \"needs an hour\"]",
            "// TODO: drop this when Kafka 5 no longer sends it",
            "let todo = 1; // !",
        ];
        for line in good {
            assert_eq!(complaint(line), None, "{line}");
        }
    }

    #[test]
    fn only_code_is_judged() {
        assert!(is_code("scripts/demo") && is_code("trials/raw/wire.py") && is_code("crates/a/src/lib.rs"));
        assert!(!is_code("CHANGELOG.md") && !is_code("crates/a/tests/golden/b.txt"));
    }
}
