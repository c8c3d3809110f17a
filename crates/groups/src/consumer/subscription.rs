//! The topics to which a group's members subscribe, by name and by regular expression.

use super::ConsumerGroup;
use super::member::ConsumerGroupMember;
use crate::topics::TopicsView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;

/// Numbers of a topic's subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SubscriberCounts {
    /// Members that name the topic.
    pub(super) by_name: usize,
    /// Regular expressions that match the topic.
    pub(super) by_regex: usize,
}

impl SubscriberCounts {
    pub(super) fn are_zero(self) -> bool {
        self == SubscriberCounts::default()
    }
}

/// The topics that match a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ResolvedRegex {
    pub(super) topics: BTreeSet<String>,
    /// Version of the metadata against which the expression was resolved.
    pub(super) version: i64,
    /// Wall-clock time of the resolution.
    pub(super) timestamp_ms: i64,
}

impl ConsumerGroup {
    /// Sorted names of the subscribed topics, without the members `without` and including the member `with`.
    pub(super) fn topics_with<'a>(
        &'a self,
        without: &[&'a ConsumerGroupMember],
        with: Option<&'a ConsumerGroupMember>,
    ) -> BTreeSet<&'a str> {
        let mut names: BTreeSet<&str> = self.subscribers.keys().map(String::as_str).collect();
        let mut fewer: BTreeMap<&str, SubscriberCounts> = BTreeMap::new();
        let mut fewer_regexes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in without {
            for topic in &*member.topics {
                fewer.entry(topic).or_default().by_name += 1;
            }
            if let Some(regex) = member.regex() {
                *fewer_regexes.entry(regex).or_default() += 1;
            }
        }
        for (regex, count) in fewer_regexes {
            let is_dropped = self.regexes.get(regex) == Some(&count)
                && with.is_none_or(|member| member.regex() != Some(regex));
            if is_dropped && let Some(resolved) = self.resolved.get(regex) {
                for topic in &resolved.topics {
                    fewer.entry(topic).or_default().by_regex += 1;
                }
            }
        }
        for (topic, fewer) in fewer {
            if self.subscribers.get(topic).copied().unwrap_or_default() == fewer {
                names.remove(topic);
            }
        }
        names.extend(with.iter().flat_map(|member| member.topics.iter().map(String::as_str)));
        names
    }

    /// True if a member subscribes to a topic.
    pub(super) fn subscribes(&self, member: &ConsumerGroupMember, topic: &str) -> bool {
        let is_matched =
            |regex| self.resolved.get(regex).is_some_and(|r: &ResolvedRegex| r.topics.contains(topic));
        member.topics.contains(topic) || member.regex().is_some_and(is_matched)
    }

    /// Ids of the existing topics to which a member subscribes.
    pub(super) fn topic_ids(&self, member: &ConsumerGroupMember, topics: &dyn TopicsView) -> BTreeSet<Uuid> {
        let resolved = member.regex().and_then(|regex| self.resolved.get(regex));
        let names = member.topics.iter().chain(resolved.iter().flat_map(|resolved| &resolved.topics));
        names.filter_map(|name| topics.id(name)).collect()
    }

    /// Adds a member's subscription to the counts, or removes it.
    pub(super) fn count_subscription(&mut self, member: &ConsumerGroupMember, add: bool) {
        for topic in &*member.topics {
            self.count_topic(topic, add, |subscribers| &mut subscribers.by_name);
        }
        if let Some(regex) = member.regex.as_ref().filter(|regex| !regex.is_empty()) {
            count(&mut self.regexes, regex, add);
        }
    }

    /// Sets or removes the topics that match a regular expression.
    pub(super) fn set_resolved(&mut self, regex: Arc<str>, resolved: Option<ResolvedRegex>) {
        let before = self.resolved.remove(&regex);
        for topic in before.iter().flat_map(|resolved| &resolved.topics) {
            self.count_topic(topic, false, |subscribers| &mut subscribers.by_regex);
        }
        for topic in resolved.iter().flat_map(|resolved| &resolved.topics) {
            self.count_topic(topic, true, |subscribers| &mut subscribers.by_regex);
        }
        if let Some(resolved) = resolved {
            self.resolved.insert(regex, resolved);
        }
    }

    fn count_topic(&mut self, topic: &str, add: bool, which: impl Fn(&mut SubscriberCounts) -> &mut usize) {
        if !self.subscribers.contains_key(topic) {
            if !add {
                return;
            }
            self.subscribers.insert(topic.to_owned(), SubscriberCounts::default());
        }
        let subscribers = self.subscribers.get_mut(topic).expect("it is there, or was just put there");
        let count = which(subscribers);
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
        if subscribers.are_zero() {
            self.subscribers.remove(topic);
        }
    }
}

/// Adds one to a count, or subtracts one.
pub(super) fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, add: bool) {
    match counts.get_mut(key) {
        Some(count) if add => *count += 1,
        Some(count) if *count > 1 => *count -= 1,
        Some(_) => drop(counts.remove(key)),
        None if add => drop(counts.insert(key.clone(), 1)),
        None => {}
    }
}
