//! No import cycles between the rooms of a crate (its top-level modules, `src/<room>.rs` with the folder
//! `src/<room>/`).
//!
//! An import is a path from `crate`, `super` or `self` that ends in another room, in a `use` or in an
//! expression. A name that the root re-exports is an import of its defining room. Within a room, parents and
//! children import each other as they like. Excluded are tests, generated code, and imports and definitions
//! of the root itself.

use super::manifest::members;
use super::tokens::{Token, tokens};
use super::tree::{Source, Tree};
use super::{Finding, Rule};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub const RULE: Rule = Rule {
    name: "rooms",
    reason: "a room can be read, tested and moved without the rooms above it; rooms in a cycle are one room",
    check: |tree| Ok(check(tree)),
};

/// The first import of one room by another. The key is the importing and the imported room.
type Arrows<'a> = BTreeMap<(&'a str, &'a str), Arrow<'a>>;

#[derive(Debug)]
struct Arrow<'a> {
    path: &'a str,
    line: usize,
    /// The imported path, starting with the room.
    name: String,
    /// The file of the deepest module in the name.
    target: String,
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members(tree) {
        let mut arrows = arrows(tree, member.folder, &mut findings);
        while let Some(circle) = shortest_circle(&arrows) {
            let names = format!("{} → {}", circle.join(" → "), circle[0]);
            for (at, from) in circle.iter().enumerate() {
                let Some(Arrow { path, line, name, target }) =
                    arrows.remove(&(*from, circle[(at + 1) % circle.len()]))
                else {
                    continue;
                };
                let message = format!("`{name}` of {target}, in the cycle {names}");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// The shortest cycle of rooms, each room once. Of equal cycles, the first by name.
fn shortest_circle<'a>(arrows: &Arrows<'a>) -> Option<Vec<&'a str>> {
    let ways = arrows.keys().filter_map(|(from, to)| shortest_way(arrows, to, from));
    ways.min_by_key(Vec::len)
}

/// The rooms on the shortest way between two rooms, both included.
fn shortest_way<'a>(arrows: &Arrows<'a>, start: &str, end: &str) -> Option<Vec<&'a str>> {
    let first = arrows.keys().map(|(from, _)| *from).find(|from| *from == start)?;
    let mut ways = VecDeque::from([vec![first]]);
    let mut seen = BTreeSet::from([first]);
    while let Some(way) = ways.pop_front() {
        let last = way[way.len() - 1];
        if last == end {
            return Some(way);
        }
        for (_, to) in arrows.keys().filter(|(from, _)| *from == last) {
            if seen.insert(to) {
                ways.push_back([&way[..], &[to]].concat());
            }
        }
    }
    None
}

/// The imports between the rooms of the crate in `folder`. Imports hidden by `*` from the root are findings.
fn arrows<'a>(tree: &'a Tree, folder: &str, findings: &mut Vec<Finding>) -> Arrows<'a> {
    let root = format!("{folder}src/");
    let is_production = |source: &Source<'_>| !source.is_test() && !source.path.ends_with("/testing.rs");
    let files = tree.sources().filter(|source| source.path.starts_with(&root)).filter(is_production);
    let mut readings: Vec<_> = files.map(|source| FileImports::of(source, &root)).collect();
    let tests: Vec<_> = readings.iter().flat_map(|reading| reading.tests.clone()).collect();
    readings.retain(|reading| !tests.iter().any(|test| reading.module.starts_with(test)));

    let names: BTreeMap<_, _> = readings
        .iter()
        .filter(|reading| reading.module.is_empty())
        .flat_map(|reading| reading.imports.iter().filter(|import| import.is_use))
        .filter_map(|import| Some((import.alias, import.path.split_last()?)))
        .map(|(alias, (last, before))| (alias.unwrap_or(last), [before, &[*last]].concat()))
        .collect();
    let module_file = |path: &[&str]| {
        let stem = format!("{root}{}", path.join("/"));
        [format!("{stem}.rs"), format!("{stem}/mod.rs")].into_iter().find(|file| tree.has(file))
    };
    let mut arrows = Arrows::new();
    for reading in &readings {
        for import in &reading.imports {
            let mut path = import.path.clone();
            if path == ["*"] || (reading.module.is_empty() && import.is_use && path.ends_with(&["*"])) {
                let message = "imports or re-exports every name of the root: list them, to show their rooms";
                findings.push(Finding::new(reading.path, import.line, message));
            }
            // A name of the root may be an alias; cyclic aliases do not compile.
            while module_file(&path[..1]).is_none() {
                let Some(whole) = names.get(path[0]).filter(|whole| whole[0] != path[0]) else { break };
                path.splice(..1, whole.iter().copied());
            }
            let Some(target) = (1..=path.len()).rev().find_map(|end| module_file(&path[..end])) else {
                continue;
            };
            if let Some(from) = reading.module.first().filter(|from| **from != path[0]) {
                let (path_from, line, name) = (reading.path, import.line, path.join("::"));
                let arrow = Arrow { path: path_from, line, name, target };
                arrows.entry((*from, path[0])).or_insert(arrow);
            }
        }
    }
    arrows
}

