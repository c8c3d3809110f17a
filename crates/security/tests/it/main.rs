//! The authorizer, names and stores through their public interface, and beside Java.
//!
//! - `names`: distinguished names and mapping rules, compared with Java's and Kafka's classes (needs KAFKA_CLASSPATH).
//! - `stores`: stores made by `keytool` and `openssl`.

/// What a decision costs.
mod cost;
/// Rules by example.
mod decisions;
/// The same decisions as Apache Kafka's own class.
mod kafka;
mod names;
mod stores;

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skipped(what: &str) {
    eprintln!("SKIPPED: {what}");
}
