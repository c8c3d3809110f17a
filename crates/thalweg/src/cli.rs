//! The command line: the root command, and the subcommands that serve in this process, one per file. The
//! others are in [`thalweg_cli`].
//!
//! The help text below lists the exit codes; [`thalweg_cli::failure`] chooses the code of an error.

mod console;
mod serve;
mod stream;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use indicatif::MultiProgress;
use thalweg_cli::{
    CommandFuture, broker, cluster, completion, config, connect, consume, debug, feature, global, group,
    kafka_names, lab, man, perf, produce, profile, profile_command, quorum, quota, security, top, topic,
    transaction,
};
use tokio::runtime::Builder;

use crate::logging;

/// An event streaming platform in one binary that speaks Kafka's wire protocol.
#[derive(Parser, Debug)]
#[command(
    version,
    propagate_version = true,
    max_term_width = 110,
    after_help = "\
Examples:
  thalweg serve
  thalweg topic create orders --partitions 6
  echo hello | thalweg produce orders
  thalweg consume orders --from-beginning --max-messages 1
  thalweg cluster up --brokers 3             a cluster on this machine, until Ctrl-C
  thalweg lab run quick                      how many events per second this machine carries
  thalweg stream run 'time | log'            a line from source to sink

Commands with --bootstrap-server talk to any cluster that speaks Kafka's protocol; lab takes --bootstrap.
--format table|json|yaml of each command with a result may also stand before the command.

Exit codes:
  0  success
  1  failure
  2  invalid arguments or settings
  3  cluster status: the cluster is degraded
  4  cluster status: the cluster is unavailable
  5  no broker answers
  6  refused: the login failed, or an ACL does not allow it
  7  what was named, such as a topic or a group, does not exist"
)]
pub struct Cli {
    #[command(flatten)]
    global: global::GlobalOptions,
    /// True if a profile has an effect on the command.
    #[arg(skip)]
    uses_profile: bool,
    #[command(subcommand)]
    command: Command,
}

/// The help texts of the commands are at their arguments.
#[derive(Subcommand, Debug)]
enum Command {
    Serve(serve::Serve),
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    Top(top::Top),
    #[command(subcommand)]
    Topic(topic::Topic),
    #[command(subcommand)]
    Group(group::Group),
    Console(console::Console),
    Produce(produce::Produce),
    Consume(consume::Consume),
    #[command(subcommand)]
    Transaction(transaction::Transaction),
    #[command(subcommand)]
    Broker(broker::Broker),
    #[command(subcommand)]
    Config(config::Config),
    #[command(subcommand)]
    Quota(quota::Quota),
    #[command(subcommand)]
    Feature(feature::Feature),
    #[command(subcommand)]
    Quorum(quorum::Quorum),
    #[command(subcommand)]
    Security(security::Security),
    /// Measure how many events a cluster carries, how it scales, and what limits it.
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Run streams: one line from source to sink.
    #[command(subcommand)]
    Stream(stream::Stream),
    ProducerPerfTest(thalweg_lab::perf::ProducerPerformance),
    ConsumerPerfTest(thalweg_lab::perf::ConsumerPerformance),
    ShareConsumerPerfTest(thalweg_lab::perf::ShareConsumerPerformance),
    E2eLatency(thalweg_lab::perf::EndToEndLatency),
    /// Measure Apache Pulsar, like its own pulsar-perf.
    #[command(subcommand)]
    PulsarPerf(thalweg_lab::perf::PulsarPerf),
    #[command(subcommand)]
    Profile(profile_command::ProfileCommand),
    #[command(subcommand)]
    Debug(debug::DebugCommand),
    Completion(completion::Completion),
    Man(man::Man),
}

/// All commands with their arguments.
pub fn command() -> clap::Command {
    global::hide_without_effect(Cli::command())
}

