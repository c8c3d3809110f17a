//! Kafka's APIs: a file for each, and one table that serves requests and answers ApiVersions.
//!
//! [`ApiHandler::handle`] reads the common start of a request, finds the API in [`SERVED`], decodes the header and
//! the message, and calls the API's function, if the client may use it at all (`Access`). An API that is not in the table is not served and not in ApiVersions; a
//! version outside the table's closes the connection, as Kafka does, except for ApiVersions itself, which answers at
//! version 0 with the served APIs.

mod access;
mod acls;
mod alter_configs;
mod alter_replica_log_dirs;
mod api_versions;
mod auto_create;
mod consumer_groups;
mod delegation_tokens;
mod delete_records;
mod describe_client_quotas;
mod describe_cluster;
mod describe_configs;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod describe_user_scram_credentials;
mod described_groups;
pub mod document;
mod elsewhere;
mod fetch;
mod find_coordinator;
pub(crate) mod forward;
mod group_offsets;
mod groups;
mod incremental_alter_configs;
mod init_producer_id;
mod large;
mod list_config_resources;
mod list_offsets;
mod loggers;
mod metadata;
mod offset_for_leader_epoch;
mod produce;
mod sasl;
mod share;
mod share_group_offsets;
mod share_groups;
mod share_states;
mod slow;
mod streams_groups;
mod telemetry;
mod transactions;
mod write_txn_markers;

use crate::audit::Watch;
use crate::authentication::{Admission, Authenticator, Session};
use crate::authorization::Permissions;
use crate::broker::Broker;
use crate::quotas::Caller;
use crate::request_metrics::{Answered, milliseconds, timed};
use access::Access::{ByResource, Controller, Open};
use access::{Access, cluster};
pub(crate) use auto_create::create_own as create_own_topic;
use bytes::Bytes;
pub(crate) use produce::{OWN_VERSION as OWN_PRODUCE_VERSION, produce_own};
use slow::Stage;
use std::future::Future;
use std::iter;
use std::sync::Arc;
use std::time::Duration;
use thalweg_net::Holder;
use thalweg_net::answer_parts::ANSWER_BYTES_MAX;
use thalweg_net::{Behind, Frame, Handler, Peer, Replies, Reply, ReplyBehind, Unproven};
use thalweg_security::Principal;
use thalweg_security::acl::Operation::{Alter, ClusterAction, Describe, DescribeConfigs};
use thalweg_wire::frame::{decode_request_header, encode_response, peek_request};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, DecodeError, Decoder, EncodeError, ErrorCode, Request, Response};
use tokio::time::Instant;

/// One request in progress: client and version.
#[derive(Clone, Debug)]
pub struct Call {
    /// The API.
    pub key: ApiKey,
    /// The version of request and response.
    pub version: i16,
    /// Repeated in the response.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<String>,
    /// The client.
    pub peer: Arc<Peer>,
    /// Who the client has proven to be.
    pub principal: Arc<Principal>,
    /// Whether by a delegation token.
    pub is_by_token: bool,
    /// What the client may do.
    pub permissions: Permissions,
    /// When it was received.
    pub received_at: Instant,
    /// The length of its bytes.
    pub frame_len: usize,
    /// The request's bytes, from its header on, for forwarding. Empty in a call that waits for anything else, so that
    /// the request's memory is freed.
    pub frame: Bytes,
}

impl Call {
    /// Whose use of shared limits this request counts as.
    pub fn holder(&self) -> Holder {
        Holder::of(&self.principal, self.peer.address.ip())
    }

