//! The perf tools of the lab: where their lines go.

use thalweg_lab::perf::{Output, PerfError};

/// Runs a tool with standard output.
pub async fn run(json: bool, tool: impl AsyncFnOnce(&Output) -> Result<(), PerfError>) -> anyhow::Result<()> {
    Ok(tool(&Output::standard(json)).await?)
}
