//! Documents name only existing files, and the table of contents names every page.

use super::root::FOLDERS;
use super::tree::Tree;
use super::{Finding, Rule};
use std::collections::BTreeSet;

pub const RULE: Rule = Rule {
    name: "documents",
    reason: "a document that names missing files, or is too long to read, misleads",
    check: |tree| Ok(check(tree)),
};

/// The table of contents of the documentation site: every page in docs/ and its folders.
const CONTENTS: &str = "docs/SUMMARY.md";

const ARCHITECTURE_LINES_MAX: usize = 400;

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_document(path)) {
        let mut in_block = false;
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
                continue;
            }
            let gone = |name: &str| Finding::new(path, number, format!("names {name}, which does not exist"));
            let named = if in_block { line.split_whitespace().collect() } else { spans(line) };
            findings.extend(named.into_iter().filter(|name| is_gone(tree, name)).map(gone));
            if !in_block {
                findings.extend(links(line).filter(|link| !link_exists(tree, path, link)).map(gone));
            }
        }
    }
    if let Some(contents) = tree.text(CONTENTS) {
        findings.extend(check_contents(tree, contents));
    }
    let lines = tree.text("ARCHITECTURE.md").map_or(0, |text| text.lines().count());
    if lines > ARCHITECTURE_LINES_MAX {
        let message = format!("{lines} lines; at most {ARCHITECTURE_LINES_MAX}");
        findings.push(Finding::new("ARCHITECTURE.md", 0, message));
    }
    findings
}

/// The table of contents lists each page once, and nothing but pages. Missing files are found as those of any
/// document are.
fn check_contents(tree: &Tree, contents: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for (number, line) in (1..).zip(contents.lines()) {
        for link in links(line) {
            if !link.ends_with(".md") {
                findings.push(Finding::new(CONTENTS, number, format!("lists {link}, which is not a page")));
            } else if !listed.insert(link) {
                findings.push(Finding::new(CONTENTS, number, format!("lists {link} twice")));
            }
        }
    }
    let pages = tree.paths().filter_map(|path| path.strip_prefix("docs/"));
    let left_out =
        pages.filter(|page| page.ends_with(".md") && *page != "SUMMARY.md" && !listed.contains(page));
    findings.extend(left_out.map(|page| Finding::new(CONTENTS, 0, format!("leaves out docs/{page}"))));
    findings
}

/// The documents of the project. The change log is excluded: it describes the past.
fn is_document(path: &str) -> bool {
    let known = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].contains(&path);
    known || (path.ends_with(".md") && FOLDERS.iter().any(|folder| path.starts_with(&format!("{folder}/"))))
}

/// The words inside of the backticks of a line.
fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace).collect()
}

/// True if the word is a path in the repository that does not exist. Words with placeholders are not checked.
fn is_gone(tree: &Tree, word: &str) -> bool {
    let path =
        word.trim_matches(|c: char| "\"'(),;:".contains(c)).trim_end_matches('/').trim_start_matches("./");
    let plain = path.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c)) && !path.contains("...");
    let Some((first, _)) = path.split_once('/') else { return false };
    if !plain || tree.has(path) {
        return false;
    }
    // A source file may be named by the end of its path, as in `partition/append.rs`.
    let from_its_crate = |file: &str| file.strip_suffix(path).is_some_and(|rest| rest.ends_with('/'));
    FOLDERS.contains(&first) || (path.ends_with(".rs") && !tree.paths().any(from_its_crate))
}

/// The targets of a line's links within the repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with(['#', '/']));
    local.map(|target| target.split('#').next().unwrap_or(target))
}

/// True if the target of a link in the document at `path` exists.
fn link_exists(tree: &Tree, path: &str, link: &str) -> bool {
    let mut folders: Vec<_> = path.split('/').collect();
    folders.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            ".." if folders.pop().is_none() => return false,
            ".." | "." => {}
            part => folders.push(part),
        }
    }
    folders.is_empty() || tree.has(&folders.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let files = [
            (path, text),
            ("crates/log/src/index.rs", ""),
            ("docs/a.md", ""),
            ("docs/b/c.md", ""),
            ("docs/b/d.json", ""),
            ("scripts/demo", ""),
        ];
        check(&Tree::of(&files)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn paths_that_are_gone_are_found() {
        let text = "See `crates/log/src/gone.rs`, `crates/log/`, `src/index.rs`, `gone.rs`, `log/gone.rs`.\n\n\
                    ```\nscripts/gone --fast\n```\nRun `scripts/demo --fast` or `docs/<page>.md`, not `a/b`.\n";
        let gone = ["crates/log/src/gone.rs", "log/gone.rs", "scripts/gone"];
        assert_eq!(
            findings("README.md", text),
            gone.map(|name| format!("names {name}, which does not exist"))
        );
    }

    #[test]
    fn links_are_followed() {
        let text =
            "[a](a.md) [b](../scripts/demo) [c](gone.md#x) [d](https://example.org/x) [e](#e) [f](../../x)\n";
        let gone = ["gone.md", "../../x"].map(|name| format!("names {name}, which does not exist"));
        assert_eq!(findings("docs/b.md", text), gone);
    }

    #[test]
    fn the_contents_have_every_page_of_every_folder() {
        assert_eq!(findings(CONTENTS, "- [A](a.md)\n    - [C](b/c.md)\n"), [""; 0]);
        assert_eq!(findings(CONTENTS, "- [A](a.md)\n"), ["leaves out docs/b/c.md"]);
        assert_eq!(findings(CONTENTS, "# Summary\n"), ["leaves out docs/a.md", "leaves out docs/b/c.md"]);
    }

    #[test]
    fn the_contents_have_nothing_but_pages() {
        let with = |line: &str| findings(CONTENTS, &format!("- [A](a.md)\n    - [C](b/c.md)\n{line}\n"));
        assert_eq!(with("- [E](b/e.md)"), ["names b/e.md, which does not exist"]);
        assert_eq!(with("- [B](b)"), ["lists b, which is not a page"]);
        assert_eq!(with("- [C](b/c.md)"), ["lists b/c.md twice"]);
    }

    #[test]
    fn the_architecture_is_short() {
        assert_eq!(findings("ARCHITECTURE.md", &"x\n".repeat(400)), [""; 0]);
        assert_eq!(findings("ARCHITECTURE.md", &"x\n".repeat(401)), ["401 lines; at most 400"]);
    }

    #[test]
    fn the_change_log_speaks_of_the_past() {
        assert_eq!(findings("CHANGELOG.md", "Removed `scripts/gone`.\n"), [""; 0]);
    }
}
