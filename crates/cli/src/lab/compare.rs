//! `lab compare`: compares two results point by point.

use std::path::PathBuf;

use clap::Args;
use thalweg_lab::result::Pairing;
use thalweg_lab::{result, terminal};

use crate::failure::Usage;
use crate::output::CommandOutput;

/// Compare two results: ratios with their confidence.
///
/// Points are paired by workload, label, target and driver. Points that differ in settings or length are
/// refused, with the difference. Results of different machines, or of one whose kernel was updated, have
/// their figures side by side, without ratios.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab compare before/result.json after/result.json
  thalweg lab compare run/result.json run/result.json --targets apache-kafka,embedded   head to head, within one run")]
pub struct Compare {
    /// The first result.
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// The second result; ratios divide it by the first.
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Compare a target of the first result with another of the second.
    #[arg(long, value_name = "TARGET,TARGET")]
    targets: Option<String>,
    #[command(flatten)]
    output: CommandOutput,
}

impl Compare {
    /// Prints the comparison of two results.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (a, b) = (result::read(&self.a)?, result::read(&self.b)?);
        let pairing = match &self.targets {
            None => Pairing::SameTarget,
            Some(text) => match text.split_once(',') {
                Some((a, b)) => Pairing::Targets { a: a.trim().to_owned(), b: b.trim().to_owned() },
                None => {
                    let message =
                        format!("--targets {text} is one name: use two, such as apache-kafka,embedded");
                    return Err(Usage(message).into());
                }
            },
        };
        let comparison = result::compare(&a, &b, &pairing)?;
        self.output.show(&comparison, |style| {
            Ok(terminal::comparison(&comparison, style.has_colours(), style.columns()))
        })
    }
}
