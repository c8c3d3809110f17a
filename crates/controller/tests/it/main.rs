//! The controller through its public interface: frames in, frames out, and files that Kafka reads.

mod apis;
mod brokers;
mod cluster;
mod cost;
mod decisions;
mod formatted;
mod full_disk;
mod golden;
mod kafka;
mod large_requests;
mod log;
mod recovery;
mod support;
mod topics;
