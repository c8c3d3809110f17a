//! Randomness of tokio and the standard library in simulated code: two runs of a seed would differ.

use super::tree::{Tree, has_word};
use super::{Finding, Rule};

pub const RULE: Rule = Rule {
    name: "chance",
    reason: "two runs of a seed are equal only without other randomness: docs/decisions/0007",
    check: |tree| Ok(check(tree)),
};

/// Crates that run in a simulation.
const CRATES: [&str; 9] =
    ["broker", "client", "config", "controller", "ids", "log", "metadata", "record", "wire"];
/// Collections of std with a random order.
const HASHED: [&str; 2] = ["HashMap", "HashSet"];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources().filter(|source| runs_in_simulation(source.path) && !source.is_test()) {
        let mut in_select = false;
        for (number, line) in source.production_lines() {
            if std::mem::take(&mut in_select) && line.trim() != "biased;" {
                findings.push(Finding::new(
                    source.path,
                    number,
                    "a `select!` without `biased;`: start it with `biased;`",
                ));
            }
            in_select = line.trim_end().ends_with("select! {");
            if line.contains("std::collections") && HASHED.iter().any(|name| has_word(line, name)) {
                findings.push(Finding::new(source.path, number, "a hash map of std: use `thalweg_hash`"));
            }
            if line.contains("sync::watch") || (line.contains("tokio::sync::{") && line.contains("watch")) {
                findings.push(Finding::new(source.path, number, "tokio's `watch`: use `crate::watch`"));
            }
        }
    }
    findings
}

fn runs_in_simulation(path: &str) -> bool {
    CRATES.iter().any(|name| {
        path.strip_prefix("crates/").is_some_and(|path| path.starts_with(&format!("{name}/src/")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn lots_are_found() {
        let text = "use tokio::sync::watch;\nuse tokio::sync::{mpsc, watch};\nlet a = tokio::select! {\n    b = c => {}\n}\n";
        assert_eq!(lines("crates/broker/src/a.rs", text), [1, 2, 4]);
        assert_eq!(lines("crates/lab/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn maps_without_an_order_are_found() {
        let text = "use std::collections::{BTreeMap, HashMap};\nlet a = std::collections::HashSet::new();\n";
        assert_eq!(lines("crates/log/src/a.rs", text), [1, 2]);
        let other = "use std::collections::{BTreeMap, VecDeque};\nuse thalweg_hash::HashMap;\n";
        assert_eq!(lines("crates/log/src/a.rs", other), [0; 0]);
    }

    #[test]
    fn order_is_let_be() {
        let text = "use crate::watch;\nuse tokio::sync::Notify;\ntokio::select! {\n    biased;\n    b = c => {}\n}\n";
        assert_eq!(lines("crates/broker/src/a.rs", text), [0; 0]);
    }
}
