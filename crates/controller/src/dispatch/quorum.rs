//! The entries of the APIs that the metadata log answers.

use thalweg_security::acl::Operation;
use thalweg_wire::request::{DescribeQuorumRequest, FetchRequest, FetchSnapshotRequest};
use thalweg_wire::{ApiKey, Message};

use crate::state::Access::Cluster;
use crate::state::{Api, TaskRequest};

pub(super) const APIS: &[Api] = &[
    Api::undecided(
        ApiKey::Fetch,
        Cluster(Operation::ClusterAction),
        Some(|d, call| Ok(TaskRequest::Fetch { request: FetchRequest::decode(d, call.version)?, call })),
    ),
    Api::undecided(
        ApiKey::FetchSnapshot,
        Cluster(Operation::ClusterAction),
        Some(|d, call| {
            Ok(TaskRequest::FetchSnapshot { request: FetchSnapshotRequest::decode(d, call.version)?, call })
        }),
    ),
    Api::undecided(
        ApiKey::DescribeQuorum,
        Cluster(Operation::Describe),
        Some(|d, call| {
            Ok(TaskRequest::DescribeQuorum { request: DescribeQuorumRequest::decode(d, call.version)?, call })
        }),
    )
    .forwarded(),
];
