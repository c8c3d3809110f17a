//! One group of any type: members, assignment, lag; and changes to the group.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thalweg_client::{
    ClientError, CommittedOffset, GroupDescription, GroupKind, GroupMember, OffsetSpec, StreamsTaskRole,
    TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use utoipa::ToSchema;

use super::groups::{ends, first_records, listed};
use super::lags::LagPoint;
use super::{BROKER_RETRY, BROKER_WAIT, PART_WAIT, View, now_ms};
use crate::format;
use crate::problem::Problem;

/// Time limit for the list of groups, which has the type of each group. Brokers that answer do so sooner.
const LIST_WAIT: Duration = Duration::from_secs(1);
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
    /// The partitions with a committed offset, in a share group with a start offset, or with a reader.
    pub offsets: Vec<GroupOffset>,
    /// The reason why the offsets are unknown.
    pub offsets_problem: Option<String>,
    /// The reason why offsets may be missing, and the lag of the group is not known: topics that exist, or
    /// may exist, and that the login may not describe. Brokers leave their offsets out silently.
    pub partial: Option<String>,
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

/// A partition of a group, with its offset and its reader.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupOffset {
    /// The topic name.
    pub topic: String,
    /// The partition index.
    pub partition: i32,
    /// The committed offset, or the share group's start offset; none in a partition that is read without.
    pub offset: Option<i64>,
    /// The end offset of the partition; none if unknown.
    pub end: Option<i64>,
    /// Records between the offset and the end; negative if the offset is beyond the end.
    pub lag: Option<i64>,
    /// The age of the first record that the group has not read, in milliseconds; 0 without a lag, and none if
    /// unknown. Only Thalweg's brokers report it.
    pub lag_ms: Option<i64>,
    /// The member that reads the partition, if any; in a share group the first of them.
    pub reader: Option<PartitionReader>,
    /// Number of members that read the partition.
    pub readers: usize,
    /// Metadata that the member committed with the offset.
    pub metadata: String,
}

/// The member that reads a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PartitionReader {
    /// The member id.
    pub member: String,
    /// `client.id`.
    pub client: String,
    /// The client host.
    pub host: String,
}

impl PartitionReader {
    /// The reader as described by the group's coordinator.
    pub fn of(member: &GroupMember) -> PartitionReader {
        let GroupMember { member_id, client_id, client_host, .. } = member;
        PartitionReader { member: member_id.clone(), client: client_id.clone(), host: client_host.clone() }
    }
}

/// Offsets of a group by partition, before their ends and readers are known.
#[derive(Default)]
struct FoundOffset {
    offset: Option<i64>,
    /// The lag as reported for a share group.
    lag: Option<i64>,
    metadata: String,
}

/// Reads the details of a group, and adds its lag to the history.
pub async fn read(view: &Arc<View>, group: &str) -> Result<Group, Problem> {
    let (found, partial) = tokio::join!(read_offsets(view, group), view.partial_view());
    let (described, offsets, offsets_problem) = found?;
    let lag_history = match &partial {
        // Earlier lags may count records of topics that the login may not describe any more.
        Some(_) => Vec::new(),
        None => {
            if let Some(lag) = lag(&offsets).filter(|_| offsets_problem.is_none()) {
                view.lags().note(group, lag, now_ms());
            }
            view.lags().history(group)
        }
    };
    Ok(Group {
        lag_history,
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
        partial,
    })
}

/// The description of a group, its partitions, and the reason if its offsets are unknown.
async fn read_offsets(
    view: &Arc<View>,
    group: &str,
) -> Result<(GroupDescription, Vec<GroupOffset>, Option<String>), Problem> {
    let described = tokio::time::timeout(PART_WAIT, describe(view, group)).await;
    let described = described.map_err(|_| Problem::late(&format!("Group {group}"), PART_WAIT))??;
    let found = async {
        match described.kind {
            GroupKind::Share => share_offsets(view, group).await,
            _ => committed(view, group).await,
        }
    };
    let (offsets, problem) = match tokio::time::timeout(BROKER_WAIT, found).await {
        Ok(Ok(found)) => (partitions(view, &described, found).await, None),
        Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
        Err(_) => (Vec::new(), Some(Problem::late("The offsets of the group", BROKER_WAIT).message)),
    };
    Ok((described, offsets, problem))
}

