//! The one check: everything that must hold of the workspace, step by step, each timed.
//!
//! With one build, the compiler of clippy compiles the tests: lints and code come from the same pass. Its
//! code is kept apart from that of `cargo test`, so this is for machines that have built nothing.
//!
//! A step that fails does not end the run, so that one run reports everything to fix. Nothing is installed or
//! downloaded beyond cargo's own needs. Kafka's jars are used if present: in `KAFKA_CLASSPATH`, or where
//! `compat/kafka-jars/fetch` puts them; otherwise checks that need them are listed as skipped.

mod cargo;
mod test_binary;
mod test_run;

use crate::{codegen, schema, tidy};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// State common to all steps.
struct Workspace {
    root: PathBuf,
    /// Classpath of Kafka's jars, if present.
    kafka_classpath: Option<String>,
    options: Options,
}

/// Choices of the caller.
#[derive(Clone, Copy, clap::Args)]
pub struct Options {
    /// Check the lints while the tests are compiled: faster where nothing has been compiled before
    #[arg(long)]
    one_build: bool,
    /// Run a few failed tests again, alone: for machines that are busy with other work
    #[arg(long)]
    second_attempt: bool,
}

struct Step {
    name: &'static str,
    /// Advice for a failure.
    advice: &'static str,
    /// Performs the step; returns remarks for the summary, such as skipped checks.
    perform: fn(&Workspace) -> Result<Vec<String>>,
}

/// Quick steps come first. Docs follow clippy, because both use the same metadata of the dependencies.
const STEPS: [Step; 6] = [
    Step { name: "tidy", advice: "each rule above prints its reason", perform: check_tidy },
    Step { name: "format", advice: "run `cargo fmt`", perform: check_format },
    Step { name: "freshness", advice: "run the command named above", perform: check_freshness },
    Step { name: "clippy", advice: "see the lints above", perform: check_clippy },
    Step { name: "docs", advice: "see the warnings above", perform: check_docs },
    Step {
        name: "tests",
        advice: "run one again with `RUST_BACKTRACE=1 cargo test -p CRATE NAME`",
        perform: test_run::check,
    },
];

/// The names of the steps.
pub fn names() -> [&'static str; STEPS.len()] {
    STEPS.map(|step| step.name)
}

/// Runs all steps except the skipped ones, prints a summary, and fails if a step failed.
pub fn run(root: &Path, skip: &[String], options: Options) -> Result<()> {
    let workspace = Workspace { root: root.to_owned(), kafka_classpath: kafka_classpath(root), options };
    let mut summary = Vec::new();
    let mut remarks = Vec::new();
    let mut failed = Vec::new();
    for step in STEPS {
        if skip.iter().any(|name| name == step.name) {
            summary.push(format!("{:<10} skipped on request", step.name));
            continue;
        }
        println!("== {}", step.name);
        let (result, took) = timed(|| (step.perform)(&workspace));
        match result {
            Ok(more) => {
                remarks.extend(more);
                summary.push(format!("{:<10} ok      {:6.1} s", step.name, took.as_secs_f64()));
            }
            Err(error) => {
                println!("{}: {error:#}", step.name);
                failed.push(step.name);
                let advice = step.advice;
                summary.push(format!("{:<10} FAILED  {:6.1} s   {advice}", step.name, took.as_secs_f64()));
            }
        }
    }
    println!("\n== summary\n{}", summary.join("\n"));
    remarks.sort();
    remarks.dedup();
    for remark in &remarks {
        println!("{remark}");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a build tool measures how long people wait for it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// The jars in `KAFKA_CLASSPATH`, otherwise the jars of a completed `compat/kafka-jars/fetch`.
fn kafka_classpath(root: &Path) -> Option<String> {
    if let Some(classpath) = std::env::var("KAFKA_CLASSPATH").ok().filter(|text| !text.is_empty()) {
        return Some(classpath);
    }
    let jars = root.join("target/kafka-jars");
    jars.join(".complete").exists().then(|| format!("{}/*", jars.display()))
}

fn check_tidy(workspace: &Workspace) -> Result<Vec<String>> {
    tidy::run(&workspace.root)?;
    Ok(Vec::new())
}

fn check_format(workspace: &Workspace) -> Result<Vec<String>> {
    println!("files that are not formatted:");
    cargo::run(workspace, &["fmt", "--all", "--check", "--", "--files-with-diff"])?;
    println!("none");
    Ok(Vec::new())
}

fn check_freshness(workspace: &Workspace) -> Result<Vec<String>> {
    codegen::run(&workspace.root, true)?;
    let Some(classpath) = &workspace.kafka_classpath else {
        return Ok(vec![
            "skipped: crates/wire/schema against Kafka's jars: run compat/kafka-jars/fetch once, or set KAFKA_CLASSPATH"
                .to_owned(),
        ]);
    };
    schema::run(&workspace.root, classpath, true)?;
    Ok(Vec::new())
}

fn check_clippy(workspace: &Workspace) -> Result<Vec<String>> {
    let command = if workspace.options.one_build { "build" } else { "clippy" };
    let args = [command, "--workspace", "--all-targets", "--locked", "--keep-going"];
    cargo::run_without_a_word(workspace, &args)?;
    Ok(Vec::new())
}

fn check_docs(workspace: &Workspace) -> Result<Vec<String>> {
    cargo::run_without_a_word(workspace, &["doc", "--workspace", "--no-deps", "--locked", "--keep-going"])?;
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jars_are_found_once_their_fetch_is_complete() {
        // With the variable set, this test would see the environment only.
        if std::env::var_os("KAFKA_CLASSPATH").is_some() {
            return;
        }
        let root = tempfile::tempdir().expect("a temporary directory");
        let jars = root.path().join("target/kafka-jars");
        std::fs::create_dir_all(&jars).expect("the directory is ours");
        assert_eq!(kafka_classpath(root.path()), None);
        std::fs::write(jars.join(".complete"), "").expect("the directory is ours");
        assert_eq!(kafka_classpath(root.path()), Some(format!("{}/*", jars.display())));
    }
}
