//! Black-box tests of groups, driven through the shard with a log in memory.

mod commits;
mod consumer;
mod consumer_random;
mod driver;
mod golden;
mod harness;
mod loading;
mod lost;
mod membership;
mod migration;
mod random;
mod rebalance;
mod refused;
mod retention;
mod share;
mod static_members;
mod streams;
mod streams_random;
mod streams_topologies;
