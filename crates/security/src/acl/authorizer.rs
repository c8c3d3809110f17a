//! Decisions.

use std::sync::Arc;

use super::terms::{Acl, Operation, PatternType, Permission, ResourceType};
use crate::Principal;

/// What holds whatever the ACLs say: `super.users`, `allow.everyone.if.no.acl.found`.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Principals that may do everything.
    pub super_users: Vec<Principal>,
    /// Whether a resource without any ACL is open to everybody.
    pub allow_everyone_if_no_acl_found: bool,
}

/// A decision, with its reason for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it may be done.
    pub is_allowed: bool,
    /// Why.
    pub reason: Reason,
}

/// Why something is allowed or denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The principal is one of `super.users`.
    SuperUser,
    /// This rule matches.
    Acl(Arc<Acl>),
    /// No rule of this resource matches; `allow.everyone.if.no.acl.found` decided, where the resource has none at all.
    NoMatch,
}

/// All rules. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Authorizer {
    rules: Arc<Rules>,
    acls: Arc<Vec<Arc<Acl>>>,
}

impl Authorizer {
    /// Decides by these rules.
    pub fn new(rules: Rules, acls: impl IntoIterator<Item = Acl>) -> Authorizer {
        Authorizer { rules: Arc::new(rules), acls: Arc::new(acls.into_iter().map(Arc::new).collect()) }
    }

    /// Whether a principal may do something from this host on one resource.
    pub fn authorize(
        &self,
        principal: &Principal,
        host: &str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: &str,
    ) -> Answer {
        if self.rules.super_users.contains(principal) {
            return Answer { is_allowed: true, reason: Reason::SuperUser };
        }
        let principal = principal.to_string();
        let (mut allowed, mut of_resource) = (None, false);
        for acl in self.acls.iter().filter(|acl| covers(acl, resource_type, resource_name)) {
            of_resource = true;
            let is_meant = (acl.principal == principal || acl.principal == "User:*")
                && (acl.host == "*" || acl.host == host)
                && means(acl, operation);
            match acl.permission {
                Permission::Deny if is_meant => {
                    return Answer { is_allowed: false, reason: Reason::Acl(Arc::clone(acl)) };
                }
                Permission::Allow if is_meant => allowed = Some(acl),
                _ => {}
            }
        }
        match allowed {
            Some(acl) => Answer { is_allowed: true, reason: Reason::Acl(Arc::clone(acl)) },
            None => Answer {
                is_allowed: !of_resource && self.rules.allow_everyone_if_no_acl_found,
                reason: Reason::NoMatch,
            },
        }
    }
}

fn covers(acl: &Acl, resource_type: ResourceType, name: &str) -> bool {
    acl.resource_type == resource_type
        && match acl.pattern_type {
            PatternType::Literal => acl.resource_name == name || acl.resource_name == "*",
            PatternType::Prefixed => name.starts_with(&acl.resource_name),
            PatternType::Any | PatternType::Match => false,
        }
}

/// An allowed operation implies that what it needs may be described.
fn means(acl: &Acl, operation: Operation) -> bool {
    use Operation::*;
    acl.operation == All
        || acl.operation == operation
        || acl.permission == Permission::Allow
            && match operation {
                Describe => matches!(acl.operation, Read | Write | Delete | Alter),
                DescribeConfigs => acl.operation == AlterConfigs,
                _ => false,
            }
}
