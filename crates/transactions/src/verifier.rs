//! A leader's check before the first batch of a transaction: it verifies that its partition belongs to the
//! transaction, or adds it (KIP-890; Kafka's `AddPartitionsToTxnManager`).
//!
//! Otherwise a delayed batch could arrive after its transaction has ended, and would start one that never ends. Only
//! the first batch of a transaction in a partition asks; later ones find it open.
//!
//! Each remote coordinator gets one request at a time, with all verifications collected meanwhile: the task that
//! finds the connection free asks for all that wait.

use super::answer::Producer;
use super::coordinator::TransactionCoordinator;
use super::error::{TransactionError, VerificationError};
use super::metadata::EPOCH_PER_TRANSACTION;
use super::metadata::Partitions;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_dial::Connection;
use thalweg_hash::{HashMap, HashSet};
use thalweg_log::VerificationGuard;
use thalweg_membership::{PeerError, Peers};
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
use tokio::sync::oneshot;

/// The first version of AddPartitionsToTxn that is between brokers.
const BETWEEN_BROKERS: i16 = 4;

/// What the request's version allows a leader to do, and to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Verification; the client does not know TRANSACTION_ABORTABLE.
    Older,
    /// It asks.
    Asks,
    /// It adds the partition, since the client has not (transaction.version 2).
    Adds,
}

impl Verification {
    /// By the version of a Produce request.
    pub fn of_produce(version: i16) -> Verification {
        match version {
            12.. => Verification::Adds,
            11 => Verification::Asks,
            _ => Verification::Older,
        }
    }

