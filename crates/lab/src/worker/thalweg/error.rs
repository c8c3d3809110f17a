//! Errors of Thalweg's driver.

/// The assignment has no topics to produce to or consume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("topics is empty: add the name of an existing topic")]
pub struct NoTopics;

/// The assignment has no group for consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group is not set: set the name of the consumer group")]
pub struct NoGroup;

/// A topic cannot be produced to or consumed from.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Topic {topic}: {source}")]
pub struct NotProducible {
    pub topic: String,
    pub source: thalweg_client::ClientError,
}