    /// The request, as quotas see it.
    fn caller(&self) -> Caller<'_> {
        Caller {
            user: self.principal.name(),
            client_id: self.client_id.as_deref().unwrap_or_default(),
            key: self.key,
            frame_len: self.frame_len,
            peer: &self.peer,
        }
    }

    /// Counts the request as answered. `local` is the time that this broker worked on it, if it also waited; `throttled` the
    /// pause that the client has to make.
    pub fn answered(&self, broker: &Broker, local: Option<Duration>, throttled: Duration) {
        broker.requests.answered(broker.requests.label(self.key), &self.answer(local, throttled));
    }

    /// The same, with the errors in the answer.
    fn answered_with(
        &self,
        broker: &Broker,
        local: Option<Duration>,
        throttled: Duration,
        response: &impl Response,
    ) {
        self.answered(broker, local, throttled);
        broker.requests.failed_in(broker.requests.label(self.key), response);
    }

    /// The answer, for figures.
    fn answer(&self, local: Option<Duration>, throttled: Duration) -> Answered<'_> {
        let client_id = self.client_id.as_deref().unwrap_or_default();
        Answered { version: self.version, received_at: self.received_at, local, throttled, client_id }
    }

    /// The response as a frame.
    pub fn reply<R: Request>(&self, response: &R::Response) -> Reply {
        match encode_response(response, self.key, self.version, self.correlation_id) {
            Ok((bytes, _)) if bytes.len() > ANSWER_BYTES_MAX => Reply::Close(format!(
                "the answer to {:?} has {} bytes, more than the limit of {}: split the request",
                self.key,
                bytes.len(),
                ANSWER_BYTES_MAX
            )),
            Ok((bytes, _)) => Reply::Now(Frame::bytes(bytes.freeze())),
            Err(error) => {
                // A name that is as long as can be, with more put to it (as to make a member id), is the client's fault.
                if !matches!(error, EncodeError::StringTooLong { .. }) {
                    let address = self.peer.address;
                    tracing::error!(%address, api = ?self.key, version = self.version, %error, "Failed to encode an answer");
                }
                Reply::Close(format!("the answer to {:?} could not be encoded: {error}", self.key))
            }
        }
    }
}

type Serve = fn(&Arc<Broker>, Call, Decoder) -> Result<Reply, DecodeError>;

/// An API that is served: its key, its versions, who may use it, its function.
pub struct Api {
    /// The key.
    pub key: ApiKey,
    /// The first version served.
    pub min: i16,
    /// The last version served, unless [`Api::last`] decides otherwise.
    pub max: i16,
    access: Access,
    serve: Serve,
}

impl Api {
    /// The last version that this broker serves: with `unstable.api.versions.enable` also one that Kafka still develops.
    pub fn last(&self, broker: &Broker) -> i16 {
        let serves_unstable = broker.config().network.serves_unstable_versions;
        self.max + i16::from(serves_unstable && self.key.last_version_is_unstable())
    }
}

const fn api(key: ApiKey, min: i16, max: i16, access: Access, serve: Serve) -> Api {
    Api { key, min, max, access, serve }
}

