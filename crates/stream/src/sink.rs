//! Sinks, one file each.

pub mod counter;
pub mod file;
pub mod histogram;
pub mod http;
pub mod kafka;
pub mod log;
pub mod null;
pub mod stdout;
pub mod throughput;
