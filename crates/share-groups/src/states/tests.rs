//! Tests of the share coordinator's shard.

mod harness;
mod kafka;
mod lives;
