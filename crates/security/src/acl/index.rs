//! ACLs in the order in which decisions ask for them: kind of resource, principal, name, host. What an answer costs follows
//! from the lengths of these texts and from how many patterns of the principal cover the name, not from how many ACLs there
//! are. A copy shares everything; a change copies one path.

use std::sync::Arc;

use super::terms::{Acl, Operation, PatternType, Permission};
use super::trie::Trie;

const WILDCARD: &str = "*";
const EVERYONE: &str = "User:*";

/// The rules of a kind of resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    of_everyone: Option<Arc<Patterns>>,
    of_principals: Trie<Arc<Patterns>>,
    /// How many rules each pattern has, whoever they are for.
    counts: Trie<Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    literal: u32,
    prefixed: u32,
}

/// What one principal may do, by names.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    /// Literal names, `*` among them, and prefixes.
    names: Trie<Named>,
    /// The rules of the literal `*`, beside their place in `names`.
    of_all: Option<Arc<Hosts>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub literal: Option<Arc<Hosts>>,
    pub prefixed: Option<Arc<Hosts>>,
}

/// What one principal may do on one pattern, by hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    everywhere: Operations,
    somewhere: Trie<Operations>,
}

/// The rules of one principal, pattern and host: the operations as bits, and the rules themselves.
#[derive(Clone, Debug, Default)]
struct Operations {
    denied: u16,
    allowed: u16,
    acls: Vec<Arc<Acl>>,
}

/// What is asked: the bits of the operations of rules that deny it, and of those that allow it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    denying: u16,
    allowing: u16,
}

fn bit(operation: Operation) -> u16 {
    1 << operation.code()
}

impl Asked {
    /// Whoever may do more than describe may describe. A denial is meant as it says.
    pub fn of(operation: Operation) -> Asked {
        use Operation::*;
        let implied_by: &[Operation] = match operation {
            Describe => &[Read, Write, Delete, Alter],
            DescribeConfigs => &[AlterConfigs],
            _ => &[],
        };
        let exact = Asked::exactly(operation);
        let allowing = implied_by.iter().fold(exact.allowing, |bits, implying| bits | bit(*implying));
        Asked { allowing, ..exact }
    }

    /// By rules for this operation, or for all.
    pub fn exactly(operation: Operation) -> Asked {
        let bits = bit(operation) | bit(Operation::All);
        Asked { denying: bits, allowing: bits }
    }
}

/// The rules that decide, if any.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    Denied(&'a Arc<Acl>),
    Allowed(&'a Arc<Acl>),
    Nothing,
}

impl Operations {
    fn first(&self, permission: Permission, bits: u16) -> &Arc<Acl> {
        let found =
            self.acls.iter().find(|acl| acl.permission == permission && bit(acl.operation) & bits != 0);
        found.expect("the bits are those of the rules")
    }

    /// Counts the bits again after a change of the rules.
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

    pub fn denial(&self, host: &str, asked: Asked) -> Option<&Arc<Acl>> {
        let mut rules = self.of(host).into_iter().flatten();
        let denying = rules.find(|rules| rules.denied & asked.denying != 0)?;
        Some(denying.first(Permission::Deny, asked.denying))
    }

    pub fn allowance(&self, host: &str, asked: Asked) -> Option<&Arc<Acl>> {
        let mut rules = self.of(host).into_iter().flatten();
        let allowing = rules.find(|rules| rules.allowed & asked.allowing != 0)?;
        Some(allowing.first(Permission::Allow, asked.allowing))
    }

    fn at(&self, host: &str) -> Option<&Operations> {
        if host == WILDCARD { Some(&self.everywhere) } else { self.somewhere.get(host) }
    }

    fn add(&mut self, acl: Arc<Acl>) {
        let rules = if acl.host == WILDCARD { &mut self.everywhere } else { self.somewhere.entry(&acl.host) };
        rules.acls.push(acl);
        rules.count();
    }

    fn remove(&mut self, acl: &Acl) {
        let host = &acl.host;
        let rules = if host == WILDCARD { &mut self.everywhere } else { self.somewhere.entry(host) };
        if let Some(at) = rules.acls.iter().position(|known| **known == *acl) {
            rules.acls.remove(at);
            rules.count();
        }
        if host != WILDCARD && rules.acls.is_empty() {
            self.somewhere.remove(host);
        }
    }
}

/// Whether the literal `*` covers a name. Kafka takes it for a common literal where a longer name begins with it.
fn is_covered_by_wildcard(name: &str) -> bool {
    name == WILDCARD || !name.starts_with('*')
}

impl Named {
    fn is_empty(&self) -> bool {
        self.literal.is_none() && self.prefixed.is_none()
    }

    fn of(&self, pattern: PatternType) -> &Option<Arc<Hosts>> {
        if pattern == PatternType::Prefixed { &self.prefixed } else { &self.literal }
    }

    fn of_mut(&mut self, pattern: PatternType) -> &mut Option<Arc<Hosts>> {
        if pattern == PatternType::Prefixed { &mut self.prefixed } else { &mut self.literal }
    }
}

impl Patterns {
    pub fn of_all(&self) -> Option<&Hosts> {
        self.of_all.as_deref()
    }

