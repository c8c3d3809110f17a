//! Audit events: what happened, and who caused it.

use thalweg_config::AuditKind;
use thalweg_security::acl::{AclInWords, Decision, Operation, PatternType, Rule};

/// Bytes of a text that are kept. Names of topics are shorter; names of groups and client ids may be anything.
const TEXT_BYTES_MAX: usize = 1024;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in milliseconds since 1970.
    pub time_ms: i64,
    /// Its place among the events of this process.
    pub sequence: u64,
    /// Who caused it.
    pub client: Client,
    /// What it was.
    pub what: What,
}

/// A client, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Type and name, as `User:ann`; empty if it is not known.
    pub principal: String,
    /// Its address, as ACLs name it.
    pub host: String,
    /// Its port.
    pub port: Option<u16>,
    /// The listener that it has connected to.
    pub listener: Option<String>,
    /// How it has logged in.
    pub mechanism: Option<&'static str>,
    /// The TLS of its connection.
    pub tls: Option<Tls>,
    /// Its name for itself.
    pub client_id: Option<String>,
}

/// The TLS of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// As `TLSv1.3`.
    pub version: &'static str,
    /// Java's name of the cipher suite.
    pub cipher: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The authorizer has decided.
    Decision(Decided),
    /// An attempt to log in.
    Login(Login),
    /// An attempt to change the cluster.
    Change(Change),
}

/// A decision of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The API.
    pub request: String,
    /// The operation.
    pub operation: Operation,
    /// The kind of resource, as `Topic`.
    pub resource_type: &'static str,
    /// Its name.
    pub resource_name: String,
    /// How often the request names it.
    pub count: usize,
    /// The outcome.
    pub is_allowed: bool,
    /// The kind of rule that decided.
    pub rule: &'static str,
    /// The ACL that decided, in Kafka's words.
    pub acl: Option<String>,
}

impl Decided {
    /// The pattern of the resource: requests name resources literally.
    pub const PATTERN: PatternType = PatternType::Literal;

    /// A decision as an event.
    pub fn of(decision: &Decision<'_>) -> Decided {
        let rule = decision.answer.reason.rule(decision.answer.is_allowed);
        Decided {
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

/// A login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Whether the connection was logged in before (KIP-368).
    pub is_again: bool,
    /// Why it was refused.
    pub failure: Option<String>,
}

/// A requested change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The API.
    pub request: String,
    /// What it does to the resource.
    pub action: Action,
    /// The kind of resource.
    pub resource_type: &'static str,
    /// Its name.
    pub resource_name: String,
    /// What is changed.
    pub detail: Option<String>,
    /// Why it was not done.
    pub failure: Option<Failure>,
}

/// What a change does to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is made.
    Create,
    /// It is altered.
    Update,
    /// It is removed.
    Delete,
}

/// Why a change was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kafka's name of the error.
    pub code: String,
    /// In words, where there are any.
    pub message: Option<String>,
}

impl What {
    /// Its kind.
    pub fn kind(&self) -> AuditKind {
        match self {
            What::Decision(Decided { is_allowed: true, .. }) => AuditKind::Allowed,
            What::Decision(_) => AuditKind::Denied,
            What::Login(_) => AuditKind::Logins,
            What::Change(_) => AuditKind::Administration,
        }
    }

    /// Limits its texts.
    pub(crate) fn clip(&mut self) {
        match self {
            What::Decision(decided) => {
                clip(&mut decided.request);
                clip(&mut decided.resource_name);
                decided.acl.iter_mut().for_each(clip);
            }
            What::Login(login) => login.failure.iter_mut().for_each(clip),
            What::Change(change) => {
                clip(&mut change.resource_name);
                change.detail.iter_mut().for_each(clip);
                change.failure.iter_mut().for_each(|failure| failure.message.iter_mut().for_each(clip));
            }
        }
    }
}

impl Client {
    /// Limits its texts.
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

/// Cuts a text that is too long, with a mark at its end.
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