/// The description of a group. Its type is known if the brokers have listed their groups in time.
async fn describe(view: &Arc<View>, group: &str) -> Result<GroupDescription, Problem> {
    let catalog = tokio::time::timeout(LIST_WAIT, view.groups()).await.ok().transpose()?;
    let line = catalog.iter().flat_map(|catalog| &catalog.groups).find(|line| line.group == group);
    let names = [group.to_owned()];
    let admin = view.prompt_admin();
    let mut described = match line.and_then(|line| GroupKind::from_name(&line.kind)) {
        Some(kind) => admin.describe_groups_as(kind, &names).await,
        None => admin.describe_groups(&names).await,
    };
    let described = described.remove(group).expect("each group has an outcome")?;
    if described.state == "Dead" && line.is_none() {
        return Err(Problem::missing(format!("There is no group {group}")));
    }
    Ok(described)
}

/// The lag over all partitions; `None` if the lag of one is unknown, as without a committed offset, or if
/// there are none. An offset beyond the end counts as 0.
pub fn lag(offsets: &[GroupOffset]) -> Option<i64> {
    let sum = offsets.iter().map(|one| Some(one.lag?.max(0))).sum::<Option<i64>>();
    sum.filter(|_| !offsets.is_empty())
}

/// The lag of a group; `None` if it is unknown, as if offsets may be missing.
pub fn lag_of(group: &Group) -> Option<i64> {
    lag(&group.offsets).filter(|_| group.partial.is_none())
}

/// The reason why a group has no known lag; none if the lag is known.
pub fn lag_unknown(offsets: &[GroupOffset], partial: Option<&str>) -> Option<String> {
    if let Some(partial) = partial {
        return Some(match lag(offsets) {
            Some(lag) => format!("{} in the topics shown: {partial}", format::counted(lag, "record")),
            None => partial.to_owned(),
        });
    }
    if offsets.is_empty() {
        return Some("no committed offset".to_owned());
    }
    let unknown: Vec<&GroupOffset> = offsets.iter().filter(|one| one.lag.is_none()).collect();
    if unknown.is_empty() {
        return None;
    }
    let uncommitted = uncommitted(offsets);
    Some(match uncommitted {
        0 => format!("not known in {}", format::counted(unknown.len(), "partition")),
        _ => format!("no committed offset in {}", format::counted(uncommitted, "partition")),
    })
}

/// Partitions that are read without a committed offset, and that have or may have records.
pub fn uncommitted(offsets: &[GroupOffset]) -> usize {
    offsets.iter().filter(|one| one.offset.is_none() && one.lag.is_none()).count()
}

/// Partitions whose offset is beyond the end.
pub fn beyond_end(offsets: &[GroupOffset]) -> usize {
    offsets.iter().filter(|one| one.lag.is_some_and(|lag| lag < 0)).count()
}

