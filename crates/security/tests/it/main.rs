//! The authorizer through its public interface.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "measurements and differences are for people")]

/// What a decision costs.
mod cost;
/// Rules by example.
mod decisions;
/// The same decisions as Apache Kafka's own class.
mod kafka;

/// Says that a test was left out, past the harness, which swallows the output of tests that pass.
fn skipped(what: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "SKIPPED: {what}").expect("stderr takes a line");
}
