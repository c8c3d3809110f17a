//! EndTxn: decides the end of a transaction, sends its markers, and completes it.
//!
//! The older protocol recognises a repeated EndTxn by the state: a committed transaction commits again
//! without effect. In the newer protocol (transaction.version 2) each end raises the epoch, which
//! distinguishes a repetition from the end of the next transaction:
//!
//! | state          | abort, epoch before | abort, this epoch | commit, epoch before | commit, this epoch |
//! |----------------|---------------------|-------------------|----------------------|--------------------|
//! | Empty          | PRODUCER_FENCED     | raises the epoch  | PRODUCER_FENCED      | INVALID_TXN_STATE  |
//! | CompleteAbort  | answered again      | raises the epoch  | INVALID_TXN_STATE    | INVALID_TXN_STATE  |
//! | CompleteCommit | INVALID_TXN_STATE   | raises the epoch  | answered again       | INVALID_TXN_STATE  |

use super::{MarkerOrder, TransactionShard, TurnContext};
use crate::answer::{Producer, TransactionAnswer};
use crate::error::TransactionError;
use crate::metadata::{EPOCH_PER_TRANSACTION, FLEXIBLE_RECORDS, NO_PRODUCER_ID, TransactionMetadata};
use crate::state::TransactionState;
use std::sync::Arc;
use thalweg_groups::TransactionOutcome;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::Ticket;

/// A client's request to end its transaction.
#[derive(Clone, Debug)]
pub struct EndRequest {
    /// The transactional id.
    pub id: String,
    /// The producer in the request.
    pub producer: Producer,
    /// Commit or abort.
    pub outcome: TransactionOutcome,
    /// The client's level of transaction.version.
    pub client_version: i16,
}

/// The outcome of an EndTxn request.
enum EndDecision {
    /// The transaction ends. `is_empty` is true if none is open, so that only the epoch is raised.
    Decide { is_empty: bool },
    /// The transaction has already ended with this outcome.
    Again,
}

impl TransactionShard {
    /// Handles EndTxn. The answer follows the acknowledgement of the decision; the markers come later.
    /// `new_id` is as for [`TransactionShard::init_producer_id`].
    pub fn end_transaction(
        &mut self,
        request: &EndRequest,
        new_id: Option<i64>,
        ticket: Ticket,
        turn: TurnContext,
    ) {
        let refuse = |error| TransactionAnswer::Producer(Err(error));
        let (basis, found) = self.find(&request.id);
        let Some((id, entry)) = found else {
            return self.answer(ticket, refuse(TransactionError::UnknownProducer), basis);
        };
        let (id, current) = (id.clone(), &entry.current);
        let has_own_epoch = request.client_version >= EPOCH_PER_TRANSACTION;
        let is_busy = entry.pending.is_some();
        let judged = if has_own_epoch {
            judge(current, is_busy, request)
        } else {
            judge_older(current, is_busy, request)
        };
        match judged {
            Err(error) => self.answer(ticket, refuse(error), basis),
            Ok(EndDecision::Again) => {
                let producer = match has_own_epoch {
                    true => Producer { id: current.producer_id, epoch: current.producer_epoch },
                    false => Producer::NONE,
                };
                self.answer(ticket, TransactionAnswer::Producer(Ok(producer)), basis);
            }
            Ok(EndDecision::Decide { .. })
                if has_own_epoch && turn.transaction_version < FLEXIBLE_RECORDS =>
            {
                self.answer(ticket, refuse(TransactionError::LevelTooLow), basis);
            }
            Ok(EndDecision::Decide { .. })
                if has_own_epoch && current.is_epoch_exhausted() && new_id.is_none() =>
            {
                self.answer(ticket, TransactionAnswer::NeedsProducerId, basis);
            }
            Ok(EndDecision::Decide { is_empty }) => {
                let answer = Some((ticket, TransactionAnswer::Producer(Ok(Producer::NONE))));
                let (outcome, version) = (request.outcome, request.client_version);
                self.decide(&id, outcome, version, new_id, is_empty, false, answer, turn);
            }
        }
    }

    /// Writes the decision, which may fence the transaction's producer. A successful answer gets the producer
    /// with which the client continues, if the protocol returns it.
    #[expect(clippy::too_many_arguments, reason = "what a decision consists of; it is made in three places")]
    pub(super) fn decide(
        &mut self,
        id: &Arc<str>,
        outcome: TransactionOutcome,
        client_version: i16,
        new_id: Option<i64>,
        is_empty: bool,
        fences: bool,
        answer: Option<(Ticket, TransactionAnswer)>,
        turn: TurnContext,
    ) {
        let current = &self.entries[id].current;
        let has_own_epoch = client_version >= EPOCH_PER_TRANSACTION;
        let next_id = match new_id {
            Some(new_id) if has_own_epoch && current.is_epoch_exhausted() => new_id,
            _ => NO_PRODUCER_ID,
        };
        // The older protocol does not record the level.
        let level = if has_own_epoch { client_version } else { 0 };
        let decided = current.decided(outcome, level, next_id, is_empty, turn.now.wall_ms);
        // With an epoch per transaction, the decision has raised the epoch already.
        let target = if fences && !has_own_epoch { decided.fenced() } else { decided };
        let answer = match answer {
            Some((ticket, TransactionAnswer::Producer(Ok(_)))) if has_own_epoch => {
                let (id, epoch) = target.producer_after_end();
                Some((ticket, TransactionAnswer::Producer(Ok(Producer { id, epoch }))))
            }
            answer => answer,
        };
        self.change(id, target, answer, turn);
    }