/// Every API that this broker serves, and who may use it.
pub const SERVED: &[Api] = &[
    api(ApiKey::Produce, 3, 13, ByResource, produce::handle),
    api(ApiKey::Fetch, 4, 18, ByResource, fetch::handle),
    api(ApiKey::ListOffsets, 1, 11, ByResource, |b, c, d| {
        now::<ListOffsetsRequest>(b, c, d, list_offsets::handle)
    }),
    api(ApiKey::Metadata, 0, 13, ByResource, |b, c, d| later(b, c, d, metadata::handle)),
    api(ApiKey::OffsetCommit, 2, 10, ByResource, |b, c, d| later(b, c, d, group_offsets::commit)),
    api(ApiKey::OffsetFetch, 1, 10, ByResource, |b, c, d| later(b, c, d, group_offsets::fetch)),
    api(ApiKey::FindCoordinator, 0, 6, ByResource, |b, c, d| later(b, c, d, find_coordinator::handle)),
    api(ApiKey::JoinGroup, 0, 9, ByResource, |b, c, d| later(b, c, d, groups::join)),
    api(ApiKey::Heartbeat, 0, 4, ByResource, |b, c, d| later(b, c, d, groups::heartbeat)),
    api(ApiKey::LeaveGroup, 0, 5, ByResource, |b, c, d| later(b, c, d, groups::leave)),
    api(ApiKey::SyncGroup, 0, 5, ByResource, |b, c, d| later(b, c, d, groups::sync)),
    api(ApiKey::DescribeGroups, 0, 6, ByResource, |b, c, d| later(b, c, d, groups::describe)),
    api(ApiKey::ListGroups, 0, 5, ByResource, |b, c, d| later(b, c, d, groups::list)),
    api(ApiKey::SaslHandshake, 0, 1, Open, |b, c, d| now::<SaslHandshakeRequest>(b, c, d, sasl::handshake)),
    api(ApiKey::ApiVersions, 0, 4, Open, |b, c, d| now::<ApiVersionsRequest>(b, c, d, api_versions::handle)),
    api(ApiKey::CreateTopics, 2, 7, Controller, forward::handle::<CreateTopicsRequest>),
    api(ApiKey::DeleteTopics, 1, 6, Controller, forward::handle::<DeleteTopicsRequest>),
    api(ApiKey::DeleteRecords, 0, 2, ByResource, |b, c, d| later(b, c, d, delete_records::handle)),
    api(ApiKey::InitProducerId, 0, 5, ByResource, |b, c, d| later(b, c, d, init_producer_id::handle)),
    api(ApiKey::OffsetForLeaderEpoch, 2, 4, ByResource, |b, c, d| {
        now::<OffsetForLeaderEpochRequest>(b, c, d, offset_for_leader_epoch::handle)
    }),
    api(ApiKey::AddPartitionsToTxn, 0, 5, ByResource, |b, c, d| later(b, c, d, transactions::add_partitions)),
    api(ApiKey::AddOffsetsToTxn, 0, 4, ByResource, |b, c, d| later(b, c, d, transactions::add_offsets)),
    api(ApiKey::EndTxn, 0, 5, ByResource, |b, c, d| later(b, c, d, transactions::end)),
    api(
        ApiKey::WriteTxnMarkers,
        1,
        2,
        cluster::<WriteTxnMarkersRequest>(&[Alter, ClusterAction]),
        |b, c, d| later(b, c, d, write_txn_markers::handle),
    ),
    api(ApiKey::TxnOffsetCommit, 0, 5, ByResource, |b, c, d| later(b, c, d, transactions::commit_offsets)),
    api(ApiKey::DescribeAcls, 1, 3, cluster::<DescribeAclsRequest>(&[Describe]), |b, c, d| {
        now::<DescribeAclsRequest>(b, c, d, acls::describe)
    }),
    api(ApiKey::CreateAcls, 1, 3, Controller, forward::handle::<CreateAclsRequest>),
    api(ApiKey::DeleteAcls, 1, 3, Controller, forward::handle::<DeleteAclsRequest>),
    api(ApiKey::DescribeConfigs, 1, 4, ByResource, |b, c, d| {
        now::<DescribeConfigsRequest>(b, c, d, describe_configs::handle)
    }),
    api(ApiKey::AlterConfigs, 0, 2, Controller, |b, c, d| later(b, c, d, alter_configs::handle)),
    api(ApiKey::AlterReplicaLogDirs, 1, 2, cluster::<AlterReplicaLogDirsRequest>(&[Alter]), |b, c, d| {
        later(b, c, d, alter_replica_log_dirs::handle)
    }),
    api(ApiKey::DescribeLogDirs, 1, 5, cluster::<DescribeLogDirsRequest>(&[Describe]), |b, c, d| {
        now::<DescribeLogDirsRequest>(b, c, d, describe_log_dirs::handle)
    }),
    api(ApiKey::SaslAuthenticate, 0, 2, Open, |b, c, d| {
        now::<SaslAuthenticateRequest>(b, c, d, sasl::authenticate)
    }),
    api(ApiKey::CreatePartitions, 0, 3, Controller, forward::handle::<CreatePartitionsRequest>),
    api(ApiKey::CreateDelegationToken, 1, 3, Controller, delegation_tokens::create),
    api(ApiKey::RenewDelegationToken, 1, 2, Controller, delegation_tokens::renew),
    api(ApiKey::ExpireDelegationToken, 1, 2, Controller, delegation_tokens::expire),
    api(ApiKey::DescribeDelegationToken, 1, 3, ByResource, |b, c, d| {
        now::<DescribeDelegationTokenRequest>(b, c, d, delegation_tokens::describe)
    }),
    api(ApiKey::DeleteGroups, 0, 2, ByResource, |b, c, d| later(b, c, d, groups::delete)),
    api(ApiKey::ElectLeaders, 0, 2, Controller, forward::handle::<ElectLeadersRequest>),
    api(ApiKey::IncrementalAlterConfigs, 0, 1, ByResource, |b, c, d| {
        later(b, c, d, incremental_alter_configs::handle)
    }),
    api(
        ApiKey::AlterPartitionReassignments,
        0,
        1,
        Controller,
        forward::handle::<AlterPartitionReassignmentsRequest>,
    ),
    api(
        ApiKey::ListPartitionReassignments,
        0,
        0,
        Controller,
        forward::handle::<ListPartitionReassignmentsRequest>,
    ),
    api(ApiKey::OffsetDelete, 0, 0, ByResource, |b, c, d| later(b, c, d, group_offsets::delete)),
    api(
        ApiKey::DescribeClientQuotas,
        0,
        1,
        cluster::<DescribeClientQuotasRequest>(&[DescribeConfigs]),
        |b, c, d| now::<DescribeClientQuotasRequest>(b, c, d, describe_client_quotas::handle),
    ),
    api(ApiKey::AlterClientQuotas, 0, 1, Controller, forward::handle::<AlterClientQuotasRequest>),
    api(
        ApiKey::DescribeUserScramCredentials,
        0,
        0,
        cluster::<DescribeUserScramCredentialsRequest>(&[Describe]),
        |b, c, d| {
            now::<DescribeUserScramCredentialsRequest>(b, c, d, describe_user_scram_credentials::handle)
        },
    ),
    api(
        ApiKey::AlterUserScramCredentials,
        0,
        0,
        Controller,
        forward::handle::<AlterUserScramCredentialsRequest>,
    ),
    api(ApiKey::DescribeQuorum, 0, 2, Controller, forward::handle::<DescribeQuorumRequest>),
    api(ApiKey::UpdateFeatures, 0, 2, Controller, forward::handle::<UpdateFeaturesRequest>),
    api(ApiKey::DescribeCluster, 0, 2, Open, |b, c, d| {
        now::<DescribeClusterRequest>(b, c, d, describe_cluster::handle)
    }),
    api(ApiKey::DescribeProducers, 0, 0, ByResource, |b, c, d| {
        now::<DescribeProducersRequest>(b, c, d, describe_producers::handle)
    }),
    api(ApiKey::UnregisterBroker, 0, 0, Controller, forward::handle::<UnregisterBrokerRequest>),
    api(ApiKey::DescribeTransactions, 0, 0, ByResource, |b, c, d| {
        now::<DescribeTransactionsRequest>(b, c, d, transactions::describe)
    }),
    api(ApiKey::ListTransactions, 0, 2, ByResource, |b, c, d| {
        now::<ListTransactionsRequest>(b, c, d, transactions::list)
    }),
    api(ApiKey::ConsumerGroupHeartbeat, 0, 1, ByResource, |b, c, d| {
        later(b, c, d, consumer_groups::heartbeat)
    }),
    api(ApiKey::ConsumerGroupDescribe, 0, 1, ByResource, |b, c, d| later(b, c, d, consumer_groups::describe)),
    api(ApiKey::GetTelemetrySubscriptions, 0, 0, Open, |b, c, d| {
        now::<GetTelemetrySubscriptionsRequest>(b, c, d, telemetry::subscriptions)
    }),
    api(ApiKey::PushTelemetry, 0, 0, Open, |b, c, d| now::<PushTelemetryRequest>(b, c, d, telemetry::push)),
    api(
        ApiKey::ListConfigResources,
        0,
        1,
        cluster::<ListConfigResourcesRequest>(&[DescribeConfigs]),
        |b, c, d| now::<ListConfigResourcesRequest>(b, c, d, list_config_resources::handle),
    ),
    api(ApiKey::DescribeTopicPartitions, 0, 0, ByResource, |b, c, d| {
        now::<DescribeTopicPartitionsRequest>(b, c, d, describe_topic_partitions::handle)
    }),
    api(ApiKey::ShareGroupHeartbeat, 1, 1, ByResource, |b, c, d| later(b, c, d, share_groups::heartbeat)),
    api(ApiKey::ShareGroupDescribe, 1, 1, ByResource, |b, c, d| later(b, c, d, share_groups::describe)),
    api(ApiKey::ShareFetch, 1, 2, ByResource, share::fetch::handle),
    api(ApiKey::ShareAcknowledge, 1, 2, ByResource, |b, c, d| later(b, c, d, share::acknowledge)),
    api(ApiKey::AddRaftVoter, 0, 1, Controller, forward::handle::<AddRaftVoterRequest>),
    api(ApiKey::RemoveRaftVoter, 0, 0, Controller, forward::handle::<RemoveRaftVoterRequest>),
    api(
        ApiKey::InitializeShareGroupState,
        0,
        0,
        cluster::<InitializeShareGroupStateRequest>(&[ClusterAction]),
        |b, c, d| later(b, c, d, share_states::initialize),
    ),
    api(
        ApiKey::ReadShareGroupState,
        0,
        0,
        cluster::<ReadShareGroupStateRequest>(&[ClusterAction]),
        |b, c, d| later(b, c, d, share_states::read),
    ),
    api(
        ApiKey::WriteShareGroupState,
        0,
        1,
        cluster::<WriteShareGroupStateRequest>(&[ClusterAction]),
        |b, c, d| later(b, c, d, share_states::write),
    ),
    api(
        ApiKey::DeleteShareGroupState,
        0,
        0,
        cluster::<DeleteShareGroupStateRequest>(&[ClusterAction]),
        |b, c, d| later(b, c, d, share_states::delete),
    ),
    api(
        ApiKey::ReadShareGroupStateSummary,
        0,
        1,
        cluster::<ReadShareGroupStateSummaryRequest>(&[ClusterAction]),
        |b, c, d| later(b, c, d, share_states::read_summary),
    ),
    api(ApiKey::StreamsGroupHeartbeat, 0, 0, ByResource, |b, c, d| later(b, c, d, streams_groups::heartbeat)),
    api(ApiKey::StreamsGroupDescribe, 0, 0, ByResource, |b, c, d| later(b, c, d, streams_groups::describe)),
    api(ApiKey::DescribeShareGroupOffsets, 0, 1, ByResource, |b, c, d| {
        later(b, c, d, share_group_offsets::describe)
    }),
    api(ApiKey::AlterShareGroupOffsets, 0, 0, ByResource, |b, c, d| {
        later(b, c, d, share_group_offsets::alter)
    }),
    api(ApiKey::DeleteShareGroupOffsets, 0, 0, ByResource, |b, c, d| {
        later(b, c, d, share_group_offsets::delete)
    }),
];

