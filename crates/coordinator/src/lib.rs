//! The coordinators of groups, of share partitions and of transactions.
//!
//! All have the same structure: a pure shard for each partition of an internal topic ([`group`], [`share`],
//! [`transaction`]), and one driver that passes it requests and time, writes its decisions, and answers once they are
//! acknowledged ([`driver`]). [`internal_log`] connects them to the partitions of this broker.

pub mod driver;
pub mod group;
pub mod internal_log;
#[cfg(test)]
mod kafka_program;
pub mod share;
pub mod share_groups;
pub mod transaction;
