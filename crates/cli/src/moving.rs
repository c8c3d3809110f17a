//! Moves of replicas between brokers: the printed plan, its execution with a throttle, and its progress.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, ClientError, Metadata, PlannedMoves, ReplicaAssignment, TopicPartition};

use super::failure::CommandFailure;
use super::outcomes::{dry_run, fail_with};
use super::output::{Column, CommandOutput};

/// Interval of checking the progress.
const LOOK: Duration = Duration::from_secs(1);

/// Whether and how a plan is executed.
#[derive(Args, Debug)]
pub(crate) struct Execution {
    /// Start the moves. Without it, the plan is shown, and nothing changes.
    #[arg(long)]
    execute: bool,
    /// Copy at most so many bytes per second from and to each broker.
    #[arg(long, value_name = "BYTES/S", value_parser = clap::value_parser!(u64).range(1..))]
    throttle: Option<u64>,
    /// Wait until the moves are done, and then remove the throttle. Ctrl-C ends the wait, not the moves.
    #[arg(long, requires = "execute")]
    wait: bool,
}

/// The replicas of partitions in the metadata.
pub(crate) fn current<'a>(
    metadata: &Metadata,
    partitions: impl IntoIterator<Item = &'a TopicPartition>,
) -> ReplicaAssignment {
    let replicas = partitions.into_iter().filter_map(|at| {
        let partition = metadata.topics.get(&*at.topic)?.partition(at.partition)?;
        Some((at.clone(), partition.replicas.clone()))
    });
    replicas.collect()
}

const COLUMNS: [Column<'_>; 6] = [
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("FROM", "from"),
    ("TO", "to"),
    ("ADDING", "adding"),
    ("REMOVING", "removing"),
];

impl Execution {
    /// Prints a plan, and executes it with `--execute`.
    pub async fn run(
        &self,
        admin: &Admin,
        output: &CommandOutput,
        moves: &PlannedMoves,
    ) -> anyhow::Result<()> {
        let rows: Vec<serde_json::Value> = moves
            .iter()
            .map(|(at, one)| {
                json!({
                    "topic": &*at.topic,
                    "partition": at.partition,
                    "from": one.from,
                    "to": one.to,
                    "adding": one.adding(),
                    "removing": one.removing(),
                })
            })
            .collect();
        output.rows(&COLUMNS, &rows)?;
        if moves.is_empty() {
            print_line("Nothing moves: every replica is where it should be.");
            return Ok(());
        }
        if !self.execute {
            if let Some(rate) = self.throttle {
                print_line(&format!("At most {rate} bytes/s would be copied from and to each broker."));
            }
            dry_run();
            return Ok(());
        }
        let (begun, errors) = match self.begin(admin, moves).await {
            Ok(results) => results,
            Err(error) => {
                self.end_unused_throttle(admin, moves).await;
                return Err(error.into());
            }
        };
        if begun.is_empty() {
            self.end_unused_throttle(admin, moves).await;
            return fail_with(errors);
        }
        if !errors.is_empty() {
            print_line(&format!(
                "{} of {} partitions cannot move; the others do.",
                errors.len(),
                moves.len()
            ));
        }
        let ended = self.follow(admin, moves, &begun).await;
        let errors: Vec<anyhow::Error> = errors.into_iter().map(Into::into).chain(ended.err()).collect();
        fail_with(errors)
    }

    /// Starts the moves, under the throttle. Returns the moves that began, and the errors of the other moves.
    async fn begin(
        &self,
        admin: &Admin,
        moves: &PlannedMoves,
    ) -> Result<(PlannedMoves, Vec<ClientError>), ClientError> {
        if let Some(rate) = self.throttle {
            admin.throttle_moves(moves, rate).await?;
        }
        let targets = moves.iter().map(|(at, one)| (at.clone(), Some(one.to.clone()))).collect();
        let (mut begun, mut errors) = (moves.clone(), Vec::new());
        for (at, result) in admin.alter_reassignments(&targets).await? {
            if let Err(error) = result {
                begun.remove(&at);
                errors.push(error);
            }
        }
        Ok((begun, errors))
    }

    /// Removes the throttle if no partition moves. For failures that may have left some moves running.
    async fn end_unused_throttle(&self, admin: &Admin, moves: &PlannedMoves) {
        if self.throttle.is_none() {
            return;
        }
        let is_unused = admin.list_reassignments(None).await.is_ok_and(|going| going.is_empty());
        let is_ended = is_unused && end_throttles(admin, moves.keys()).await.is_ok();
        print_line(if is_ended { "Nothing moves: the throttle is removed." } else { THROTTLE_STAYS });
    }

    /// With `--wait`, waits for the moves that began, and then removes the throttle of all moves.
    async fn follow(&self, admin: &Admin, moves: &PlannedMoves, begun: &PlannedMoves) -> anyhow::Result<()> {
        if !self.wait {
            print_line("The moves have begun. `thalweg topic moves` shows their progress.");
            if self.throttle.is_some() {
                print_line(THROTTLE_STAYS);
            }
            return Ok(());
        }
        if let Err(error) = wait(admin, begun).await {
            self.end_unused_throttle(admin, moves).await;
            return Err(error);
        }
        if self.throttle.is_some() {
            end_throttles(admin, moves.keys()).await?;
        }
        print_line("The moves are done.");
        Ok(())
    }
}

/// Removes the throttle, and reports brokers that keep theirs.
pub(crate) async fn end_throttles<'a>(
    admin: &Admin,
    partitions: impl IntoIterator<Item = &'a TopicPartition>,
) -> Result<(), ClientError> {
    for id in admin.end_throttles(partitions).await? {
        print_line(&format!(
            "Broker {id} does not run, and keeps its throttle if it has one: when it is back, `thalweg topic moves --end-throttle` removes it."
        ));
    }
    Ok(())
}

/// Advice for a throttle that outlives the command.
const THROTTLE_STAYS: &str =
    "The throttle stays: when the moves are done, `thalweg topic moves --end-throttle` removes it.";

/// Prints a sentence about the moves on standard error.
pub(crate) fn print_line(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Waits until no partition moves, and fails if a partition lacks its planned replicas.
async fn wait(admin: &Admin, moves: &PlannedMoves) -> anyhow::Result<()> {
    let partitions: Vec<TopicPartition> = moves.keys().cloned().collect();
    let mut last = None;
    loop {
        let going = admin.list_reassignments(Some(&partitions)).await?.len();
        if last != Some(going) {
            print_line(&format!("{going} of {} partitions still move.", moves.len()));
            last = Some(going);
        }
        if going == 0 {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let topics: BTreeSet<String> = moves.keys().map(|at| at.topic.to_string()).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    // The answering broker may learn of the last change a moment later.
    let mut wrong = Vec::new();
    for _ in 0..5 {
        let metadata = admin.cluster().refresh(&topics, false).await?;
        let now = current(&metadata, moves.keys());
        let is_there = |at: &TopicPartition, to: &[i32]| {
            now.get(at).is_some_and(|now| now.len() == to.len() && to.iter().all(|id| now.contains(id)))
        };
        wrong =
            moves.iter().filter(|(at, one)| !is_there(at, &one.to)).map(|(at, _)| at.to_string()).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    let what = |at: &String| {
        CommandFailure(format!("{at} has not got the planned replicas: its move was cancelled or changed"))
    };
    fail_with(wrong.iter().map(what).collect())
}
