//! Replica moves of a topic to other brokers: plan, start, progress, cancellation.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thalweg_client::{
    ClientError, ClusterDescription, PlannedMove, PlannedMoves, ReplicaAssignment, TopicPartition,
    UsableBroker, planned_moves, spread,
};
use utoipa::{IntoParams, ToSchema};

use super::{BROKER_WAIT, View};
use crate::format;
use crate::problem::Problem;

/// A request for a move plan.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct MoveQuery {
    /// Partition indexes such as `0,3`; all if empty.
    #[param(required = false)]
    pub partitions: String,
    /// Allowed brokers such as `1,2,3`; all running brokers if empty.
    #[param(required = false)]
    pub brokers: String,
    /// Excluded brokers such as `1,2,3`; none if empty.
    #[param(required = false)]
    pub without: String,
    /// Replicas per partition; unchanged if empty.
    #[param(required = false)]
    pub replicas: String,
    /// Exact replicas for every partition, preferred leader first, such as `2,3,1`. Overrides the other
    /// fields.
    #[param(required = false)]
    pub exactly: String,
}

/// The planned moves.
#[derive(Debug, Serialize, ToSchema)]
pub struct MovePlan {
    /// Partitions to move.
    pub moves: Vec<MoveLine>,
    /// Bytes to copy. None if the login may not read the log directories.
    pub bytes: Option<u64>,
}

/// A planned move of one partition.
#[derive(Debug, Serialize, ToSchema)]
pub struct MoveLine {
    /// Partition index.
    pub partition: i32,
    /// The replicas before the move.
    pub from: Vec<i32>,
    /// New replicas, preferred leader first.
    pub to: Vec<i32>,
    /// Bytes to copy to new replicas.
    pub bytes: Option<u64>,
}

/// Moves to start.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveOrder {
    /// The partitions to move, as planned.
    pub moves: Vec<PartitionMove>,
    /// Maximum bytes per second that each broker copies in and out. Default: no limit.
    #[serde(default)]
    pub throttle: Option<u64>,
}

/// A partition to move.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionMove {
    /// Partition index.
    pub partition: i32,
    /// The replicas in the plan. If they have changed since, the move is refused.
    pub from: Vec<i32>,
    /// The new replicas, preferred leader first.
    pub to: Vec<i32>,
}

/// A partition in motion.
#[derive(Debug, Serialize, ToSchema)]
pub struct MoveProgress {
    /// Partition index.
    pub partition: i32,
    /// The replicas after the move.
    pub replicas: Vec<i32>,
    /// Brokers that gain a replica.
    pub adding: Vec<i32>,
    /// Brokers that lose their replica.
    pub removing: Vec<i32>,
    /// Progress of the new replicas in percent. None if the brokers do not report sizes.
    pub copied_percent: Option<i64>,
}

/// Parses broker ids or partition indexes, separated by commas.
pub fn ids(name: &str, text: &str) -> Result<Vec<i32>, Problem> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parsed = parts.map(|part| match part.parse::<i32>() {
        Ok(id) if id >= 0 => Ok(id),
        _ => Err(Problem::wrong(format!("{name}: {part:?} is not a number: expected for example 1,2,3"))),
    });
    parsed.collect()
}

async fn current(view: &View, topic: &str) -> Result<ReplicaAssignment, Problem> {
    let found = view.topic_metadata(topic).await?;
    let partitions = found.partitions.iter();
    Ok(partitions
        .map(|partition| (TopicPartition::new(topic, partition.index), partition.replicas.clone()))
        .collect())
}

