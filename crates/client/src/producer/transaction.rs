//! The state of a transactional producer: allowed calls, batches that may be sent, and the effect of failures
//! on the open transaction. Pure: the driver (`coordination`) and the senders report events and read the next
//! actions.
//!
//! Two protocols (KIP-890). With `transaction.version` 2, a partition joins the transaction with its first
//! batch, and every end of a transaction bumps the epoch. With earlier versions, each partition is registered
//! with the coordinator first, and the epoch stays until a failure requires a new one.

use std::sync::Arc;

use thalweg_dial::ClientError;
use thalweg_wire::ErrorCode;

use super::delivery::DeliveryError;

/// The level of the feature `transaction.version` from which partitions join transactions implicitly.
pub(super) const IMPLICIT_FROM: i16 = 2;

/// A call of a transactional producer failed. [`TransactionError::is_fatal`],
/// [`TransactionError::is_abortable`] and [`TransactionError::is_retriable`] classify it; a call that the
/// state does not allow is none of these.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransactionError {
    /// Another producer has taken over the transactional id, or the coordinator has ended a transaction that
    /// exceeded `transaction.timeout.ms`. This producer can only be dropped.
    #[error("The producer of transactional id {transactional_id} is fenced: {source}")]
    Fenced {
        /// The transactional id.
        transactional_id: Arc<str>,
        /// The error in the answer.
        source: TransactionCause,
    },
    /// The producer can only be dropped.
    #[error("The transactional producer cannot continue: {0}")]
    Fatal(#[source] TransactionCause),
    /// The open transaction cannot be committed: abort it, then start another.
    #[error("The transaction must be aborted: {0}")]
    Abortable(#[source] TransactionCause),
    /// The outcome is unknown, because no answer arrived within `max.block.ms`: repeat the call.
    #[error("The coordinator did not decide in time: {0}")]
    Undecided(#[source] TransactionCause),
    /// The state of the producer does not allow the call.
    #[error(transparent)]
    InvalidState(#[from] InvalidTransactionState),
}

/// The cause of a failed transaction.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransactionCause {
    /// A request to a coordinator failed.
    #[error(transparent)]
    Client(Arc<ClientError>),
    /// Records were not stored.
    #[error(transparent)]
    Delivery(Arc<DeliveryError>),
}

impl From<ClientError> for TransactionCause {
    fn from(error: ClientError) -> TransactionCause {
        TransactionCause::Client(Arc::new(error))
    }
}

/// A call in the wrong state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} is not allowed now: {state}")]
pub struct InvalidTransactionState {
    /// The refused call.
    pub call: &'static str,
    /// The producer's state.
    pub state: &'static str,
}

impl TransactionCause {
    /// The broker's error code, if there was one.
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            TransactionCause::Client(error) => error.error_code(),
            TransactionCause::Delivery(error) => error.error_code(),
        }
    }
}

impl TransactionError {
    /// True if the producer can only be dropped.
    pub fn is_fatal(&self) -> bool {
        matches!(self, TransactionError::Fenced { .. } | TransactionError::Fatal(_))
    }

    /// True if another producer, or the transaction's timeout, has fenced this one.
    pub fn is_fenced(&self) -> bool {
        matches!(self, TransactionError::Fenced { .. })
    }

    /// True if the transaction must be aborted, after which the producer can continue.
    pub fn is_abortable(&self) -> bool {
        matches!(self, TransactionError::Abortable(_))
    }

    /// True if the same call should be repeated.
    pub fn is_retriable(&self) -> bool {
        matches!(self, TransactionError::Undecided(_))
    }

    /// The broker's error code, if there was one.
    pub fn error_code(&self) -> Option<ErrorCode> {
        match self {
            TransactionError::Fenced { source, .. } => source.error_code(),
            TransactionError::Fatal(cause)
            | TransactionError::Abortable(cause)
            | TransactionError::Undecided(cause) => cause.error_code(),
            TransactionError::InvalidState(_) => None,
        }
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransactionResult {
    Commit,
    Abort,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not registered with the coordinator yet.
    New,
    /// Registered, without an open transaction.
    Ready,
    Open,
    Ending(TransactionResult),
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::New => "init_transactions has not succeeded yet",
            Phase::Ready => "no transaction is open",
            Phase::Open => "a transaction is open",
            Phase::Ending(TransactionResult::Commit) => {
                "commit_transaction has to be repeated until it is decided"
            }
            Phase::Ending(TransactionResult::Abort) => {
                "abort_transaction has to be repeated until it is decided"
            }
        }
    }
}

/// The steps to end a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EndSteps {
    /// True if the coordinator may know the transaction, so that EndTxn is needed.
    pub(super) tells_coordinator: bool,
    /// True if the producer needs another epoch that EndTxn does not provide.
    pub(super) bumps_epoch: bool,
}

