//! The share coordinator's shard, driven by hand.

mod harness;
mod kafka;
mod lives;
