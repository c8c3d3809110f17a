//! `group`: list, describe, reset, delete groups of every kind.

mod describe;
mod members;
mod offsets;
mod reset;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::{ClientError, Cluster, CoordinatorKind, RefusedRequest};
use thalweg_security::visible::visible;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::list_groups_response::ListedGroup;
use thalweg_wire::request::{DeleteGroupsRequest, ListGroupsRequest};
use tokio::time::Instant;

use super::CommandFuture;
use super::connect::Connect;
use super::failure::CommandFailure;
use super::output::{Column, Outcomes, Output};
use super::settle::fail_with;

/// List, describe, reset and delete groups: classic, consumer, share and streams groups.
#[derive(Subcommand, Debug)]
pub enum Group {
    List(List),
    Describe(describe::Describe),
    #[command(visible_alias = "seek")]
    Reset(reset::Reset),
    DeleteOffsets(offsets::DeleteOffsets),
    RemoveMembers(members::RemoveMembers),
    Delete(Delete),
}

impl Group {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Group::List(list) => list.run().await,
                Group::Describe(describe) => describe.run().await,
                Group::Reset(reset) => reset.run().await,
                Group::DeleteOffsets(delete) => delete.run().await,
                Group::RemoveMembers(remove) => remove.run().await,
                Group::Delete(delete) => delete.run().await,
            }
        })
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
    /// Only groups of this type: classic, consumer, share or streams; can be repeated.
    #[arg(long = "type", value_name = "TYPE", value_parser = ["classic", "consumer", "share", "streams"])]
    types: Vec<String>,
    /// Only groups in this state, such as Stable or Empty; can be repeated.
    #[arg(long = "in-state", value_name = "STATE", value_parser = STATES, ignore_case = true)]
    states: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// Kafka's states of groups, of all types.
const STATES: [&str; 8] = [
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
];

const COLUMNS: [Column<'_>; 4] =
    [("GROUP", "group"), ("TYPE", "type"), ("PROTOCOL", "protocol_type"), ("STATE", "state")];

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let ListedGroups { mut groups, missing } = listed(&cluster).await?;
        let is_one = |wanted: &[String], name: &str| {
            wanted.is_empty() || wanted.iter().any(|one| one.eq_ignore_ascii_case(name))
        };
        groups.retain(|group| {
            is_one(&self.types, &group.group_type) && is_one(&self.states, &group.group_state)
        });
        if self.state || !self.output.is_table() {
            let rows: Vec<serde_json::Value> = groups
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
            self.output.rows(&COLUMNS, &rows)?;
        } else {
            let names = groups.iter().map(|group| format!("{}\n", visible(&group.group_id)));
            self.output.show(&(), |_| Ok(names.collect()))?;
        }
        Ok(missing.map_or(Ok(()), Err)?)
    }
}

/// Time limit for finding a coordinator, and for the coordinator to load.
const COORDINATOR_WAIT: Duration = Duration::from_secs(10);
/// Retry interval while a coordinator is unavailable.
const COORDINATOR_RETRY: Duration = Duration::from_millis(100);

/// Retries while a coordinator starts: the first request creates `__consumer_offsets`, and a broker loads a
/// partition of that topic before it answers.
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
        None => cause.downcast_ref::<RefusedRequest>().map(|refused| refused.error_code),
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

/// The groups of the brokers that answered.
struct ListedGroups {
    groups: Vec<ListedGroup>,
    /// The failure of the brokers that did not answer.
    missing: Option<CommandFailure>,
}

/// The groups of all brokers. Each broker lists the groups that it coordinates.
async fn listed(cluster: &Cluster) -> anyhow::Result<ListedGroups> {
    patiently(async || ask_for_all(cluster).await).await
}

async fn ask_for_all(cluster: &Cluster) -> anyhow::Result<ListedGroups> {
    let (mut groups, mut silent) = (Vec::new(), Vec::new());
    for &id in cluster.metadata().brokers.keys() {
        let asked = async { cluster.broker(id).await?.send(&ListGroupsRequest::default()).await };
        match asked.await {
            Ok(response) => {
                RefusedRequest::check(response.error_code, None, || format!("Groups of broker {id}"))?;
                groups.extend(response.groups);
            }
            Err(error) if error.is_retriable() => silent.push(format!("{id} ({error})")),
            Err(error) => return Err(error.into()),
        }
    }
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    let silent = (!silent.is_empty()).then(|| silent.join(", "));
    let missing =
        silent.map(|silent| CommandFailure(format!("The groups of these brokers are missing: {silent}")));
    Ok(ListedGroups { groups, missing })
}

/// Delete groups that have no members, with their offsets.
#[derive(Args, Debug)]
pub struct Delete {
    #[command(flatten)]
    connect: Connect,
    /// The groups.
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    output: Output,
}

impl Delete {
    async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let delete_all = async |outcomes: &mut Outcomes<'_>| {
            let mut errors = Vec::new();
            for group in &self.groups {
                if let Err(error) = patiently(async || delete(&cluster, group).await).await {
                    errors.push(error);
                    continue;
                }
                let outcome = json!({ "group": group, "outcome": "deleted" });
                outcomes.add(&outcome, &format!("Deleted group {group}."))?;
            }
            fail_with(errors)
        };
        self.output.outcomes(delete_all).await
    }
}

async fn delete(cluster: &Cluster, group: &str) -> anyhow::Result<()> {
    let coordinator = cluster.coordinator(CoordinatorKind::Group, group).await?;
    let request = DeleteGroupsRequest { groups_names: vec![group.to_owned()] };
    let response = coordinator.send(&request).await?;
    for result in response.results {
        RefusedRequest::check(result.error_code, None, || format!("Deletion of group {group}"))?;
    }
    Ok(())
}
