//! The laboratory through its public interface: the perf tools and Kafka's own, workloads and their pages,
//! results and reports.
#![allow(clippy::print_stdout, reason = "a test that is skipped says so, and a failing one names its seed")]

mod apache_kafka;
mod browser;
mod compare;
mod compared_brokers;
mod condensed;
mod fixture;
mod floors;
mod options;
mod page_blocks;
mod published_results;
mod pulsar;
mod report;
mod workload_pages;
