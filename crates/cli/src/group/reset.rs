//! `group reset`: sets the offsets of a group. A dry run unless `--execute` is given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgGroup, Args};
use serde::Serialize;
use thalweg_client::{
    Admin, ClientError, CommittedOffset, GroupKind, ListedOffset, OffsetSpec, TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;

use crate::connect::Connect;
use crate::failure::{CommandFailure, NotFound, Usage};
use crate::moment;
use crate::outcomes::{dry_run, fail_with};
use crate::output::{Column, CommandOutput};
use crate::partitions::{Partitions, resolve};

/// Change the offsets of a group without active members.
///
/// Shows the new offsets; --execute sets them.
///
/// An offset before the first or after the last record becomes the nearest valid offset, with a warning. A
/// share group takes --to-earliest, --to-latest, --to-datetime and --by-duration.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("where").required(true)),
    group(ArgGroup::new("of").required(true).multiple(true)),
    after_help = "\
Examples:
  thalweg group reset billing --topic orders --to-earliest
  thalweg group reset billing --topic orders:0,3 --to-offset 4200 --execute
  thalweg group reset billing --all-topics --to-datetime 2026-11-25T04:30:00Z --execute
  thalweg group reset billing --all-topics --by-duration 2h --execute
  thalweg group reset billing --all-topics --to-current --csv > offsets.csv
  thalweg group reset billing --from-file offsets.csv --execute"
)]
pub struct Reset {
    #[command(flatten)]
    connect: Connect,
    /// Group id. A missing group is created with these offsets.
    group: String,
    /// A topic, or some of its partitions as TOPIC:0,3; can be repeated.
    #[arg(long = "topic", value_name = "TOPIC[:PARTITION,...]", group = "of")]
    topics: Vec<Partitions>,
    /// All partitions with offsets of the group in topics that the login may describe; a warning says
    /// whether there may be others.
    #[arg(long, group = "of", conflicts_with = "topics")]
    all_topics: bool,
    /// Reset to the first record.
    #[arg(long, group = "where")]
    to_earliest: bool,
    /// Reset to the end: the next record that is written.
    #[arg(long, group = "where")]
    to_latest: bool,
    /// Reset to the committed offset, or to the end of partitions without one. With --execute or --csv, this
    /// copies the present offsets.
    #[arg(long, group = "where")]
    to_current: bool,
    /// Reset to this offset.
    #[arg(long, value_name = "OFFSET", group = "where", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// Reset to the first record at or after this time, such as 2026-11-25T04:30:00Z; a time without a zone
    /// is UTC.
    #[arg(long, value_name = "TIME", group = "where", value_parser = moment::time_ms)]
    to_datetime: Option<i64>,
    /// Reset to the first record of this last period: 90s, 15m, 12h, 7d, P7DT12H.
    #[arg(long, value_name = "DURATION", group = "where", value_parser = moment::duration)]
    by_duration: Option<std::time::Duration>,
    /// Move each offset by this number of records: forwards, or backwards if negative.
    #[arg(long, value_name = "RECORDS", group = "where", allow_negative_numbers = true)]
    shift_by: Option<i64>,
    /// Reset to the committed offsets of another group.
    #[arg(long, value_name = "GROUP", group = "where")]
    to_group: Option<String>,
    /// Reset to the offsets of a file with lines TOPIC,PARTITION,OFFSET, as --csv prints them.
    #[arg(long, value_name = "FILE", groups = ["where", "of"], conflicts_with_all = ["topics", "all_topics"])]
    from_file: Option<PathBuf>,
    /// Set the offsets. Without it, nothing changes.
    #[arg(long)]
    execute: bool,
    /// Print lines TOPIC,PARTITION,OFFSET for --from-file.
    #[arg(long, conflicts_with_all = ["json", "format"])]
    csv: bool,
    #[command(flatten)]
    output: CommandOutput,
}

