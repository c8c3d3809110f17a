//! Kafka's APIs: a file for each, which begins with its entry ([`Api`]), and the list of the entries.
//!
//! [`ApiHandler::handle_with`] reads the common start of a request, finds the API's entry ([`served`]),
//! decodes header and message, and calls the API's function if the client has access. An API without an entry
//! is neither served nor in ApiVersions; a version outside the entry's range closes the connection, as in
//! Kafka. Only ApiVersions answers such a version, at version 0, with the served APIs.

mod acls;
mod alter_configs;
mod alter_replica_log_dirs;
mod api_versions;
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
pub mod document;
mod entry;
mod fetch;
mod find_coordinator;
mod forwarded;
mod group_offsets;
mod groups;
mod incremental_alter_configs;
mod init_producer_id;
mod list_config_resources;
mod list_offsets;
mod metadata;
mod offset_for_leader_epoch;
mod produce;
mod sasl;
mod serve;
mod share;
mod share_group_offsets;
mod share_groups;
mod share_states;
mod slow;
mod streams_groups;
mod telemetry;
mod transactions;
mod write_txn_markers;

use crate::audit::ChangeRecorder;
use crate::authentication::{Admission, Authenticator, Session};
use crate::authorization::Permissions;
use crate::broker::Broker;
use crate::quotas::Caller;
use crate::request_metrics::{AnsweredRequest, RequestMetrics};
use bytes::Bytes;
pub use entry::Api;
pub(crate) use produce::{OWN_VERSION as OWN_PRODUCE_VERSION, produce_own};
pub(crate) use serve::auto_create::create_own as create_own_topic;
use serve::large_requests;
use std::iter;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use thalweg_net::Holder;
use thalweg_net::answer_parts::ANSWER_BYTES_MAX;
use thalweg_net::{Frame, FramesBehind, Handler, Peer, Replies, Reply, ReplyBehind, UnprovenLimits};
use thalweg_security::Principal;
use thalweg_wire::frame::{decode_request_header, encode_response, peek_request};
use thalweg_wire::{ApiKey, DecodeError, Decoder, EncodeError, ErrorCode, Request, Response};
use tokio::time::Instant;

/// One request in progress: client and version.
#[derive(Clone, Debug)]
pub struct Call {
    pub key: ApiKey,
    /// The version of request and response.
    pub version: i16,
    /// The client's number for this request, repeated in the response.
    pub correlation_id: i32,
    /// The client's own name, chosen freely.
    pub client_id: Option<String>,
    pub peer: Arc<Peer>,
    /// The authenticated principal.
    pub principal: Arc<Principal>,
    /// True if the principal has authenticated by a delegation token.
    pub is_by_token: bool,
    /// The client's permissions.
    pub permissions: Permissions,
    /// Arrival time of the request.
    pub received_at: Instant,
    /// Length of the request in bytes.
    pub frame_len: usize,
    /// The request's bytes, from its header on, for forwarding. Empty in a call that waits for anything but
    /// the controller, so that the request's memory is freed.
    pub frame: Bytes,
}

impl Call {
    /// The holder that this request is charged to, for shared limits.
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

    /// Counts the request as answered. `local` is this broker's work time, if the request also waited;
    /// `throttled` is the client's throttle time.
    pub fn answered(&self, requests: &RequestMetrics, local: Option<Duration>, throttled: Duration) {
        requests.answered(requests.label(self.key), &self.answer(local, throttled));
    }

    /// Counts the request as answered, and counts the errors in the answer.
    fn answered_with(
        &self,
        requests: &RequestMetrics,
        local: Option<Duration>,
        throttled: Duration,
        response: &impl Response,
    ) {
        self.answered(requests, local, throttled);
        requests.failed_in(requests.label(self.key), response);
    }

