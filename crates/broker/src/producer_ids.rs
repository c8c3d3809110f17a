//! Ids for idempotent producers: given out from blocks of a thousand that the controller allocates (KIP-730).

use crate::broker::Broker;
use thalweg_wire::request::AllocateProducerIdsRequest;
use thalweg_wire::{ErrorCode, Message};
use tokio::sync::Mutex;

/// What is left of the present block.
#[derive(Debug, Default)]
pub struct ProducerIds {
    block: Mutex<Block>,
}

#[derive(Debug, Default)]
struct Block {
    next: i64,
    end: i64,
}

/// A producer id that nobody had before.
pub async fn next(broker: &Broker) -> Result<i64, ErrorCode> {
    let mut block = broker.producer_ids.block.lock().await;
    if block.next >= block.end {
        *block = allocate(broker).await?;
    }
    let id = block.next;
    block.next += 1;
    Ok(id)
}

async fn allocate(broker: &Broker) -> Result<Block, ErrorCode> {
    let request = AllocateProducerIdsRequest { broker_id: broker.node_id, broker_epoch: broker.epoch() };
    match broker.controller.send(request, AllocateProducerIdsRequest::MAX_VERSION).await {
        Ok(response) if response.error_code == 0 && response.producer_id_len > 0 => Ok(Block {
            next: response.producer_id_start,
            end: response.producer_id_start + i64::from(response.producer_id_len),
        }),
        Ok(response) => {
            let error = ErrorCode::from_i16(response.error_code);
            tracing::warn!(?error, "The controller gave no producer ids");
            Err(ErrorCode::CoordinatorLoadInProgress)
        }
        Err(error) => {
            tracing::warn!(%error, "Producer ids could not be asked for");
            Err(ErrorCode::CoordinatorLoadInProgress)
        }
    }
}
