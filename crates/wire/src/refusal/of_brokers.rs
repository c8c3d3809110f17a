//! Refusals of requests that brokers serve themselves, without the controller.

use super::Refuse;
use crate::ErrorCode;
use crate::request::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use crate::request::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use crate::request::find_coordinator_response::Coordinator;
use crate::request::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use crate::request::*;
use crate::request::{
    delete_share_group_state_response as deleted, initialize_share_group_state_response as initialized,
    read_share_group_state_response as states, read_share_group_state_summary_response as summaries,
    write_share_group_state_response as written,
};

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
    /// An entry for each user, without the user's name.
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

/// Requests for the state of share partitions: the same error for each.
macro_rules! of_share_partitions {
    ($($request:ident => $response:ident, $module:ident::$topic:ident);+ $(;)?) => {$(
        impl Refuse for $request {
            #[allow(clippy::needless_update, reason = "some results have nothing more")]
            fn refuse(&self, code: ErrorCode, message: Option<&str>, _: i16) -> $response {
                let results = self.topics.iter().map(|topic| {
                    let partitions = topic.partitions.iter().map(|asked| $module::PartitionResult {
                        partition: asked.partition,
                        error_code: code.code(),
                        error_message: message.map(str::to_owned),
                        ..Default::default()
                    });
                    $module::$topic { topic_id: topic.topic_id, partitions: partitions.collect() }
                });
                $response { results: results.collect() }
            }
        }
    )+};
}

of_share_partitions! {
    InitializeShareGroupStateRequest => InitializeShareGroupStateResponse, initialized::InitializeStateResult;
    ReadShareGroupStateRequest => ReadShareGroupStateResponse, states::ReadStateResult;
    WriteShareGroupStateRequest => WriteShareGroupStateResponse, written::WriteStateResult;
    DeleteShareGroupStateRequest => DeleteShareGroupStateResponse, deleted::DeleteStateResult;
    ReadShareGroupStateSummaryRequest => ReadShareGroupStateSummaryResponse, summaries::ReadStateSummaryResult;
}

/// An error for each key, from version 4 on.
impl Refuse for FindCoordinatorRequest {
    fn refuse(&self, code: ErrorCode, message: Option<&str>, version: i16) -> FindCoordinatorResponse {
        let (error_code, error_message) = (code.code(), message.map(str::to_owned));
        if version < 4 {
            return FindCoordinatorResponse {
                error_code,
                error_message: error_message.filter(|_| version >= 1),
                node_id: -1,
                port: -1,
                ..Default::default()
            };
        }
        let coordinators = self.coordinator_keys.iter().map(|key| Coordinator {
            key: key.clone(),
            node_id: -1,
            port: -1,
            error_code,
            error_message: error_message.clone(),
            ..Default::default()
        });
        FindCoordinatorResponse { coordinators: coordinators.collect(), ..Default::default() }
    }
}