    pub fn values(&self) -> impl Iterator<Item = &Named> {
        self.names.values()
    }

    /// Whether a literal name is denied, or a prefix of it.
    pub fn denies(&self, name: &str, is_literal: bool, host: &str, asked: Asked) -> bool {
        self.names.prefixes_of(name).any(|(length, named)| {
            let denies = |hosts: &Option<Arc<Hosts>>| {
                hosts.as_ref().is_some_and(|hosts| hosts.denial(host, asked).is_some())
            };
            denies(&named.prefixed) || is_literal && length == name.len() && denies(&named.literal)
        })
    }
}

impl Index {
    /// The rules for everyone, and those for a principal.
    pub fn of<'a>(&'a self, principal: &str) -> impl Iterator<Item = &'a Patterns> + use<'a> {
        let own = if principal == EVERYONE { None } else { self.of_principals.get(principal) };
        self.of_everyone.iter().chain(own).map(|patterns| &**patterns)
    }

    /// A rule that denies, or else one that allows.
    pub fn find(&self, principal: &str, host: &str, asked: Asked, name: &str) -> Found<'_> {
        let mut allowance = None;
        for patterns in self.of(principal) {
            let of_all = patterns.of_all().filter(|_| name != WILDCARD && is_covered_by_wildcard(name));
            let named = patterns.names.prefixes_of(name);
            let named = named.flat_map(|(length, named)| {
                let literal = named.literal.as_deref().filter(|_| length == name.len());
                [named.prefixed.as_deref(), literal]
            });
            for hosts in of_all.into_iter().chain(named.flatten()) {
                if let Some(acl) = hosts.denial(host, asked) {
                    return Found::Denied(acl);
                }
                if allowance.is_none() {
                    allowance = hosts.allowance(host, asked);
                }
            }
        }
        allowance.map_or(Found::Nothing, Found::Allowed)
    }

    /// Whether any rule is about a name, whoever it is for.
    pub fn covers(&self, name: &str) -> bool {
        let wildcard = is_covered_by_wildcard(name).then(|| self.counts.get(WILDCARD)).flatten();
        wildcard.is_some_and(|counts| counts.literal > 0)
            || self
                .counts
                .prefixes_of(name)
                .any(|(length, counts)| counts.prefixed > 0 || counts.literal > 0 && length == name.len())
    }

    /// Whether this very rule is here.
    pub fn contains(&self, acl: &Acl) -> bool {
        let patterns = if acl.principal == EVERYONE {
            self.of_everyone.as_ref()
        } else {
            self.of_principals.get(&acl.principal)
        };
        patterns
            .and_then(|patterns| patterns.names.get(&acl.resource_name)?.of(acl.pattern_type).as_ref())
            .and_then(|hosts| hosts.at(&acl.host))
            .is_some_and(|rules| rules.acls.iter().any(|known| **known == *acl))
    }

    pub fn add(&mut self, acl: Arc<Acl>) {
        let patterns = if acl.principal == EVERYONE {
            self.of_everyone.get_or_insert_default()
        } else {
            self.of_principals.entry(&acl.principal)
        };
        let patterns = Arc::make_mut(patterns);
        let hosts = patterns.names.entry(&acl.resource_name).of_mut(acl.pattern_type);
        let hosts = hosts.get_or_insert_default();
        let (is_prefix, name) = (acl.pattern_type == PatternType::Prefixed, acl.resource_name.clone());
        Arc::make_mut(hosts).add(acl);
        if name == WILDCARD && !is_prefix {
            patterns.of_all = Some(Arc::clone(hosts));
        }
        let counts = self.counts.entry(&name);
        let count = if is_prefix { &mut counts.prefixed } else { &mut counts.literal };
        *count += 1;
    }

    /// Removes a rule, which [`Index::contains`].
    pub fn remove(&mut self, acl: &Acl) {
        let is_prefix = acl.pattern_type == PatternType::Prefixed;
        let patterns = if acl.principal == EVERYONE {
            self.of_everyone.get_or_insert_default()
        } else {
            self.of_principals.entry(&acl.principal)
        };
        let patterns = Arc::make_mut(patterns);
        let named = patterns.names.entry(&acl.resource_name);
        let hosts = named.of_mut(acl.pattern_type);
        Arc::make_mut(hosts.get_or_insert_default()).remove(acl);
        if hosts.as_ref().is_some_and(|hosts| hosts.is_empty()) {
            *hosts = None;
        }
        if acl.resource_name == WILDCARD && !is_prefix {
            patterns.of_all = hosts.clone();
        }
        if named.is_empty() {
            patterns.names.remove(&acl.resource_name);
        }
        if patterns.names.is_empty() {
            if acl.principal == EVERYONE {
                self.of_everyone = None;
            } else {
                self.of_principals.remove(&acl.principal);
            }
        }
        let counts = self.counts.entry(&acl.resource_name);
        let count = if is_prefix { &mut counts.prefixed } else { &mut counts.literal };
        *count -= 1;
        if counts.literal + counts.prefixed == 0 {
            self.counts.remove(&acl.resource_name);
        }
    }
}
