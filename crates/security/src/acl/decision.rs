//! Decisions in the words of Kafka's authorizer log (`kafka.authorizer.logger`), for the log and for the
//! audit trail.
//!
//! Denials are logged at info and permissions at debug. Decisions that only filter a response, without
//! refusing a request, are logged at trace.

use std::fmt;

use super::authorizer::{Answer, Reason};
use super::terms::{Acl, Operation, PatternType, ResourceType};

/// Kafka's logger name.
const TARGET: &str = "kafka.authorizer.logger";

/// One decision with its request, for the log and the audit trail.
#[derive(Clone, Copy)]
pub struct Decision<'a> {
    /// The principal of the request.
    pub principal: &'a str,
    /// The host of the principal, in the format of ACLs.
    pub host: &'a str,
    /// The API, or another description of the request.
    pub request: fmt::Arguments<'a>,
    /// The operation that the request needs.
    pub operation: Operation,
    /// The resource type.
    pub resource_type: ResourceType,
    /// The resource name.
    pub resource_name: &'a str,
    /// The number of references to the resource in the request.
    pub count: usize,
    /// The decision with its reason.
    pub answer: &'a Answer,
}

/// The outcomes that grant or refuse a request. Other outcomes only filter a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedOutcomes {
    /// A denial refuses, a permission grants.
    Both,
    /// A denial refuses nothing: another permission may suffice, or the response omits the resource.
    IfAllowed,
    /// The decision only fills a response's list of authorized operations.
    Neither,
}

impl LoggedOutcomes {
    /// True if an outcome grants or refuses a request.
    pub fn matters(self, is_allowed: bool) -> bool {
        match is_allowed {
            true => self != LoggedOutcomes::Neither,
            false => self == LoggedOutcomes::Both,
        }
    }

    /// True if the logger is enabled for an outcome.
    pub fn is_taken(self, is_allowed: bool) -> bool {
        match (self.matters(is_allowed), is_allowed) {
            (true, false) => tracing::enabled!(target: TARGET, tracing::Level::INFO),
            (true, true) => tracing::enabled!(target: TARGET, tracing::Level::DEBUG),
            (false, _) => tracing::enabled!(target: TARGET, tracing::Level::TRACE),
        }
    }
}

impl Decision<'_> {
    /// Logs the decision, if the logger is enabled.
    pub fn log(&self, logged: LoggedOutcomes) {
        match (logged.matters(self.answer.is_allowed), self.answer.is_allowed) {
            // The `address` field lets the logger limit the lines that one client causes.
            (true, false) => tracing::info!(target: TARGET, address = %self.host, "{self}"),
            (true, true) => tracing::debug!(target: TARGET, "{self}"),
            (false, _) => tracing::trace!(target: TARGET, "{self}"),
        }
    }
}

impl Reason {
    /// The rule in Kafka's words.
    pub fn rule(&self, is_allowed: bool) -> Rule<'_> {
        match self {
            Reason::SuperUser => Rule::SuperUser,
            Reason::Acl(acl) => Rule::MatchingAcl(acl),
            Reason::NoMatch if is_allowed => Rule::DefaultAllow,
            Reason::NoMatch => Rule::DefaultDeny,
        }
    }
}

/// The kind of rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule<'a> {
    /// The principal is one of `super.users`.
    SuperUser,
    /// This ACL matches.
    MatchingAcl(&'a Acl),
    /// `allow.everyone.if.no.acl.found`.
    DefaultAllow,
    /// No ACL allows it.
    DefaultDeny,
}

impl Rule<'_> {
    /// The rule name in Kafka's log.
    pub fn name(self) -> &'static str {
        match self {
            Rule::SuperUser => "SuperUser",
            Rule::MatchingAcl(_) => "MatchingAcl",
            Rule::DefaultAllow => "DefaultAllow",
            Rule::DefaultDeny => "DefaultDeny",
        }
    }
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::MatchingAcl(acl) => write!(f, "MatchingAcl(acl={})", AclInWords(acl)),
            other => f.write_str(other.name()),
        }
    }
}

/// An ACL in the format of Kafka's authorizer log.
pub struct AclInWords<'a>(pub &'a Acl);

impl fmt::Display for AclInWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acl = self.0;
        write!(
            f,
            "StandardAcl[resourceType={}, resourceName={}, patternType={}, principal={}, host={}, operation={}, \
             permissionType={}]",
            acl.resource_type.name(),
            acl.resource_name,
            acl.pattern_type.name(),
            acl.principal,
            acl.host,
            acl.operation.name(),
            acl.permission.name()
        )
    }
}

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { principal, host, request, operation, resource_type, resource_name, count, answer } =
            self;
        let decided = if answer.is_allowed { "Allowed" } else { "Denied" };
        let (operation, pattern) = (operation.name(), PatternType::Literal.name());
        write!(
            f,
            "Principal = {principal} is {decided} operation = {operation} from host = {host} on resource = {}:{pattern}:\
             {resource_name} for request = {request} with resourceRefCount = {count} based on rule {}",
            resource_type.in_words(),
            answer.reason.rule(answer.is_allowed)
        )
    }
}

impl ResourceType {
    /// The resource type in Kafka's authorizer log.
    pub fn in_words(self) -> &'static str {
        match self {
            ResourceType::Any => "Any",
            ResourceType::Topic => "Topic",
            ResourceType::Group => "Group",
            ResourceType::Cluster => "Cluster",
            ResourceType::TransactionalId => "TransactionalId",
            ResourceType::DelegationToken => "DelegationToken",
            ResourceType::User => "User",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::acl::terms::Permission;

    #[test]
    fn decisions_read_as_in_kafka() {
        let acl = Acl {
            resource_type: ResourceType::Topic,
            resource_name: "pay".to_owned(),
            pattern_type: PatternType::Prefixed,
            principal: "User:ann".to_owned(),
            host: "*".to_owned(),
            operation: Operation::All,
            permission: Permission::Allow,
        };
        let text = |is_allowed, reason| {
            let answer = Answer { is_allowed, reason };
            let decision = Decision {
                principal: "User:ann",
                host: "10.0.0.7",
                request: format_args!("Fetch"),
                operation: Operation::Read,
                resource_type: ResourceType::Topic,
                resource_name: "payments",
                count: 3,
                answer: &answer,
            };
            decision.to_string()
        };
        assert_eq!(
            text(false, Reason::NoMatch),
            "Principal = User:ann is Denied operation = READ from host = 10.0.0.7 on resource = \
             Topic:LITERAL:payments for request = Fetch with resourceRefCount = 3 based on rule DefaultDeny"
        );
        assert!(text(true, Reason::Acl(Arc::new(acl))).ends_with(
            "based on rule MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=pay, patternType=PREFIXED, \
             principal=User:ann, host=*, operation=ALL, permissionType=ALLOW])"
        ));
        assert!(text(true, Reason::SuperUser).ends_with("based on rule SuperUser"));
    }
}
