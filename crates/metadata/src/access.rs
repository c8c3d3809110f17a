//! State for authentication and authorisation: access control entries, SCRAM credentials, delegation tokens.

use bytes::Bytes;

/// An access control entry; the numbers are Kafka's ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessControlEntry {
    /// The kind of resource.
    pub resource_type: i8,
    /// Its name, or a prefix of names.
    pub resource_name: String,
    /// Whether the name is literal or a prefix.
    pub pattern_type: i8,
    /// The principal.
    pub principal: String,
    /// From where.
    pub host: String,
    /// The operation.
    pub operation: i8,
    /// Allowed or denied.
    pub permission_type: i8,
}

/// A user's credential for one SCRAM mechanism.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramCredential {
    /// The salt.
    pub salt: Bytes,
    /// The stored key.
    pub stored_key: Bytes,
    /// The server key.
    pub server_key: Bytes,
    /// How often the hash was applied.
    pub iterations: i32,
}

/// A delegation token. Times are milliseconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelegationToken {
    /// On whose behalf.
    pub owner: String,
    /// The requester.
    pub requester: String,
    /// Principals that may renew it.
    pub renewers: Vec<String>,
    /// When it was issued.
    pub issue_timestamp: i64,
    /// Until when it can be renewed.
    pub max_timestamp: i64,
    /// Until when it holds.
    pub expiration_timestamp: i64,
}
