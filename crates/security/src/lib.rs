//! Authentication and authorization of peers.
//!
//! Owns: principals, ACLs and decisions; SASL mechanisms; the secret of delegation tokens; quotas and their
//! throttle times; certificates, keys and TLS settings; the display and quoting of untrusted texts. Has no
//! clock, network or randomness: the caller passes those in. Reads files only if a setting names a store.
//! Refuses knowledge of requests, connections and the metadata image. Shared by clients and servers.

pub mod acl;
mod delegation;
mod der;
mod names;
mod principal;
pub mod quota;
pub mod sasl;
mod secrets;
mod setting;
mod setting_file;
pub mod shell;
pub mod stores;
pub mod tls;
pub mod visible;

pub use delegation::DelegationTokenSecret;
pub use names::{InvalidRule, NoMatchingRule, PrincipalMapping, distinguished_name};
pub use principal::{ParsePrincipalError, Principal};
pub use secrets::{HIDDEN, is_secret};
pub use setting::{InvalidSetting, SettingSource, take_first};