impl Cli {
    /// Parses the arguments of this process, or of another.
    pub fn read(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Cli, clap::Error> {
        let mut command = command();
        let arguments = kafka_names::understood(arguments.into_iter().map(Into::into).collect());
        let matches = command
            .try_get_matches_from_mut(thalweg_lab::perf::understood(arguments.iter().cloned()))
            .map_err(|error| kafka_names::with_advice(error, &arguments))?;
        global::refuse_without_effect(&mut command, &matches)?;
        let parsed = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        Ok(Cli { uses_profile: global::uses_profile(&matches), ..parsed })
    }

    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<()> {
        // Nothing is drawn if standard error is not a terminal.
        let bars = &MultiProgress::new();
        if self.uses_profile {
            profile::activate(self.global.profile.as_deref())?;
        }
        let tool: CommandFuture<'_> = match &self.command {
            Command::Serve(serve) => return serve.run(bars),
            Command::Stream(stream) => return stream.run(bars),
            Command::Lab(lab) => return lab.run(|tool| run_beside_tasks(bars, tool)),
            Command::Cluster(cluster) => cluster.run(),
            Command::Top(top) => return run_beside_tasks(bars, top.run()),
            Command::Topic(topic) => topic.run(),
            Command::Group(group) => group.run(),
            Command::Console(console) => Box::pin(console.run()),
            Command::Produce(produce) => produce.run(),
            Command::Consume(consume) => return run_beside_tasks(bars, consume.run()),
            Command::Transaction(transaction) => transaction.run(),
            Command::Broker(broker) => broker.run(),
            Command::Config(config) => config.run(),
            Command::Quota(quota) => quota.run(),
            Command::Feature(feature) => feature.run(),
            Command::Quorum(quorum) => quorum.run(),
            Command::Security(security) => security.run(),
            Command::ProducerPerfTest(test) => {
                Box::pin(perf::run(test.is_json(), bars, async |output| test.run(output).await))
            }
            Command::ConsumerPerfTest(test) => {
                Box::pin(perf::run(test.is_json(), bars, async |output| test.run(output).await))
            }
            Command::ShareConsumerPerfTest(test) => {
                Box::pin(perf::run(test.is_json(), bars, async |output| test.run(output).await))
            }
            Command::E2eLatency(test) => {
                Box::pin(perf::run(test.is_json(), bars, async |output| test.run(output).await))
            }
            Command::PulsarPerf(test) => {
                Box::pin(perf::run(false, bars, async |output| test.run(output).await))
            }
            Command::Profile(profile) => Box::pin(async { profile.run() }),
            Command::Debug(debug) => debug.run(),
            Command::Completion(completion) => Box::pin(async { completion.run() }),
            Command::Man(man) => Box::pin(async { man.run(command()) }),
        };
        run_tool(bars, tool)
    }
}

/// Runs a command that serves nothing, with the log of a tool.
fn run_tool(bars: &MultiProgress, tool: CommandFuture<'_>) -> anyhow::Result<()> {
    // One thread: a tool's cost should be its own work, not switching between threads.
    run_on(Builder::new_current_thread(), bars, tool)
}

/// Runs a command like [`run_tool`], and its tasks on another thread: a member of a group, or a worker on an
/// agent, stays alive, and signals are heeded, while the command waits for its output to be read.
fn run_beside_tasks(bars: &MultiProgress, tool: CommandFuture<'_>) -> anyhow::Result<()> {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1);
    run_on(runtime, bars, tool)
}

