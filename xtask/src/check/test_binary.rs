//! The test binaries of the workspace, as cargo has built them.

use super::{Workspace, cargo};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The binaries that take longest, longest first: they begin first, and the others fill the gaps.
const LONGEST: [&str; 7] = [
    "thalweg it",
    "thalweg-broker it",
    "thalweg-stream it",
    "thalweg-client it",
    "thalweg-lab it",
    "thalweg-log it",
    "thalweg-sim it",
];

/// A binary, and words of the paths of its patient tests. Measurements of the lab last as long as their load,
/// two at a time, with little work for the processors; among other tests, those that wait for their turn
/// would hold the threads of the harness.
const PATIENT: (&str, [&str; 2]) = ("thalweg it", ["lab::", "lab_"]);

/// A test binary or a part of its tests, and the environment that cargo would give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestBinary {
    /// Its package and target, and its part.
    pub name: String,
    pub package: String,
    /// The directory of its package.
    pub directory: PathBuf,
    pub executable: PathBuf,
    /// Arguments of the test harness that select the tests of this part; none for all tests.
    pub selection: Vec<String>,
}

/// The test binaries of the workspace.
#[derive(Debug)]
pub struct TestBinaries {
    /// The patient tests of [`PATIENT`], which run beside all others.
    pub patient: TestBinary,
    /// All other tests, in their order.
    pub others: Vec<TestBinary>,
}

/// Builds the test binaries of the workspace.
pub fn build(workspace: &Workspace) -> Result<TestBinaries> {
    let names = packages(workspace)?;
    let mut child = cargo::command(workspace)
        .args(["test", "--workspace", "--locked", "--no-run", "--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo does not start")?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let mut binaries = Vec::new();
    for line in BufReader::new(stdout).lines() {
        binaries.extend(TestBinary::read(&line?, &names)?);
    }
    ensure!(child.wait()?.success(), "`cargo test --no-run` failed");
    binaries
        .sort_by_key(|binary| LONGEST.iter().position(|name| *name == binary.name).unwrap_or(LONGEST.len()));
    for name in LONGEST {
        ensure!(binaries.iter().any(|binary| binary.name == name), "{name} of LONGEST is no test binary");
    }
    divided(binaries)
}

/// Separates the patient tests of [`PATIENT`] from the rest of their binary.
fn divided(mut binaries: Vec<TestBinary>) -> Result<TestBinaries> {
    let (name, words) = PATIENT;
    let whole = binaries.iter_mut().find(|binary| binary.name == name);
    let whole = whole.with_context(|| format!("{name} of PATIENT is no test binary"))?;
    let mut patient = whole.clone();
    patient.name = format!("{name}, patient tests");
    patient.selection = words.map(str::to_owned).to_vec();
    whole.name = format!("{name}, other tests");
    whole.selection = words.iter().flat_map(|word| ["--skip".to_owned(), (*word).to_owned()]).collect();
    Ok(TestBinaries { patient, others: binaries })
}

/// The names of the packages, by their manifests.
fn packages(workspace: &Workspace) -> Result<HashMap<String, String>> {
    let output = cargo::command(workspace)
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    ensure!(output.status.success(), "`cargo metadata` failed");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let entry =
        |package: &Value| Some((package["manifest_path"].as_str()?.into(), package["name"].as_str()?.into()));
    packages.iter().map(|package| entry(package).context("a package without a name")).collect()
}

impl TestBinary {
    /// The test binary named in a line of cargo's output, if the line names one.
    fn read(line: &str, names: &HashMap<String, String>) -> Result<Option<Self>> {
        let message: Value =
            serde_json::from_str(line).with_context(|| format!("not a message of cargo: {line}"))?;
        // A program that tests only start has an executable, too.
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return Ok(None);
        }
        let manifest = message["manifest_path"].as_str().context("an artifact without a manifest")?;
        let package = names.get(manifest).with_context(|| format!("{manifest} is not in the workspace"))?;
        let executable = message["executable"].as_str().context("a test without an executable")?;
        let target = message["target"]["name"].as_str().context("a target without a name")?;
        Ok(Some(Self {
            name: format!("{package} {target}"),
            package: package.clone(),
            directory: PathBuf::from(manifest).parent().context("a manifest without a directory")?.to_owned(),
            executable: executable.into(),
            selection: Vec::new(),
        }))
    }

    /// The command that runs the tests of this part.
    pub fn command(&self, workspace: &Workspace) -> Command {
        let mut command = self.harness(workspace);
        command.args(&self.selection);
        command
    }

    /// The command that runs one test, by its whole path.
    pub fn command_for(&self, workspace: &Workspace, test: &str) -> Command {
        let mut command = self.harness(workspace);
        command.args(["--exact", test]);
        command
    }

    /// The test harness of the binary.
    fn harness(&self, workspace: &Workspace) -> Command {
        let mut command = cargo::with_environment(workspace, Command::new(&self.executable));
        command.current_dir(&self.directory);
        command.env("CARGO_PKG_NAME", &self.package).env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<TestBinary>> {
        let names = HashMap::from([("/w/crates/log/Cargo.toml".to_owned(), "thalweg-log".to_owned())]);
        TestBinary::read(line, &names)
    }

    #[test]
    fn tests_are_found_among_cargo_s_messages() {
        let test = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/log/Cargo.toml","target":{"name":"it"},
            "profile":{"test":true},"executable":"/w/target/debug/deps/it-1"}"#;
        let binary = read(test).expect("a message").expect("a test");
        assert_eq!(binary.name, "thalweg-log it");
        assert_eq!(binary.directory, PathBuf::from("/w/crates/log"));
        assert_eq!(binary.executable, PathBuf::from("/w/target/debug/deps/it-1"));

        let program = test.replace("true", "false");
        assert_eq!(read(&program).expect("a message"), None);
        assert_eq!(read(r#"{"reason":"build-finished","success":true}"#).expect("a message"), None);
    }

    #[test]
    fn every_test_of_a_divided_binary_is_in_one_part() {
        let binary = |name: &str| TestBinary {
            name: name.to_owned(),
            package: "thalweg".to_owned(),
            directory: "/w/crates/thalweg".into(),
            executable: "/w/target/debug/deps/it-1".into(),
            selection: Vec::new(),
        };
        let divided = divided(vec![binary("thalweg it"), binary("thalweg-log it")]).expect("it is there");
        assert_eq!(divided.patient.selection, ["lab::", "lab_"]);
        let others = divided.others.iter().map(|part| (part.name.as_str(), part.selection.join(" ")));
        let rest = "--skip lab:: --skip lab_".to_owned();
        assert_eq!(
            Vec::from_iter(others),
            [("thalweg it, other tests", rest), ("thalweg-log it", String::new())]
        );

        let error = super::divided(vec![binary("thalweg-log it")]).expect_err("no such binary");
        assert_eq!(error.to_string(), "thalweg it of PATIENT is no test binary");
    }

    #[test]
    fn a_message_that_is_not_understood_is_an_error() {
        assert!(read("warning: unused").is_err());
        let stranger =
            r#"{"reason":"compiler-artifact","manifest_path":"/x/Cargo.toml","profile":{"test":true}}"#;
        let error = read(stranger).expect_err("no such package");
        assert_eq!(error.to_string(), "/x/Cargo.toml is not in the workspace");
    }
}
