//! State of authentication and authorization: access control entries, SCRAM credentials, delegation tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use thalweg_security::acl::{Acl, InvalidAcl, RawAcl};
use thalweg_wire::Uuid;

/// An access control entry, with Kafka's numeric codes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessControlEntry {
    /// The resource type.
    pub resource_type: i8,
    /// The resource name, or a name prefix.
    pub resource_name: String,
    /// The pattern type: literal or prefixed.
    pub pattern_type: i8,
    /// The principal, such as `User:alice`.
    pub principal: String,
    /// The host of the principal; `*` for all.
    pub host: String,
    /// The operation code.
    pub operation: i8,
    /// The permission type: allow or deny.
    pub permission_type: i8,
}

impl AccessControlEntry {
    /// The ACL for decisions. Codes of a later Kafka are an error.
    pub fn to_acl(&self) -> Result<Acl, InvalidAcl> {
        Acl::from_record(RawAcl {
            resource_type: self.resource_type,
            resource_name: &self.resource_name,
            pattern_type: self.pattern_type,
            principal: &self.principal,
            host: &self.host,
            operation: self.operation,
            permission: self.permission_type,
        })
    }
}

/// Access control entries by id. A clone shares all entries, and a change copies a small part of the map,
/// which may hold 100,000 entries.
#[derive(Clone, Debug, Default)]
pub struct AccessControlEntries {
    /// Parts by the first byte of the id, which is random.
    parts: BTreeMap<u8, Arc<Part>>,
    len: usize,
}

type Part = BTreeMap<Uuid, Arc<AccessControlEntry>>;

impl PartialEq for AccessControlEntries {
    fn eq(&self, other: &AccessControlEntries) -> bool {
        self.parts == other.parts
    }
}

fn part(id: Uuid) -> u8 {
    id.0.to_be_bytes()[0]
}

impl AccessControlEntries {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry with this id.
    pub fn get(&self, id: Uuid) -> Option<&Arc<AccessControlEntry>> {
        self.parts.get(&part(id))?.get(&id)
    }

    /// All entries in id order.
    pub fn iter(&self) -> impl Iterator<Item = (Uuid, &Arc<AccessControlEntry>)> {
        self.parts.values().flat_map(|part| part.iter()).map(|(id, entry)| (*id, entry))
    }

    pub(crate) fn insert(&mut self, id: Uuid, entry: AccessControlEntry) {
        let part = Arc::make_mut(self.parts.entry(part(id)).or_default());
        self.len += usize::from(part.insert(id, Arc::new(entry)).is_none());
    }

    pub(crate) fn remove(&mut self, id: Uuid) -> bool {
        let Some(entries) = self.parts.get_mut(&part(id)).filter(|part| part.contains_key(&id)) else {
            return false;
        };
        let entries = Arc::make_mut(entries);
        entries.remove(&id);
        if entries.is_empty() {
            self.parts.remove(&part(id));
        }
        self.len -= 1;
        true
    }

    /// The ids of entries that differ from `base`.
    pub(crate) fn changed_since(&self, base: &AccessControlEntries) -> BTreeSet<Uuid> {
        let bytes: BTreeSet<&u8> = self.parts.keys().chain(base.parts.keys()).collect();
        let mut changed = BTreeSet::new();
        for byte in bytes {
            let (before, after) = (base.parts.get(byte), self.parts.get(byte));
            if before == after {
                continue;
            }
            let ids = [before, after].into_iter().flatten().flat_map(|part| part.keys());
            changed.extend(ids.filter(|id| base.get(**id) != self.get(**id)));
        }
        changed
    }
}

/// A user's credential for one SCRAM mechanism.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramCredential {
    /// The salt of the password hash.
    pub salt: Bytes,
    /// The digest of the client key.
    pub stored_key: Bytes,
    /// The server's signing key.
    pub server_key: Bytes,
    /// The number of hash iterations.
    pub iterations: i32,
}

/// A delegation token. Times are milliseconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelegationToken {
    /// The principal of the token.
    pub owner: String,
    /// The principal that requested the token.
    pub requester: String,
    /// Principals that may renew the token.
    pub renewers: Vec<String>,
    /// The issue time.
    pub issue_timestamp: i64,
    /// The time until which the token can be renewed.
    pub max_timestamp: i64,
    /// The expiry time.
    pub expiration_timestamp: i64,
}
