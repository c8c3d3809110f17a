//! What an assignment can ask of the own driver that it cannot do.

/// There is nothing to produce to or to consume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("topics is empty: the name of a topic that exists would be right")]
pub struct NoTopics;

/// Consumers have no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group is not set: consumers share the records in a group, and its name would be right")]
pub struct NoGroup;

/// A topic cannot be produced to or consumed from.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Topic {topic}: {source}")]
pub struct NotProducible {
    /// The topic.
    pub topic: String,
    /// Why.
    pub source: thalweg_client::ClientError,
}

/// A thread of the worker ended before its work did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A thread of the worker ended before its work did; its last words are on standard error")]
pub struct ThreadEnded;
