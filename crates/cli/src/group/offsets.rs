//! `group delete-offsets`: deletes a group's offsets of topics or partitions.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, GroupKind, TopicPartition};

use crate::connect::Connect;
use crate::output::Output;
use crate::partitions::{Partitions, resolve};
use crate::settle::settle;

/// Delete committed offsets of topics that no member of the group reads.
///
/// A member that reads such a partition again begins where auto.offset.reset says. A share group forgets
/// whole topics.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  thalweg group delete-offsets billing --topic orders --topic payments:0,1"
)]
pub struct DeleteOffsets {
    #[command(flatten)]
    connect: Connect,
    /// The group.
    group: String,
    /// A topic, or some of its partitions as TOPIC:0,3; can be repeated.
    #[arg(long = "topic", value_name = "TOPIC[:PARTITION,...]", required = true)]
    topics: Vec<Partitions>,
    #[command(flatten)]
    output: Output,
}

impl DeleteOffsets {
    /// Deletes the offsets.
    pub async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let described = admin.describe_groups(std::slice::from_ref(&self.group)).await.remove(&self.group);
        let is_share = matches!(described, Some(Ok(ref group)) if group.kind == GroupKind::Share);
        if let Some(Err(error)) = described {
            return Err(error.into());
        }
        let group = &self.group;
        self.output
            .outcomes(async |done| {
                if is_share {
                    let topics: BTreeSet<String> = self.topics.iter().map(|one| one.topic.clone()).collect();
                    let topics: Vec<String> = topics.into_iter().collect();
                    let results = admin.delete_share_group_offsets(group, &topics).await?;
                    return settle(done, results, |topic, ()| {
                        let outcome = json!({ "group": group, "topic": topic, "outcome": "deleted" });
                        (outcome, format!("Deleted the offsets of share group {group} in {topic}."))
                    });
                }
                let partitions = self.partitions(&admin).await?;
                let results = admin.delete_group_offsets(group, &partitions).await?;
                settle(done, results, |at, ()| {
                    let outcome = json!({
                        "group": group,
                        "topic": &*at.topic,
                        "partition": at.partition,
                        "outcome": "deleted",
                    });
                    (outcome, format!("Deleted the offset of group {group} in {at}."))
                })
            })
            .await
    }

    /// The partitions whose offsets to delete. A deleted topic may still have offsets.
    async fn partitions(&self, admin: &Admin) -> anyhow::Result<Vec<TopicPartition>> {
        let committed = admin.list_group_offsets(&self.group, None).await?;
        let mut found = BTreeSet::new();
        for wanted in &self.topics {
            let is_meant = |at: &&TopicPartition| {
                *at.topic == *wanted.topic
                    && wanted.only.as_ref().is_none_or(|only| only.contains(&at.partition))
            };
            let of_topic: Vec<TopicPartition> = committed.keys().filter(is_meant).cloned().collect();
            match of_topic.is_empty() {
                // Without offsets of the topic, the answer has an error for each partition.
                true => found.extend(resolve(admin.cluster(), std::slice::from_ref(wanted)).await?),
                false => found.extend(of_topic),
            }
        }
        Ok(found.into_iter().collect())
    }
}
