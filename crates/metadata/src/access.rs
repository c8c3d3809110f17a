//! State for authentication and authorisation: access control entries, SCRAM credentials, delegation tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use thalweg_security::acl::{Acl, InvalidAcl, RawAcl};
use thalweg_wire::Uuid;

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

impl AccessControlEntry {
    /// As decisions need it. Numbers of a later Kafka make none.
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

/// The access control entries by their ids. A copy shares them, and a change copies a small part of the map: there may be
/// 100,000 of them.
#[derive(Clone, Debug, Default)]
pub struct AccessControlEntries {
    /// By the first byte of the id, which is random.
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
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An entry by its id.
    pub fn get(&self, id: Uuid) -> Option<&Arc<AccessControlEntry>> {
        self.parts.get(&part(id))?.get(&id)
    }

    /// All of them, in the order of their ids.
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

    /// The ids whose entries are not the same in both.
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
