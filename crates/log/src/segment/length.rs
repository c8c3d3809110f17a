//! Compares the believed length of a segment with that of its file, which something else may have cut.
//!
//! A write behind the end of a file leaves a hole of zeros, and no error. So the length is looked at where that costs
//! nothing beside the rest: before a write that makes the file longer, when the file is opened, when the broker looks
//! through changed partitions, and when a reader has found fewer bytes than it was told. Writes into zeros that were made ahead
//! are not looked at one by one: once the file is cut, it is also shorter than these zeros.
//!
//! Owns: what is known to be cut. From then on nothing is appended, and batches are compared with each other before they are
//! served. Refuses: repair; a truncation of the log below the cut is one.

use std::io;

use super::Segment;
use crate::disk::LogFile;
use crate::scan::{BatchFault, CorruptBatch};

impl Segment {
    /// Whether a reader has found fewer bytes than it was told, and the length was not looked at since.
    pub fn is_suspect(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_short())
    }

    /// The fault of a file that has become shorter. A closed file is not looked at.
    pub fn check_length(&mut self) -> io::Result<Option<CorruptBatch>> {
        if self.shortened.is_none()
            && let Some(file) = self.file.clone()
        {
            self.compare_length(&file)?;
        }
        Ok(self.shortened.clone())
    }

    pub(super) fn compare_length(&mut self, file: &LogFile) -> io::Result<()> {
        file.forget_short();
        let (found, expected) = (file.len()?, self.size_bytes.max(self.ahead.zeros_end()));
        if found < expected {
            let reason = BatchFault::Shortened { found, expected };
            self.shortened = Some(CorruptBatch { position: found.min(self.size_bytes), reason });
            self.distrust();
        }
        Ok(())
    }
}
