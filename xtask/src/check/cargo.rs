//! Runs cargo from inside `cargo xtask`.

use super::Workspace;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::process::{Command, Stdio};

/// A cargo command with the environment of a manual call.
pub fn command(workspace: &Workspace) -> Command {
    with_environment(workspace, Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())))
}

/// A command at the root of the workspace, with the environment of a manual call.
pub fn with_environment(workspace: &Workspace, mut command: Command) -> Command {
    command.current_dir(&workspace.root);
    // Variables set by `cargo run` for xtask would change the environment of build scripts and cause a
    // rebuild.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    if workspace.options.one_build {
        // `cargo clippy` does the same, with a compiler that stops before it generates code.
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    }
    if let Some(classpath) = &workspace.kafka_classpath {
        command.env("KAFKA_CLASSPATH", classpath);
        command.env("PATH", path_with_java(&workspace.root));
    }
    command
}

/// PATH with a first folder for the `java` of `compat/kafka-jars/fetch`, which starts Kafka's programs
/// faster.
fn path_with_java(root: &Path) -> OsString {
    let mut path = OsString::from(root.join("target/kafka-jars/bin:"));
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// Runs cargo with inherited output.
pub fn run(workspace: &Workspace, args: &[&str]) -> Result<()> {
    let status = command(workspace).args(args).status().context("cargo does not start")?;
    ensure!(status.success(), "`cargo {}` failed", args.join(" "));
    Ok(())
}

/// Runs cargo, and fails on any output besides the result, such as a warning.
///
/// Warnings are not denied by a compiler flag. Such a flag would stop at the first crate with a warning,
/// without checking its dependents, and could not share builds with a manual cargo run.
pub fn run_without_a_word(workspace: &Workspace, args: &[&str]) -> Result<()> {
    let color = if std::io::stderr().is_terminal() { "always" } else { "auto" };
    let mut child = command(workspace)
        .args(args)
        .args(["--quiet", "--color", color])
        .stderr(Stdio::piped())
        .spawn()
        .context("cargo does not start")?;
    let stderr = child.stderr.take().context("stderr is piped")?;
    let mut lines = 0;
    for line in BufReader::new(stderr).split(b'\n') {
        println!("{}", String::from_utf8_lossy(&line?));
        lines += 1;
    }
    ensure!(child.wait()?.success(), "`cargo {}` failed", args.join(" "));
    ensure!(lines == 0, "`cargo {}` has warnings", args.join(" "));
    Ok(())
}
