//! The APIs of transactions, without the forms of their versions: those are the business of `crate::api`.

use super::super::answer::{Answer, Producer};
use super::super::metadata::Partitions;
use super::super::shard::{EndRequest, InitRequest, TransactionFilter};
use super::TransactionCoordinator;
use std::sync::Arc;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::describe_transactions_response::TransactionState as Described;
use thalweg_wire::request::list_transactions_response::TransactionState as Listed;

impl TransactionCoordinator {
    /// InitProducerId with a transactional id: the producer that may write under it from now on. `two_phase_commit`
    /// says that another system ends the transactions, whatever time that takes.
    pub async fn init_producer_id<F>(
        &self,
        mut request: InitRequest,
        two_phase_commit: bool,
        new_id: impl FnOnce() -> F,
    ) -> Result<Producer, ErrorCode>
    where
        F: Future<Output = Result<i64, ErrorCode>>,
    {
        if request.id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        if two_phase_commit {
            if !self.config.two_phase_commit {
                return Err(ErrorCode::TransactionalIdAuthorizationFailed);
            }
            request.timeout_ms = i32::MAX;
        } else if !(1..=self.config.timeout_ms_max).contains(&request.timeout_ms) {
            return Err(ErrorCode::InvalidTransactionTimeout);
        }
        let producer = self
            .ask_with_id(&request.id, new_id, |shard, new_id, ticket, turn| {
                shard.init_producer_id(&request, new_id, ticket, turn);
            })
            .await?;
        tracing::debug!(
            transactional_id = request.id,
            producer_id = producer.id,
            producer_epoch = producer.epoch,
            "A producer begins"
        );
        Ok(producer)
    }

    /// AddPartitionsToTxn and AddOffsetsToTxn: the transaction writes to these partitions, which exist.
    pub async fn add_partitions(
        &self,
        id: &str,
        producer: Producer,
        partitions: &Partitions,
        client_version: i16,
    ) -> Result<(), ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let asked = self.ask(id, |shard, ticket, turn| {
            shard.add_partitions(id, producer, partitions, client_version, ticket, turn);
        });
        match asked.await? {
            Answer::Added(result) => result,
            Answer::Producer(_) | Answer::NeedsProducerId => Err(ErrorCode::UnknownServerError),
        }
    }

    /// AddPartitionsToTxn that only asks: an answer for each partition, in their order, or one for all.
    pub fn verify_partitions(
        &self,
        id: &str,
        producer: Producer,
        partitions: &Partitions,
    ) -> Result<Vec<ErrorCode>, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        self.cell(id)?.read(|shard| shard.verify_partitions(id, producer, partitions.iter()))?
    }

    /// EndTxn. The producer with which the client goes on is told where its version wants to know it.
    pub async fn end_transaction<F>(
        &self,
        request: EndRequest,
        new_id: impl FnOnce() -> F,
    ) -> Result<Producer, ErrorCode>
    where
        F: Future<Output = Result<i64, ErrorCode>>,
    {
        if request.id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        self.ask_with_id(&request.id, new_id, |shard, new_id, ticket, turn| {
            shard.end_transaction(&request, new_id, ticket, turn);
        })
        .await
    }

    /// DescribeTransactions, one id.
    pub fn describe(&self, id: &str) -> Described {
        let described = if id.is_empty() {
            Err(ErrorCode::InvalidRequest)
        } else {
            self.cell(id).and_then(|cell| cell.read(|shard| shard.describe(id)))
        };
        described.unwrap_or_else(|error| Described {
            transactional_id: id.to_owned(),
            error_code: error.code(),
            ..Described::default()
        })
    }

    /// ListTransactions, across the shards of this broker.
    pub fn list(&self, filter: &TransactionFilter) -> Result<Vec<Listed>, ErrorCode> {
        let now = self.surroundings.turn().now;
        let mut listed = Vec::new();
        for cell in self.all_cells() {
            match cell.read(|shard| shard.list(filter, now)) {
                Ok(ids) => listed.extend(ids),
                // The ids of that partition are listed elsewhere.
                Err(ErrorCode::NotCoordinator) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }

    /// The partition of `__consumer_offsets`, as one that a transaction writes to.
    pub fn offsets_partition(partition: i32) -> Partitions {
        Partitions::from([(Arc::from(thalweg_metadata::topic_name::OFFSETS), partition)])
    }
}
