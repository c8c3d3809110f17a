//! The coordinator's side of the fake peer: one transactional id, by either protocol, with faults set by a
//! test.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use thalweg_wire::request::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use thalweg_wire::request::api_versions_response::FinalizedFeatureKey;
use thalweg_wire::request::find_coordinator_response::Coordinator as Found;
use thalweg_wire::request::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message};

use crate::fake::{Answer, encode};

/// The peer's APIs for transactions, besides InitProducerId and Produce.
pub const SERVED: [ApiKey; 5] = [
    ApiKey::FindCoordinator,
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::TxnOffsetCommit,
    ApiKey::EndTxn,
];

/// A fault of a request.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    Refuse(ErrorCode),
    /// It is carried out, and the connection ends instead of an answer.
    CloseAfter,
}

#[derive(Debug, Default)]
pub struct Coordinator {
    /// Whether `transaction.version` is 2.
    pub implicit: bool,
    /// Troubles of the next requests of an API, one after another.
    pub troubles: VecDeque<(ApiKey, Trouble)>,
    /// The requests, in their order.
    pub requests: Vec<ApiKey>,
    /// Whether each transaction that ended was committed.
    pub ended: Vec<bool>,
    /// Offsets that were sent to transactions.
    pub offsets: Vec<(i32, i64)>,
    pub epoch: i16,
    is_open: bool,
    partitions: BTreeSet<i32>,
    /// The epoch and outcome of the last end, which may be asked for again.
    last_end: Option<(i16, bool)>,
}

const PRODUCER: i64 = 7;

impl Coordinator {
    pub fn features(&self) -> Vec<FinalizedFeatureKey> {
        let level = if self.implicit { 2 } else { 1 };
        let name = "transaction.version".to_owned();
        vec![FinalizedFeatureKey { name, max_version_level: level, min_version_level: level }]
    }

    pub fn init(&mut self, request: &InitProducerIdRequest, version: i16, id: i32) -> Answer {
        self.requests.push(ApiKey::InitProducerId);
        let (error_code, close) = self.trouble(ApiKey::InitProducerId);
        if error_code == 0 {
            assert!(request.producer_id == -1 || request.producer_id == PRODUCER);
            self.epoch += 1;
            if std::mem::take(&mut self.is_open) {
                self.ended.push(false);
                self.partitions.clear();
            }
        }
        let response = InitProducerIdResponse {
            error_code,
            producer_id: PRODUCER,
            producer_epoch: self.epoch,
            ..InitProducerIdResponse::default()
        };
        reply(&response, ApiKey::InitProducerId, version, id, close)
    }

    /// A batch of a transaction is of its epoch, and in a partition that takes part.
    pub fn check_produce(&mut self, request: &ProduceRequest, version: i16) {
        if request.transactional_id.is_none() {
            return;
        }
        for partition in request.topic_data.iter().flat_map(|topic| &topic.partition_data) {
            if self.implicit {
                assert!(version >= 12, "partitions join by themselves");
                self.is_open = true;
            } else {
                assert!(version < 12, "partitions are registered first");
                assert!(self.partitions.contains(&partition.index), "{} is not registered", partition.index);
            }
        }
    }