/// Plans moves. Nothing changes.
pub async fn plan(view: &View, topic: &str, query: &MoveQuery) -> Result<MovePlan, Problem> {
    let mut current = current(view, topic).await?;
    let wanted: BTreeSet<i32> = ids("Partitions", &query.partitions)?.into_iter().collect();
    if let Some(missing) = wanted.iter().find(|index| !current.keys().any(|at| at.partition == **index)) {
        return Err(Problem::missing(format!("{topic} has no partition {missing}")));
    }
    current.retain(|at, _| wanted.is_empty() || wanted.contains(&at.partition));
    let exactly = ids("Exactly these brokers", &query.exactly)?;
    let planned = match exactly.is_empty() {
        true => {
            let brokers =
                usable_brokers(view, &ids("Brokers", &query.brokers)?, &ids("Without", &query.without)?)
                    .await?;
            let factor = match query.replicas.trim() {
                "" => None,
                text => match text.parse::<usize>() {
                    Ok(factor) if factor > 0 => Some(factor),
                    _ => return Err(Problem::wrong(format!("Replicas: {text:?} is not a number from 1 up"))),
                },
            };
            spread(&current, &brokers, factor).map_err(|few| Problem::wrong(few.to_string()))?
        }
        false => current.keys().map(|at| (at.clone(), exactly.clone())).collect(),
    };
    let moves = planned_moves(&current, planned);
    unless_running(view, &moves).await?;
    let partitions: Vec<TopicPartition> = moves.keys().cloned().collect();
    let sizes = view.prompt_admin().replica_bytes(Some(&partitions)).await.unwrap_or_default();
    let bytes = |at: &TopicPartition, one: &PlannedMove| {
        let sizes = one.from.iter().filter_map(|id| sizes.get(&(at.clone(), *id)));
        Some(sizes.max()?.unsigned_abs().saturating_mul(one.adding().len() as u64))
    };
    let lines: Vec<MoveLine> = moves
        .iter()
        .map(|(at, one)| MoveLine {
            partition: at.partition,
            bytes: bytes(at, one),
            from: one.from.clone(),
            to: one.to.clone(),
        })
        .collect();
    let bytes = lines.iter().map(|line| line.bytes).sum();
    Ok(MovePlan { moves: lines, bytes })
}

async fn described(view: &View) -> Result<ClusterDescription, Problem> {
    let described = tokio::time::timeout(BROKER_WAIT, view.admin().describe_cluster()).await;
    Ok(described.map_err(|_| Problem::late("The brokers of the cluster", BROKER_WAIT))??)
}

/// The running brokers, restricted to `only` if not empty, except `without`.
async fn usable_brokers(view: &View, only: &[i32], without: &[i32]) -> Result<Vec<UsableBroker>, Problem> {
    let cluster = described(view).await?;
    let known: BTreeMap<i32, Option<String>> =
        cluster.running().map(|broker| (broker.id, broker.rack.clone())).collect();
    if let Some(missing) = only.iter().find(|id| !known.contains_key(id)) {
        let ids: Vec<String> = known.keys().map(ToString::to_string).collect();
        let message = format!("Broker {missing} does not run; these do: {}", ids.join(", "));
        return Err(Problem::wrong(message));
    }
    let chosen =
        known.into_iter().filter(|(id, _)| (only.is_empty() || only.contains(id)) && !without.contains(id));
    Ok(chosen.map(|(id, rack)| UsableBroker { id, rack }).collect())
}

/// Refuses new replicas on stopped brokers: such a move would not end.
async fn unless_running(view: &View, moves: &PlannedMoves) -> Result<(), Problem> {
    let cluster = described(view).await?;
    let running: Vec<i32> = cluster.running().map(|broker| broker.id).collect();
    for (at, one) in moves {
        if let Some(id) = one.adding().into_iter().find(|id| !running.contains(id)) {
            let message = format!("{at}: broker {id} does not run; these do: {}", format::ids(&running));
            return Err(Problem::wrong(message));
        }
    }
    Ok(())
}

