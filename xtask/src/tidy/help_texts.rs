//! Help texts that can be read alone: no text of an option refers to another line of the help.

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "help texts",
    reason: "a user reads the help of one option: begin with a verb or a noun (\"Show the offset of the first \
             record\", not \"Of the first record\")",
    check: |tree| Ok(check(tree)),
};

/// Derives of the types whose doc comments are help texts.
const DERIVES: [&str; 4] = ["Args", "Parser", "Subcommand", "ValueEnum"];

/// First words of a text that lacks its subject.
const BEGINNINGS: [&str; 7] = ["Its", "Of", "Their", "Those", "To", "Who", "Whose"];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources() {
        for (number, word) in fragments(source.text) {
            findings.push(Finding::new(
                source.path,
                number,
                format!("a help text that begins with `{word}`"),
            ));
        }
    }
    findings
}

/// The first lines of help texts without a subject, each with its first word.
fn fragments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // The doc comment above the line, and whether the line is within a type with help texts.
    let (mut comment, mut is_help) = (None, false);
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim_start();
        if let Some(words) = code.strip_prefix("/// ") {
            comment = comment.or(words.split(' ').next().map(|word| (number, word)));
            continue;
        }
        if code.starts_with("///") {
            continue;
        }
        let derives = code.starts_with("#[derive(")
            && code.split(|c: char| !c.is_alphanumeric()).any(|word| DERIVES.contains(&word));
        is_help |= derives;
        found.extend(comment.take().filter(|(_, word)| is_help && BEGINNINGS.contains(word)));
        if line == "}" || (line.ends_with(';') && line == code) {
            is_help = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_a_subject_are_found() {
        let lines = [
            "/// Of things.",
            "fn a() {}",
            "/// To read.",
            "#[derive(Args, Debug)]",
            "pub struct Offsets {",
            "    /// Of the first record.",
            "    #[arg(long)]",
            "    earliest: bool,",
            "    /// Show this.",
            "    /// To the end.",
            "    shown: bool,",
            "}",
            "/// To be read.",
            "struct Other;",
        ];
        let text = &lines.join("\n");
        assert_eq!(fragments(text), [(3, "To"), (6, "Of")]);
        let tree = Tree::of(&[("crates/cli/src/a.rs", text)]);
        let second = Finding::new("crates/cli/src/a.rs", 6, "a help text that begins with `Of`");
        assert_eq!(check(&tree).last(), Some(&second));
    }
}
