//! Frames into decisions: versions, decoding, and the encoding of answers and refusals.

mod about;
mod served;

use std::sync::Arc;

use bytes::Bytes;
use thalweg_security::quota::MutationQuota;
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::{
    AddRaftVoterRequest, AllocateProducerIdsRequest, AlterClientQuotasRequest, AlterConfigsRequest,
    AlterPartitionReassignmentsRequest, AlterPartitionRequest, AlterUserScramCredentialsRequest,
    ApiVersionsRequest, ApiVersionsResponse, AssignReplicasToDirsRequest, BrokerHeartbeatRequest,
    BrokerRegistrationRequest, CreateAclsRequest, CreateDelegationTokenRequest, CreatePartitionsRequest,
    CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteAclsRequest,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeClusterRequest, DescribeQuorumRequest,
    ElectLeadersRequest, ExpireDelegationTokenRequest, FetchRequest, FetchSnapshotRequest,
    IncrementalAlterConfigsRequest, ListPartitionReassignmentsRequest, RemoveRaftVoterRequest,
    RenewDelegationTokenRequest, SaslAuthenticateRequest, SaslHandshakeRequest, UnregisterBrokerRequest,
    UpdateFeaturesRequest,
};
use thalweg_wire::{ApiKey, DecodeError, Decoder, EncodeError, ErrorCode, Message, Refuse};

use about::{api_version, api_versions, describe_cluster};
#[cfg(test)]
pub(crate) use served::served;
pub use served::serves;
pub(crate) use served::{AROUND_MAX, authorize, check_envelope};
use served::{Place, claim, elements_max, extent, place};

use crate::asker::{Asker, Rulings};
use crate::quorum::Claim;
use crate::requester::Requester;
use crate::state::{ApiError, Batch, MutationCall, Now, Outcome, Spent, State, Unwritable};

/// Frames from this length on are read beside the workers, and decided beside the controller's task.
const LARGE: usize = 16 * 1024;

/// A frame was not answered.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    #[error("a request that cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("a response that cannot be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("API {api_key} is not one of a controller")]
    UnknownApi { api_key: i16 },
    #[error("{api:?} has no version {version} here")]
    UnsupportedVersion { api: ApiKey, version: i16 },
    #[error("the metadata log has no room: the disk is full, or too many files are open")]
    DiskFull,
    #[error("the controller has stopped")]
    Stopped,
}

/// A frame that was read.
pub(crate) enum Parsed {
    /// It is answered without asking anybody.
    Answered(Bytes),
    /// Only the controller's task can answer.
    Asked(Ask),
}

/// A pending decision: the records to write, and the frame to answer with once they are written.
pub(crate) struct Decision {
    pub batch: Batch,
    /// Whether the records may use the room that is reserved on the disk.
    pub claim: Claim,
    /// Why the records of the decision cannot be written; it is refused then.
    pub unwritable: Option<Unwritable>,
    pub answer: Result<Bytes, EncodeError>,
    /// What it uses of the client's quota of changes.
    pub spent: Option<Spent>,
    /// Who was allowed what, if that is to be logged or noted.
    pub rulings: Option<Rulings>,
}

/// A request that was read, waiting for the state that decides it. It may be decided more than once.
pub(crate) type Decide = Box<dyn Fn(&mut State, Now) -> Decision + Send>;

/// A request to the controller's task.
pub(crate) enum Ask {
    /// To decide.
    Decide {
        decide: Decide,
        /// Whether it takes long, and can be decided on a copy of the state.
        is_large: bool,
    },
    /// To serve the log, which needs the log.
    Fetch {
        request: FetchRequest,
        version: i16,
        correlation_id: i32,
        by: Arc<Asker>,
    },
    FetchSnapshot {
        request: FetchSnapshotRequest,
        version: i16,
        correlation_id: i32,
        by: Arc<Asker>,
    },
    DescribeQuorum {
        request: DescribeQuorumRequest,
        version: i16,
        correlation_id: i32,
        by: Arc<Asker>,
    },
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Ask::Decide { .. } => "Decide",
            Ask::Fetch { .. } => "Fetch",
            Ask::FetchSnapshot { .. } => "FetchSnapshot",
            Ask::DescribeQuorum { .. } => "DescribeQuorum",
        })
    }
}

/// Whether an API is served at a version.
pub(crate) fn check_version(api: ApiKey, version: i16) -> Result<(), HandleError> {
    let (min, max) = api.versions();
    if serves(api) && (min..=max).contains(&version) {
        return Ok(());
    }
    Err(HandleError::UnsupportedVersion { api, version })
}

