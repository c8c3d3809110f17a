//! Doc comments that say more than the name of their item.
//!
//! Comments in backticks are accepted: they give the item's name elsewhere, such as `retry.backoff.ms`.

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "doc comments",
    reason: "one or two words repeat the name: delete the comment, or say what the name cannot (unit, range, \
             meaning of a value, Kafka's name in backticks)",
    check: |tree| Ok(check(tree)),
};

/// Limit of the words that are refused.
const WORDS_MAX: usize = 2;

/// Derives of types whose doc comments are shown to users: help texts of commands, descriptions of an API.
const SHOWN: [&str; 6] = ["Args", "IntoParams", "Parser", "Subcommand", "ToSchema", "ValueEnum"];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources() {
        for (number, comment) in short_comments(source.text) {
            let message = format!("`{comment}`: delete it, or say what the name cannot");
            findings.push(Finding::new(source.path, number, message));
        }
    }
    findings
}

/// The short doc comments in a file that are not shown to users, each with its line number.
fn short_comments(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    // Each with its indentation: a type whose comments are shown, the attribute of the next such item, and a
    // comment whose item has not begun.
    let (mut shown_type, mut shown_next, mut pending) = (None, None, None);
    for (index, line) in text.lines().enumerate() {
        let code = lines[index];
        let indentation = line.len() - code.len();
        if shown_type == Some(indentation) && code.starts_with('}') {
            shown_type = None;
        }
        if is_shown_by(code) {
            (shown_next, pending) = (Some(indentation), None);
        } else if is_short(&lines, index) {
            found.extend(pending.take().map(|(_, comment)| comment));
            if shown_type.is_none() && shown_next != Some(indentation) {
                pending = Some((indentation, (index + 1, code)));
            }
        } else if !code.is_empty() && !code.starts_with(['#', ')', ']']) {
            found.extend(pending.take_if(|(of, _)| *of == indentation).map(|(_, comment)| comment));
            if let Some(keyword) = keyword(code).filter(|_| shown_next == Some(indentation)) {
                shown_next = None;
                let opens_type = keyword != "fn" && code.ends_with('{');
                shown_type = shown_type.or(opens_type.then_some(indentation));
            }
        }
    }
    found.extend(pending.map(|(_, comment)| comment));
    found
}

/// True for an attribute whose item shows its doc comments.
fn is_shown_by(code: &str) -> bool {
    let is_derive = code.starts_with("#[derive(");
    let mut words = code.split(|c: char| !c.is_alphanumeric());
    code.starts_with("#[utoipa::path") || is_derive && words.any(|word| SHOWN.contains(&word))
}

/// True for a one-line doc comment of at most [`WORDS_MAX`] words without a code span.
fn is_short(lines: &[&str], index: usize) -> bool {
    let is_doc = |index: usize| lines.get(index).is_some_and(|line| line.starts_with("///"));
    let words = lines[index].trim_start_matches('/').split_whitespace().count();
    let is_alone = is_doc(index) && !is_doc(index + 1) && (index == 0 || !is_doc(index - 1));
    is_alone && (1..=WORDS_MAX).contains(&words) && !lines[index].contains('`')
}

/// The keyword of the type or function that begins in a line.
fn keyword(code: &str) -> Option<&str> {
    let first = code.split(' ').find(|word| !word.starts_with("pub") && *word != "async");
    first.filter(|word| matches!(*word, "struct" | "enum" | "fn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_doc_comments_are_found() {
        let text = "/// Log.\n#[derive(Debug)]\npub struct Log {\n    /// The path.\n    path: PathBuf,\n}\n\n\
                    impl Log {\n    /// Opens it.\n    #[inline]\n    pub fn open() {}\n}\n";
        assert_eq!(short_comments(text), [(1, "/// Log."), (4, "/// The path."), (9, "/// Opens it.")]);
        let tree = Tree::of(&[("crates/a/src/lib.rs", text)]);
        let first = "`/// Log.`: delete it, or say what the name cannot";
        assert_eq!(check(&tree).first(), Some(&Finding::new("crates/a/src/lib.rs", 1, first)));
    }

    #[test]
    fn longer_comments_and_names_elsewhere_are_accepted() {
        for good in [
            "/// Time in milliseconds.\nconst T: u64 = 1;\n",
            "/// A log,\n/// closed.\nstruct Log;\n",
            "/// `log.dirs`.\nconst DIRS: u8 = 1;\n",
            "// A log.\nstruct Log;\n",
            "//! Logs.\n",
        ] {
            assert_eq!(short_comments(good), [], "{good}");
        }
    }

    #[test]
    fn comments_that_users_see_are_accepted() {
        let shown = "/// List topics.\n#[derive(Args, Debug)]\n#[command(after_help = \"\\\nExamples:\n\n  list\")]\n\
                     pub struct List {\n    /// The topics.\n    #[arg(long)]\n    topics: Vec<String>,\n}\n";
        assert_eq!(short_comments(shown), []);
        let after = format!("{shown}\n/// A log.\nstruct Log;\n");
        assert_eq!(short_comments(&after), [(13, "/// A log.")]);
        let variants =
            "#[derive(Clone, clap::ValueEnum)]\npub(super) enum Kind {\n    /// Topics.\n    Topic,\n}\n";
        assert_eq!(short_comments(variants), []);
        let path = "/// Lists topics.\n#[utoipa::path(\n    get,\n)]\npub async fn list() {\n    /// A log.\n    struct Log;\n}\n";
        assert_eq!(short_comments(path), [(6, "/// A log.")]);
    }
}
