//! `group describe`: a group's committed offsets by partition, its members, and its lag.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::json;
use thalweg_client::{
    Cluster, CommittedOffset, Connection, CoordinatorKind, ListedOffset, OffsetSpec, Refused, TopicPartition,
    committed, read_assignment,
};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::{ConsumerGroupDescribeRequest, DescribeGroupsRequest};

use super::{Listed, listed, patiently};
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
    state: String,
    protocol: String,
    members: Vec<Member>,
    offsets: BTreeMap<TopicPartition, CommittedOffset>,
    ends: BTreeMap<TopicPartition, ListedOffset>,
}

struct Member {
    id: String,
    instance_id: Option<String>,
    client_id: String,
    host: String,
    assigned: Vec<TopicPartition>,
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
    let coordinator = cluster.coordinator(CoordinatorKind::Group, &group).await?;
    let mut described = membership(&coordinator, group).await?;
    described.offsets = committed(&coordinator, &described.group, None, false).await?;
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

/// State and members, of either kind of group.
async fn membership(coordinator: &Connection, group: String) -> anyhow::Result<Described> {
    let request = DescribeGroupsRequest { groups: vec![group.clone()], ..DescribeGroupsRequest::default() };
    let response = coordinator.send(&request).await?;
    let Some(classic) = response.groups.into_iter().next() else {
        anyhow::bail!("{} leaves group {group} out of its answer", coordinator.peer());
    };
    let elsewhere = classic.error_code == ErrorCode::GroupIdNotFound.code() || classic.group_state == "Dead";
    if elsewhere && coordinator.version_of::<ConsumerGroupDescribeRequest>().is_ok() {
        return next_generation(coordinator, group).await;
    }
    Refused::check(classic.error_code, classic.error_message.as_deref(), || format!("Group {group}"))?;
    if classic.group_state == "Dead" {
        let refused = Refused {
            what: format!("Group {group}"),
            error_code: ErrorCode::GroupIdNotFound,
            message: Some("there is no such group".to_owned()),
        };
        return Err(refused.into());
    }
    let members = classic.members.into_iter().map(|member| Member {
        id: member.member_id,
        instance_id: member.group_instance_id,
        client_id: member.client_id,
        host: member.client_host,
        // Groups of other kinds, such as Connect's, have their own assignment format.
        assigned: read_assignment(member.member_assignment).unwrap_or_default(),
    });
    Ok(Described {
        group,
        state: classic.group_state,
        protocol: format!("{} {}", classic.protocol_type, classic.protocol_data).trim().to_owned(),
        members: members.collect(),
        offsets: BTreeMap::new(),
        ends: BTreeMap::new(),
    })
}

/// A group of the protocol of KIP-848.
async fn next_generation(coordinator: &Connection, group: String) -> anyhow::Result<Described> {
    let request = ConsumerGroupDescribeRequest {
        group_ids: vec![group.clone()],
        ..ConsumerGroupDescribeRequest::default()
    };
    let response = coordinator.send(&request).await?;
    let Some(found) = response.groups.into_iter().next() else {
        anyhow::bail!("{} leaves group {group} out of its answer", coordinator.peer());
    };
    Refused::check(found.error_code, found.error_message.as_deref(), || format!("Group {group}"))?;
    let members = found.members.into_iter().map(|member| {
        let assigned = member.assignment.topic_partitions.into_iter().flat_map(|topic| {
            let name: std::sync::Arc<str> = topic.topic_name.into();
            topic.partitions.into_iter().map(move |partition| TopicPartition::new(name.clone(), partition))
        });
        Member {
            id: member.member_id,
            instance_id: member.instance_id,
            client_id: member.client_id,
            host: member.client_host,
            assigned: assigned.collect(),
        }
    });
    Ok(Described {
        group,
        state: found.group_state,
        protocol: format!("consumer {}", found.assignor_name),
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
        Some(self.ends.get(at)?.offset - self.offsets.get(at)?.offset)
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
                text(self.offsets.get(&at).map(|committed| committed.offset.to_string())),
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
            let assigned: Vec<String> = member.assigned.iter().map(ToString::to_string).collect();
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
                    "current_offset": self.offsets.get(&at).map(|committed| committed.offset.0),
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
                    "partitions": member.assigned.iter().map(ToString::to_string).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "group": self.group,
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
