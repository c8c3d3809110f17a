//! The replicas of this broker.
//!
//! A leader's view of its followers ([`followers`]), and the changes of in-sync replicas that it proposes
//! ([`isr_changes`]); one partition, as leader and as follower ([`partition`]); following other brokers and
//! moves between directories ([`replication`]); periodic work ([`upkeep`]). Each module uses only the modules
//! before it.
//!
//! Owns: every log of a topic, each behind the lock of its [`partition::Partition`]. Refuses: requests and
//! answers (the broker's) and the meaning of records (their coordinator's).

pub mod context;
pub mod followers;
pub mod isr_changes;
pub mod partition;
pub mod replication;
mod reports;
pub mod throttle;
pub mod upkeep;