fn run_on(mut runtime: Builder, bars: &MultiProgress, tool: CommandFuture<'_>) -> anyhow::Result<()> {
    logging::begin_for_tool(bars);
    runtime.enable_all().build()?.block_on(async {
        tokio::select! {
            biased;
            ended = tool => ended,
            () = connect::report_waits() => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        command().debug_assert();
    }

    /// If both an enum variant and its arguments have a description, clap shows the variant's and drops the
    /// longer one. So variants have no description.
    #[test]
    fn long_descriptions_are_in_the_help() {
        for (path, part) in [
            ("cluster status", "Exit codes: 0 healthy"),
            ("topic trim", "Shows the records to be deleted; --execute deletes them"),
            ("topic move", "Only these replicas move"),
            ("group reset", "An offset before the first"),
            ("transaction abort", "use `transaction fence`"),
            ("security certificate node", "The authority is that of the directory"),
            ("security certificate client", "whose principal becomes User:CN=NAME"),
            ("lab run", "evidence"),
        ] {
            let mut command = command();
            let found =
                path.split(' ').try_fold(&mut command, |command, name| command.find_subcommand_mut(name));
            let help = found.expect(path).render_long_help().to_string();
            let words: Vec<&str> = help.split_whitespace().collect();
            assert!(words.join(" ").contains(part), "{path}: {help}");
        }
    }

    #[test]
    fn the_summary_of_a_command_is_a_sentence() {
        fn check(command: &clap::Command, path: &str) {
            for below in command.get_subcommands() {
                let path = format!("{path} {}", below.get_name());
                let about = below.get_about().map(ToString::to_string).unwrap_or_default();
                assert!(!about.is_empty(), "{path} has no description");
                assert!(about.len() < 130, "{path}: {about}");
                check(below, &path);
            }
        }
        check(&command(), "thalweg");
    }

    /// The commands without subcommands, with their names.
    fn leaves() -> Vec<(String, clap::Command)> {
        fn collect(command: &clap::Command, path: &str, leaves: &mut Vec<(String, clap::Command)>) {
            for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
                let path = format!("{path} {}", below.get_name()).trim_start().to_owned();
                match below.has_subcommands() {
                    true => collect(below, &path, leaves),
                    false => leaves.push((path, below.clone())),
                }
            }
        }
        let mut root = command();
        root.build();
        let mut leaves = Vec::new();
        collect(&root, "", &mut leaves);
        leaves
    }

    #[test]
    fn a_profile_is_taken_by_commands_with_a_connection_and_by_no_others() {
        let mut hidden = Vec::new();
        for (path, command) in leaves() {
            let shows =
                |id: &str| command.get_arguments().any(|arg| arg.get_id() == id && !arg.is_hide_set());
            let connects = shows("bootstrap_server") || shows("server");
            let takes_profile = shows("profile");
            assert!(connects || !takes_profile, "{path} needs a line in WITHOUT_PROFILE");
            if connects && !takes_profile {
                hidden.push(path);
            }
        }
        let measuring_and_profiles = [
            "producer-perf-test",
            "consumer-perf-test",
            "share-consumer-perf-test",
            "e2e-latency",
            "profile create",
        ];
        assert_eq!(hidden, measuring_and_profiles);
    }

    #[test]
    fn each_command_is_in_the_documentation() {
        let page = include_str!("../../../docs/commands.md");
        for (path, _) in leaves().into_iter().filter(|(_, command)| !command.is_hide_set()) {
            assert!(page.contains(&format!("`thalweg {path}`")), "docs/commands.md lacks `thalweg {path}`");
        }
    }

    #[test]
    fn kafkas_own_spellings_of_the_perf_tools_are_understood() {
        for line in [
            "thalweg producer-perf-test --topic t --num-records 10 --record-size 5 --throughput -1 \
             --producer-props bootstrap.servers=b:1 acks=1 --print-metrics",
            "thalweg producer-perf-test --topic t --num-records 10 --payload-monotonic --throughput 5.5 \
             --producer.config f --warmup-records 3 --reporting-interval 100",
            "thalweg consumer-perf-test --bootstrap-server b:1 --topic t --messages 10 --consumer.config f --timeout",
            "thalweg consumer-perf-test --include t.* --num-records 10 --hide-header --from-latest",
            "thalweg share-consumer-perf-test --bootstrap-server b:1 --topic t --num-records 10 --threads 12 --group g \
             --command-property share.acknowledgement.mode=explicit --timeout",
            "thalweg e2e-latency --bootstrap-server b:1 --topic t --num-records 1 --producer-acks all --record-size 9 \
             --num-headers 2 --record-header-size -1",
            "thalweg e2e-latency b:1 topic 100 all 20",
            "thalweg producer-perf-test perf 300000000 1000 -1 acks=1 bootstrap.servers=b:1 batch.size=128000",
            "thalweg consumer-perf-test --broker-list b:1 --messages 5 --topic t --threads 10",
            "thalweg pulsar-perf produce persistent://public/default/test1 -s 1000 -r 200000",
            "thalweg pulsar-perf produce -u pulsar://b:1 -m 5 -time 9 -bm 10 -bb 2000 -b 0.5 -db -z LZ4 -o 1000 -n 2 -t 2 a b",
            "thalweg pulsar-perf consume -ss a -ss b -ns 2 -st Key_Shared -sp Earliest -q 500 -n 3 -i 5 t",
        ] {
            if let Err(error) = Cli::read(line.split_whitespace()) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn options_of_zookeepers_time_are_refused_with_the_one_of_today() {
        for line in [
            "thalweg topic create t --zookeeper z:2181",
            "thalweg consumer-perf-test --zookeeper=z:2181 --topic t --messages 5 --threads 1",
            "thalweg lab run quick --zookeeper z:2181",
        ] {
            let error = Cli::read(line.split_whitespace()).expect_err("no such option").to_string();
            assert!(error.contains("the brokers are reached by"), "{line}: {error}");
            assert!(error.contains("use: thalweg "), "{line}: {error}");
        }
        let other = Cli::read(["thalweg", "topic", "list", "--zoo"]).expect_err("no such option").to_string();
        assert!(!other.contains("the brokers are reached by"), "{other}");
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for line in [
            "thalweg producer-perf-test --topic t --num-records 10 --throughput -1",
            "thalweg producer-perf-test --topic t --num-records 0 --record-size 5 --throughput -1",
            "thalweg producer-perf-test --topic t --num-records 9 --record-size 5 --payload-monotonic --throughput -1",
            "thalweg consumer-perf-test --topic t --include t --num-records 10",
            "thalweg share-consumer-perf-test --topic t --num-records 10 --threads 0",
            "thalweg e2e-latency --topic t --num-records 1 --producer-acks 0 --record-size 9",
            "thalweg e2e-latency --topic t --num-records 1 --producer-acks 1",
            "thalweg topic create",
            "thalweg consume t --from-beginning --offset 3",
        ] {
            let error = Cli::read(line.split_whitespace()).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn a_format_may_stand_before_or_after_the_command() {
        for line in [
            "thalweg topic list --format yaml",
            "thalweg --format yaml topic list",
            "thalweg topic --format yaml list",
        ] {
            let shown = format!("{:?}", Cli::read(line.split_whitespace()).expect(line).command);
            assert!(shown.contains("format: Some(\"yaml\")"), "{line}: {shown}");
        }
        for line in ["thalweg --json topic list", "thalweg topic list --json", "thalweg --json serve"] {
            let shown = format!("{:?}", Cli::read(line.split_whitespace()).expect(line).command);
            assert!(shown.contains("json: true"), "{line}: {shown}");
        }
    }

    #[test]
    fn an_option_that_would_be_ignored_is_refused() {
        for line in
            ["thalweg serve --format json", "thalweg --json lab worker", "thalweg lab --format yaml worker"]
        {
            let error = Cli::read(line.split_whitespace()).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains("has no effect on `"), "{line}: {error}");
        }
        for line in ["thalweg topic list --json --format yaml", "thalweg topic list --format xml"] {
            assert_eq!(Cli::read(line.split_whitespace()).expect_err(line).exit_code(), 2, "{line}");
        }
    }
}
