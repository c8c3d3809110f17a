//! `lab report`: writes the reports of results.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use thalweg_lab::{report, result};

use super::result_directory::write_for_omb;
use super::run::OmbResult;
use crate::failure::Usage;

/// Write the reports of results.
///
/// Results of earlier versions are read, too.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab report result.json                 writes result.html
  thalweg lab report docs/results/*-lab*.json    a page beside each
  thalweg lab report result.json -o report.html
  thalweg lab report result.json -o -            to standard output
  thalweg lab report result.json --format markdown -o -
                                                 tables for a README or a wiki")]
pub struct Report {
    /// The results to report on.
    #[arg(required = true, value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// The output file, for one result [default: beside the result].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The format: a page for a browser, or a table per workload, with figures that are not quotable in
    /// brackets.
    // A String, like `--format` of other commands, because the option may precede the command.
    #[arg(long, value_name = "FORMAT", value_parser = ["html", "markdown"], default_value = "html")]
    format: String,
    #[command(flatten)]
    omb: OmbResult,
}

impl Report {
    /// Writes the reports. Reports of readable results are written even if other results cannot be read.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let (Some(output), true) = (&self.output, self.results.len() > 1) {
            let message =
                format!("--output {} is one file for {} results", output.display(), self.results.len());
            return Err(Usage(format!("{message}: leave it out, or report one at a time")).into());
        }
        let outcomes: Vec<anyhow::Result<()>> = self.results.iter().map(|path| self.write(path)).collect();
        outcomes.into_iter().collect()
    }

    fn write(&self, result: &Path) -> anyhow::Result<()> {
        let run = result::read(result)?;
        if self.omb.omb_result {
            let beside = result.parent().unwrap_or(Path::new(""));
            for path in write_for_omb(beside, &run)? {
                // On standard error, because the page may go to standard output.
                writeln!(std::io::stderr(), "{}", path.display())?;
            }
        }
        let (page, extension) = match self.format.as_str() {
            "markdown" => (report::markdown(&run), "md"),
            _ => (report::html(&run), "html"),
        };
        let path = self.output.clone().unwrap_or_else(|| result.with_extension(extension));
        let mut out = std::io::stdout().lock();
        if path.as_os_str() == "-" {
            out.write_all(page.as_bytes())?;
        } else {
            result::write_whole(&path, page.as_bytes())?;
            writeln!(out, "{}", path.display())?;
        }
        Ok(())
    }
}