    /// By the version of a TxnOffsetCommit request.
    pub fn of_offset_commit(version: i16) -> Verification {
        match version {
            5.. => Verification::Adds,
            4 => Verification::Asks,
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
pub type Guarded = (Arc<Partition>, Result<VerificationGuard, VerificationError>);

/// A coordinator's answer, with a code for each partition, or one for all. The codes are Kafka's because most
/// coordinators are other brokers.
type Answer = Result<Vec<ErrorCode>, ErrorCode>;

/// A question that waits.
struct Question {
    id: String,
    producer: Producer,
    partitions: Partitions,
    verify_only: bool,
    answer: oneshot::Sender<Answer>,
}

/// One coordinator elsewhere.
#[derive(Default)]
struct Node {
    waiting: Mutex<Vec<Question>>,
    connection: tokio::sync::Mutex<Option<Connection>>,
}

/// See the head of this file.
pub struct Verifier {
    node_id: BrokerId,
    image: Arc<ImageCell>,
    transactions: Arc<TransactionCoordinator>,
    peers: Arc<Peers>,
    /// `transaction.partition.verification.enable`, read for each batch.
    is_enabled: AtomicBool,
    nodes: Mutex<HashMap<BrokerId, Arc<Node>>>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("nodes", &self.nodes.lock().keys()).finish()
    }
}

/// Starts the verification of a producer's batches, each with its first sequence. Does not wait.
pub fn begin(
    producer: Producer,
    batches: impl IntoIterator<Item = (Arc<Partition>, i32)>,
    verification: Verification,
) -> Vec<Guarded> {
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

/// Whether the coordinator must be asked.
pub fn must_ask(guarded: &[Guarded]) -> bool {
    guarded.iter().any(|(_, guard)| guard.as_ref().is_ok_and(|guard| *guard != VerificationGuard::NONE))
}

impl Verifier {
    /// Asks `transactions` where this node coordinates, and its peers elsewhere. Not enabled.
    pub fn new(
        node_id: BrokerId,
        image: Arc<ImageCell>,
        transactions: Arc<TransactionCoordinator>,
        peers: Arc<Peers>,
    ) -> Verifier {
        let (is_enabled, nodes) = (AtomicBool::new(false), Mutex::default());
        Verifier { node_id, image, transactions, peers, is_enabled, nodes }
    }

    /// Sets `transaction.partition.verification.enable`.
    pub fn enable(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    /// Whether a partition refuses a transaction that was not verified.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Asks the coordinator about the partitions that have guards. Rejected ones lose their guard.
    pub async fn ask(
        &self,
        id: &str,
        producer: Producer,
        guarded: &mut [Guarded],
        verification: Verification,
    ) {
        let is_asked =
            |(_, guard): &&Guarded| matches!(guard, Ok(guard) if *guard != VerificationGuard::NONE);
        let key = |partition: &Partition| (Arc::clone(&partition.topic), partition.index);
        let partitions: Partitions = guarded.iter().filter(is_asked).map(|(p, _)| key(p)).collect();
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
        partitions: Partitions,
        verify_only: bool,
    ) -> Answer {
        let image = self.image.get();
        let state_partition = self.transactions.partition_for(id);
        let registration = image.partition(TRANSACTIONS, state_partition);
        let leader = registration.map(|registration| registration.leader);
        let leader =
            leader.filter(|leader| image.is_alive(*leader)).ok_or(ErrorCode::CoordinatorNotAvailable)?;
        if leader != self.node_id {
            let (answer, answered) = oneshot::channel();
            let question = Question { id: id.to_owned(), producer, partitions, verify_only, answer };
            return self.ask_elsewhere(leader, question, answered).await;
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

    async fn ask_elsewhere(
        &self,
        leader: BrokerId,
        question: Question,
        mut answered: oneshot::Receiver<Answer>,
    ) -> Answer {
        let node = Arc::clone(self.nodes.lock().entry(leader).or_default());
        node.waiting.lock().push(question);
        let mut connection = node.connection.lock().await;
        loop {
            match answered.try_recv() {
                Ok(answer) => return answer,
                // The task that asked has given up.
                Err(oneshot::error::TryRecvError::Closed) => return Err(ErrorCode::NetworkException),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let questions = node.take();
            match send(&self.peers, leader, &mut connection, &questions).await {
                Ok(response) => answer_all(questions, &response),
                Err(error) => {
                    tracing::info!(coordinator = %leader, %error, "Failed to verify a transaction");
                    *connection = None;
                    for question in questions {
                        let _ = question.answer.send(Err(ErrorCode::NetworkException));
                    }
                }
            }
        }
    }
}

impl Node {
    /// The questions that can be asked together: one of each id.
    fn take(&self) -> Vec<Question> {
        let mut waiting = self.waiting.lock();
        let mut ids = HashSet::default();
        let (now, later) =
            std::mem::take(&mut *waiting).into_iter().partition(|question| ids.insert(question.id.clone()));
        *waiting = later;
        now
    }
}

async fn send(
    peers: &Peers,
    leader: BrokerId,
    connection: &mut Option<Connection>,
    questions: &[Question],
) -> Result<AddPartitionsToTxnResponse, PeerError> {
    let open = match connection.take().filter(|connection| !connection.is_closed()) {
        Some(open) => open,
        None => peers.connect(leader, "txn-verification", peers.request_timeout()).await?,
    };
    let transactions = questions.iter().map(|question| AddPartitionsToTxnTransaction {
        transactional_id: question.id.clone(),
        producer_id: question.producer.id,
        producer_epoch: question.producer.epoch,
        verify_only: question.verify_only,
        topics: by_topic(&question.partitions),
    });
    let request = AddPartitionsToTxnRequest { transactions: transactions.collect(), ..Default::default() };
    let version = open.version_of::<AddPartitionsToTxnRequest>().map_err(thalweg_dial::ClientError::from)?;
    if version < BETWEEN_BROKERS {
        return Err(PeerError::TooOld { broker: leader, api: "AddPartitionsToTxn", version });
    }
    let response = open.send(&request).await?;
    *connection = Some(open);
    Ok(response)
}

fn by_topic(partitions: &Partitions) -> Vec<AddPartitionsToTxnTopic> {
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

fn answer_all(questions: Vec<Question>, response: &AddPartitionsToTxnResponse) {
    let code = |code: i16| ErrorCode::from_i16(code).unwrap_or(ErrorCode::UnknownServerError);
    for Question { id, partitions, answer, .. } in questions {
        let result = match code(response.error_code) {
            ErrorCode::None => {
                let told = response.results_by_transaction.iter().find(|told| told.transactional_id == id);
                let topics: &[AddPartitionsToTxnTopicResult] = told.map_or(&[], |told| &told.topic_results);
                let codes: HashMap<(&str, i32), i16> = topics
                    .iter()
                    .flat_map(|topic| {
                        let results = topic.results_by_partition.iter();
                        results.map(|p| ((&*topic.name, p.partition_index), p.partition_error_code))
                    })
                    .collect();
                let of = |(topic, partition): &(Arc<str>, PartitionIndex)| {
                    codes
                        .get(&(&**topic, partition.0))
                        .map_or(ErrorCode::UnknownServerError, |told| code(*told))
                };
                Ok(partitions.iter().map(of).collect())
            }
            // Clients need not know about the permissions of brokers.
            ErrorCode::ClusterAuthorizationFailed => Err(ErrorCode::InvalidTxnState),
            error => Err(error),
        };
        let _ = answer.send(result);
    }
}
