//! Who a peer is, and what it may do.
//!
//! Owns: principals, ACLs and decisions on them; the mechanisms of SASL; the secret of delegation tokens; quotas and the pauses that they ask for;
//! certificates, keys and the settings of TLS; how texts of strangers are shown. No clock, no network, no randomness: they are given by the caller; files are
//! read only where a setting names a store. Refuses: to know requests, connections and the metadata image. Shared by
//! clients and servers.

pub mod acl;
mod delegation;
mod der;
mod names;
mod principal;
pub mod quota;
pub mod sasl;
mod secrets;
mod setting;
pub mod stores;
pub mod tls;
pub mod visible;

pub use delegation::DelegationTokenSecret;
pub use names::{InvalidRule, NoMatchingRule, PrincipalMapping, distinguished_name};
pub use principal::{ParsePrincipalError, Principal};
pub use secrets::{HIDDEN, is_secret};
pub use setting::{InvalidSetting, Take, take_first};