/// The table's entry for an API.
pub fn served(key: ApiKey) -> Option<&'static Api> {
    SERVED.iter().find(|api| api.key == key)
}

/// The error for a fenced client: versions before `known_from` of each API get an older code.
fn fenced_before(known_from: i16, version: i16, error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::ProducerFenced if version < known_from => ErrorCode::InvalidProducerEpoch,
        error => error,
    }
}

/// Serves an API whose answer is ready at once.
fn now<R: Request>(
    broker: &Arc<Broker>,
    call: Call,
    mut d: Decoder,
    answer: fn(&Broker, &Call, R) -> R::Response,
) -> Result<Reply, DecodeError>
where
    R::Response: 'static,
{
    let request = R::decode(&mut d, call.version)?;
    let mut response = answer(broker, &call, request);
    let pause_ms = broker.quotas.charge_time(&call.caller(), || call.received_at.elapsed(), &mut response);
    call.answered_with(broker, None, milliseconds(pause_ms), &response);
    slow::note(broker, &call, Stage::Handling, call.received_at);
    Ok(call.reply::<R>(&response))
}

/// Serves an API whose answer may have to wait.
fn later<R, F, A>(
    broker: &Arc<Broker>,
    mut call: Call,
    mut d: Decoder,
    answer: F,
) -> Result<Reply, DecodeError>
where
    R: Request + Send + 'static,
    R::Response: Send + 'static,
    A: Future<Output = R::Response> + Send,
    F: FnOnce(Arc<Broker>, Arc<Call>, R) -> A + Send + 'static,
{
    let request = R::decode(&mut d, call.version)?;
    call.frame = Bytes::new();
    let (broker, call) = (Arc::clone(broker), Arc::new(call));
    Ok(Reply::Later(Box::pin(async move {
        let answer = answer(Arc::clone(&broker), Arc::clone(&call), request);
        let (mut response, spent) = timed(answer).await;
        let pause_ms = broker.quotas.charge_time(&call.caller(), || spent, &mut response);
        call.answered_with(&broker, Some(spent), milliseconds(pause_ms), &response);
        slow::note(&broker, &call, Stage::Answer, call.received_at);
        call.reply::<R>(&response)
    })))
}

