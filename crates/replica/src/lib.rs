//! The replicas of this broker.
//!
//! A leader's view of its followers ([`leadership`]), and the changes of in-sync replicas that it proposes
//! ([`isr_changes`]); one partition, as leader and as follower ([`partition`]); the tasks that follow other brokers and
//! move replicas between directories ([`replication`]); retention, flushing and compaction ([`upkeep`]). Each uses only
//! those before it.
//!
//! Owns: every log of a topic, each behind the lock of its [`partition::Partition`]. Refuses: requests and answers,
//! which are the broker's, and what records mean, which is their coordinator's.

pub mod context;
pub mod isr_changes;
pub mod leadership;
pub mod partition;
pub mod replication;
pub mod throttle;
pub mod upkeep;
