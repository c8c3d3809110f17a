//! `broker log-dirs` and `broker move-replica`: log directories, and moves of replicas between them.

use std::collections::BTreeMap;

use anyhow::Error;
use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, LogDir, Replica};

use crate::connect::Connect;
use crate::outcomes::{add_outcomes, fail_with};
use crate::output::{Column, CommandOutput};
use crate::partitions::{Partitions, resolve};

/// Show the log directories of brokers: size, free space, replicas.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg broker log-dirs
  thalweg broker log-dirs 1 --topic orders --replicas")]
pub struct LogDirs {
    #[command(flatten)]
    connect: Connect,
    /// Brokers to show [default: all].
    #[arg(value_name = "ID")]
    brokers: Vec<i32>,
    /// Show only replicas of a topic, or of some of its partitions as TOPIC:0,3; can be repeated.
    #[arg(long = "topic", value_name = "TOPIC[:PARTITION,...]")]
    topics: Vec<Partitions>,
    /// Show each replica instead of each directory.
    #[arg(long)]
    replicas: bool,
    #[command(flatten)]
    output: CommandOutput,
}

const DIRS: [Column<'_>; 7] = [
    ("BROKER", "broker"),
    ("LOG-DIR", "log_dir"),
    ("REPLICAS", "replica_count"),
    ("BYTES", "bytes"),
    ("TOTAL-BYTES", "total_bytes"),
    ("USABLE-BYTES", "usable_bytes"),
    ("ERROR", "error"),
];
const REPLICAS: [Column<'_>; 7] = [
    ("BROKER", "broker"),
    ("LOG-DIR", "log_dir"),
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("BYTES", "bytes"),
    ("LAG", "lag"),
    ("MOVES-HERE", "is_future"),
];

impl LogDirs {
    /// Prints a row per log directory, or per replica with `--replicas`.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let partitions = match self.topics.is_empty() {
            true => None,
            false => Some(resolve(admin.cluster(), &self.topics).await?.into_iter().collect::<Vec<_>>()),
        };
        let brokers = (!self.brokers.is_empty()).then_some(&*self.brokers);
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        for (broker, dirs) in admin.describe_log_dirs(brokers, partitions.as_deref()).await? {
            let dirs = match dirs {
                Ok(dirs) => dirs,
                Err(error) => {
                    errors.push(Error::new(error).context(format!("Broker {broker}")));
                    continue;
                }
            };
            for (path, dir) in dirs {
                match (dir, self.replicas) {
                    (Ok(dir), true) => rows.extend(replicas(broker, &path, &dir)),
                    (Ok(dir), false) => rows.push(row(broker, &path, &dir)),
                    (Err(error), true) => errors.push(error.into()),
                    (Err(error), false) => rows.push(json!({
                        "broker": broker,
                        "log_dir": path,
                        "error": error.to_string(),
                    })),
                }
            }
        }
        self.output.rows(if self.replicas { &REPLICAS } else { &DIRS }, &rows)?;
        fail_with(errors)
    }
}

fn row(broker: i32, path: &str, dir: &LogDir) -> serde_json::Value {
    json!({
        "broker": broker,
        "log_dir": path,
        "replica_count": dir.replicas.len(),
        "bytes": dir.replicas.values().map(|replica| replica.bytes).sum::<i64>(),
        "total_bytes": dir.total_bytes,
        "usable_bytes": dir.usable_bytes,
        "is_cordoned": dir.is_cordoned,
        "error": null,
    })
}

fn replicas(broker: i32, path: &str, dir: &LogDir) -> Vec<serde_json::Value> {
    let row = |(at, replica): (&thalweg_client::TopicPartition, &thalweg_client::LogDirReplica)| {
        json!({
            "broker": broker,
            "log_dir": path,
            "topic": &*at.topic,
            "partition": at.partition,
            "bytes": replica.bytes,
            "lag": replica.lag,
            "is_future": replica.is_future,
        })
    };
    dir.replicas.iter().map(row).collect()
}

/// Move replicas of a broker to another of its log directories.
///
/// The broker copies them, and then changes over; see `broker log-dirs --replicas` for the progress.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  thalweg broker move-replica 1 orders:0,3 --to /disk2/thalweg")]
pub struct MoveReplica {
    #[command(flatten)]
    connect: Connect,
    /// The broker's id.
    broker: i32,
    /// Topics, or some of their partitions as TOPIC:0,3.
    #[arg(required = true, value_name = "TOPIC[:PARTITION,...]")]
    topics: Vec<Partitions>,
    /// The directory, as `broker log-dirs` shows it.
    #[arg(long, value_name = "DIR")]
    to: String,
    #[command(flatten)]
    output: CommandOutput,
}

impl MoveReplica {
    /// Starts the moves.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let partitions = resolve(admin.cluster(), &self.topics).await?;
        let moves: BTreeMap<Replica, String> =
            partitions.into_iter().map(|at| (Replica { broker: self.broker, at }, self.to.clone())).collect();
        self.output
            .outcomes(async |done| {
                let results = admin.alter_replica_log_dirs(&moves).await?;
                add_outcomes(done, results, |Replica { broker, at }, ()| {
                    let outcome = json!({
                        "broker": broker,
                        "topic": &*at.topic,
                        "partition": at.partition,
                        "log_dir": self.to,
                        "outcome": "moving",
                    });
                    (outcome, format!("The replica of {at} on broker {broker} moves to {}.", self.to))
                })
            })
            .await
    }
}
