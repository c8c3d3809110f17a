//! APIs that the controller serves: this broker forwards their requests as they are, and answers with its answers.

use super::entry::Forwarding::{self, Changes, Reads};
use super::entry::{Api, Controller};
use super::forward::handle;
use std::ops::RangeInclusive;
use thalweg_wire::Refuse;
use thalweg_wire::request::*;

pub(super) const CREATE_TOPICS: Api = forwarded::<CreateTopicsRequest>(2..=7, Changes);
pub(super) const DELETE_TOPICS: Api = forwarded::<DeleteTopicsRequest>(1..=6, Changes);
pub(super) const CREATE_ACLS: Api = forwarded::<CreateAclsRequest>(1..=3, Changes);
pub(super) const DELETE_ACLS: Api = forwarded::<DeleteAclsRequest>(1..=3, Changes);
pub(super) const CREATE_PARTITIONS: Api = forwarded::<CreatePartitionsRequest>(0..=3, Changes);
pub(super) const ELECT_LEADERS: Api = forwarded::<ElectLeadersRequest>(0..=2, Changes);
pub(super) const ALTER_PARTITION_REASSIGNMENTS: Api =
    forwarded::<AlterPartitionReassignmentsRequest>(0..=1, Changes);
pub(super) const LIST_PARTITION_REASSIGNMENTS: Api =
    forwarded::<ListPartitionReassignmentsRequest>(0..=0, Reads);
pub(super) const ALTER_CLIENT_QUOTAS: Api = forwarded::<AlterClientQuotasRequest>(0..=1, Changes);
pub(super) const ALTER_USER_SCRAM_CREDENTIALS: Api =
    forwarded::<AlterUserScramCredentialsRequest>(0..=0, Changes);
pub(super) const DESCRIBE_QUORUM: Api = forwarded::<DescribeQuorumRequest>(0..=2, Reads);
pub(super) const UPDATE_FEATURES: Api = forwarded::<UpdateFeaturesRequest>(0..=2, Changes);
pub(super) const UNREGISTER_BROKER: Api = forwarded::<UnregisterBrokerRequest>(0..=0, Changes);
pub(super) const ADD_RAFT_VOTER: Api = forwarded::<AddRaftVoterRequest>(0..=1, Changes);
pub(super) const REMOVE_RAFT_VOTER: Api = forwarded::<RemoveRaftVoterRequest>(0..=0, Changes);

/// The entry of an API whose requests are all forwarded.
const fn forwarded<R>(versions: RangeInclusive<i16>, forwarding: Forwarding) -> Api
where
    R: Refuse + Send + 'static,
    R::Response: Send + 'static,
{
    Api::new(R::KEY, versions, Controller, handle::<R>).forwarded(forwarding)
}