/// The transaction state of a producer.
#[derive(Debug)]
pub(super) struct Transaction {
    transactional_id: Arc<str>,
    phase: Phase,
    /// Why the open transaction cannot be committed, or the producer cannot continue.
    failure: Option<Arc<TransactionError>>,
    /// True if partitions join implicitly.
    implicit: bool,
    /// True if the coordinator may know the open transaction.
    started: bool,
    /// True if sequences have gaps that only another epoch closes.
    needs_epoch: bool,
    /// The unregistered partitions, and true if a registration is in flight.
    unregistered: Vec<usize>,
    registering: bool,
}

impl Transaction {
    pub(super) fn new(transactional_id: Arc<str>) -> Transaction {
        Transaction {
            transactional_id,
            phase: Phase::New,
            failure: None,
            implicit: false,
            started: false,
            needs_epoch: false,
            unregistered: Vec::new(),
            registering: false,
        }
    }

    /// True if partitions join with their first batch: `transaction.version` is 2.
    pub(super) fn is_implicit(&self) -> bool {
        self.implicit
    }

    /// Fails unless the producer may be initialised.
    pub(super) fn check_new(&self) -> Result<(), TransactionError> {
        self.check_alive()?;
        match self.phase {
            Phase::New => Ok(()),
            _ => Err(self.invalid("init_transactions")),
        }
    }

    /// Notes that the coordinator has registered the producer.
    pub(super) fn initialised(&mut self, implicit: bool) {
        self.phase = Phase::Ready;
        self.implicit = implicit;
    }

    pub(super) fn begin(&mut self) -> Result<(), TransactionError> {
        self.check_alive()?;
        if self.phase != Phase::Ready {
            return Err(self.invalid("begin_transaction"));
        }
        self.phase = Phase::Open;
        Ok(())
    }

    /// Fails unless the open transaction accepts records.
    pub(super) fn check_open(&self, call: &'static str) -> Result<(), Arc<TransactionError>> {
        match &self.failure {
            Some(failure) => Err(Arc::clone(failure)),
            None if self.phase == Phase::Open => Ok(()),
            None => Err(Arc::new(self.invalid(call))),
        }
    }

    /// Fails unless offsets may join the transaction.
    pub(super) fn add_offsets(&mut self) -> Result<(), TransactionError> {
        self.check_open("send_offsets_to_transaction").map_err(|error| (*error).clone())?;
        self.started |= self.implicit;
        Ok(())
    }

    /// True if batches may be sent: to a registered partition, or without registration.
    pub(super) fn may_produce(&self, registered: bool) -> bool {
        self.failure.is_none()
            && matches!(self.phase, Phase::Open | Phase::Ending(TransactionResult::Commit))
            && (self.implicit || registered)
    }

    /// True if a failed batch may be sent again.
    pub(super) fn may_retry(&self) -> bool {
        self.may_produce(true)
    }

    /// Notes a partition's first batch in the transaction. Returns true if the partition must be registered
    /// first.
    pub(super) fn joined(&mut self, partition: usize) -> bool {
        if self.implicit {
            self.started = true;
        } else {
            self.unregistered.push(partition);
        }
        !self.implicit
    }

    /// Takes the partitions to register. [`Transaction::registered`] or [`Transaction::not_registered`]
    /// completes the registration.
    pub(super) fn take_unregistered(&mut self) -> Vec<usize> {
        let taken = std::mem::take(&mut self.unregistered);
        self.registering = !taken.is_empty();
        taken
    }

    /// Notes that the coordinator has added partitions, or a group's offsets, to the transaction.
    pub(super) fn registered(&mut self) {
        self.registering = false;
        self.started = true;
    }

    /// True if a registration is in flight. The transaction must not end before its answer.
    pub(super) fn is_registering(&self) -> bool {
        self.registering
    }

    /// Starts ending the transaction, or continues to end it.
    pub(super) fn end(&mut self, end: TransactionResult) -> Result<(), TransactionError> {
        self.check_alive()?;
        let call = match end {
            TransactionResult::Commit => "commit_transaction",
            TransactionResult::Abort => "abort_transaction",
        };
        match self.phase {
            Phase::Open if end == TransactionResult::Commit => self.check_no_failure()?,
            Phase::Open => {}
            Phase::Ending(under_way) if under_way == end => {}
            _ => return Err(self.invalid(call)),
        }
        self.phase = Phase::Ending(end);
        if end == TransactionResult::Abort {
            self.unregistered.clear();
        }
        Ok(())
    }

    /// Notes that all batches have completed. Fails, and leaves the transaction open for an abort, if it
    /// cannot be committed.
    pub(super) fn flushed(&mut self) -> Result<EndSteps, TransactionError> {
        self.check_alive()?;
        if self.phase == Phase::Ending(TransactionResult::Commit)
            && let Err(failure) = self.check_no_failure()
        {
            self.phase = Phase::Open;
            return Err(failure);
        }
        let bumps_epoch = self.needs_epoch && !(self.implicit && self.started);
        Ok(EndSteps { tells_coordinator: self.started, bumps_epoch })
    }