/// The offsets of a partition before and after.
#[derive(Debug, Serialize)]
struct Row {
    group: String,
    topic: String,
    partition: i32,
    current_offset: Option<i64>,
    new_offset: i64,
}

const COLUMNS: [Column<'_>; 5] = [
    ("GROUP", "group"),
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("CURRENT-OFFSET", "current_offset"),
    ("NEW-OFFSET", "new_offset"),
];

type Offsets = BTreeMap<TopicPartition, i64>;

impl Reset {
    /// Shows or sets the offsets.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let from_file = self.from_file.as_deref().map(read_file).transpose()?;
        let admin = Admin::new(self.connect.cluster().await?);
        let kind = self.check_group(&admin).await?;
        if self.all_topics
            && let Some(partial) = admin.partial_view().await
        {
            tracing::warn!("Offsets in other topics may exist, and are not reset: {partial}");
        }
        let current = match kind {
            GroupKind::Share => self.share_offsets(&admin).await?,
            _ => committed(&admin, &self.group).await?,
        };
        let partitions = self.partitions(&admin, &current, from_file.as_ref()).await?;
        let new = self.new_offsets(&admin, &partitions, &current, from_file).await?;
        if self.execute {
            self.set(&admin, kind, &new).await?;
        }
        self.print(&current, &new)
    }

    /// The kind of the group. Fails if the group has active members.
    async fn check_group(&self, admin: &Admin) -> anyhow::Result<GroupKind> {
        let described = admin.describe_groups(std::slice::from_ref(&self.group)).await.remove(&self.group);
        let described = match described {
            Some(Ok(described)) => described,
            Some(Err(error)) if error.error_code() == Some(ErrorCode::GroupIdNotFound) => {
                return Ok(GroupKind::Classic);
            }
            Some(Err(error)) => return Err(error.into()),
            None => return Ok(GroupKind::Classic),
        };
        let by_time = self.to_datetime.is_some() || self.by_duration.is_some();
        if described.kind == GroupKind::Share && !(self.to_earliest || self.to_latest || by_time) {
            let right = "expected --to-earliest, --to-latest, --to-datetime or --by-duration";
            return Err(Usage(format!("{} is a share group: {right}", self.group)).into());
        }
        described.unless_active(&self.group).map_err(|active| CommandFailure(active.to_string()))?;
        Ok(described.kind)
    }

    async fn share_offsets(&self, admin: &Admin) -> anyhow::Result<Offsets> {
        let listed = admin.list_share_group_offsets(&self.group).await?.into_iter();
        let offsets = listed.map(|(at, offset)| Ok((at, offset?.start.0)));
        Ok(offsets.collect::<Result<_, ClientError>>()?)
    }

    async fn partitions(
        &self,
        admin: &Admin,
        current: &Offsets,
        from_file: Option<&Offsets>,
    ) -> anyhow::Result<BTreeSet<TopicPartition>> {
        if from_file.is_none() && !self.all_topics {
            return resolve(admin.cluster(), &self.topics).await;
        }
        if from_file.is_none() && current.is_empty() {
            let right = "name topics with --topic";
            return Err(CommandFailure(format!("Group {} has no offsets: {right}", self.group)).into());
        }
        let known = from_file.unwrap_or(current).keys();
        let wanted =
            known.map(|at| Partitions { topic: at.topic.to_string(), only: Some(vec![at.partition]) });
        resolve(admin.cluster(), &wanted.collect::<Vec<_>>()).await
    }

    async fn new_offsets(
        &self,
        admin: &Admin,
        partitions: &BTreeSet<TopicPartition>,
        current: &Offsets,
        from_file: Option<Offsets>,
    ) -> anyhow::Result<Offsets> {
        let first = listed(admin, partitions, OffsetSpec::Earliest).await?;
        let last = listed(admin, partitions, OffsetSpec::Latest).await?;
        let at_time = match self.to_datetime.or(self.by_duration.map(moment::ago_ms)) {
            Some(ms) => listed(admin, partitions, OffsetSpec::At(ms)).await?,
            None => BTreeMap::new(),
        };
        let others = match &self.to_group {
            Some(group) => of_other(admin, group).await?,
            None => Offsets::new(),
        };
        let mut new = Offsets::new();
        let mut without = Vec::new();
        for at in partitions {
            let (earliest, latest) = (first[at], last[at]);
            let wanted = if self.to_earliest {
                earliest
            } else if self.to_latest {
                latest
            } else if self.to_current {
                current.get(at).copied().unwrap_or(latest)
            } else if let Some(offset) = self.to_offset {
                offset
            } else if let Some(shift) = self.shift_by {
                match current.get(at) {
                    Some(offset) => offset.saturating_add(shift),
                    None => {
                        without.push(at.to_string());
                        continue;
                    }
                }
            } else if self.to_group.is_some() {
                // A partition without an offset in the other group keeps its own.
                match others.get(at) {
                    Some(offset) => *offset,
                    None => continue,
                }
            } else if let Some(offset) = from_file.as_ref().and_then(|offsets| offsets.get(at)) {
                *offset
            } else {
                at_time.get(at).copied().filter(|offset| *offset >= 0).unwrap_or_else(|| {
                    tracing::warn!("{at} has no record at or after this time: its end is taken, {latest}");
                    latest
                })
            };
            new.insert(at.clone(), within(at, wanted, earliest, latest));
        }
        if !without.is_empty() {
            let why =
                format!("--shift-by needs a committed offset, and there is none in {}", without.join(", "));
            return Err(CommandFailure(why).into());
        }
        Ok(new)
    }

    async fn set(&self, admin: &Admin, kind: GroupKind, new: &Offsets) -> anyhow::Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        if kind == GroupKind::Share {
            let offsets = new.iter().map(|(at, offset)| (at.clone(), Offset(*offset))).collect();
            let results = admin.alter_share_group_offsets(&self.group, &offsets).await?;
            let errors: Vec<ClientError> = results.into_values().filter_map(Result::err).collect();
            return fail_with(errors);
        }
        let offsets = new.iter().map(|(at, offset)| (at.clone(), CommittedOffset::new(Offset(*offset))));
        Ok(admin.alter_group_offsets(&self.group, &offsets.collect()).await?)
    }

    fn print(&self, current: &Offsets, new: &Offsets) -> anyhow::Result<()> {
        if self.csv {
            let lines = new.iter().map(|(at, offset)| format!("{},{},{offset}\n", at.topic, at.partition));
            let text: String = lines.collect();
            return CommandOutput::text(&text);
        }
        let rows: Vec<Row> = new
            .iter()
            .map(|(at, offset)| Row {
                group: self.group.clone(),
                topic: at.topic.to_string(),
                partition: at.partition,
                current_offset: current.get(at).copied(),
                new_offset: *offset,
            })
            .collect();
        self.output.rows(&COLUMNS, &rows)?;
        match (self.execute, rows.is_empty()) {
            (_, true) => tracing::warn!("Nothing to set: no partition has an offset to take over"),
            (false, _) => dry_run(),
            (true, _) => {}
        }
        Ok(())
    }
}

