//! Where a text comes from: the command line or a file.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use thalweg_stream::plan::Plan;

/// The text of streams.
#[derive(Args, Debug)]
pub struct Text {
    /// The streams: `source | processor | sink`, each on a line of its own or with a ; between them.
    #[arg(value_name = "TEXT", required_unless_present = "file")]
    text: Option<String>,
    /// A file with the streams.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// What the first stream is called, if the text does not say.
    #[arg(long, value_name = "NAME", default_value = "stream")]
    name: String,
}

impl Text {
    /// What is to be run.
    pub fn plan(&self) -> anyhow::Result<Plan> {
        let plan = match (&self.text, &self.file) {
            (_, Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("Cannot read {}", file.display()))?;
                Plan::read(&text, Some(&file.display().to_string()), &self.name)
            }
            (text, None) => Plan::read(text.as_deref().unwrap_or_default(), None, &self.name),
        };
        Ok(plan?)
    }
}
