//! `topic list`: the columns of the console's list of topics.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::verdict::{Absence, Cause};
use thalweg_client::{Admin, ReplicaBytes, TopicMetadata, TopicPartition, replica_bytes};

use crate::connect::Connect;
use crate::output::{Column, CommandOutput, Quiet};

/// Time limit for the answer of a broker about its log directories.
const SIZES_WITHIN: Duration = Duration::from_secs(5);

/// List topics, with partitions, replicas, state and size.
///
/// The size is that of all replicas. It needs DESCRIBE on the cluster, and an answer of all brokers with a
/// replica; otherwise there is a dash. Topics that the login may not describe are left out, with a warning.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg topic list
  thalweg topic list -q --exclude-internal")]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    /// Hide Kafka's internal topics, such as __consumer_offsets.
    #[arg(long)]
    exclude_internal: bool,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 5] = [
    ("TOPIC", "topic"),
    ("PARTITIONS", "partitions"),
    ("REPLICAS", "replicas"),
    ("STATE", "state"),
    ("BYTES", "bytes"),
];

impl List {
    /// Prints a row per topic, or the names.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let cluster = self.connect.cluster().await?;
        let metadata = cluster.refresh_all().await?;
        let topics = metadata.topics.values().filter(|topic| !topic.internal || !self.exclude_internal);
        let topics: Vec<&TopicMetadata> = topics.collect();
        if self.quiet.quiet {
            let names: Vec<&str> = topics.iter().map(|topic| &*topic.name).collect();
            return self.output.names(&names);
        }
        let admin = Admin::new(cluster).with_timeout(SIZES_WITHIN).with_answer_limit(SIZES_WITHIN);
        let (directories, fenced) = tokio::join!(admin.describe_log_dirs(None, None), admin.fenced_brokers());
        let sizes = directories.as_ref().map(replica_bytes).unwrap_or_default();
        let rows: Vec<Value> = topics.into_iter().map(|topic| row(topic, &sizes)).collect();
        self.output.rows(&COLUMNS, &rows)?;
        let hidden = admin.hidden_among(&metadata, directories.as_ref(), fenced).await;
        if let Some(sentence) = unlisted(&hidden) {
            tracing::warn!("{sentence}");
        }
        Ok(())
    }
}

/// The sentence about topics that the login may not describe; none if there are none, or if the cluster does
/// not report whether there are.
pub(super) fn unlisted(hidden: &Result<usize, Absence>) -> Option<String> {
    let rest = "that the login may not describe";
    let unknown =
        |why: &str| Some(format!("Topics {rest} are not listed. Whether there are any is not known: {why}"));
    match hidden {
        Ok(0) => None,
        Ok(1) => Some(format!("1 topic {rest} is not listed")),
        Ok(count) => Some(format!("{count} topics {rest} are not listed")),
        Err(Absence { cause: Cause::Denied, .. }) => unknown("the login lacks DESCRIBE on the cluster"),
        Err(Absence { cause: Cause::NotServed, .. }) => None,
        Err(Absence { why, .. }) => unknown(why),
    }
}

fn row(topic: &TopicMetadata, sizes: &ReplicaBytes) -> Value {
    let partitions = &topic.partitions;
    let leaderless = partitions.iter().filter(|partition| partition.leader.is_none()).count();
    let under_replicated =
        partitions.iter().filter(|partition| partition.isr.len() < partition.replicas.len()).count();
    json!({
        "topic": &*topic.name,
        "internal": topic.internal,
        "partitions": partitions.len(),
        "replicas": partitions.first().map_or(0, |first| first.replicas.len()),
        "under_replicated": under_replicated,
        "leaderless": leaderless,
        "state": match (leaderless, under_replicated) {
            (0, 0) => "in sync".to_owned(),
            (0, count) => format!("{count} under-replicated"),
            (count, _) => format!("{count} without a leader"),
        },
        "bytes": bytes(topic, sizes),
    })
}

/// The size of all replicas; none if that of one is unknown.
fn bytes(topic: &TopicMetadata, sizes: &ReplicaBytes) -> Option<i64> {
    let replicas = topic.partitions.iter().flat_map(|partition| {
        let at = TopicPartition::new(Arc::clone(&topic.name), partition.index);
        partition.replicas.iter().map(move |broker| (at.clone(), *broker))
    });
    replicas.map(|replica| sizes.get(&replica).copied()).sum()
}

#[cfg(test)]
mod tests {
    use thalweg_client::PartitionMetadata;
    use thalweg_record::LeaderEpoch;
    use thalweg_wire::Uuid;

    use super::*;
    use crate::output::Style;

    fn topic(partitions: &[(Option<i32>, &[i32])]) -> TopicMetadata {
        let partitions = (0..).zip(partitions).map(|(index, (leader, isr))| PartitionMetadata {
            index,
            error: None,
            leader: *leader,
            leader_epoch: LeaderEpoch(0),
            replicas: vec![1, 2],
            isr: isr.to_vec(),
            offline: Vec::new(),
        });
        TopicMetadata {
            name: "orders".into(),
            id: Uuid(0),
            internal: false,
            error: None,
            partitions: partitions.collect(),
        }
    }

    #[test]
    fn a_topic_has_its_state_and_the_size_of_all_replicas() {
        let of = |topic: &TopicMetadata, sizes: &[((i32, i32), i64)]| {
            let sizes = sizes.iter().map(|((partition, broker), bytes)| {
                ((TopicPartition::new("orders", *partition), *broker), *bytes)
            });
            let row = row(topic, &sizes.collect());
            (row["state"].clone(), row["bytes"].clone())
        };
        let whole = topic(&[(Some(1), &[1, 2])]);
        assert_eq!(of(&whole, &[((0, 1), 70), ((0, 2), 30)]), (json!("in sync"), json!(100)));
        assert_eq!(of(&whole, &[((0, 1), 70)]), (json!("in sync"), json!(null)), "one is unknown");
        let lagging = topic(&[(Some(1), &[1]), (Some(2), &[1, 2])]);
        assert_eq!(of(&lagging, &[]).0, "1 under-replicated");
        assert_eq!(of(&topic(&[(None, &[]), (None, &[2])]), &[]).0, "2 without a leader");
    }

    #[test]
    fn topics_that_are_not_listed_are_counted_or_unknown() {
        let absent = |cause| Err(Absence { cause, why: "broker 2 is silent".to_owned() });
        assert_eq!((unlisted(&Ok(0)), unlisted(&absent(Cause::NotServed))), (None, None));
        let two = unlisted(&Ok(2)).expect("a sentence");
        assert_eq!(two, "2 topics that the login may not describe are not listed");
        let why = |cause| unlisted(&absent(cause)).expect("a sentence");
        assert!(why(Cause::Silent).ends_with("is not known: broker 2 is silent"), "{}", why(Cause::Silent));
        assert!(why(Cause::Denied).ends_with("the login lacks DESCRIBE on the cluster"));
    }

    #[test]
    fn the_table_fits_80_columns() {
        let row = row(&topic(&[(None, &[]), (None, &[2])]), &ReplicaBytes::new());
        let fits = |topic: &str| {
            let long = json!({
                "topic": topic, "partitions": 1000, "replicas": 3, "state": "in sync", "bytes": 1_234_567_890_i64,
            });
            let table = Style::NARROW.rows(&COLUMNS, &[row.clone(), long]).expect("rows");
            assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
            table.lines().count()
        };
        assert_eq!(fits("a-topic-with-a-usual-name"), 3, "a line each");
        assert_eq!(fits(&"name".repeat(20)), 6, "a long name has its line");
    }
}
