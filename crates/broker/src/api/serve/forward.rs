//! Forwards requests to the controller in an Envelope (KIP-590): the request's own bytes, the principal, and
//! the client's address. The controller's answer is passed to the client unchanged.
//!
//! Changes to the cluster are forwarded; most reads are answered from the image. The answer to a change waits
//! a little until this broker's image shows the change, so that the client's next read sees it. Kafka's
//! broker answers immediately.

use crate::api::entry::Forwarding;
use crate::api::slow::{self, Stage};
use crate::api::{Api, Call, served};
use crate::broker::Broker;
use crate::request_metrics::timed;
use bytes::Bytes;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::BrokerConfig;
use thalweg_membership::ControllerLink;
use thalweg_net::{Frame, Reply};
use thalweg_wire::data::DefaultPrincipalData;
use thalweg_wire::frame::{LENGTH_LEN, decode_response, encode_request};
use thalweg_wire::request::describe_quorum_request::{PartitionData, TopicData};
use thalweg_wire::request::{DescribeQuorumRequest, EnvelopeRequest};
use thalweg_wire::{DecodeError, Decoder, Encoder, ErrorCode, Message, Refuse, Request};

/// The versions of an API that both this broker and its controller serve; `None` if there is no common
/// version.
pub fn served_with_controller(
    config: &BrokerConfig,
    controller: &ControllerLink,
    api: &Api,
) -> Option<(i16, i16)> {
    if api.forwarded.is_none() {
        return Some((api.min, api.last(config)));
    }
    let (min, max) = controller.served(api.key)?;
    let (min, max) = (min.max(api.min), max.min(api.max));
    (min <= max).then_some((min, max))
}

/// Maximum wait until this broker's image shows a change, with the question which offset to wait for.
const SHOWN_WITHIN: Duration = Duration::from_millis(500);

/// Forwards the request and returns the controller's answer, or, without one, the answer of Kafka's broker.
pub fn handle<R>(broker: &Arc<Broker>, call: Call, mut d: Decoder) -> Result<Reply, DecodeError>
where
    R: Refuse + Send + 'static,
    R::Response: Send + 'static,
{
    let broker = Arc::clone(broker);
    Ok(Reply::Later(Box::pin(async move {
        let api = served(call.key);
        let exchange = async {
            let answer = forward(&broker.registered.controller, &call, call.frame.clone()).await?;
            if api.is_some_and(|api| api.forwarded == Some(Forwarding::Changes)) {
                until_shown(&broker.registered.controller).await;
            }
            Ok(answer)
        };
        let (answer, spent) = timed(exchange).await;
        slow::note(broker.slow_request, &call, Stage::Controller, call.received_at);
        let failure = match answer {
            Ok(answer) => {
                let answer = broker.quotas.charge_forwarded(&call.caller(), call.version, spent, answer);
                let throttled = call.peer.mute.left();
                call.answered(&broker.requests, Some(spent), throttled);
                return Reply::Now(Frame::with_length(answer));
            }
            // The client reconnects and asks for the versions again.
            Err(Failure::UnsupportedVersion) => {
                return Reply::Close(format!(
                    "the controller does not serve {:?} {}",
                    call.key, call.version
                ));
            }
            Err(Failure::NoAnswer) => ErrorCode::RequestTimedOut,
            Err(Failure::Refused) => ErrorCode::UnknownServerError,
        };
        match R::decode(&mut d, call.version) {
            Ok(request) => {
                let message = api.and_then(|api| api.refusal_message.of(failure));
                let response = request.refuse(failure, message, call.version);
                call.answered_with(&broker.requests, Some(spent), Duration::ZERO, &response);
                call.reply::<R>(&response)
            }
            Err(error) => Reply::Close(format!("{:?} version {}: {error}", call.key, call.version)),
        }
    })))
}

/// Reasons for a missing answer of the controller, as distinguished by Kafka's `ForwardingManagerImpl`.
enum Failure {
    /// The controller was unreachable for too long, or the connection broke.
    NoAnswer,
    /// The controller rejects envelopes from this broker, or in this form. Clients do not get the reason.
    Refused,
    /// The controller does not serve the request's version: the active controller has changed since the
    /// client's ApiVersions.
    UnsupportedVersion,
}

/// The controller's answer to a request in an envelope.
async fn forward(controller: &ControllerLink, call: &Call, request: Bytes) -> Result<Bytes, Failure> {
    let (api, version) = (call.key, call.version);
    match controller.send(envelope(call, request), EnvelopeRequest::MAX_VERSION).await {
        Ok(response) => match (ErrorCode::from_i16(response.error_code), response.response_data) {
            (Some(ErrorCode::None), Some(answer)) => Ok(answer),
            (Some(ErrorCode::UnsupportedVersion), _) => Err(Failure::UnsupportedVersion),
            (error, _) => {
                let error = error.unwrap_or(ErrorCode::UnknownServerError);
                tracing::warn!(address = %call.peer.address, ?api, version, %error, "Controller rejected a forwarded request");
                Err(Failure::Refused)
            }
        },
        Err(error) if error.is_absence() => {
            tracing::debug!(?api, version, %error, "Request was not forwarded");
            Err(Failure::NoAnswer)
        }
        Err(error) => {
            tracing::warn!(address = %call.peer.address, ?api, version, %error, "Failed to forward a request");
            Err(Failure::Refused)
        }
    }
}

