//! The broker's interface to the transaction coordinator. This layer makes no decisions about transactions:
//! it passes requests to the shards of their ids, and gets producer ids for them.

use super::answer::{Producer, TransactionAnswer, VerificationResult};
use super::config::TransactionConfig;
use super::error::{NoProducerIds, TransactionError};
use super::metadata::TransactionPartitions;
use super::shard::{
    EndRequest, InitRequest, MarkerQueue, SharedState, TransactionFigures, TransactionFilter,
    TransactionShard, TransactionsView, TurnContext,
};
use futures_util::future::join;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::{
    CoordinatorLog, LoadFigures, RequestError, Shards, Ticket, Unavailability, partition_for,
};
use thalweg_wire::request::describe_transactions_response::TransactionState as DescribedTransaction;
use thalweg_wire::request::list_transactions_response::TransactionState as ListedTransaction;
use tokio::sync::Notify;

/// A producer's flags for two-phase commits (KIP-939).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TwoPhaseCommit {
    /// An external system ends the producer's transactions, without a time limit.
    pub begins: bool,
    /// The producer requests to continue a prepared transaction.
    pub keeps: bool,
}

/// The transaction coordinator of this broker: a function for each API, independent of versions, which `api`
/// handles; and functions for elections.
pub struct TransactionCoordinator {
    shards: Shards<TransactionShard>,
}

impl fmt::Debug for TransactionCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionCoordinator").field("shards", &self.shards).finish()
    }
}

impl TransactionCoordinator {
    /// A coordinator that leads no partition yet. Must be called within a tokio runtime.
    pub fn new(
        config: TransactionConfig,
        log: Arc<dyn CoordinatorLog>,
        cluster: Arc<dyn TransactionsView>,
        clock: Clock,
        disk: Disk,
    ) -> TransactionCoordinator {
        let (needing_ids, markers) = (Mutex::default(), Arc::default());
        let shared = SharedState { config: Arc::new(config), cluster, needing_ids, markers };
        TransactionCoordinator { shards: Shards::new(shared, log, clock, disk) }
    }

    /// The partition of `__transaction_state` that a transactional id belongs to.
    pub fn partition_for(&self, id: &str) -> PartitionIndex {
        let SharedState { config, cluster, .. } = self.shards.shared();
        partition_for(id, cluster.state_partition_count().unwrap_or(config.state_topic_partitions))
    }

    /// The partition for the id of a request, which may be empty.
    fn partition(&self, id: &str) -> Result<PartitionIndex, TransactionError> {
        if id.is_empty() { Err(TransactionError::EmptyId) } else { Ok(self.partition_for(id)) }
    }

    /// Markers waiting to be sent.
    pub(super) fn marker_queue(&self) -> &Arc<MarkerQueue> {
        &self.shards.shared().markers
    }

    /// Handles the election of this broker as leader of a partition of `__transaction_state`. The partition's
    /// ids are loaded in the background; until then their requests get a retriable error.
    pub fn on_elected(&self, partition: PartitionIndex, leader_epoch: i32) {
        self.shards.elected(partition, leader_epoch);
    }

    /// Handles the loss of leadership of a partition, or of this epoch: waiting requests are redirected.
    /// Without an epoch, the partition is deleted.
    pub fn on_resigned(&self, partition: PartitionIndex, leader_epoch: Option<i32>) {
        self.shards.resigned(partition, leader_epoch);
    }

    /// True if the ids of a partition are loaded.
    pub fn is_loaded(&self, partition: PartitionIndex) -> bool {
        self.shards.is_loaded(partition)
    }

    /// Runs due work in time, as long as the future is polled. `new_id` returns a new producer id.
    pub async fn run<I, F>(&self, new_id: I)
    where
        I: Fn() -> F,
        F: Future<Output = Result<i64, NoProducerIds>>,
    {
        let wanted = Notify::new();
        let keeping_time = async {
            loop {
                self.shards.sleep().await;
                if !self.shards.shared().needing_ids.lock().is_empty() {
                    wanted.notify_one();
                }
            }
        };
        // Aborts timed-out transactions whose producers have used up their epochs, each under a new producer
        // id. The next check repeats failures. The controller may be slow, so timers run separately.
        let aborting = async {
            loop {
                wanted.notified().await;
                let needing = std::mem::take(&mut *self.shards.shared().needing_ids.lock());
                for (cell, id) in needing {
                    match new_id().await {
                        Ok(new_id) => cell.turn(|shard, turn| shard.abort_timed_out(&id, Some(new_id), turn)),
                        Err(error) => {
                            tracing::warn!(transactional_id = &*id, %error, "Abort of a timed-out transaction waits for a producer id");
                        }
                    }
                }
            }
        };
        join(aborting, keeping_time).await;
    }

    /// Closes every shard when the broker stops.
    pub fn shutdown(&self) {
        self.shards.shutdown();
    }

