//! `group describe`: a group's committed offsets by partition, its members, and its lag in records and in
//! seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_client::{
    Admin, Cluster, CoordinatorKind, GroupKind, GroupMember, ListedGroups, ListedOffset, OffsetSpec,
    TopicPartition, UnseenGroups,
};
use thalweg_record::Offset;
use thalweg_security::visible::visible;
use thalweg_wire::ErrorCode;

use super::{COORDINATOR_WAIT, check_unseen, listed, patiently};
use crate::connect::Connect;
use crate::failure::{Usage, causes};
use crate::moment::{now_ms, seconds};
use crate::outcomes::fail_with;
use crate::output::{CommandOutput, Style};
use crate::table::{row, width};

/// Time limit for further groups after a failure.
const FURTHER_WAIT: Duration = Duration::from_secs(1);

/// Describe groups: members, partitions, offsets and lag.
///
/// LAG is in records, a dash without a committed offset, and negative for an offset beyond the end, as in
/// Kafka's tool. LAG-SECONDS is the age of the first record that the group has not read; Thalweg's
/// brokers report it, Apache Kafka's do not. Brokers leave out the offsets in topics that the login may not
/// describe; if there may be any, a warning says so, in documents the field `problem`. If a group cannot be
/// described, the others are shown, and the command fails in the end.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  thalweg group describe billing\n  thalweg group describe billing --members\n  \
                  thalweg group describe --all --json | jq ."
)]
pub struct Describe {
    #[command(flatten)]
    connect: Connect,
    /// The groups to describe.
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
    /// Describe all groups.
    #[arg(long, conflicts_with = "groups")]
    all: bool,
    /// Show the members instead of the partitions: what each reads, and except in classic groups its epoch
    /// and what it is to read.
    #[arg(long, conflicts_with = "state")]
    members: bool,
    /// Show type, state, coordinator and epochs instead of the partitions.
    #[arg(long)]
    state: bool,
    #[command(flatten)]
    output: CommandOutput,
}

/// The description of a group of any kind.
struct GroupReport {
    group: String,
    kind: GroupKind,
    state: String,
    protocol: String,
    /// Group epoch and assignment epoch; none for classic groups.
    epochs: Option<(i32, i32)>,
    /// The address of the group's coordinator.
    coordinator: String,
    members: Vec<GroupMember>,
    /// The members that read each partition, as indexes into `members`.
    owners: BTreeMap<TopicPartition, Vec<usize>>,
    /// Committed offsets; for share groups, the share-partition start offsets.
    offsets: BTreeMap<TopicPartition, Offset>,
    ends: BTreeMap<TopicPartition, ListedOffset>,
    /// Lags of a share group, which may have acknowledged records after the start offset.
    share_lags: BTreeMap<TopicPartition, i64>,
    /// The first records that are not read, in partitions with a lag.
    unread: BTreeMap<TopicPartition, ListedOffset>,
    /// The time at which these records were requested.
    now_ms: i64,
    /// The reason why offsets may be missing, if so.
    partial: Option<String>,
}

/// The assignment of a member as texts: partitions, or the tasks of a streams group.
fn work(member: &GroupMember) -> Vec<String> {
    let partitions = member.assignment.iter().map(ToString::to_string);
    let tasks = member
        .tasks
        .iter()
        .map(|task| format!("{}_{} {}", task.subtopology, task.partition, task.role.name()));
    partitions.chain(tasks).collect()
}

