//! `group describe`: a group's committed offsets by partition, its members, and its lag.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::json;
use thalweg_client::{
    Admin, ClientError, Cluster, GroupKind, ListedOffset, OffsetSpec, StreamsTask, TopicPartition,
};
use thalweg_record::Offset;

use super::{COORDINATOR_WAIT, Listed, listed, patiently};
use crate::cli::connect::Connect;
use crate::cli::failure::Usage;
use crate::cli::output::{Output, Style};
use crate::cli::table::{printable, row};

/// Describe groups: members, partitions, offsets and lag.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  thalweg group describe billing\n  thalweg group describe --all --json | jq ."
)]
pub struct Describe {
    #[command(flatten)]
    connect: Connect,
    /// The groups.
    #[arg(value_name = "GROUP")]
    groups: Vec<String>,
    /// Describe all groups.
    #[arg(long, conflicts_with = "groups")]
    all: bool,
    /// Show the members instead of the partitions.
    #[arg(long)]
    members: bool,
    #[command(flatten)]
    output: Output,
}

/// A group.
struct Described {
    group: String,
    kind: GroupKind,
    state: String,
    protocol: String,
    members: Vec<Member>,
    /// Where it reads on.
    offsets: BTreeMap<TopicPartition, Offset>,
    ends: BTreeMap<TopicPartition, ListedOffset>,
}

struct Member {
    id: String,
    instance_id: Option<String>,
    client_id: String,
    host: String,
    assigned: Vec<TopicPartition>,
    /// Those of a streams group.
    tasks: Vec<StreamsTask>,
}

impl Member {
    /// What it works on, as texts: partitions, or the tasks of a streams group.
    fn work(&self) -> Vec<String> {
        let partitions = self.assigned.iter().map(ToString::to_string);
        let tasks = self
            .tasks
            .iter()
            .map(|task| format!("{}_{} {}", task.subtopology, task.partition, task.role.name()));
        partitions.chain(tasks).collect()
    }
}

impl Describe {
    /// Describes the groups.
    pub async fn run(&self) -> anyhow::Result<()> {
        if self.groups.is_empty() && !self.all {
            return Err(Usage("No group: expected a name, or --all".to_owned()).into());
        }
        let cluster = self.connect.cluster().await?;
        let (groups, missing) = match self.all {
            true => {
                let Listed { groups, missing } = listed(&cluster).await?;
                (groups.into_iter().map(|group| group.group_id).collect(), missing)
            }
            false => (self.groups.clone(), None),
        };
        let mut described = Vec::new();
        for group in groups {
            described.push(patiently(async || describe(&cluster, group.clone()).await).await?);
        }
        let documents: Vec<serde_json::Value> = described.iter().map(Described::json).collect();
        self.output.show(&documents, |style| {
            let texts: Vec<String> = described.iter().map(|group| self.text(group, style)).collect();
            Ok(texts.join("\n"))
        })?;
        Ok(missing.map_or(Ok(()), Err)?)
    }

    fn text(&self, group: &Described, style: Style) -> String {
        let rows = if self.members { group.member_rows() } else { group.partition_rows() };
        format!("{}\n{}", printable(&group.head()), style.table(&rows))
    }
}

async fn describe(cluster: &Cluster, group: String) -> anyhow::Result<Described> {
    let admin = Admin::new(cluster.clone()).with_timeout(COORDINATOR_WAIT);
    let mut described = membership(&admin, group).await?;
    described.offsets = match described.kind {
        GroupKind::Share => share_offsets(&admin, &described.group).await?,
        _ => {
            let committed = admin.list_group_offsets(&described.group, None).await?;
            committed.into_iter().map(|(at, committed)| (at, committed.offset)).collect()
        }
    };
    let partitions = described.partitions();
    let topics: BTreeSet<String> = partitions.iter().map(|at| at.topic.to_string()).collect();
    cluster.refresh(&topics.into_iter().collect::<Vec<_>>(), false).await?;
    let wanted: Vec<_> = partitions.into_iter().map(|at| (at, OffsetSpec::Latest)).collect();
    let ends = cluster.list_offsets(&wanted, false).await;
    for (at, end) in ends {
        match end {
            Ok(end) => drop(described.ends.insert(at, end)),
            // Its row has no end and no lag.
            Err(error) => tracing::warn!("Failed to get the end offset of {at}: {error}"),
        }
    }
    Ok(described)
}

async fn share_offsets(admin: &Admin, group: &str) -> anyhow::Result<BTreeMap<TopicPartition, Offset>> {
    let listed = admin.list_share_group_offsets(group).await?.into_iter();
    let offsets = listed.map(|(at, offset)| Ok((at, offset?.start)));
    Ok(offsets.collect::<Result<_, ClientError>>()?)
}

