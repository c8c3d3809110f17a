//! Requests that a broker refuses by itself: they are not for the controller.

use super::Refuse;
use crate::ErrorCode;
use crate::request::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use crate::request::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use crate::request::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use crate::request::*;

impl Refuse for WriteTxnMarkersRequest {
    fn refuse(&self, code: ErrorCode, _: Option<&str>, _: i16) -> WriteTxnMarkersResponse {
        let markers = self.markers.iter().map(|marker| WritableTxnMarkerResult {
            producer_id: marker.producer_id,
            topics: marker
                .topics
                .iter()
                .map(|topic| WritableTxnMarkerTopicResult {
                    name: topic.name.clone(),
                    partitions: topic
                        .partition_indexes
                        .iter()
                        .map(|index| WritableTxnMarkerPartitionResult {
                            partition_index: *index,
                            error_code: code.code(),
                        })
                        .collect(),
                })
                .collect(),
        });
        WriteTxnMarkersResponse { markers: markers.collect() }
    }
}

impl Refuse for AlterReplicaLogDirsRequest {
    fn refuse(&self, code: ErrorCode, _: Option<&str>, _: i16) -> AlterReplicaLogDirsResponse {
        let topics = self.dirs.iter().flat_map(|dir| &dir.topics);
        let results = topics.map(|topic| AlterReplicaLogDirTopicResult {
            topic_name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|index| AlterReplicaLogDirPartitionResult {
                    partition_index: *index,
                    error_code: code.code(),
                })
                .collect(),
        });
        AlterReplicaLogDirsResponse { results: results.collect(), ..Default::default() }
    }
}

impl Refuse for DescribeUserScramCredentialsRequest {
    /// An entry for each user, without its name.
    fn refuse(&self, code: ErrorCode, _: Option<&str>, _: i16) -> DescribeUserScramCredentialsResponse {
        let error_code = code.code();
        let refused =
            DescribeUserScramCredentialsResult { error_code, error_message: None, ..Default::default() };
        let results = vec![refused; self.users.as_ref().map_or(0, Vec::len)];
        DescribeUserScramCredentialsResponse {
            error_code,
            error_message: None,
            results,
            ..Default::default()
        }
    }
}

impl Refuse for DescribeClientQuotasRequest {
    fn refuse(&self, code: ErrorCode, _: Option<&str>, _: i16) -> DescribeClientQuotasResponse {
        DescribeClientQuotasResponse {
            error_code: code.code(),
            error_message: None,
            entries: None,
            ..Default::default()
        }
    }
}

impl Refuse for AddPartitionsToTxnRequest {
    /// That of brokers, from version 4 on, which has room for it.
    fn refuse(&self, code: ErrorCode, _: Option<&str>, _: i16) -> AddPartitionsToTxnResponse {
        AddPartitionsToTxnResponse { error_code: code.code(), ..Default::default() }
    }
}
