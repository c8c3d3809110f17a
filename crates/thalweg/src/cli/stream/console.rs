//! Output of stages: to standard output, or to standard error if standard output carries a report; above the line with the
//! rate, if any.

use std::io::{self, Write};

use indicatif::MultiProgress;
use thalweg_stream::module::Console;

/// Lines for people.
pub struct Lines {
    /// The progress line.
    pub bars: MultiProgress,
    /// Whether standard output carries a report.
    pub to_standard_error: bool,
}

impl Console for Lines {
    fn line(&self, text: &str) {
        // The output is closed: nothing can be reported.
        self.bars.suspend(|| match self.to_standard_error {
            true => drop(writeln!(io::stderr(), "{text}")),
            false => drop(writeln!(io::stdout(), "{text}")),
        });
    }
}
