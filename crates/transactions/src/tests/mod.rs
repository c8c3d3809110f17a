//! Transactions seen from outside, driven through the shard with a log in memory.

mod driver;
mod ends;
mod harness;
mod lives;
mod random;
mod records;
mod successions;
