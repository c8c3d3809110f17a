//! The defaults of new topics, as a broker reports them, and a new topic with the settings of another.

use std::collections::BTreeMap;

use thalweg_client::verdict::Absence;
use thalweg_client::{
    ClientError, ConfigEntry, ConfigResource, DescribeConfigs, PartitionMetadata, PartitionReassignment,
    TopicPartition,
};

use super::View;
use super::configs::{self, ConfiguredResource};
use super::controllers::ANSWER_WAIT;
use super::topic::TopicCreation;
use crate::amounts::WITHOUT_LIMIT;
use crate::problem::Problem;
use crate::units;

/// Settings of brokers that are the defaults of topics.
const PARTITIONS: &str = "num.partitions";
const REPLICAS: &str = "default.replication.factor";
const CLEANUP: &str = "log.cleanup.policy";
/// The first of these with a value counts.
const RETENTION: [&str; 3] = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
const SIZE: &str = "log.retention.bytes";

/// Settings of a topic that belong to moves of its replicas.
const OF_MOVES: [&str; 2] =
    ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"];

/// The defaults of new topics in words; none if a broker does not report one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TopicDefaults {
    pub partitions: Option<String>,
    pub replicas: Option<String>,
    pub cleanup: Option<String>,
    pub retention: Option<String>,
    pub size: Option<String>,
}

/// Reads the defaults of a broker.
pub async fn read(view: &View) -> Result<TopicDefaults, Absence> {
    described(view).await.map_err(|error| Absence::of(&error))
}

async fn described(view: &View) -> Result<TopicDefaults, ClientError> {
    let catalog = view.catalog().await?;
    let Some(broker) = catalog.brokers.keys().next() else { return Ok(TopicDefaults::default()) };
    let broker = ConfigResource::Broker(*broker);
    let names = [PARTITIONS, REPLICAS, CLEANUP, SIZE].into_iter().chain(RETENTION);
    let names = Some(names.map(str::to_owned).collect());
    let wanted = DescribeConfigs { names, ..DescribeConfigs::default() };
    let admin = view.admin().clone().with_answer_limit(ANSWER_WAIT);
    let described = admin.describe_configs_with(std::slice::from_ref(&broker), &wanted).await?;
    let entries = described.into_values().next().unwrap_or_else(|| Ok(BTreeMap::new()))?;
    Ok(TopicDefaults::of(&entries))
}

impl TopicDefaults {
    fn of(entries: &BTreeMap<String, ConfigEntry>) -> TopicDefaults {
        let value = |name: &str| entries.get(name)?.value.as_deref().filter(|value| !value.is_empty());
        let words = |name: &str, value: &str| {
            let is_unlimited = value.parse::<i64>().is_ok_and(|number| number < 0);
            match units::in_words(name, value) {
                _ if is_unlimited => WITHOUT_LIMIT.to_owned(),
                Some(words) => words,
                None => format!("{value} {}", name.rsplit('.').next().unwrap_or_default()),
            }
        };
        let retention = RETENTION.into_iter().find_map(|name| Some(words(name, value(name)?)));
        TopicDefaults {
            partitions: value(PARTITIONS).map(str::to_owned),
            replicas: value(REPLICAS).map(str::to_owned),
            cleanup: value(CLEANUP).map(str::to_owned),
            retention,
            size: value(SIZE).map(|value| words(SIZE, value)),
        }
    }
}

