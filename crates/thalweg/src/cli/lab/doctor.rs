//! `lab doctor`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use thalweg_lab::doctor::{examine, text};
use thalweg_lab::target::TargetSpec;

use super::targets::RunningCluster;

/// Columns of the text, where a terminal does not say.
const WIDTH: usize = 100;

/// Say what of this machine and of a cluster's brokers would matter for the figures, and why.
///
/// It changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab doctor
  thalweg lab doctor --work-dir /var/lib/thalweg            the disk that will hold the data
  thalweg lab doctor --bootstrap localhost:9092             the brokers' configuration too")]
pub struct Doctor {
    /// A folder on the disk that holds, or will hold, the data.
    #[arg(long, value_name = "DIR", default_value = ".")]
    work_dir: PathBuf,
    #[command(flatten)]
    cluster: RunningCluster,
    /// One JSON array instead of text.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Examines.
    pub async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.cluster.spec()?;
        let brokers = match &cluster {
            Some(TargetSpec::Bootstrap { servers, properties }) => Some((servers.as_slice(), properties)),
            _ => None,
        };
        let advice = examine(&self.work_dir, brokers).await;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&advice)?)?;
        } else {
            let width =
                std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH);
            write!(out, "{}", text(&advice, width))?;
        }
        Ok(())
    }
}
