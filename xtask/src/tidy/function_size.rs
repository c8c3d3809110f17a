//! Functions that fit on a screen.

use super::tree::{Source, Tree};
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "function size",
    reason: "a function that fits on a screen can be reviewed; push ifs up and keep leaves pure",
    check: |tree| Ok(check(tree)),
};

/// Limit of the lines from `fn` to the closing brace, outside tests: a test with a table of calls is
/// naturally long.
const LINES_MAX: usize = 70;

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources().filter(|source| !source.is_test()) {
        for function in functions(source) {
            if function.lines > LINES_MAX {
                let message =
                    format!("`{}` has {} lines; at most {LINES_MAX}", function.name, function.lines);
                findings.push(Finding::new(source.path, function.line, message));
            }
        }
    }
    findings
}

#[derive(Debug, PartialEq, Eq)]
struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
}

/// The functions with a body in a formatted file. A function ends at the first closing brace with the
/// indentation of its `fn`.
fn functions(source: Source<'_>) -> Vec<Function<'_>> {
    let lines: Vec<_> = source.text.lines().collect();
    let mut found = Vec::new();
    for (start, first) in lines.iter().enumerate() {
        let Some(name) = function_name(first) else { continue };
        let indent = first.len() - first.trim_start().len();
        let at_indent = |line: &str| line.len() > indent && line.trim_start().len() == line.len() - indent;
        // The signature ends with the opening brace at the end of a line; a function without a body has no
        // such brace.
        let signature = lines[start..].iter().enumerate().find(|(after, line)| {
            line.ends_with('{') || (line.ends_with([';', '}']) && (*after == 0 || at_indent(line)))
        });
        let Some((signature, line)) = signature else { continue };
        if !line.ends_with('{') {
            continue;
        }
        let body = &lines[start + signature..];
        let end = body.iter().position(|line| at_indent(line) && line.trim_start() == "}");
        found.extend(end.map(|end| Function { name, line: start + 1, lines: signature + end + 1 }));
    }
    found
}

/// The name of the function that begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    if let Some(rest) = words.strip_prefix("pub") {
        words = rest
            .strip_prefix('(')
            .map_or(rest, |scope| scope.split_once(')').map_or("", |(_, rest)| rest))
            .trim_start();
    }
    for qualifier in ["const ", "async "] {
        words = words.strip_prefix(qualifier).unwrap_or(words);
    }
    let rest = words.strip_prefix("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(&str, usize)> {
        functions(Source { path: "a.rs", text }).into_iter().map(|f| (f.name, f.lines)).collect()
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let text = "impl A {\n    pub(crate) const fn a(&self) -> B {\n        if x {\n        }\n    }\n\n    fn b(&self);\n}\n\nasync fn c() {\n}\n";
        assert_eq!(of(text), [("a", 4), ("c", 2)]);
    }

    #[test]
    fn signatures_may_take_many_lines() {
        let text = "pub fn a<T>(\n    b: [u8; 4],\n) -> C\nwhere\n    T: D,\n{\n    e();\n}\n";
        assert_eq!(of(text), [("a", 8)]);
        let text = "    fn a(\n        b: B,\n    ) -> C;\n\n    fn d() {}\n\n    fn e() {\n    }\n";
        assert_eq!(of(text), [("e", 2)]);
    }

    #[test]
    fn a_long_function_is_found() {
        let body = "    x();\n".repeat(LINES_MAX - 1);
        let tree = Tree::of(&[("a.rs", &format!("//! A.\n\nfn long() {{\n{body}}}\n"))]);
        assert_eq!(check(&tree), [Finding::new("a.rs", 3, "`long` has 71 lines; at most 70")]);
        let body = "    x();\n".repeat(LINES_MAX - 2);
        assert_eq!(check(&Tree::of(&[("a.rs", &format!("fn long() {{\n{body}}}\n"))])), []);
        let body = "    x();\n".repeat(LINES_MAX);
        assert_eq!(check(&Tree::of(&[("a/tests/it.rs", &format!("fn long() {{\n{body}}}\n"))])), []);
    }
}
