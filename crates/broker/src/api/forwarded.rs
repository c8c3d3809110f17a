//! APIs that the controller serves: this broker forwards their requests as they are, and answers with its answers.

use super::entry::{Api, Controller, Forwarded};
use super::forward::handle;
use std::ops::RangeInclusive;
use thalweg_wire::Refuse;
use thalweg_wire::request::*;

pub(super) const CREATE_TOPICS: Api = changes::<CreateTopicsRequest>(2..=7);
pub(super) const DELETE_TOPICS: Api = changes::<DeleteTopicsRequest>(1..=6);
pub(super) const CREATE_ACLS: Api = changes::<CreateAclsRequest>(1..=3);
pub(super) const DELETE_ACLS: Api = changes::<DeleteAclsRequest>(1..=3);
pub(super) const CREATE_PARTITIONS: Api = changes::<CreatePartitionsRequest>(0..=3);
pub(super) const ELECT_LEADERS: Api = changes::<ElectLeadersRequest>(0..=2);
pub(super) const ALTER_PARTITION_REASSIGNMENTS: Api = changes::<AlterPartitionReassignmentsRequest>(0..=1);
pub(super) const LIST_PARTITION_REASSIGNMENTS: Api = reads::<ListPartitionReassignmentsRequest>(0..=0);
pub(super) const ALTER_CLIENT_QUOTAS: Api = changes::<AlterClientQuotasRequest>(0..=1);
pub(super) const ALTER_USER_SCRAM_CREDENTIALS: Api = changes::<AlterUserScramCredentialsRequest>(0..=0);
pub(super) const DESCRIBE_QUORUM: Api = reads::<DescribeQuorumRequest>(0..=2);
pub(super) const UPDATE_FEATURES: Api = changes::<UpdateFeaturesRequest>(0..=2);
pub(super) const UNREGISTER_BROKER: Api = changes::<UnregisterBrokerRequest>(0..=0);
pub(super) const ADD_RAFT_VOTER: Api = changes::<AddRaftVoterRequest>(0..=1);
pub(super) const REMOVE_RAFT_VOTER: Api = changes::<RemoveRaftVoterRequest>(0..=0);

/// An API that changes the cluster.
const fn changes<R>(versions: RangeInclusive<i16>) -> Api
where
    R: Refuse + Send + 'static,
    R::Response: Send + 'static,
{
    Api::new(R::KEY, versions, Controller, handle::<R>).forwarded(Forwarded::Changes)
}

/// An API that reads what the controller alone knows.
const fn reads<R>(versions: RangeInclusive<i16>) -> Api
where
    R: Refuse + Send + 'static,
    R::Response: Send + 'static,
{
    Api::new(R::KEY, versions, Controller, handle::<R>).forwarded(Forwarded::Reads)
}
