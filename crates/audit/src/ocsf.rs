//! The format of a line: an event of the Open Cybersecurity Schema Framework (OCSF), with Kafka's terms in
//! `unmapped` (`docs/decisions/0010-audit-events-are-ocsf.md`).
//!
//! Decisions and changes have the class API Activity (6003), logins the class Authentication (3002), and
//! reports about the trail the class Base Event (0).

use chrono::{DateTime, SecondsFormat};
use serde::Serialize;
use thalweg_config::AuditKind;
use thalweg_security::acl::Operation;
use thalweg_security::visible::in_json;

use crate::drops::KINDS;
use crate::event::{Action, AuthorizerDecision, Change, Client, Event, EventContent, Login};

const SCHEMA: &str = "1.3.0";
const PRODUCT: &str = "Thalweg";
const SERVICE: &str = "kafka";

/// The node that writes the lines.
#[derive(Clone, Debug)]
pub struct Origin {
    pub node_id: i32,
    /// The cluster id.
    pub cluster_id: String,
}

/// An OCSF event class.
struct Class {
    uid: u32,
    name: &'static str,
    category_uid: u32,
    category_name: &'static str,
}

const API_ACTIVITY: Class =
    Class { uid: 6003, name: "API Activity", category_uid: 6, category_name: "Application Activity" };
const AUTHENTICATION: Class = Class {
    uid: 3002,
    name: "Authentication",
    category_uid: 3,
    category_name: "Identity & Access Management",
};
const BASE_EVENT: Class =
    Class { uid: 0, name: "Base Event", category_uid: 0, category_name: "Uncategorized" };

#[derive(Clone, Copy)]
struct Activity(u32, &'static str);

const CREATE: Activity = Activity(1, "Create");
const READ: Activity = Activity(2, "Read");
const UPDATE: Activity = Activity(3, "Update");
const DELETE: Activity = Activity(4, "Delete");
const LOGON: Activity = Activity(1, "Logon");
const OTHER: Activity = Activity(99, "Other");

#[derive(Clone, Copy)]
enum Severity {
    Informational = 1,
    Low = 2,
    Medium = 3,
}

#[derive(Serialize)]
struct Line<'a> {
    time_dt: String,
    time: i64,
    message: String,
    class_uid: u32,
    class_name: &'static str,
    category_uid: u32,
    category_name: &'static str,
    activity_id: u32,
    activity_name: &'static str,
    type_uid: u32,
    severity_id: u8,
    severity: &'static str,
    status_id: u8,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<Actor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<User<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_protocol_id: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<Api<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<[Resource<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_endpoint: Option<Source<'a>>,
    dst_endpoint: Destination<'a>,
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmapped: Option<UnmappedFields<'a>>,
}

#[derive(Serialize)]
struct Actor<'a> {
    user: User<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorizations: Option<[Authorization<'a>; 1]>,
}

#[derive(Serialize)]
struct User<'a> {
    name: &'a str,
    uid: &'a str,
}

#[derive(Serialize)]
struct Authorization<'a> {
    decision: &'static str,
    policy: Policy<'a>,
}

#[derive(Serialize)]
struct Policy<'a> {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    desc: Option<&'a str>,
}

#[derive(Serialize)]
struct Api<'a> {
    operation: &'a str,
    service: Service,
}

#[derive(Serialize)]
struct Service {
    name: &'static str,
}

#[derive(Serialize)]
struct Resource<'a> {
    r#type: &'static str,
    name: &'a str,
}

#[derive(Serialize)]
struct Source<'a> {
    ip: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
}

#[derive(Serialize)]
struct Destination<'a> {
    uid: String,
    svc_name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface_name: Option<&'a str>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    version: &'static str,
    profiles: [&'static str; 1],
    event_code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    tenant_uid: &'a str,
    product: Product,
}

#[derive(Serialize)]
struct Product {
    name: &'static str,
    vendor_name: &'static str,
    version: &'static str,
}

#[derive(Default, Serialize)]
struct UnmappedFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pattern_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_ref_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_reauthentication: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mechanism: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_cipher: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<DropCounts>,
}

/// Counts of dropped events.
#[derive(Clone, Copy, Serialize)]
struct DropCounts {
    denied: u64,
    allowed: u64,
    logins: u64,
    administration: u64,
}

/// Formats an event as a line, without the line end.
pub(crate) fn line(event: &Event, origin: &Origin) -> Vec<u8> {
    let client = &event.client;
    let line = match &event.what {
        EventContent::Decision(decided) => decision(client, decided, origin),
        EventContent::Login(login) => authentication(client, login, origin),
        EventContent::Change(change) => administration(client, change, origin),
    };
    let metadata = Metadata { sequence: Some(event.sequence), ..line.metadata };
    written(&at(event.time_ms, Line { metadata, ..line }))
}

