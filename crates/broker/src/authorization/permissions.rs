//! The permissions of one request.

use crate::audit::AuditedRequest;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_security::Principal;
use thalweg_security::acl::{
    Authorizer, CLUSTER_NAME, Decision, LoggedOutcomes, Operation, ResourceType, supported_operations,
};
use thalweg_wire::ApiKey;

/// The permissions of a request's client. Without an authorizer everything is allowed.
#[derive(Clone, Debug)]
pub struct Permissions {
    context: Option<RequestContext>,
    /// The request in the audit trail, if there is a trail.
    audited: Option<AuditedRequest>,
}

/// Authorizer, principal and host of a request.
#[derive(Clone, Debug)]
struct RequestContext {
    authorizer: Arc<Authorizer>,
    principal: Arc<Principal>,
    host: Arc<str>,
    api: ApiKey,
}

impl Permissions {
    /// The permissions of a principal at an address in the form of ACLs, for one request.
    pub fn of(
        authorizer: Option<Arc<Authorizer>>,
        principal: &Arc<Principal>,
        host: &Arc<str>,
        api: ApiKey,
        audited: Option<AuditedRequest>,
    ) -> Permissions {
        let context = authorizer.map(|authorizer| RequestContext {
            authorizer,
            principal: Arc::clone(principal),
            host: Arc::clone(host),
            api,
        });
        Permissions { context, audited }
    }

    /// The permissions of this broker itself.
    pub fn unlimited() -> Permissions {
        Permissions { context: None, audited: None }
    }

    /// The request in the audit trail, if there is a trail.
    pub fn audited(&self) -> Option<&AuditedRequest> {
        self.audited.as_ref()
    }

    /// True if everything is allowed.
    pub fn are_unlimited(&self) -> bool {
        self.context.is_none()
    }

    /// Returns true if an operation on a resource is allowed.
    pub fn may(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        self.decide(LoggedOutcomes::Both, operation, resource_type, name, 1)
    }

    /// As [`Permissions::may`], for a resource that the request names several times.
    pub fn may_each(
        &self,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
        count: usize,
    ) -> bool {
        self.decide(LoggedOutcomes::Both, operation, resource_type, name, count)
    }

    /// As [`Permissions::may`], if a denial refuses no request: another permission may suffice, or the
    /// resource is left out of a list.
    pub fn may_also(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        self.decide(LoggedOutcomes::IfAllowed, operation, resource_type, name, 1)
    }

