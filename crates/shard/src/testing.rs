//! Support for tests of coordinators.

mod kafka_program;
mod memory_log;

pub use kafka_program::run_kafka_program;
pub use memory_log::MemoryLog;
