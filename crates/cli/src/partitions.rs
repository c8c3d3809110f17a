//! Partitions on the command line: `orders` for all partitions of a topic, `orders:0,3` for some.

use std::collections::BTreeSet;
use std::str::FromStr;

use thalweg_client::{Cluster, Metadata, RefusedRequest, TopicPartition};
use thalweg_wire::ErrorCode;

use super::failure::Usage;

/// A topic, and some of its partitions or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partitions {
    /// The name of the topic.
    pub topic: String,
    /// The indexes; none for all partitions.
    pub only: Option<Vec<i32>>,
}

impl FromStr for Partitions {
    type Err = Usage;

    fn from_str(text: &str) -> Result<Partitions, Usage> {
        let wrong = || {
            Usage(format!(
                "{text:?} is not TOPIC or TOPIC:PARTITION,...: expected for example orders or orders:0,3"
            ))
        };
        let (topic, only) = match text.split_once(':') {
            None => (text, None),
            Some((topic, list)) => {
                let numbers = list
                    .split(',')
                    .map(|number| number.parse().ok().filter(|number: &i32| *number >= 0).ok_or_else(wrong));
                (topic, Some(numbers.collect::<Result<_, _>>()?))
            }
        };
        if topic.is_empty() {
            return Err(wrong());
        }
        Ok(Partitions { topic: topic.to_owned(), only })
    }
}

/// The named partitions, which must exist. Refreshes the metadata of their topics.
pub(crate) async fn resolve(
    cluster: &Cluster,
    wanted: &[Partitions],
) -> anyhow::Result<BTreeSet<TopicPartition>> {
    let topics: BTreeSet<String> = wanted.iter().map(|one| one.topic.clone()).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    let metadata = cluster.refresh(&topics, false).await?;
    let mut found = BTreeSet::new();
    for one in wanted {
        found.extend(of_topic(&metadata, one)?);
    }
    Ok(found)
}

fn of_topic(metadata: &Metadata, wanted: &Partitions) -> Result<Vec<TopicPartition>, RefusedRequest> {
    let missing = |what: String, error_code| RefusedRequest { what, error_code, message: None };
    let name = &wanted.topic;
    let topic = metadata.topics.get(name).filter(|topic| topic.error.is_none()).ok_or_else(|| {
        let error = metadata.topics.get(name).and_then(|topic| topic.error);
        missing(format!("Topic {name}"), error.unwrap_or(ErrorCode::UnknownTopicOrPartition))
    })?;
    let all: Vec<i32> = topic.partitions.iter().map(|partition| partition.index).collect();
    let only = wanted.only.as_ref().unwrap_or(&all);
    let found = only.iter().map(|&partition| match all.contains(&partition) {
        true => Ok(TopicPartition::new(name.as_str(), partition)),
        false => Err(missing(format!("Partition {name}-{partition}"), ErrorCode::UnknownTopicOrPartition)),
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_may_name_its_partitions() {
        let read = |text: &str| text.parse::<Partitions>().map(|read| (read.topic, read.only));
        assert_eq!(read("orders").expect("valid"), ("orders".to_owned(), None));
        assert_eq!(read("orders:0,3").expect("valid"), ("orders".to_owned(), Some(vec![0, 3])));
        for wrong in ["", ":1", "orders:", "orders:x", "orders:-1", "orders:1,"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
