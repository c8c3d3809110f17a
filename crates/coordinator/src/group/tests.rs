//! Groups seen from outside, driven through the shard with a log in memory.

mod commits;
mod driver;
mod golden;
mod harness;
mod membership;
mod random;
mod rebalance;
mod retention;
mod static_members;
