//! AddPartitionsToTxn and AddOffsetsToTxn, and the verification of partitions for leaders.

use super::{Entry, TransactionShard, TurnContext};
use crate::answer::{Producer, TransactionAnswer, VerificationResult};
use crate::error::TransactionError;
use crate::metadata::TransactionPartitions;
use crate::state::TransactionState;
use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::Ticket;

impl TransactionShard {
    /// Adds these existing partitions to the transaction. `client_version` is the client's level of
    /// transaction.version.
    pub fn add_partitions(
        &mut self,
        id: &str,
        producer: Producer,
        added: &TransactionPartitions,
        client_version: i16,
        ticket: Ticket,
        turn: TurnContext,
    ) {
        let (basis, found) = self.find(id);
        let Some((id, entry)) = found else {
            return self.answer(
                ticket,
                TransactionAnswer::Added(Err(TransactionError::UnknownProducer)),
                basis,
            );
        };
        if entry.pending.is_some() {
            return self.answer(ticket, TransactionAnswer::Added(Err(TransactionError::Busy)), basis);
        }
        if let Err(error) = check(entry, producer) {
            return self.answer(ticket, TransactionAnswer::Added(Err(error)), basis);
        }
        let current = &entry.current;
        if current.state == TransactionState::Ongoing && current.partitions.is_superset(added) {
            return self.answer(ticket, TransactionAnswer::Added(Ok(())), basis);
        }
        let (id, target): (Arc<str>, _) =
            (id.clone(), current.with_partitions(added, client_version, turn.now.wall_ms));
        self.change(&id, target, Some((ticket, TransactionAnswer::Added(Ok(())))), turn);
    }

    /// Verifies that the open transaction includes the partitions. Answers with one result per partition, in
    /// order, or one for all.
    pub fn verify_partitions(
        &mut self,
        id: &str,
        producer: Producer,
        partitions: &TransactionPartitions,
        ticket: Ticket,
    ) {
        let (basis, found) = self.find(id);
        let verified = verify(found.map(|(_, entry)| entry), producer, partitions);
        self.answer(ticket, TransactionAnswer::Verified(verified), basis);
    }
}

fn verify(
    entry: Option<&Entry>,
    producer: Producer,
    partitions: &TransactionPartitions,
) -> VerificationResult {
    let entry = entry.ok_or(TransactionError::UnknownProducer)?;
    check(entry, producer)?;
    let verify = |partition: &(Arc<str>, PartitionIndex)| {
        let is_added = entry.current.partitions.contains(partition);
        if is_added { Ok(()) } else { Err(TransactionError::PartitionNotAdded) }
    };
    Ok(partitions.iter().map(verify).collect())
}

/// Rejects requests of other producers, and all requests while a transaction ends.
fn check(entry: &Entry, producer: Producer) -> Result<(), TransactionError> {
    let current = &entry.current;
    if current.producer_id != producer.id {
        Err(TransactionError::UnknownProducer)
    } else if current.producer_epoch != producer.epoch {
        Err(TransactionError::Fenced)
    } else if current.state.is_prepared() {
        Err(TransactionError::Busy)
    } else {
        Ok(())
    }
}