/// The bytes of a response, without the length in front.
pub(crate) fn encode<M: Message>(
    response: &M,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
) -> Result<Bytes, HandleError> {
    Ok(encoded(response, api, version, correlation_id)?)
}

pub(crate) fn encoded<M: Message>(
    response: &M,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
) -> Result<Bytes, EncodeError> {
    let (frame, gaps) = frame::encode_response(response, api, version, correlation_id)?;
    debug_assert!(gaps.is_empty(), "a controller's records are in memory");
    Ok(frame.freeze().slice(LENGTH_LEN..))
}

/// Whether a request may take so long that it must not block a worker of the runtime.
pub(crate) fn is_large(frame: &Bytes) -> bool {
    frame.len() >= LARGE
}

/// Reads a frame. `notes_permissions` is of [`Witness`](crate::Witness).
pub(crate) fn parse(
    frame: Bytes,
    requester: &Requester,
    notes_permissions: bool,
) -> Result<Parsed, HandleError> {
    let prefix = frame::peek_request(&frame)?;
    let (version, correlation_id) = (prefix.api_version, prefix.correlation_id);
    let api = ApiKey::from_i16(prefix.api_key).filter(|api| serves(*api));
    let api = api.ok_or(HandleError::UnknownApi { api_key: prefix.api_key })?;
    if api == ApiKey::ApiVersions && check_version(api, version).is_err() {
        // The one request whose version a client cannot know: it is answered as version 0.
        let response = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            api_keys: vec![api_version(ApiKey::ApiVersions)],
            ..ApiVersionsResponse::default()
        };
        return encode(&response, api, 0, correlation_id).map(Parsed::Answered);
    }
    check_version(api, version)?;
    let is_large = is_large(&frame) && place(api) == Place::Anywhere;
    let mut d = Decoder::new(frame).with_elements_max(elements_max(api));
    let header = frame::decode_request_header(&mut d, api, version)?;
    let by = Asker::new(requester.clone(), api).noting_permissions(notes_permissions);
    let by = Arc::new(by.with_client_id(header.client_id));
    let call = Call { version, correlation_id, is_large, by: Arc::clone(&by) };
    let ask = match api {
        ApiKey::Fetch => {
            Ask::Fetch { request: FetchRequest::decode(&mut d, version)?, version, correlation_id, by }
        }
        ApiKey::FetchSnapshot => Ask::FetchSnapshot {
            request: FetchSnapshotRequest::decode(&mut d, version)?,
            version,
            correlation_id,
            by,
        },
        ApiKey::DescribeQuorum => Ask::DescribeQuorum {
            request: DescribeQuorumRequest::decode(&mut d, version)?,
            version,
            correlation_id,
            by,
        },
        _ => decide(api, &mut d, call)?,
    };
    Ok(Parsed::Asked(ask))
}

/// Properties of a request needed for its answer.
#[derive(Clone)]
struct Call {
    version: i16,
    correlation_id: i32,
    is_large: bool,
    by: Arc<Asker>,
}

/// Authentication ends before requests get here.
fn authenticated() -> ApiError {
    let message = "SaslAuthenticate request received after successful authentication";
    ApiError::new(ErrorCode::IllegalSaslState, message)
}

