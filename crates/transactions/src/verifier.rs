//! A leader's check before the first batch of a transaction: it verifies that its partition belongs to the
//! transaction, or adds it (KIP-890; Kafka's `AddPartitionsToTxnManager`).
//!
//! Without this check, a delayed batch could arrive after the end of its transaction and start a transaction
//! that never ends. Only the first batch of a transaction in a partition is verified; for later batches the
//! transaction is open.
//!
//! Each remote coordinator gets one request at a time, with all verifications collected meanwhile
//! ([`Outbox`]).

use super::answer::Producer;
use super::coordinator::TransactionCoordinator;
use super::error::{TransactionError, VerificationError};
use super::metadata::EPOCH_PER_TRANSACTION;
use super::metadata::TransactionPartitions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_dial::{ClientError, Connection};
use thalweg_hash::{HashMap, HashSet};
use thalweg_log::VerificationGuard;
use thalweg_membership::{Letter, Outbox, PeerError, Peers};
use thalweg_metadata::topic_name::TRANSACTIONS;
use thalweg_metadata::{BrokerId, ImageCell, PartitionIndex};
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_replica::partition::Partition;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use thalweg_wire::request::add_partitions_to_txn_response::AddPartitionsToTxnTopicResult;
use thalweg_wire::request::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};

/// The first version of AddPartitionsToTxn for brokers.
const BETWEEN_BROKERS: i16 = 4;

/// The action and errors that the request's version allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Verify the partition. The client does not know TRANSACTION_ABORTABLE.
    Older,
    /// Verify the partition.
    Verifies,
    /// Add the partition, because the client has not (transaction.version 2).
    Adds,
}

impl Verification {
    /// Verification for this version of Produce.
    pub fn of_produce(version: i16) -> Verification {
        match version {
            12.. => Verification::Adds,
            11 => Verification::Verifies,
            _ => Verification::Older,
        }
    }

    /// Verification for this version of TxnOffsetCommit.
    pub fn of_offset_commit(version: i16) -> Verification {
        match version {
            5.. => Verification::Adds,
            4 => Verification::Verifies,
            _ => Verification::Older,
        }
    }

    /// The error as returned to this client.
    fn client_error(self, error: ErrorCode) -> ErrorCode {
        match error {
            ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
            ErrorCode::TransactionAbortable if self == Verification::Older => ErrorCode::InvalidTxnState,
            other => other,
        }
    }
}

/// A partition with the guard of the batch to verify, or an error.
pub type GuardedPartition = (Arc<Partition>, Result<VerificationGuard, VerificationError>);

/// A coordinator's answer: a code per partition, or one for all. The codes are Kafka's because most
/// coordinators are other brokers.
type Answer = Result<Vec<ErrorCode>, ErrorCode>;

/// The question about one transaction to a remote coordinator.
struct Question {
    id: String,
    producer: Producer,
    partitions: TransactionPartitions,
    verify_only: bool,
}

/// Asks coordinators, here or on other brokers, whether partitions belong to transactions.
pub struct Verifier {
    node_id: BrokerId,
    image: Arc<ImageCell>,
    transactions: Arc<TransactionCoordinator>,
    /// Questions for remote coordinators.
    outbox: Outbox<Question>,
    /// `transaction.partition.verification.enable`, read for each batch.
    is_enabled: AtomicBool,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("outbox", &self.outbox).finish_non_exhaustive()
    }
}

/// Starts the verification of a producer's batches, each given by its first sequence. Does not wait.
pub fn begin(
    producer: Producer,
    batches: impl IntoIterator<Item = (Arc<Partition>, i32)>,
    verification: Verification,
) -> Vec<GuardedPartition> {
    let guard = |(partition, sequence): (Arc<Partition>, i32)| {
        let guard = partition.start_verification(
            ProducerId(producer.id),
            ProducerEpoch(producer.epoch),
            sequence,
            verification == Verification::Adds,
        );
        (partition, guard.map_err(VerificationError::from))
    };
    batches.into_iter().map(guard).collect()
}

/// True if the coordinator must verify a partition.
pub fn needs_verification(guarded: &[GuardedPartition]) -> bool {
    guarded.iter().any(|(_, guard)| guard.as_ref().is_ok_and(|guard| *guard != VerificationGuard::NONE))
}

impl Verifier {
    /// Requests go to `transactions` for ids of this node, and to peers for other ids. Initially disabled.
    pub fn new(
        node_id: BrokerId,
        image: Arc<ImageCell>,
        transactions: Arc<TransactionCoordinator>,
        peers: Arc<Peers>,
    ) -> Verifier {
        let outbox = Outbox::new(peers);
        Verifier { node_id, image, transactions, outbox, is_enabled: AtomicBool::new(false) }
    }

