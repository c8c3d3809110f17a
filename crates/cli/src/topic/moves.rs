//! `topic move`, `topic moves` and `topic cancel-moves`: moves of partitions to other brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgGroup, Args};
use serde_json::json;
use thalweg_client::{
    Admin, Metadata, ReplicaAssignment, TopicPartition, UsableBroker, planned_moves, spread,
};

use crate::connect::Connect;
use crate::failure::{CommandFailure, NotFound, Usage};
use crate::moving::{Execution, current, end_throttles, print_line};
use crate::outcomes::{add_outcomes, fail_with};
use crate::output::{Column, CommandOutput};
use crate::partitions::{Partitions, resolve};

/// Move partitions to other brokers.
///
/// Shows the plan; --execute starts it.
///
/// Only these replicas move: those on excluded brokers, the share of a new broker, and those that would share
/// a rack.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("what").required(true)),
    group(ArgGroup::new("where").required(true).multiple(true)),
    after_help = "\
Examples:
  thalweg topic move orders --to-brokers 1,2,3
  thalweg topic move --all-topics --without-broker 4 --execute --throttle 50000000 --wait
  thalweg topic move orders --replication-factor 3 --execute
  thalweg topic move orders:0 --replicas 2,3,1 --execute
  thalweg topic move --from-file reassignment.json --execute"
)]
pub struct Move {
    #[command(flatten)]
    connect: Connect,
    /// Topics, or some of their partitions as TOPIC:0,3.
    #[arg(value_name = "TOPIC[:PARTITION,...]", group = "what")]
    topics: Vec<Partitions>,
    /// The partitions of all topics.
    #[arg(long, group = "what")]
    all_topics: bool,
    /// Move replicas only to these brokers [default: all running brokers].
    #[arg(long, value_name = "ID,...", value_delimiter = ',', group = "where")]
    to_brokers: Vec<i32>,
    /// Exclude this broker; can be repeated.
    #[arg(long = "without-broker", value_name = "ID", group = "where")]
    without: Vec<i32>,
    /// The number of replicas of each partition.
    #[arg(long, value_name = "COUNT", group = "where", value_parser = clap::value_parser!(u16).range(1..))]
    replication_factor: Option<u16>,
    /// Replicas of every partition; the first replica is the preferred leader.
    #[arg(long, value_name = "ID,...", value_delimiter = ',', group = "where", conflicts_with_all = ["to_brokers", "without", "replication_factor"])]
    replicas: Vec<i32>,
    /// Move by the plan in this file, in the JSON of kafka-reassign-partitions.
    #[arg(long, value_name = "FILE", groups = ["what", "where"])]
    from_file: Option<PathBuf>,
    #[command(flatten)]
    execution: Execution,
    #[command(flatten)]
    output: CommandOutput,
}

impl Move {
    /// Shows or executes the plan.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let file = self.from_file.as_deref().map(read_file).transpose()?;
        let admin = Admin::new(self.connect.cluster().await?);
        let cluster = admin.cluster();
        let metadata = match self.all_topics {
            true => cluster.refresh_all().await?,
            false => cluster.metadata(),
        };
        let (now, planned) = match file {
            Some(planned) => {
                let wanted: Vec<Partitions> = planned
                    .keys()
                    .map(|at| Partitions { topic: at.topic.to_string(), only: Some(vec![at.partition]) })
                    .collect();
                let partitions = resolve(cluster, &wanted).await?;
                (current(&cluster.metadata(), &partitions), planned)
            }
            None => {
                let partitions = match self.all_topics {
                    true => all(&metadata),
                    false => resolve(cluster, &self.topics).await?,
                };
                let now = current(&cluster.metadata(), &partitions);
                let planned = self.planned(&admin, &now).await?;
                (now, planned)
            }
        };
        if self.from_file.is_some() || !self.replicas.is_empty() {
            check_replicas(&admin, &now, &planned).await?;
        }
        self.execution.run(&admin, &self.output, &planned_moves(&now, planned)).await
    }

    async fn planned(&self, admin: &Admin, now: &ReplicaAssignment) -> anyhow::Result<ReplicaAssignment> {
        if !self.replicas.is_empty() {
            return Ok(now.keys().map(|at| (at.clone(), self.replicas.clone())).collect());
        }
        let brokers = usable_brokers(admin, now, &self.to_brokers, &self.without).await?;
        Ok(spread(now, &brokers, self.replication_factor.map(usize::from))?)
    }
}

