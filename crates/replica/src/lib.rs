//! One partition's replica on this broker: what it takes and serves as a leader ([`partition`]), how it follows
//! another broker's, who is in sync, how it moves between directories ([`replication`]), and what is done to it
//! meanwhile ([`upkeep`]).
//!
//! Owns: every log of a topic, each behind the lock of its [`partition::Partition`]. Refuses: requests and answers,
//! which are the broker's, and what records mean, which is their coordinator's.

pub mod partition;
pub mod replication;
pub mod upkeep;