/// Formats a report of dropped events as a line.
pub(crate) fn report(dropped: &[u64; KINDS], time_ms: i64, origin: &Origin) -> Vec<u8> {
    let of = |kind: AuditKind| dropped[kind as usize];
    let counts = DropCounts {
        denied: of(AuditKind::Denied),
        allowed: of(AuditKind::Allowed),
        logins: of(AuditKind::Logins),
        administration: of(AuditKind::Administration),
    };
    let parts = AuditKind::ALL.iter().filter(|kind| of(**kind) > 0);
    let parts: Vec<_> = parts.map(|kind| format!("{} of {}", of(*kind), kind.name())).collect();
    let message = format!("Audit events were dropped: {}", parts.join(", "));
    let unmapped = UnmappedFields { dropped: Some(counts), ..UnmappedFields::default() };
    let base = begun(&BASE_EVENT, OTHER, Severity::Medium, "audit.dropped", None, message, origin);
    written(&at(time_ms, Line { unmapped: Some(unmapped), ..failed(base, None, None) }))
}

fn decision<'a>(client: &'a Client, decided: &'a AuthorizerDecision, origin: &'a Origin) -> Line<'a> {
    let AuthorizerDecision { operation, resource_type, resource_name, is_allowed, .. } = decided;
    let (code, severity, verb, word) = match is_allowed {
        true => ("authorization.allowed", Severity::Informational, "is allowed", "allowed"),
        false => ("authorization.denied", Severity::Medium, "is denied", "denied"),
    };
    let message =
        format!("{} {verb} {} on {resource_type} {resource_name}", client.principal, operation.name());
    let policy = Policy { name: decided.rule, desc: decided.acl.as_deref() };
    let base = begun(&API_ACTIVITY, activity_of(*operation), severity, code, Some(client), message, origin);
    let base = if *is_allowed { base } else { failed(base, None, None) };
    let unmapped = UnmappedFields {
        operation: Some(operation.name()),
        pattern_type: Some(AuthorizerDecision::PATTERN.name()),
        resource_ref_count: Some(decided.count),
        ..unmapped(client)
    };
    Line {
        actor: Some(Actor {
            authorizations: Some([Authorization { decision: word, policy }]),
            ..actor(client)
        }),
        api: Some(api(&decided.request)),
        resources: Some([Resource { r#type: resource_type, name: resource_name }]),
        unmapped: Some(unmapped),
        ..base
    }
}

fn administration<'a>(client: &'a Client, change: &'a Change, origin: &'a Origin) -> Line<'a> {
    let Change { request, action, resource_type, resource_name, detail, failure } = change;
    let (activity, done) = match action {
        Action::Create => (CREATE, "created"),
        Action::Update => (UPDATE, "altered"),
        Action::Delete => (DELETE, "deleted"),
    };
    let did = if failure.is_some() { format!("has not {done}") } else { format!("has {done}") };
    let message = format!("{} {did} {resource_type} {resource_name}", client.principal);
    let base = begun(&API_ACTIVITY, activity, Severity::Low, "administration", Some(client), message, origin);
    let base = match failure {
        Some(failure) => failed(base, Some(&failure.code), failure.message.as_deref()),
        None => base,
    };
    Line {
        actor: Some(actor(client)),
        api: Some(api(request)),
        resources: Some([Resource { r#type: resource_type, name: resource_name }]),
        unmapped: Some(UnmappedFields { detail: detail.as_deref(), ..unmapped(client) }),
        ..base
    }
}

fn authentication<'a>(client: &'a Client, login: &'a Login, origin: &'a Origin) -> Line<'a> {
    let named = if client.principal.is_empty() { "A client" } else { &client.principal };
    let (code, severity, did) = match &login.failure {
        None => ("login.succeeded", Severity::Informational, "has logged in"),
        Some(_) => ("login.failed", Severity::Medium, "has failed to log in"),
    };
    let message = format!("{named} {did} from {}", client.host);
    let base = begun(&AUTHENTICATION, LOGON, severity, code, Some(client), message, origin);
    let base = match &login.failure {
        Some(reason) => failed(base, None, Some(reason)),
        None => base,
    };
    let (protocol_id, protocol) = match client.mechanism {
        Some("OAUTHBEARER") => (6, "OAUTHBEARER"),
        Some(mechanism) => (99, mechanism),
        None => (0, "Unknown"),
    };
    Line {
        user: Some(user(client)),
        auth_protocol: Some(protocol),
        auth_protocol_id: Some(protocol_id),
        unmapped: Some(UnmappedFields { is_reauthentication: Some(login.is_again), ..unmapped(client) }),
        ..base
    }
}

/// A line for a successful event, without the fields of a specific event type.
fn begun<'a>(
    class: &Class,
    activity: Activity,
    severity: Severity,
    event_code: &'static str,
    client: Option<&'a Client>,
    message: String,
    origin: &'a Origin,
) -> Line<'a> {
    let listener = client.and_then(|client| client.listener.as_deref());
    Line {
        time_dt: String::new(),
        time: 0,
        message,
        class_uid: class.uid,
        class_name: class.name,
        category_uid: class.category_uid,
        category_name: class.category_name,
        activity_id: activity.0,
        activity_name: activity.1,
        type_uid: class.uid * 100 + activity.0,
        severity_id: severity as u8,
        severity: match severity {
            Severity::Informational => "Informational",
            Severity::Low => "Low",
            Severity::Medium => "Medium",
        },
        status_id: 1,
        status: "Success",
        status_code: None,
        status_detail: None,
        actor: None,
        user: None,
        auth_protocol: None,
        auth_protocol_id: None,
        api: None,
        resources: None,
        src_endpoint: client.map(|client| Source { ip: &client.host, port: client.port }),
        dst_endpoint: Destination {
            uid: origin.node_id.to_string(),
            svc_name: SERVICE,
            interface_name: listener,
        },
        metadata: Metadata {
            version: SCHEMA,
            profiles: ["datetime"],
            event_code,
            sequence: None,
            tenant_uid: &origin.cluster_id,
            product: Product { name: PRODUCT, vendor_name: PRODUCT, version: env!("CARGO_PKG_VERSION") },
        },
        unmapped: None,
    }
}

