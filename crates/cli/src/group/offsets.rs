//! `group delete-offsets`: deletes a group's offsets of topics or partitions.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::json;
use thalweg_client::{Admin, GroupKind, TopicPartition};

use crate::connect::Connect;
use crate::failure::NotFound;
use crate::outcomes::add_outcomes;
use crate::output::CommandOutput;
use crate::partitions::{Partitions, resolve};

/// Delete committed offsets of topics that no member of the group reads.
///
/// A member that reads such a partition again begins where auto.offset.reset says. A partition without a
/// committed offset is an error (exit code 7). A share group forgets whole topics.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  thalweg group delete-offsets billing --topic orders --topic payments:0,1"
)]
pub struct DeleteOffsets {
    #[command(flatten)]
    connect: Connect,
    /// The group whose offsets are deleted.
    group: String,
    /// A topic, or some of its partitions as TOPIC:0,3; can be repeated.
    #[arg(long = "topic", value_name = "TOPIC[:PARTITION,...]", required = true)]
    topics: Vec<Partitions>,
    #[command(flatten)]
    output: CommandOutput,
}

impl DeleteOffsets {
    /// Deletes the offsets.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
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
                    return add_outcomes(done, results, |topic, ()| {
                        let outcome = json!({ "group": group, "topic": topic, "outcome": "deleted" });
                        (outcome, format!("Deleted the offsets of share group {group} in {topic}."))
                    });
                }
                let OffsetPresence { present, absent } = self.partitions(&admin).await?;
                let mut results: BTreeMap<TopicPartition, anyhow::Result<()>> = BTreeMap::new();
                if !present.is_empty() {
                    let deleted = admin.delete_group_offsets(group, &present).await?.into_iter();
                    results.extend(deleted.map(|(at, result)| (at, result.map_err(Into::into))));
                }
                for at in absent {
                    let why = format!("Group {group} has no offset in {at}");
                    results.insert(at, Err(NotFound(why).into()));
                }
                add_outcomes(done, results, |at, ()| {
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

    /// The partitions with and without an offset.
    async fn partitions(&self, admin: &Admin) -> anyhow::Result<OffsetPresence> {
        let committed = admin.list_group_offsets(&self.group, None).await?;
        let committed: BTreeSet<TopicPartition> = committed.into_keys().collect();
        let mut found = OffsetPresence::default();
        for wanted in &self.topics {
            let of_topic = committed_of(&committed, wanted);
            // A deleted topic may still have offsets.
            if of_topic.present.is_empty() {
                found.absent.extend(resolve(admin.cluster(), std::slice::from_ref(wanted)).await?);
            } else {
                found.present.extend(of_topic.present);
                found.absent.extend(of_topic.absent);
            }
        }
        Ok(found)
    }
}

/// Partitions of the command, by whether the group has an offset in them. Brokers report the deletion of an
/// absent offset as a success.
#[derive(Debug, Default, PartialEq, Eq)]
struct OffsetPresence {
    present: Vec<TopicPartition>,
    absent: Vec<TopicPartition>,
}

/// The wanted partitions of a topic: the named ones, or all with an offset.
fn committed_of(committed: &BTreeSet<TopicPartition>, wanted: &Partitions) -> OffsetPresence {
    let meant: Vec<TopicPartition> = match &wanted.only {
        Some(only) => only.iter().map(|index| TopicPartition::new(wanted.topic.as_str(), *index)).collect(),
        None => committed.iter().filter(|at| *at.topic == *wanted.topic).cloned().collect(),
    };
    let (present, absent) = meant.into_iter().partition(|at| committed.contains(at));
    OffsetPresence { present, absent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_offsets_are_distinct_from_present_ones() {
        let at = |index| TopicPartition::new("t", index);
        let committed = BTreeSet::from([at(0), at(2), TopicPartition::new("u", 1)]);
        let of = |text: &str| committed_of(&committed, &text.parse().expect("partitions"));
        assert_eq!(of("t"), OffsetPresence { present: vec![at(0), at(2)], absent: vec![] });
        assert_eq!(of("t:0,1"), OffsetPresence { present: vec![at(0)], absent: vec![at(1)] });
        assert_eq!(of("v"), OffsetPresence::default());
    }
}
