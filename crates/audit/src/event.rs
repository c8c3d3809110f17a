//! Audit events, with the client that caused them.

use thalweg_config::AuditKind;
use thalweg_security::acl::{AclInWords, Decision, Operation, PatternType, Rule};

/// Maximum bytes of a text. Topic names are shorter; group names and client ids may be longer.
const TEXT_BYTES_MAX: usize = 1024;

/// One event of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time in milliseconds since 1970.
    pub time_ms: i64,
    /// The sequence number within this process.
    pub sequence: u64,
    /// The client that caused the event.
    pub client: Client,
    /// The content of the event.
    pub what: EventContent,
}

/// The known facts about a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Type and name, such as `User:ann`; empty if unknown.
    pub principal: String,
    /// The address, in the format of ACLs.
    pub host: String,
    /// The port of the client.
    pub port: Option<u16>,
    /// The listener of the connection.
    pub listener: Option<String>,
    /// The SASL mechanism of the login.
    pub mechanism: Option<&'static str>,
    /// TLS facts of the connection.
    pub tls: Option<Tls>,
    pub client_id: Option<String>,
}

/// TLS facts of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The version, such as `TLSv1.3`.
    pub version: &'static str,
    /// Java's name of the cipher suite.
    pub cipher: String,
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventContent {
    /// A decision of the authorizer.
    Decision(AuthorizerDecision),
    /// A login attempt.
    Login(Login),
    /// An attempt to change the cluster.
    Change(Change),
}

/// A decision of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerDecision {
    /// The API name.
    pub request: String,
    /// The operation that the request needs.
    pub operation: Operation,
    /// The resource type, such as `Topic`.
    pub resource_type: &'static str,
    /// The resource name.
    pub resource_name: String,
    /// The number of references to the resource in the request.
    pub count: usize,
    /// True if the operation was allowed.
    pub is_allowed: bool,
    /// The kind of the deciding rule.
    pub rule: &'static str,
    /// The deciding ACL, in Kafka's format.
    pub acl: Option<String>,
}

impl AuthorizerDecision {
    /// The pattern type of the resource: requests name resources literally.
    pub const PATTERN: PatternType = PatternType::Literal;

    /// Converts a decision to an event.
    pub fn of(decision: &Decision<'_>) -> AuthorizerDecision {
        let rule = decision.answer.reason.rule(decision.answer.is_allowed);
        AuthorizerDecision {
            request: decision.request.to_string(),
            operation: decision.operation,
            resource_type: decision.resource_type.in_words(),
            resource_name: clipped(decision.resource_name),
            count: decision.count,
            is_allowed: decision.answer.is_allowed,
            rule: rule.name(),
            acl: match rule {
                Rule::MatchingAcl(acl) => Some(AclInWords(acl).to_string()),
                _ => None,
            },
        }
    }
}

/// A login attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// True for a re-authentication (KIP-368).
    pub is_again: bool,
    /// The reason for a refusal.
    pub failure: Option<String>,
}

/// A requested change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The API name.
    pub request: String,
    /// The action on the resource.
    pub action: Action,
    /// The resource type.
    pub resource_type: &'static str,
    /// The resource name.
    pub resource_name: String,
    /// A description of the change.
    pub detail: Option<String>,
    /// The error, if the change failed.
    pub failure: Option<Failure>,
}

/// The action of a change on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Create,
    /// Change of an existing resource.
    Update,
    Delete,
}

/// The error of a failed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kafka's name of the error.
    pub code: String,
    /// The error message, if any.
    pub message: Option<String>,
}

impl EventContent {
    /// The kind of the event.
    pub fn kind(&self) -> AuditKind {
        match self {
            EventContent::Decision(AuthorizerDecision { is_allowed: true, .. }) => AuditKind::Allowed,
            EventContent::Decision(_) => AuditKind::Denied,
            EventContent::Login(_) => AuditKind::Logins,
            EventContent::Change(_) => AuditKind::Administration,
        }
    }

    /// Truncates long texts.
    pub(crate) fn clip(&mut self) {
        match self {
            EventContent::Decision(decided) => {
                clip(&mut decided.request);
                clip(&mut decided.resource_name);
                decided.acl.iter_mut().for_each(clip);
            }
            EventContent::Login(login) => login.failure.iter_mut().for_each(clip),
            EventContent::Change(change) => {
                clip(&mut change.resource_name);
                change.detail.iter_mut().for_each(clip);
                change.failure.iter_mut().for_each(|failure| failure.message.iter_mut().for_each(clip));
            }
        }
    }
}

impl Client {
    /// Truncates long texts.
    pub(crate) fn clip(&mut self) {
        clip(&mut self.principal);
        self.client_id.iter_mut().for_each(clip);
    }
}

fn clipped(text: &str) -> String {
    let mut text = text[..text.floor_char_boundary(TEXT_BYTES_MAX + 4)].to_owned();
    clip(&mut text);
    text
}

/// Truncates a long text, with an ellipsis at the end.
fn clip(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let mut text = "ü".repeat(600);
        clip(&mut text);
        assert_eq!(text, format!("{}…", "ü".repeat(512)));
        assert_eq!(clipped(&"x".repeat(40_000)).len(), TEXT_BYTES_MAX + '…'.len_utf8());
        assert_eq!(clipped("orders"), "orders");
    }
}