fn failed<'a>(line: Line<'a>, code: Option<&'a str>, detail: Option<&'a str>) -> Line<'a> {
    Line { status_id: 2, status: "Failure", status_code: code, status_detail: detail, ..line }
}

fn at(time_ms: i64, line: Line<'_>) -> Line<'_> {
    let time = DateTime::from_timestamp_millis(time_ms).unwrap_or_default();
    Line { time_dt: time.to_rfc3339_opts(SecondsFormat::Millis, true), time: time_ms, ..line }
}

fn written(line: &Line<'_>) -> Vec<u8> {
    // Escapes invisible characters, so that user and client names cannot imitate others in a terminal.
    in_json(serde_json::to_string(line).expect("texts and numbers can be written")).into_bytes()
}

fn actor(client: &Client) -> Actor<'_> {
    Actor { user: user(client), app_name: client.client_id.as_deref(), authorizations: None }
}

fn user(client: &Client) -> User<'_> {
    let principal = client.principal.as_str();
    User { name: principal.split_once(':').map_or(principal, |(_, name)| name), uid: principal }
}

fn api(request: &str) -> Api<'_> {
    Api { operation: request, service: Service { name: SERVICE } }
}

fn unmapped(client: &Client) -> UnmappedFields<'_> {
    UnmappedFields {
        mechanism: client.mechanism,
        tls_version: client.tls.as_ref().map(|tls| tls.version),
        tls_cipher: client.tls.as_ref().map(|tls| tls.cipher.as_str()),
        ..UnmappedFields::default()
    }
}