    /// The answer, for the request metrics.
    fn answer(&self, local: Option<Duration>, throttled: Duration) -> AnsweredRequest<'_> {
        let client_id = self.client_id.as_deref().unwrap_or_default();
        AnsweredRequest { version: self.version, received_at: self.received_at, local, throttled, client_id }
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
                // A name of maximum length that the broker extends, such as a client id in a member id, is
                // the client's fault.
                if !matches!(error, EncodeError::StringTooLong { .. }) {
                    let address = self.peer.address;
                    tracing::error!(%address, api = ?self.key, version = self.version, %error, "Failed to encode an answer");
                }
                Reply::Close(format!("the answer to {:?} could not be encoded: {error}", self.key))
            }
        }
    }
}

/// The APIs with a file of their own. APIs that are only forwarded are in [`forwarded`].
const LOCAL: &[&Api] = &[
    &produce::API,
    &fetch::API,
    &list_offsets::API,
    &metadata::API,
    &group_offsets::COMMIT,
    &group_offsets::FETCH,
    &find_coordinator::API,
    &groups::JOIN,
    &groups::HEARTBEAT,
    &groups::LEAVE,
    &groups::SYNC,
    &groups::DESCRIBE,
    &groups::LIST,
    &sasl::HANDSHAKE,
    &api_versions::API,
    &delete_records::API,
    &init_producer_id::API,
    &offset_for_leader_epoch::API,
    &transactions::ADD_PARTITIONS,
    &transactions::ADD_OFFSETS,
    &transactions::END,
    &write_txn_markers::API,
    &transactions::COMMIT_OFFSETS,
    &acls::API,
    &describe_configs::API,
    &alter_configs::API,
    &alter_replica_log_dirs::API,
    &describe_log_dirs::API,
    &sasl::AUTHENTICATE,
    &delegation_tokens::CREATE,
    &delegation_tokens::RENEW,
    &delegation_tokens::EXPIRE,
    &delegation_tokens::DESCRIBE,
    &groups::DELETE,
    &incremental_alter_configs::API,
    &group_offsets::DELETE,
    &describe_client_quotas::API,
    &describe_user_scram_credentials::API,
    &describe_cluster::API,
    &describe_producers::API,
    &transactions::DESCRIBE,
    &transactions::LIST,
    &consumer_groups::HEARTBEAT,
    &consumer_groups::DESCRIBE,
    &telemetry::SUBSCRIPTIONS,
    &telemetry::PUSH,
    &list_config_resources::API,
    &describe_topic_partitions::API,
    &share_groups::HEARTBEAT,
    &share_groups::DESCRIBE,
    &share::fetch::API,
    &share::acknowledge::API,
    &share_states::INITIALIZE,
    &share_states::READ,
    &share_states::WRITE,
    &share_states::DELETE,
    &share_states::READ_SUMMARY,
    &streams_groups::HEARTBEAT,
    &streams_groups::DESCRIBE,
    &share_group_offsets::DESCRIBE,
    &share_group_offsets::ALTER,
    &share_group_offsets::DELETE,
];

/// All entries, each at the index of its key.
static SERVED: LazyLock<Vec<Option<&'static Api>>> = LazyLock::new(|| {
    let mut served = Vec::new();
    for api in LOCAL.iter().copied().chain(forwarded::APIS.iter().copied().flatten()) {
        let index = usize::try_from(api.key as i16).expect("keys are not negative");
        served.resize(served.len().max(index + 1), None);
        let earlier = served[index].replace(api);
        assert!(earlier.is_none(), "{:?} has one entry", api.key);
    }
    served
});

/// The entry of an API.
pub fn served(key: ApiKey) -> Option<&'static Api> {
    *SERVED.get(usize::try_from(key as i16).ok()?)?
}

/// The entries in the order of their keys, which ApiVersions uses as well.
pub fn all_served() -> impl Iterator<Item = &'static Api> {
    SERVED.iter().copied().flatten()
}

/// The error for a fenced client: versions before `fenced_from` of an API get an older code.
fn fenced_before(fenced_from: i16, version: i16, error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::ProducerFenced if version < fenced_from => ErrorCode::InvalidProducerEpoch,
        error => error,
    }
}

