//! `stream`: streams in this process, and those that a broker hosts.

mod console;
mod run;

use clap::Subcommand;
use indicatif::MultiProgress;
use thalweg_cli::stream::{Check, HostedCommand, Modules};

use crate::logging;

/// Run streams: one line from source to sink.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  thalweg stream run 'time | log'
  thalweg stream run 'load-generator --messageCount=500000000 --messageSize=1000 | throughput'
  thalweg stream run \"stdin | filter --expression='payload.amount > 1000' | stdout\" < orders.json
  thalweg stream run --file orders.stream
  thalweg stream check --file orders.stream
  thalweg stream modules filter
  thalweg stream create ticks --definition 'time | log' --deploy
  thalweg stream top

Created streams run on a broker with streams.enabled=true, which --server names.
docs/streams.md is a five-minute tutorial.
Exit codes: 0 if the streams are complete or were stopped with Ctrl-C, 1 if one failed, 2 if the text is invalid.")]
pub enum Stream {
    Run(run::Run),
    Check(Check),
    Modules(Modules),
    #[command(flatten)]
    Hosted(HostedCommand),
}

impl Stream {
    /// Runs the command, on its own runtime.
    pub fn run(&self, bars: &MultiProgress) -> anyhow::Result<()> {
        match self {
            Stream::Run(run) => run.run(bars),
            Stream::Check(check) => check.run(),
            Stream::Modules(modules) => modules.run(),
            Stream::Hosted(hosted) => {
                logging::begin_for_tool(bars);
                tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(hosted.run())
            }
        }
    }
}
