//! Kafka's range assignor: of each topic, every member gets a run of neighbouring partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::offsets::TopicPartition;

/// Its name in JoinGroup.
pub(super) const RANGE: &str = "range";

/// Assigns the partitions of the topics, whose counts `partition_count` tells, to the members that subscribe to them.
/// Members are sorted by id, as Kafka's dynamic members are; the first ones get one partition more when it does not divide.
pub(super) fn assign_by_range(
    subscriptions: &BTreeMap<String, Vec<String>>,
    partition_count: impl Fn(&str) -> usize,
) -> BTreeMap<String, Vec<TopicPartition>> {
    let mut by_topic: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (member, topics) in subscriptions {
        for topic in topics {
            by_topic.entry(topic).or_default().push(member);
        }
    }
    let mut assigned: BTreeMap<String, Vec<TopicPartition>> =
        subscriptions.keys().map(|member| (member.clone(), Vec::new())).collect();
    for (topic, mut members) in by_topic {
        members.sort_unstable();
        members.dedup();
        let name: Arc<str> = topic.into();
        let count = partition_count(topic);
        let mut next = 0;
        for (place, member) in members.iter().enumerate() {
            let share = count / members.len() + usize::from(place < count % members.len());
            let mine = assigned.get_mut(*member).expect("every member has an entry");
            for partition in next..next + share {
                let partition = i32::try_from(partition).expect("partition indexes are 32 bits wide");
                mine.push(TopicPartition::new(Arc::clone(&name), partition));
            }
            next += share;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_get_neighbouring_partitions_and_the_first_get_one_more() {
        let subscriptions = BTreeMap::from([
            ("b".to_owned(), vec!["t".to_owned()]),
            ("a".to_owned(), vec!["t".to_owned(), "u".to_owned()]),
            ("c".to_owned(), vec!["t".to_owned()]),
        ]);
        let assigned = assign_by_range(&subscriptions, |topic| if topic == "t" { 7 } else { 2 });
        let of = |member: &str| -> Vec<String> { assigned[member].iter().map(ToString::to_string).collect() };
        assert_eq!(of("a"), ["t-0", "t-1", "t-2", "u-0", "u-1"]);
        assert_eq!(of("b"), ["t-3", "t-4"]);
        assert_eq!(of("c"), ["t-5", "t-6"]);
    }

    #[test]
    fn members_beyond_the_partitions_get_none() {
        let subscriptions =
            BTreeMap::from([("a".to_owned(), vec!["t".to_owned()]), ("b".to_owned(), vec!["t".to_owned()])]);
        let assigned = assign_by_range(&subscriptions, |_| 1);
        assert_eq!(assigned["a"].len(), 1);
        assert!(assigned["b"].is_empty());
    }
}
