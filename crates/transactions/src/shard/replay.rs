//! Rebuilds the state from the log.

use super::{Entry, TransactionShard, TurnContext};
use crate::record::decode;
use crate::state::TransactionState;
use std::sync::Arc;
use thalweg_record::DecompressBuffer;
use thalweg_shard::{ShardLoadError, replay_records};

impl TransactionShard {
    /// Replays a piece of the log: whole batches, in their order.
    pub(in super::super) fn replay_batches(
        &mut self,
        bytes: &[u8],
        buffer: &mut DecompressBuffer,
    ) -> Result<(), ShardLoadError> {
        replay_records(bytes, buffer, |record| {
            let offset = record.offset.0;
            let Some(decoded) = decode(record.key, record.value)? else {
                tracing::warn!(offset, "Skipped a __transaction_state record of an unknown version");
                return Ok(());
            };
            let id: Arc<str> = decoded.id.into();
            match decoded.metadata {
                Some(metadata) => drop(self.entries.insert(id, Entry::new(metadata, Some(offset)))),
                None => {
                    self.entries.remove(&id);
                    self.forgotten_at = offset;
                }
            }
            Ok(())
        })
    }

    /// Continues decided, incomplete transactions after the replay of the log.
    pub(in super::super) fn take_up(&mut self, turn: TurnContext) {
        let mut prepared = Vec::new();
        for (id, entry) in &self.entries {
            let current = &entry.current;
            if current.state == TransactionState::Ongoing && !current.is_two_phase_commit() {
                self.ongoing.insert((current.deadline_ms(), id.clone()));
            }
            if current.state.is_prepared() {
                prepared.push(id.clone());
            }
        }
        prepared.sort_unstable();
        for id in prepared {
            self.complete_if_prepared(&id, turn);
        }
    }
}