/// The age of the oldest record that the group has not read, in milliseconds; `None` if that of a partition
/// is unknown.
pub fn lag_ms(offsets: &[GroupOffset]) -> Option<i64> {
    let of_each = offsets.iter().map(|one| one.lag_ms);
    of_each.collect::<Option<Vec<i64>>>()?.into_iter().max()
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

async fn committed(view: &View, group: &str) -> Result<BTreeMap<TopicPartition, FoundOffset>, ClientError> {
    let offsets = view.prompt_admin().list_group_offsets(group, None).await?;
    let found = offsets.into_iter().map(|(at, committed)| {
        let offset = Some(committed.offset.0);
        (at, FoundOffset { offset, lag: None, metadata: committed.metadata })
    });
    Ok(found.collect())
}

async fn share_offsets(
    view: &View,
    group: &str,
) -> Result<BTreeMap<TopicPartition, FoundOffset>, ClientError> {
    let offsets = view.prompt_admin().list_share_group_offsets(group).await?;
    let known = offsets.into_iter().filter_map(|(at, offset)| Some((at, offset.ok()?)));
    let found = known.map(|(at, offset)| {
        let found = FoundOffset { offset: Some(offset.start.0), lag: offset.lag, ..FoundOffset::default() };
        (at, found)
    });
    Ok(found.collect())
}

/// The partitions of a group, with ends, lag and readers.
async fn partitions(
    view: &View,
    group: &GroupDescription,
    mut found: BTreeMap<TopicPartition, FoundOffset>,
) -> Vec<GroupOffset> {
    let owners = group.owners();
    for at in owners.keys() {
        if !found.contains_key(at) {
            found.insert(at.clone(), FoundOffset::default());
        }
    }
    let ends = ends(view, found.keys().cloned().collect()).await;
    let lag = |at: &TopicPartition, found: &FoundOffset| match group.kind {
        GroupKind::Share => found.lag,
        _ => match (*ends.get(at)?, found.offset) {
            (end, Some(offset)) => Some(end - offset),
            // A partition that never had a record needs no committed offset.
            (0, None) => Some(0),
            (_, None) => None,
        },
    };
    let behind = found.iter().filter(|(at, found)| lag(at, found).is_some_and(|lag| lag > 0));
    let behind = behind.filter_map(|(at, found)| Some((at.clone(), Offset(found.offset?))));
    // Leaders that answer soon are known: their records are late rather than absent.
    let unread = tokio::time::timeout(BROKER_RETRY, first_records(view, behind.collect())).await;
    let unread = unread.unwrap_or_default();
    let now_ms = now_ms();
    let reader = |index: &usize| PartitionReader::of(&group.members[*index]);
    let lines = found.into_iter().filter_map(|(at, found)| {
        let (end, lag) = (ends.get(&at).copied(), lag(&at, &found));
        // A subtopology of a streams group has as many tasks as the largest of its topics has partitions.
        if group.kind == GroupKind::Streams && end.is_none() && found.offset.is_none() {
            return None;
        }
        let readers = owners.get(&at).map_or(&[][..], Vec::as_slice);
        Some(GroupOffset {
            topic: at.topic.to_string(),
            partition: at.partition,
            offset: found.offset,
            end,
            lag,
            lag_ms: lag.and_then(|lag| match lag {
                ..=0 => Some(0),
                _ => unread.get(&at)?.age_ms(now_ms),
            }),
            reader: readers.first().map(reader),
            readers: readers.len(),
            metadata: found.metadata,
        })
    });
    lines.collect()
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
    /// Parses a target and its value: an offset, a time or a number. Refuses negative offsets and times,
    /// which have special meanings in Kafka's requests, such as -1 for the end.
    pub fn read(to: &str, value: &str) -> Result<ResetTarget, Problem> {
        let number = || {
            let parsed = value.trim().replace(',', "").parse::<i64>();
            parsed.map_err(|_| Problem::wrong(format!("value: {value:?} is not a number")))
        };
        Ok(match to {
            "earliest" => ResetTarget::Earliest,
            "latest" => ResetTarget::Latest,
            "offset" => match number()? {
                offset @ 0.. => ResetTarget::Offset(offset),
                _ => return Err(Problem::wrong(format!("value: {value:?} is not an offset: use 0 or more"))),
            },
            "by" => ResetTarget::By(number()?),
            "time" => ResetTarget::Time(format::time_ms("value", value)?),
            other => {
                return Err(Problem::wrong(format!(
                    "to: offsets cannot be reset to {other:?}: use earliest, latest, offset, time or by"
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
    /// The reason why the new offset differs from the requested one, such as an offset beyond the end.
    pub note: Option<String>,
}

/// The partitions of a reset: all with a committed offset, all of a topic, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Topic(String),
    Partition(TopicPartition),
}

impl Scope {
    /// Builds a scope of optional fields. A partition needs its topic.
    pub fn new(topic: Option<&str>, partition: Option<i32>) -> Result<Scope, Problem> {
        match (topic.map(str::trim).filter(|topic| !topic.is_empty()), partition) {
            (None, None) => Ok(Scope::All),
            (Some(topic), None) => Ok(Scope::Topic(topic.to_owned())),
            (Some(topic), Some(partition)) => Ok(Scope::Partition(TopicPartition::new(topic, partition))),
            (None, Some(partition)) => Err(Problem::wrong(format!(
                "partition: {partition} needs its topic: name the topic, or leave the partition out"
            ))),
        }
    }
}

/// Limits an offset to the range of its partition. Returns a note if the offset changed.
fn within(wanted: i64, start: i64, end: i64) -> (i64, Option<String>) {
    let to = wanted.clamp(start, end);
    let shown = (format::count(wanted), format::count(to));
    let note = match wanted.cmp(&to) {
        Ordering::Equal => None,
        Ordering::Greater => Some(format!("{} is beyond the end: it becomes {}", shown.0, shown.1)),
        Ordering::Less => Some(format!("{} is before the first record: it becomes {}", shown.0, shown.1)),
    };
    (to, note)
}

/// The reason why offsets of a group cannot be set: members are active, or the group is a share group.
fn unless_resettable(group: &str, described: &GroupDescription) -> Result<(), Problem> {
    if described.kind == GroupKind::Share {
        let message = format!("{group} is a share group: reset it with `thalweg group reset`");
        return Err(Problem::wrong(message));
    }
    let active = described.unless_active(group);
    active.map_err(|active| Problem::refused(ErrorCode::NonEmptyGroup, active.to_string()))
}

async fn check_resettable(view: &View, group: &str) -> Result<(), Problem> {
    match view.admin().describe_groups(&[group.to_owned()]).await.remove(group) {
        Some(Ok(described)) => unless_resettable(group, &described),
        // A group comes into being by its offsets.
        Some(Err(error)) if error.error_code() == Some(ErrorCode::GroupIdNotFound) => Ok(()),
        Some(Err(error)) => Err(error.into()),
        None => Ok(()),
    }
}

/// The offsets that a reset would set.
#[derive(Debug)]
pub struct ResetPlan {
    pub steps: Vec<Step>,
    /// The reason why a reset of all topics may leave some out.
    pub partial: Option<String>,
}

/// Plans a reset. Changes nothing. Refused for a group with active members, whose offsets cannot be set.
pub async fn plan(view: &View, group: &str, scope: &Scope, to: ResetTarget) -> Result<ResetPlan, Problem> {
    let partial = match scope {
        Scope::All => view.partial_view().await,
        Scope::Topic(_) | Scope::Partition(_) => None,
    };
    check_resettable(view, group).await?;
    let committed = view.admin().list_group_offsets(group, None).await?;
    let partitions: Vec<TopicPartition> = match scope {
        Scope::Partition(at) => vec![at.clone()],
        Scope::Topic(topic) => {
            // Includes partitions without a committed offset.
            let found = view.topic_metadata(topic).await?;
            found
                .partitions
                .iter()
                .map(|partition| TopicPartition::new(topic.as_str(), partition.index))
                .collect()
        }
        Scope::All => committed.keys().cloned().collect(),
    };
    if partitions.is_empty() {
        let seen = partial.map_or_else(String::new, |partial| format!(" in the topics shown ({partial})"));
        return Err(Problem::wrong(format!("The group {group} has no offsets{seen}: name a topic")));
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
        let (to, note) = match to {
            ResetTarget::Earliest => (start, None),
            ResetTarget::Latest => (end, None),
            ResetTarget::Offset(offset) => within(offset, start, end),
            ResetTarget::Time(_) => match at_time.get(&at) {
                Some(offset) => within(*offset, start, end),
                None => (end, Some("No record is that recent: the end".to_owned())),
            },
            ResetTarget::By(records) => match from {
                Some(from) => within(from.saturating_add(records), start, end),
                None => {
                    let message = format!("by: there is no committed offset in {at} to count from");
                    return Err(Problem::wrong(message));
                }
            },
        };
        let lag = end - to;
        steps.push(Step { topic: at.topic.to_string(), partition: at.partition, from, to, lag, note });
    }
    Ok(ResetPlan { steps, partial })
}

/// Sets committed offsets of a group without members.
pub async fn set(view: &View, group: &str, offsets: &BTreeMap<TopicPartition, i64>) -> Result<(), Problem> {
    let offsets = offsets.iter().map(|(at, offset)| (at.clone(), CommittedOffset::new(Offset(*offset))));
    let set = view.admin().alter_group_offsets(group, &offsets.collect()).await;
    if set.as_ref().is_err_and(|error| error.error_code() == Some(ErrorCode::UnknownMemberId)) {
        // The group has become active since the plan.
        check_resettable(view, group).await?;
    }
    Ok(set?)
}

/// The committed offset of a group in a partition.
pub async fn committed_offset(view: &View, group: &str, at: &TopicPartition) -> Result<Offset, Problem> {
    let committed = view.admin().list_group_offsets(group, Some(std::slice::from_ref(at))).await?;
    let offset = committed.get(at).map(|committed| committed.offset);
    offset.ok_or_else(|| no_offset(group, at))
}

fn no_offset(group: &str, at: &TopicPartition) -> Problem {
    Problem::missing(format!("The group {group} has no offset in {at}"))
}

/// Deletes committed offsets of a group, and returns them. Refused if one of them does not exist: brokers
/// report its deletion as a success.
pub async fn delete_offsets(
    view: &View,
    group: &str,
    partitions: &[TopicPartition],
) -> Result<BTreeMap<TopicPartition, Offset>, Problem> {
    let committed = view.admin().list_group_offsets(group, Some(partitions)).await?;
    if let Some(absent) = partitions.iter().find(|at| !committed.contains_key(at)) {
        return Err(no_offset(group, absent));
    }
    let outcomes = view.admin().delete_group_offsets(group, partitions).await?;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    Ok(committed.into_iter().map(|(at, committed)| (at, committed.offset)).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: std::fmt::Debug>(refused: Result<T, Problem>) -> String {
        refused.expect_err("refused").message
    }

    #[test]
    fn special_offsets_and_times_of_kafkas_requests_are_refused() {
        assert_eq!(ResetTarget::read("offset", "1,000").expect("an offset"), ResetTarget::Offset(1000));
        assert_eq!(ResetTarget::read("by", "-3").expect("a number"), ResetTarget::By(-3));
        assert_eq!(ResetTarget::read("time", "0").expect("a time"), ResetTarget::Time(0));
        for value in ["-1", "-2", "-3"] {
            let refused = message(ResetTarget::read("time", value));
            assert!(refused.contains(value) && refused.contains("before 1970"), "{refused}");
        }
        assert!(message(ResetTarget::read("offset", "-1")).contains("use 0 or more"));
        assert!(message(ResetTarget::read("end", "")).contains("use earliest, latest"));
    }

    #[test]
    fn a_lag_is_unknown_without_that_of_a_partition() {
        let at = |partition, offset, lag| GroupOffset {
            topic: "orders".to_owned(),
            partition,
            offset,
            end: None,
            lag,
            lag_ms: None,
            reader: None,
            readers: 0,
            metadata: String::new(),
        };
        let mut offsets = vec![at(0, Some(100), Some(30)), at(1, None, None)];
        assert_eq!(lag(&offsets), None, "the group has not committed in partition 1");
        let lag_unknown = |offsets: &[GroupOffset]| lag_unknown(offsets, None);
        assert_eq!(lag_unknown(&offsets).as_deref(), Some("no committed offset in 1 partition"));
        offsets[1] = at(1, None, Some(0));
        assert_eq!((lag(&offsets), lag_unknown(&offsets)), (Some(30), None));
        offsets[1] = at(1, Some(100), None);
        assert_eq!(lag(&offsets), None);
        assert_eq!(lag_unknown(&offsets).as_deref(), Some("not known in 1 partition"));
        assert_eq!(lag(&[]), None, "it has committed nothing");
        assert_eq!(lag_unknown(&[]).as_deref(), Some("no committed offset"));
        let behind_and_beyond = [at(0, Some(100), Some(30)), at(1, Some(50), Some(-40)), at(2, None, None)];
        assert_eq!(lag(&behind_and_beyond[..2]), Some(30), "one makes up for nothing in the other");
        assert_eq!((beyond_end(&behind_and_beyond), uncommitted(&behind_and_beyond)), (1, 1));
        let partial = |offsets: &[GroupOffset]| super::lag_unknown(offsets, Some("1 topic is hidden"));
        assert_eq!(partial(&[]).as_deref(), Some("1 topic is hidden"));
        let known = partial(&behind_and_beyond[..2]);
        assert_eq!(known.as_deref(), Some("30 records in the topics shown: 1 topic is hidden"));
    }

    #[test]
    fn a_partition_needs_its_topic() {
        assert!(message(Scope::new(None, Some(0))).contains("name the topic"));
        assert!(message(Scope::new(Some(" "), Some(0))).contains("name the topic"));
        let at = TopicPartition::new("t", 3);
        assert_eq!(Scope::new(Some("t"), Some(3)).expect("a scope"), Scope::Partition(at));
        assert_eq!(Scope::new(None, None).expect("a scope"), Scope::All);
    }

    #[test]
    fn an_offset_outside_the_partition_is_noted() {
        assert_eq!(within(7, 5, 9), (7, None));
        let (to, note) = within(99_999, 5, 9);
        assert_eq!((to, note.as_deref()), (9, Some("99,999 is beyond the end: it becomes 9")));
        let (to, note) = within(2, 5, 9);
        assert_eq!((to, note.as_deref()), (5, Some("2 is before the first record: it becomes 5")));
    }
}
