//! Comments in English that a newcomer reads once.

use super::tree::{Source, Tree};
use super::{Finding, Rule};
use std::collections::BTreeMap;

pub const RULE: Rule = Rule {
    name: "comments",
    reason: "the subject of a comment is a noun of the field, and its lines fit beside the code",
    check: |tree| Ok(check(tree)),
};

/// Limit of the columns of a comment line, including indentation.
const WIDTH_MAX: usize = 110;

/// Limit of clauses as subjects ("What a client holds is …") per hundred lines of comment of a crate, outside
/// tests. The count shows a habit, and proves nothing about a single sentence.
const CLAUSES_PER_HUNDRED_MAX: usize = 1;

/// The words at the head of such a clause.
const HEADS: [&str; 5] = ["what", "who", "nobody", "whoever", "whatever"];
/// Texts before the head of a clause, besides the slashes of the comment.
const OPENINGS: [&str; 7] = [". ", "; ", ": ", ", ", "and ", "that ", "but "];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut crates: BTreeMap<&str, Clauses> = BTreeMap::new();
    for source in tree.sources() {
        for (number, line) in (1..).zip(source.text.lines()) {
            let columns = line.chars().count();
            if is_comment(line) && columns > WIDTH_MAX {
                let message = format!("a comment of {columns} columns; at most {WIDTH_MAX}");
                findings.push(Finding::new(source.path, number, message));
            }
        }
        if let Some(folder) = folder(source.path).filter(|_| !source.is_test()) {
            crates.entry(folder).or_default().count(source);
        }
    }
    findings.extend(crates.into_iter().filter_map(|(folder, clauses)| clauses.finding(folder)));
    findings
}

/// The clauses as subjects in a crate.
#[derive(Default)]
struct Clauses {
    lines: usize,
    places: Vec<String>,
}

impl Clauses {
    fn count(&mut self, source: Source<'_>) {
        for (number, line) in source.production_lines().filter(|(_, line)| is_comment(line)) {
            self.lines += 1;
            if has_clause(line) {
                self.places.push(format!("{}:{number}", source.path));
            }
        }
    }

    fn finding(self, folder: &str) -> Option<Finding> {
        let Clauses { lines, places } = self;
        let most = (lines * CLAUSES_PER_HUNDRED_MAX / 100).max(1);
        let message = || {
            format!(
                "{} clauses as subjects (what, who, nobody) in {lines} lines of comment; at most {most}: {}",
                places.len(),
                places.join(" ")
            )
        };
        (places.len() > most).then(|| Finding::new(folder, 0, message()))
    }
}

/// The sources of a crate, or of xtask.
fn folder(path: &str) -> Option<&str> {
    let end = path.find("/src/")?;
    Some(&path[..end]).filter(|folder| !path.starts_with("xtask/src/tidy/") && !folder.is_empty())
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// True if a clause with one of [`HEADS`] begins in a line of comment.
fn has_clause(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!']).trim_start().to_lowercase();
    let begins = |at: &str| {
        HEADS.iter().any(|head| {
            at.strip_prefix(head)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    begins(&text)
        || OPENINGS
            .iter()
            .any(|opening| text.match_indices(opening).any(|(at, _)| begins(&text[at + opening.len()..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_found() {
        let wide = format!("    // {}\n", "a".repeat(WIDTH_MAX - 6));
        let code = format!("let a = \"{}\";\n", "a".repeat(WIDTH_MAX));
        let tree = Tree::of(&[("crates/a/src/lib.rs", &format!("//! A.\n{code}{wide}"))]);
        assert_eq!(
            check(&tree),
            [Finding::new("crates/a/src/lib.rs", 3, "a comment of 111 columns; at most 110")]
        );
        let tree = Tree::of(&[("crates/a/src/lib.rs", &wide.replacen('a', "", 1))]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn clauses_as_subjects_are_found() {
        let found = [
            "// What a client holds is released.",
            "    /// Who asks.",
            "//! It waits: nobody else writes.",
            "// The log ends, and whoever reads it stops.",
        ];
        for line in found {
            assert!(has_clause(line), "{line}");
        }
        let good = [
            "// A client says what it needs.",
            "// Whose turn it is.",
            "// The `whoami` command.",
            "// Somewhat later.",
        ];
        for line in good {
            assert!(!has_clause(line), "{line}");
        }
    }

    #[test]
    fn a_crate_with_the_habit_is_found() {
        let habit = "// What it is.\n// Who it is.\n";
        let tests = "#[cfg(test)]\nmod tests {\n    // What is tested.\n    // Who tests.\n}\n";
        let tree = Tree::of(&[("crates/a/src/lib.rs", &format!("{habit}{tests}"))]);
        let [finding] = check(&tree).try_into().expect("one crate");
        assert_eq!(finding.path, "crates/a");
        assert!(
            finding
                .message
                .starts_with("2 clauses as subjects (what, who, nobody) in 2 lines of comment; at most 1: ")
        );
        let tree = Tree::of(&[("crates/a/src/lib.rs", &format!("{habit}{}", "// A log.\n".repeat(198)))]);
        assert_eq!(check(&tree), []);
        let tree = Tree::of(&[("crates/a/src/lib.rs", tests), ("crates/a/tests/it/main.rs", habit)]);
        assert_eq!(check(&tree), []);
    }
}
