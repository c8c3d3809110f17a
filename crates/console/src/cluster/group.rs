//! One group of any type: members, assignment, lag; and changes to the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use thalweg_client::{
    ClientError, CommittedOffset, GroupKind, GroupMember, OffsetSpec, StreamsTaskRole, TopicPartition,
};
use thalweg_record::Offset;
use utoipa::ToSchema;

use super::groups::{ends, listed};
use super::lags::LagPoint;
use super::{View, now_ms};
use crate::format;
use crate::problem::Problem;

/// Partitions listed in the line of a member.
const NAMED_MAX: usize = 200;

/// The details of one group.
#[derive(Debug, Serialize, ToSchema)]
pub struct Group {
    /// The group id.
    pub group: String,
    /// The group type: `classic`, `consumer`, `share` or `streams`.
    pub kind: String,
    /// The group state, such as `Stable` or `Empty`.
    pub state: String,
    /// The assignor or protocol of the group.
    pub assignor: String,
    /// The group epoch; none for a classic group.
    pub epoch: Option<i32>,
    /// The members of the group.
    pub members: Vec<Member>,
    /// The committed offsets, or the start offsets of a share group.
    pub offsets: Vec<GroupOffset>,
    /// The reason why the offsets are unknown.
    pub offsets_problem: Option<String>,
    /// Recent lag, oldest first. Only reads of the console add points.
    pub lag_history: Vec<LagPoint>,
}

/// A member of a group.
#[derive(Debug, Serialize, ToSchema)]
pub struct Member {
    /// The member id.
    pub member: String,
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// `client.id`.
    pub client: String,
    /// The client host.
    pub host: String,
    /// The member epoch; none in a classic group.
    pub epoch: Option<i32>,
    /// The membership type in a consumer group, `classic` or `consumer`, if reported by the broker.
    pub protocol: Option<String>,
    /// The current assignment: topics with partitions, or streams tasks.
    pub assignment: Vec<AssignmentPart>,
    /// The target assignment of a consumer group member, if it differs from the current one during a
    /// rebalance.
    pub target: Option<Vec<AssignmentPart>>,
}

/// A part of an assignment.
#[derive(Debug, Serialize, ToSchema)]
pub struct AssignmentPart {
    /// The topic, or the role and subtopology of streams tasks.
    pub name: String,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

/// An offset of a group.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupOffset {
    /// The topic name.
    pub topic: String,
    /// The partition index.
    pub partition: i32,
    /// The committed offset, or the share group's start offset.
    pub offset: i64,
    /// The end offset of the partition; none if unknown.
    pub end: Option<i64>,
    /// Records between the offset and the end.
    pub lag: Option<i64>,
    /// Metadata that the member committed with the offset.
    pub metadata: String,
}

