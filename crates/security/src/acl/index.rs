//! ACLs indexed in the order of a decision: resource type, principal, name, host. The cost of a decision
//! depends on the lengths of these texts and on the number of patterns of the principal that cover the name,
//! not on the number of ACLs. A clone shares all nodes, and a change copies one path.

use std::sync::Arc;

use super::table::Table;
use super::terms::{Acl, Operation, PatternType, Permission};
use super::trie::Trie;

const WILDCARD: &str = "*";
const EVERYONE: &str = "User:*";

/// The ACLs of one resource type.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    of_everyone: Option<Arc<Patterns>>,
    /// Patterns by principal; the second text is empty.
    of_principals: Table<Arc<Patterns>>,
    /// Hosts by principal and literal name: a copy of the literals in `Patterns`, for fast decisions.
    of_literals: Table<Hosts>,
    /// Numbers of ACLs for all principals, by literal name (the second text is empty) and by prefix.
    literals: Table<u32>,
    prefixes: Trie<u32>,
}

/// The ACLs of one principal, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    /// Literal names except `*`.
    literals: Trie<Arc<Hosts>>,
    prefixes: Trie<Arc<Hosts>>,
    /// The ACLs of the literal `*`.
    of_all: Option<Arc<Hosts>>,
}

/// The ACLs of one principal and pattern, by host.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    everywhere: Operations,
    somewhere: Trie<Operations>,
}

/// The ACLs of one principal, pattern and host, with their operations as bits.
#[derive(Clone, Debug, Default)]
struct Operations {
    denied: u16,
    allowed: u16,
    acls: AclList,
}

/// Usually a single ACL, which avoids an allocation.
#[derive(Clone, Debug, Default)]
enum AclList {
    #[default]
    None,
    One(Arc<Acl>),
    Many(Vec<Arc<Acl>>),
}

impl AclList {
    fn iter(&self) -> std::slice::Iter<'_, Arc<Acl>> {
        match self {
            AclList::None => [].iter(),
            AclList::One(acl) => std::slice::from_ref(acl).iter(),
            AclList::Many(acls) => acls.iter(),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, AclList::None)
    }

    fn of(mut acls: Vec<Arc<Acl>>) -> AclList {
        match acls.len() {
            0 => AclList::None,
            1 => acls.pop().map_or(AclList::None, AclList::One),
            _ => AclList::Many(acls),
        }
    }
}

/// The operations of ACLs that deny or allow a request, as bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationMask {
    denying: u16,
    allowing: u16,
}

fn bit(operation: Operation) -> u16 {
    1 << operation.code()
}

impl OperationMask {
    /// DESCRIBE and DESCRIBE_CONFIGS are also allowed by stronger operations. Denials imply nothing.
    pub fn of(operation: Operation) -> OperationMask {
        use Operation::*;
        let implied_by: &[Operation] = match operation {
            Describe => &[Read, Write, Delete, Alter],
            DescribeConfigs => &[AlterConfigs],
            _ => &[],
        };
        let exact = OperationMask::exactly(operation);
        let allowing = implied_by.iter().fold(exact.allowing, |bits, implying| bits | bit(*implying));
        OperationMask { allowing, ..exact }
    }

    /// Matches only ACLs for this operation or for all operations.
    pub fn exactly(operation: Operation) -> OperationMask {
        let bits = bit(operation) | bit(Operation::All);
        OperationMask { denying: bits, allowing: bits }
    }
}

