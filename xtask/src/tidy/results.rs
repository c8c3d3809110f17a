//! Published results are small: every clone has all of them, and reviews read their changes.

use super::tree::Tree;
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "published results",
    reason: "every clone carries the results; docs/results/README.md says how a result is condensed",
    check: |tree| Ok(check(tree)),
};

const FOLDER: &str = "docs/results/";
/// The size of a file.
const BYTES_MAX: usize = 256 << 10;
/// The size of all files together.
const BYTES_MAX_ALL: usize = 3_000_000;

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut all = 0;
    for path in tree.paths().filter(|path| path.starts_with(FOLDER)) {
        let Some(text) = tree.text(path) else {
            findings.push(Finding::new(path, 0, "is not text; results are JSON that people can read"));
            continue;
        };
        all += text.len();
        if text.len() > BYTES_MAX {
            let remedy = match path.ends_with(".json") {
                true => "condense it with UPDATE_DOCS=1 cargo test -p thalweg-lab, or publish fewer points",
                false => "split it",
            };
            let message = format!("has {} bytes; at most {BYTES_MAX}: {remedy}", text.len());
            findings.push(Finding::new(path, 0, message));
        }
    }
    if all > BYTES_MAX_ALL {
        let message = format!(
            "has {all} bytes; at most {BYTES_MAX_ALL}: delete results that no page names, and the oldest of those \
             that a later one replaces"
        );
        findings.push(Finding::new(FOLDER.trim_end_matches('/'), 0, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn large_files_are_found_with_a_remedy() {
        let (full, long) = ("x".repeat(BYTES_MAX), "x".repeat(BYTES_MAX + 1));
        assert_eq!(messages(&[("docs/results/a.json", &full), ("docs/a.json", &long)]), [""; 0]);
        let found = messages(&[("docs/results/a.json", &long), ("docs/results/a.md", &long)]);
        assert!(found[0].starts_with("has 262145 bytes; at most 262144: condense it with UPDATE_DOCS=1"));
        assert!(found[1].ends_with("split it"));
    }

    #[test]
    fn many_files_are_found_with_a_remedy() {
        let names: Vec<String> = (0..12).map(|number| format!("docs/results/{number}.json")).collect();
        let text = "x".repeat(250_000);
        let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
        assert_eq!(messages(&files), [""; 0]);
        files.push(("docs/results/one-more.md", "x"));
        let found = messages(&files);
        assert!(found[0].starts_with("has 3000001 bytes; at most 3000000: delete results"), "{found:?}");
    }
}