/// Starts moves if every partition still has the replicas of the plan.
pub async fn begin(view: &View, topic: &str, order: &MoveOrder) -> Result<usize, Problem> {
    let current = current(view, topic).await?;
    let mut moves = PlannedMoves::new();
    for one in &order.moves {
        let at = TopicPartition::new(topic, one.partition);
        let Some(now) = current.get(&at) else {
            return Err(Problem::missing(format!("{topic} has no partition {}", one.partition)));
        };
        if *now != one.from {
            let message = format!("{at} has other replicas now than in the plan: make a new plan");
            return Err(Problem::wrong(message));
        }
        moves.insert(at, PlannedMove { from: one.from.clone(), to: one.to.clone() });
    }
    if moves.is_empty() {
        return Err(Problem::wrong("Nothing would move"));
    }
    if order.throttle == Some(0) {
        return Err(Problem::wrong("The throttle is a number of bytes per second, above zero"));
    }
    unless_running(view, &moves).await?;
    if let Some(rate) = order.throttle {
        view.admin().throttle_moves(&moves, rate).await?;
    }
    let targets = moves.iter().map(|(at, one)| (at.clone(), Some(one.to.clone()))).collect();
    let outcomes = view.admin().alter_reassignments(&targets).await?;
    let begun = outcomes.values().filter(|outcome| outcome.is_ok()).count();
    if begun == 0 && order.throttle.is_some() {
        view.admin().end_throttles(moves.keys()).await?;
    }
    view.forget().await;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    Ok(begun)
}

async fn going(
    view: &View,
    topic: &str,
) -> Result<BTreeMap<TopicPartition, thalweg_client::PartitionReassignment>, Problem> {
    let partitions: Vec<TopicPartition> = current(view, topic).await?.into_keys().collect();
    // Without an active controller, a broker holds the request.
    Ok(view.forwarded.clone().with_timeout(BROKER_WAIT).list_reassignments(Some(&partitions)).await?)
}

/// The partitions that move, with their progress.
pub async fn progress(view: &View, topic: &str) -> Result<Vec<MoveProgress>, Problem> {
    let going = going(view, topic).await?;
    let partitions: Vec<TopicPartition> = going.keys().cloned().collect();
    let sizes = view.prompt_admin().replica_bytes(Some(&partitions)).await.unwrap_or_default();
    let lines = going.into_iter().map(|(at, one)| MoveProgress {
        partition: at.partition,
        replicas: one.target(),
        copied_percent: one.copied_percent(&at, &sizes),
        adding: one.adding,
        removing: one.removing,
    });
    Ok(lines.collect())
}

/// Cancels all moves of a topic: the partitions keep their original replicas. Returns the number of moves.
pub async fn cancel(view: &View, topic: &str) -> Result<usize, Problem> {
    let targets: BTreeMap<_, _> = going(view, topic).await?.into_keys().map(|at| (at, None)).collect();
    if targets.is_empty() {
        return Ok(0);
    }
    let outcomes = view.admin().alter_reassignments(&targets).await?;
    view.forget().await;
    let cancelled = outcomes.len();
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    Ok(cancelled)
}

/// True if a throttle of the topic or of a running broker is left, by the readings of the overview. False if
/// the login may not read it, and thus may not remove it.
pub async fn is_throttled(view: &View, topic: &str) -> bool {
    let is_set = view.prompt_admin().is_topic_throttled(topic).await;
    if is_set.unwrap_or_default() {
        return true;
    }
    let controllers = view.controllers().await;
    controllers.throttled.as_ref().is_ok_and(|throttled| !throttled.is_empty())
}

/// Removes the throttles of the topic and of all brokers. Refused while partitions of any topic move. Returns
/// the brokers that do not run and keep their throttle.
pub async fn end_throttle(view: &View, topic: &str) -> Result<Vec<i32>, Problem> {
    let going = view.admin().list_reassignments(None).await?;
    if !going.is_empty() {
        let message =
            format!("{} partitions still move: the throttle stays until they are done", going.len());
        return Err(Problem::wrong(message));
    }
    let kept = view.admin().end_throttles(current(view, topic).await?.keys()).await?;
    view.forget().await;
    Ok(kept)
}

/// The result of a removal, with the brokers that keep their throttle.
pub fn throttle_ended(kept: &[i32]) -> String {
    match kept.is_empty() {
        true => "The throttle was removed.".to_owned(),
        false => format!(
            "The throttle was removed. These brokers do not run, and keep theirs if they have one: {}. Remove it again when they are back.",
            format::ids(kept)
        ),
    }
}