/// The deciding ACL, if any.
#[derive(Clone, Copy, Debug)]
pub(super) enum AclVerdict<'a> {
    Denied(&'a Arc<Acl>),
    Allowed(&'a Arc<Acl>),
    /// No ACL decides. `is_covered` is true if an ACL of the principal or of `User:*` covers the name.
    Nothing {
        is_covered: bool,
    },
}

impl Operations {
    fn first(&self, permission: Permission, bits: u16) -> &Arc<Acl> {
        if let AclList::One(acl) = &self.acls {
            return acl;
        }
        let found =
            self.acls.iter().find(|acl| acl.permission == permission && bit(acl.operation) & bits != 0);
        found.expect("the bits are those of the rules")
    }

    /// Recomputes the bits after a change of the ACLs.
    fn count(&mut self) {
        let of = |permission| {
            let acls = self.acls.iter().filter(|acl| acl.permission == permission);
            acls.fold(0, |bits, acl| bits | bit(acl.operation))
        };
        (self.denied, self.allowed) = (of(Permission::Deny), of(Permission::Allow));
    }
}

impl Hosts {
    fn is_empty(&self) -> bool {
        self.everywhere.acls.is_empty() && self.somewhere.is_empty()
    }

    fn of(&self, host: &str) -> [Option<&Operations>; 2] {
        let here = if self.somewhere.is_empty() { None } else { self.somewhere.get(host) };
        [Some(&self.everywhere), here]
    }

    pub fn denial(&self, host: &str, asked: OperationMask) -> Option<&Arc<Acl>> {
        let mut rules = self.of(host).into_iter().flatten();
        let denying = rules.find(|rules| rules.denied & asked.denying != 0)?;
        Some(denying.first(Permission::Deny, asked.denying))
    }

    pub fn allowance(&self, host: &str, asked: OperationMask) -> Option<&Arc<Acl>> {
        let mut rules = self.of(host).into_iter().flatten();
        let allowing = rules.find(|rules| rules.allowed & asked.allowing != 0)?;
        Some(allowing.first(Permission::Allow, asked.allowing))
    }

    fn at(&self, host: &str) -> Option<&Operations> {
        if host == WILDCARD { Some(&self.everywhere) } else { self.somewhere.get(host) }
    }

    fn add(&mut self, acl: Arc<Acl>) {
        let rules = if acl.host == WILDCARD { &mut self.everywhere } else { self.somewhere.entry(&acl.host) };
        rules.acls = AclList::of(rules.acls.iter().cloned().chain([acl]).collect());
        rules.count();
    }

    fn remove(&mut self, acl: &Acl) {
        let host = &acl.host;
        let rules = if host == WILDCARD { &mut self.everywhere } else { self.somewhere.entry(host) };
        if let Some(at) = rules.acls.iter().position(|known| **known == *acl) {
            let mut left: Vec<_> = rules.acls.iter().cloned().collect();
            left.remove(at);
            rules.acls = AclList::of(left);
            rules.count();
        }
        if host != WILDCARD && rules.acls.is_empty() {
            self.somewhere.remove(host);
        }
    }
}

/// True if the literal `*` covers a name. In Kafka it does not cover longer names that begin with `*`.
fn is_covered_by_wildcard(name: &str) -> bool {
    name == WILDCARD || !name.starts_with('*')
}

impl Patterns {
    pub fn of_all(&self) -> Option<&Hosts> {
        self.of_all.as_deref()
    }

    /// The ACLs of literal names and of prefixes.
    pub fn literals_and_prefixes(&self) -> impl Iterator<Item = (&Hosts, PatternType)> {
        let literals = self.literals.values().map(|hosts| (&**hosts, PatternType::Literal));
        literals.chain(self.prefixes.values().map(|hosts| (&**hosts, PatternType::Prefixed)))
    }

    /// True if a pattern or one of its prefixes is denied.
    pub fn denies(&self, name: &str, pattern_type: PatternType, host: &str, asked: OperationMask) -> bool {
        let literal = Some(name).filter(|_| pattern_type == PatternType::Literal);
        let literal = literal.and_then(|name| self.literals.get(name));
        let prefixes = self.prefixes.prefixes_of(name);
        literal.into_iter().chain(prefixes).any(|hosts| hosts.denial(host, asked).is_some())
    }

    fn is_empty(&self) -> bool {
        self.literals.is_empty() && self.prefixes.is_empty() && self.of_all.is_none()
    }

    fn get(&self, name: &str, pattern_type: PatternType) -> Option<&Arc<Hosts>> {
        match pattern_type {
            PatternType::Prefixed => self.prefixes.get(name),
            _ if name == WILDCARD => self.of_all.as_ref(),
            _ => self.literals.get(name),
        }
    }

    fn entry(&mut self, name: &str, pattern_type: PatternType) -> &mut Arc<Hosts> {
        match pattern_type {
            PatternType::Prefixed => self.prefixes.entry(name),
            _ if name == WILDCARD => self.of_all.get_or_insert_default(),
            _ => self.literals.entry(name),
        }
    }

    fn remove(&mut self, name: &str, pattern_type: PatternType) {
        match pattern_type {
            PatternType::Prefixed => self.prefixes.remove(name),
            _ if name == WILDCARD => self.of_all = None,
            _ => self.literals.remove(name),
        }
    }
}

impl Index {
    /// The patterns of all principals and of this principal.
    pub fn of<'a>(&'a self, principal: &str) -> impl Iterator<Item = &'a Patterns> + use<'a> {
        let own = Some(principal).filter(|principal| *principal != EVERYONE);
        let own = own.and_then(|principal| self.of_principals.get((principal, "")));
        self.of_everyone.iter().chain(own).map(|patterns| &**patterns)
    }

    /// Finds an ACL that denies, else one that allows.
    pub fn find(&self, principal: &str, host: &str, asked: OperationMask, name: &str) -> AclVerdict<'_> {
        let (mut allowance, mut is_covered) = (None, false);
        let literal = |principal| self.of_literals.get((principal, name));
        let for_all = self.of_everyone.as_ref().filter(|everyone| !everyone.literals.is_empty());
        let by_name = match name {
            WILDCARD => [None, None],
            _ => [for_all.and_then(|_| literal(EVERYONE)), literal(principal)],
        };
        let by_pattern = self.of(principal).flat_map(|patterns| {
            let of_all = patterns.of_all().filter(|_| is_covered_by_wildcard(name));
            of_all.into_iter().chain(patterns.prefixes.prefixes_of(name).map(|hosts| &**hosts))
        });
        for hosts in by_name.into_iter().flatten().chain(by_pattern) {
            is_covered = true;
            if let Some(acl) = hosts.denial(host, asked) {
                return AclVerdict::Denied(acl);
            }
            if allowance.is_none() {
                allowance = hosts.allowance(host, asked);
            }
        }
        allowance.map_or(AclVerdict::Nothing { is_covered }, AclVerdict::Allowed)
    }

    /// True if an ACL of any principal covers the name.
    pub fn covers(&self, name: &str) -> bool {
        is_covered_by_wildcard(name) && self.literals.get((WILDCARD, "")).is_some()
            || self.literals.get((name, "")).is_some()
            || self.prefixes.prefixes_of(name).next().is_some()
    }

    /// True if exactly this ACL exists.
    pub fn contains(&self, acl: &Acl) -> bool {
        let patterns = match acl.principal.as_str() {
            EVERYONE => self.of_everyone.as_ref(),
            principal => self.of_principals.get((principal, "")),
        };
        patterns
            .and_then(|patterns| patterns.get(&acl.resource_name, acl.pattern_type))
            .and_then(|hosts| hosts.at(&acl.host))
            .is_some_and(|rules| rules.acls.iter().any(|known| **known == *acl))
    }

    pub fn add(&mut self, acl: &Arc<Acl>) {
        let name = &*acl.resource_name;
        let patterns = Arc::make_mut(self.patterns(&acl.principal));
        let hosts = patterns.entry(name, acl.pattern_type);
        Arc::make_mut(hosts).add(Arc::clone(acl));
        let hosts = Arc::clone(hosts);
        if acl.pattern_type == PatternType::Prefixed {
            *self.prefixes.entry(name) += 1;
        } else {
            *self.literals.entry((name, "")) += 1;
            *self.of_literals.entry((&acl.principal, name)) = Hosts::clone(&hosts);
        }
    }

    /// Removes an existing ACL ([`Index::contains`]).
    pub fn remove(&mut self, acl: &Acl) {
        let (name, principal) = (&*acl.resource_name, &*acl.principal);
        let patterns = Arc::make_mut(self.patterns(principal));
        let hosts = patterns.entry(name, acl.pattern_type);
        Arc::make_mut(hosts).remove(acl);
        let left = Some(Arc::clone(hosts)).filter(|hosts| !hosts.is_empty());
        if left.is_none() {
            patterns.remove(name, acl.pattern_type);
        }
        if patterns.is_empty() {
            match principal {
                EVERYONE => self.of_everyone = None,
                principal => self.of_principals.remove((principal, "")),
            }
        }
        if acl.pattern_type == PatternType::Prefixed {
            let count = self.prefixes.entry(name);
            *count -= 1;
            if *count == 0 {
                self.prefixes.remove(name);
            }
            return;
        }
        let count = self.literals.entry((name, ""));
        *count -= 1;
        if *count == 0 {
            self.literals.remove((name, ""));
        }
        match left {
            Some(left) => *self.of_literals.entry((principal, name)) = Hosts::clone(&left),
            None => self.of_literals.remove((principal, name)),
        }
    }

    fn patterns(&mut self, principal: &str) -> &mut Arc<Patterns> {
        match principal {
            EVERYONE => self.of_everyone.get_or_insert_default(),
            principal => self.of_principals.entry((principal, "")),
        }
    }
}
