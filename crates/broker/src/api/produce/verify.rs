//! The transactional part of Produce: before the first batch of a transaction is accepted, its coordinator
//! verifies the partition, or adds it to the transaction (KIP-890).
//!
//! `begin` selects the batches to verify, and `client_error` maps the coordinator's errors for clients. A
//! request whose transaction is already open in all partitions needs no verification.

use super::refusal::BatchRefusal;
use super::{AnswerPosition, Call, TOPIC_IDS_FROM, TopicRef};
use crate::authorization::Denials;
use std::sync::Arc;
use thalweg_config::BrokerConfig;
use thalweg_hash::HashMap;
use thalweg_log::VerificationGuard;
use thalweg_metadata::PartitionIndex;
use thalweg_record::BatchHeader;
use thalweg_replica::partition::{Partition, Partitions};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_transactions::{
    GuardedPartition, Producer, Verification, VerificationError, Verifier, begin_verification,
    needs_verification,
};
use thalweg_wire::request::ProduceRequest;
use thalweg_wire::request::produce_request::TopicProduceData;
use thalweg_wire::{ErrorCode, Records};
use tokio::time::Instant;

/// Guards for the batches of a request.
#[derive(Debug, Default)]
pub struct Guards {
    /// True if transactional batches need a guard.
    required: bool,
    known: HashMap<AnswerPosition, Result<VerificationGuard, BatchRefusal>>,
}

impl Guards {
    /// The guard for the append of a batch, or the reason to refuse the batch.
    pub fn take(&mut self, position: AnswerPosition) -> Result<Option<VerificationGuard>, BatchRefusal> {
        let guard = self.known.remove(&position).unwrap_or(Ok(VerificationGuard::NONE))?;
        Ok(self.required.then_some(guard))
    }
}

/// Batches of a transaction that wait for verification.
#[derive(Debug)]
pub struct UnverifiedBatches {
    id: String,
    producer: Producer,
    positions: Vec<AnswerPosition>,
    sequences: Vec<i32>,
    guarded: Vec<GuardedPartition>,
    verification: Verification,
}

/// The verification that a request needs before its append.
#[derive(Debug)]
pub enum VerificationNeed {
    /// No verification needed.
    Ready(Guards),
    /// Verification by the transaction coordinator.
    Unverified(UnverifiedBatches),
}

/// Selects the batches of a request to verify, without denied topics. Fails if the batches have several
/// producers, or are transactional without a transactional id that the client may use.
pub fn begin(
    verifier: &Verifier,
    partitions: &Partitions,
    call: &Call,
    request: &ProduceRequest,
    denied: &Denials,
) -> Result<VerificationNeed, ErrorCode> {
    let version = call.version;
    let required = verifier.is_enabled();
    let ready = Guards { required, known: HashMap::default() };
    let Some(id) = &request.transactional_id else {
        let has_transactional = has_transactional_batches(request);
        return if has_transactional {
            Err(ErrorCode::TransactionalIdAuthorizationFailed)
        } else {
            Ok(VerificationNeed::Ready(ready))
        };
    };
    let may_write = || call.permissions.may(Operation::Write, ResourceType::TransactionalId, id);
    if !call.permissions.are_unlimited() && has_transactional_batches(request) && !may_write() {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    let mut producer = None;
    let (mut positions, mut batches) = (Vec::new(), Vec::new());
    let topics = request.topic_data.iter().enumerate();
    for (topic_index, topic) in topics.filter(|(place, _)| !denied.contains(*place)) {
        for (index, data) in topic.partition_data.iter().enumerate() {
            let header = transactional_header(&data.records).filter(|header| header.producer_id.is_some());
            let Some(header) = header else { continue };
            let own = Producer { id: header.producer_id.0, epoch: header.producer_epoch.0 };
            if *producer.get_or_insert(own) != own {
                return Err(ErrorCode::InvalidProducerIdMapping);
            }
            // The append refuses a partition without a replica here.
            if let Some(partition) = find(partitions, version, topic, PartitionIndex(data.index)) {
                positions.push((topic_index, index));
                batches.push((partition, header.base_sequence));
            }
        }
    }
    let verification = Verification::of_produce(version);
    let Some(producer) = producer.filter(|_| required || verification == Verification::Adds) else {
        return Ok(VerificationNeed::Ready(ready));
    };
    let sequences = batches.iter().map(|(_, sequence)| *sequence).collect();
    let guarded = begin_verification(producer, batches, verification);
    let unverified =
        UnverifiedBatches { id: id.clone(), producer, positions, sequences, guarded, verification };
    if needs_verification(&unverified.guarded) {
        Ok(VerificationNeed::Unverified(unverified))
    } else {
        Ok(VerificationNeed::Ready(unverified.into_guards(required)))
    }
}

impl UnverifiedBatches {
    /// Requests verification by the coordinator. A partition cannot be added while the previous transaction
    /// is still ending; retrying here is cheaper than a resent batch.
    pub async fn verify(mut self, config: &BrokerConfig, verifier: &Verifier) -> Guards {
        let settings = &config.transactions;
        let deadline = Instant::now() + settings.add_retry_max.min(config.network.request_timeout);
        loop {
            let (id, verification) = (&self.id, self.verification);
            verifier.verify(id, self.producer, &mut self.guarded, verification).await;
            let is_early = |(_, guard): &GuardedPartition| {
                guard.as_ref().is_err_and(|error| error.code() == ErrorCode::ConcurrentTransactions)
            };
            let goes_on = verification == Verification::Adds && self.guarded.iter().any(is_early);
            if !goes_on || Instant::now() >= deadline {
                return self.into_guards(settings.verifies_partitions);
            }
            tokio::time::sleep(settings.add_retry_backoff).await;
            let batches = self.guarded.drain(..).map(|(partition, _)| partition).zip(self.sequences.clone());
            self.guarded = begin_verification(self.producer, batches, verification);
        }
    }

    fn into_guards(self, required: bool) -> Guards {
        let verification = self.verification;
        let guards = self
            .guarded
            .into_iter()
            .map(|(_, guard)| guard.map_err(|error| client_error(&error, verification)));
        Guards { required, known: self.positions.into_iter().zip(guards).collect() }
    }
}

/// The error for a producer: older clients have only one retriable error that does not trigger a new lookup
/// of the leader.
fn client_error(error: &VerificationError, verification: Verification) -> BatchRefusal {
    match error.code() {
        underlying @ (ErrorCode::NetworkException
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator) => BatchRefusal::Unverified { underlying },
        underlying @ ErrorCode::ConcurrentTransactions if verification != Verification::Adds => {
            BatchRefusal::Unverified { underlying }
        }
        ErrorCode::InvalidTxnState => BatchRefusal::NotOfTransaction,
        other => other.into(),
    }
}

fn has_transactional_batches(request: &ProduceRequest) -> bool {
    let mut parts = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    parts.any(|data| transactional_header(&data.records).is_some())
}

fn transactional_header(records: &Option<Records>) -> Option<BatchHeader> {
    let Some(Records::Inline(bytes)) = records else { return None };
    BatchHeader::parse(bytes).ok().filter(|header| header.attributes.is_transactional())
}

fn find(
    partitions: &Partitions,
    version: i16,
    topic: &TopicProduceData,
    index: PartitionIndex,
) -> Option<Arc<Partition>> {
    TopicRef::of(version >= TOPIC_IDS_FROM, &topic.name, topic.topic_id).here(partitions)?.partition(index)
}