fn decide(api: ApiKey, d: &mut Decoder, call: Call) -> Result<Ask, HandleError> {
    let (version, by) = (call.version, Arc::clone(&call.by));
    match api {
        ApiKey::ApiVersions => plain(d, call, move |state, request: &ApiVersionsRequest, _| {
            Ok(Outcome::answer(api_versions(state, request, version)))
        }),
        ApiKey::SaslHandshake => plain(d, call, |_, _: &SaslHandshakeRequest, _| Err(authenticated())),
        ApiKey::SaslAuthenticate => plain(d, call, |_, _: &SaslAuthenticateRequest, _| Err(authenticated())),
        ApiKey::CreateTopics => {
            mutating(d, call, move |s, r: &CreateTopicsRequest, quota| s.create_topics_for(&by, r, quota))
        }
        ApiKey::DeleteTopics => mutating(d, call, move |s, r: &DeleteTopicsRequest, quota| {
            s.delete_topics_for(&by, r, version, quota)
        }),
        ApiKey::CreatePartitions => mutating(d, call, move |s, r: &CreatePartitionsRequest, quota| {
            s.create_partitions_for(&by, r, quota)
        }),
        ApiKey::AlterConfigs => {
            plain(d, call, move |s, r: &AlterConfigsRequest, _| s.alter_configs_for(&by, r))
        }
        ApiKey::CreateDelegationToken | ApiKey::RenewDelegationToken | ApiKey::ExpireDelegationToken => {
            decide_of_tokens(api, d, call)
        }
        ApiKey::CreateAcls => plain(d, call, |s, r: &CreateAclsRequest, _| s.create_acls(r)),
        ApiKey::DeleteAcls => plain(d, call, |s, r: &DeleteAclsRequest, _| s.delete_acls(r)),
        ApiKey::IncrementalAlterConfigs => plain(d, call, move |s, r: &IncrementalAlterConfigsRequest, _| {
            s.incremental_alter_configs_for(&by, r)
        }),
        ApiKey::ElectLeaders => plain(d, call, |s, r: &ElectLeadersRequest, _| s.elect_leaders(r)),
        ApiKey::AlterPartitionReassignments => {
            plain(d, call, |s, r: &AlterPartitionReassignmentsRequest, _| s.alter_partition_reassignments(r))
        }
        ApiKey::ListPartitionReassignments => {
            plain(d, call, |s, r: &ListPartitionReassignmentsRequest, _| {
                Ok(Outcome::answer(s.list_partition_reassignments(r)))
            })
        }
        ApiKey::AlterClientQuotas => {
            plain(d, call, |s, r: &AlterClientQuotasRequest, _| s.alter_client_quotas(r))
        }
        ApiKey::AlterPartition => {
            plain(d, call, move |s, r: &AlterPartitionRequest, _| s.alter_partition(r, version))
        }
        ApiKey::UpdateFeatures => {
            plain(d, call, move |s, r: &UpdateFeaturesRequest, _| s.update_features(r, version))
        }
        ApiKey::BrokerRegistration => {
            plain(d, call, |s, r: &BrokerRegistrationRequest, now| s.register_broker(r, now))
        }
        ApiKey::BrokerHeartbeat => {
            plain(d, call, |s, r: &BrokerHeartbeatRequest, now| s.broker_heartbeat(r, now))
        }
        ApiKey::UnregisterBroker => {
            plain(d, call, |s, r: &UnregisterBrokerRequest, _| s.unregister_broker(r))
        }
        ApiKey::AllocateProducerIds => {
            plain(d, call, |s, r: &AllocateProducerIdsRequest, _| s.allocate_producer_ids(r))
        }
        ApiKey::AssignReplicasToDirs => {
            plain(d, call, |s, r: &AssignReplicasToDirsRequest, _| s.assign_replicas_to_dirs(r))
        }
        ApiKey::AlterUserScramCredentials => {
            plain(d, call, |s, r: &AlterUserScramCredentialsRequest, _| s.alter_user_scram_credentials(r))
        }
        ApiKey::AddRaftVoter | ApiKey::RemoveRaftVoter => decide_of_voters(api, d, call),
        ApiKey::DescribeCluster => plain(d, call, |s, r: &DescribeClusterRequest, _| describe_cluster(s, r)),
        other => Err(HandleError::UnknownApi { api_key: other as i16 }),
    }
}

/// The requests which change the quorum, all refused.
fn decide_of_voters(api: ApiKey, d: &mut Decoder, call: Call) -> Result<Ask, HandleError> {
    match api {
        ApiKey::AddRaftVoter => {
            plain(d, call, |s, r: &AddRaftVoterRequest, _| Err(only_voter(s, r.cluster_id.as_deref())))
        }
        _ => plain(d, call, |s, r: &RemoveRaftVoterRequest, _| Err(only_voter(s, r.cluster_id.as_deref()))),
    }
}

/// The requests which change delegation tokens, all for the one who asks.
fn decide_of_tokens(api: ApiKey, d: &mut Decoder, call: Call) -> Result<Ask, HandleError> {
    let (version, by) = (call.version, Arc::clone(&call.by));
    match api {
        ApiKey::CreateDelegationToken => plain(d, call, move |s, r: &CreateDelegationTokenRequest, now| {
            Ok(s.create_delegation_token(&by, r, version, now))
        }),
        ApiKey::RenewDelegationToken => plain(d, call, move |s, r: &RenewDelegationTokenRequest, now| {
            Ok(s.renew_delegation_token(&by, r, now))
        }),
        _ => plain(d, call, move |s, r: &ExpireDelegationTokenRequest, now| {
            Ok(s.expire_delegation_token(&by, r, now))
        }),
    }
}

