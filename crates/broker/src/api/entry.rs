//! The entry of an API, in the API's own file: versions, access, costs, function.
//!
//! An entry's closure picks the parts of the broker that the function uses, so that a signature shows what
//! the API touches. A function that uses more than three parts takes the whole [`Broker`].

use super::Call;
use super::slow::{self, Stage};
use crate::audit::{self, ClusterChange, Describe};
use crate::broker::Broker;
use crate::request_metrics::{milliseconds, timed};
use bytes::Bytes;
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::BrokerConfig;
use thalweg_net::Reply;
use thalweg_security::acl::Operation;
use thalweg_wire::{ApiKey, DecodeError, Decoder, ErrorCode, Refuse, Request};

pub(super) use Access::{ByResource, Controller, Open};

pub(super) type Serve = fn(&Arc<Broker>, Call, Decoder) -> Result<Reply, DecodeError>;

/// An API that is served: key, versions, access, function.
pub struct Api {
    /// The number of the API in request headers.
    pub key: ApiKey,
    /// The first version served.
    pub min: i16,
    /// The last version served, unless [`Api::last`] decides otherwise.
    pub max: i16,
    pub(super) access: Access,
    pub(super) cost: Cost,
    /// True for long polls, which wait for records or for other members.
    pub(super) waits: bool,
    pub(super) forwarded: Option<Forwarding>,
    pub(super) refusal_message: RefusalMessage,
    /// The audit events of a request that changes the cluster.
    pub(crate) describe: Option<Describe>,
    pub(super) serve: Serve,
}

/// The clients that may use an API.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// All clients: the answer contains only data that every client needs.
    Open,
    /// Clients with one of these operations on the cluster. The function answers all other clients.
    Cluster(&'static [Operation], Serve),
    /// Clients with permissions on the requested resources, which the API's function checks one by one.
    ByResource,
    /// The controller checks: the request is forwarded in the client's name. AlterConfigs refuses malformed
    /// changes before.
    Controller,
}

/// Access for clients with one of these operations on the cluster.
pub(super) const fn cluster<R>(operations: &'static [Operation]) -> Access
where
    R: Refuse,
    R::Response: 'static,
{
    Access::Cluster(operations, refuse::<R>)
}

impl Access {
    /// The function that refuses the request; `None` if the client may use the API.
    pub(super) fn check(self, call: &Call) -> Option<Serve> {
        match self {
            Access::Cluster(operations, refuse) => {
                (!call.permissions.may_any_on_cluster(operations)).then_some(refuse)
            }
            Open | ByResource | Controller => None,
        }
    }
}

/// The requests of an API that take too long for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// Long requests only.
    ByLength,
    /// Long requests, and all requests if the cluster has many topics, because the API iterates over all
    /// topics.
    ByTopics,
    /// All requests: the API iterates over all entries of some kind.
    Always,
    /// No request: the API divides its own work.
    Own,
}

/// The effect of a forwarded request at the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarding {
    /// A change to the cluster: the answer waits until this broker's image shows the change.
    Changes,
    /// A read: the answer does not wait for the image.
    Reads,
}

/// The error message of the answer to a forwarded request that got no usable answer from the controller, as
/// Kafka's `getErrorResponse` sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalMessage {
    Absent,
    /// The standard message of the error (`ApiError.messageWithFallback`).
    Standard,
    /// The standard message; none for a timeout, because Kafka's exception for a timeout has none.
    StandardUnlessTimeout,
}

impl RefusalMessage {
    /// The message for a failure.
    pub fn of(self, failure: ErrorCode) -> Option<&'static str> {
        match (self, failure) {
            (RefusalMessage::Absent, _)
            | (RefusalMessage::StandardUnlessTimeout, ErrorCode::RequestTimedOut) => None,
            (_, ErrorCode::RequestTimedOut) => Some("The request timed out."),
            _ => Some("The server experienced an unexpected error when processing the request."),
        }
    }
}

impl Api {
    /// An API at these versions, with its access and its function.
    pub(super) const fn new(key: ApiKey, versions: RangeInclusive<i16>, access: Access, serve: Serve) -> Api {
        let (min, max) = (*versions.start(), *versions.end());
        Api {
            key,
            min,
            max,
            access,
            cost: Cost::ByLength,
            waits: false,
            forwarded: None,
            refusal_message: RefusalMessage::Absent,
            describe: None,
            serve,
        }
    }

    /// The API with these costs instead of [`Cost::ByLength`].
    pub(super) const fn cost(mut self, cost: Cost) -> Api {
        self.cost = cost;
        self
    }

    /// The API with long polls.
    pub(super) const fn waits(mut self) -> Api {
        self.waits = true;
        self
    }

    /// The API with requests that are forwarded to the controller, all or some.
    pub(super) const fn forwarded(mut self, forwarded: Forwarding) -> Api {
        self.forwarded = Some(forwarded);
        self
    }

    /// The API with this message in its own refusals of forwarded requests.
    pub(super) const fn refusal_message(mut self, message: RefusalMessage) -> Api {
        self.refusal_message = message;
        self
    }

    /// The API with audit events for its changes to the cluster.
    pub(super) const fn changing<R: ClusterChange>(mut self) -> Api {
        self.describe = Some(audit::describe::<R>);
        self
    }

    /// The last version that this broker serves, including Kafka's unstable version if
    /// `unstable.api.versions.enable` is on.
    pub fn last(&self, config: &BrokerConfig) -> i16 {
        let serves_unstable = config.network.serves_unstable_versions;
        self.max + i16::from(serves_unstable && self.key.last_version_is_unstable())
    }
}

/// Serves an API whose answer is ready at once.
pub(super) fn now<R: Request>(
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
    call.answered_with(&broker.requests, None, milliseconds(pause_ms), &response);
    slow::note(broker.slow_request, &call, Stage::Handling, call.received_at);
    Ok(call.reply::<R>(&response))
}

/// Serves an API whose answer may have to wait.
pub(super) fn later<R, F, A>(
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
        call.answered_with(&broker.requests, Some(spent), milliseconds(pause_ms), &response);
        slow::note(broker.slow_request, &call, Stage::Answer, call.received_at);
        call.reply::<R>(&response)
    })))
}

/// Kafka's words for CLUSTER_AUTHORIZATION_FAILED.
const NOT_ON_CLUSTER: &str = "Cluster authorization failed.";

/// Refuses a whole request.
fn refuse<R>(broker: &Arc<Broker>, mut call: Call, mut d: Decoder) -> Result<Reply, DecodeError>
where
    R: Refuse,
    R::Response: 'static,
{
    let request = R::decode(&mut d, call.version)?;
    call.frame = Bytes::new();
    let response = not_on_cluster(&request, call.version);
    call.answered_with(&broker.requests, None, Duration::ZERO, &response);
    Ok(call.reply::<R>(&response))
}

/// The answer to a request whose client lacks an operation on the cluster.
pub(super) fn not_on_cluster<R: Refuse>(request: &R, version: i16) -> R::Response {
    request.refuse(ErrorCode::ClusterAuthorizationFailed, Some(NOT_ON_CLUSTER), version)
}
