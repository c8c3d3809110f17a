//! Randomness of tokio and the standard library in simulated code: two runs of a seed would differ.

use super::manifest::{Manifest, members};
use super::tree::{Tree, has_word};
use super::{Finding, Rule};
use std::collections::BTreeSet;

pub const RULE: Rule = Rule {
    name: "chance",
    reason: "two runs of a seed are equal only without other randomness: docs/decisions/0007",
    check: |tree| Ok(check(tree)),
};

/// The crate of the simulation; below, the crate of the reproducible maps.
const SIMULATION: &str = "thalweg-sim";
const ORDERED_MAPS: &str = "thalweg-hash";
/// Collections of std with a random order.
const HASHED: [&str; 2] = ["HashMap", "HashSet"];

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let simulated = simulated(tree);
    let is_simulated = |path: &str| simulated.iter().any(|folder| path.starts_with(&format!("{folder}src/")));
    for source in tree.sources().filter(|source| is_simulated(source.path) && !source.is_test()) {
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
                findings.push(Finding::new(source.path, number, "tokio's `watch`: use `thalweg_watch`"));
            }
        }
    }
    findings
}

/// The folders of the crates that run in a simulation: direct and transitive dependencies of [`SIMULATION`].
fn simulated(tree: &Tree) -> BTreeSet<&str> {
    let members: Vec<Manifest<'_>> = members(tree).collect();
    let (mut folders, mut names) = (BTreeSet::new(), vec![SIMULATION]);
    while let Some(name) = names.pop() {
        let Some(member) = members.iter().find(|member| member.name() == name) else { continue };
        if name == ORDERED_MAPS || (name != SIMULATION && !folders.insert(member.folder)) {
            continue;
        }
        let used = member.dependencies().filter(|entry| !entry.section.contains("dev-"));
        names.extend(used.filter_map(|entry| entry.key.split('.').next()));
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let manifests = [
            (
                "crates/sim/Cargo.toml",
                "[package]\nname = \"thalweg-sim\"\n[dependencies]\nthalweg-broker.workspace = true\n",
            ),
            (
                "crates/broker/Cargo.toml",
                "[package]\nname = \"thalweg-broker\"\n[dependencies]\nthalweg-log = { workspace = true }\n[dev-dependencies]\nthalweg-lab.workspace = true\n",
            ),
            ("crates/log/Cargo.toml", "[package]\nname = \"thalweg-log\"\n"),
            ("crates/lab/Cargo.toml", "[package]\nname = \"thalweg-lab\"\n"),
        ];
        let files: Vec<(&str, &str)> = manifests.into_iter().chain([(path, text)]).collect();
        check(&Tree::of(&files)).into_iter().map(|finding| finding.line).collect()
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
