//! Names without meaning.

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "names",
    reason: "a module without a specific name collects leftovers: name it after the noun it is about; a function \
             is named by what it does: log, print, send, return, handle",
    check: |tree| Ok(check(tree)),
};

const MODULES: [&str; 9] =
    ["common", "core", "helper", "helpers", "misc", "shared", "types", "util", "utils"];

const TYPE_ENDINGS: [&str; 4] = ["Helper", "Impl", "Manager", "Util"];

/// Words of functions that stand for a specific verb: log, print, write, send, request, handle, apply.
const VAGUE_VERBS: [&str; 11] =
    ["asked", "asks", "hear", "heard", "hears", "said", "say", "says", "tell", "tells", "told"];
/// Words that must not name a type alone, because such a name has no meaning far from its definition. A noun
/// makes the name meaningful (`StoredOffset`).
const WITHOUT_NOUN: [&str; 60] = [
    "After",
    "Again",
    "Ahead",
    "Alone",
    "Before",
    "Begun",
    "Behind",
    "Beside",
    "Between",
    "Both",
    "Broken",
    "Came",
    "Chosen",
    "Doing",
    "Done",
    "Drawn",
    "Found",
    "Fresh",
    "Given",
    "Gone",
    "Heard",
    "Held",
    "Kept",
    "Known",
    "Laying",
    "Leaving",
    "Left",
    "Lent",
    "Losing",
    "Lost",
    "Made",
    "More",
    "Moving",
    "Next",
    "Nobody",
    "Nothing",
    "Now",
    "Only",
    "Other",
    "Over",
    "Own",
    "Passing",
    "Pending",
    "Ran",
    "Read",
    "Returning",
    "Running",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Spent",
    "Taken",
    "Told",
    "Uneven",
    "Up",
    "Waiting",
    "What",
    "Who",
    "Whole",
];
/// Nouns that look like participles.
const NOUNS: [&str; 4] = ["Feed", "Need", "Seed", "Speed"];

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
        for (number, line) in (1..).zip(source.text.lines()) {
            if let Some((name, word)) = vague_function(line) {
                let message = format!("`{name}`: {word} is no verb of the field");
                findings.push(Finding::new(source.path, number, message));
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
            if is_without_noun(name) {
                return Some(format!("`{name}` is no noun: name the thing, as Kafka or the field does"));
            }
            let ending = TYPE_ENDINGS.into_iter().find(|ending| name.ends_with(ending))?;
            Some(format!("`{name}`: {ending} has no meaning"))
        }
        _ => None,
    }
}

/// The name of the function that a line defines, and its vague verb.
fn vague_function(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once("fn ")?;
    let is_definition = before
        .split_whitespace()
        .all(|word| ["async", "const", "pub", "unsafe"].contains(&word) || word.starts_with("pub("));
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let word = name.split('_').find(|word| VAGUE_VERBS.contains(word))?;
    is_definition.then_some((name, word))
}

/// True if a type is named by a bare participle, pronoun or adverb.
fn is_without_noun(name: &str) -> bool {
    let is_one_word = !name.chars().skip(1).any(char::is_uppercase);
    let is_participle = name.len() > 4 && name.ends_with("ed") && !NOUNS.contains(&name);
    is_one_word && (is_participle || WITHOUT_NOUN.contains(&name))
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

    #[test]
    fn functions_have_verbs_of_the_field() {
        for (line, found) in [
            ("    pub(super) async fn tell(&self) {", ("tell", "tell")),
            ("fn say_lost(name: &str) {", ("say_lost", "say")),
            ("pub fn says_the_same() -> bool {", ("says_the_same", "says")),
        ] {
            assert_eq!(vague_function(line), Some(found), "{line}");
        }
        for good in ["fn log_lost() {", "fn essay() {", "let fn_name = tell();", "/// a fn tell() {"] {
            assert_eq!(vague_function(good), None, "{good}");
        }
        let tests = "fn log() {}\n#[cfg(test)]\nmod tests {\n    fn errors_say_why() {}\n}\n";
        let tree = Tree::of(&[("crates/a/src/b.rs", tests), ("crates/a/tests/it/c.rs", "fn told() {}\n")]);
        let found: Vec<_> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(found, [("crates/a/src/b.rs".to_owned(), 4), ("crates/a/tests/it/c.rs".to_owned(), 1)]);
    }

    #[test]
    fn types_are_nouns() {
        for bad in
            ["struct Named {", "    pub enum Begun {", "type Wanted = u8;", "pub(crate) struct Nobody;"]
        {
            assert!(complaint(bad).is_some_and(|complaint| complaint.contains("is no noun")), "{bad}");
        }
        for good in
            ["struct TopicRef {", "struct StoredOffset {", "struct Seed(u64);", "fn named() {", "struct Red;"]
        {
            assert_eq!(complaint(good), None, "{good}");
        }
    }
}