/// Reads the details of a group, and adds its lag to the history.
pub async fn read(view: &Arc<View>, group: &str) -> Result<Group, Problem> {
    let catalog = view.groups().await?;
    let line = catalog.groups.iter().find(|line| line.group == group);
    let names = [group.to_owned()];
    let mut described = match line.and_then(|line| GroupKind::from_name(&line.kind)) {
        Some(kind) => view.admin().describe_groups_as(kind, &names).await,
        None => view.admin().describe_groups(&names).await,
    };
    let described = described.remove(group).expect("each group has an outcome")?;
    if described.state == "Dead" && line.is_none() {
        return Err(Problem::missing(format!("There is no group {group}")));
    }
    let offsets = match described.kind {
        GroupKind::Share => share_offsets(view, group).await,
        _ => committed(view, group).await,
    };
    let (offsets, offsets_problem) = match offsets {
        Ok(offsets) => (offsets, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    if offsets_problem.is_none() {
        let lag = offsets.iter().filter_map(|offset| offset.lag).sum();
        view.lags().note(group, LagPoint { at_ms: now_ms(), lag });
    }
    Ok(Group {
        lag_history: view.lags().history(group),
        group: group.to_owned(),
        kind: described.kind.name().to_owned(),
        state: described.state,
        assignor: match described.kind {
            GroupKind::Streams => "streams".to_owned(),
            _ => described.protocol,
        },
        epoch: described.epochs.map(|(of_group, _)| of_group),
        members: described.members.into_iter().map(|one| member(described.kind, one)).collect(),
        offsets,
        offsets_problem,
    })
}

fn member(kind: GroupKind, member: GroupMember) -> Member {
    let differs = kind == GroupKind::Consumer && {
        let of = |partitions: &[TopicPartition]| partitions.iter().cloned().collect::<BTreeSet<_>>();
        of(&member.target) != of(&member.assignment)
    };
    let target = differs.then(|| assigned(by_topic(member.target)));
    let mut reads = by_topic(member.assignment);
    for task in member.tasks {
        let role = match task.role {
            StreamsTaskRole::Warmup => "warm-up",
            role => role.name(),
        };
        reads.entry(format!("{role} {}", task.subtopology)).or_default().push(task.partition);
    }
    Member {
        member: member.member_id,
        instance: member.group_instance_id,
        client: member.client_id,
        host: member.client_host,
        epoch: member.epoch,
        protocol: member.protocol.map(|protocol| protocol.name().to_owned()),
        assignment: assigned(reads),
        target,
    }
}

fn by_topic(partitions: Vec<TopicPartition>) -> BTreeMap<String, Vec<i32>> {
    let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(at.topic.to_string()).or_default().push(at.partition);
    }
    topics
}

fn assigned(parts: BTreeMap<String, Vec<i32>>) -> Vec<AssignmentPart> {
    let parts = parts.into_iter().map(|(name, mut partitions)| {
        partitions.sort_unstable();
        AssignmentPart { name, partitions }
    });
    parts.collect()
}

async fn committed(view: &View, group: &str) -> Result<Vec<GroupOffset>, ClientError> {
    let offsets = view.admin().list_group_offsets(group, None).await?;
    let ends = ends(view, offsets.keys().cloned().collect()).await;
    let lines = offsets.into_iter().map(|(at, committed)| {
        let end = ends.get(&at).copied();
        GroupOffset {
            topic: at.topic.to_string(),
            partition: at.partition,
            offset: committed.offset.0,
            end,
            lag: end.map(|end| (end - committed.offset.0).max(0)),
            metadata: committed.metadata,
        }
    });
    Ok(lines.collect())
}

async fn share_offsets(view: &View, group: &str) -> Result<Vec<GroupOffset>, ClientError> {
    let offsets = view.admin().list_share_group_offsets(group).await?;
    let known = offsets.into_iter().filter_map(|(at, offset)| Some((at, offset.ok()?)));
    let lines = known.map(|(at, offset)| GroupOffset {
        topic: at.topic.to_string(),
        partition: at.partition,
        offset: offset.start.0,
        end: None,
        lag: offset.lag,
        metadata: String::new(),
    });
    Ok(lines.collect())
}

/// The target of an offset reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTarget {
    Earliest,
    Latest,
    /// An offset, clamped to the range of the partition.
    Offset(i64),
    /// The first record at or after this time in milliseconds since 1970; the end if no record matches.
    Time(i64),
    /// A shift by this number of records, forward or back.
    By(i64),
}

impl ResetTarget {
    /// Parses a target and its value: an offset, a time or a number.
    pub fn read(to: &str, value: &str) -> Result<ResetTarget, Problem> {
        let number = || {
            let parsed = value.trim().replace(',', "").parse::<i64>();
            parsed.map_err(|_| Problem::wrong(format!("{value:?} is not a number")))
        };
        Ok(match to {
            "earliest" => ResetTarget::Earliest,
            "latest" => ResetTarget::Latest,
            "offset" => ResetTarget::Offset(number()?),
            "by" => ResetTarget::By(number()?),
            "time" => {
                let wrong = || {
                    Problem::wrong(format!(
                        "{value:?} is not a time: use 2026-01-31 12:00, in UTC, or milliseconds since 1970"
                    ))
                };
                let ms = value.trim().parse::<i64>().ok().or_else(|| format::parse_time(value));
                ResetTarget::Time(ms.ok_or_else(wrong)?)
            }
            other => {
                return Err(Problem::wrong(format!(
                    "Offsets cannot be reset to {other:?}: use earliest, latest, offset, time or by"
                )));
            }
        })
    }
}