    /// InitProducerId with a transactional id: the producer that may write under the id from now on.
    pub async fn init_producer_id<F>(
        &self,
        mut request: InitRequest,
        two_phase_commit: TwoPhaseCommit,
        new_id: impl FnOnce() -> F,
    ) -> Result<Producer, TransactionError>
    where
        F: Future<Output = Result<i64, NoProducerIds>>,
    {
        let (partition, config) = (self.partition(&request.id)?, &self.shards.shared().config);
        if two_phase_commit.begins && !config.two_phase_commit {
            return Err(TransactionError::TwoPhaseCommitDisabled);
        }
        if two_phase_commit.keeps {
            return Err(TransactionError::KeepsPrepared);
        }
        if two_phase_commit.begins {
            request.timeout_ms = i32::MAX;
        } else if !(1..=config.timeout_ms_max).contains(&request.timeout_ms) {
            return Err(TransactionError::InvalidTimeout);
        }
        let producer = self
            .request_with_id(partition, new_id, |shard, new_id, ticket, turn| {
                shard.init_producer_id(&request, new_id, ticket, turn);
            })
            .await?;
        tracing::debug!(
            transactional_id = request.id,
            producer_id = producer.id,
            producer_epoch = producer.epoch,
            "Initialized a producer"
        );
        Ok(producer)
    }

    /// AddPartitionsToTxn and AddOffsetsToTxn: adds these existing partitions to the transaction.
    pub async fn add_partitions(
        &self,
        id: &str,
        producer: Producer,
        partitions: &TransactionPartitions,
        client_version: i16,
    ) -> Result<(), TransactionError> {
        let answer = self.shards.request(self.partition(id)?, |shard, ticket, turn| {
            shard.add_partitions(id, producer, partitions, client_version, ticket, turn);
        });
        match answer.await? {
            TransactionAnswer::Added(result) => result,
            _ => Err(RequestError::WrongAnswer.into()),
        }
    }

    /// AddPartitionsToTxn that only verifies.
    pub async fn verify_partitions(
        &self,
        id: &str,
        producer: Producer,
        partitions: &TransactionPartitions,
    ) -> VerificationResult {
        let answer = self.shards.request(self.partition(id)?, |shard, ticket, _| {
            shard.verify_partitions(id, producer, partitions, ticket);
        });
        match answer.await? {
            TransactionAnswer::Verified(verified) => verified,
            _ => Err(RequestError::WrongAnswer.into()),
        }
    }

    /// EndTxn. Returns the producer with which the client continues, if the request version has it.
    pub async fn end_transaction<F>(
        &self,
        request: EndRequest,
        new_id: impl FnOnce() -> F,
    ) -> Result<Producer, TransactionError>
    where
        F: Future<Output = Result<i64, NoProducerIds>>,
    {
        self.request_with_id(self.partition(&request.id)?, new_id, |shard, new_id, ticket, turn| {
            shard.end_transaction(&request, new_id, ticket, turn);
        })
        .await
    }

    /// DescribeTransactions for one id.
    pub fn describe(&self, id: &str) -> DescribedTransaction {
        let described = self
            .partition(id)
            .and_then(|partition| Ok(self.shards.cell(partition)?.read(|shard| shard.describe(id))??));
        described.unwrap_or_else(|error| DescribedTransaction {
            transactional_id: id.to_owned(),
            error_code: error.code().code(),
            ..DescribedTransaction::default()
        })
    }

    /// ListTransactions, across the shards of this broker.
    pub fn list(&self, filter: &TransactionFilter) -> Result<Vec<ListedTransaction>, Unavailability> {
        let now = self.shards.now();
        let listed = self.shards.read_all(|shard| shard.list(filter, now))?;
        let listed: Result<Vec<_>, Unavailability> = listed.into_iter().collect();
        Ok(listed?.into_iter().flatten().collect())
    }

    /// The partitions of `__transaction_state` that this broker leads.
    pub fn load_figures(&self) -> LoadFigures {
        self.shards.load_figures()
    }

    /// Counts of the transactions that this broker coordinates.
    pub fn figures(&self) -> TransactionFigures {
        let now = self.shards.now();
        let mut figures = TransactionFigures::default();
        for cell in self.shards.all() {
            // A loading shard has no transactions yet.
            let _ = cell.peek(|shard| shard.count_into(&mut figures, now));
        }
        figures
    }

    /// A partition of `__consumer_offsets` as a partition of a transaction.
    pub fn offsets_partition(partition: PartitionIndex) -> TransactionPartitions {
        TransactionPartitions::from([(Arc::from(thalweg_metadata::topic_name::OFFSETS), partition)])
    }

    /// Passes a request to the shard of a partition, and repeats it with a new producer id if one is needed.
    async fn request_with_id<F>(
        &self,
        partition: PartitionIndex,
        new_id: impl FnOnce() -> F,
        request: impl Fn(&mut TransactionShard, Option<i64>, Ticket, TurnContext),
    ) -> Result<Producer, TransactionError>
    where
        F: Future<Output = Result<i64, NoProducerIds>>,
    {
        let request = &request;
        let attempt =
            |id| self.shards.request(partition, move |shard, ticket, turn| request(shard, id, ticket, turn));
        let mut answer = attempt(None).await?;
        if answer == TransactionAnswer::NeedsProducerId {
            answer = attempt(Some(new_id().await?)).await?;
        }
        match answer {
            TransactionAnswer::Producer(result) => result,
            _ => Err(RequestError::WrongAnswer.into()),
        }
    }
}