/// The wanted offset, limited to the range of the partition's log, with a warning if changed.
fn within(at: &TopicPartition, wanted: i64, earliest: i64, latest: i64) -> i64 {
    let new = wanted.clamp(earliest, latest.max(earliest));
    if new != wanted {
        tracing::warn!("{at} has offsets {earliest} to {latest}: {wanted} becomes {new}");
    }
    new
}

/// The committed offsets of the group of --to-group, which must exist.
async fn of_other(admin: &Admin, group: &str) -> anyhow::Result<Offsets> {
    let offsets = committed(admin, group).await?;
    if !offsets.is_empty() {
        return Ok(offsets);
    }
    // Brokers return no offsets and no error for a missing classic group.
    match admin.describe_groups(&[group.to_owned()]).await.remove(group) {
        Some(Err(error)) if error.error_code() != Some(ErrorCode::GroupIdNotFound) => Err(error.into()),
        Some(Ok(described)) if described.state != "Dead" => Ok(offsets),
        _ => Err(NotFound(format!("--to-group: there is no group {group}")).into()),
    }
}

async fn committed(admin: &Admin, group: &str) -> anyhow::Result<Offsets> {
    let listed = match admin.list_group_offsets(group, None).await {
        Err(error) if error.error_code() == Some(ErrorCode::GroupIdNotFound) => BTreeMap::new(),
        other => other?,
    };
    Ok(listed.into_iter().map(|(at, committed)| (at, committed.offset.0)).collect())
}

