//! InitProducerId (key 22), versions 0 to 5, and 6 if unstable versions are served: an id and an epoch for an
//! idempotent or a transactional producer.
//!
//! Without a transactional id, the answer is a new producer id. With a transactional id, the coordinator
//! decides (`thalweg_transactions`): the previous producer is fenced, and its open transaction is aborted
//! first. In version 3 a producer sends its id and epoch, to continue after an error (KIP-360); version 4
//! returns PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before. Version 6 begins a two-phase commit that
//! another system leads (KIP-939), if `transaction.two.phase.commit.enable` is on. As in Kafka, a prepared
//! transaction cannot be continued.

use super::Call;
use super::entry::{Api, ByResource, later};
use crate::authorization::Permissions;
use std::sync::Arc;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_transactions::{
    InitRequest, NoProducerIds, Producer, ProducerIds, TransactionCoordinator, TransactionError,
    TwoPhaseCommit,
};
use thalweg_wire::request::{InitProducerIdRequest, InitProducerIdResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(ApiKey::InitProducerId, 0..=5, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| handle(&b.producer_ids, &b.transactions, &c, r).await)
});

/// The first version with PRODUCER_FENCED.
const FENCED_FROM: i16 = 4;

/// Allocates a producer id and an epoch.
pub async fn handle(
    producer_ids: &ProducerIds,
    transactions: &TransactionCoordinator,
    call: &Call,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let client_id = call.peer.client_id.get().map(String::as_str);
    match producer(producer_ids, transactions, &call.permissions, client_id, request).await {
        Ok(Producer { id, epoch }) => {
            InitProducerIdResponse { producer_id: id, producer_epoch: epoch, ..Default::default() }
        }
        Err(error) => InitProducerIdResponse {
            error_code: super::fenced_before(FENCED_FROM, call.version, error).code(),
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        },
    }
}

async fn producer(
    producer_ids: &ProducerIds,
    transactions: &TransactionCoordinator,
    permissions: &Permissions,
    client_id: Option<&str>,
    request: InitProducerIdRequest,
) -> Result<Producer, ErrorCode> {
    authorize(permissions, &request)?;
    let expected = match (request.producer_id, request.producer_epoch) {
        (-1, -1) => None,
        (-1, _) | (_, -1) => return Err(ErrorCode::InvalidRequest),
        (id, epoch) => Some(Producer { id, epoch }),
    };
    let Some(id) = request.transactional_id else {
        // An idempotent producer that sends its id asks for a higher epoch. As in Kafka, the answer is a new
        // id instead.
        return Ok(Producer { id: producer_ids.next().await.map_err(NoProducerIds::code)?, epoch: 0 });
    };
    let timeout_ms = request.transaction_timeout_ms;
    let client_id = client_id.map(Arc::from);
    let begin = InitRequest { id, timeout_ms, expected, client_id };
    let two_phase_commit = TwoPhaseCommit { begins: request.enable2_pc, keeps: request.keep_prepared_txn };
    let begun = transactions.init_producer_id(begin, two_phase_commit, || producer_ids.next());
    begun.await.map_err(TransactionError::code)
}

/// A client that may write to any topic may use an idempotent producer.
fn authorize(permissions: &Permissions, request: &InitProducerIdRequest) -> Result<(), ErrorCode> {
    let Some(id) = &request.transactional_id else {
        let may = permissions.may_also_on_cluster(Operation::IdempotentWrite)
            || permissions.may_on_any(Operation::Write, ResourceType::Topic);
        return if may { Ok(()) } else { Err(ErrorCode::ClusterAuthorizationFailed) };
    };
    let may = |operation| permissions.may(operation, ResourceType::TransactionalId, id);
    match may(Operation::Write) && (!request.enable2_pc || may(Operation::TwoPhaseCommit)) {
        true => Ok(()),
        false => Err(ErrorCode::TransactionalIdAuthorizationFailed),
    }
}