    /// Returns true if an operation on the cluster is allowed.
    pub fn may_on_cluster(&self, operation: Operation) -> bool {
        self.may(operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    /// As [`Permissions::may_also`], on the cluster.
    pub fn may_also_on_cluster(&self, operation: Operation) -> bool {
        self.may_also(operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    /// Returns true if one of these operations on the cluster is allowed. Only a denial of the last one
    /// counts as a refusal.
    pub fn may_any_on_cluster(&self, operations: &[Operation]) -> bool {
        let Some((last, others)) = operations.split_last() else { return false };
        others.iter().any(|operation| self.may_also_on_cluster(*operation)) || self.may_on_cluster(*last)
    }

    /// Returns true if DESCRIBE is allowed on all of the topics.
    pub fn may_describe_topics<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        if self.are_unlimited() {
            return true;
        }
        let names: BTreeSet<&str> = names.collect();
        names.into_iter().all(|name| self.may(Operation::Describe, ResourceType::Topic, name))
    }

    /// Returns true if an operation is allowed on any resource of a type, existing or not.
    pub fn may_on_any(&self, operation: Operation, resource_type: ResourceType) -> bool {
        self.context.as_ref().is_none_or(|context| {
            let RequestContext { authorizer, principal, host, .. } = context;
            authorizer.authorize_by_resource_type(principal, host, operation, resource_type).is_allowed
        })
    }

    /// The operations allowed on a resource, as a bit field.
    pub fn operations(&self, resource_type: ResourceType, name: &str) -> i32 {
        let operations = supported_operations(resource_type).iter().copied();
        let allowed = operations
            .filter(|operation| self.decide(LoggedOutcomes::Neither, *operation, resource_type, name, 1));
        allowed.fold(0, |bits, operation| bits | 1 << operation.code())
    }

    /// The operations allowed on the cluster; none without DESCRIBE on the cluster.
    pub fn operations_on_cluster(&self) -> i32 {
        match self.may_on_cluster(Operation::Describe) {
            true => self.operations(ResourceType::Cluster, CLUSTER_NAME),
            false => 0,
        }
    }

    fn decide(
        &self,
        logged: LoggedOutcomes,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: &str,
        count: usize,
    ) -> bool {
        let Some(RequestContext { authorizer, principal, host, api }) = &self.context else { return true };
        let answer = &authorizer.authorize(principal, host, operation, resource_type, resource_name);
        let (principal, request) = (principal.as_str(), format_args!("{api:?}"));
        let decision =
            Decision { principal, host, request, operation, resource_type, resource_name, count, answer };
        decision.log(logged);
        if let Some(audited) = &self.audited
            && logged.matters(answer.is_allowed)
        {
            audited.decided(&decision);
        }
        answer.is_allowed
    }
}

/// Indexes of the denied entries of a request, in ascending order. Without denials nothing is allocated.
#[derive(Debug, Default)]
pub struct Denials(Vec<usize>);

impl Denials {
    /// The entries for which `is_allowed` returns false.
    pub fn among<T>(entries: &[T], is_allowed: impl Fn(&T) -> bool) -> Denials {
        let denied = entries.iter().enumerate().filter(|(_, entry)| !is_allowed(entry));
        Denials(denied.map(|(place, _)| place).collect())
    }

    /// True if nothing is denied.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the entry at this index is denied.
    pub fn contains(&self, place: usize) -> bool {
        self.0.binary_search(&place).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_security::acl::{Acl, PatternType, Permission, Rules};

    fn permissions(acls: impl IntoIterator<Item = (ResourceType, &'static str, Operation)>) -> Permissions {
        let acl = |(resource_type, name, operation): (ResourceType, &str, Operation)| Acl {
            resource_type,
            resource_name: name.to_owned(),
            pattern_type: PatternType::Literal,
            principal: "User:ann".to_owned(),
            host: "*".to_owned(),
            operation,
            permission: Permission::Allow,
        };
        let authorizer = Arc::new(Authorizer::new(Rules::default(), acls.into_iter().map(acl)));
        let (principal, host) = (Arc::new(Principal::user("ann")), Arc::from("127.0.0.1"));
        Permissions::of(Some(authorizer), &principal, &host, ApiKey::Metadata, None)
    }

    #[test]
    fn without_an_authorizer_everything_is_allowed() {
        let (principal, host) = (Arc::new(Principal::anonymous()), Arc::from("127.0.0.1"));
        let all = Permissions::of(None, &principal, &host, ApiKey::Metadata, None);
        assert!(all.are_unlimited() && all.may_on_cluster(Operation::ClusterAction));
        assert!(all.may_on_any(Operation::Write, ResourceType::Topic));
        let bits = |operations: &[i32]| operations.iter().fold(0, |bits, operation| bits | 1 << operation);
        assert_eq!(all.operations(ResourceType::Topic, "t"), bits(&[3, 4, 5, 6, 7, 8, 10, 11]));
        assert_eq!(all.operations(ResourceType::Group, "g"), bits(&[3, 6, 8, 10, 11]));
        assert_eq!(all.operations_on_cluster(), bits(&[5, 7, 8, 9, 10, 11, 12]));
    }

    #[test]
    fn implied_operations_are_listed() {
        let some = permissions([(ResourceType::Topic, "t", Operation::Read)]);
        assert_eq!(some.operations(ResourceType::Topic, "t"), 1 << 3 | 1 << 8, "READ, and DESCRIBE with it");
        assert_eq!(some.operations(ResourceType::Topic, "u"), 0);
        assert_eq!(some.operations_on_cluster(), 0);
    }

    #[test]
    fn operations_on_the_cluster_are_shown_to_those_who_may_describe_it() {
        let cluster = ResourceType::Cluster;
        let without = permissions([(cluster, CLUSTER_NAME, Operation::Create)]);
        assert_eq!(without.operations_on_cluster(), 0);
        let with = permissions([(cluster, CLUSTER_NAME, Operation::Alter)]);
        assert_eq!(with.operations_on_cluster(), 1 << 7 | 1 << 8);
    }

    #[test]
    fn any_of_several_operations_suffices() {
        let some = permissions([(ResourceType::Cluster, CLUSTER_NAME, Operation::Alter)]);
        assert!(some.may_any_on_cluster(&[Operation::Alter, Operation::ClusterAction]));
        assert!(!some.may_any_on_cluster(&[Operation::Create, Operation::ClusterAction]));
        assert!(!some.may_any_on_cluster(&[]), "a check that asks for nothing allows nothing");
    }
}
