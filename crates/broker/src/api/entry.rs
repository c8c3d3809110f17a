//! The entry of an API, in the API's own file: versions, access, costs, function.
//!
//! An entry's closure picks the parts of the broker that the function uses, so that a signature shows what the API touches.
//! A function that uses more than three parts takes the whole [`Broker`].

use super::Call;
use super::serve::access::Access;
pub(super) use super::serve::access::Access::{ByResource, Controller, Open};
pub(super) use super::serve::access::cluster;
use super::serve::slow::{self, Stage};
use crate::audit::{self, ClusterChange, Describe};
use crate::broker::Broker;
use crate::request_metrics::{milliseconds, timed};
use bytes::Bytes;
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use thalweg_config::BrokerConfig;
use thalweg_net::Reply;
use thalweg_wire::{ApiKey, DecodeError, Decoder, Request};

pub(super) type Serve = fn(&Arc<Broker>, Call, Decoder) -> Result<Reply, DecodeError>;

/// An API that is served: key, versions, access, function.
pub struct Api {
    /// The key.
    pub key: ApiKey,
    /// The first version served.
    pub min: i16,
    /// The last version served, unless [`Api::last`] decides otherwise.
    pub max: i16,
    pub(super) access: Access,
    pub(super) cost: Cost,
    /// Whether its requests wait by their nature: for records, or for other members.
    pub(super) waits: bool,
    pub(super) forwarded: Option<Forwarding>,
    /// The audit events of a request that changes the cluster.
    pub(crate) describe: Option<Describe>,
    pub(super) serve: Serve,
}

/// Which requests take so long that they must not block a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// Long ones.
    ByLength,
    /// Long ones, and all where there are many topics: they go through them.
    ByTopics,
    /// All: they go through all entries of some kind.
    Always,
    /// None: the API divides its work itself.
    Own,
}

/// The effect of a forwarded request at the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarding {
    /// It changes the cluster: the answer waits until this broker's image shows the change.
    Changes,
    /// It reads.
    Reads,
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
            describe: None,
            serve,
        }
    }

    /// With other costs than by length.
    pub(super) const fn cost(mut self, cost: Cost) -> Api {
        self.cost = cost;
        self
    }

    /// Whose requests wait by their nature.
    pub(super) const fn waits(mut self) -> Api {
        self.waits = true;
        self
    }

    /// Whose requests, or some of them, are forwarded to the controller.
    pub(super) const fn forwarded(mut self, forwarded: Forwarding) -> Api {
        self.forwarded = Some(forwarded);
        self
    }

    /// Whose requests change the cluster.
    pub(super) const fn changing<R: ClusterChange>(mut self) -> Api {
        self.describe = Some(audit::describe::<R>);
        self
    }

    /// The last version that this broker serves: with `unstable.api.versions.enable` also one that Kafka still develops.
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
