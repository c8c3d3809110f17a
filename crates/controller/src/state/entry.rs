//! The entry of an API, in the file that decides its requests: access, place of the decision, bounds, use of
//! the disk's reserve, and the decision itself. This file decodes a request, calls its decision, and encodes
//! the response or refusal.

use std::sync::Arc;

use bytes::Bytes;
use thalweg_security::acl::Operation;
use thalweg_security::quota::MutationQuota;
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::{DescribeQuorumRequest, FetchRequest, FetchSnapshotRequest};
use thalweg_wire::{ApiKey, DecodeError, Decoder, EncodeError, ErrorCode, Message, Refuse, Response};

use super::{ApiError, Batch, Claim, Extent, Moment, MutationCall, Outcome, QuotaUse, State, Unwritable};
use crate::request_context::{RequestContext, Rulings};

/// Maximum total number of array elements in a request. Clients' requests lead to a bounded number of
/// records.
pub(super) const ELEMENTS_MAX: usize = 1_000_000;
/// As [`ELEMENTS_MAX`], for requests of brokers with one record per element.
pub(super) const ELEMENTS_OF_BROKERS_MAX: usize = 100_000;
/// As [`ELEMENTS_MAX`], for requests served on the task itself: the task is blocked meanwhile. A broker has
/// fewer directories, listeners and features.
const ELEMENTS_ON_TASK_MAX: usize = 10_000;

/// A served API: access, and the decision of its requests.
pub(crate) struct Api {
    pub key: ApiKey,
    access: Access,
    place: DecisionPlace,
    /// Maximum number of array elements in a request.
    pub elements_max: usize,
    extent: Extent,
    claim: Claim,
    /// True if brokers forward clients' requests of this API in envelopes (KIP-590).
    pub is_forwarded: bool,
    /// Decodes a request after its header. Envelopes are unwrapped before.
    pub read: Option<RequestReader>,
}

type RequestReader = fn(&mut Decoder, Call) -> Result<TaskRequest, DecodeError>;

/// The right that an API requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Everybody,
    /// An operation on the cluster.
    Cluster(Operation),
    /// Operations on the resources in the request, checked by the decision.
    ByResource,
}

/// The place where requests can be decided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DecisionPlace {
    /// Any copy of the state.
    Anywhere,
    /// Only the controller's task, for requests about the log or about sessions, which exist once.
    Task,
}

/// A request that the state decides. Unwritable records turn the decision into a refusal.
pub(crate) trait Decide: Refuse {
    fn decide(
        &self,
        state: &mut State,
        call: &Call,
        now: Moment,
    ) -> Result<Outcome<Self::Response>, ApiError>;
}

/// As [`Decide`], for requests with a mutation quota (KIP-599). The response has the client's throttle time.
pub(super) trait Mutate: Refuse {
    fn decide(
        &self,
        state: &mut State,
        call: &Call,
        quota: &mut MutationQuota,
    ) -> Result<Outcome<Self::Response>, ApiError>;
}

impl Api {
    /// An API that is decided by the controller's task, with records of one batch.
    pub const fn new<R: Decide + Send + 'static>(access: Access) -> Api {
        Api::undecided(R::KEY, access, Some(read::<R>))
    }

    /// As [`Api::new`], with a mutation quota.
    pub(super) const fn mutating<R: Mutate + Send + 'static>(access: Access) -> Api {
        Api::undecided(R::KEY, access, Some(read_mutating::<R>))
    }

    /// An API that the state does not decide.
    pub const fn undecided(key: ApiKey, access: Access, read: Option<RequestReader>) -> Api {
        Api {
            key,
            access,
            place: DecisionPlace::Task,
            elements_max: ELEMENTS_ON_TASK_MAX,
            extent: Extent::One,
            claim: Claim::Ordinary,
            is_forwarded: false,
            read,
        }
    }

    /// Decided on any copy of the state, with at most `elements_max` elements in a request.
    pub const fn anywhere(mut self, elements_max: usize) -> Api {
        self.place = DecisionPlace::Anywhere;
        self.elements_max = elements_max;
        self
    }

    /// With records of several batches, such as changes of all partitions of a broker.
    pub const fn in_batches(mut self) -> Api {
        self.extent = Extent::Several;
        self
    }

    /// With this claim on the reserve of the disk.
    pub const fn claiming(mut self, claim: Claim) -> Api {
        self.claim = claim;
        self
    }

    /// Also accepted in envelopes.
    pub const fn forwarded(mut self) -> Api {
        self.is_forwarded = true;
        self
    }

    /// Checks the right on the cluster that the API requires.
    pub fn authorize(&self, state: &State, by: &RequestContext) -> Result<(), ApiError> {
        match self.access {
            Access::Everybody | Access::ByResource => Ok(()),
            Access::Cluster(operation) if state.may_on_cluster(by, operation) => Ok(()),
            Access::Cluster(_) => Err(ApiError::plain(ErrorCode::ClusterAuthorizationFailed)),
        }
    }

    /// True if a request of this length may be decided outside the controller's task.
    pub fn is_large(&self, frame_len: usize) -> bool {
        frame_len >= LARGE_FRAME_BYTES && self.place == DecisionPlace::Anywhere
    }
}

/// Length from which on frames are decoded on a thread, and decided outside the controller's task, in bytes.
pub(crate) const LARGE_FRAME_BYTES: usize = 16 * 1024;