    pub fn answer(&mut self, key: ApiKey, d: &mut Decoder, version: i16, id: i32) -> Answer {
        self.requests.push(key);
        let (error_code, close) = self.trouble(key);
        match key {
            ApiKey::FindCoordinator => {
                let request = FindCoordinatorRequest::decode(d, version).expect("a request");
                let coordinators = request.coordinator_keys.into_iter().map(|key| {
                    let host = "fake".to_owned();
                    Found { key, node_id: 1, host, port: 1, error_code, ..Found::default() }
                });
                let coordinators = coordinators.collect();
                let response = FindCoordinatorResponse { coordinators, ..Default::default() };
                reply(&response, key, version, id, close)
            }
            ApiKey::AddPartitionsToTxn => {
                let request = AddPartitionsToTxnRequest::decode(d, version).expect("a request");
                let response = self.add_partitions(&request, error_code);
                reply(&response, key, version, id, close)
            }
            ApiKey::AddOffsetsToTxn => {
                self.is_open |= error_code == 0;
                let response = AddOffsetsToTxnResponse { error_code, ..Default::default() };
                reply(&response, key, version, id, close)
            }
            ApiKey::TxnOffsetCommit => {
                let request = TxnOffsetCommitRequest::decode(d, version).expect("a request");
                let response = self.commit_offsets(&request, error_code);
                reply(&response, key, version, id, close)
            }
            ApiKey::EndTxn => {
                let request = EndTxnRequest::decode(d, version).expect("a request");
                assert_eq!(version >= 5, self.implicit);
                let error_code = if error_code == 0 { self.end(&request) } else { error_code };
                let response = EndTxnResponse {
                    error_code,
                    producer_id: if version >= 5 { PRODUCER } else { -1 },
                    producer_epoch: if version >= 5 { self.epoch } else { -1 },
                    ..EndTxnResponse::default()
                };
                reply(&response, key, version, id, close)
            }
            other => panic!("{other:?} is not expected"),
        }
    }

    fn trouble(&mut self, key: ApiKey) -> (i16, bool) {
        match self.troubles.iter().position(|(of, _)| *of == key).and_then(|at| self.troubles.remove(at)) {
            None => (0, false),
            Some((_, Trouble::CloseAfter)) => (0, true),
            Some((_, Trouble::Refuse(error))) => (error.code(), false),
        }
    }

    fn add_partitions(
        &mut self,
        request: &AddPartitionsToTxnRequest,
        error_code: i16,
    ) -> AddPartitionsToTxnResponse {
        assert!(!self.implicit);
        let topics = request.v3_and_below_topics.iter().map(|topic| {
            if error_code == 0 {
                self.is_open = true;
                self.partitions.extend(&topic.partitions);
            }
            let results = topic.partitions.iter().map(|&partition_index| AddPartitionsToTxnPartitionResult {
                partition_index,
                partition_error_code: error_code,
            });
            AddPartitionsToTxnTopicResult {
                name: topic.name.clone(),
                results_by_partition: results.collect(),
            }
        });
        AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: topics.collect(),
            ..AddPartitionsToTxnResponse::default()
        }
    }

    fn commit_offsets(
        &mut self,
        request: &TxnOffsetCommitRequest,
        error_code: i16,
    ) -> TxnOffsetCommitResponse {
        assert!(self.implicit || self.is_open, "the group is added first");
        assert_eq!(request.producer_epoch, self.epoch);
        self.is_open |= error_code == 0;
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                if error_code == 0 {
                    self.offsets.push((partition.partition_index, partition.committed_offset));
                }
                let partition_index = partition.partition_index;
                TxnOffsetCommitResponsePartition { partition_index, error_code }
            });
            let partitions = partitions.collect();
            TxnOffsetCommitResponseTopic { name: topic.name.clone(), partitions }
        });
        TxnOffsetCommitResponse { topics: topics.collect(), ..TxnOffsetCommitResponse::default() }
    }

    fn end(&mut self, request: &EndTxnRequest) -> i16 {
        if self.last_end == Some((request.producer_epoch, request.committed)) && !self.is_open {
            return 0;
        }
        if request.producer_epoch != self.epoch {
            return ErrorCode::ProducerFenced.code();
        }
        let may_be_empty = self.implicit && !request.committed;
        if !(self.is_open || may_be_empty) {
            return ErrorCode::InvalidTxnState.code();
        }
        self.is_open = false;
        self.partitions.clear();
        self.ended.push(request.committed);
        self.last_end = Some((request.producer_epoch, request.committed));
        self.epoch += i16::from(self.implicit);
        0
    }
}

fn reply<M: Message>(message: &M, key: ApiKey, version: i16, id: i32, close: bool) -> Answer {
    if close { Answer::Close } else { encode(message, key, version, id, Duration::ZERO) }
}
