//! A shard's answers about streams groups.

use super::error::StreamsGroupError;
use thalweg_shard::WriteError;
use thalweg_wire::request::StreamsGroupHeartbeatResponse;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::streams_group_describe_response::DescribedGroup;

/// The answer to a request about a streams group.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamsAnswer {
    /// The answer to a heartbeat, and the internal topics to create.
    Heartbeat(Box<StreamsGroupHeartbeatResponse>, Vec<CreatableTopic>),
    Described(Vec<DescribedGroup>),
}

impl StreamsAnswer {
    /// The answer to a refused heartbeat.
    pub(in super::super) fn refused(error: &StreamsGroupError) -> StreamsAnswer {
        StreamsAnswer::Heartbeat(Box::new(error.response()), Vec::new())
    }

    /// The answer to the same request after its write failed.
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