/// Waits until the image shows all records that are committed now, at most for [`SHOWN_WITHIN`]. After that,
/// the client reads an older image.
async fn until_shown(controller: &ControllerLink) {
    drop(tokio::time::timeout(SHOWN_WITHIN, shown(controller)).await);
}

/// Waits until the image shows all records that are committed now. The offset comes from DescribeQuorum.
async fn shown(controller: &ControllerLink) {
    let mut changes = controller.image_changes();
    let partitions = vec![PartitionData::default()];
    let topics = vec![TopicData { topic_name: "__cluster_metadata".to_owned(), partitions }];
    let quorum = controller.send(DescribeQuorumRequest { topics }, DescribeQuorumRequest::MAX_VERSION).await;
    let partition =
        quorum.ok().and_then(|quorum| quorum.topics.into_iter().next()?.partitions.into_iter().next());
    if let Some(partition) = partition {
        // The wait fails only if the broker stops.
        drop(changes.wait_for(|offset| offset + 1 >= partition.high_watermark).await);
    }
}

/// Forwards a request derived from the client's, in its name, and returns the controller's answer.
pub async fn send<R: Request>(
    controller: &ControllerLink,
    call: &Call,
    request: &R,
) -> Result<R::Response, ErrorCode> {
    let answer = send_at(controller, call, request, call.version).await?;
    until_shown(controller).await;
    Ok(answer)
}

/// As [`send`], with a given version, and without waiting for the image.
pub async fn send_at<R: Request>(
    controller: &ControllerLink,
    call: &Call,
    request: &R,
    version: i16,
) -> Result<R::Response, ErrorCode> {
    let encoded = encode_request(request, version, call.correlation_id, call.client_id.as_deref());
    let request = encoded.map_err(|error| unusable(call, &error))?.slice(LENGTH_LEN..);
    let answer = forward(controller, call, request).await.map_err(|failure| match failure {
        Failure::NoAnswer => ErrorCode::RequestTimedOut,
        Failure::Refused => ErrorCode::UnknownServerError,
        Failure::UnsupportedVersion => ErrorCode::UnsupportedVersion,
    })?;
    let decoded = decode_response::<R>(answer, version);
    decoded.map(|(_, answer)| answer).map_err(|error| unusable(call, &error))
}

fn unusable(call: &Call, error: &dyn std::error::Error) -> ErrorCode {
    let address = call.peer.address;
    tracing::error!(%address, api = ?call.key, version = call.version, %error, "Failed to forward a request");
    ErrorCode::UnknownServerError
}

/// The envelope around a request, from its header on.
fn envelope(call: &Call, request_data: Bytes) -> EnvelopeRequest {
    let address = match call.peer.address.ip().to_canonical() {
        IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
    };
    EnvelopeRequest { request_data, request_principal: Some(principal(call)), client_host_address: address }
}