    /// Notes that the coordinator has ended the transaction.
    pub(super) fn coordinator_ended(&mut self) {
        self.started = false;
    }

    /// Notes that the transaction has ended, and the producer has its next epoch.
    pub(super) fn ended(&mut self, implicit: bool) {
        self.phase = Phase::Ready;
        self.failure = None;
        self.started = false;
        self.needs_epoch = false;
        self.implicit = implicit;
    }

    /// Handles a final error of the coordinator, or a missing answer.
    pub(super) fn refused(&mut self, error: ClientError) -> TransactionError {
        if error.is_retriable() {
            // The coordinator may have added partitions unknown to the producer: only a new epoch resolves
            // that.
            self.needs_epoch |= !self.implicit && self.phase == Phase::Open;
            return TransactionError::Undecided(error.into());
        }
        // The coordinator has forgotten the epoch of the producer.
        self.needs_epoch |= !self.implicit && error.error_code() == Some(ErrorCode::UnknownProducerId);
        let failure = match self.judge(error.into()) {
            TransactionError::Abortable(cause) if self.phase == Phase::New => TransactionError::Fatal(cause),
            failure => failure,
        };
        if failure.is_abortable() && matches!(self.phase, Phase::Ending(_)) {
            self.phase = Phase::Open;
            self.needs_epoch |= !self.implicit;
        }
        self.fail(failure.clone());
        failure
    }

    /// Notes that partitions could not be registered, permanently or within the caller's time: no batch can
    /// be sent to them.
    pub(super) fn not_registered(&mut self, error: ClientError) {
        self.registering = false;
        self.needs_epoch |= error.is_retriable();
        let failure = match error.is_retriable() {
            true => TransactionError::Abortable(error.into()),
            false => self.judge(error.into()),
        };
        self.fail(failure);
    }

    /// Notes a failed batch of the transaction. With `was_sent`, the broker may have used its sequence
    /// numbers.
    pub(super) fn batch_failed(&mut self, error: &DeliveryError, was_sent: bool) {
        self.needs_epoch |= was_sent;
        let cause = TransactionCause::Delivery(Arc::new(error.clone()));
        let failure = match cause.error_code() {
            // The leader has a newer epoch. EndTxn decides if this producer is fenced.
            Some(ErrorCode::InvalidProducerEpoch) => TransactionError::Abortable(cause),
            _ => self.judge(cause),
        };
        self.fail(failure);
    }

    /// Notes that a batch with a sequence was dropped.
    pub(super) fn lost_sequence(&mut self) {
        self.needs_epoch = true;
    }

    /// The effect of a final answer on the producer.
    fn judge(&self, cause: TransactionCause) -> TransactionError {
        let abortable = matches!(cause, TransactionCause::Delivery(_));
        match cause.error_code() {
            Some(ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch) => {
                let transactional_id = Arc::clone(&self.transactional_id);
                TransactionError::Fenced { transactional_id, source: cause }
            }
            Some(
                ErrorCode::ClusterAuthorizationFailed
                | ErrorCode::TransactionalIdAuthorizationFailed
                | ErrorCode::InvalidProducerIdMapping
                | ErrorCode::UnsupportedVersion
                | ErrorCode::UnsupportedForMessageFormat,
            ) => TransactionError::Fatal(cause),
            Some(
                ErrorCode::TransactionAbortable
                | ErrorCode::TopicAuthorizationFailed
                | ErrorCode::GroupAuthorizationFailed
                | ErrorCode::OperationNotAttempted
                | ErrorCode::FencedInstanceId
                | ErrorCode::UnknownMemberId
                | ErrorCode::UnknownProducerId
                | ErrorCode::IllegalGeneration
                | ErrorCode::RebalanceInProgress
                | ErrorCode::OffsetMetadataTooLarge,
            ) => TransactionError::Abortable(cause),
            _ if abortable => TransactionError::Abortable(cause),
            _ => TransactionError::Fatal(cause),
        }
    }

    /// Keeps the first failure, unless a later one is fatal.
    fn fail(&mut self, failure: TransactionError) {
        let worse = self.failure.as_ref().is_none_or(|known| failure.is_fatal() && !known.is_fatal());
        if worse {
            self.failure = Some(Arc::new(failure));
        }
    }

    /// True if waiting batches must be dropped, because the transaction cannot be committed.
    pub(super) fn drops_batches(&self) -> bool {
        self.failure.is_some() || self.phase == Phase::Ending(TransactionResult::Abort)
    }

    fn check_alive(&self) -> Result<(), TransactionError> {
        match &self.failure {
            Some(failure) if failure.is_fatal() => Err((**failure).clone()),
            _ => Ok(()),
        }
    }

    fn check_no_failure(&self) -> Result<(), TransactionError> {
        match &self.failure {
            Some(failure) => Err((**failure).clone()),
            None => Ok(()),
        }
    }

    fn invalid(&self, call: &'static str) -> TransactionError {
        InvalidTransactionState { call, state: self.phase.name() }.into()
    }
}

#[cfg(test)]
mod tests;