/// State and members, of any kind of group.
async fn membership(admin: &Admin, group: String) -> anyhow::Result<Described> {
    let found = admin.describe_groups(std::slice::from_ref(&group)).await.remove(&group);
    let Some(found) = found else { anyhow::bail!("No broker describes group {group}") };
    let found = found?;
    let protocol_type = match found.protocol_type.is_empty() && !found.members.is_empty() {
        true => found.kind.name(),
        false => &found.protocol_type,
    };
    let protocol = format!("{protocol_type} {}", found.protocol).trim().to_owned();
    let members = found.members.into_iter().map(|member| Member {
        id: member.member_id,
        instance_id: member.group_instance_id,
        client_id: member.client_id,
        host: member.client_host,
        assigned: member.assignment,
        tasks: member.tasks,
    });
    Ok(Described {
        group,
        kind: found.kind,
        state: found.state,
        protocol,
        members: members.collect(),
        offsets: BTreeMap::new(),
        ends: BTreeMap::new(),
    })
}

impl Described {
    /// The line above its rows. A group to which offsets were committed without a member has no protocol.
    fn head(&self) -> String {
        let members = self.members.len();
        let plural = if members == 1 { "" } else { "s" };
        let comma = if self.protocol.is_empty() { "" } else { ", " };
        format!("Group {}: {}, {members} member{plural}{comma}{}", self.group, self.state, self.protocol)
    }

    /// Those that are assigned or have an offset.
    fn partitions(&self) -> BTreeSet<TopicPartition> {
        let assigned = self.members.iter().flat_map(|member| &member.assigned);
        assigned.chain(self.offsets.keys()).cloned().collect()
    }

    fn reader(&self, at: &TopicPartition) -> Option<&Member> {
        self.members.iter().find(|member| member.assigned.contains(at))
    }

    fn lag(&self, at: &TopicPartition) -> Option<i64> {
        Some(self.ends.get(at)?.offset - *self.offsets.get(at)?)
    }

    fn partition_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row([
            "GROUP",
            "TOPIC",
            "PARTITION",
            "CURRENT-OFFSET",
            "LOG-END-OFFSET",
            "LAG",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
        ])];
        for at in self.partitions() {
            let reader = self.reader(&at);
            let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            rows.push(vec![
                self.group.clone(),
                at.topic.to_string(),
                at.partition.to_string(),
                text(self.offsets.get(&at).map(ToString::to_string)),
                text(self.ends.get(&at).map(|end| end.offset.to_string())),
                text(self.lag(&at).map(|lag| lag.to_string())),
                text(reader.map(|member| member.id.clone())),
                text(reader.map(|member| member.host.clone())),
                text(reader.map(|member| member.client_id.clone())),
            ]);
        }
        rows
    }

    fn member_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row([
            "GROUP",
            "CONSUMER-ID",
            "INSTANCE-ID",
            "HOST",
            "CLIENT-ID",
            "#PARTITIONS",
            "PARTITIONS",
        ])];
        for member in &self.members {
            let assigned = member.work();
            rows.push(vec![
                self.group.clone(),
                member.id.clone(),
                member.instance_id.clone().unwrap_or_else(|| "-".to_owned()),
                member.host.clone(),
                member.client_id.clone(),
                assigned.len().to_string(),
                assigned.join(","),
            ]);
        }
        rows
    }

    fn json(&self) -> serde_json::Value {
        let partitions: Vec<serde_json::Value> = self
            .partitions()
            .into_iter()
            .map(|at| {
                json!({
                    "topic": &*at.topic,
                    "partition": at.partition,
                    "current_offset": self.offsets.get(&at).map(|offset| offset.0),
                    "log_end_offset": self.ends.get(&at).map(|end| end.offset.0),
                    "lag": self.lag(&at),
                    "member_id": self.reader(&at).map(|member| &member.id),
                })
            })
            .collect();
        let members: Vec<serde_json::Value> = self
            .members
            .iter()
            .map(|member| {
                json!({
                    "member_id": member.id,
                    "group_instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "partitions": member.work(),
                })
            })
            .collect();
        json!({
            "group": self.group,
            "type": self.kind.name(),
            "state": self.state,
            "protocol": self.protocol,
            "partitions": partitions,
            "members": members,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_a_protocol_has_no_dangling_comma() {
        let mut group = Described {
            group: "g".to_owned(),
            kind: GroupKind::Classic,
            state: "Empty".to_owned(),
            protocol: String::new(),
            members: Vec::new(),
            offsets: BTreeMap::new(),
            ends: BTreeMap::new(),
        };
        assert_eq!(group.head(), "Group g: Empty, 0 members");
        group.protocol = "consumer range".to_owned();
        assert_eq!(group.head(), "Group g: Empty, 0 members, consumer range");
    }
}