fn activity_of(operation: Operation) -> Activity {
    match operation {
        Operation::Create | Operation::CreateTokens => CREATE,
        Operation::Read | Operation::Describe | Operation::DescribeConfigs | Operation::DescribeTokens => {
            READ
        }
        Operation::Write | Operation::Alter | Operation::AlterConfigs | Operation::IdempotentWrite => UPDATE,
        Operation::Delete => DELETE,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Failure, Tls};

    fn client() -> Client {
        Client {
            principal: "User:ann".to_owned(),
            host: "10.0.0.7".to_owned(),
            port: Some(50_123),
            listener: Some("CLIENTS".to_owned()),
            mechanism: Some("SCRAM-SHA-512"),
            tls: Some(Tls { version: "TLSv1.3", cipher: "TLS_AES_128_GCM_SHA256".to_owned() }),
            client_id: Some("orders-service".to_owned()),
        }
    }

    fn origin() -> Origin {
        Origin { node_id: 1, cluster_id: "WRZ1".to_owned() }
    }

    fn text(what: EventContent) -> String {
        let event = Event { time_ms: 1_764_032_400_123, sequence: 42, client: client(), what };
        String::from_utf8(line(&event, &origin())).expect("JSON is UTF-8")
    }

    #[test]
    fn a_denial_is_a_failed_api_activity() {
        let decided = AuthorizerDecision {
            request: "Produce".to_owned(),
            operation: Operation::Write,
            resource_type: "Topic",
            resource_name: "pay\"roll".to_owned(),
            count: 2,
            is_allowed: false,
            rule: "DefaultDeny",
            acl: None,
        };
        assert_eq!(
            text(EventContent::Decision(decided)),
            concat!(
                r#"{"time_dt":"2025-11-25T01:00:00.123Z","time":1764032400123,"#,
                r#""message":"User:ann is denied WRITE on Topic pay\"roll","class_uid":6003,"#,
                r#""class_name":"API Activity","category_uid":6,"category_name":"Application Activity","#,
                r#""activity_id":3,"activity_name":"Update","type_uid":600303,"severity_id":3,"severity":"Medium","#,
                r#""status_id":2,"status":"Failure","actor":{"user":{"name":"ann","uid":"User:ann"},"#,
                r#""app_name":"orders-service","authorizations":[{"decision":"denied","#,
                r#""policy":{"name":"DefaultDeny"}}]},"api":{"operation":"Produce","service":{"name":"kafka"}},"#,
                r#""resources":[{"type":"Topic","name":"pay\"roll"}],"src_endpoint":{"ip":"10.0.0.7","port":50123},"#,
                r#""dst_endpoint":{"uid":"1","svc_name":"kafka","interface_name":"CLIENTS"},"#,
                r#""metadata":{"version":"1.3.0","profiles":["datetime"],"event_code":"authorization.denied","#,
                r#""sequence":42,"tenant_uid":"WRZ1","product":{"name":"Thalweg","vendor_name":"Thalweg","#,
                r#""version":""#,
                env!("CARGO_PKG_VERSION"),
                r#""}},"unmapped":{"operation":"WRITE","pattern_type":"LITERAL","resource_ref_count":2,"#,
                r#""mechanism":"SCRAM-SHA-512","tls_version":"TLSv1.3","tls_cipher":"TLS_AES_128_GCM_SHA256"}}"#
            )
        );
    }

    #[test]
    fn a_name_cannot_look_like_another_in_a_terminal() {
        let name = "pay\u{202e}llor\u{200b}";
        let decided = AuthorizerDecision {
            request: "Produce".to_owned(),
            operation: Operation::Write,
            resource_type: "Group",
            resource_name: name.to_owned(),
            count: 1,
            is_allowed: false,
            rule: "DefaultDeny",
            acl: None,
        };
        let text = text(EventContent::Decision(decided));
        assert!(!text.contains(['\u{202e}', '\u{200b}']), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read["resources"][0]["name"], name, "a program reads the name itself");
    }

    #[test]
    fn changes_logins_and_reports_name_the_failure() {
        let value = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).expect("JSON");
        let failure =
            Failure { code: "TOPIC_ALREADY_EXISTS".to_owned(), message: Some("It exists".to_owned()) };
        let change = Change {
            request: "CreateTopics".to_owned(),
            action: Action::Create,
            resource_type: "Topic",
            resource_name: "orders".to_owned(),
            detail: Some("partitions=3".to_owned()),
            failure: Some(failure),
        };
        let change = value(text(EventContent::Change(change)).as_bytes());
        assert_eq!(change["message"], "User:ann has not created Topic orders");
        assert_eq!(
            (&change["status_code"], &change["type_uid"]),
            (&"TOPIC_ALREADY_EXISTS".into(), &600_301.into())
        );
        assert_eq!(change["unmapped"]["detail"], "partitions=3");
        let login =
            EventContent::Login(Login { is_again: false, failure: Some("wrong password".to_owned()) });
        let login = value(text(login).as_bytes());
        assert_eq!((&login["class_uid"], &login["status"]), (&3002.into(), &"Failure".into()));
        assert_eq!(
            (&login["user"]["uid"], &login["status_detail"]),
            (&"User:ann".into(), &"wrong password".into())
        );
        let report = value(&report(&[7, 0, 1, 0], 5, &origin()));
        assert_eq!(report["message"], "Audit events were dropped: 7 of denied, 1 of logins");
        assert_eq!(report["unmapped"]["dropped"]["denied"], 7);
        // Fields that OCSF requires of every event, and of these two classes.
        let base =
            ["activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid"];
        for (event, more) in [
            (&change, &["actor", "api", "src_endpoint"] as &[_]),
            (&login, &["user", "dst_endpoint"]),
            (&report, &[]),
        ] {
            for key in base.iter().chain(more) {
                assert!(!event[key].is_null(), "{key} is missing in {event}");
            }
        }
    }
}
