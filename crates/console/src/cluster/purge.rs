//! The deletion of all messages of a topic: what it would delete, and the deletion itself.
//!
//! A deletion reaches the offsets that the plan has shown, and no message that was written later.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_client::{ConfigResource, DescribeConfigs, TopicPartition};
use thalweg_record::Offset;
use utoipa::ToSchema;

use super::View;
use super::topic::{self, Topic};
use super::topic_groups::{self, TopicReaders};
use crate::format;
use crate::problem::Problem;

const POLICY: &str = "cleanup.policy";

/// The messages that a purge deletes.
#[derive(Debug, Serialize, ToSchema)]
pub struct PurgePlan {
    /// The topic id in Kafka's base64 form.
    pub topic_id: String,
    /// The reason why the cluster would refuse the purge, if it would.
    pub refused: Option<String>,
    /// The partitions with what would be deleted.
    pub partitions: Vec<PurgedPartition>,
    /// Number of messages of all partitions, at most: compaction and transactions leave gaps.
    pub messages: i64,
    /// Bytes of the leaders' replicas; none if the login may not read the log directories.
    pub bytes: Option<u64>,
    /// Partitions that cannot be purged now, because they have no leader that answers.
    pub unreachable: Vec<i32>,
}

/// A partition of a purge.
#[derive(Debug, Serialize, ToSchema)]
pub struct PurgedPartition {
    /// The partition index.
    pub partition: i32,
    /// The log start offset.
    pub start: i64,
    /// The log end offset: messages before it would be deleted.
    pub end: i64,
    /// Bytes of the replica on the leader.
    pub bytes: Option<u64>,
}

impl PurgedPartition {
    /// Number of messages, at most.
    pub fn messages(&self) -> i64 {
        (self.end - self.start).max(0)
    }
}

/// The end of a purge in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeEnd {
    /// The partition index.
    pub partition: i32,
    /// The offset before which all messages are deleted.
    pub offset: i64,
}

/// The outcome of a purge.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct PurgeOutcome {
    /// The purged partitions, with their new log start offsets.
    pub purged: BTreeMap<i32, i64>,
    /// The partitions that were not purged, with the reason.
    pub failed: BTreeMap<i32, String>,
}

/// Plans a purge.
pub async fn plan(view: &View, name: &str) -> Result<PurgePlan, Problem> {
    let topic = topic::read(view, name).await?;
    let policy = policy(view, name).await;
    Ok(PurgePlan::of(&topic, policy.as_deref()))
}

/// The groups that read the topic, which lose what they have not read.
pub async fn readers(view: &Arc<View>, name: &str) -> Result<Arc<TopicReaders>, Problem> {
    topic_groups::read(view, name).await
}

impl PurgePlan {
    fn of(topic: &Topic, policy: Option<&str>) -> PurgePlan {
        let partitions = &topic.partitions;
        let purged = partitions.iter().filter_map(|partition| {
            let (start, end) = (partition.start?, partition.end?);
            Some(PurgedPartition { partition: partition.index, start, end, bytes: partition.bytes })
        });
        let purged: Vec<PurgedPartition> = purged.collect();
        let is_known = |index: &i32| purged.iter().any(|one| one.partition == *index);
        let unreachable = partitions.iter().map(|partition| partition.index).filter(|index| !is_known(index));
        PurgePlan {
            topic_id: topic.id.clone(),
            refused: refusal(&topic.name, topic.is_internal, policy),
            unreachable: unreachable.collect(),
            messages: purged.iter().map(PurgedPartition::messages).sum(),
            bytes: purged.iter().map(|one| one.bytes).sum(),
            partitions: purged,
        }
    }

    /// The offsets before which everything is deleted.
    pub fn ends(&self) -> Vec<PurgeEnd> {
        let ends = self.partitions.iter();
        ends.map(|one| PurgeEnd { partition: one.partition, offset: one.end }).collect()
    }
}

/// The reason why Kafka refuses DeleteRecords for a topic.
fn refusal(name: &str, is_internal: bool, policy: Option<&str>) -> Option<String> {
    let policies = |policy: &str| policy.split(',').map(|one| one.trim().to_owned()).collect::<Vec<_>>();
    let is_compacted = policy.map(policies).is_some_and(|all| all.iter().all(|one| one == "compact"));
    if is_internal {
        return Some(format!("{name} is one of the cluster's own topics, whose messages cannot be deleted."));
    }
    is_compacted.then(|| {
        format!(
            "{name} is compacted ({POLICY}=compact), and such a topic keeps the newest message of each key. Messages can be \
             deleted while {POLICY} has delete, too; a message without a value deletes one key."
        )
    })
}

/// The cleanup policy of a topic, if the login may read it. Otherwise, the broker decides.
async fn policy(view: &View, name: &str) -> Option<String> {
    let wanted = DescribeConfigs { names: Some(vec![POLICY.to_owned()]), ..DescribeConfigs::default() };
    let topic = ConfigResource::Topic(name.to_owned());
    let described = view.admin().describe_configs_with(&[topic], &wanted).await.ok()?;
    described.into_values().next()?.ok()?.remove(POLICY)?.value
}

