//! Tests of the message code: Kafka's own bytes, Kafka's own schema files, and hostile input.
//!
//! - `golden`: every message at every version, as Kafka's Java classes write it, is read and written again
//!   unchanged.
//! - `schema`: our schema files match the files inside Kafka's jars.
//! - `tables`: error codes and APIs have Kafka's numbers, names, versions and headers.
//! - `hostile`: cut, bent and lying messages are refused, and cost no more memory than a small multiple of
//!   their length.
//!
//! Checks that need Kafka's jars use `KAFKA_CLASSPATH="$(compat/kafka-jars/fetch)"` and report when they are
//! skipped.

mod golden;
mod hostile;
mod schema;
mod tables;

use std::io::Write;

/// Kafka's jars, or `None` after reporting that the check `what` is skipped.
fn kafka_classpath(what: &str) -> Option<String> {
    let classpath = std::env::var("KAFKA_CLASSPATH").ok().filter(|path| !path.is_empty());
    if classpath.is_none() {
        // Not by `eprintln!`, which the test harness swallows where a test passes.
        let how = "set KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\" to run it";
        writeln!(std::io::stderr(), "SKIPPED: {what}: {how}").expect("stderr takes a line");
    }
    classpath
}