async fn listed(
    admin: &Admin,
    partitions: &BTreeSet<TopicPartition>,
    spec: OffsetSpec,
) -> Result<Offsets, ClientError> {
    let wanted: Vec<(TopicPartition, OffsetSpec)> = partitions.iter().map(|at| (at.clone(), spec)).collect();
    let found = admin.cluster().list_offsets(&wanted, false).await.into_iter();
    found.map(|(at, listed)| listed.map(|ListedOffset { offset, .. }| (at, offset.0))).collect()
}

/// The offsets in a file of TOPIC,PARTITION,OFFSET lines.
fn read_file(path: &Path) -> anyhow::Result<Offsets> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("Cannot read --from-file {}", path.display()))?;
    Ok(read_lines(&text).map_err(|why| Usage(format!("--from-file {}, {why}", path.display())))?)
}

fn read_lines(text: &str) -> Result<Offsets, String> {
    let mut offsets = Offsets::new();
    let lines = (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty());
    for (number, line) in lines {
        let wrong = || format!("line {number}: {line:?} is not TOPIC,PARTITION,OFFSET");
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [topic, partition, offset] = fields[..] else { return Err(wrong()) };
        let partition: i32 = partition.parse().map_err(|_| wrong())?;
        let offset: i64 = offset.parse().map_err(|_| wrong())?;
        let at = TopicPartition::new(topic, partition);
        if topic.is_empty() || partition < 0 || offset < 0 {
            return Err(wrong());
        }
        if offsets.insert(at.clone(), offset).is_some() {
            return Err(format!("line {number}: {at} is named twice"));
        }
    }
    match offsets.is_empty() {
        true => Err("which is empty: expected lines TOPIC,PARTITION,OFFSET".to_owned()),
        false => Ok(offsets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_stays_within_the_partition() {
        let at = TopicPartition::new("t", 0);
        assert_eq!([5, 10, 15, 25, -3].map(|wanted| within(&at, wanted, 10, 20)), [10, 10, 15, 20, 10]);
        assert_eq!(within(&at, 3, 0, 0), 0);
    }

    #[test]
    fn a_file_names_topic_partition_and_offset() {
        let read = read_lines("orders,0,17\n\n a.b , 3 , 4\n").expect("valid");
        let expected =
            BTreeMap::from([(TopicPartition::new("a.b", 3), 4), (TopicPartition::new("orders", 0), 17)]);
        assert_eq!(read, expected);
        assert!(read_lines("\n").expect_err("no line").contains("is empty"));
        let twice = read_lines("orders,0,17\norders,0,18\n").expect_err("twice");
        assert_eq!(twice, "line 2: orders-0 is named twice");
        for wrong in ["orders,0", "g,orders,0,1", ",0,1", "orders,-1,1", "orders,0,-1", "orders,x,1"] {
            assert_eq!(
                read_lines(wrong).expect_err(wrong),
                format!("line 1: {wrong:?} is not TOPIC,PARTITION,OFFSET")
            );
        }
    }
}
