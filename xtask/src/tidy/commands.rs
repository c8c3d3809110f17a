//! Commands in the user documentation are run by a test, or have a reason why not.
//!
//! In these pages, a block of the language `sh` has a mark behind the language:
//!
//! | mark | run by |
//! |---|---|
//! | `run`, with `kafka` or `background` | `crates/thalweg/tests/it/pages.rs` |
//! | `package` | a Debian machine in `trials/packages` |
//! | `not-run`, and the reason in words | nothing |

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "commands",
    reason: "a command in a page that nothing runs stops working unnoticed",
    check: |tree| Ok(check(tree)),
};

const PAGES: [&str; 3] = ["docs/start.md", "docs/operate.md", "docs/migrate.md"];

/// Words that make a reason.
const REASON_WORDS_MIN: usize = 3;

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in PAGES {
        let Some(text) = tree.text(page) else {
            findings.push(Finding::new(page, 0, "is missing"));
            continue;
        };
        let mut inside = false;
        for (number, line) in (1..).zip(text.lines()) {
            let Some(info) = line.trim_start().strip_prefix("```") else { continue };
            if !inside && let Some(message) = complaint(info) {
                findings.push(Finding::new(page, number, message));
            }
            inside = !inside;
        }
    }
    findings
}

fn complaint(info: &str) -> Option<String> {
    let mut words = info.split_whitespace();
    let language = words.next()?;
    if ["bash", "console", "shell"].contains(&language) {
        return Some(format!("a block of commands in {language}; write sh, and a mark"));
    }
    if language != "sh" {
        return None;
    }
    let marks: Vec<_> = words.collect();
    match marks.split_first() {
        Some((&"run", rest)) => {
            let unknown = rest.iter().find(|word| !["background", "kafka"].contains(word));
            unknown.map(|word| format!("unknown mark {word} behind run; known are background and kafka"))
        }
        Some((&"package", [])) => None,
        Some((&"not-run", reason)) if reason.len() >= REASON_WORDS_MIN => None,
        Some((&"not-run", _)) => Some("the reason is missing: sh not-run REASON".to_owned()),
        Some((word, _)) => Some(format!("unknown mark {word}; known are run, package and not-run REASON")),
        None => Some("commands without a mark: sh run, sh package or sh not-run REASON".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_commands_has_a_mark() {
        for fine in [
            "",
            "text",
            "properties",
            "sh run",
            "sh run kafka background",
            "sh package",
            "sh not-run it needs a moon",
        ] {
            assert_eq!(complaint(fine), None, "{fine}");
        }
        for wrong in [
            "sh",
            "bash",
            "console",
            "sh run twice",
            "sh package now",
            "sh not-run",
            "sh not-run later",
            "sh maybe",
        ] {
            assert!(complaint(wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn only_opening_fences_are_judged() {
        let page = "```sh run\na\n```\n\n```sh\nb\n```\n";
        let found = check(&Tree::of(&[(PAGES[0], page), (PAGES[1], ""), (PAGES[2], "")]));
        let lines: Vec<_> = found.into_iter().map(|finding| (finding.path, finding.line)).collect();
        assert_eq!(lines, [(PAGES[0].to_owned(), 5)]);
    }
}