/// The principal as Kafka serialises it: the version, then the message.
fn principal(call: &Call) -> Bytes {
    let principal = DefaultPrincipalData {
        r#type: call.principal.kind().to_owned(),
        name: call.principal.name().to_owned(),
        token_authenticated: call.is_by_token,
    };
    let mut e = Encoder::with_capacity(32);
    e.i16(0);
    principal.encode(&mut e, 0).expect("a compact string takes any name that was in a frame");
    e.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use thalweg_wire::request::*;

    use crate::quotas::throttle_time;
    use std::time::Duration;
    use thalweg_wire::frame::{LENGTH_LEN, encode_response};
    use thalweg_wire::{ApiKey, Response};

    use super::*;

    /// The answers of Kafka 4.3.1 (`tests/golden/UnansweredRequestsWriter.java`).
    const GOLDEN: &str = include_str!("../../../tests/golden/unanswered-requests.txt");

    fn bytes(hex: &str) -> Bytes {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    fn check<R: Refuse>(error: ErrorCode, version: i16, request: &str, expected: &str) {
        let request = R::decode(&mut Decoder::new(bytes(request)), version).expect("Kafka's own request");
        let api = served(R::KEY).expect("a served API");
        let answer = request.refuse(error, api.refusal_message.of(error), version);
        let mut e = Encoder::with_capacity(64);
        answer.encode(&mut e, version).unwrap_or_else(|error| panic!("{:?} {version}: {error}", R::KEY));
        assert_eq!(e.into_bytes(), bytes(expected), "{:?} {version}: {answer:?}", R::KEY);
        check_throttle_time(answer, R::KEY, version);
    }

    /// The throttle time is found in the bytes of an answer, if the answer has one.
    fn check_throttle_time<M: Response>(mut answer: M, key: ApiKey, version: i16) {
        const PAUSE_MS: i32 = 0x0102_0304;
        let pause = answer.throttle_time_ms().map(|throttle_time_ms| {
            *throttle_time_ms = PAUSE_MS;
            Duration::from_millis(PAUSE_MS as u64)
        });
        let (frame, _) = encode_response(&answer, key, version, 7).expect("an answer of this version");
        let found = throttle_time::of_answer(key, version, &frame[LENGTH_LEN..]);
        assert_eq!(found, pause, "{key:?} {version}: see quotas/throttle_time.rs");
    }

    #[test]
    fn each_version_of_each_request_is_answered_as_kafka_does() {
        let mut seen = BTreeSet::new();
        for line in GOLDEN.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [api, version, error, request, expected] = fields[..] else { panic!("{line}") };
            let error = ErrorCode::from_i16(error.parse().expect("a code")).expect("a known one");
            let api = ApiKey::from_i16(api.parse().expect("a key")).expect("a known one");
            let version: i16 = version.parse().expect("a version");
            seen.insert((api as i16, version));
            let check = match api {
                ApiKey::CreateTopics => check::<CreateTopicsRequest>,
                ApiKey::DeleteTopics => check::<DeleteTopicsRequest>,
                ApiKey::CreateAcls => check::<CreateAclsRequest>,
                ApiKey::DeleteAcls => check::<DeleteAclsRequest>,
                ApiKey::CreatePartitions => check::<CreatePartitionsRequest>,
                ApiKey::ElectLeaders => check::<ElectLeadersRequest>,
                ApiKey::AlterPartitionReassignments => check::<AlterPartitionReassignmentsRequest>,
                ApiKey::ListPartitionReassignments => check::<ListPartitionReassignmentsRequest>,
                ApiKey::AlterClientQuotas => check::<AlterClientQuotasRequest>,
                ApiKey::AlterUserScramCredentials => check::<AlterUserScramCredentialsRequest>,
                ApiKey::CreateDelegationToken => check::<CreateDelegationTokenRequest>,
                ApiKey::RenewDelegationToken => check::<RenewDelegationTokenRequest>,
                ApiKey::ExpireDelegationToken => check::<ExpireDelegationTokenRequest>,
                ApiKey::DescribeQuorum => check::<DescribeQuorumRequest>,
                ApiKey::UpdateFeatures => check::<UpdateFeaturesRequest>,
                ApiKey::UnregisterBroker => check::<UnregisterBrokerRequest>,
                ApiKey::AddRaftVoter => check::<AddRaftVoterRequest>,
                ApiKey::RemoveRaftVoter => check::<RemoveRaftVoterRequest>,
                other => panic!("{other:?} is not forwarded as a whole"),
            };
            check(error, version, request, expected);
        }
        let partly = [ApiKey::AlterConfigs, ApiKey::IncrementalAlterConfigs];
        let forwarded = crate::api::all_served().filter(|api| api.forwarded.is_some());
        for api in forwarded.filter(|api| !partly.contains(&api.key)) {
            for version in api.min..=api.max {
                assert!(seen.contains(&(api.key as i16, version)), "{:?} {version}", api.key);
            }
        }
    }

    #[test]
    fn throttle_times_of_partly_forwarded_requests_are_found() {
        for version in 0..=2 {
            check_throttle_time(AlterConfigsResponse::default(), ApiKey::AlterConfigs, version);
        }
        for version in 0..=1 {
            check_throttle_time(
                IncrementalAlterConfigsResponse::default(),
                ApiKey::IncrementalAlterConfigs,
                version,
            );
        }
    }

    #[test]
    fn all_forwarded_apis_but_these_are_changes_with_audit_events() {
        let reads = [ApiKey::ListPartitionReassignments, ApiKey::DescribeQuorum];
        for api in crate::api::all_served().filter(|api| api.forwarded.is_some()) {
            let is_read = reads.contains(&api.key);
            let expected = if is_read { Forwarding::Reads } else { Forwarding::Changes };
            assert_eq!(api.forwarded, Some(expected), "{:?}", api.key);
            assert_eq!(api.describe.is_some(), !is_read, "{:?}", api.key);
        }
    }

    #[test]
    fn the_controller_takes_the_same_apis_in_envelopes() {
        for key in (0..i16::MAX).filter_map(ApiKey::from_i16) {
            let is_forwarded = served(key).is_some_and(|api| api.forwarded.is_some());
            assert_eq!(thalweg_controller::takes_forwarded(key), is_forwarded, "{key:?}");
        }
    }
}