/// Serves the requests of all connections of a listener.
#[derive(Clone)]
pub struct ApiHandler {
    broker: Arc<Broker>,
    authenticator: Option<Arc<Authenticator>>,
}

impl ApiHandler {
    /// A handler of requests to `broker` that asks nobody for a name.
    pub fn new(broker: Arc<Broker>) -> Self {
        Self { broker, authenticator: None }
    }

    /// A handler of requests on a listener where clients have to authenticate, if there is something to do so with.
    pub fn authenticating(broker: Arc<Broker>, authenticator: Option<Arc<Authenticator>>) -> Self {
        Self { broker, authenticator }
    }
}

impl Handler for ApiHandler {
    type Session = Session;

    fn open(&self, peer: Arc<Peer>) -> Session {
        Session::open(peer, self.authenticator.as_ref(), self.broker.trail.as_ref())
    }

    fn unproven(&self, session: &Session) -> Option<Unproven> {
        session.unproven()
    }

    fn handle(&self, session: &mut Session, frame: Bytes) -> Reply {
        match self.begin(session, frame) {
            Ok(begun) => self.serve(begun),
            Err(reply) => reply,
        }
    }

    fn handle_with(&self, session: &mut Session, frame: Bytes, behind: &mut Behind<'_>) -> Replies {
        let alike = produce::together::take_alike(&frame, behind);
        if alike.is_empty() {
            return self.handle(session, frame).into();
        }
        self.handle_together(session, frame, alike)
    }
}

