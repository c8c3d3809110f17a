//! InitProducerId (key 22), versions 0 to 5: an id for an idempotent producer.
//!
//! Transactions are not served yet: a transactional id is refused with UNSUPPORTED_VERSION, which clients report as a
//! broker that lacks the feature, and the log says so.

use super::Call;
use crate::broker::Broker;
use crate::producer_ids;
use std::sync::Arc;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::{InitProducerIdRequest, InitProducerIdResponse};

/// Gives out an id with epoch 0. A producer that names an id of its own wants its epoch raised; without a
/// transactional id it gets a new id instead, as from Kafka.
pub async fn handle(
    broker: Arc<Broker>,
    _: Arc<Call>,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |error: ErrorCode| InitProducerIdResponse {
        error_code: error.code(),
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    match request.transactional_id {
        Some(id) if id.is_empty() => return refused(ErrorCode::InvalidRequest),
        Some(id) => {
            tracing::warn!(
                // As much of it as a line of the log should hold.
                transactional_id = format!("{id:.80}"),
                "Refused a transactional producer: transactions are not served yet"
            );
            return refused(ErrorCode::UnsupportedVersion);
        }
        None => {}
    }
    match producer_ids::next(&broker).await {
        Ok(producer_id) => InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() },
        Err(error) => refused(error),
    }
}
