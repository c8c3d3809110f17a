//! The allowed dependencies between crates of the workspace.

use super::manifest::{Manifest, members};
use super::tree::Tree;
use super::{Finding, Rule};
use std::collections::BTreeSet;

pub const RULE: Rule = Rule {
    name: "dependencies",
    reason: "crates depend only on what they need (ARCHITECTURE.md); the lab and streams see clusters from outside",
    check: |tree| Ok(check(tree).into_iter().chain(surplus(tree)).collect()),
};

/// A crate, and our crates that it uses in code, tests and build.
const LAW: &[(&str, &[&str])] = &[
    (
        "thalweg",
        &[
            "authority",
            "broker",
            "browse",
            "cli",
            "client",
            "config",
            "console",
            "lab",
            "net",
            "places",
            "ports",
            "record",
            "security",
            "stream",
            "wire",
        ],
    ),
    ("thalweg-audit", &["config", "log", "security"]),
    ("thalweg-authority", &[]),
    (
        "thalweg-broker",
        &[
            "audit",
            "client",
            "config",
            "controller",
            "dial",
            "groups",
            "hash",
            "histogram",
            "history",
            "log",
            "membership",
            "metadata",
            "net",
            "places",
            "ports",
            "record",
            "replica",
            "security",
            "shard",
            "share",
            "share-groups",
            "transactions",
            "watch",
            "wire",
        ],
    ),
    ("thalweg-browse", &["client", "places", "record", "stream", "wire"]),
    (
        "thalweg-cli",
        &["authority", "browse", "client", "config", "lab", "record", "security", "stream", "wire"],
    ),
    ("thalweg-client", &["dial", "hash", "ports", "record", "security", "watch", "wire"]),
    ("thalweg-config", &["dial", "log", "metadata", "record", "security"]),
    (
        "thalweg-console",
        &["authority", "browse", "client", "history", "places", "record", "security", "stream", "wire"],
    ),
    (
        "thalweg-controller",
        &["config", "hash", "log", "metadata", "places", "ports", "record", "security", "wire"],
    ),
    ("thalweg-dial", &["security", "wire"]),
    ("thalweg-groups", &["config", "hash", "log", "metadata", "net", "record", "replica", "shard", "wire"]),
    ("thalweg-hash", &[]),
    ("thalweg-histogram", &[]),
    ("thalweg-history", &[]),
    ("thalweg-ids", &[]),
    ("thalweg-lab", &["authority", "client", "ports", "pulsar", "record", "security", "timer", "wire"]),
    ("thalweg-log", &["hash", "ids", "record"]),
    ("thalweg-membership", &["config", "controller", "dial", "metadata", "record", "watch", "wire"]),
    ("thalweg-metadata", &["hash", "ids", "record", "security", "wire"]),
    ("thalweg-net", &["config", "dial", "hash", "histogram", "log", "places", "security", "watch", "wire"]),
    ("thalweg-places", &[]),
    ("thalweg-ports", &[]),
    ("thalweg-pulsar", &["timer"]),
    ("thalweg-record", &["ids"]),
    (
        "thalweg-replica",
        &["config", "dial", "hash", "histogram", "log", "membership", "metadata", "record", "watch", "wire"],
    ),
    ("thalweg-security", &["hash"]),
    ("thalweg-shard", &["hash", "histogram", "log", "metadata", "record", "replica", "watch", "wire"]),
    ("thalweg-share", &["ids"]),
    (
        "thalweg-share-groups",
        &[
            "config",
            "dial",
            "groups",
            "hash",
            "histogram",
            "log",
            "membership",
            "metadata",
            "net",
            "places",
            "record",
            "replica",
            "security",
            "shard",
            "share",
            "wire",
        ],
    ),
    (
        "thalweg-sim",
        &["broker", "client", "config", "hash", "ids", "log", "net", "record", "replica", "wire"],
    ),
    ("thalweg-stream", &["client", "places", "record", "wire"]),
    ("thalweg-timer", &["places"]),
    (
        "thalweg-transactions",
        &[
            "config",
            "dial",
            "groups",
            "hash",
            "log",
            "membership",
            "metadata",
            "record",
            "replica",
            "shard",
            "wire",
        ],
    ),
    ("thalweg-watch", &[]),
    ("thalweg-wire", &["ids"]),
    // The checks of xtask must run even if the rest does not compile.
    ("xtask", &[]),
];

