//! The division of rejected writes: one record that the log refuses must not keep out the records beside it.

use super::{Shard, WriteError};

/// The halves of a shard's rejected writes, which precede the other writes of the shard.
#[derive(Debug)]
pub struct DividedWrites<S: Shard>(Vec<S::Write>);

impl<S: Shard> Default for DividedWrites<S> {
    fn default() -> Self {
        DividedWrites(Vec::new())
    }
}

impl<S: Shard> DividedWrites<S> {
    /// The next write to append: a half, or a write of the shard.
    pub fn next(&mut self, shard: &mut S) -> Option<S::Write> {
        self.0.pop().or_else(|| shard.next_write())
    }

    /// Divides a rejected write if a single record may be the cause. Otherwise the shard handles the failure.
    pub fn refused(
        &mut self,
        shard: &mut S,
        mut write: S::Write,
        error: WriteError,
        batch_bytes_max: usize,
        turn: S::TurnContext,
    ) {
        let first = if error.is_of_one_record() { S::take_first_half(&mut write) } else { None };
        match first {
            Some(first) => {
                tracing::debug!(topic = S::TOPIC, %error, "Dividing a rejected write of a coordinator");
                self.0.extend([write, first]);
            }
            None => shard.refused(write, error, batch_bytes_max, turn),
        }
    }
}
