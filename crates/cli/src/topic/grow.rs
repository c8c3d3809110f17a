//! `topic grow`: adds partitions to topics.

use std::collections::BTreeMap;

use clap::{ArgGroup, Args};
use serde_json::json;
use thalweg_client::Admin;

use crate::connect::Connect;
use crate::outcomes::add_outcomes;
use crate::output::CommandOutput;
use crate::partitions::{Partitions, resolve};

/// Add partitions to topics.
///
/// Later records of a key may go to another partition.
///
/// `topic alter --partitions` grows one topic, and can assign brokers to the new partitions.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("size").required(true)),
    after_help = "Examples:\n  thalweg topic grow orders payments --by 6\n  thalweg topic grow orders --to 24"
)]
pub struct Grow {
    #[command(flatten)]
    connect: Connect,
    /// The topics to grow.
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// New number of partitions.
    #[arg(long, value_name = "COUNT", group = "size", value_parser = clap::value_parser!(i32).range(1..))]
    to: Option<i32>,
    /// Number of additional partitions.
    #[arg(long, value_name = "COUNT", group = "size", value_parser = clap::value_parser!(i32).range(1..=100_000))]
    by: Option<i32>,
    #[command(flatten)]
    output: CommandOutput,
}

impl Grow {
    /// Adds partitions to the topics.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let mut counts = BTreeMap::new();
        for topic in &self.topics {
            let all = Partitions { topic: topic.clone(), only: None };
            let has = resolve(admin.cluster(), &[all]).await?.len();
            let has = i32::try_from(has).unwrap_or(i32::MAX);
            counts.insert(topic.clone(), self.to.unwrap_or_else(|| has.saturating_add(self.by.unwrap_or(0))));
        }
        self.output
            .outcomes(async |done| {
                let results = admin.create_partitions(&counts).await?;
                add_outcomes(done, results, |topic, ()| {
                    let count = counts.get(topic).copied().unwrap_or_default();
                    let outcome = json!({ "topic": topic, "partitions": count, "outcome": "grown" });
                    (outcome, format!("Topic {topic} has {count} partitions."))
                })
            })
            .await
    }
}
