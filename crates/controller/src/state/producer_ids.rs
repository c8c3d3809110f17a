//! AllocateProducerIds: blocks of producer ids for brokers.

use thalweg_metadata::{BrokerId, VersionedRecord};
use thalweg_security::acl::Operation::ClusterAction;
use thalweg_wire::metadata::ProducerIdsRecord;
use thalweg_wire::request::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};
use thalweg_wire::{ErrorCode, MetadataRecord};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide};
use super::{ApiError, Moment, Outcome, State};

pub(super) const APIS: &[Api] = &[Api::new::<AllocateProducerIdsRequest>(Cluster(ClusterAction))];

impl Decide for AllocateProducerIdsRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.allocate_producer_ids(self)
    }
}

const BLOCK_SIZE: i32 = 1000;

impl State {
    pub fn allocate_producer_ids(
        &self,
        request: &AllocateProducerIdsRequest,
    ) -> Result<Outcome<AllocateProducerIdsResponse>, ApiError> {
        self.check_broker_epoch(BrokerId(request.broker_id), request.broker_epoch)?;
        let first = self.image.next_producer_id();
        let Some(next_producer_id) = first.checked_add(i64::from(BLOCK_SIZE)) else {
            let message = format!(
                "Exhausted all producerIds as the next block's end producerId {first} has exceeded the int64 type limit"
            );
            return Err(ApiError::new(ErrorCode::UnknownServerError, message));
        };
        let record = ProducerIdsRecord {
            broker_id: request.broker_id,
            broker_epoch: request.broker_epoch,
            next_producer_id,
        };
        let response = AllocateProducerIdsResponse {
            producer_id_start: first,
            producer_id_len: BLOCK_SIZE,
            ..Default::default()
        };
        Ok(Outcome::new(vec![VersionedRecord::new(MetadataRecord::ProducerIds(record), 0)], response))
    }
}
