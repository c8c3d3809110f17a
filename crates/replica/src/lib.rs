//! One partition's replica on this broker: appends and fetches as a leader ([`partition`]), following another broker,
//! in-sync replicas and moves between directories ([`replication`]), and periodic work ([`upkeep`]).
//!
//! Owns: every log of a topic, each behind the lock of its [`partition::Partition`]. Refuses: requests and answers
//! (the broker's) and the meaning of records (their coordinator's).

pub mod partition;
pub mod replication;
pub mod upkeep;
