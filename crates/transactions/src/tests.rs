//! Black-box tests of transactions, driven through the shard with a log in memory.

mod driver;
mod ends;
mod harness;
mod lives;
mod random;
mod records;
mod successions;
