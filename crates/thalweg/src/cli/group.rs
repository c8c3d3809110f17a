//! `group`: list, describe, delete.

mod describe;

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::{Cluster, CoordinatorKind, Refused};
use thalweg_wire::request::list_groups_response::ListedGroup;
use thalweg_wire::request::{DeleteGroupsRequest, ListGroupsRequest};

use super::connect::Connect;
use super::table::{align, row};

/// List, describe and delete consumer groups.
#[derive(Subcommand, Debug)]
pub enum Group {
    /// List the groups of all brokers.
    List(List),
    /// Describe groups: members, partitions, offsets and lag.
    Describe(describe::Describe),
    /// Delete groups that have no members, with their offsets.
    Delete(Delete),
}

impl Group {
    /// Does what was asked.
    pub async fn run(&self) -> anyhow::Result<()> {
        match self {
            Group::List(list) => list.run().await,
            Group::Describe(describe) => describe.run().await,
            Group::Delete(delete) => delete.run().await,
        }
    }
}

/// List the groups of all brokers.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    /// Show state, type and protocol too.
    #[arg(long)]
    state: bool,
    /// Print one JSON array instead of lines.
    #[arg(long)]
    json: bool,
}

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let groups = listed(&cluster).await?;
        let mut out = std::io::stdout().lock();
        if self.json {
            let groups: Vec<serde_json::Value> = groups
                .iter()
                .map(|group| {
                    json!({
                        "group": group.group_id,
                        "state": group.group_state,
                        "type": group.group_type,
                        "protocol_type": group.protocol_type,
                    })
                })
                .collect();
            writeln!(out, "{}", json!(groups))?;
        } else if self.state {
            let mut rows = vec![row(["GROUP", "TYPE", "PROTOCOL", "STATE"])];
            rows.extend(groups.iter().map(|group| {
                row([&group.group_id, &group.group_type, &group.protocol_type, &group.group_state])
            }));
            write!(out, "{}", align(&rows))?;
        } else {
            for group in groups {
                writeln!(out, "{}", group.group_id)?;
            }
        }
        Ok(())
    }
}

/// The groups of all brokers, each of which knows its own.
async fn listed(cluster: &Cluster) -> anyhow::Result<Vec<ListedGroup>> {
    let mut groups = Vec::new();
    for &id in cluster.metadata().brokers.keys() {
        let broker = cluster.broker(id).await?;
        let response = broker.send(&ListGroupsRequest::default()).await?;
        Refused::check(response.error_code, None, || format!("Groups of broker {id}"))?;
        groups.extend(response.groups);
    }
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    Ok(groups)
}

/// Delete groups that have no members, with their offsets.
#[derive(Args, Debug)]
pub struct Delete {
    #[command(flatten)]
    connect: Connect,
    /// The groups.
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
}

impl Delete {
    async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        for group in &self.groups {
            let coordinator = cluster.coordinator(CoordinatorKind::Group, group).await?;
            let request = DeleteGroupsRequest { groups_names: vec![group.clone()] };
            let response = coordinator.send(&request).await?;
            for result in response.results {
                Refused::check(result.error_code, None, || format!("Deletion of group {group}"))?;
                writeln!(std::io::stdout(), "Deleted group {group}.")?;
            }
        }
        Ok(())
    }
}