/// Checks replicas chosen by the user like the controller does, so that a printed plan can be executed.
/// Refuses new replicas on stopped brokers, too: such a move would not end.
async fn check_replicas(
    admin: &Admin,
    now: &ReplicaAssignment,
    planned: &ReplicaAssignment,
) -> anyhow::Result<()> {
    let cluster = admin.describe_cluster().await?;
    let registered = cluster.brokers.iter().map(|broker| broker.id).collect();
    let running = cluster.running().map(|broker| broker.id).collect();
    fail_with(wrong_replicas(now, planned, &registered, &running))
}

fn wrong_replicas(
    now: &ReplicaAssignment,
    planned: &ReplicaAssignment,
    registered: &BTreeSet<i32>,
    running: &BTreeSet<i32>,
) -> Vec<anyhow::Error> {
    let mut errors: Vec<anyhow::Error> = Vec::new();
    for (at, replicas) in planned {
        let different: BTreeSet<i32> = replicas.iter().copied().collect();
        if different.len() < replicas.len() {
            let why =
                format!("{at}: replicas {replicas:?} name a broker twice: each holds one replica at most");
            errors.push(Usage(why).into());
        }
        let present: BTreeSet<i32> = now.get(at).into_iter().flatten().copied().collect();
        if let Some(id) = different.difference(registered).next() {
            errors.push(NotFound(format!("{at}: there is no broker {id}; these are {registered:?}")).into());
        } else if let Some(id) = different.iter().find(|id| !present.contains(id) && !running.contains(id)) {
            let why = format!("{at}: broker {id} is not running; these are: {running:?}");
            errors.push(CommandFailure(why).into());
        }
    }
    errors
}

/// The running brokers, or of them only `only`, except `without`. Every broker of `only` must run; every
/// broker of `without` must be registered or hold replicas.
pub(crate) async fn usable_brokers(
    admin: &Admin,
    now: &ReplicaAssignment,
    only: &[i32],
    without: &[i32],
) -> anyhow::Result<Vec<UsableBroker>> {
    let cluster = admin.describe_cluster().await?;
    let is_registered = |id: &i32| cluster.brokers.iter().any(|broker| broker.id == *id);
    let holds_replicas = |id: &i32| now.values().any(|replicas| replicas.contains(id));
    if let Some(id) = without.iter().find(|id| !is_registered(id) && !holds_replicas(id)) {
        let why = format!("There is no broker {id}: none is registered, and none holds replicas, by that id");
        return Err(NotFound(why).into());
    }
    let known: BTreeMap<i32, Option<String>> =
        cluster.running().map(|broker| (broker.id, broker.rack.clone())).collect();
    if let Some(missing) = only.iter().find(|id| !known.contains_key(id)) {
        let ids: Vec<String> = known.keys().map(ToString::to_string).collect();
        let why = format!("Broker {missing} is not running; these are: {}", ids.join(", "));
        return Err(if is_registered(missing) { CommandFailure(why).into() } else { NotFound(why).into() });
    }
    let chosen =
        known.into_iter().filter(|(id, _)| (only.is_empty() || only.contains(id)) && !without.contains(id));
    Ok(chosen.map(|(id, rack)| UsableBroker { id, rack }).collect())
}

/// All partitions of all topics.
pub(crate) fn all(metadata: &Metadata) -> BTreeSet<TopicPartition> {
    let topics = metadata.topics.iter();
    topics
        .flat_map(|(name, topic)| {
            topic.partitions.iter().map(|partition| TopicPartition::new(name.as_str(), partition.index))
        })
        .collect()
}

fn read_file(path: &Path) -> anyhow::Result<ReplicaAssignment> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("Cannot read --from-file {}", path.display()))?;
    Ok(read_json(&text).map_err(|why| Usage(format!("--from-file {}: {why}", path.display())))?)
}