/// A request whose header is read.
struct Begun {
    api: &'static Api,
    call: Call,
    message: Decoder,
    watch: Option<Watch>,
}

impl ApiHandler {
    /// Reads the beginning of a request; fails with its answer.
    fn begin(&self, session: &mut Session, frame: Bytes) -> Result<Begun, Reply> {
        let received_at = Instant::now();
        if let Admission::Answered(reply) = session.admit(&frame) {
            return Err(reply);
        }
        let prefix = peek_request(&frame)
            .map_err(|error| Reply::Close(format!("a request without a header: {error}")))?;
        let Some(api) = ApiKey::from_i16(prefix.api_key).and_then(served) else {
            return Err(Reply::Close(format!("API key {} is not served", prefix.api_key)));
        };
        let version = prefix.api_version;
        let last = api.last(&self.broker);
        if !(api.min..=last).contains(&version) {
            if api.key == ApiKey::ApiVersions {
                return Err(api_versions::unsupported(&self.broker, prefix.correlation_id));
            }
            let Api { key, min, .. } = api;
            return Err(Reply::Close(format!(
                "{key:?} is served at versions {min} to {last}, not {version}"
            )));
        }
        let mut message = Decoder::new(frame.clone()).with_elements_max(large::ELEMENTS_MAX);
        let header = decode_request_header(&mut message, api.key, version).map_err(|error| {
            Reply::Close(format!("the header of {:?} version {version}: {error}", api.key))
        })?;
        let audited = session.audited(header.client_id.as_deref());
        let watch = Watch::begin(audited.as_ref(), api.key, version, &frame, self.broker.log_dirs.disk());
        let call = Call {
            key: api.key,
            version,
            correlation_id: prefix.correlation_id,
            client_id: header.client_id,
            peer: Arc::clone(session.peer()),
            principal: Arc::clone(session.principal()),
            is_by_token: session.is_by_token(),
            permissions: Permissions::of(
                self.broker.authorizer(),
                session.principal(),
                session.host(),
                api.key,
                audited,
            ),
            received_at,
            frame_len: frame.len(),
            frame,
        };
        Ok(Begun { api, call, message, watch })
    }

