//! The calls of a transactional producer, and their requests to the coordinators of its transactional id and
//! of groups.
//!
//! Decisions are in the pure state (`transaction`); this module sends requests and reports their outcomes to
//! that state. A call that times out, or whose future is dropped, can be repeated and continues.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_dial::{ClientError, Connection, RefusedRequest, Retry};
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_wire::request::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use thalweg_wire::request::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use thalweg_wire::request::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest,
    TxnOffsetCommitRequest,
};
use thalweg_wire::{ErrorCode, Request};

use super::partition::Identity;
use super::report::drop_waiting;
use super::transaction::{
    IMPLICIT_FROM, InvalidTransactionState, Transaction, TransactionError, TransactionResult,
};
use super::{FlushGuard, Producer, ProducerState};
use crate::cluster::CoordinatorKind;
use crate::coordinator::{Coordinator, version_up_to};
use crate::offsets::{CommittedOffset, GroupMetadata, TopicPartition};

/// The last version of the older protocol: with later versions, the producer uses the protocol of KIP-890.
const END_EXPLICIT_UNTIL: i16 = 4;
const OFFSETS_EXPLICIT_UNTIL: i16 = 4;
/// Later versions of AddPartitionsToTxn are for brokers only.
const ADD_PARTITIONS_UNTIL: i16 = 3;
/// The first version of InitProducerId that bumps a producer's epoch (KIP-360).
const BUMPS_FROM: i16 = 3;

impl Producer {
    /// Takes over the transactional id: fences an earlier producer, and aborts its open transaction. Call
    /// once, before the first transaction, and again while the outcome is unknown.
    pub async fn init_transactions(&mut self) -> Result<(), TransactionError> {
        let transactions = self.transactions("init_transactions")?;
        transactions.with(|transaction| transaction.check_new())?;
        let identity = transactions.init_producer_id(None).await?;
        let implicit = transactions.speaks_implicitly().await;
        let mut accumulator = self.shared.accumulator.lock();
        accumulator.transaction_ended(Some(identity));
        transaction_of(&mut accumulator.transaction).initialised(implicit);
        Ok(())
    }

    /// Starts a transaction. Sends nothing: the coordinator learns of the transaction with the first record.
    pub fn begin_transaction(&mut self) -> Result<(), TransactionError> {
        self.transactions("begin_transaction")?.with(|transaction| transaction.begin())
    }

    /// Adds offsets of a consumer group to the open transaction, which commits them. `group` comes from
    /// [`Consumer::group_metadata`](crate::Consumer::group_metadata), so that a member that has lost its
    /// partitions cannot commit.
    pub async fn send_offsets_to_transaction(
        &mut self,
        offsets: &BTreeMap<TopicPartition, CommittedOffset>,
        group: &GroupMetadata,
    ) -> Result<(), TransactionError> {
        let transactions = self.transactions("send_offsets_to_transaction")?;
        transactions.with(|transaction| transaction.add_offsets())?;
        if offsets.is_empty() {
            return Ok(());
        }
        transactions.send_offsets(offsets, group).await
    }

    /// Sends waiting records, waits until all are stored, and commits the transaction. If a record was not
    /// stored, the transaction can only be aborted, and the error has the reason.
    pub async fn commit_transaction(&mut self) -> Result<(), TransactionError> {
        self.end_transaction(TransactionResult::Commit).await
    }

    /// Drops waiting records and aborts the transaction: read_committed consumers see none of its records.
    pub async fn abort_transaction(&mut self) -> Result<(), TransactionError> {
        self.end_transaction(TransactionResult::Abort).await
    }

