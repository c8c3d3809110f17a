//! The coordinators of groups and of transactions.
//!
//! Both are made alike: a shard for each partition of an internal topic ([`group`], [`transaction`]), pure, and one driver that
//! gives it requests and time, writes what it decides, and answers when that is acknowledged ([`driver`]). [`internal_log`] is
//! where they meet the partitions of this broker.

pub mod driver;
pub mod group;
pub mod internal_log;
pub mod transaction;