/// The imports of one file.
struct FileImports<'a> {
    path: &'a str,
    /// The module of the file, from the root of the crate on.
    module: Vec<&'a str>,
    imports: Vec<Import<'a>>,
    /// Modules in separate files that are for tests only.
    tests: Vec<Vec<&'a str>>,
}

#[derive(Debug)]
struct Import<'a> {
    line: usize,
    /// The path from the root of the crate on; not empty.
    path: Vec<&'a str>,
    alias: Option<&'a str>,
    is_use: bool,
}

impl<'a> FileImports<'a> {
    fn of(source: Source<'a>, root: &str) -> FileImports<'a> {
        let mut module: Vec<_> = source.path[root.len()..].trim_end_matches(".rs").split('/').collect();
        module.pop_if(|last| matches!(*last, "lib" | "main" | "mod"));
        let mut reading = FileImports { path: source.path, module, imports: Vec::new(), tests: Vec::new() };
        let tokens = tokens(source.text);
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
        // The module of the current token, and the brace depths at which inline modules began.
        let (mut inside, mut begun, mut depth) = (reading.module.clone(), Vec::new(), 0);
        let mut at = 0;
        while at < tokens.len() {
            match text(at) {
                "#" if is_test_attribute(&tokens[at..]) => {
                    at = item_end(&tokens, at);
                    if text(at - 1) == ";" && text(at - 3) == "mod" {
                        reading.tests.push([&inside[..], &[text(at - 2)]].concat());
                    }
                    continue;
                }
                "mod" if text(at + 2) == "{" => {
                    inside.push(text(at + 1));
                    begun.push(depth);
                }
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if begun.pop_if(|begun| *begun == depth).is_some() {
                        inside.pop();
                    }
                }
                "use" => {
                    at = reading.import(&tokens, at + 1, &inside, &[], true);
                    continue;
                }
                "crate" | "super" | "self" if text(at + 1) == "::" => {
                    at = reading.import(&tokens, at, &inside, &[], false);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        reading
    }

    /// Reads the path or the tree of paths at `at`, and returns the index behind its end.
    fn import(
        &mut self,
        tokens: &[Token<'a>],
        mut at: usize,
        inside: &[&'a str],
        before: &[&'a str],
        is_use: bool,
    ) -> usize {
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
        let Some(line) = tokens.get(at).map(|token| token.line) else { return at };
        let mut path = before.to_vec();
        loop {
            match text(at) {
                "{" => {
                    while at < tokens.len() && text(at) != "}" {
                        at = self.import(tokens, at + 1, inside, &path, is_use);
                    }
                    return at + 1;
                }
                word if word == "*" || word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                    path.push(word);
                }
                _ => break,
            }
            at += 1;
            if text(at) != "::" {
                break;
            }
            at += 1;
        }
        let alias = (is_use && text(at) == "as").then(|| text(at + 1));
        at += if alias.is_some() { 2 } else { 0 };
        let named = path.len() > before.len();
        if let Some(path) = from_root(inside, &path, is_use).filter(|_| named) {
            self.imports.push(Import { line, path, alias, is_use });
        }
        at
    }
}

/// A path from the root of the crate; none if the path leaves the crate, or names the root.
fn from_root<'a>(inside: &[&'a str], path: &[&'a str], is_use: bool) -> Option<Vec<&'a str>> {
    let (mut base, mut rest) = match *path.first()? {
        "crate" => (&[][..], &path[1..]),
        "super" => (inside, path),
        "self" => (inside, &path[1..]),
        _ if is_use && inside.is_empty() => (inside, path),
        _ => return None,
    };
    while let Some((&"super", after)) = rest.split_first() {
        (base, rest) = (base.split_last()?.1, after);
    }
    let rest = rest.strip_suffix(&["self"]).unwrap_or(rest);
    let whole = [base, rest].concat();
    (!whole.is_empty()).then_some(whole)
}

/// True if the attribute at the start of `tokens` marks the next item as a test.
fn is_test_attribute(tokens: &[Token<'_>]) -> bool {
    let words = ["#", "[", "cfg", "("];
    let condition = tokens.iter().skip(words.len()).map(|token| token.text).take_while(|text| *text != "]");
    let mut condition = condition.filter(|text| matches!(*text, "test" | "not" | "any"));
    tokens.iter().zip(words).all(|(token, word)| token.text == word) && condition.next() == Some("test")
}

/// The index behind the item, field or statement at `at`, with its attributes.
fn item_end(tokens: &[Token<'_>], mut at: usize) -> usize {
    let (mut depth, mut angles, mut before) = (0, 0, "");
    while let Some(Token { text, .. }) = tokens.get(at) {
        match *text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            "<" if depth == 0 => angles += 1,
            ">" if depth == 0 && !matches!(before, "-" | "=") => angles -= 1,
            "," if depth == 0 && angles == 0 => return at + 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
        (before, at) = (text, at + 1);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "mod a;\nmod b;\n#[cfg(test)]\nmod page;\npub use a::{Deep, inner::Name as Other};\n";

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize, String)> {
        let mut all = vec![("crates/x/Cargo.toml", ""), ("crates/x/src/lib.rs", ROOT)];
        all.extend_from_slice(files);
        let findings = check(&Tree::of(&all)).into_iter();
        findings.map(|f| (f.path.replace("crates/x/src/", ""), f.line, f.message)).collect()
    }

    /// The imports of room `b`. Room `a` imports `b`, so every import of `a` by `b` makes a cycle.
    fn names(b: &str) -> Vec<String> {
        let a = ("crates/x/src/a.rs", "use crate::b;");
        let inner = ("crates/x/src/a/inner.rs", "");
        let found = found(&[a, inner, ("crates/x/src/b/deep.rs", b), ("crates/x/src/b/mod.rs", "")]);
        let names = found.into_iter().filter(|(path, _, _)| path == "b/deep.rs");
        names.map(|(_, _, message)| message.split('`').nth(1).unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn a_circle_names_its_files_and_names() {
        let files = [
            ("crates/x/src/a.rs", "mod inner;\nuse crate::b::{self, Thing};\n"),
            ("crates/x/src/a/inner.rs", "use super::A;\n"),
            ("crates/x/src/b/mod.rs", "fn f() {\n    crate::a::inner::call()\n}\n"),
        ];
        let cycle = "in the cycle b → a → b";
        let a = format!("`b` of crates/x/src/b/mod.rs, {cycle}");
        let b = format!("`a::inner::call` of crates/x/src/a/inner.rs, {cycle}");
        assert_eq!(found(&files), [("b/mod.rs".to_owned(), 2, b), ("a.rs".to_owned(), 2, a)]);
    }

    #[test]
    fn imports_take_many_forms() {
        assert_eq!(names("use crate::a;"), ["a"]);
        assert_eq!(names("use super::{super::{a::{inner}}, c};"), ["a::inner"]);
        assert_eq!(names("mod x { use super::super::super::a::A; }"), ["a::A"]);
        assert_eq!(names("use crate::{\n    c::{D, E},\n    Deep,\n};"), ["a::Deep"]);
        assert_eq!(names("type O = crate::Other<u8>;"), ["a::inner::Name"]);
        assert_eq!(names("macro_rules! m { () => { $crate::a::A } }"), ["a::A"]);
    }

    #[test]
    fn what_stays_in_the_room_or_is_for_tests_is_no_import() {
        let fine = [
            "use super::a::A;\nuse self::a::A;\nuse a::A;\npub(in crate::b) fn f() {}\n",
            "// crate::a::A\nconst C: &str = \"crate::a::A\";\n",
            "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            "#[cfg(all(test, unix))]\nuse crate::a::A;\n",
            "struct S {\n    #[cfg(test)]\n    f: M<u8, crate::a::A>,\n    g: u8,\n}\n",
        ];
        for text in fine {
            assert_eq!(names(text), [""; 0], "{text}");
        }
        assert_eq!(names("#[cfg(test)]\nfn f() {}\n\nuse crate::a::A;\n"), ["a::A"]);
        for test in ["page.rs", "b/testing.rs", "b/tests.rs", "b/generated/c.rs"] {
            let path = format!("crates/x/src/{test}");
            let uses = "use crate::a::A;\nuse crate::b::B;\nuse crate::page::P;\n";
            let a = "use crate::b::B;\nuse crate::page::P;\n";
            assert_eq!(found(&[("crates/x/src/a.rs", a), ("crates/x/src/b.rs", ""), (&path, uses)]), []);
        }
    }

    #[test]
    fn names_of_the_root_are_not_hidden_behind_a_star() {
        let files = [("crates/x/src/a.rs", "use crate::*;\n"), ("crates/x/src/main.rs", "pub use a::*;\n")];
        let places: Vec<_> = found(&files).into_iter().map(|(path, line, _)| (path, line)).collect();
        assert_eq!(places, [("a.rs".to_owned(), 1), ("main.rs".to_owned(), 1)]);
    }
}
