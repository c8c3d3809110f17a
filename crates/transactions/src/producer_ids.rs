//! Ids for idempotent producers, from blocks of a thousand that the controller allocates (KIP-730).

use super::error::NoProducerIds;
use std::sync::Arc;
use thalweg_membership::RegisteredBroker;
use thalweg_wire::request::AllocateProducerIdsRequest;
use thalweg_wire::{ErrorCode, Message};
use tokio::sync::Mutex;

/// Producer ids that this broker may assign.
#[derive(Debug)]
pub struct ProducerIds {
    broker: Arc<RegisteredBroker>,
    /// The rest of the current block.
    block: Mutex<Block>,
}

#[derive(Debug, Default)]
struct Block {
    next: i64,
    end: i64,
}

impl ProducerIds {
    /// Starts without a block; the first request allocates one.
    pub fn new(broker: Arc<RegisteredBroker>) -> ProducerIds {
        ProducerIds { broker, block: Mutex::default() }
    }

    /// A new producer id.
    pub async fn next(&self) -> Result<i64, NoProducerIds> {
        let mut block = self.block.lock().await;
        if block.next >= block.end {
            *block = allocate(&self.broker).await?;
        }
        let id = block.next;
        block.next += 1;
        Ok(id)
    }
}

async fn allocate(broker: &RegisteredBroker) -> Result<Block, NoProducerIds> {
    let request = AllocateProducerIdsRequest { broker_id: broker.node_id.0, broker_epoch: broker.epoch() };
    match broker.controller.send(request, AllocateProducerIdsRequest::MAX_VERSION).await {
        Ok(response) if response.error_code == 0 && response.producer_id_len > 0 => Ok(Block {
            next: response.producer_id_start,
            end: response.producer_id_start + i64::from(response.producer_id_len),
        }),
        Ok(response) => {
            let error = ErrorCode::from_i16(response.error_code);
            tracing::warn!(?error, "Controller returned no producer ids");
            Err(NoProducerIds)
        }
        Err(error) => {
            tracing::warn!(%error, "Failed to request producer ids");
            Err(NoProducerIds)
        }
    }
}
