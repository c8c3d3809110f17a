//! The access to an API, a part of its entry ([`Api`](crate::api::Api)).

use crate::api::Call;
use crate::api::entry::Serve;
use crate::broker::Broker;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_net::Reply;
use thalweg_security::acl::Operation;
use thalweg_wire::{DecodeError, Decoder, ErrorCode, Refuse};

/// The clients that may use an API.
#[derive(Clone, Copy)]
pub enum Access {
    /// All clients: the answer contains only data that every client needs.
    Open,
    /// Clients with one of these operations on the cluster. The function answers all other clients.
    Cluster(&'static [Operation], Serve),
    /// Clients with permissions on the requested resources, which the API's function checks one by one.
    ByResource,
    /// The controller checks: the request is forwarded in the client's name.
    Controller,
}

/// Access for clients with one of these operations on the cluster.
pub const fn cluster<R>(operations: &'static [Operation]) -> Access
where
    R: Refuse,
    R::Response: 'static,
{
    Access::Cluster(operations, refuse::<R>)
}

impl Access {
    /// The function that refuses the request; `None` if the client may use the API.
    pub fn check(self, call: &Call) -> Option<Serve> {
        match self {
            Access::Cluster(operations, refuse) => {
                (!call.permissions.may_any_on_cluster(operations)).then_some(refuse)
            }
            Access::Open | Access::ByResource | Access::Controller => None,
        }
    }
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
pub fn not_on_cluster<R: Refuse>(request: &R, version: i16) -> R::Response {
    request.refuse(ErrorCode::ClusterAuthorizationFailed, Some(NOT_ON_CLUSTER), version)
}