/// A plan in Kafka's JSON.
fn read_json(text: &str) -> Result<ReplicaAssignment, String> {
    const RIGHT: &str =
        r#"expected {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}"#;
    let document: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("{error}; {RIGHT}"))?;
    if let Some(version) = document.get("version").filter(|version| version.as_i64() != Some(1)) {
        return Err(format!("version {version} is not known; {RIGHT}"));
    }
    let partitions = document["partitions"].as_array().ok_or(RIGHT)?;
    let mut plan = ReplicaAssignment::new();
    for one in partitions {
        let id = |value: &serde_json::Value| value.as_i64().and_then(|id| i32::try_from(id).ok());
        let read = || {
            let replicas = one["replicas"].as_array()?.iter().map(id).collect::<Option<Vec<i32>>>()?;
            let at = TopicPartition::new(one["topic"].as_str()?, id(&one["partition"])?);
            (!replicas.is_empty()).then_some((at, replicas))
        };
        let (at, replicas) = read().ok_or_else(|| format!("{one} is not a partition; {RIGHT}"))?;
        let is_any = |dir: &serde_json::Value| dir.as_str() == Some("any");
        if one["log_dirs"].as_array().is_some_and(|dirs| !dirs.iter().all(is_any)) {
            return Err(format!("{at} names log directories: use `thalweg broker move-replica` for these"));
        }
        if plan.insert(at.clone(), replicas).is_some() {
            return Err(format!("{at} is named twice"));
        }
    }
    Ok(plan)
}

/// Show the moving partitions and their progress. A throttle of brokers is reported on standard error.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  thalweg topic moves --end-throttle")]
pub struct Moves {
    #[command(flatten)]
    connect: Connect,
    /// Remove the throttles of all brokers and topics. Refused while partitions move.
    #[arg(long)]
    end_throttle: bool,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 6] = [
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("REPLICAS", "replicas"),
    ("ADDING", "adding"),
    ("REMOVING", "removing"),
    ("COPIED-%", "copied_percent"),
];

impl Moves {
    /// Prints the moves in progress.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let going = admin.list_reassignments(None).await?;
        let partitions: Vec<TopicPartition> = going.keys().cloned().collect();
        let bytes = admin.replica_bytes(Some(&partitions)).await.unwrap_or_default();
        let rows: Vec<serde_json::Value> = going
            .iter()
            .map(|(at, one)| {
                json!({
                    "topic": &*at.topic,
                    "partition": at.partition,
                    "replicas": one.target(),
                    "adding": one.adding,
                    "removing": one.removing,
                    "copied_percent": one.copied_percent(at, &bytes),
                })
            })
            .collect();
        self.output.rows(&COLUMNS, &rows)?;
        if !self.end_throttle {
            self.report_throttles(&admin, going.is_empty()).await;
            return Ok(());
        }
        if !going.is_empty() {
            let why =
                format!("{} partitions still move: the throttle stays until they are done", going.len());
            return Err(CommandFailure(why).into());
        }
        let metadata = admin.cluster().refresh_all().await?;
        Ok(end_throttles(&admin, &all(&metadata)).await?)
    }

    /// Reports throttles of brokers, if the login may see them.
    async fn report_throttles(&self, admin: &Admin, is_over: bool) {
        let throttles = match admin.list_throttles().await {
            Ok(throttles) => throttles,
            Err(error) => return tracing::debug!(%error, "Throttles of brokers are unknown"),
        };
        if let Some(text) = throttle_report(&throttles, is_over) {
            print_line(&text);
        }
    }
}

/// A sentence about throttles, with advice if no partition moves.
fn throttle_report(throttles: &BTreeMap<i32, u64>, is_over: bool) -> Option<String> {
    let limits: Vec<String> = throttles.iter().map(|(id, rate)| format!("{rate} on broker {id}")).collect();
    let advice = match is_over {
        true => " Nothing moves: `thalweg topic moves --end-throttle` removes it.",
        false => "",
    };
    (!limits.is_empty()).then(|| format!("A throttle is set, in bytes/s: {}.{advice}", limits.join(", ")))
}

