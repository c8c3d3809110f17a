//! `group`: list, describe, reset, delete groups of every kind.

mod describe;
mod list;
mod members;
mod offsets;
mod reset;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::{
    Admin, ClientError, Cluster, CoordinatorKind, ListedGroups, RefusedRequest, UnseenGroups,
};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::DeleteGroupsRequest;
use tokio::time::Instant;

use super::CommandFuture;
use super::connect::Connect;
use super::failure::CommandFailure;
use super::outcomes::fail_with;
use super::output::{CommandOutput, Outcomes};

/// List, describe, reset and delete groups: classic, consumer, share and streams groups.
#[derive(Subcommand, Debug)]
pub enum Group {
    List(list::List),
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

/// Time limit for finding a coordinator, and for the coordinator to load.
const COORDINATOR_WAIT: Duration = Duration::from_secs(10);
/// Retry interval while a coordinator is unavailable.
const COORDINATOR_RETRY: Duration = Duration::from_millis(100);

/// Retries while a coordinator starts: the first request creates `__consumer_offsets`, and a broker loads a
/// partition of that topic before it answers.
async fn patiently<T>(mut request: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + COORDINATOR_WAIT;
    loop {
        match request().await {
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

/// The groups of all brokers. Each broker lists the groups that it coordinates.
pub(crate) async fn listed(cluster: &Cluster) -> Result<ListedGroups, ClientError> {
    Admin::new(cluster.clone()).listed_groups(COORDINATOR_WAIT).await
}

/// Warns of groups that the login may not see. Missing coordinators are a failure, at the end of a list.
fn check_unseen(unseen: &UnseenGroups) -> Result<(), CommandFailure> {
    let reasons = unseen.reasons();
    if unseen.is_coordinator_missing() {
        return Err(CommandFailure(reasons.join("; ")));
    }
    reasons.iter().for_each(|reason| tracing::warn!("{reason}"));
    Ok(())
}

/// Delete groups that have no members, with their offsets.
#[derive(Args, Debug)]
pub struct Delete {
    #[command(flatten)]
    connect: Connect,
    /// The groups to delete.
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    output: CommandOutput,
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
