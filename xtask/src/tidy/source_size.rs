//! Files of a size to be read in one go.

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "file size",
    reason: "a file has one subject and can be read in one go; a longer one has two",
    check: |tree| Ok(check(tree)),
};

/// Limit of lines, without tests and generated code. Most files have half as many.
const LINES_MAX: usize = 800;

fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.sources().filter(|source| !source.is_test());
    let counted = sources.map(|source| (source.path, source.production_lines().count()));
    let long = counted.filter(|(_, lines)| *lines > LINES_MAX);
    long.map(|(path, lines)| Finding::new(path, 0, format!("{lines} lines; at most {LINES_MAX}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    x();\n".repeat(500));
        let full = "x();\n".repeat(LINES_MAX);
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", &format!("{full}{tests}")),
            ("crates/a/src/b/tests.rs", &full.repeat(2)),
        ]);
        assert_eq!(check(&tree), []);
        let tree = Tree::of(&[("crates/a/src/lib.rs", &format!("{full}x();\n{tests}"))]);
        assert_eq!(check(&tree), [Finding::new("crates/a/src/lib.rs", 0, "801 lines; at most 800")]);
    }
}