/// Why voters stay as they are: the request is for another cluster, or because the quorum has a fixed single voter.
fn only_voter(state: &State, cluster_id: Option<&str>) -> ApiError {
    let own = &state.cluster_id;
    if let Some(other) = cluster_id.filter(|id| id != own) {
        let message = format!("The given id \"{other}\" doesn't match the cluster id \"{own}\"");
        return ApiError::new(ErrorCode::InconsistentClusterId, message);
    }
    let message = "The embedded controller is the only voter of its quorum, which cannot have another. A quorum of several \
                   voters needs Apache Kafka's controllers.";
    ApiError::new(ErrorCode::UnsupportedVersion, message)
}

/// The usual way: decode, decide, encode the answer or the refusal.
fn plain<R>(
    d: &mut Decoder,
    call: Call,
    decide: impl Fn(&mut State, &R, Now) -> Result<Outcome<R::Response>, ApiError> + Send + 'static,
) -> Result<Ask, HandleError>
where
    R: Refuse + Send + 'static,
{
    let request = R::decode(d, call.version)?;
    let is_large = call.is_large;
    let decide: Decide = Box::new(move |state, now| {
        let decided = authorize(R::KEY, state, &call.by).and_then(|()| decide(state, &request, now));
        let (batch, unwritable, response) = prepare(state, &request, decided, &call);
        let answer = encoded(&response, R::KEY, call.version, call.correlation_id);
        let rulings = call.by.take_rulings();
        Decision { batch, claim: claim(R::KEY), unwritable, answer, spent: None, rulings }
    });
    Ok(Ask::Decide { decide, is_large })
}

/// As [`plain`], for requests that the quota of changes limits: the answer says how long the client has to pause.
fn mutating<R>(
    d: &mut Decoder,
    call: Call,
    decide: impl Fn(&mut State, &R, &mut MutationQuota) -> Result<Outcome<R::Response>, ApiError> + Send + 'static,
) -> Result<Ask, HandleError>
where
    R: Refuse + Send + 'static,
    R::Response: Throttled,
{
    let request = R::decode(d, call.version)?;
    let is_large = call.is_large;
    let decide: Decide = Box::new(move |state, now| {
        let mutation = MutationCall {
            api: R::KEY,
            version: call.version,
            requester: call.by.requester(),
            client_id: call.by.client_id().unwrap_or_default(),
        };
        let (mut quota, limited) = state.mutation_quota(&mutation, now);
        let decided = authorize(R::KEY, state, &call.by).and_then(|()| decide(state, &request, &mut quota));
        let (batch, unwritable, mut response) = prepare(state, &request, decided, &call);
        response.throttle(i32::try_from(quota.throttle_ms()).unwrap_or(i32::MAX));
        let spent = limited.map(|(sharers, limit)| Spent { sharers, limit, quota });
        let answer = encoded(&response, R::KEY, call.version, call.correlation_id);
        let rulings = call.by.take_rulings();
        Decision { batch, claim: claim(R::KEY), unwritable, answer, spent, rulings }
    });
    Ok(Ask::Decide { decide, is_large })
}

/// Prepares the records of a decision. Those that cannot be written make a refusal of it.
fn prepare<R: Refuse>(
    state: &State,
    request: &R,
    decided: Result<Outcome<R::Response>, ApiError>,
    call: &Call,
) -> (Batch, Option<Unwritable>, R::Response) {
    let Outcome { records, response } = match decided {
        Ok(outcome) => outcome,
        Err(error) => return (Batch::default(), None, refused(request, &error, call)),
    };
    match state.prepare(records, extent(R::KEY)) {
        Ok(batch) => (batch, None, response),
        Err(unwritable) => {
            let answer = refused(request, &ApiError::from(&unwritable), call);
            (Batch::default(), Some(unwritable), answer)
        }
    }
}

fn refused<R: Refuse>(request: &R, error: &ApiError, call: &Call) -> R::Response {
    tracing::debug!(api = ?R::KEY, code = %error.code, message = error.message, "Rejected a request");
    request.refuse(error.code, error.message.as_deref(), call.version)
}

/// An answer to a request that the quota of changes limits.
trait Throttled {
    /// Sets how long the client has to pause.
    fn throttle(&mut self, ms: i32);
}

macro_rules! throttled {
    ($($response:ident)*) => {
        $(impl Throttled for $response {
            fn throttle(&mut self, ms: i32) {
                self.throttle_time_ms = ms;
            }
        })*
    };
}

throttled! { CreatePartitionsResponse CreateTopicsResponse DeleteTopicsResponse }
