//! The record crate from outside, by behaviour.
//!
//! - `golden`: batches that Kafka's own classes wrote are read as those classes read them, and written byte
//!   for byte.
//! - `java`: Kafka's own classes read what the builder writes (needs KAFKA_CLASSPATH).
//! - `produce_check`: what a producer may send, and which fault is named when there are two.
//! - `stamping`: what the broker writes into a batch leaves it whole.
//! - `codecs`: the shapes of compressed records that clients write, and the limit on what they become.
//! - `topic_rules`: keys, timestamps and offsets of records, and what the header alone decides.
//! - `walking`: the walk over a producer's records, what it refuses and what it costs.
//! - `building`: what the builder writes is what is read back.
//! - `hostile`: seeded damage never panics and never takes more memory than allowed.

mod building;
mod codecs;
mod golden;
mod hostile;
mod java;
mod listing;
mod produce_check;
mod samples;
mod stamping;
mod topic_rules;
mod walking;
