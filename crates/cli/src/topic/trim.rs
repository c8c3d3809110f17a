//! `topic trim`: deletes the oldest records of partitions. A dry run unless `--execute` is given.

use std::collections::{BTreeMap, BTreeSet};

use clap::{ArgGroup, Args};
use serde_json::json;
use thalweg_client::{Admin, ClientError, ConfigResource, DescribeConfigs, OffsetSpec, TopicPartition};
use thalweg_config::EffectiveTopicConfig;
use thalweg_record::Offset;

use crate::connect::Connect;
use crate::failure::CommandFailure;
use crate::moment;
use crate::outcomes::{dry_run, fail_with};
use crate::output::{Column, CommandOutput};
use crate::partitions::{Partitions, resolve};

/// Delete the records of partitions before an offset or a time.
///
/// Shows the records to be deleted; --execute deletes them.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("until").required(true)),
    after_help = "\
Examples:
  thalweg topic trim orders:0 --to-offset 4200 --execute
  thalweg topic trim orders --to-datetime 2026-11-01 --execute
  thalweg topic trim orders --to-latest --execute             all records"
)]
pub struct Trim {
    #[command(flatten)]
    connect: Connect,
    /// Topics, or some of their partitions as TOPIC:0,3.
    #[arg(required = true, value_name = "TOPIC[:PARTITION,...]")]
    topics: Vec<Partitions>,
    /// Delete records before this offset.
    #[arg(long, value_name = "OFFSET", group = "until", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// Delete records before the first one at or after this time.
    #[arg(long, value_name = "TIME", group = "until", value_parser = moment::time_ms)]
    to_datetime: Option<i64>,
    /// Delete all records.
    #[arg(long, group = "until")]
    to_latest: bool,
    /// Delete them. Without it, nothing changes.
    #[arg(long)]
    execute: bool,
    #[command(flatten)]
    output: CommandOutput,
}

const POLICY: &str = EffectiveTopicConfig::cleanup_policy.name();

const COLUMNS: [Column<'_>; 5] = [
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("LOG-START-OFFSET", "log_start_offset"),
    ("NEW-START-OFFSET", "new_start_offset"),
    ("OFFSETS-DELETED", "offsets_deleted"),
];

impl Trim {
    /// Prints or deletes the records before the new start offsets.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let partitions = resolve(admin.cluster(), &self.topics).await?;
        let first = listed(&admin, &partitions, OffsetSpec::Earliest).await?;
        let last = listed(&admin, &partitions, OffsetSpec::Latest).await?;
        let at_time = match self.to_datetime {
            Some(ms) => listed(&admin, &partitions, OffsetSpec::At(ms)).await?,
            None => BTreeMap::new(),
        };
        // Check compacted topics here, so that a dry run reports the refusal, too.
        let compacted = compacted(&admin, &partitions).await?;
        let mut errors: Vec<anyhow::Error> =
            compacted.iter().map(|topic| not_trimmed(topic).into()).collect();
        let mut before: BTreeMap<TopicPartition, Offset> = BTreeMap::new();
        for at in partitions.iter().filter(|at| !compacted.contains(&*at.topic)) {
            let new = match self.to_offset {
                Some(offset) if offset > last[at] => {
                    errors.push(beyond(at, offset, last[at]).into());
                    continue;
                }
                Some(offset) => offset.max(first[at]),
                // No record at or after this time: take the end.
                None => at_time.get(at).copied().filter(|offset| *offset >= 0).unwrap_or(last[at]),
            };
            before.insert(at.clone(), Offset(new));
        }
        if self.execute && !before.is_empty() {
            for (at, outcome) in admin.delete_records(&before).await? {
                match outcome {
                    Ok(start) => drop(before.insert(at, start)),
                    Err(error) => {
                        before.remove(&at);
                        errors.push(error.into());
                    }
                }
            }
        }
        let rows: Vec<serde_json::Value> = before
            .iter()
            .map(|(at, new)| {
                json!({
                    "topic": &*at.topic,
                    "partition": at.partition,
                    "log_start_offset": first[at],
                    "new_start_offset": new.0,
                    "offsets_deleted": new.0 - first[at],
                })
            })
            .collect();
        self.output.rows(&COLUMNS, &rows)?;
        if !self.execute {
            dry_run();
        }
        fail_with(errors)
    }
}

fn beyond(at: &TopicPartition, offset: i64, end: i64) -> CommandFailure {
    CommandFailure(format!("--to-offset {offset} is after the end of {at}: expected at most {end}"))
}

fn not_trimmed(topic: &str) -> CommandFailure {
    CommandFailure(format!(
        "Topic {topic} is compacted: its records can be trimmed only with delete in its {POLICY}"
    ))
}

/// The topics whose records cannot be deleted by offset. The broker checks topics whose settings the login
/// may not see.
async fn compacted(
    admin: &Admin,
    partitions: &BTreeSet<TopicPartition>,
) -> Result<BTreeSet<String>, ClientError> {
    let topics: BTreeSet<String> = partitions.iter().map(|at| at.topic.to_string()).collect();
    let resources: Vec<ConfigResource> = topics.into_iter().map(ConfigResource::Topic).collect();
    let wanted = DescribeConfigs { names: Some(vec![POLICY.to_owned()]), ..DescribeConfigs::default() };
    let mut found = BTreeSet::new();
    for (resource, entries) in admin.describe_configs_with(&resources, &wanted).await? {
        let (ConfigResource::Topic(topic), Ok(entries)) = (resource, entries) else { continue };
        let policy = entries.get(POLICY).and_then(|entry| entry.value.as_deref());
        if policy.is_some_and(|policy| policy.split(',').all(|one| one.trim() == "compact")) {
            found.insert(topic);
        }
    }
    Ok(found)
}

async fn listed(
    admin: &Admin,
    partitions: &BTreeSet<TopicPartition>,
    spec: OffsetSpec,
) -> Result<BTreeMap<TopicPartition, i64>, ClientError> {
    let wanted: Vec<(TopicPartition, OffsetSpec)> = partitions.iter().map(|at| (at.clone(), spec)).collect();
    let found = admin.cluster().list_offsets(&wanted, false).await.into_iter();
    found.map(|(at, listed)| listed.map(|listed| (at, listed.offset.0))).collect()
}
