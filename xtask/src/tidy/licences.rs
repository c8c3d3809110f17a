//! The licences of all dependencies, including those for build and tests.

use super::tree::Tree;
use super::{Finding, Rule};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;

pub const RULE: Rule = Rule {
    name: "licences",
    reason: "the binary is distributed under Apache-2.0 and requires nothing of its users but notices",
    check,
};

/// Permissive licences. MPL-2.0 is missing: distributors of the binary would have to offer the source of such
/// a crate, and no dependency is worth that yet.
const ALLOWED: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Only packages built here: cargo has them locally, and nothing else is downloaded.
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &host()?])
        .current_dir(&tree.root)
        .output()
        .context("cargo does not start")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    judge(&serde_json::from_slice(&output.stdout)?)
}

fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc does not start")?;
    let text = String::from_utf8(output.stdout)?;
    let host =
        text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_owned())
}

/// Finds the packages in cargo's metadata whose licences are not allowed.
fn judge(metadata: &Value) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().context("the metadata lists no packages")? {
        let name = format!(
            "{} {}",
            package["name"].as_str().unwrap_or("?"),
            package["version"].as_str().unwrap_or("?")
        );
        match package["license"].as_str() {
            None => findings.push(Finding::new("Cargo.lock", 0, format!("{name} names no licence"))),
            Some(licence) if !is_allowed(licence) => {
                findings.push(Finding::new("Cargo.lock", 0, format!("{name} is under {licence}")));
            }
            Some(_) => {}
        }
    }
    Ok(findings)
}

/// True if an SPDX expression offers a choice of allowed licences only.
fn is_allowed(expression: &str) -> bool {
    // Old crates write a slash instead of OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest) == Some(true) && rest.is_empty()
}

/// `all OR all ...`; `None` for an invalid expression.
fn any_of(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = all_of(rest)?;
    while let Some(after) = rest.strip_prefix(&["OR"]) {
        *rest = after;
        allowed |= all_of(rest)?;
    }
    Some(allowed)
}

/// `one AND one ...`; `None` for an invalid expression.
fn all_of(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(rest)?;
    while let Some(after) = rest.strip_prefix(&["AND"]) {
        *rest = after;
        allowed &= one(rest)?;
    }
    Some(allowed)
}

/// A licence, or an expression in parentheses. An exception (WITH) only adds permissions, so it is ignored.
fn one(rest: &mut &[&str]) -> Option<bool> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    if *first == "(" {
        let allowed = any_of(rest)?;
        *rest = rest.strip_prefix(&[")"])?;
        return Some(allowed);
    }
    if let ["WITH", _, after @ ..] = *rest {
        *rest = after;
    }
    Some(ALLOWED.contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_conjunctions_and_exceptions_are_understood() {
        let good = [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-2.0 WITH Classpath-exception-2.0 OR MIT",
        ];
        for expression in good {
            assert!(is_allowed(expression), "{expression}");
        }
        let bad =
            ["GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR MPL-2.0)", "", "MIT OR", "(MIT", "MIT MIT"];
        for expression in bad {
            assert!(!is_allowed(expression), "{expression}");
        }
    }

    #[test]
    fn a_package_without_an_allowed_licence_is_found() {
        let metadata = serde_json::json!({"packages": [
            {"name": "a", "version": "1.0.0", "license": "MIT"},
            {"name": "b", "version": "2.0.0", "license": "AGPL-3.0"},
            {"name": "c", "version": "3.0.0", "license": null},
        ]});
        let messages: Vec<_> =
            judge(&metadata).expect("packages are listed").into_iter().map(|f| f.message).collect();
        assert_eq!(messages, ["b 2.0.0 is under AGPL-3.0", "c 3.0.0 names no licence"]);
    }
}
