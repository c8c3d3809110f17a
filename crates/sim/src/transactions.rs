//! Clients of transactions: producers that write to several partitions and commit, abort or disappear, and a
//! reader of committed records. All behave like clients of transaction.version 2 (KIP-890).

use crate::chance::Chance;
use crate::clients::{AGAIN, Clients};
use crate::ledger::{Entry, Fate, Id, LEDGER, Transaction};
use crate::pace::Pace;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_client::{ClientError, Cluster, CoordinatorKind};
use thalweg_record::{BatchBuilder, BatchOptions, ProducerEpoch, ProducerId};
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::request::{EndTxnRequest, InitProducerIdRequest, ProduceRequest};
use thalweg_wire::{ErrorCode, Records, Request};

/// Time after which the coordinator aborts open transactions.
const TRANSACTION_TIMEOUT_MS: i32 = 10_000;
/// The newest version of Produce that identifies topics by name. Produce adds partitions to transactions
/// implicitly.
const PRODUCE_VERSION: i16 = 12;
/// EndTxn version whose answer has the epoch of the next transaction.
const END_VERSION: i16 = 5;

/// The producer was fenced, or its transaction has been aborted: it restarts.
struct LostTransaction;

struct TransactionalProducer {
    clients: Clients,
    cluster: Cluster,
    name: String,
    producer_id: i64,
    epoch: i16,
    pace: Pace,
    /// Sequence of the next record of each partition.
    sequences: BTreeMap<i32, i32>,
}

impl Clients {
    /// Runs one transaction after the other.
    pub(crate) async fn transact(self, id: u32, pace: Pace) {
        let mut chance = Chance::new(self.seed, 3000 + u64::from(id));
        let name = format!("transactional-{id}");
        let cluster = self.cluster(&name).await;
        let sequences = BTreeMap::new();
        let clients = self.clone();
        let mut producer =
            TransactionalProducer { clients, cluster, name, producer_id: -1, epoch: -1, pace, sequences };
        producer.begin().await;
        let mut number = 0;
        while !self.ending.load(Ordering::SeqCst) {
            if producer.transaction((id, number), &mut chance).await.is_err() || chance.one_in(8) {
                producer.begin().await;
            }
            number += 1;
            tokio::time::sleep(Duration::from_millis(chance.below(300))).await;
        }
        // Aborts the open transaction.
        producer.begin().await;
        self.producing.fetch_sub(1, Ordering::SeqCst);
    }

    /// Reads committed records.
    pub(crate) async fn audit(self) {
        let history = &self.history;
        self.read("auditor", LEDGER, true, |chunk, buffer, next| {
            let partition = chunk.at.partition;
            chunk.for_each(buffer, |record| {
                let wrong = history.with(|known| known.ledger.read(partition, record.offset.0, record.value));
                wrong.into_iter().for_each(|what| history.violation(what));
                ControlFlow::Continue(())
            })?;
            // Including markers and aborted records.
            *next = chunk.next.0;
            history.with(|known| known.ledger.positions.insert(partition, *next));
            Ok(())
        })
        .await;
    }
}

impl TransactionalProducer {
    async fn ask_coordinator<R: Request>(
        &self,
        request: &R,
        version: Option<i16>,
    ) -> Result<R::Response, ClientError> {
        let coordinator = self.cluster.coordinator(CoordinatorKind::Transaction, &self.name).await?;
        match version {
            Some(version) => coordinator.send_at(request, version).await,
            None => coordinator.send(request).await,
        }
    }

