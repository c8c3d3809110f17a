//! The embedded single-voter controller: metadata log, registration, placement, elections, in-sync replicas.
//!
//! It speaks KRaft's requests and nothing else: a frame in, a frame out ([`Controller::handle`]), the same bytes as a
//! controller of Apache Kafka, so that a broker need not know which one it uses.
//!
//! - `state/` decides: a request and the time make records and a response. Pure. Each file begins with the entries of its
//!   APIs: rights, bounds, decision.
//! - `quorum/` keeps the metadata log in `__cluster_metadata-0`, in Kafka's format, with its snapshots, and serves it
//!   to observers.
//! - `driver` is the one task that owns both: it appends decisions, syncs them, and only then answers. One sync
//!   serves all requests that arrived meanwhile.
//! - `dispatch` reads frames by the entries of the served APIs.
//! - `asker` collects the decisions about a request, which the task logs once they count.
//!
//! Deliberately absent: a vote. The quorum has one member, which begins a new epoch each time it starts.

mod asker;
mod controller;
mod dispatch;
mod driver;
mod options;
mod published;
mod quorum;
mod requester;
mod state;

pub use asker::Witness;
pub use controller::Controller;
pub use dispatch::{HandleError, serves, takes_forwarded};
pub use options::{
    ConfigRefusal, ConfigRules, ControllerOptions, EffectiveConfig, default_supported_features,
};
pub use published::{ControllerFigures, MutationFigures};
pub use quorum::{QuorumStateError, Remedy, SnapshotError, StartError};
pub use requester::Requester;
pub use state::{ComparedElection, Undecided};
