//! Guards of transactional appends: a partition accepts the first batch of a transaction only after the
//! coordinator has confirmed that it belongs to the transaction (KIP-890).
//!
//! Owns: one guard per producer whose transaction is being confirmed. Refuses: asking the coordinator.

use thalweg_hash::HashMap;
use thalweg_record::{ProducerEpoch, ProducerId};

/// Proof that the coordinator was asked about a producer's transaction; compared when the batch is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationGuard(u64);

impl VerificationGuard {
    /// No guard: the transaction is already known here, or verification is off.
    pub const NONE: VerificationGuard = VerificationGuard(0);
}

#[derive(Debug)]
pub(super) struct Verification {
    guard: VerificationGuard,
    started_ms: i64,
    pub(super) lowest_sequence: i32,
    pub(super) epoch: ProducerEpoch,
    pub(super) supports_epoch_bump: bool,
}

/// The verifications in progress in a partition.
#[derive(Debug, Default)]
pub struct Verifications {
    by_producer: HashMap<ProducerId, Verification>,
    last_guard: u64,
}

impl Verifications {
    /// Starts a verification, or joins the one in progress.
    pub fn start(
        &mut self,
        producer_id: ProducerId,
        sequence: i32,
        epoch: ProducerEpoch,
        supports_epoch_bump: bool,
        now_ms: i64,
    ) -> VerificationGuard {
        let last_guard = &mut self.last_guard;
        let verification = self.by_producer.entry(producer_id).or_insert_with(|| {
            *last_guard += 1;
            Verification {
                guard: VerificationGuard(*last_guard),
                started_ms: now_ms,
                lowest_sequence: sequence,
                epoch,
                supports_epoch_bump,
            }
        });
        if epoch > verification.epoch {
            verification.epoch = epoch;
            verification.lowest_sequence = sequence;
        } else if epoch == verification.epoch {
            verification.lowest_sequence = verification.lowest_sequence.min(sequence);
        }
        verification.guard
    }

    /// True if `guard` belongs to the producer's verification in progress.
    pub fn holds(&self, producer_id: ProducerId, guard: VerificationGuard) -> bool {
        guard != VerificationGuard::NONE
            && self.by_producer.get(&producer_id).is_some_and(|verification| verification.guard == guard)
    }

    pub(super) fn get(&self, producer_id: ProducerId) -> Option<&Verification> {
        self.by_producer.get(&producer_id)
    }

    pub(super) fn clear(&mut self, producer_id: ProducerId) {
        self.by_producer.remove(&producer_id);
    }

    pub(super) fn remove_expired(&mut self, now_ms: i64, expiration_ms: i64) {
        self.by_producer
            .retain(|_, verification| now_ms.saturating_sub(verification.started_ms) < expiration_ms);
    }
}
