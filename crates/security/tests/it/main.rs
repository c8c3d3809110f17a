//! Decisions of security against Apache Kafka's own classes.
//!
//! - `quotas`: rates, token buckets, and which limit holds for a client.

mod quotas;