    async fn end_transaction(&mut self, end: TransactionResult) -> Result<(), TransactionError> {
        let transactions = self.transactions("Ending a transaction")?;
        transactions.with(|transaction| transaction.end(end))?;
        self.shared.accumulator.lock().seal();
        drop_waiting(&self.shared);
        transactions.await_completion().await?;
        let ending = transactions.with(|transaction| transaction.flushed())?;
        if ending.tells_coordinator {
            let next = transactions.end_txn(end).await?;
            // Applied at once: if the future is dropped later, a repeated call must not end the transaction
            // with the old epoch.
            let mut accumulator = self.shared.accumulator.lock();
            accumulator.identity = next.or(accumulator.identity);
            transaction_of(&mut accumulator.transaction).coordinator_ended();
        }
        let mut identity = None;
        let implicit = transactions.speaks_implicitly().await;
        let was_implicit = transactions.with(|transaction| transaction.is_implicit());
        if ending.bumps_epoch || (implicit && !was_implicit) {
            identity = Some(transactions.init_producer_id(transactions.identity()).await?);
        }
        let mut accumulator = self.shared.accumulator.lock();
        accumulator.transaction_ended(identity);
        transaction_of(&mut accumulator.transaction).ended(implicit);
        Ok(())
    }

    fn transactions(&self, call: &'static str) -> Result<Transactions, TransactionError> {
        if self.shared.coordinator.is_none() {
            return Err(InvalidTransactionState { call, state: "transactional.id is not set" }.into());
        }
        let config = &self.shared.config;
        let retry = Retry::within(config.retry_backoff, config.max_block);
        Ok(Transactions { shared: Arc::clone(&self.shared), retry })
    }
}

fn transaction_of(transaction: &mut Option<Transaction>) -> &mut Transaction {
    transaction.as_mut().expect("a producer with a coordinator has transactions")
}

/// The coordinator requests of one call.
struct Transactions {
    shared: Arc<ProducerState>,
    retry: Retry,
}

impl Transactions {
    fn with<T>(&self, act: impl FnOnce(&mut Transaction) -> T) -> T {
        act(transaction_of(&mut self.shared.accumulator.lock().transaction))
    }

    fn coordinator(&self) -> &Coordinator {
        self.shared.coordinator.as_ref().expect("it is there: Producer::transactions has looked")
    }

    fn identity(&self) -> Option<Identity> {
        self.shared.accumulator.lock().identity
    }

    fn id(&self) -> String {
        self.coordinator().key().to_owned()
    }

    /// Waits until all batches have completed and no partition is being registered.
    async fn await_completion(&self) -> Result<(), TransactionError> {
        let _flushing = FlushGuard::begin(&self.shared);
        loop {
            let progress = self.shared.progress.notified();
            let is_complete = {
                let mut accumulator = self.shared.accumulator.lock();
                let registering = transaction_of(&mut accumulator.transaction).is_registering();
                accumulator.incomplete == 0 && !registering
            };
            if is_complete {
                return Ok(());
            }
            if tokio::time::timeout_at(self.retry.until, progress).await.is_err() {
                let what = format!("Records of transactional id {}", self.id());
                let message = Some("they are under way still".to_owned());
                let error_code = ErrorCode::RequestTimedOut;
                return Err(TransactionError::Undecided(
                    ClientError::from(RefusedRequest { what, error_code, message }).into(),
                ));
            }
        }
    }

    /// Sends a request to a coordinator, and lets the state judge a failure.
    async fn request<R: Request, T>(
        &self,
        coordinator: &Coordinator,
        request: impl FnMut(&Connection) -> Result<(R, i16), ClientError>,
        read: impl FnMut(R::Response, i16) -> Result<T, ClientError>,
    ) -> Result<T, TransactionError> {
        let answer = coordinator.request(self.retry, request, read).await;
        answer.map_err(|error| {
            let failure = self.with(|transaction| transaction.refused(error));
            drop_waiting(&self.shared);
            failure
        })
    }

    /// True if `transaction.version` lets partitions join transactions implicitly, according to the
    /// coordinator.
    async fn speaks_implicitly(&self) -> bool {
        let Ok(connection) = self.coordinator().connection().await else {
            return self.with(|transaction| transaction.is_implicit());
        };
        connection.versions().feature("transaction.version").is_some_and(|level| level >= IMPLICIT_FROM)
    }

