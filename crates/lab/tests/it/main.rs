//! The perf tools beside Kafka's own; the workloads and their pages.
#![allow(clippy::print_stdout, reason = "a test that is skipped says so, and a failing one names its seed")]

mod apache_kafka;
mod options;
mod workload_pages;
//! The laboratory, by its public interface.
mod browser;
mod compare;
mod fixture;
mod report;
