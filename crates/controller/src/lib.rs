//! The embedded single-voter controller: metadata log, registration, placement, elections, in-sync replicas.
//!
//! The controller serves only KRaft's requests: a frame in, a frame out ([`Controller::handle`]), with the
//! same bytes as Apache Kafka's controller, so that brokers work with either.
//!
//! - `state/` decides: a request and the time make records and a response. Pure. Each file begins with the
//!   entries of its APIs: rights, bounds, decision.
//! - `quorum/` keeps the metadata log in `__cluster_metadata-0`, in Kafka's format, with its snapshots, and
//!   serves it to observers.
//! - `driver` is the one task that owns both: it appends decisions, syncs them, and only then answers. One
//!   sync serves all requests that arrived meanwhile.
//! - `dispatch` decodes frames by the entries of the served APIs.
//! - `request_context` collects the authorization decisions on a request, which the task logs when they are
//!   final.
//!
//! Deliberately absent: voting. The quorum has one member, which starts a new epoch at each start.

mod controller;
mod dispatch;
mod driver;
mod options;
mod published;
mod quorum;
mod request_context;
mod requester;
mod state;

pub use controller::Controller;
pub use dispatch::{HandleError, serves, takes_forwarded};
pub use options::{
    ConfigRefusal, ConfigRules, ControllerOptions, EffectiveConfig, default_supported_features,
};
pub use published::{ControllerFigures, MutationFigures};
pub use quorum::{ControllerStartError, QuorumStateError, Remedy, SnapshotError};
pub use request_context::Witness;
pub use requester::Requester;
pub use state::{ComparedElection, UndecidedPartition};
