//! The table of served APIs: who may use each, where it is decided, how many elements it may have, and which are forwarded.

use thalweg_security::acl::Operation;
use thalweg_wire::frame;
use thalweg_wire::request::EnvelopeRequest;
use thalweg_wire::{ApiKey, ErrorCode};

use crate::asker::Asker;
use crate::quorum::Claim;
use crate::requester::Requester;
use crate::state::{ApiError, Extent, State};

/// What the requester of an API must be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Nothing: everybody may ask.
    Everybody,
    /// An operation on the cluster.
    Cluster(Operation),
    /// Operations on what the request names: `state::authorization` checks them.
    Named,
}

/// The APIs, in the order of their keys, which is that of ApiVersions. Each says who may use it.
const SERVED: [(ApiKey, Access); 32] = {
    use Access::{Cluster, Everybody, Named};
    use Operation::{Alter, AlterConfigs, ClusterAction, Describe};
    [
        (ApiKey::Fetch, Cluster(ClusterAction)),
        (ApiKey::SaslHandshake, Everybody),
        (ApiKey::ApiVersions, Everybody),
        (ApiKey::CreateTopics, Named),
        (ApiKey::DeleteTopics, Named),
        (ApiKey::CreateAcls, Cluster(Alter)),
        (ApiKey::DeleteAcls, Cluster(Alter)),
        (ApiKey::AlterConfigs, Named),
        (ApiKey::SaslAuthenticate, Everybody),
        (ApiKey::CreatePartitions, Named),
        (ApiKey::CreateDelegationToken, Named),
        (ApiKey::RenewDelegationToken, Named),
        (ApiKey::ExpireDelegationToken, Named),
        (ApiKey::ElectLeaders, Cluster(Alter)),
        (ApiKey::IncrementalAlterConfigs, Named),
        (ApiKey::AlterPartitionReassignments, Cluster(Alter)),
        (ApiKey::ListPartitionReassignments, Cluster(Describe)),
        (ApiKey::AlterClientQuotas, Cluster(AlterConfigs)),
        (ApiKey::AlterUserScramCredentials, Cluster(Alter)),
        (ApiKey::DescribeQuorum, Cluster(Describe)),
        (ApiKey::AlterPartition, Cluster(ClusterAction)),
        (ApiKey::UpdateFeatures, Cluster(Alter)),
        (ApiKey::Envelope, Cluster(ClusterAction)),
        (ApiKey::FetchSnapshot, Cluster(ClusterAction)),
        // Unlike on a broker.
        (ApiKey::DescribeCluster, Cluster(Alter)),
        (ApiKey::BrokerRegistration, Cluster(ClusterAction)),
        (ApiKey::BrokerHeartbeat, Cluster(ClusterAction)),
        (ApiKey::UnregisterBroker, Cluster(Alter)),
        (ApiKey::AllocateProducerIds, Cluster(ClusterAction)),
        (ApiKey::AssignReplicasToDirs, Cluster(ClusterAction)),
        (ApiKey::AddRaftVoter, Cluster(Alter)),
        (ApiKey::RemoveRaftVoter, Cluster(Alter)),
    ]
};

/// Checks an asker against the table, as far as the cluster goes. An API that is not there may not be used.
pub(crate) fn authorize(api: ApiKey, state: &State, by: &Asker) -> Result<(), ApiError> {
    let access = SERVED.iter().find(|(served, _)| *served == api).map(|(_, access)| *access);
    match access {
        Some(Access::Everybody | Access::Named) => Ok(()),
        Some(Access::Cluster(operation)) if state.may_on_cluster(by, operation) => Ok(()),
        Some(Access::Cluster(_)) | None => Err(ApiError::plain(ErrorCode::ClusterAuthorizationFailed)),
    }
}

/// Whether the controller serves an API.
pub fn serves(api: ApiKey) -> bool {
    SERVED.iter().any(|(served, _)| *served == api)
}

/// The APIs, in the order of their keys.
pub(crate) fn served() -> impl Iterator<Item = ApiKey> {
    SERVED.into_iter().map(|(api, _)| api)
}

/// Where a request can be decided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// From any copy of the state.
    Anywhere,
    /// By the controller's task alone: it is about the log, or about sessions, of which no copy may differ.
    Task,
}