/// A request's header and sender.
#[derive(Clone)]
pub(crate) struct Call {
    pub api: &'static Api,
    pub version: i16,
    pub correlation_id: i32,
    pub is_large: bool,
    pub by: Arc<RequestContext>,
}

/// A request to the controller's task.
pub(crate) enum TaskRequest {
    /// Decided by the state.
    Decide {
        decide: Decider,
        /// True if the request may take long and can be decided on a copy of the state.
        is_large: bool,
    },
    /// Served from the log.
    Fetch {
        request: FetchRequest,
        call: Call,
    },
    FetchSnapshot {
        request: FetchSnapshotRequest,
        call: Call,
    },
    DescribeQuorum {
        request: DescribeQuorumRequest,
        call: Call,
    },
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.key.fmt(f)
    }
}

impl std::fmt::Debug for TaskRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TaskRequest::Decide { .. } => "Decide",
            TaskRequest::Fetch { .. } => "Fetch",
            TaskRequest::FetchSnapshot { .. } => "FetchSnapshot",
            TaskRequest::DescribeQuorum { .. } => "DescribeQuorum",
        })
    }
}

/// A decoded request, which may be decided more than once.
pub(crate) type Decider = Box<dyn Fn(&mut State, Moment) -> Decision + Send>;

/// A pending decision: the records to write, and the answer to send after the write.
pub(crate) struct Decision {
    pub batch: Batch,
    pub claim: Claim,
    /// The reason why the records cannot be written; the answer is then a refusal.
    pub unwritable: Option<Unwritable>,
    pub answer: Result<Bytes, EncodeError>,
    /// The use of the client's mutation quota.
    pub spent: Option<QuotaUse>,
    /// The authorization decisions to log or to note.
    pub rulings: Option<Rulings>,
}

impl Call {
    /// Authorizes and decides a request.
    fn decide<R: Refuse>(
        &self,
        state: &mut State,
        request: &R,
        decide: impl FnOnce(&mut State) -> Result<Outcome<R::Response>, ApiError>,
    ) -> UnencodedDecision<R::Response> {
        let outcome = self.api.authorize(state, &self.by).and_then(|()| decide(state));
        let (batch, unwritable, response) = match outcome {
            Err(error) => (Batch::default(), None, self.refuse(request, &error)),
            Ok(Outcome { records, response }) => match state.prepare(records, self.api.extent) {
                Ok(batch) => (batch, None, response),
                Err(unwritable) => {
                    let response = self.refuse(request, &ApiError::from(&unwritable));
                    (Batch::default(), Some(unwritable), response)
                }
            },
        };
        UnencodedDecision { batch, unwritable, response }
    }

    fn refuse<R: Refuse>(&self, request: &R, error: &ApiError) -> R::Response {
        tracing::debug!(api = ?R::KEY, code = %error.code, message = error.message, "Rejected a request");
        request.refuse(error.code, error.message.as_deref(), self.version)
    }

    /// The frame of a response.
    pub fn encode<M: Message>(&self, response: &M) -> Result<Bytes, EncodeError> {
        encode(response, self.api.key, self.version, self.correlation_id)
    }

    fn complete<M: Message>(&self, decided: UnencodedDecision<M>, spent: Option<QuotaUse>) -> Decision {
        let UnencodedDecision { batch, unwritable, response } = decided;
        let answer = self.encode(&response);
        let rulings = self.by.take_rulings();
        Decision { batch, claim: self.api.claim, unwritable, answer, spent, rulings }
    }
}

/// A decision whose response is not encoded yet.
struct UnencodedDecision<M> {
    batch: Batch,
    unwritable: Option<Unwritable>,
    response: M,
}

fn read<R: Decide + Send + 'static>(d: &mut Decoder, call: Call) -> Result<TaskRequest, DecodeError> {
    let request = R::decode(d, call.version)?;
    let is_large = call.is_large;
    let decide: Decider = Box::new(move |state, now| {
        let decided = call.decide(state, &request, |state| request.decide(state, &call, now));
        call.complete(decided, None)
    });
    Ok(TaskRequest::Decide { decide, is_large })
}

fn read_mutating<R: Mutate + Send + 'static>(
    d: &mut Decoder,
    call: Call,
) -> Result<TaskRequest, DecodeError> {
    let request = R::decode(d, call.version)?;
    let is_large = call.is_large;
    let decide: Decider = Box::new(move |state, now| {
        let mutation = MutationCall {
            api: R::KEY,
            version: call.version,
            requester: call.by.requester(),
            client_id: call.by.client_id().unwrap_or_default(),
        };
        let (mut quota, limited) = state.mutation_quota(&mutation, now);
        let mut decided = call.decide(state, &request, |state| request.decide(state, &call, &mut quota));
        if let Some(throttle_time_ms) = decided.response.throttle_time_ms() {
            *throttle_time_ms = i32::try_from(quota.throttle_ms()).unwrap_or(i32::MAX);
        }
        let spent = limited.map(|(sharers, limit)| QuotaUse { sharers, limit, quota });
        call.complete(decided, spent)
    });
    Ok(TaskRequest::Decide { decide, is_large })
}

/// The bytes of a response without a length prefix.
pub(crate) fn encode<M: Message>(
    response: &M,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
) -> Result<Bytes, EncodeError> {
    let (frame, gaps) = frame::encode_response(response, api, version, correlation_id)?;
    debug_assert!(gaps.is_empty(), "a controller's records are in memory");
    Ok(frame.freeze().slice(LENGTH_LEN..))
}