    /// A new identity, or the next epoch of a current identity.
    async fn init_producer_id(&self, current: Option<Identity>) -> Result<Identity, TransactionError> {
        let none = Identity { id: ProducerId::NONE, epoch: ProducerEpoch::NONE };
        let Identity { id, epoch } = current.unwrap_or(none);
        let timeout = self.shared.config.transaction_timeout.as_millis();
        let request = InitProducerIdRequest {
            transactional_id: Some(self.id()),
            transaction_timeout_ms: i32::try_from(timeout).unwrap_or(i32::MAX),
            producer_id: id.0,
            producer_epoch: epoch.0,
            ..InitProducerIdRequest::default()
        };
        let make = |connection: &Connection| {
            let from = if current.is_some() { BUMPS_FROM } else { 0 };
            let version =
                connection.versions().pick_from::<InitProducerIdRequest>(connection.peer(), from)?;
            Ok((request.clone(), version))
        };
        self.request(self.coordinator(), make, |response, _| {
            RefusedRequest::check(response.error_code, None, || {
                format!("Producer of transactional id {}", self.id())
            })?;
            let (id, epoch) = (ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch));
            Ok(Identity { id, epoch })
        })
        .await
    }

    /// Ends the transaction. With the newer protocol, the answer has the identity of the next transaction.
    async fn end_txn(&self, end: TransactionResult) -> Result<Option<Identity>, TransactionError> {
        let Identity { id, epoch } = self.identity().expect("a transaction has begun");
        let limit = match self.with(|transaction| transaction.is_implicit()) {
            true => i16::MAX,
            false => END_EXPLICIT_UNTIL,
        };
        let request = EndTxnRequest {
            transactional_id: self.id(),
            producer_id: id.0,
            producer_epoch: epoch.0,
            committed: end == TransactionResult::Commit,
        };
        let make = |connection: &Connection| {
            Ok((request.clone(), version_up_to::<EndTxnRequest>(connection, limit)?))
        };
        self.request(self.coordinator(), make, |response, version| {
            let what = || format!("{end:?} of a transaction of transactional id {}", self.id());
            RefusedRequest::check(response.error_code, None, what)?;
            let (id, epoch) = (ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch));
            Ok((version > END_EXPLICIT_UNTIL).then_some(Identity { id, epoch }))
        })
        .await
    }

    async fn send_offsets(
        &self,
        offsets: &BTreeMap<TopicPartition, CommittedOffset>,
        group: &GroupMetadata,
    ) -> Result<(), TransactionError> {
        let identity = self.identity().expect("a transaction has begun");
        let implicit = self.with(|transaction| transaction.is_implicit());
        if !implicit {
            self.add_offsets(identity, &group.group).await?;
        }
        let limit = if implicit { i16::MAX } else { OFFSETS_EXPLICIT_UNTIL };
        let coordinator =
            Coordinator::new(self.shared.cluster.clone(), CoordinatorKind::Group, group.group.clone());
        let make = |connection: &Connection| {
            let version = version_up_to::<TxnOffsetCommitRequest>(connection, limit)?;
            // Before version 3 (KIP-447), the coordinator cannot fence a member that has lost its partitions.
            let member = Some(group).filter(|_| version >= 3);
            let request = TxnOffsetCommitRequest {
                transactional_id: self.id(),
                group_id: group.group.clone(),
                producer_id: identity.id.0,
                producer_epoch: identity.epoch.0,
                generation_id: member.map_or(-1, |member| member.generation),
                member_id: member.map(|member| member.member_id.clone()).unwrap_or_default(),
                group_instance_id: member.and_then(|member| member.group_instance_id.clone()),
                topics: offsets_by_topic(offsets, version),
            };
            Ok((request, version))
        };
        self.request(&coordinator, make, |response, _| {
            for topic in &response.topics {
                for partition in &topic.partitions {
                    RefusedRequest::check(partition.error_code, None, || {
                        let at = format!("{}-{}", topic.name, partition.partition_index);
                        format!("Commit of group {} in {at}, in a transaction", group.group)
                    })?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Registers the offsets of a group with the coordinator, as in the older protocol.
    async fn add_offsets(&self, identity: Identity, group: &str) -> Result<(), TransactionError> {
        let request = AddOffsetsToTxnRequest {
            transactional_id: self.id(),
            producer_id: identity.id.0,
            producer_epoch: identity.epoch.0,
            group_id: group.to_owned(),
        };
        let make = |connection: &Connection| {
            Ok((request.clone(), version_up_to::<AddOffsetsToTxnRequest>(connection, i16::MAX)?))
        };
        self.request(self.coordinator(), make, |response, _| {
            let what = || format!("Adding offsets of group {group} to a transaction");
            Ok(RefusedRequest::check(response.error_code, None, what)?)
        })
        .await?;
        self.with(|transaction| transaction.registered());
        Ok(())
    }

    /// Registers partitions with the coordinator, as in the older protocol.
    async fn add_partitions(&self, partitions: &[usize]) -> Result<(), ClientError> {
        let identity = self.identity().expect("a transaction has begun");
        let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        {
            let accumulator = self.shared.accumulator.lock();
            for &partition in partitions {
                let queue = &accumulator.partitions[partition];
                topics.entry(queue.topic.to_string()).or_default().push(queue.partition);
            }
        }
        let topics =
            topics.into_iter().map(|(name, partitions)| AddPartitionsToTxnTopic { name, partitions });
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id(),
            v3_and_below_producer_id: identity.id.0,
            v3_and_below_producer_epoch: identity.epoch.0,
            v3_and_below_topics: topics.collect(),
            ..AddPartitionsToTxnRequest::default()
        };
        let make = |connection: &Connection| {
            let version = version_up_to::<AddPartitionsToTxnRequest>(connection, ADD_PARTITIONS_UNTIL)?;
            Ok((request.clone(), version))
        };
        let coordinator = self.coordinator();
        coordinator
            .request(self.retry, make, |response, _| {
                let results = response.results_by_topic_v3_and_below.iter().flat_map(|topic| {
                    topic.results_by_partition.iter().map(move |partition| (&topic.name, partition))
                });
                // A skipped item only means that another item was refused.
                let (skipped, refused): (Vec<_>, Vec<_>) = results
                    .filter(|(_, partition)| partition.partition_error_code != 0)
                    .partition(|(_, partition)| {
                        partition.partition_error_code == ErrorCode::OperationNotAttempted.code()
                    });
                match refused.first().or(skipped.first()) {
                    None => Ok(()),
                    Some((topic, partition)) => {
                        let at = format!("{topic}-{}", partition.partition_index);
                        let what = || format!("Adding {at} to a transaction");
                        Ok(RefusedRequest::check(partition.partition_error_code, None, what)?)
                    }
                }
            })
            .await
    }
}

/// Registers partitions with the coordinator at their first batch of a transaction, until dropped. Idle with
/// the newer protocol.
pub(super) async fn register_partitions(shared: Arc<ProducerState>) {
    let registration = Arc::clone(&shared.accumulator.lock().registration);
    loop {
        registration.notified().await;
        let config = &shared.config;
        let retry = Retry::within(config.retry_backoff, config.max_block);
        let transactions = Transactions { shared: Arc::clone(&shared), retry };
        let partitions = transactions.with(|transaction| transaction.take_unregistered());
        if partitions.is_empty() {
            continue;
        }
        match transactions.add_partitions(&partitions).await {
            Ok(()) => {
                let mut accumulator = shared.accumulator.lock();
                accumulator.registered(&partitions);
                transaction_of(&mut accumulator.transaction).registered();
            }
            Err(error) => {
                transactions.with(|transaction| transaction.not_registered(error));
                drop_waiting(&shared);
            }
        }
        shared.progress.notify_waiters();
    }
}

fn offsets_by_topic(
    offsets: &BTreeMap<TopicPartition, CommittedOffset>,
    version: i16,
) -> Vec<TxnOffsetCommitRequestTopic> {
    let mut topics: Vec<TxnOffsetCommitRequestTopic> = Vec::new();
    for (at, committed) in offsets {
        if topics.last().is_none_or(|last| *last.name != *at.topic) {
            topics.push(TxnOffsetCommitRequestTopic { name: at.topic.to_string(), partitions: Vec::new() });
        }
        let partitions = &mut topics.last_mut().expect("it was just added").partitions;
        let leader_epoch = if version >= 2 { committed.leader_epoch.0 } else { -1 };
        partitions.push(TxnOffsetCommitRequestPartition {
            partition_index: at.partition,
            committed_offset: committed.offset.0,
            committed_leader_epoch: leader_epoch,
            committed_metadata: Some(committed.metadata.clone()),
        });
    }
    topics
}