fn target(member: &GroupMember) -> Vec<String> {
    member.target.iter().map(ToString::to_string).collect()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl Describe {
    /// Describes the groups.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        if self.groups.is_empty() && !self.all {
            return Err(Usage("No group: expected a name, or --all".to_owned()).into());
        }
        let cluster = self.connect.cluster().await?;
        let (groups, unseen) = match self.all {
            true => {
                let ListedGroups { groups, unseen } = listed(&cluster).await?;
                (groups.into_iter().map(|group| group.group).collect(), unseen)
            }
            false => (self.groups.clone(), UnseenGroups::default()),
        };
        let admin =
            Admin::new(cluster.clone()).with_timeout(COORDINATOR_WAIT).with_answer_limit(COORDINATOR_WAIT);
        let partial = admin.partial_view().await;
        let (mut described, mut failed) = (Vec::new(), Vec::new());
        for group in groups {
            // Coordinators had their time: those of the other groups are asked once.
            let report = match failed.is_empty() {
                true => patiently(async || describe(&cluster, group.clone(), COORDINATOR_WAIT).await).await,
                false => describe(&cluster, group.clone(), FURTHER_WAIT).await,
            };
            match report {
                Ok(report) => described.push(GroupReport { partial: partial.clone(), ..report }),
                Err(error) => failed.push((group, error)),
            }
        }
        if !described.is_empty() || self.all {
            self.print(&described, &failed, &unseen)?;
        }
        if let Some(partial) = partial.filter(|_| !described.is_empty()) {
            tracing::warn!("Offsets of the groups may be missing: {partial}");
        }
        let mut errors: Vec<anyhow::Error> = failed.into_iter().map(|(_, error)| error).collect();
        errors.extend(check_unseen(&unseen).err().map(Into::into));
        fail_with(errors)
    }

    fn print(
        &self,
        described: &[GroupReport],
        failed: &[(String, anyhow::Error)],
        unseen: &UnseenGroups,
    ) -> anyhow::Result<()> {
        let mut documents: Vec<serde_json::Value> = described.iter().map(GroupReport::json).collect();
        documents
            .extend(failed.iter().map(|(group, error)| json!({ "group": group, "problem": causes(error) })));
        let gaps = unseen.missing_coordinators().into_iter();
        documents.extend(gaps.map(|problem| json!({ "group": null, "problem": problem })));
        self.output.show(&documents, |style| {
            let texts: Vec<String> = described.iter().map(|group| self.text(group, style)).collect();
            Ok(texts.join("\n"))
        })
    }

    fn text(&self, group: &GroupReport, style: Style) -> String {
        let rows = match (self.members, self.state) {
            (true, _) => group.member_rows(),
            (_, true) => group.state_rows(),
            _ => group.partition_rows(),
        };
        shown(&group.head(), rows, style)
    }
}

/// A group's line and its rows, whose first column is the group's name. A narrow terminal has more important
/// columns than this one, which repeats the line above.
fn shown(head: &str, mut rows: Vec<Vec<String>>, style: Style) -> String {
    if style.columns().is_some_and(|columns| width(&rows) > columns) {
        rows.iter_mut().for_each(|row| drop(row.remove(0)));
    }
    format!("{}\n{}", visible(head), style.table(&rows))
}