    /// Starts under its id like a restarted process, which aborts the open transaction.
    async fn begin(&mut self) {
        let request = InitProducerIdRequest {
            transactional_id: Some(self.name.clone()),
            transaction_timeout_ms: TRANSACTION_TIMEOUT_MS,
            ..InitProducerIdRequest::default()
        };
        loop {
            match self.ask_coordinator(&request, None).await {
                Ok(answer) if answer.error_code == 0 => {
                    (self.producer_id, self.epoch) = (answer.producer_id, answer.producer_epoch);
                    self.sequences.clear();
                    return;
                }
                _ => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    async fn transaction(&mut self, id: Id, chance: &mut Chance) -> Result<(), LostTransaction> {
        let transaction = Transaction { fate: Fate::NotCommitted, records: BTreeMap::new() };
        self.with(id, |known| *known = transaction);
        for _ in 0..self.pace.batches(chance) {
            let partition = self.pace.partition(self.clients.partitions, chance);
            let count = chance.between(1, 3);
            let len = usize::try_from(chance.below(200)).unwrap_or(0);
            let first = self.with(id, |known| known.records.get(&partition).copied().unwrap_or(0));
            let values = (first..first + count).map(|number| Entry { id, number }.value(partition, len));
            self.produce(partition, values.collect()).await?;
            self.with(id, |known| *known.records.entry(partition).or_default() += count);
            tokio::time::sleep(Duration::from_millis(chance.below(50))).await;
        }
        if chance.one_in(10) {
            // As if the process ended here.
            return Err(LostTransaction);
        }
        let commits = self.pace.commits(chance);
        if commits {
            self.with(id, |known| known.fate = Fate::Unknown);
        }
        self.end(commits).await?;
        if commits {
            self.with(id, |known| known.fate = Fate::Committed);
        }
        Ok(())
    }

    fn with<T>(&self, id: Id, work: impl FnOnce(&mut Transaction) -> T) -> T {
        let none = || Transaction { fate: Fate::NotCommitted, records: BTreeMap::new() };
        self.clients.history.with(|known| work(known.ledger.transactions.entry(id).or_insert_with(none)))
    }

    /// Writes one batch, and retries until it is acknowledged.
    async fn produce(&mut self, partition: i32, values: Vec<Vec<u8>>) -> Result<(), LostTransaction> {
        let base_sequence = self.sequences.get(&partition).copied().unwrap_or(0);
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id: ProducerId(self.producer_id),
            producer_epoch: ProducerEpoch(self.epoch),
            base_sequence,
            transactional: true,
            ..BatchOptions::default()
        });
        for value in &values {
            builder.append(1_800_000_000_000, None, Some(value), &[]).expect("it fits");
        }
        let batch = builder.build();
        loop {
            let code = self.try_to_produce(partition, &batch).await;
            match code {
                Ok(Some(ErrorCode::None | ErrorCode::DuplicateSequenceNumber)) => break,
                Ok(Some(code)) if is_lost(code) => return Err(LostTransaction),
                Ok(Some(code)) if !code.is_retriable() => {
                    let (name, epoch) = (&self.name, self.epoch);
                    self.clients.history.violation(format!(
                        "{LEDGER}-{partition}: {name} in epoch {epoch}, sequence {base_sequence}: {code}"
                    ));
                    return Err(LostTransaction);
                }
                Ok(_) | Err(_) => {
                    tokio::time::sleep(AGAIN).await;
                    // The next attempt reports an unreachable cluster.
                    let _ = self.cluster.refresh(&[LEDGER.to_owned()], false).await;
                }
            }
        }
        self.sequences.insert(partition, base_sequence + i32::try_from(values.len()).unwrap_or(0));
        Ok(())
    }

    /// Sends a batch to the partition's leader; `None` without a known leader.
    async fn try_to_produce(&self, partition: i32, batch: &Bytes) -> Result<Option<ErrorCode>, ClientError> {
        let Some(leader) = self.cluster.metadata().leader(LEDGER, partition) else { return Ok(None) };
        let leader = self.cluster.broker(leader).await?;
        let data = PartitionProduceData { index: partition, records: Some(Records::Inline(batch.clone())) };
        let topic = TopicProduceData {
            name: LEDGER.to_owned(),
            partition_data: vec![data],
            ..TopicProduceData::default()
        };
        let request = ProduceRequest {
            transactional_id: Some(self.name.clone()),
            acks: -1,
            timeout_ms: 2000,
            topic_data: vec![topic],
        };
        let answer = leader.send_at(&request, PRODUCE_VERSION).await?;
        let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
        Ok(partition.and_then(|partition| ErrorCode::from_i16(partition.error_code)))
    }

    /// Ends the transaction, and retries until the request is answered.
    async fn end(&mut self, commits: bool) -> Result<(), LostTransaction> {
        let request = EndTxnRequest {
            transactional_id: self.name.clone(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed: commits,
        };
        loop {
            let answer = self.ask_coordinator(&request, Some(END_VERSION)).await;
            let code = answer.as_ref().ok().and_then(|answer| ErrorCode::from_i16(answer.error_code));
            match (code, answer) {
                (Some(ErrorCode::None), Ok(answer)) => {
                    (self.producer_id, self.epoch) = (answer.producer_id, answer.producer_epoch);
                    self.sequences.clear();
                    return Ok(());
                }
                (Some(code), _) if is_lost(code) => return Err(LostTransaction),
                _ => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

/// True if an answer means that the transaction has ended without its producer: it timed out, or another
/// producer has the id.
fn is_lost(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ProducerFenced
            | ErrorCode::InvalidProducerEpoch
            | ErrorCode::InvalidTxnState
            | ErrorCode::InvalidProducerIdMapping
            | ErrorCode::TransactionAbortable
    )
}