/// One partition of a reset.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Step {
    /// The topic name.
    pub topic: String,
    /// The partition index.
    pub partition: i32,
    /// The current committed offset, if any.
    pub from: Option<i64>,
    /// The new committed offset.
    pub to: i64,
    /// Records between the new offset and the end.
    pub lag: i64,
}

/// The partitions of a reset: all with a committed offset, all of a topic, or one.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub topic: Option<String>,
    pub partition: Option<i32>,
}

/// Plans a reset. Changes nothing.
pub async fn plan(view: &View, group: &str, scope: &Scope, to: ResetTarget) -> Result<Vec<Step>, Problem> {
    let committed = view.admin().list_group_offsets(group, None).await?;
    let partitions: Vec<TopicPartition> = match (&scope.topic, scope.partition) {
        (Some(topic), Some(partition)) => vec![TopicPartition::new(topic.as_str(), partition)],
        (Some(topic), None) => {
            // Includes partitions without a committed offset.
            let metadata = view.cluster().refresh(std::slice::from_ref(topic), false).await?;
            let found = metadata.topics.get(topic).filter(|found| found.error.is_none());
            let found = found.ok_or_else(|| Problem::missing(format!("There is no topic {topic}")))?;
            found
                .partitions
                .iter()
                .map(|partition| TopicPartition::new(topic.as_str(), partition.index))
                .collect()
        }
        (None, _) => committed.keys().cloned().collect(),
    };
    if partitions.is_empty() {
        return Err(Problem::wrong(format!("The group {group} has no offsets: name a topic")));
    }
    let (starts, ends) = tokio::join!(
        listed(view, partitions.clone(), OffsetSpec::Earliest),
        listed(view, partitions.clone(), OffsetSpec::Latest),
    );
    let at_time = match to {
        ResetTarget::Time(ms) => listed(view, partitions.clone(), OffsetSpec::At(ms)).await,
        _ => BTreeMap::new(),
    };
    let mut steps = Vec::new();
    for at in partitions {
        let (Some(start), Some(end)) = (starts.get(&at).copied(), ends.get(&at).copied()) else {
            return Err(Problem::missing(format!(
                "The offsets of {at} are not known: it is deleted, or has no leader"
            )));
        };
        let from = committed.get(&at).map(|committed| committed.offset.0);
        let wanted = match to {
            ResetTarget::Earliest => start,
            ResetTarget::Latest => end,
            ResetTarget::Offset(offset) => offset,
            ResetTarget::Time(_) => at_time.get(&at).copied().unwrap_or(end),
            ResetTarget::By(records) => from.unwrap_or(end).saturating_add(records),
        };
        let to = wanted.clamp(start, end);
        steps.push(Step { topic: at.topic.to_string(), partition: at.partition, from, to, lag: end - to });
    }
    Ok(steps)
}

/// Sets committed offsets of a group without members.
pub async fn set(
    view: &View,
    group: &str,
    offsets: &BTreeMap<TopicPartition, i64>,
) -> Result<(), ClientError> {
    let offsets = offsets.iter().map(|(at, offset)| (at.clone(), CommittedOffset::new(Offset(*offset))));
    view.admin().alter_group_offsets(group, &offsets.collect()).await
}

/// Deletes committed offsets of a group.
pub async fn delete_offsets(
    view: &View,
    group: &str,
    partitions: &[TopicPartition],
) -> Result<(), ClientError> {
    let outcomes = view.admin().delete_group_offsets(group, partitions).await?;
    outcomes.into_values().collect()
}

/// Deletes a group without members.
pub async fn delete(view: &View, group: &str) -> Result<(), ClientError> {
    let outcomes = view.admin().delete_groups(&[group.to_owned()]).await;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    view.forget().await;
    Ok(())
}

/// The first partitions, and the number of omitted ones.
pub fn first_partitions(partitions: &[i32]) -> (&[i32], usize) {
    let shown = partitions.len().min(NAMED_MAX);
    (&partitions[..shown], partitions.len() - shown)
}