pub(super) fn place(api: ApiKey) -> Place {
    match api {
        ApiKey::CreateTopics
        | ApiKey::DeleteTopics
        | ApiKey::CreatePartitions
        | ApiKey::AlterConfigs
        | ApiKey::IncrementalAlterConfigs
        | ApiKey::ElectLeaders
        | ApiKey::AlterPartitionReassignments
        | ApiKey::ListPartitionReassignments
        | ApiKey::AlterClientQuotas
        | ApiKey::AlterPartition
        | ApiKey::AssignReplicasToDirs
        | ApiKey::AlterUserScramCredentials
        | ApiKey::CreateAcls
        | ApiKey::DeleteAcls => Place::Anywhere,
        _ => Place::Task,
    }
}

/// Elements that the arrays of one request may have in all. Clients' requests make a bounded number of records.
const ELEMENTS_MAX: usize = 1_000_000;
/// As [`ELEMENTS_MAX`], for requests of brokers whose records are as many as their elements.
const ELEMENTS_OF_BROKERS_MAX: usize = 100_000;
/// As [`ELEMENTS_MAX`], for requests served on the task itself: it decides nothing else meanwhile. A broker has fewer
/// directories, listeners and features.
const ELEMENTS_ON_TASK_MAX: usize = 10_000;
/// As [`ELEMENTS_MAX`], for the envelope of a request and its principal. Neither has an array.
pub(crate) const AROUND_MAX: usize = 1_000;

/// The most elements of a request of an API.
pub(super) fn elements_max(api: ApiKey) -> usize {
    match place(api) {
        Place::Task => ELEMENTS_ON_TASK_MAX,
        Place::Anywhere if matches!(api, ApiKey::AlterPartition | ApiKey::AssignReplicasToDirs) => {
            ELEMENTS_OF_BROKERS_MAX
        }
        Place::Anywhere => ELEMENTS_MAX,
    }
}

/// How many batches a decision may fill: those about a broker change all of its partitions.
pub(super) fn extent(api: ApiKey) -> Extent {
    match api {
        ApiKey::BrokerRegistration
        | ApiKey::BrokerHeartbeat
        | ApiKey::UnregisterBroker
        | ApiKey::AlterPartition
        | ApiKey::AssignReplicasToDirs => Extent::Several,
        _ => Extent::One,
    }
}

/// Whether the records of a request may use the room that is reserved on the disk: those that a broker needs to serve, and
/// those with which a full disk is freed. Settings may say anything: they get no more than a part of it.
pub(super) fn claim(api: ApiKey) -> Claim {
    match api {
        ApiKey::BrokerRegistration | ApiKey::BrokerHeartbeat | ApiKey::DeleteTopics => Claim::Urgent,
        ApiKey::AlterConfigs | ApiKey::IncrementalAlterConfigs => Claim::Limited,
        _ => Claim::Ordinary,
    }
}

/// Whether the content of an envelope may be forwarded, and for whom it is.
pub(crate) fn check_envelope(envelope: &EnvelopeRequest) -> Result<Requester, ErrorCode> {
    let client = Requester::of_envelope(envelope)?;
    let prefix = frame::peek_request(&envelope.request_data).map_err(|_| ErrorCode::InvalidRequest)?;
    match ApiKey::from_i16(prefix.api_key) {
        Some(
            ApiKey::CreateTopics
            | ApiKey::DeleteTopics
            | ApiKey::CreatePartitions
            | ApiKey::AlterConfigs
            | ApiKey::IncrementalAlterConfigs
            | ApiKey::ElectLeaders
            | ApiKey::AlterPartitionReassignments
            | ApiKey::ListPartitionReassignments
            | ApiKey::AlterClientQuotas
            | ApiKey::AlterUserScramCredentials
            | ApiKey::CreateAcls
            | ApiKey::DeleteAcls
            | ApiKey::CreateDelegationToken
            | ApiKey::RenewDelegationToken
            | ApiKey::ExpireDelegationToken
            | ApiKey::UpdateFeatures
            | ApiKey::UnregisterBroker
            | ApiKey::DescribeQuorum
            | ApiKey::AddRaftVoter
            | ApiKey::RemoveRaftVoter,
        ) => Ok(client),
        _ => Err(ErrorCode::InvalidRequest),
    }
}
