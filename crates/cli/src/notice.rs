//! Lines for people on standard error that belong to no log: a complaint, or why a command ends.

use std::io::Write;

use thalweg_security::visible::visible_lines;

/// Writes a line. It is not filtered.
pub fn print_notice(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "thalweg: {}", visible_lines(text));
}