    /// Sets `transaction.partition.verification.enable`.
    pub fn enable(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    /// True if partitions refuse unverified transactions.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Has the coordinator verify the partitions with guards. Rejected partitions lose their guard.
    pub async fn verify(
        &self,
        id: &str,
        producer: Producer,
        guarded: &mut [GuardedPartition],
        verification: Verification,
    ) {
        let has_guard =
            |(_, guard): &&GuardedPartition| matches!(guard, Ok(guard) if *guard != VerificationGuard::NONE);
        let key = |partition: &Partition| (Arc::clone(&partition.topic), partition.index);
        let partitions: TransactionPartitions =
            guarded.iter().filter(has_guard).map(|(p, _)| key(p)).collect();
        let verify_only = verification != Verification::Adds;
        let answers = self.answers(id, producer, partitions.clone(), verify_only).await;
        let places: HashMap<(Arc<str>, PartitionIndex), usize> = partitions.into_iter().zip(0..).collect();
        for (partition, guard) in guarded.iter_mut() {
            let Some(index) = places.get(&key(partition)) else { continue };
            let error = match &answers {
                Ok(answers) => answers.get(*index).copied().unwrap_or(ErrorCode::UnknownServerError),
                Err(error) => *error,
            };
            if guard.is_ok() && error != ErrorCode::None {
                tracing::debug!(?partition, transactional_id = id, %error, "Partition is not part of the transaction");
                *guard = Err(VerificationError::Coordinator(verification.client_error(error)));
            }
        }
    }

    async fn answers(
        &self,
        id: &str,
        producer: Producer,
        partitions: TransactionPartitions,
        verify_only: bool,
    ) -> Answer {
        let image = self.image.get();
        let state_partition = self.transactions.partition_for(id);
        let registration = image.partition(TRANSACTIONS, state_partition);
        let leader = registration.map(|registration| registration.leader);
        let leader =
            leader.filter(|leader| image.is_alive(*leader)).ok_or(ErrorCode::CoordinatorNotAvailable)?;
        if leader != self.node_id {
            let question = Question { id: id.to_owned(), producer, partitions, verify_only };
            return self.outbox.ask(leader, question).await.unwrap_or(Err(ErrorCode::NetworkException));
        }
        if verify_only {
            let verified = self.transactions.verify_partitions(id, producer, &partitions).await;
            let code = |verified: Result<(), TransactionError>| {
                verified.err().map_or(ErrorCode::None, TransactionError::code)
            };
            return match verified {
                Ok(verified) => Ok(verified.into_iter().map(code).collect()),
                Err(error) => Err(error.code()),
            };
        }
        let added = self.transactions.add_partitions(id, producer, &partitions, EPOCH_PER_TRANSACTION);
        match added.await {
            Ok(()) => Ok(vec![ErrorCode::None; partitions.len()]),
            Err(error) => Err(error.code()),
        }
    }
}

impl Letter for Question {
    const PURPOSE: &'static str = "txn-verification";
    const FAILURE: &'static str = "Failed to verify transactions";
    type Kind = ();
    /// Transactional ids: a request has at most one question about each.
    type Load = HashSet<String>;
    type Answer = Answer;

    fn kind(&self) {}

    fn join(&self, ids: &mut HashSet<String>) -> bool {
        ids.insert(self.id.clone())
    }

    async fn send(
        connection: &Connection,
        broker: BrokerId,
        questions: &[Question],
    ) -> Result<Vec<Answer>, PeerError> {
        let transactions = questions.iter().map(|question| AddPartitionsToTxnTransaction {
            transactional_id: question.id.clone(),
            producer_id: question.producer.id,
            producer_epoch: question.producer.epoch,
            verify_only: question.verify_only,
            topics: by_topic(&question.partitions),
        });
        let request =
            AddPartitionsToTxnRequest { transactions: transactions.collect(), ..Default::default() };
        let version = connection.version_of::<AddPartitionsToTxnRequest>().map_err(ClientError::from)?;
        if version < BETWEEN_BROKERS {
            return Err(PeerError::TooOld { broker, api: "AddPartitionsToTxn", version });
        }
        let response = connection.send(&request).await?;
        Ok(questions.iter().map(|question| answer(question, &response)).collect())
    }
}

fn by_topic(partitions: &TransactionPartitions) -> Vec<AddPartitionsToTxnTopic> {
    let mut topics: Vec<AddPartitionsToTxnTopic> = Vec::new();
    for (topic, partition) in partitions {
        match topics.last_mut().filter(|last| *last.name == **topic) {
            Some(last) => last.partitions.push(partition.0),
            None => {
                topics
                    .push(AddPartitionsToTxnTopic { name: topic.to_string(), partitions: vec![partition.0] });
            }
        }
    }
    topics
}

/// The answer to one question.
fn answer(Question { id, partitions, .. }: &Question, response: &AddPartitionsToTxnResponse) -> Answer {
    let code = |code: i16| ErrorCode::from_i16(code).unwrap_or(ErrorCode::UnknownServerError);
    match code(response.error_code) {
        ErrorCode::None => {
            let result = response.results_by_transaction.iter().find(|result| result.transactional_id == *id);
            let topics: &[AddPartitionsToTxnTopicResult] = result.map_or(&[], |result| &result.topic_results);
            let codes: HashMap<(&str, i32), i16> = topics
                .iter()
                .flat_map(|topic| {
                    let results = topic.results_by_partition.iter();
                    results.map(|p| ((&*topic.name, p.partition_index), p.partition_error_code))
                })
                .collect();
            let of = |(topic, partition): &(Arc<str>, PartitionIndex)| {
                let found = codes.get(&(&**topic, partition.0));
                found.map_or(ErrorCode::UnknownServerError, |found| code(*found))
            };
            Ok(partitions.iter().map(of).collect())
        }
        // Clients need not know about brokers' permissions.
        ErrorCode::ClusterAuthorizationFailed => Err(ErrorCode::InvalidTxnState),
        error => Err(error),
    }
}
