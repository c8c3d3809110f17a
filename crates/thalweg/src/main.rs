//! The `thalweg` binary: arguments, wiring, signals. No logic.

mod cli;
mod console;
mod hosting;
mod http;
mod logging;
mod program;
mod secure;

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::completion::answer();
    let command = cli::Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cli::failure::report(&error),
    }
}
