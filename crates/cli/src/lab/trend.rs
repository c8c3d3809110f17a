//! `lab trend`: the main figures of several results, in order.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use thalweg_lab::{report, result, terminal};

use crate::output::CommandOutput;

/// Show the main figures of several results, such as those of releases.
///
/// Points are paired by workload, label, target and driver. Each figure has its change since the result
/// before, with a 95 % interval; results of different machines have figures without changes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab trend 0.1/result.json 0.2/result.json 0.3/result.json
  thalweg lab trend */result.json --page trend.html      a page with a bar for each result")]
pub struct TrendCommand {
    /// The results, oldest first.
    #[arg(required = true, num_args = 2.., value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// Write a page for a browser, too.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    output: CommandOutput,
}

impl TrendCommand {
    /// Prints the trend of the results.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let names: Vec<String> = self.results.iter().map(|path| name(path)).collect();
        let mut runs = Vec::new();
        for (path, name) in self.results.iter().zip(&names) {
            let is_alone = names.iter().filter(|other| *other == name).count() == 1;
            let name = if is_alone { name.clone() } else { path.display().to_string() };
            runs.push((name, result::read(path)?));
        }
        let trend = report::trend(&runs);
        if let Some(page) = &self.page {
            result::write_whole(page, report::trend_page(&trend).as_bytes())
                .with_context(|| format!("--page {}", page.display()))?;
        }
        self.output.show(&trend, |style| Ok(terminal::trend(&trend, style.has_colours(), style.columns())))
    }
}

/// The name of a result: that of its directory, if the file has the usual name.
fn name(path: &Path) -> String {
    let directory = path.parent().and_then(Path::file_name);
    let named = match path.file_name() {
        Some(file) if file == "result.json" => directory.or(Some(file)),
        _ => path.file_stem(),
    };
    named.unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_the_name_that_differs_from_others() {
        assert_eq!(name(Path::new("0.1/result.json")), "0.1");
        assert_eq!(name(Path::new("docs/results/2026-11-22-quick.json")), "2026-11-22-quick");
        assert_eq!(name(Path::new("result.json")), "result.json");
    }
}
