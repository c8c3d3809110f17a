//! Compares the expected length of a segment with that of its file, which another program may have cut.
//!
//! A write after the end of a file leaves a hole of zeros, and no error. So the length is checked when that
//! is cheap: before a write that extends the file, when the file is opened, when the broker visits changed
//! partitions, and when a reader has found fewer bytes than expected. Writes into prepared zeros are not
//! checked one by one: a cut file is also shorter than these zeros.
//!
//! Owns: the state of a cut file. From then on appends are refused, and batches are compared with each other
//! before they are served. Refuses: repair, which takes a truncation of the log below the cut.

use std::io;

use super::Segment;
use crate::disk::LogFile;
use crate::scan::{BatchFault, CorruptBatch};

impl Segment {
    /// True if a reader has found fewer bytes than expected, and the length was not checked since.
    pub fn is_suspect(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_short())
    }

    /// The fault of a file that has become shorter. A closed file is not checked.
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