/// Cancel moves: the partitions stay where they were. Without such a move, the command fails.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  thalweg topic cancel-moves orders\n  thalweg topic cancel-moves --all")]
pub struct CancelMoves {
    #[command(flatten)]
    connect: Connect,
    /// Topics, or some of their partitions as TOPIC:0,3.
    #[arg(value_name = "TOPIC[:PARTITION,...]", required_unless_present = "all")]
    topics: Vec<Partitions>,
    /// Cancel all moves of the cluster.
    #[arg(long, conflicts_with = "topics")]
    all: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl CancelMoves {
    /// Cancels the moves, and prints an outcome for each partition.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let wanted = match self.all {
            true => None,
            false => Some(resolve(admin.cluster(), &self.topics).await?.into_iter().collect::<Vec<_>>()),
        };
        let going = admin.list_reassignments(wanted.as_deref()).await?;
        let targets: BTreeMap<TopicPartition, Option<Vec<i32>>> =
            going.into_keys().map(|at| (at, None)).collect();
        self.output
            .outcomes(async |done| {
                if targets.is_empty() {
                    let what = match self.all {
                        true => "No partition of the cluster moves",
                        false => "None of these partitions moves",
                    };
                    let why = format!("{what}: `thalweg topic moves` lists the partitions that do");
                    return Err(NotFound(why).into());
                }
                let results = admin.alter_reassignments(&targets).await?;
                add_outcomes(done, results, |at, ()| {
                    let outcome =
                        json!({ "topic": &*at.topic, "partition": at.partition, "outcome": "cancelled" });
                    (outcome, format!("Cancelled the move of {at}."))
                })
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_replicas_need_running_brokers() {
        let at = TopicPartition::new("t", 0);
        let wrong = |now: &[i32], planned: &[i32]| {
            let of = |replicas: &[i32]| ReplicaAssignment::from([(at.clone(), replicas.to_vec())]);
            let (registered, running) = (BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 2]));
            let errors = wrong_replicas(&of(now), &of(planned), &registered, &running);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(wrong(&[1], &[2]).is_empty());
        assert!(wrong(&[3, 1], &[1, 3]).is_empty(), "a replica may stay on a stopped broker");
        assert_eq!(wrong(&[1, 2], &[3, 1]), ["t-0: broker 3 is not running; these are: {1, 2}"]);
        assert_eq!(wrong(&[1], &[9]), ["t-0: there is no broker 9; these are {1, 2, 3}"]);
        assert!(wrong(&[1], &[2, 2])[0].contains("name a broker twice"));
    }

    #[test]
    fn a_throttle_that_remains_is_reported() {
        assert_eq!(throttle_report(&BTreeMap::new(), true), None);
        let throttles = BTreeMap::from([(1, 500), (2, 500)]);
        let going = throttle_report(&throttles, false).expect("a throttle");
        assert_eq!(going, "A throttle is set, in bytes/s: 500 on broker 1, 500 on broker 2.");
        assert!(throttle_report(&throttles, true).is_some_and(|text| text.contains("--end-throttle")));
    }

    #[test]
    fn kafkas_json_is_read() {
        let text = r#"{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[2,1],"log_dirs":["any","any"]}]}"#;
        let expected = ReplicaAssignment::from([(TopicPartition::new("t", 3), vec![2, 1])]);
        assert_eq!(read_json(text).expect("valid"), expected);
        for wrong in [
            "",
            "[]",
            r#"{"partitions":[{"topic":"t","partition":3,"replicas":[]}]}"#,
            r#"{"partitions":[{"topic":"t","partition":"x","replicas":[1]}]}"#,
            r#"{"partitions":[{"topic":"t","partition":1,"replicas":[1],"log_dirs":["/a"]}]}"#,
            r#"{"version":2,"partitions":[{"topic":"t","partition":1,"replicas":[1]}]}"#,
            r#"{"partitions":[{"topic":"t","partition":1,"replicas":[1]},{"topic":"t","partition":1,"replicas":[2]}]}"#,
        ] {
            assert!(read_json(wrong).is_err(), "{wrong}");
        }
    }
}
