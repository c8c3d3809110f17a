//! The authorizer, names and stores through their public interface, and beside Java.
//!
//! - `certificates`: which chains are accepted, compared with Java's trust manager (needs KAFKA_CLASSPATH).
//! - `names`: distinguished names and mapping rules, compared with Java's and Kafka's classes (needs
//!   KAFKA_CLASSPATH).
//! - `quotas`: rates, token buckets, and which limit holds for a client (needs KAFKA_CLASSPATH).
//! - `stores`: stores made by `keytool` and `openssl`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "measurements and differences are for people")]

mod certificates;
/// What a decision costs.
mod cost;
/// Rules by example.
mod decisions;
mod der;
mod java;
/// The same decisions as Apache Kafka's own class.
mod kafka;
mod names;
mod quotas;
mod stores;

/// Says that a test was left out, past the harness, which swallows the output of tests that pass.
fn skipped(what: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "SKIPPED: {what}").expect("stderr takes a line");
}
