//! The perf tools beside Kafka's own.
#![allow(clippy::print_stdout, reason = "a test that is skipped says so, and a failing one names its seed")]

mod apache_kafka;
mod options;
