//! `pulsar-perf produce` and `pulsar-perf consume`: the output lines and the usual options of Pulsar 4.0's
//! tool, on the lab's client of Pulsar's protocol. `docs/lab.md` lists the options that are missing.

mod arguments;
mod consumer;
mod lines;
mod producer;

pub use arguments::with_long_names;
pub use consumer::PulsarConsume;
pub use producer::PulsarProduce;

use std::time::Duration;

use clap::Subcommand;
use thalweg_pulsar::{Client, ClientOptions, TopicName};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};

use super::{PerfError, PerfOutput};
use crate::BoxFuture;

/// The time between two lines of Pulsar's tool.
const INTERVAL: Duration = Duration::from_secs(10);

/// Measure Apache Pulsar, like its own pulsar-perf.
#[derive(Subcommand, Debug, Clone)]
pub enum PulsarPerf {
    Produce(PulsarProduce),
    Consume(PulsarConsume),
}

impl PulsarPerf {
    /// Runs the test.
    pub fn run<'a>(&'a self, output: &'a PerfOutput) -> BoxFuture<'a, Result<(), PerfError>> {
        match self {
            PulsarPerf::Produce(produce) => Box::pin(produce.perform(output)),
            PulsarPerf::Consume(consume) => Box::pin(consume.perform(output)),
        }
    }
}

/// The cluster and the end of a test.
#[derive(clap::Args, Debug, Clone)]
struct Test {
    /// The service URL.
    #[arg(short = 'u', long, value_name = "URL", default_value = "pulsar://localhost:6650/")]
    service_url: String,
    /// Number of topics. With one name of a topic, a separator and a number are added to it.
    #[arg(short = 't', long, visible_alias = "num-topic", value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    num_topics: u32,
    /// Number of messages in total; 0 or less for no limit.
    #[arg(short = 'm', long, value_name = "COUNT", default_value_t = 0, allow_negative_numbers = true)]
    num_messages: i64,
    /// [short: -time] Duration of the test in seconds; 0 or less for no limit.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    test_duration: i64,
    /// Interval of the client's statistics, which this client does not print.
    #[arg(short = 'i', long, value_name = "SECONDS", hide = true)]
    stats_interval_seconds: Option<u64>,
    /// The topics: names, or persistent://TENANT/NAMESPACE/TOPIC.
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
}

impl Test {
    /// The topics, as many as requested.
    fn topics(&self, separator: &str) -> Result<Vec<String>, PerfError> {
        let count = self.num_topics as usize;
        match self.topics.len() {
            given if given == count => Ok(self.topics.clone()),
            1 => Ok((0..count).map(|number| format!("{}{separator}{number}", self.topics[0])).collect()),
            given => Err(PerfError::Usage(format!(
                "{given} topics are given, but --num-topics is {count}: give one, or as many as that"
            ))),
        }
    }

    async fn connect(&self) -> Result<Client, PerfError> {
        let connected = Client::connect(&self.service_url, ClientOptions::default()).await;
        Ok(connected.map_err(Box::new)?)
    }

    /// The end of the test, if it is limited.
    fn until(&self) -> Option<Instant> {
        let limit = positive(self.test_duration)?;
        Some(Instant::now() + Duration::from_secs(limit))
    }

    /// The number of messages, if it is limited.
    fn most(&self) -> Option<u64> {
        positive(self.num_messages)
    }

    /// True once as many messages have passed as requested.
    fn has_all(&self, messages: u64) -> bool {
        self.most().is_some_and(|most| messages >= most)
    }
}

/// A limit of Pulsar's tool: none if it is not positive.
fn positive(limit: i64) -> Option<u64> {
    u64::try_from(limit).ok().filter(|limit| *limit > 0)
}

/// The partitions of topics, in order.
async fn partitions(client: &Client, topics: &[String]) -> Result<Vec<Vec<TopicName>>, PerfError> {
    let mut all = Vec::new();
    for topic in topics {
        all.push(client.partitions(topic).await.map_err(Box::new)?);
    }
    Ok(all)
}

/// Prints a line after each interval. Returns the error that ended the output.
async fn print_intervals(
    began: Instant,
    mut line: impl FnMut() -> String,
    print: impl Fn(&str) -> std::io::Result<()>,
) -> PerfError {
    let mut tick = tokio::time::interval_at(began + INTERVAL, INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = print(&line()) {
            return error.into();
        }
    }
}

/// Waits for a time, or forever.
async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// SIGINT (Ctrl-C) and SIGTERM. The first one ends a test with its last lines, the second one all waiting.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// From now on neither signal ends the process.
    fn listen() -> std::io::Result<Interrupts> {
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Interrupts { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
    }

    /// Waits for the next signal.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal as Raised, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn both_signals_interrupt_a_test_and_again_its_end() {
        let mut interrupts = Interrupts::listen().expect("signals");
        for raised in [Raised::INT, Raised::TERM, Raised::INT] {
            kill_process(getpid(), raised).expect("sent");
            let next = tokio::time::timeout(Duration::from_secs(5), interrupts.next()).await;
            next.expect("the signal arrives");
        }
    }
}
