//! `lab report`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use thalweg_lab::{report, result};

/// Write the report of a result anew.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab report result.json                 writes result.html
  thalweg lab report result.json -o report.html
  thalweg lab report result.json -o -            to standard output")]
pub struct Report {
    /// The result.
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Where the page goes [default: beside the result].
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
}

impl Report {
    /// Writes it.
    pub fn run(&self) -> anyhow::Result<()> {
        let page = report::html(&result::read(&self.result)?);
        let path = self.output.clone().unwrap_or_else(|| self.result.with_extension("html"));
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
