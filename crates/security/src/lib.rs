//! Who a peer is, and what it may do.
//!
//! Owns: principals, ACLs and decisions on them, and the mechanisms of SASL. Pure: no I/O, no clock, no randomness; the
//! state, the time and the nonces are given by the caller. Refuses: to know requests, connections and the metadata image.
//! Shared by clients and servers.

pub mod acl;
mod principal;
pub mod sasl;

pub use principal::{ParsePrincipalError, Principal};
