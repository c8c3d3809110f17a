//! Output of stages: to standard output, or to standard error if standard output carries a report, always
//! above the progress line.

use std::io::{self, Write};

use indicatif::MultiProgress;
use thalweg_stream::module::StageOutput;

/// Writes the output lines of stages.
pub struct Lines {
    /// The progress line.
    pub bars: MultiProgress,
    /// True if standard output carries a report.
    pub to_standard_error: bool,
}

impl StageOutput for Lines {
    fn line(&self, text: &str) {
        // The output is closed: nothing can be reported.
        self.bars.suspend(|| match self.to_standard_error {
            true => drop(writeln!(io::stderr(), "{text}")),
            false => drop(writeln!(io::stdout(), "{text}")),
        });
    }
}
