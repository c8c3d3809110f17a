//! The permissions of a request's client, and the log of decisions.
//!
//! [`Permissions`] are created for each request and use the authorizer in force. Without an authorizer
//! everything is allowed, at the cost of one branch. The entry and the file of each API (`api`) show the
//! permissions that it needs.

mod cluster;
mod permissions;

pub use cluster::ClusterRights;
pub use permissions::{Denials, Permissions};
