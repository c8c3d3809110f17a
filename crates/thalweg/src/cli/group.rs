//! `group`: list, describe, delete.

mod describe;

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::{ClientError, Cluster, CoordinatorKind, Refused};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::list_groups_response::ListedGroup;
use thalweg_wire::request::{DeleteGroupsRequest, ListGroupsRequest};
use tokio::time::Instant;

use super::connect::Connect;
use super::failure::Failed;
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
    /// Runs the command.
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
        let Listed { groups, missing } = listed(&cluster).await?;
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
        Ok(missing.map_or(Ok(()), Err)?)
    }
}

/// Time limit for finding a coordinator, and for its loading.
const COORDINATOR_WAIT: Duration = Duration::from_secs(10);
/// Retry interval meanwhile.
const COORDINATOR_RETRY: Duration = Duration::from_millis(100);

/// Retries while a coordinator starts: the first request creates the topic of groups, and a broker reads its
/// partition before it answers.
async fn patiently<T>(mut ask: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + COORDINATOR_WAIT;
    loop {
        match ask().await {
            Err(error) if is_on_its_way(&error) && Instant::now() < deadline => {
                tokio::time::sleep(COORDINATOR_RETRY).await;
            }
            other => return other,
        }
    }
}

fn is_on_its_way(error: &anyhow::Error) -> bool {
    let code = error.chain().find_map(|cause| match cause.downcast_ref::<ClientError>() {
        Some(error) => error.error_code(),
        None => cause.downcast_ref::<Refused>().map(|refused| refused.error_code),
    });
    matches!(
        code,
        Some(
            ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::CoordinatorNotAvailable
                | ErrorCode::NotCoordinator
        )
    )
}

/// The groups of those brokers that answered.
struct Listed {
    groups: Vec<ListedGroup>,
    /// That others did not.
    missing: Option<Failed>,
}

/// The groups of all brokers, each of which has its own.
async fn listed(cluster: &Cluster) -> anyhow::Result<Listed> {
    patiently(async || ask_for_all(cluster).await).await
}

async fn ask_for_all(cluster: &Cluster) -> anyhow::Result<Listed> {
    let (mut groups, mut silent) = (Vec::new(), Vec::new());
    for &id in cluster.metadata().brokers.keys() {
        let asked = async { cluster.broker(id).await?.send(&ListGroupsRequest::default()).await };
        match asked.await {
            Ok(response) => {
                Refused::check(response.error_code, None, || format!("Groups of broker {id}"))?;
                groups.extend(response.groups);
            }
            Err(error) if error.is_retriable() => silent.push(format!("{id} ({error})")),
            Err(error) => return Err(error.into()),
        }
    }
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    let silent = (!silent.is_empty()).then(|| silent.join(", "));
    let missing = silent.map(|silent| Failed(format!("The groups of these brokers are missing: {silent}")));
    Ok(Listed { groups, missing })
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
            patiently(async || delete(&cluster, group).await).await?;
            writeln!(std::io::stdout(), "Deleted group {group}.")?;
        }
        Ok(())
    }
}

async fn delete(cluster: &Cluster, group: &str) -> anyhow::Result<()> {
    let coordinator = cluster.coordinator(CoordinatorKind::Group, group).await?;
    let request = DeleteGroupsRequest { groups_names: vec![group.to_owned()] };
    let response = coordinator.send(&request).await?;
    for result in response.results {
        Refused::check(result.error_code, None, || format!("Deletion of group {group}"))?;
    }
    Ok(())
}
