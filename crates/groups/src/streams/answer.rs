//! A shard's answers about streams groups.

use super::error::StreamsGroupError;
use thalweg_shard::WriteError;
use thalweg_wire::request::StreamsGroupHeartbeatResponse;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::streams_group_describe_response::DescribedGroup;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamsAnswer {
    /// To a heartbeat, with internal topics to be created.
    Heartbeat(Box<StreamsGroupHeartbeatResponse>, Vec<CreatableTopic>),
    /// Groups in detail.
    Described(Vec<DescribedGroup>),
}

impl StreamsAnswer {
    /// The refusal of a heartbeat.
    pub(in super::super) fn refused(error: &StreamsGroupError) -> StreamsAnswer {
        StreamsAnswer::Heartbeat(Box::new(error.response()), Vec::new())
    }

    /// The answer to the same request when its write failed.
    pub(in super::super) fn failed(self, error: WriteError) -> StreamsAnswer {
        match self {
            StreamsAnswer::Heartbeat(..) => StreamsAnswer::refused(&error.into()),
            StreamsAnswer::Described(groups) => {
                let failed = |group: DescribedGroup| DescribedGroup {
                    group_id: group.group_id,
                    error_code: error.code().code(),
                    ..DescribedGroup::default()
                };
                StreamsAnswer::Described(groups.into_iter().map(failed).collect())
            }
        }
    }
}
