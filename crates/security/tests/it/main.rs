//! Names and stores, against Java.
//!
//! - `names`: distinguished names and mapping rules, compared with Java's and Kafka's classes (needs KAFKA_CLASSPATH).
//! - `stores`: stores made by `keytool` and `openssl`.

mod names;
mod stores;

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skipped(what: &str) {
    eprintln!("SKIPPED: {what}");
}
