//! `lab report`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use thalweg_lab::{report, result};

use super::output::write_for_omb;
use super::run::OmbResult;

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
    #[command(flatten)]
    omb: OmbResult,
}

impl Report {
    /// Writes it.
    pub fn run(&self) -> anyhow::Result<()> {
        let run = result::read(&self.result)?;
        if self.omb.omb_result {
            let beside = self.result.parent().unwrap_or(Path::new(""));
            for path in write_for_omb(beside, &run)? {
                // The page may be what goes to standard output.
                writeln!(std::io::stderr(), "{}", path.display())?;
            }
        }
        let page = report::html(&run);
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
