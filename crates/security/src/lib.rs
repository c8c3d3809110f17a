//! Who a peer is, and what it may do.
//!
//! Owns: principals, ACLs and decisions on them; certificates, keys and the settings of TLS, for clients and servers. No
//! clock and no network; files are read only where a setting names a store. Refuses: to know requests, connections and the
//! metadata image.

pub mod acl;
mod der;
mod names;
mod principal;
mod secrets;
mod setting;
pub mod stores;
pub mod tls;

pub use names::{InvalidRule, NoMatchingRule, PrincipalMapping, distinguished_name};
pub use principal::{ParsePrincipalError, Principal};
pub use secrets::{HIDDEN, is_secret};
pub use setting::{InvalidSetting, Take, take_first};
