//! `broker list`: the columns of the console's list of brokers.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::verdict::{Absence, partial_view};
use thalweg_client::{Admin, ClientError, LogDir, Metadata, Outcomes};

use crate::connect::Connect;
use crate::output::{Column, CommandOutput, Quiet};

/// Time limit for the answer of a broker about itself.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// List the brokers that are registered, with their Kafka version, leaders, replicas and size.
///
/// The Kafka version is the release whose metadata.version is the highest that the broker supports. Leaders
/// and replicas are those of topics that the login may describe; a figure that is not known is a dash.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 9] = [
    ("ID", "id"),
    ("ADDRESS", "address"),
    ("RACK", "rack"),
    ("STATE", "state"),
    ("KAFKA", "kafka_version"),
    ("LEADS", "leaders"),
    ("REPLICAS", "replicas"),
    ("LAGGING", "lagging"),
    ("BYTES", "bytes"),
];

/// Replica counts of a broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReplicaCounts {
    leaders: usize,
    replicas: usize,
    /// Replicas that are not in sync.
    lagging: usize,
}

impl List {
    /// Prints a row per broker, or the ids.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let described = admin.describe_cluster().await?;
        if self.quiet.quiet {
            let ids: Vec<i32> = described.brokers.iter().map(|broker| broker.id).collect();
            return self.output.names(&ids);
        }
        let metadata = admin.cluster().refresh_all().await?;
        let running = described.running().map(|broker| broker.id);
        let (versions, logs) =
            tokio::join!(admin.broker_releases(running, ANSWER_WITHIN), Logs::read(&admin));
        let counts = counts(&metadata);
        let fenced = Ok(described.fenced.clone());
        let hidden = admin.hidden_among(&metadata, logs.directories.as_ref(), fenced).await;
        let is_blind = is_blind(&metadata, &hidden);
        if is_blind {
            tracing::warn!("The login sees no topic of the cluster: it lacks DESCRIBE on topics");
        } else if let Some(partial) = partial_view(&hidden) {
            tracing::warn!("Leaders and replicas are those of topics that the login may describe: {partial}");
        }
        let rows = described.brokers.iter().map(|broker| {
            let of = counts.get(&broker.id).copied().unwrap_or_default();
            let seen = |count: usize| (!is_blind).then_some(count);
            let is_controller = described.controller_id == Some(broker.id);
            json!({
                "id": broker.id,
                "address": broker.address(),
                "rack": broker.rack,
                "state": if described.fenced.contains(&broker.id) { "fenced" } else { "active" },
                "role": if is_controller { "controller" } else { "broker" },
                "kafka_version": versions.get(&broker.id),
                "leaders": seen(of.leaders),
                "replicas": seen(of.replicas),
                "lagging": seen(of.lagging),
                "bytes": logs.bytes.get(&broker.id),
            })
        });
        self.output.rows(&COLUMNS, &rows.collect::<Vec<Value>>())
    }
}

fn counts(metadata: &Metadata) -> BTreeMap<i32, ReplicaCounts> {
    let mut counts: BTreeMap<i32, ReplicaCounts> = BTreeMap::new();
    for partition in metadata.topics.values().flat_map(|topic| &topic.partitions) {
        if let Some(leader) = partition.leader {
            counts.entry(leader).or_default().leaders += 1;
        }
        for id in &partition.replicas {
            let of = counts.entry(*id).or_default();
            of.replicas += 1;
            of.lagging += usize::from(!partition.isr.contains(id));
        }
    }
    counts
}

/// The log directories of the brokers that report them.
struct Logs {
    directories: Result<Outcomes<i32, Outcomes<String, LogDir>>, ClientError>,
    /// The size of the replicas of each broker, without brokers with an unusable directory.
    bytes: BTreeMap<i32, i64>,
}

impl Logs {
    async fn read(admin: &Admin) -> Logs {
        let admin = admin.clone().with_timeout(ANSWER_WITHIN).with_answer_limit(ANSWER_WITHIN);
        let directories = admin.describe_log_dirs(None, None).await;
        let mut bytes = BTreeMap::new();
        for (broker, dirs) in directories.iter().flatten() {
            let Ok(dirs) = dirs else { continue };
            if dirs.values().all(Result::is_ok) {
                let replicas = dirs.values().flatten().flat_map(|dir| dir.replicas.values());
                bytes.insert(*broker, replicas.map(|replica| replica.bytes).sum());
            }
        }
        Logs { directories, bytes }
    }
}

/// True if topics exist, or may exist, of which the login sees none.
fn is_blind(metadata: &Metadata, hidden: &Result<usize, Absence>) -> bool {
    metadata.topics.is_empty() && partial_view(hidden).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Style;

    #[test]
    fn a_login_that_sees_no_topic_is_blind_unless_the_cluster_is_empty() {
        let none = Metadata::default();
        let absent = Err(Absence::silent("the log directories of broker 2 are unknown"));
        assert!(is_blind(&none, &absent) && is_blind(&none, &Ok(1)));
        assert!(!is_blind(&none, &Ok(0)));
        let topic = thalweg_client::TopicMetadata {
            name: "orders".into(),
            id: thalweg_wire::Uuid(0),
            internal: false,
            error: None,
            partitions: Vec::new(),
        };
        let seen = Metadata { topics: BTreeMap::from([("orders".to_owned(), topic)]), ..none };
        assert!(!is_blind(&seen, &absent));
    }

    #[test]
    fn the_table_fits_80_columns() {
        let row = json!({
            "id": 1, "address": "broker-1.example.org:9092", "rack": "eu-1", "state": "active", "role": "controller",
            "kafka_version": "4.3", "leaders": 1200, "replicas": 3600, "lagging": 0, "bytes": 1_234_567_890_123_i64,
        });
        let table = Style::NARROW.rows(&COLUMNS, &[row]).expect("rows");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }
}