/// Serves the requests of all connections of a listener.
#[derive(Clone)]
pub struct ApiHandler {
    broker: Arc<Broker>,
    authenticator: Option<Arc<Authenticator>>,
}

impl ApiHandler {
    /// A handler for listeners without authentication.
    pub fn new(broker: Arc<Broker>) -> Self {
        Self { broker, authenticator: None }
    }

    /// A handler that authenticates clients if `authenticator` is set.
    pub fn authenticating(broker: Arc<Broker>, authenticator: Option<Arc<Authenticator>>) -> Self {
        Self { broker, authenticator }
    }
}

impl Handler for ApiHandler {
    type Session = Session;

    fn open(&self, peer: Arc<Peer>) -> Session {
        Session::open(peer, self.authenticator.as_ref(), self.broker.trail.as_ref())
    }

    fn unproven(&self, session: &Session) -> Option<UnprovenLimits> {
        session.unproven()
    }

    fn handle(&self, session: &mut Session, frame: Bytes) -> Reply {
        match self.begin(session, frame) {
            Ok(begun) => self.serve(begun),
            Err(reply) => reply,
        }
    }

    fn handle_with(&self, session: &mut Session, frame: Bytes, behind: &mut FramesBehind<'_>) -> Replies {
        let alike = produce::together::take_alike(&frame, behind);
        if alike.is_empty() {
            return self.handle(session, frame).into();
        }
        self.handle_together(session, frame, alike)
    }
}

/// A request whose header is read.
struct ReceivedRequest {
    api: &'static Api,
    call: Call,
    message: Decoder,
    recorder: Option<ChangeRecorder>,
}

impl ApiHandler {
    /// Reads the header of a request. The error is the answer to the client.
    fn begin(&self, session: &mut Session, frame: Bytes) -> Result<ReceivedRequest, Reply> {
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
        let config = self.broker.config();
        let last = api.last(&config);
        if !(api.min..=last).contains(&version) {
            if api.key == ApiKey::ApiVersions {
                return Err(api_versions::unsupported(&config, prefix.correlation_id));
            }
            let Api { key, min, .. } = api;
            return Err(Reply::Close(format!(
                "{key:?} is served at versions {min} to {last}, not {version}"
            )));
        }
        let mut message = Decoder::new(frame.clone()).with_elements_max(large_requests::ELEMENTS_MAX);
        let header = decode_request_header(&mut message, api.key, version).map_err(|error| {
            Reply::Close(format!("the header of {:?} version {version}: {error}", api.key))
        })?;
        let audited = session.audited(header.client_id.as_deref());
        let recorder = ChangeRecorder::begin(
            audited.as_ref(),
            (api.key, version),
            api.describe,
            &frame,
            self.broker.log_dirs.disk(),
        );
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
        Ok(ReceivedRequest { api, call, message, recorder })
    }

    fn serve(&self, begun: ReceivedRequest) -> Reply {
        let ReceivedRequest { api, call, message, recorder } = begun;
        let (key, version) = (call.key, call.version);
        let serve = api.access.check(&call).unwrap_or(api.serve);
        let reply = if large_requests::is_large(self.broker.images(), api.cost, call.frame.len()) {
            large_requests::serve(&self.broker, serve, call, message)
        } else {
            serve(&self.broker, call, message).unwrap_or_else(|error| unreadable(key, version, &error))
        };
        match recorder {
            None => reply,
            Some(recorder) => recorder.follow(reply),
        }
    }

    /// Serves Produce requests that differ only in their records. If one of the requests needs more work,
    /// such as an audit event, all are served one by one.
    fn handle_together(&self, session: &mut Session, frame: Bytes, alike: Vec<Bytes>) -> Replies {
        let lengths: Vec<usize> = alike.iter().map(Bytes::len).collect();
        let begun = iter::once(frame).chain(alike).map(|frame| self.begin(session, frame));
        let begun: Vec<Result<ReceivedRequest, Reply>> = begun.collect();
        let is_plain = |begun: &ReceivedRequest| {
            begun.recorder.is_none() && begun.api.access.check(&begun.call).is_none()
        };
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
