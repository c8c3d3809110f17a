//! The perf tools of the lab, with their output streams.

use indicatif::MultiProgress;
use thalweg_lab::perf::{PerfError, PerfOutput};

/// Runs a tool with standard output, and bars on standard error.
pub async fn run(
    json: bool,
    bars: &MultiProgress,
    tool: impl AsyncFnOnce(&PerfOutput) -> Result<(), PerfError>,
) -> anyhow::Result<()> {
    Ok(tool(&PerfOutput::standard(json, bars.clone())).await?)
}