    /// Sends the markers after a decision; a transaction without partitions is complete. The id stays busy
    /// meanwhile.
    pub(super) fn complete_if_prepared(&mut self, id: &Arc<str>, turn: TurnContext) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let current = &entry.current;
        let outcome = match current.state {
            TransactionState::PrepareCommit => TransactionOutcome::Commit,
            TransactionState::PrepareAbort => TransactionOutcome::Abort,
            _ => return,
        };
        let completed = current.completed(turn.now.wall_ms);
        if current.partitions.is_empty() {
            return self.change(id, completed, None, turn);
        }
        entry.pending = Some(completed.state);
        self.orders.push(MarkerOrder {
            id: id.clone(),
            producer_id: current.producer_id,
            producer_epoch: current.producer_epoch,
            coordinator_epoch: self.coordinator_epoch,
            outcome,
            transaction_version: current.client_version,
            partitions: current.partitions.iter().cloned().collect(),
        });
    }

    /// Records that partitions have an order's marker, or no longer exist. After the last partition, the
    /// transaction is complete.
    pub fn markers_written(
        &mut self,
        id: &str,
        partitions: &[(Arc<str>, PartitionIndex)],
        turn: TurnContext,
    ) {
        let Some((id, _)) = self.entries.get_key_value(id) else { return };
        let id = id.clone();
        let entry = self.entries.get_mut(&id).expect("it was just found");
        if !entry.current.state.is_prepared() || entry.current.partitions.is_empty() {
            return;
        }
        for partition in partitions {
            entry.current.partitions.remove(partition);
        }
        self.complete_if_all_written(&id, turn);
    }

    pub(super) fn complete_if_all_written(&mut self, id: &Arc<str>, turn: TurnContext) {
        let current = &self.entries[id].current;
        if current.state.is_prepared() && current.partitions.is_empty() {
            let completed = current.completed(turn.now.wall_ms);
            self.change(id, completed, None, turn);
        }
    }
}

/// The decision on an EndTxn by state and epoch, as in the table above.
fn judge(
    current: &TransactionMetadata,
    is_busy: bool,
    request: &EndRequest,
) -> Result<EndDecision, TransactionError> {
    let Producer { id, epoch } = request.producer;
    // The last epoch was used up: the lost answer had another producer id.
    let is_rotated =
        current.previous_producer_id == id && epoch == i16::MAX - 1 && current.producer_epoch == 0;
    let is_epoch_before = i32::from(current.producer_epoch) == i32::from(epoch) + 1;
    let is_repeated = is_epoch_before || is_rotated;
    if is_busy {
        return Err(TransactionError::Busy);
    }
    if current.producer_id != id && !is_rotated {
        return Err(TransactionError::UnknownProducer);
    }
    let is_current = epoch == current.producer_epoch;
    let is_known = match current.state {
        TransactionState::PrepareCommit | TransactionState::PrepareAbort => is_epoch_before,
        TransactionState::CompleteCommit | TransactionState::CompleteAbort => is_repeated || is_current,
        _ => is_current,
    };
    if !is_known {
        return Err(TransactionError::Fenced);
    }
    match (current.state, request.outcome) {
        (TransactionState::Ongoing, _) => Ok(EndDecision::Decide { is_empty: false }),
        (TransactionState::PrepareCommit, TransactionOutcome::Commit)
        | (TransactionState::PrepareAbort, TransactionOutcome::Abort) => Err(TransactionError::Busy),
        (TransactionState::CompleteCommit, TransactionOutcome::Commit) if is_repeated => {
            Ok(EndDecision::Again)
        }
        (TransactionState::CompleteAbort, TransactionOutcome::Abort) if is_repeated => Ok(EndDecision::Again),
        (
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort,
            TransactionOutcome::Abort,
        ) if !is_repeated || current.state == TransactionState::Empty => {
            Ok(EndDecision::Decide { is_empty: true })
        }
        _ => Err(TransactionError::InvalidState),
    }
}

/// Judges by states, as before KIP-890.
fn judge_older(
    current: &TransactionMetadata,
    is_busy: bool,
    request: &EndRequest,
) -> Result<EndDecision, TransactionError> {
    if current.producer_id != request.producer.id {
        return Err(TransactionError::UnknownProducer);
    }
    if current.producer_epoch != request.producer.epoch {
        return Err(TransactionError::Fenced);
    }
    if is_busy {
        return Err(TransactionError::Busy);
    }
    match (current.state, request.outcome) {
        (TransactionState::Ongoing, _) => Ok(EndDecision::Decide { is_empty: false }),
        (TransactionState::CompleteCommit, TransactionOutcome::Commit)
        | (TransactionState::CompleteAbort, TransactionOutcome::Abort) => Ok(EndDecision::Again),
        (TransactionState::PrepareCommit, TransactionOutcome::Commit)
        | (TransactionState::PrepareAbort, TransactionOutcome::Abort) => Err(TransactionError::Busy),
        _ => Err(TransactionError::InvalidState),
    }
}