/// A new topic like another: its partitions, its replicas, and the settings that are set for it. Without the
/// settings, if the login may not read them; then the reason is returned, too.
pub async fn like(view: &View, name: &str) -> Result<(TopicCreation, Option<String>), Problem> {
    let found = view.topic_metadata(name).await?;
    let controllers = view.controllers().await;
    let replicas = target_replicas(name, &found.partitions, controllers.reassignments.as_ref().ok());
    let mut creation = TopicCreation {
        name: String::new(),
        partitions: i32::try_from(found.partitions.len()).ok(),
        replicas: replicas.and_then(|replicas| i16::try_from(replicas).ok()),
        configuration: BTreeMap::new(),
    };
    let unread = match configs::read(view, &ConfiguredResource::Topic(name.to_owned())).await {
        Ok(lines) => {
            let set = lines.into_iter().filter(|line| line.is_set && !OF_MOVES.contains(&line.name.as_str()));
            creation.configuration = set.filter_map(|line| Some((line.name, line.value?))).collect();
            None
        }
        Err(error) => Some(error.to_string()),
    };
    Ok((creation, unread))
}

/// The number of replicas of a partition after the moves in progress. While moves are unknown, the smallest
/// number of a partition.
fn target_replicas(
    topic: &str,
    partitions: &[PartitionMetadata],
    reassignments: Option<&BTreeMap<TopicPartition, PartitionReassignment>>,
) -> Option<usize> {
    let Some(reassignments) = reassignments else {
        return partitions.iter().map(|partition| partition.replicas.len()).min();
    };
    let first = partitions.first()?;
    let moving = reassignments.get(&TopicPartition::new(topic, first.index));
    let removing = moving.map_or(0, |moving| moving.removing.len());
    Some(first.replicas.len().saturating_sub(removing))
}

#[cfg(test)]
mod tests {
    use thalweg_client::ConfigSource;
    use thalweg_record::LeaderEpoch;

    use super::*;

    fn entries(values: &[(&str, Option<&str>)]) -> BTreeMap<String, ConfigEntry> {
        let entry = |value: Option<&str>| ConfigEntry {
            value: value.map(str::to_owned),
            source: ConfigSource::Default,
            is_default: true,
            read_only: false,
            is_sensitive: false,
            value_type: None,
            documentation: None,
            synonyms: Vec::new(),
        };
        values.iter().map(|(name, value)| ((*name).to_owned(), entry(*value))).collect()
    }

    #[test]
    fn replicas_that_a_move_removes_are_not_copied() {
        let partition = |index, replicas: &[i32]| PartitionMetadata {
            index,
            error: None,
            leader: Some(1),
            leader_epoch: LeaderEpoch(0),
            replicas: replicas.to_vec(),
            isr: vec![1],
            offline: Vec::new(),
        };
        let partitions = [partition(0, &[1, 2, 3, 4]), partition(1, &[1, 2])];
        let moving =
            PartitionReassignment { replicas: vec![1, 2, 3, 4], adding: vec![3, 4], removing: vec![1, 2] };
        let moves = BTreeMap::from([(TopicPartition::new("orders", 0), moving)]);
        assert_eq!(target_replicas("orders", &partitions, Some(&moves)), Some(2));
        assert_eq!(target_replicas("orders", &partitions, Some(&BTreeMap::new())), Some(4));
        assert_eq!(target_replicas("orders", &partitions, None), Some(2), "moves are not visible");
        assert_eq!(target_replicas("orders", &[], None), None);
    }

    #[test]
    fn defaults_are_in_words_and_the_finest_retention_counts() {
        let defaults = TopicDefaults::of(&entries(&[
            ("num.partitions", Some("3")),
            ("default.replication.factor", Some("1")),
            ("log.cleanup.policy", Some("delete")),
            ("log.retention.ms", None),
            ("log.retention.minutes", Some("1440")),
            ("log.retention.hours", Some("168")),
            ("log.retention.bytes", Some("-1")),
        ]));
        let expected = TopicDefaults {
            partitions: Some("3".to_owned()),
            replicas: Some("1".to_owned()),
            cleanup: Some("delete".to_owned()),
            retention: Some("1 day".to_owned()),
            size: Some("without limit".to_owned()),
        };
        assert_eq!(defaults, expected);
        let odd = TopicDefaults::of(&entries(&[("log.retention.ms", Some("1500"))]));
        assert_eq!((odd.retention.as_deref(), odd.size), (Some("1500 ms"), None));
    }
}
