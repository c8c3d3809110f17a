//! The topics that match a group's regular expressions: when the expressions are resolved again, and the
//! effects.

use super::{ConsumerContext, ConsumerGroup};
use crate::record::CoordinatorRecord;
use crate::regex::{Refresh, resolve};
use crate::topic_filter::TopicFilter;
use crate::topics::TopicsView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::group::ConsumerGroupRegularExpressionValue;

/// The topics of each expression.
pub(in super::super) type Matches = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// Regular expressions of a group to resolve, with the permissions of one of its members.
#[derive(Debug)]
pub(in super::super) struct Resolution {
    pub(in super::super) group: Arc<str>,
    pub(in super::super) patterns: BTreeSet<Arc<str>>,
    pub(in super::super) filter: TopicFilter,
}

impl Resolution {
    /// Matches every topic name, so it must not run under the shard's lock. Returns the version of the
    /// metadata, too.
    pub(in super::super) fn look_up(&self, topics: &dyn TopicsView) -> (Matches, i64) {
        let version = topics.version();
        let names = topics.names();
        let names = names.iter().map(String::as_str);
        (resolve(&self.patterns, names, |topic, count| self.filter.may_describe(topic, count)), version)
    }
}

impl ConsumerGroup {
    /// The expressions to resolve now, if a resolution is due. `topics_added_at` is the version of the newest
    /// metadata that added a topic.
    pub(in super::super) fn start_resolution(
        &self,
        now_ms: i64,
        interval_ms: i64,
        topics_added_at: i64,
    ) -> Option<BTreeSet<Arc<str>>> {
        if self.regexes.is_empty() || self.is_resolving.get() {
            return None;
        }
        let last = self.resolved.values().next();
        let refresh = Refresh {
            subscribed: self.regexes.len(),
            resolved: self.resolved.len(),
            has_new_pattern: self.regexes.keys().any(|regex| !self.resolved.contains_key(regex)),
            last_ms: last.map(|resolved| resolved.timestamp_ms),
            last_version: last.map_or(0, |resolved| resolved.version),
            topics_added_at,
        };
        let is_due = refresh.is_due(now_ms, interval_ms);
        self.is_resolving.set(is_due);
        is_due.then(|| self.regexes.keys().cloned().collect())
    }

    /// Ends a resolution against the metadata of this version: the group rebalances if the topics changed.
    pub(in super::super) fn end_resolution(
        &self,
        cx: &mut ConsumerContext<'_>,
        matches: Matches,
        version: i64,
    ) -> Vec<CoordinatorRecord> {
        self.is_resolving.set(false);
        let mut records = Vec::new();
        let mut differs = false;
        let mut after = self.resolved.clone();
        for (regex, topics) in matches {
            // The expression may have lost its members meanwhile.
            if !self.regexes.contains_key(&regex) {
                continue;
            }
            let topics: BTreeSet<String> = topics.iter().map(|topic| topic.to_string()).collect();
            let before = self.resolved.get(&regex);
            differs |= before.map_or(!topics.is_empty(), |before| before.topics != topics);
            let timestamp = cx.now.wall_ms;
            let value = ConsumerGroupRegularExpressionValue {
                topics: topics.iter().cloned().collect(),
                version,
                timestamp,
            };
            records.push(self.regex_record(&regex, Some(value)));
            after.insert(
                regex,
                super::subscription::ResolvedRegex { topics, version, timestamp_ms: timestamp },
            );
        }
        let named = self.subscribers.iter().filter(|(_, of)| of.by_name > 0).map(|(name, _)| name.as_str());
        let matched = after.values().flat_map(|resolved| &resolved.topics).map(String::as_str);
        let names: BTreeSet<&str> = named.chain(matched).collect();
        let hash = cx.hashes.of_group(names.into_iter(), cx.topics);
        if differs || hash != self.modern.metadata_hash {
            self.hashed_at.set(Some(self.raise_epoch(hash, &mut records)));
        }
        records
    }
}
