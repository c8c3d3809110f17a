//! `topic offsets`: the offsets of partitions, at their ends or at a time.

use clap::{ArgGroup, Args};
use serde_json::json;
use thalweg_client::{Admin, OffsetSpec, TopicPartition};

use super::moves::all;
use crate::connect::Connect;
use crate::moment;
use crate::outcomes::fail_with;
use crate::output::{Column, CommandOutput};
use crate::partitions::{Partitions, resolve};

/// Show offsets of partitions: of the next record (default), the first record, the newest record by time, or
/// the record at a time.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("at")),
    after_help = "Examples:\n  thalweg topic offsets orders\n  thalweg topic offsets --at-datetime 2026-11-25T04:30:00Z"
)]
pub struct Offsets {
    #[command(flatten)]
    connect: Connect,
    /// Topics, or some of their partitions as TOPIC:0,3 [default: all topics].
    #[arg(value_name = "TOPIC[:PARTITION,...]")]
    topics: Vec<Partitions>,
    /// Show the offset of the first record.
    #[arg(long, group = "at")]
    earliest: bool,
    /// Show the offset of the record with the largest timestamp.
    #[arg(long, group = "at")]
    max_timestamp: bool,
    /// Show the offset of the first record at or after this time.
    #[arg(long, value_name = "TIME", group = "at", value_parser = moment::time_ms)]
    at_datetime: Option<i64>,
    /// Show offsets of read_committed consumers: the end is before open transactions.
    #[arg(long)]
    read_committed: bool,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 5] = [
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("OFFSET", "offset"),
    ("LEADER-EPOCH", "leader_epoch"),
    ("TIME", "time"),
];

impl Offsets {
    /// Prints a row per partition.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let cluster = admin.cluster();
        let partitions = match self.topics.is_empty() {
            true => {
                let metadata = cluster.refresh_all().await?;
                all(&metadata)
            }
            false => resolve(cluster, &self.topics).await?,
        };
        let spec = match self.at_datetime {
            Some(ms) => OffsetSpec::At(ms),
            None if self.earliest => OffsetSpec::Earliest,
            None if self.max_timestamp => OffsetSpec::MaxTimestamp,
            None => OffsetSpec::Latest,
        };
        let wanted: Vec<(TopicPartition, OffsetSpec)> = partitions.into_iter().map(|at| (at, spec)).collect();
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        for (at, listed) in cluster.list_offsets(&wanted, self.read_committed).await {
            match listed {
                Ok(listed) => rows.push(json!({
                    "topic": &*at.topic,
                    "partition": at.partition,
                    "offset": (listed.offset.0 >= 0).then_some(listed.offset.0),
                    "leader_epoch": (listed.leader_epoch.0 >= 0).then_some(listed.leader_epoch.0),
                    "time": (listed.timestamp >= 0).then(|| moment::shown(listed.timestamp)),
                })),
                Err(error) => errors.push(error),
            }
        }
        self.output.rows(&COLUMNS, &rows)?;
        fail_with(errors)
    }
}