async fn describe(cluster: &Cluster, group: String, within: Duration) -> anyhow::Result<GroupReport> {
    let admin = Admin::new(cluster.clone()).with_timeout(within);
    let mut described = membership(&admin, group).await?;
    let coordinator = cluster.coordinator(CoordinatorKind::Group, &described.group).await?;
    described.coordinator = coordinator.peer().to_string();
    if described.kind == GroupKind::Share {
        for (at, listed) in admin.list_share_group_offsets(&described.group).await? {
            let listed = listed?;
            described.share_lags.extend(listed.lag.map(|lag| (at.clone(), lag)));
            described.offsets.insert(at, listed.start);
        }
    } else {
        let committed = admin.list_group_offsets(&described.group, None).await?;
        described.offsets = committed.into_iter().map(|(at, committed)| (at, committed.offset)).collect();
    }
    let partitions = described.partitions();
    let topics: BTreeSet<String> = partitions.iter().map(|at| at.topic.to_string()).collect();
    let metadata = cluster.refresh(&topics.into_iter().collect::<Vec<_>>(), false).await?;
    if described.kind == GroupKind::Streams {
        // A subtopology has as many tasks as the largest of its topics has partitions.
        described.owners.retain(|at, _| {
            let topic = metadata.topics.get(&*at.topic).filter(|topic| topic.error.is_none());
            topic.is_none_or(|topic| topic.partitions.iter().any(|found| found.index == at.partition))
        });
    }
    let hidden = |topic: &str| {
        metadata.topics.get(topic).is_some_and(|one| one.error == Some(ErrorCode::TopicAuthorizationFailed))
    };
    let topics: BTreeSet<Arc<str>> = partitions.into_iter().map(|at| at.topic).collect();
    for topic in topics.iter().filter(|topic| hidden(topic)) {
        // A member reads the topic, or has committed in it before a right was taken away.
        tracing::warn!("The ends of the partitions of {topic} are not known: the login may not describe it");
    }
    let wanted = described.partitions().into_iter().filter(|at| !hidden(&at.topic));
    let wanted: Vec<_> = wanted.map(|at| (at, OffsetSpec::Latest)).collect();
    let ends = cluster.list_offsets(&wanted, false).await;
    for (at, end) in ends {
        match end {
            Ok(end) => drop(described.ends.insert(at, end)),
            // The row of this partition has no end and no lag.
            Err(error) => tracing::warn!("Failed to get the end offset of {at}: {error}"),
        }
    }
    let unread = described.offsets.iter().filter(|(at, _)| described.lag(at).is_some_and(|lag| lag > 0));
    let unread: Vec<_> = unread.map(|(at, offset)| (at.clone(), *offset)).collect();
    described.unread = cluster.first_records(unread).await;
    described.now_ms = now_ms();
    Ok(described)
}

/// State and members of a group of any kind.
async fn membership(admin: &Admin, group: String) -> anyhow::Result<GroupReport> {
    let found = admin.describe_groups(std::slice::from_ref(&group)).await.remove(&group);
    let Some(found) = found else { anyhow::bail!("No broker describes group {group}") };
    let found = found?;
    let owners = found.owners();
    let protocol_type = match found.protocol_type.is_empty() && !found.members.is_empty() {
        true => found.kind.name(),
        false => &found.protocol_type,
    };
    let protocol = format!("{protocol_type} {}", found.protocol).trim().to_owned();
    Ok(GroupReport {
        group,
        kind: found.kind,
        state: found.state,
        protocol,
        epochs: found.epochs,
        coordinator: String::new(),
        owners,
        members: found.members,
        offsets: BTreeMap::new(),
        ends: BTreeMap::new(),
        share_lags: BTreeMap::new(),
        unread: BTreeMap::new(),
        now_ms: 0,
        partial: None,
    })
}

impl GroupReport {
    /// The line above the group's rows. A group without members, used only to commit offsets, has no
    /// protocol.
    fn head(&self) -> String {
        let members = self.members.len();
        let plural = if members == 1 { "" } else { "s" };
        let comma = if self.protocol.is_empty() { "" } else { ", " };
        format!("Group {}: {}, {members} member{plural}{comma}{}", self.group, self.state, self.protocol)
    }

    /// The partitions that are assigned or have an offset.
    fn partitions(&self) -> BTreeSet<TopicPartition> {
        self.owners.keys().chain(self.offsets.keys()).cloned().collect()
    }

    /// The member that reads a partition, in a share group the first of several, and the number of members
    /// that read it.
    fn readers(&self, at: &TopicPartition) -> (Option<&GroupMember>, usize) {
        let owners = self.owners.get(at).map_or(&[][..], Vec::as_slice);
        (owners.first().map(|index| &self.members[*index]), owners.len())
    }

    fn lag(&self, at: &TopicPartition) -> Option<i64> {
        let to_end = || Some(self.ends.get(at)?.offset - *self.offsets.get(at)?);
        self.share_lags.get(at).copied().or_else(to_end)
    }

    /// The age of the first record that is not read; 0 without a lag.
    fn lag_seconds(&self, at: &TopicPartition) -> Option<f64> {
        match self.lag(at)? {
            ..=0 => Some(0.0),
            _ => self.unread.get(at)?.age_ms(self.now_ms).map(seconds),
        }
    }

