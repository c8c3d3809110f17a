//! Agents: programs on client machines, which run the lab's workers there, and on brokers' machines, which
//! they watch.
//!
//! An agent serves one request per connection (`protocol`), of one lab at a time: facts of its machine, its
//! clock, the paths to brokers, the rate of the connection, a worker, the usage of its machine, the brokers
//! on it and their log files. With the end of the connection, the worker of the request is killed and the
//! sampling stops. So an agent has no state beyond its connections, and a lost lab leaves nothing behind.
//!
//! - [`listen`] starts the agent; `relay` is its side of a worker.
//! - [`Agents`] is the lab's view of the agents of a run; `clock` measures their clocks, `paths` their paths;
//!   `placement` chooses the agent of each worker; `watch` are the requests to agents of brokers'
//!   machines, whose side is `brokers`, `listeners` and `own_addresses`.
//! - [`Security`] is mutual TLS, by certificates of an authority that exists for this only.
//!
//! Versions must be equal, because the assignments of workers have no versions. Every step has a time limit,
//! and a silent peer ends its connection by TCP's keep-alive.

mod agents;
mod brokers;
mod clock;
mod error;
mod facts;
mod listeners;
mod own_addresses;
mod paths;
mod placement;
mod protocol;
mod relay;
mod security;
mod server;
#[cfg(test)]
mod tests;
mod watch;

pub use agents::{Agents, AgentsOptions, MachineUse};
pub(crate) use brokers::AdvertisedBroker;
pub use error::AgentError;
pub(crate) use paths::check_all as broker_paths;
pub use placement::Placement;
pub use security::{CertificateFiles, Insecure, Security, make_certificates};
pub use server::{AgentOptions, Listening, listen};
