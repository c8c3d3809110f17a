//! A consumer's subscription, and the metadata it needs: topic names, or a pattern.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use thalweg_wire::ErrorCode;
use tokio::time::Instant;

use super::{Consumer, ConsumerError, sorted};
use crate::metadata::Metadata;

use super::group::Group;
use super::membership::SubscribedTopics;

/// Pause before the next lookup of a missing topic.
const UNKNOWN_TOPIC_BACKOFF: Duration = Duration::from_secs(1);

/// A consumer's subscription.
#[derive(Clone, Debug)]
pub(super) enum Subscription {
    /// No subscription: the caller assigns partitions.
    None,
    Topics(Vec<String>),
    /// All topics whose names match.
    Pattern(Regex),
    /// A pattern that the group's coordinator resolves (KIP-848).
    OfCoordinator,
}

/// A subscription pattern is not a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is not a regular expression: {reason}")]
pub struct InvalidPattern {
    /// The pattern's text.
    pub pattern: String,
    pub reason: String,
}

impl Subscription {
    /// A subscription to the topics whose whole names match.
    pub(super) fn pattern(pattern: &str) -> Result<Subscription, InvalidPattern> {
        // Compile the pattern alone first, so that an error shows its position.
        let whole = Regex::new(pattern).and_then(|_| Regex::new(&format!("^(?:{pattern})$")));
        whole
            .map(Subscription::Pattern)
            .map_err(|error| InvalidPattern { pattern: pattern.to_owned(), reason: error.to_string() })
    }

    /// The subscribed topics in the metadata.
    fn topics(&self, metadata: &Metadata, exclude_internal: bool) -> Vec<String> {
        match self {
            Subscription::None | Subscription::OfCoordinator => Vec::new(),
            Subscription::Topics(topics) => topics.clone(),
            Subscription::Pattern(pattern) => {
                let topics = metadata.topics.iter().filter(|(name, topic)| {
                    let usable = topic.error.is_none() && !(topic.internal && exclude_internal);
                    usable && pattern.is_match(name)
                });
                topics.map(|(name, _)| name.clone()).collect()
            }
        }
    }
}

impl Consumer {
    /// Refreshes the metadata: leaders, and for a group member the existing topics and partitions.
    pub(super) async fn refresh(&mut self) -> Result<(), ConsumerError> {
        let now = Instant::now();
        self.refresh_at = now + self.config.retry_backoff;
        let mut topics = self.shared.assignment.lock().topics();
        if let Some(group) = &self.group {
            topics.extend(group.membership.watched_topics());
        }
        let of_all = matches!(self.subscription, Subscription::Pattern(_));
        let answer = match of_all {
            true => self.cluster.refresh_all().await,
            false => self.cluster.refresh(&sorted(topics.clone()), self.config.create_topics).await,
        };
        let metadata = match answer {
            Ok(metadata) => metadata,
            Err(error) if error.is_retriable() => {
                self.config.connection.failed("metadata", &error);
                self.refresh_at = Instant::now() + self.backoff.next_pause();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let lacks_leader = {
            let mut assignment = self.shared.assignment.lock();
            assignment.apply(&metadata);
            assignment.without_leader()
        };
        if let Some(at) = lacks_leader.as_ref() {
            self.config.connection.failed("leaders", &format!("partition {at} has no leader"));
        }
        self.shared.changed.notify_waiters();
        let subscribed = self.subscription.topics(&metadata, self.config.exclude_internal_topics);
        if of_all {
            self.join(SubscribedTopics { names: subscribed, pattern: None });
        }
        if let Some(group) = &self.group {
            group.membership.compare(&metadata);
        }
        self.refresh_at = now
            + match lacks_leader.is_some() {
                true => self.backoff.next_pause(),
                false => {
                    let again = missing(&topics, &metadata, self.config.retry_backoff);
                    again.unwrap_or(self.config.metadata_max_age)
                }
            };
        Ok(())
    }

    /// Joins the group with this subscription, or changes the subscription of the current member.
    pub(super) fn join(&mut self, topics: SubscribedTopics) {
        if let Some(group) = &self.group {
            group.membership.subscribe(topics);
            return;
        }
        let Some(coordinator) = self.commits.as_ref().map(|commits| commits.coordinator()) else { return };
        self.forget_partitions();
        self.commit_at = self.first_commit_at();
        let config = Arc::clone(&self.config);
        self.group = Some(Group::join(self.cluster.clone(), config, coordinator, topics));
    }

    /// Refreshes the metadata after a pause.
    pub(super) fn refresh_soon(&mut self) {
        self.refresh_at = self.refresh_at.min(Instant::now() + self.backoff.next_pause());
    }
}

/// The time of the next check for missing topics.
fn missing(topics: &BTreeSet<String>, metadata: &Metadata, backoff: Duration) -> Option<Duration> {
    let errors = topics.iter().filter_map(|name| metadata.topics.get(name)?.error);
    errors
        .filter(|error| error.is_retriable())
        .map(|error| match error {
            ErrorCode::UnknownTopicOrPartition => UNKNOWN_TOPIC_BACKOFF.max(backoff),
            _ => backoff,
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::TopicMetadata;
    use thalweg_wire::Uuid;

    #[test]
    fn a_pattern_matches_whole_names_and_passes_over_internal_topics() {
        let topic = |name: &str, internal| TopicMetadata {
            name: name.into(),
            id: Uuid::ZERO,
            internal,
            error: None,
            partitions: Vec::new(),
        };
        let names = [("orders", false), ("orders.eu", false), ("old-orders", false), ("__offsets", true)];
        let topics = names.map(|(name, internal)| (name.to_owned(), topic(name, internal)));
        let metadata = Metadata { topics: topics.into(), ..Metadata::default() };
        let matched = |pattern, exclude| {
            Subscription::pattern(pattern).expect("it is right").topics(&metadata, exclude)
        };
        assert_eq!(matched("orders|old", true), ["orders"]);
        assert_eq!(matched("orders.*", true), ["orders", "orders.eu"]);
        assert_eq!(matched(".*", true).len(), 3);
        assert_eq!(matched(".*", false).len(), 4);
        let error = Subscription::pattern("(").expect_err("it is not closed");
        assert!(error.to_string().starts_with("\"(\" is not a regular expression"), "{error}");
    }
}
