//! Terminal output: progress during a run, tables after it.
//!
//! Progress goes to standard error: animated on a terminal, plain lines otherwise, JSON for programs. Tables
//! are text for the caller to print.

mod columns;
mod devices;
mod event;
mod notes;
mod profile;
mod progress;
mod table;

use std::ffi::OsStr;
use std::io::IsTerminal;

pub use columns::{Columns, TextWidth, wrapped};
pub use progress::{PointAt, Progress};
pub use table::{comparison, table, trend};

/// True if a stream is a terminal on which text can be drawn over: not one that says `TERM=dumb`.
pub fn can_redraw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_dumb(std::env::var_os("TERM").as_deref())
}

/// True for the terminal type of a terminal that only prints.
fn is_dumb(kind: Option<&OsStr>) -> bool {
    kind.is_some_and(|kind| kind == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_of_unknown_type_is_not_dumb() {
        assert!(is_dumb(Some(OsStr::new("dumb"))));
        assert!(!is_dumb(Some(OsStr::new("xterm"))) && !is_dumb(None));
    }
}
