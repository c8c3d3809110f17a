//! A shard's answers about share groups.

use super::error::ShareGroupError;
use super::{Altered, DeletedOffsets, Initialization, Partitions};
use thalweg_shard::WriteError;
use thalweg_wire::request::ShareGroupHeartbeatResponse;
use thalweg_wire::request::share_group_describe_response::DescribedGroup;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ShareAnswer {
    /// To a heartbeat, with what the share coordinator is to do.
    Heartbeat(ShareGroupHeartbeatResponse, Option<Initialization>),
    /// The share partitions that are initialized.
    Initialized(Result<Partitions, WriteError>),
    /// Groups in detail.
    Described(Vec<DescribedGroup>),
    /// Offsets are to be set.
    Altered(Result<Altered, ShareGroupError>),
    /// Offsets are to be deleted.
    DeletedOffsets(Result<DeletedOffsets, ShareGroupError>),
    /// A group is to be deleted: these states go first.
    DeletedStates(Result<Partitions, ShareGroupError>),
    /// An outcome is written down.
    Noted(Result<(), WriteError>),
}

impl ShareAnswer {
    /// The answer to the same request when its write failed.
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
