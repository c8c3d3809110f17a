//! The `thalweg` program: arguments, wiring, signals. A library, so that it compiles while lower crates are
//! still being optimised; a binary would wait for all of them.

mod cli;
mod console;
mod hosting;
mod http;
mod logging;

use std::process::ExitCode;

use thalweg_cli::{completion, failure};

/// Runs the command in this process's arguments.
pub fn run() -> ExitCode {
    completion::answer(cli::command);
    let command = cli::Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Prints the reason, and returns the exit code.
fn report(error: &anyhow::Error) -> ExitCode {
    match failure::reason(error) {
        Some((reason, code)) => {
            logging::print_complaint(&reason);
            ExitCode::from(code)
        }
        None => ExitCode::SUCCESS,
    }
}
