//! InitProducerId: a producer starts to use a transactional id, and its predecessor is fenced.

use super::{Entry, TransactionShard, TurnContext};
use crate::answer::{Producer, TransactionAnswer};
use crate::error::TransactionError;
use crate::metadata::{NO_PRODUCER_EPOCH, TransactionMetadata, is_exhausted};
use crate::state::TransactionState;
use std::sync::Arc;
use thalweg_groups::TransactionOutcome;
use thalweg_shard::Ticket;

/// A producer's request, after the checks of its format and timeout.
#[derive(Clone, Debug)]
pub struct InitRequest {
    /// The transactional id.
    pub id: String,
    /// The transaction timeout; the maximum value if an external system ends transactions.
    pub timeout_ms: i32,
    /// The previous producer, if the client continues after an error (KIP-360).
    pub expected: Option<Producer>,
    /// The beginning of the producer's `client.id`, if known.
    pub client_id: Option<Arc<str>>,
}

impl TransactionShard {
    /// Handles InitProducerId. `new_id` is a new producer id; without one, the answer may be
    /// [`TransactionAnswer::NeedsProducerId`].
    pub fn init_producer_id(
        &mut self,
        request: &InitRequest,
        new_id: Option<i64>,
        ticket: Ticket,
        turn: TurnContext,
    ) {
        let (basis, found) = self.find(&request.id);
        let id: Arc<str> = match found {
            Some((id, _)) => id.clone(),
            None => {
                let Some(new_id) = new_id else {
                    return self.answer(ticket, TransactionAnswer::NeedsProducerId, basis);
                };
                let id: Arc<str> = request.id.as_str().into();
                let fresh = TransactionMetadata::new(new_id, request.timeout_ms, turn.now.wall_ms);
                // The id is busy until its record is written, and is removed if the write fails.
                self.entries.insert(id.clone(), Entry::new(fresh, None));
                id
            }
        };
        let entry = &self.entries[&id];
        if let Err(error) = check(entry, request) {
            return self.answer(ticket, TransactionAnswer::Producer(Err(error)), basis);
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.client_id.clone_from(&request.client_id);
        }
        let entry = &self.entries[&id];
        if entry.current.state == TransactionState::Ongoing {
            // The client retries, and finds the transaction aborted.
            let answer = TransactionAnswer::Producer(Err(TransactionError::Busy));
            return self.fence(&id, new_id, Some((ticket, answer)), turn);
        }
        let (current, now_ms) = (&entry.current, turn.now.wall_ms);
        let has_last_epoch = request.expected.is_none_or(|expected| expected.epoch == current.producer_epoch);
        let target = if current.is_epoch_exhausted() && has_last_epoch {
            let Some(new_id) = new_id else {
                return self.answer(ticket, TransactionAnswer::NeedsProducerId, basis);
            };
            Ok(current.rotated(new_id, request.timeout_ms, request.expected.is_some(), now_ms))
        } else if current.is_epoch_exhausted() && !is_repeated(current, request) {
            // The epoch is neither the current nor the previous one.
            Err(TransactionError::Fenced)
        } else {
            current.initialised(request.timeout_ms, request.expected.map(|expected| expected.epoch), now_ms)
        };
        match target {
            Err(error) => self.answer(ticket, TransactionAnswer::Producer(Err(error)), basis),
            Ok(target) => {
                let producer = Producer { id: target.producer_id, epoch: target.producer_epoch };
                self.change(&id, target, Some((ticket, TransactionAnswer::Producer(Ok(producer)))), turn);
            }
        }
    }

    /// Aborts the transaction of an id in the next epoch, which ends all writes of its producer.
    pub(super) fn fence(
        &mut self,
        id: &Arc<str>,
        new_id: Option<i64>,
        answer: Option<(Ticket, TransactionAnswer)>,
        turn: TurnContext,
    ) {
        let entry = &self.entries[id];
        debug_assert_eq!(entry.current.state, TransactionState::Ongoing);
        let has_own_epoch = turn.transaction_version >= super::EPOCH_PER_TRANSACTION;
        if has_own_epoch && entry.current.is_epoch_exhausted() && new_id.is_none() {
            let (basis, _) = self.find(id);
            match answer {
                Some((ticket, _)) => self.answer(ticket, TransactionAnswer::NeedsProducerId, basis),
                None => self.needing_ids.push(id.clone()),
            }
            return;
        }
        self.decide(
            id,
            TransactionOutcome::Abort,
            turn.transaction_version,
            new_id,
            false,
            true,
            answer,
            turn,
        );
    }
}

fn check(entry: &Entry, request: &InitRequest) -> Result<(), TransactionError> {
    let current = &entry.current;
    if entry.pending.is_some() {
        return Err(TransactionError::Busy);
    }
    if let Some(expected) = request.expected {
        let is_previous = expected.id == current.previous_producer_id && is_exhausted(expected.epoch);
        if current.producer_epoch != NO_PRODUCER_EPOCH && expected.id != current.producer_id && !is_previous {
            return Err(TransactionError::Fenced);
        }
    }
    if current.state.is_prepared() { Err(TransactionError::Busy) } else { Ok(()) }
}

/// True if the request was answered before, and the answer was lost.
fn is_repeated(current: &TransactionMetadata, request: &InitRequest) -> bool {
    request.expected.is_some_and(|expected| expected.epoch == current.last_producer_epoch)
}
