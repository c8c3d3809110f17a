//! `stream`: a line of text from source to sink. One file per subcommand.

mod check;
mod console;
mod modules;
mod remote;
mod rows;
mod run;
mod text;
mod top;
mod verbs;

use clap::Subcommand;
use indicatif::MultiProgress;

use crate::cli::failure;

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

Streams that are created run on a broker with streams.enabled=true, which --server names.
docs/streams.md is a tutorial of five minutes.
Exit codes: 0 when the streams are complete or were stopped with Ctrl-C, 1 when one failed, 2 when the text is wrong.")]
pub enum Stream {
    /// Run the streams of a text here, until their sources end or Ctrl-C is pressed.
    Run(run::Run),
    /// Say what is wrong with a text, and run nothing.
    Check(check::Check),
    /// List the stages that there are, or tell all about one.
    Modules(modules::Modules),
    Create(verbs::Create),
    Deploy(verbs::Deploy),
    /// Stop a stream in order, wherever it runs: what is on its way arrives.
    Undeploy(verbs::Named),
    /// Stop a stream in order, and forget it.
    Destroy(verbs::Named),
    List(verbs::List),
    /// Show how a stream is, and what its stages have done since it was started.
    Status(verbs::Named),
    Top(top::Top),
}

impl Stream {
    /// Does what was asked, on runtimes of its own.
    pub fn run(&self, bars: &MultiProgress) -> anyhow::Result<()> {
        match self {
            Stream::Run(run) => run.run(bars),
            Stream::Check(check) => check.run(),
            Stream::Modules(modules) => modules.run(),
            hosted => {
                failure::log_to_standard_error("warn", bars);
                tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(hosted.ask())
            }
        }
    }

    /// What a host is asked for.
    async fn ask(&self) -> anyhow::Result<()> {
        match self {
            Stream::Create(create) => create.run().await,
            Stream::Deploy(deploy) => deploy.run().await,
            Stream::Undeploy(named) => named.undeploy().await,
            Stream::Destroy(named) => named.destroy().await,
            Stream::List(list) => list.run().await,
            Stream::Status(named) => named.status().await,
            Stream::Top(top) => top.run().await,
            Stream::Run(_) | Stream::Check(_) | Stream::Modules(_) => unreachable!("they ask no host"),
        }
    }
}
