//! Rules of the tree that the compiler does not cover: a module for each, with its reason.
//!
//! Rules read the files that git tracks or would add, so ignored files are not checked. Rules are simple on
//! purpose: they work on lines formatted by rustfmt, with little knowledge of Rust. Rules must name forbidden
//! words, so rules about words skip this folder.

mod chance;
mod commands;
mod comments;
mod dependencies;
mod doc_comments;
mod documents;
mod figures;
mod function_size;
mod headers;
mod help_texts;
mod import_paths;
mod leftovers;
mod licences;
mod lints;
mod machines;
mod manifest;
mod names;
mod results;
mod rooms;
mod root;
mod settings;
mod source_size;
mod tokens;
mod tree;
mod workspace_table;

use anyhow::{Result, bail};
use std::path::Path;
use tree::Tree;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from one; zero for the file as a whole.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

/// A rule: its name, its reason, and its check.
struct Rule {
    name: &'static str,
    reason: &'static str,
    check: fn(&Tree) -> Result<Vec<Finding>>,
}

const RULES: [Rule; 22] = [
    dependencies::RULE,
    workspace_table::RULE,
    rooms::RULE,
    lints::RULE,
    licences::RULE,
    source_size::RULE,
    function_size::RULE,
    headers::RULE,
    names::RULE,
    comments::RULE,
    doc_comments::RULE,
    help_texts::RULE,
    import_paths::RULE,
    leftovers::RULE,
    chance::RULE,
    machines::RULE,
    settings::RULE,
    documents::RULE,
    results::RULE,
    figures::RULE,
    commands::RULE,
    root::RULE,
];

/// Checks every rule, prints violations, and fails if there are any.
pub fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let mut broken = 0;
    for rule in &RULES {
        let findings = (rule.check)(&tree)?;
        if findings.is_empty() {
            continue;
        }
        broken += findings.len();
        println!("{}: {}", rule.name, rule.reason);
        for Finding { path, line, message } in &findings {
            let place = if *line == 0 { path.clone() } else { format!("{path}:{line}") };
            println!("  {place}: {message}");
        }
    }
    if broken > 0 {
        bail!("{broken} violations of rules");
    }
    Ok(())
}
