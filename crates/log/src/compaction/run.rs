//! Running a planned compaction: step by step, or as a whole.

use super::job::{CompactionError, CompactionJob, CompactionOutcome};
use super::pass::{CompactionPass, CompactionStep};

impl CompactionJob {
    /// Starts the pass; [`CompactionPass::step`] continues it.
    pub fn begin(&self) -> CompactionPass {
        CompactionPass::new(self)
    }

    /// Runs the whole pass. Blocks while it reads and rewrites the log; call it without the partition's lock.
    pub fn run(&self) -> Result<CompactionOutcome, CompactionError> {
        let mut pass = self.begin();
        loop {
            match pass.step(self) {
                Ok(CompactionStep::Moved { .. }) => {}
                Ok(CompactionStep::Done(outcome)) => return Ok(outcome),
                Err(error) => {
                    drop(pass);
                    self.discard();
                    return Err(error);
                }
            }
        }
    }
}
