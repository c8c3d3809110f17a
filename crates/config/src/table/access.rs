//! Keys of access control: the authorizer, its rules besides the ACLs of the metadata log, and delegation
//! tokens.
//!
//! Kafka declares the keys of `StandardAuthorizer` in the authorizer; here they are declared like all other
//! keys.

use std::time::Duration;

use thalweg_security::{DelegationTokenSecret, Principal};

use super::declare::settings;
use crate::check::{ANY, NOT_NULL, SUPER_USERS, at_least, super_users};
use crate::key::Support::Served;
use crate::setting::SecretText;

/// The only supported authorizer.
pub const STANDARD_AUTHORIZER_CLASS: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

settings! {
    /// The authorizer class.
    AccessSettings, ACCESS "Access control";

    "authorizer.class.name": String = "", NOT_NULL, Low, ReadOnly, Served => has_authorizer: bool = is_named,
        "`org.apache.kafka.metadata.authorizer.StandardAuthorizer` authorizes requests by the ACLs of the metadata log; empty, everybody may do everything. Other classes are refused: Java classes cannot be loaded.";
}

settings! {
    /// Rules with priority over ACLs.
    StandardAuthorizerSettings, STANDARD_AUTHORIZER "StandardAuthorizer";

    "super.users": String = "", SUPER_USERS, Medium, ReadOnly, Served => super_users: Vec<Principal> = principals,
        "Principals that may do everything, separated by semicolons: `User:admin;User:CN=broker-1,O=example`. A cluster's brokers and controllers must be among them, or have an ACL for CLUSTER_ACTION.",
        differs = "In Kafka it is a key of the authorizer, not of the broker.";
    "allow.everyone.if.no.acl.found": Boolean = "false", ANY, Medium, ReadOnly, Served => allow_everyone_if_no_acl_found: bool,
        "Whether everybody may do everything on a resource for which there is no ACL at all.",
        differs = "In Kafka it is a key of the authorizer, not of the broker, and everything but `true` is false.";
}

settings! {
    /// Delegation tokens (KIP-48).
    DelegationTokenSettings, DELEGATION_TOKENS "Delegation tokens";

    "delegation.token.secret.key": Password = null, ANY, Medium, ReadOnly, Served => secret_key: Option<DelegationTokenSecret> = token_secret,
        "The secret for signing delegation tokens. It must be the same on all brokers and controllers; without it, or empty, there are no delegation tokens.";
    "delegation.token.max.lifetime.ms": Long[Ms] = "604800000", at_least(1), Medium, ReadOnly, Served => max_lifetime: Duration,
        "The maximum lifetime of a delegation token: it cannot be renewed past it.";
    "delegation.token.expiry.time.ms": Long[Ms] = "86400000", at_least(1), Medium, ReadOnly, Served => expiry_time: Duration,
        "How long a delegation token lasts without renewal.";
    "delegation.token.expiry.check.interval.ms": Long[Ms] = "3600000", at_least(1), Low, ReadOnly, Served => expiry_check_interval: Duration,
        "How often the controller removes expired delegation tokens. They are refused before that.";
}

fn token_secret(text: Option<SecretText>) -> Option<DelegationTokenSecret> {
    text.and_then(|text| DelegationTokenSecret::new(text.0))
}

fn is_named(class: String) -> bool {
    !class.is_empty()
}

fn principals(text: String) -> Vec<Principal> {
    super_users(&text).expect("the key's check parsed them")
}
