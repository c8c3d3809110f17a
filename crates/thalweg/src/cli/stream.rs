//! `stream`: streams. One file per subcommand.

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
pub use remote::Http;

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
    Check(check::Check),
    Modules(modules::Modules),
    Create(verbs::Create),
    Deploy(verbs::Deploy),
    /// Stop a stream cleanly, wherever it runs: messages in flight are delivered.
    Undeploy(verbs::NamedStream),
    /// Stop a stream cleanly, and delete it.
    Destroy(verbs::NamedStream),
    List(verbs::List),
    /// Show the state of a stream and the figures of its stages.
    Status(verbs::NamedStream),
    Top(top::Top),
}

impl Stream {
    /// Runs the command, on its own runtime.
    pub fn run(&self, bars: &MultiProgress) -> anyhow::Result<()> {
        match self {
            Stream::Run(run) => run.run(bars),
            Stream::Check(check) => check.run(),
            Stream::Modules(modules) => modules.run(),
            hosted => {
                logging::begin_for_tool(bars);
                tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(hosted.ask())
            }
        }
    }

    /// The commands that contact a host.
    async fn ask(&self) -> anyhow::Result<()> {
        match self {
            Stream::Create(create) => create.run().await,
            Stream::Deploy(deploy) => deploy.run().await,
            Stream::Undeploy(named) => named.undeploy().await,
            Stream::Destroy(named) => named.destroy().await,
            Stream::List(list) => list.run().await,
            Stream::Status(named) => named.status().await,
            Stream::Top(top) => top.run().await,
            Stream::Run(_) | Stream::Check(_) | Stream::Modules(_) => unreachable!("they contact no host"),
        }
    }
}