    fn serve(&self, begun: Begun) -> Reply {
        let Begun { api, call, message, watch } = begun;
        let (key, version) = (call.key, call.version);
        let serve = api.access.check(&call).unwrap_or(api.serve);
        let reply = if large::is_large(&self.broker, key, call.frame.len()) {
            large::serve(&self.broker, serve, call, message)
        } else {
            serve(&self.broker, call, message).unwrap_or_else(|error| unreadable(key, version, &error))
        };
        match watch {
            None => reply,
            Some(watch) => watch.follow(reply),
        }
    }

    /// Serves Produce requests that differ only in their records. Where more than that is to be done for one of them, as for a
    /// session that ends, they are served one by one.
    fn handle_together(&self, session: &mut Session, frame: Bytes, alike: Vec<Bytes>) -> Replies {
        let lengths: Vec<usize> = alike.iter().map(Bytes::len).collect();
        let begun = iter::once(frame).chain(alike).map(|frame| self.begin(session, frame));
        let begun: Vec<Result<Begun, Reply>> = begun.collect();
        let is_plain = |begun: &Begun| begun.watch.is_none() && begun.api.access.check(&begun.call).is_none();
        let replies: Vec<Reply> = if begun.iter().all(|each| each.as_ref().is_ok_and(is_plain)) {
            let calls: Vec<_> =
                begun.into_iter().flatten().map(|begun| (begun.call, begun.message)).collect();
            let version = calls.first().map_or(0, |(call, _)| call.version);
            let replies = produce::together::handle(&self.broker, calls).into_iter();
            replies
                .map(|reply| reply.unwrap_or_else(|error| unreadable(ApiKey::Produce, version, &error)))
                .collect()
        } else {
            begun.into_iter().map(|each| each.map_or_else(|reply| reply, |begun| self.serve(begun))).collect()
        };
        let mut replies = replies.into_iter();
        let first = replies.next().expect("one for each request, of which there is one at least");
        let behind =
            replies.zip(lengths).map(|(reply, frame_len)| ReplyBehind { frame_len, reply }).collect();
        Replies { first, behind }
    }
}

/// A request that does not match its version closes its connection.
fn unreadable(key: ApiKey, version: i16, error: &DecodeError) -> Reply {
    Reply::Close(format!("{key:?} version {version}: {error}"))
}
