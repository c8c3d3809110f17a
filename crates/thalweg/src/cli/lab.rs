//! `thalweg lab`: so far its workers only.

use clap::Subcommand;

/// The performance laboratory.
#[derive(Subcommand, Debug)]
pub enum Lab {
    /// Produces or consumes for the lab, which starts it and speaks to it through its standard input and output.
    #[command(hide = true)]
    Worker,
}

impl Lab {
    /// Does what was asked.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Lab::Worker => {
                super::failure::log_to_standard_error("warn");
                Ok(thalweg_lab::worker::serve()?)
            }
        }
    }
}
