//! Code generation, tidy checks, and the one check that CI runs.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

mod check;
mod codegen;
mod figures;
mod fresh;
mod schema;
mod tidy;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Development tasks of the project.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every check of the workspace: what CI runs
    Check {
        /// Skip a step, such as the tests, which take the longest
        #[arg(long, value_name = "STEP", value_parser = check::names())]
        skip: Vec<String>,
        #[command(flatten)]
        options: check::Options,
    },
    /// Check the rules that the compiler does not cover
    Tidy,
    /// List published figures that are older than the code that they measure: before a release
    Figures,
    /// Generate the Rust code of Kafka's messages from crates/wire/schema
    Codegen {
        /// Change nothing; fail if a generated file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Write crates/wire/schema from the definitions inside Kafka's jars
    Schema {
        /// Kafka's jars: paths separated by colons, `DIR/*` for all of a folder
        #[arg(long, env = "KAFKA_CLASSPATH")]
        classpath: String,
        /// Change nothing; fail if a schema differs from the jars
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    match perform(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(command: Command) -> Result<()> {
    let root = root()?;
    match command {
        Command::Check { skip, options } => check::run(&root, &skip, options),
        Command::Tidy => tidy::run(&root),
        Command::Figures => figures::run(&root),
        Command::Codegen { check } => codegen::run(&root, check),
        Command::Schema { classpath, check } => schema::run(&root, &classpath, check),
    }
}

fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    Ok(root.to_owned())
}
