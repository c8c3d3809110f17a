//! The client against a scripted peer with faults, and against Apache Kafka from `KAFKA_CLASSPATH`.
#![allow(clippy::print_stdout, reason = "a test that is skipped says so, and a failing one names its seed")]

mod admin_kafka;
mod certificates;
mod connection;
mod consumer_groups;
mod consumer_kafka;
mod coordinator;
mod fake;
mod groups;
mod idle;
mod kafka;
mod lost_membership;
mod producer;
mod random;
mod restart_kafka;
mod secure;
mod secure_kafka;
mod share;
mod share_kafka;
#[path = "../support/sharing.rs"]
mod sharing;
mod silent_leader;
mod transactions;
mod transactions_kafka;
mod truncation;
