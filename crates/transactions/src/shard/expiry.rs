//! Deadlines: transactions time out, completions are retried, ids expire.

use super::{Change, TransactionShard, TurnContext, Write};
use crate::record::encode_key;
use crate::state::TransactionState;
use std::sync::Arc;
use thalweg_shard::WriteError;

/// Maximum size of the ids deleted in one batch. A batch beyond the topic's limit is divided further.
const FORGOTTEN_BYTES: usize = 64 << 10;

impl TransactionShard {
    /// The monotonic time of the next work for [`TransactionShard::expire_one`].
    pub(super) fn nearest_deadline_ms(&self) -> i64 {
        let retry_ms = self.retries.front().map_or(i64::MAX, |(at_ms, _)| *at_ms);
        // Without an open transaction, no check is scheduled.
        let timeout_ms = if self.ongoing.is_empty() { i64::MAX } else { self.next_timeout_check_ms };
        let write_ms = self.pending.next_expiry_ms();
        timeout_ms.min(self.next_expiry_check_ms).min(retry_ms).min(write_ms)
    }

    /// Processes one due deadline. Returns false if there was none. This is a turn: its writes come before
    /// the next turn.
    pub(super) fn expire_one(&mut self, turn: TurnContext) -> bool {
        let now_ms = turn.now.monotonic_ms;
        if let Some(write) = self.pending.pop_expired(now_ms) {
            self.failed(write.content, WriteError::TimedOut, turn);
            return true;
        }
        if self.retries.front().is_some_and(|(at_ms, _)| *at_ms <= now_ms) {
            let (_, id) = self.retries.pop_front().expect("the condition has found it");
            if self.entries.contains_key(&id) {
                self.complete_if_all_written(&id, turn);
            }
            return true;
        }
        if self.next_timeout_check_ms <= now_ms {
            self.next_timeout_check_ms =
                now_ms.saturating_add(self.config.abort_timed_out_interval_ms.max(1));
            self.abort_all_timed_out(turn);
            return true;
        }
        if self.next_expiry_check_ms <= now_ms {
            self.next_expiry_check_ms = now_ms.saturating_add(self.config.remove_expired_interval_ms.max(1));
            self.forget_expired(turn);
            return true;
        }
        false
    }

    /// Aborts the transaction of an id, if it is still past its timeout because the producer is dead or too
    /// slow.
    pub fn abort_timed_out(&mut self, id: &str, new_id: Option<i64>, turn: TurnContext) {
        let Some((id, entry)) = self.entries.get_key_value(id) else { return };
        let current = &entry.current;
        let is_late = current.state == TransactionState::Ongoing
            && !current.is_two_phase_commit()
            && current.deadline_ms() < turn.now.wall_ms;
        if is_late && entry.pending.is_none() {
            let id = id.clone();
            // Often the first sign of a dead producer.
            tracing::warn!(
                transactional_id = &*id,
                client_id = entry.client_id.as_deref(),
                producer_id = current.producer_id,
                producer_epoch = current.producer_epoch,
                timeout_ms = current.timeout_ms,
                "Aborting a timed-out transaction"
            );
            self.fence(&id, new_id, None, turn);
        }
    }

    fn abort_all_timed_out(&mut self, turn: TurnContext) {
        let late = self.ongoing.iter().take_while(|(deadline_ms, _)| *deadline_ms < turn.now.wall_ms);
        let late: Vec<Arc<str>> = late.map(|(_, id)| id.clone()).collect();
        for id in late {
            self.abort_timed_out(&id, None, turn);
        }
    }

    fn forget_expired(&mut self, turn: TurnContext) {
        let oldest_ms = turn.now.wall_ms.saturating_sub(self.config.id_expiration_ms);
        let is_expired = |entry: &super::Entry| {
            entry.pending.is_none()
                && entry.current.state.is_idle()
                && entry.current.last_update_ms <= oldest_ms
        };
        let mut expired: Vec<Arc<str>> =
            self.entries.iter().filter(|(_, entry)| is_expired(entry)).map(|(id, _)| id.clone()).collect();
        expired.sort_unstable();
        if !expired.is_empty() {
            tracing::info!(ids = expired.len(), "Removing expired transactional ids");
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for id in expired {
            if !batch.is_empty() && bytes + id.len() > FORGOTTEN_BYTES {
                self.forget(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += id.len();
            batch.push(id);
        }
        self.forget(batch);
    }

    /// Deletes these ids by one batch.
    fn forget(&mut self, ids: Vec<Arc<str>>) {
        let encoded = ids.into_iter().filter_map(|id| Some(((encode_key(&id).ok()?, None), id)));
        let (records, ids): (Vec<_>, Vec<_>) = encoded.unzip();
        if ids.is_empty() {
            return;
        }
        for id in &ids {
            let entry = self.entries.get_mut(id).expect("it was just found");
            entry.pending = Some(TransactionState::Dead);
        }
        self.writes.push_back(Write { records, change: Change::Forget(ids), answer: None });
    }
}
