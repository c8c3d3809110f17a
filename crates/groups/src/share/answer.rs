//! A shard's answers about share groups.

use super::error::ShareGroupError;
use super::{AlteredOffsets, DeletedOffsets, Initialization, SharePartitions};
use thalweg_shard::WriteError;
use thalweg_wire::request::ShareGroupHeartbeatResponse;
use thalweg_wire::request::share_group_describe_response::DescribedGroup;

/// The answer to a request about a share group.
#[derive(Clone, Debug, PartialEq)]
pub enum ShareAnswer {
    /// The answer to a heartbeat, and the work of the share coordinator.
    Heartbeat(ShareGroupHeartbeatResponse, Option<Initialization>),
    /// The initialized share partitions.
    Initialized(Result<SharePartitions, WriteError>),
    Described(Vec<DescribedGroup>),
    /// The offsets to set.
    Altered(Result<AlteredOffsets, ShareGroupError>),
    /// The offsets to delete.
    DeletedOffsets(Result<DeletedOffsets, ShareGroupError>),
    /// The states to delete before the group.
    DeletedStates(Result<SharePartitions, ShareGroupError>),
    /// An outcome was recorded.
    Noted(Result<(), WriteError>),
}

impl ShareAnswer {
    /// The answer to the same request after its write failed.
    pub(in super::super) fn failed(self, error: WriteError) -> ShareAnswer {
        match self {
            ShareAnswer::Heartbeat(..) => {
                ShareAnswer::Heartbeat(ShareGroupError::from(error).response(), None)
            }
            ShareAnswer::Initialized(_) => ShareAnswer::Initialized(Err(error)),
            ShareAnswer::Described(groups) => {
                let failed = |group: DescribedGroup| DescribedGroup {
                    group_id: group.group_id,
                    error_code: error.code().code(),
                    ..DescribedGroup::default()
                };
                ShareAnswer::Described(groups.into_iter().map(failed).collect())
            }
            ShareAnswer::Altered(_) => ShareAnswer::Altered(Err(error.into())),
            ShareAnswer::DeletedOffsets(_) => ShareAnswer::DeletedOffsets(Err(error.into())),
            ShareAnswer::DeletedStates(_) => ShareAnswer::DeletedStates(Err(error.into())),
            ShareAnswer::Noted(_) => ShareAnswer::Noted(Err(error)),
        }
    }
}
