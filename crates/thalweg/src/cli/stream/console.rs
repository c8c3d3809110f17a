//! Where the lines of stages go: to standard output, or to standard error where standard output is for a report; above the
//! line with the rate, if there is one.

use std::io::{self, Write};

use indicatif::MultiProgress;
use thalweg_stream::module::Console;

/// Lines for people.
pub struct Lines {
    /// The line with the rate.
    pub bars: MultiProgress,
    /// Whether standard output is for something else.
    pub to_standard_error: bool,
}

impl Console for Lines {
    fn line(&self, text: &str) {
        // Nobody reads: there is nobody to tell.
        self.bars.suspend(|| match self.to_standard_error {
            true => drop(writeln!(io::stderr(), "{text}")),
            false => drop(writeln!(io::stdout(), "{text}")),
        });
    }
}
