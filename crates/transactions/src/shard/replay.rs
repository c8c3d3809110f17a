//! Rebuilds the state from the log.

use super::{Entry, TransactionShard, TurnContext};
use crate::record::decode;
use crate::state::TransactionState;
use std::sync::Arc;
use thalweg_record::{DecompressBuffer, batches};
use thalweg_shard::ShardLoadError;

impl TransactionShard {
    /// Replays a piece of the log: whole batches, in their order.
    pub(in super::super) fn replay_batches(
        &mut self,
        bytes: &[u8],
        buffer: &mut DecompressBuffer,
    ) -> Result<(), ShardLoadError> {
        for batch in batches(bytes) {
            let batch = batch?;
            let header = &batch.header;
            if header.attributes.is_control() {
                continue;
            }
            let unreadable = |error| ShardLoadError::Records { offset: header.base_offset.0, error };
            for record in batch.records(buffer).map_err(unreadable)? {
                let record = record.map_err(unreadable)?;
                let offset = record.offset.0;
                let decoded = decode(record.key, record.value)
                    .map_err(|error| ShardLoadError::Record { offset, error })?;
                let Some(decoded) = decoded else {
                    tracing::warn!(offset, "Skipped a __transaction_state record of an unknown version");
                    continue;
                };
                let id: Arc<str> = decoded.id.into();
                match decoded.metadata {
                    Some(metadata) => drop(self.entries.insert(id, Entry::new(metadata, Some(offset)))),
                    None => {
                        self.entries.remove(&id);
                        self.forgotten_at = offset;
                    }
                }
            }
        }
        Ok(())
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