/// Deletes the messages before these offsets, if the topic has this id. Kafka's request names the topic, so a
/// topic that is created again after this check loses messages.
pub async fn purge(
    view: &View,
    name: &str,
    topic_id: &str,
    ends: &[PurgeEnd],
) -> Result<PurgeOutcome, Problem> {
    let before = before(name, ends)?;
    let found = view.topic_metadata(name).await?;
    unless_created_again(name, &found.id.to_string(), topic_id)?;
    if let Some(at) = before.keys().find(|at| found.partition(at.partition).is_none()) {
        return Err(Problem::missing(format!("{name} has no partition {}", at.partition)));
    }
    let mut outcome = PurgeOutcome::default();
    for (at, result) in view.admin().delete_records(&before).await? {
        match result {
            Ok(start) => drop(outcome.purged.insert(at.partition, start.0)),
            Err(error) => drop(outcome.failed.insert(at.partition, error.to_string())),
        }
    }
    view.forget().await;
    match outcome.failed.first_key_value() {
        Some((_, reason)) if outcome.purged.is_empty() => Err(Problem::wrong(reason.clone())),
        _ => Ok(outcome),
    }
}

/// Refuses a purge of a topic with another id than the plan's.
fn unless_created_again(name: &str, found: &str, planned: &str) -> Result<(), Problem> {
    match planned == found {
        true => Ok(()),
        false => Err(Problem::wrong(format!(
            "{name} was deleted and created again since this page was made: look at its new messages first"
        ))),
    }
}

/// The offsets by partition. A negative offset would mean the end at the time of the request.
fn before(name: &str, ends: &[PurgeEnd]) -> Result<BTreeMap<TopicPartition, Offset>, Problem> {
    let mut before = BTreeMap::new();
    for end in ends {
        let at = TopicPartition::new(name, end.partition);
        if end.offset < 0 {
            return Err(Problem::wrong(format!("{} is not an offset of {at}", end.offset)));
        }
        if before.insert(at.clone(), Offset(end.offset)).is_some() {
            return Err(Problem::wrong(format!("{at} is named twice")));
        }
    }
    match before.is_empty() {
        true => Err(Problem::wrong("No partition is named: the purge needs an offset for each of them")),
        false => Ok(before),
    }
}

impl PurgeOutcome {
    /// The outcome in a sentence.
    pub fn words(&self, name: &str) -> String {
        let purged: Vec<i32> = self.purged.keys().copied().collect();
        let mut words = format!(
            "The messages of {name} were deleted in {} ({}).",
            format::counted(purged.len(), "partition"),
            format::ids(&purged)
        );
        for (partition, reason) in &self.failed {
            words.push_str(&format!(" They were not deleted in partition {partition}: {reason}."));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::topic::Partition;

    fn partition(index: i32, offsets: Option<(i64, i64)>, bytes: Option<u64>) -> Partition {
        Partition {
            index,
            leader: Some(1),
            leader_epoch: 0,
            replicas: vec![1],
            in_sync: vec![1],
            start: offsets.map(|(start, _)| start),
            end: offsets.map(|(_, end)| end),
            bytes,
        }
    }

    fn topic(is_internal: bool, partitions: Vec<Partition>) -> Topic {
        let (name, id) = ("orders".to_owned(), "b3JkZXJz".to_owned());
        Topic { name, id, is_internal, records: None, bytes: None, partitions }
    }

    #[test]
    fn a_topic_that_was_created_again_keeps_its_messages() {
        let refused = unless_created_again("orders", "bmV3", "b2xk").expect_err("it is another topic");
        assert!(refused.message.starts_with("orders was deleted and created again"), "{}", refused.message);
        assert!(unless_created_again("orders", "bmV3", "bmV3").is_ok());
    }

    #[test]
    fn a_plan_has_what_would_be_deleted() {
        let partitions = vec![
            partition(0, Some((5, 12)), Some(700)),
            partition(1, Some((3, 3)), Some(0)),
            partition(2, None, None),
        ];
        let plan = PurgePlan::of(&topic(false, partitions), Some("delete"));
        assert_eq!(plan.topic_id, "b3JkZXJz");
        assert_eq!((plan.messages, plan.bytes, plan.unreachable.as_slice()), (7, Some(700), &[2][..]));
        assert_eq!(plan.refused, None);
        let ends = [PurgeEnd { partition: 0, offset: 12 }, PurgeEnd { partition: 1, offset: 3 }];
        assert_eq!(plan.ends(), ends);
        let unseen = PurgePlan::of(&topic(false, vec![partition(0, Some((0, 1)), None)]), None);
        assert_eq!((unseen.bytes, unseen.refused), (None, None), "the broker decides");
    }

    #[test]
    fn topics_that_kafka_does_not_purge_are_refused_with_the_reason() {
        let refused = |is_internal, policy| PurgePlan::of(&topic(is_internal, Vec::new()), policy).refused;
        assert!(
            refused(false, Some("compact"))
                .is_some_and(|why| why.contains("keeps the newest message of each key"))
        );
        assert!(refused(true, Some("delete")).is_some_and(|why| why.contains("the cluster's own")));
        assert_eq!(refused(false, Some("compact, delete")), None);
    }

    #[test]
    fn a_purge_names_each_partition_once_with_an_offset() {
        let end = |partition, offset| PurgeEnd { partition, offset };
        let refused = |ends: &[PurgeEnd]| before("orders", ends).expect_err("it is wrong").message;
        assert!(refused(&[]).starts_with("No partition is named"));
        assert_eq!(refused(&[end(0, -1)]), "-1 is not an offset of orders-0");
        assert_eq!(refused(&[end(1, 2), end(1, 3)]), "orders-1 is named twice");
        assert!(before("orders", &[end(0, 0), end(1, 7)]).is_ok());
    }

    #[test]
    fn a_partial_purge_is_reported_by_partition() {
        let outcome = PurgeOutcome {
            purged: BTreeMap::from([(0, 12), (2, 3)]),
            failed: BTreeMap::from([(1, "it has no leader".to_owned())]),
        };
        let words = "The messages of orders were deleted in 2 partitions (0, 2). They were not deleted in partition 1: it has \
                     no leader.";
        assert_eq!(outcome.words("orders"), words);
    }
}
