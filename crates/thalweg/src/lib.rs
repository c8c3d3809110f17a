//! The `thalweg` program: arguments, wiring, signals. A library, so that it compiles while lower crates are
//! still being optimised; a binary would wait for all of them.

mod cli;
mod console;
mod hosting;
mod http;
mod logging;
mod program;
mod secure;

use std::process::ExitCode;

/// Runs the command in this process's arguments.
pub fn run() -> ExitCode {
    cli::completion::answer();
    let command = cli::Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cli::failure::report(&error),
    }
}
