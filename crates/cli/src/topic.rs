//! `topic`: create, list, describe, alter, delete; partitions, their replicas, leaders and oldest records.

mod alter;
mod create;
mod describe;
mod elect;
mod groups;
mod grow;
mod list;
mod moves;
mod offsets;
mod trim;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::RefusedRequest;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::DeleteTopicsRequest;
use thalweg_wire::request::delete_topics_request::DeleteTopicState;

use super::CommandFuture;
use super::connect::Connect;
use super::failure::Usage;
use super::outcomes::add_outcomes;
use super::output::{CommandOutput, Outcomes};

pub(crate) use moves::{all as all_partitions, usable_brokers};

/// Time limit for the controller to complete an administrative request.
const ADMIN_TIMEOUT_MS: i32 = 30_000;

/// Create, list, describe, change, move and delete topics.
#[derive(Subcommand, Debug)]
pub enum Topic {
    Create(create::Create),
    List(list::List),
    Describe(describe::Describe),
    Delete(Delete),
    Alter(alter::Alter),
    Grow(grow::Grow),
    Offsets(offsets::Offsets),
    Trim(trim::Trim),
    #[command(visible_alias = "reassign")]
    Move(moves::Move),
    Moves(moves::Moves),
    CancelMoves(moves::CancelMoves),
    Elect(elect::Elect),
}

impl Topic {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Topic::Create(create) => create.run().await,
                Topic::List(list) => list.run().await,
                Topic::Describe(describe) => describe.run().await,
                Topic::Delete(delete) => delete.run().await,
                Topic::Alter(alter) => alter.run().await,
                Topic::Grow(grow) => grow.run().await,
                Topic::Offsets(offsets) => offsets.run().await,
                Topic::Trim(trim) => trim.run().await,
                Topic::Move(moves) => moves.run().await,
                Topic::Moves(moves) => moves.run().await,
                Topic::CancelMoves(cancel) => cancel.run().await,
                Topic::Elect(elect) => elect.run().await,
            }
        })
    }
}

/// Delete topics and their records.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  thalweg topic delete orders payments")]
pub struct Delete {
    #[command(flatten)]
    connect: Connect,
    /// The topics to delete.
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Do not fail when a topic does not exist.
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl Delete {
    async fn run(&self) -> anyhow::Result<()> {
        self.output.outcomes(async |outcomes| self.delete(outcomes).await).await
    }

    async fn delete(&self, outcomes: &mut Outcomes<'_>) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let any = cluster.any().await?;
        let mut request =
            DeleteTopicsRequest { timeout_ms: ADMIN_TIMEOUT_MS, ..DeleteTopicsRequest::default() };
        // From version 6 on, topics are named in a struct that can hold an id instead.
        if any.version_of::<DeleteTopicsRequest>()? >= 6 {
            let states = self
                .topics
                .iter()
                .map(|name| DeleteTopicState { name: Some(name.clone()), ..DeleteTopicState::default() });
            request.topics = states.collect();
        } else {
            request.topic_names.clone_from(&self.topics);
        }
        let response = any.send(&request).await?;
        let unknown = ErrorCode::UnknownTopicOrPartition.code();
        let counted = response.responses.into_iter();
        let counted = counted.filter(|topic| !(self.if_exists && topic.error_code == unknown));
        // The order of the results is arbitrary.
        let results: BTreeMap<String, _> = counted
            .map(|deleted| {
                let name = deleted.name.unwrap_or_default();
                let what = || format!("Deleting topic {name}");
                let result =
                    RefusedRequest::check(deleted.error_code, deleted.error_message.as_deref(), what);
                (name, result)
            })
            .collect();
        add_outcomes(outcomes, results, |name, ()| {
            (json!({ "topic": name, "outcome": "deleted" }), format!("Deleted topic {name}."))
        })
    }
}

/// `key=value` as a pair.
fn pair(text: &str) -> Result<(String, String), Usage> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Usage(format!(
            "--config {text:?} is not a setting: expected key=value, for example retention.ms=3600000"
        ))),
    }
}

/// Kafka's notation of a replica assignment: partitions separated by commas, the brokers of each by colons.
fn assignment(text: &str) -> Result<Vec<Vec<i32>>, Usage> {
    let wrong = || {
        Usage(format!(
            "--replica-assignment {text:?} is invalid: expected broker ids with ':' between them and ',' between \
             partitions, for example 1:2,2:3"
        ))
    };
    text.split(',')
        .map(|partition| partition.split(':').map(|id| id.trim().parse().map_err(|_| wrong())).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_assignment_is_read_in_kafkas_notation() {
        assert_eq!(assignment("0:1,1:2").expect("valid"), [[0, 1], [1, 2]]);
        assert_eq!(assignment("3").expect("valid"), [[3]]);
        for wrong in ["", "0:1,", "a", "0::1"] {
            assert!(assignment(wrong).is_err(), "{wrong}");
        }
    }
}
