//! `lab doctor`: examines settings of machine and brokers that affect measurements.

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use thalweg_lab::doctor::{DiskTest, examine, text};
use thalweg_lab::target::TargetSpec;

use super::targets::RunningCluster;
use crate::failure::Usage;
use crate::output::CommandOutput;

/// Width of the text if there is no terminal.
const WIDTH: usize = 100;

/// Examine the settings of this machine and a cluster's brokers that affect measurements.
///
/// Prints findings with reasons and advice, and changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab doctor
  thalweg lab doctor --work-dir /var/lib/thalweg            the disk for the data
  thalweg lab doctor --work-dir /var/lib/thalweg --write-gb 10
  thalweg lab doctor --bootstrap localhost:9092             the brokers' configuration too")]
pub struct Doctor {
    /// A directory on the disk for the data.
    #[arg(long, value_name = "DIR", default_value = ".")]
    work_dir: PathBuf,
    /// Write so many GB (2^30 bytes) to the disk, in place of 256 MB for less than a second: more than its
    /// caches hold.
    #[arg(long, value_name = "GB", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    write_gb: Option<u64>,
    #[command(flatten)]
    cluster: RunningCluster,
    #[command(flatten)]
    output: CommandOutput,
}

impl Doctor {
    fn disk_test(&self) -> DiskTest {
        let Some(gb) = self.write_gb else { return DiskTest::short() };
        let bytes = gb << 30;
        // Nothing is drawn if standard error is not a terminal.
        let bar = ProgressBar::new(bytes);
        bar.set_style(
            ProgressStyle::with_template(
                "{bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta}",
            )
            .expect("a valid template"),
        );
        DiskTest::long(bytes, move |written| match written < bytes {
            true => bar.set_position(written),
            false => bar.finish_and_clear(),
        })
    }

    /// Runs the examination.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.cluster.spec()?;
        let brokers = match &cluster {
            Some(TargetSpec::Bootstrap { servers, properties }) => Some((servers.as_slice(), properties)),
            Some(TargetSpec::PulsarCluster { .. }) => {
                let message = "lab doctor examines Kafka's protocol: it has no advice on brokers of Pulsar";
                return Err(Usage(message.to_owned()).into());
            }
            _ => None,
        };
        let advice = examine(&self.work_dir, self.disk_test(), brokers).await;
        let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH);
        self.output.show(&advice, |_| Ok(text(&advice, width)))
    }
}
