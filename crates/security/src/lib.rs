//! Who a peer is, and what it may do.
//!
//! Owns: principals, ACLs and decisions on them, quotas and the pauses that they ask for. Pure: no I/O, no clock; the
//! state is given by the caller. Refuses: to know requests, connections and the metadata image. Shared by clients and
//! servers.

pub mod acl;
mod principal;
pub mod quota;

pub use principal::{ParsePrincipalError, Principal};
