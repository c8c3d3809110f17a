//! `lab report`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use thalweg_lab::{report, result};

use super::output::write_for_omb;
use super::run::OmbResult;

/// Write the report of a result.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab report result.json                 writes result.html
  thalweg lab report result.json -o report.html
  thalweg lab report result.json -o -            to standard output
  thalweg lab report result.json --format markdown -o -
                                                 tables for a README or a wiki")]
pub struct Report {
    /// The result.
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// The output file [default: beside the result].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The format.
    #[arg(long, value_enum, default_value_t = Format::Html)]
    format: Format,
    #[command(flatten)]
    omb: OmbResult,
}

/// The formats of a report.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Format {
    /// A page for a browser.
    Html,
    /// A table per workload; figures that are not quotable are in brackets.
    Markdown,
}

impl Report {
    /// Writes the report.
    pub fn run(&self) -> anyhow::Result<()> {
        let run = result::read(&self.result)?;
        if self.omb.omb_result {
            let beside = self.result.parent().unwrap_or(Path::new(""));
            for path in write_for_omb(beside, &run)? {
                // The page may go to standard output.
                writeln!(std::io::stderr(), "{}", path.display())?;
            }
        }
        let (page, extension) = match self.format {
            Format::Html => (report::html(&run), "html"),
            Format::Markdown => (report::markdown(&run), "md"),
        };
        let path = self.output.clone().unwrap_or_else(|| self.result.with_extension(extension));
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
