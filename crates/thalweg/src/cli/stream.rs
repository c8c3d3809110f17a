//! `stream`: a line of text from source to sink. One file per subcommand.

mod check;
mod console;
mod modules;
mod run;
mod text;

use clap::Subcommand;
use indicatif::MultiProgress;

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

docs/streams.md is a tutorial of five minutes.
Exit codes: 0 when the streams are complete or were stopped with Ctrl-C, 1 when one failed, 2 when the text is wrong.")]
pub enum Stream {
    /// Run the streams of a text, until their sources end or Ctrl-C is pressed.
    Run(run::Run),
    /// Say what is wrong with a text, and run nothing.
    Check(check::Check),
    /// List the stages that there are, or tell all about one.
    Modules(modules::Modules),
}

impl Stream {
    /// Does what was asked, on runtimes of its own.
    pub fn run(&self, bars: &MultiProgress) -> anyhow::Result<()> {
        match self {
            Stream::Run(run) => run.run(bars),
            Stream::Check(check) => check.run(),
            Stream::Modules(modules) => modules.run(),
        }
    }
}