fn check(tree: &Tree) -> Vec<Finding> {
    members(tree).flat_map(|manifest| check_member(&manifest)).collect()
}

fn check_member(manifest: &Manifest<'_>) -> Vec<Finding> {
    let name = manifest.name();
    let Some((_, allowed)) = LAW.iter().find(|(member, _)| *member == name) else {
        let message = format!("{name} is missing in the list of {}", file!());
        return vec![Finding::new(manifest.path, 0, message)];
    };
    let mut findings = Vec::new();
    for entry in manifest.dependencies() {
        let Some(ours) = entry.dependency().strip_prefix("thalweg-") else { continue };
        if !allowed.contains(&ours) {
            let may = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
            let message = format!("{name} uses {}; it may use: {may}", entry.dependency());
            findings.push(Finding::new(manifest.path, entry.line, message));
        }
    }
    findings
}

/// The entries of the list that no manifest needs.
fn surplus(tree: &Tree) -> Vec<Finding> {
    let members: Vec<Manifest<'_>> = members(tree).collect();
    let mut findings = Vec::new();
    for (name, allowed) in LAW {
        let Some(member) = members.iter().find(|member| member.name() == *name) else {
            findings.push(Finding::new(file!(), 0, format!("{name} is no crate")));
            continue;
        };
        let used: BTreeSet<_> = member.dependencies().map(|entry| entry.dependency()).collect();
        for ours in allowed.iter().filter(|ours| !used.contains(&*format!("thalweg-{ours}"))) {
            let message =
                format!("{name} does not use thalweg-{ours}: remove it from the list of {}", file!());
            findings.push(Finding::new(member.path, 0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, dependencies: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n\n{dependencies}");
        let tree = Tree::of(&[("crates/x/Cargo.toml", &text)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_log_knows_records_and_nothing_of_requests() {
        let good = "[dependencies]\nbytes.workspace = true\nthalweg-record.workspace = true\n";
        assert_eq!(findings("thalweg-log", good), [""; 0]);
        let bad = "[dependencies]\nthalweg-wire.workspace = true\n";
        assert_eq!(
            findings("thalweg-log", bad),
            ["thalweg-log uses thalweg-wire; it may use: hash, ids, record"]
        );
    }

    #[test]
    fn tests_keep_the_law_too() {
        let bad = "[dev-dependencies]\nthalweg-broker.workspace = true\n";
        assert_eq!(
            findings("thalweg-lab", bad),
            [
                "thalweg-lab uses thalweg-broker; it may use: authority, client, ports, pulsar, record, security, timer, wire"
            ]
        );
        let bad = "[target.'cfg(unix)'.dev-dependencies]\nthalweg-wire = { workspace = true }\n";
        assert_eq!(findings("thalweg-record", bad), ["thalweg-record uses thalweg-wire; it may use: ids"]);
    }

    #[test]
    fn the_list_is_not_longer_than_the_manifests() {
        let manifest = "[package]\nname = \"thalweg-wire\"\n\n[dependencies]\n";
        let found = |dependencies: &str| {
            let tree = Tree::of(&[("crates/wire/Cargo.toml", &format!("{manifest}{dependencies}"))]);
            let of_wire = surplus(&tree).into_iter().filter(|f| f.message.starts_with("thalweg-wire "));
            of_wire.map(|finding| finding.message).collect::<Vec<_>>()
        };
        assert_eq!(found("thalweg-ids.workspace = true\n"), [""; 0]);
        let [message] = &found("")[..] else { panic!("one finding") };
        assert!(message.starts_with("thalweg-wire does not use thalweg-ids"), "{message}");
    }

    #[test]
    fn a_new_crate_needs_its_line() {
        let [message] = &findings("thalweg-common", "")[..] else { panic!("one finding") };
        assert!(message.starts_with("thalweg-common is missing in the list of"), "{message}");
    }
}
