//! Kafka's log of decisions (`kafka.authorizer.logger`), in Kafka's words.
//!
//! What was denied is logged at info, what was allowed at debug. Where a decision only filters an answer, so that nobody is
//! refused anything, it is logged at trace.

use std::fmt;
use thalweg_security::acl::{Acl, Answer, Operation, PatternType, Reason, ResourceType};

/// Kafka's name of the log.
const TARGET: &str = "kafka.authorizer.logger";

/// One decision.
pub(super) struct Decision<'a> {
    pub principal: &'a str,
    pub host: &'a str,
    /// The API, or what else was asked for.
    pub request: fmt::Arguments<'a>,
    pub operation: Operation,
    pub resource_type: ResourceType,
    pub resource_name: &'a str,
    /// How often the request names the resource.
    pub count: usize,
    pub answer: &'a Answer,
}

/// Which decisions matter to somebody: the others only filter an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logged {
    Both,
    IfAllowed,
    Neither,
}

impl Decision<'_> {
    /// Writes the line, if the log wants it.
    pub fn log(&self, logged: Logged) {
        let matters = match self.answer.is_allowed {
            true => logged != Logged::Neither,
            false => logged == Logged::Both,
        };
        match (matters, self.answer.is_allowed) {
            // The address bounds the number of lines that one client can cause.
            (true, false) => tracing::info!(target: TARGET, address = %self.host, "{self}"),
            (true, true) => tracing::debug!(target: TARGET, "{self}"),
            (false, _) => tracing::trace!(target: TARGET, "{self}"),
        }
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
             {resource_name} for request = {request} with resourceRefCount = {count} based on rule ",
            in_words(*resource_type)
        )?;
        match &answer.reason {
            Reason::SuperUser => f.write_str("SuperUser"),
            Reason::Acl(acl) => write_rule(f, acl),
            Reason::NoMatch if answer.is_allowed => f.write_str("DefaultAllow"),
            Reason::NoMatch => f.write_str("DefaultDeny"),
        }
    }
}

fn write_rule(f: &mut fmt::Formatter<'_>, acl: &Acl) -> fmt::Result {
    write!(
        f,
        "MatchingAcl(acl=StandardAcl(resourceType={}, resourceName={}, patternType={}, principal={}, host={}, \
         operation={}, permissionType={}))",
        acl.resource_type.name(),
        acl.resource_name,
        acl.pattern_type.name(),
        acl.principal,
        acl.host,
        acl.operation.name(),
        acl.permission.name()
    )
}

/// The kind of resource as this log names it.
fn in_words(resource_type: ResourceType) -> &'static str {
    match resource_type {
        ResourceType::Any => "Any",
        ResourceType::Topic => "Topic",
        ResourceType::Group => "Group",
        ResourceType::Cluster => "Cluster",
        ResourceType::TransactionalId => "TransactionalId",
        ResourceType::DelegationToken => "DelegationToken",
        ResourceType::User => "User",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thalweg_security::acl::Permission;

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
            "based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=pay, patternType=PREFIXED, \
             principal=User:ann, host=*, operation=ALL, permissionType=ALLOW))"
        ));
        assert!(text(true, Reason::SuperUser).ends_with("based on rule SuperUser"));
    }
}
