//! The authorizer through its public interface.

/// What a decision costs.
mod cost;
/// Rules by example.
mod decisions;
/// The same decisions as Apache Kafka's own class.
mod kafka;