    fn partition_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row([
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "LAG-SECONDS",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
        ])];
        for at in self.partitions() {
            let (reader, readers) = self.readers(&at);
            let more = if readers > 1 { format!(" (+{})", readers - 1) } else { String::new() };
            rows.push(vec![
                self.group.clone(),
                at.topic.to_string(),
                at.partition.to_string(),
                or_dash(self.offsets.get(&at)),
                or_dash(self.ends.get(&at).map(|end| end.offset)),
                or_dash(self.lag(&at)),
                or_dash(self.lag_seconds(&at).map(|seconds| format!("{seconds:.1}"))),
                or_dash(reader.map(|member| format!("{}{more}", member.member_id))),
                or_dash(reader.map(|member| &member.client_host)),
                or_dash(reader.map(|member| &member.client_id)),
            ]);
        }
        rows
    }

    fn member_rows(&self) -> Vec<Vec<String>> {
        let (has_epochs, has_targets) = (self.kind != GroupKind::Classic, self.kind == GroupKind::Consumer);
        let mut header =
            row(["GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "PARTITIONS"]);
        header.extend(has_epochs.then(|| "EPOCH".to_owned()));
        header.extend(row(["TARGET", "PROTOCOL"]).into_iter().filter(|_| has_targets));
        let mut rows = vec![header];
        for member in &self.members {
            let assigned = work(member);
            let mut cells = vec![
                self.group.clone(),
                member.member_id.clone(),
                or_dash(member.group_instance_id.as_ref()),
                member.client_host.clone(),
                member.client_id.clone(),
                assigned.len().to_string(),
                assigned.join(","),
            ];
            cells.extend(has_epochs.then(|| or_dash(member.epoch)));
            if has_targets {
                cells.extend([target(member).join(","), or_dash(member.protocol.map(GroupKind::name))]);
            }
            rows.push(cells);
        }
        rows
    }

    fn state_rows(&self) -> Vec<Vec<String>> {
        let header = row([
            "GROUP",
            "TYPE",
            "COORDINATOR",
            "ASSIGNOR",
            "STATE",
            "GROUP-EPOCH",
            "ASSIGNMENT-EPOCH",
            "#MEMBERS",
        ]);
        let assignor = self.protocol.split_once(' ').map(|(_, assignor)| assignor);
        let cells = vec![
            self.group.clone(),
            self.kind.name().to_owned(),
            self.coordinator.clone(),
            or_dash(assignor),
            self.state.clone(),
            or_dash(self.epochs.map(|(of_group, _)| of_group)),
            or_dash(self.epochs.map(|(_, of_assignment)| of_assignment)),
            self.members.len().to_string(),
        ];
        vec![header, cells]
    }

    fn json(&self) -> serde_json::Value {
        let partitions: Vec<serde_json::Value> = self
            .partitions()
            .into_iter()
            .map(|at| {
                let (reader, readers) = self.readers(&at);
                json!({
                    "topic": &*at.topic,
                    "partition": at.partition,
                    "current_offset": self.offsets.get(&at).map(|offset| offset.0),
                    "log_end_offset": self.ends.get(&at).map(|end| end.offset.0),
                    "lag": self.lag(&at),
                    "lag_seconds": self.lag_seconds(&at),
                    "member_id": reader.map(|member| &member.member_id),
                    "client_id": reader.map(|member| &member.client_id),
                    "host": reader.map(|member| &member.client_host),
                    "readers": readers,
                })
            })
            .collect();
        let members: Vec<serde_json::Value> = self
            .members
            .iter()
            .map(|member| {
                let has_target = self.kind == GroupKind::Consumer;
                json!({
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "client_id": member.client_id,
                    "host": member.client_host,
                    "rack": member.rack,
                    "epoch": member.epoch,
                    "protocol": member.protocol.map(GroupKind::name),
                    "subscribed": member.subscribed,
                    "partitions": work(member),
                    "target_partitions": has_target.then(|| target(member)),
                })
            })
            .collect();
        json!({
            "group": self.group,
            "type": self.kind.name(),
            "state": self.state,
            "protocol": self.protocol,
            "coordinator": self.coordinator,
            "group_epoch": self.epochs.map(|(of_group, _)| of_group),
            "assignment_epoch": self.epochs.map(|(_, of_assignment)| of_assignment),
            "partitions": partitions,
            "members": members,
            "problem": self.partial.as_ref().map(|why| format!("Offsets may be missing: {why}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_has_the_lag_on_the_first_line() {
        let header = row([
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
        ]);
        let member = "consumer-1-3d4ce0b3-0fc1-4172-a540-636e283224bd";
        let cells = row(["billing", "orders", "0", "7", "10", "3", member, "/127.0.0.1", "consumer-1"]);
        let expected = "\
Group billing
TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG
    CONSUMER-ID                                      HOST        CLIENT-ID
orders  0          7               10              3
    consumer-1-3d4ce0b3-0fc1-4172-a540-636e283224bd  /127.0.0.1  consumer-1
";
        let rows = || vec![header.clone(), cells.clone()];
        assert_eq!(shown("Group billing", rows(), Style::NARROW), expected);
        let piped = shown("Group billing", rows(), Style::PLAIN);
        assert!(piped.contains("\nGROUP ") && piped.lines().count() == 3, "{piped}");
    }

    fn group(kind: GroupKind) -> GroupReport {
        GroupReport {
            group: "g".to_owned(),
            kind,
            state: "Empty".to_owned(),
            protocol: String::new(),
            epochs: None,
            coordinator: String::new(),
            members: Vec::new(),
            owners: BTreeMap::new(),
            offsets: BTreeMap::new(),
            ends: BTreeMap::new(),
            share_lags: BTreeMap::new(),
            unread: BTreeMap::new(),
            now_ms: 10_000,
            partial: None,
        }
    }

    #[test]
    fn a_group_without_a_protocol_has_no_dangling_comma() {
        let mut group = group(GroupKind::Classic);
        assert_eq!(group.head(), "Group g: Empty, 0 members");
        group.protocol = "consumer range".to_owned();
        assert_eq!(group.head(), "Group g: Empty, 0 members, consumer range");
    }

    #[test]
    fn partitions_have_their_owner_and_the_lag_in_records_and_seconds() {
        let mut group = group(GroupKind::Share);
        let member = |id: &str| GroupMember {
            member_id: id.to_owned(),
            client_id: format!("client-{id}"),
            client_host: "/10.0.0.1".to_owned(),
            ..GroupMember::default()
        };
        group.members = vec![member("a"), member("b")];
        let listed = |offset, timestamp| ListedOffset {
            offset: Offset(offset),
            timestamp,
            leader_epoch: thalweg_record::LeaderEpoch(0),
        };
        let at = |partition| TopicPartition::new("t", partition);
        group.owners = [(at(0), vec![0]), (at(1), vec![0, 1])].into();
        group.offsets = (0..5).map(|partition| (at(partition), Offset(5))).collect();
        group.ends =
            [(at(0), listed(7, -1)), (at(1), listed(5, -1)), (at(3), listed(9, -1)), (at(4), listed(1, -1))]
                .into();
        group.unread = [(at(0), listed(5, 7_400))].into();
        let cells = |row: &[String]| row[5..].join(" ");
        let rows: Vec<String> = group.partition_rows().iter().map(|row| cells(row)).collect();
        let expected = [
            "LAG LAG-SECONDS CONSUMER-ID HOST CLIENT-ID",
            "2 2.6 a /10.0.0.1 client-a",
            "0 0.0 a (+1) /10.0.0.1 client-a",
            "- - - - -",
            "4 - - - -",
            "-4 0.0 - - -",
        ];
        assert_eq!(rows, expected);
        let document = group.json();
        let first = &document["partitions"][0];
        assert_eq!((&first["lag_seconds"], &first["client_id"]), (&json!(2.6), &json!("client-a")));
        assert_eq!((&first["readers"], &document["partitions"][1]["readers"]), (&json!(1), &json!(2)));
        assert_eq!(document["partitions"][3]["lag_seconds"], json!(null));
    }
}
