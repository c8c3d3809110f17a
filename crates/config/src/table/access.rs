//! Keys of access control: who decides, and by which rules beside the ACLs of the metadata log.
//!
//! The keys of Kafka's `StandardAuthorizer` are its own, not the broker's; here they are declared like all others.

use thalweg_security::Principal;

use super::super::check::{ANY, NOT_NULL, SUPER_USERS, super_users};
use super::super::key::Support::Served;
use super::declare::settings;

/// The only authorizer that there is.
pub const STANDARD_AUTHORIZER_CLASS: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

settings! {
    /// Whether requests are authorized.
    AccessSettings, ACCESS "Access control";

    "authorizer.class.name": String = "", NOT_NULL, Low, ReadOnly, Served => has_authorizer: bool = is_named,
        "`org.apache.kafka.metadata.authorizer.StandardAuthorizer` authorizes requests by the ACLs of the metadata log; empty, everybody may do everything. Other classes are refused: Java classes cannot be loaded.";
}

settings! {
    /// What holds whatever the ACLs say.
    StandardAuthorizerSettings, STANDARD_AUTHORIZER "StandardAuthorizer";

    "super.users": String = "", SUPER_USERS, Medium, ReadOnly, Served => super_users: Vec<Principal> = principals,
        "Principals that may do everything, separated by semicolons: `User:admin;User:CN=broker-1,O=example`. A cluster's brokers and controllers must be among them, or have an ACL for CLUSTER_ACTION.",
        differs = "In Kafka it is a key of the authorizer, not of the broker.";
    "allow.everyone.if.no.acl.found": Boolean = "false", ANY, Medium, ReadOnly, Served => allow_everyone_if_no_acl_found: bool,
        "Whether everybody may do everything on a resource for which there is no ACL at all.",
        differs = "In Kafka it is a key of the authorizer, not of the broker, and everything but `true` is false.";
}

fn is_named(class: String) -> bool {
    !class.is_empty()
}

fn principals(text: String) -> Vec<Principal> {
    super_users(&text).expect("the key's check parsed them")
}
