//! Admission of HTTP requests: the login, the rights on the cluster, and a guest's slot.
//!
//! A request that reads (GET, HEAD) needs DESCRIBE on the cluster. Every other request needs ALTER, and so
//! does reading the messages that pass a stage of a stream. The three paths of [`health`] are open to
//! everybody. A console with its own login checks its own paths: the cluster decides about the rights of the
//! console's users. Refusals are JSON, like the errors of hosted streams, but for pages of a console: these
//! are refused by a page.

use super::answer_body::GuardedBody;
use super::health;
use super::slots::{ConnectionSlot, NoSlot, Owner};
use super::strict_transport;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, STRICT_TRANSPORT_SECURITY, WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use thalweg_broker::authentication::Passwords;
use thalweg_broker::{HttpAccess, HttpAction, HttpChange, HttpFailure};
use thalweg_console::{Arrival, Console};
use thalweg_security::Principal;
use thalweg_security::acl::{CLUSTER_NAME, Operation};
use thalweg_stream::host::recorder::{Action, Change, Recorder};
use tokio::time::Instant;

/// The challenge of HTTP Basic, which asks a client for its login.
const CHALLENGE: &str = "Basic realm=\"Thalweg\", charset=\"UTF-8\"";
/// The same text for an unknown user and a wrong password, so that user names stay secret.
const WRONG_LOGIN: &str = "Authentication failed: invalid user or password";
/// The ways to log in, for the audit trail.
const CERTIFICATE: &str = "SSL";
const PASSWORD: &str = "BASIC";
/// Limit of a logged path, in bytes.
const PATH_LOGGED: usize = 200;

/// A connection, with the state of its login.
pub(super) struct Visit {
    /// None allows everybody everything.
    pub access: Option<Arc<HttpAccess>>,
    pub console: Option<Console>,
    pub slot: Arc<ConnectionSlot>,
    pub address: IpAddr,
    /// The principal of the client's certificate, if any.
    pub certified: Option<Principal>,
    /// The last user who logged in. Each request carries the password, but the audit trail gets one login.
    logged_in: Mutex<Option<String>>,
}

/// Requirement of a request, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Open to everybody.
    Nothing,
    /// A login that the console checks.
    OwnLogin,
    /// A login that the console checks, and a right on the cluster.
    OwnLoginAndRight,
    /// A right on the cluster.
    Right,
}

/// Reason why a request is not served.
enum Refusal {
    /// The login is missing, or is not a name and a password.
    NoLogin(&'static str),
    /// The name or the password is wrong.
    WrongLogin,
    Forbidden {
        principal: String,
        operation: Operation,
        request: String,
    },
    Full,
}

/// Serves a request if `Visit::admit` admits it.
pub(super) async fn check(State(visit): State<Arc<Visit>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let strict = visit.is_over_tls() && strict_transport::is_site(&parts.headers);
    let mut response = match visit.admit(&parts).await {
        Ok(principal) => {
            let user = principal.as_ref().filter(|principal| !principal.is_anonymous()).map(Principal::name);
            parts.extensions.insert(Owner::of(user, visit.address));
            if let Some(recorder) = visit.recorder(principal) {
                parts.extensions.insert(recorder);
            }
            // If the console checks the login, the connection stays a stranger's until then.
            let slot = Arc::clone(&visit.slot);
            let admit = Arc::new(move |user: &str| slot.begin(Some(user)).is_ok());
            parts.extensions.insert(Arrival { address: visit.address, admit });
            let request = Request::from_parts(parts, body);
            let served = BusySlot(Arc::clone(&visit.slot));
            next.run(request).await.map(|body| GuardedBody::around(body, served))
        }
        Err(refusal) => refusal.answer(visit.console.as_ref(), &parts),
    };
    if strict {
        response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, strict_transport::VALUE);
    }
    response
}

impl Visit {
    /// The visit of a connection that was just accepted. Records a login by certificate.
    pub fn begin(
        access: Option<Arc<HttpAccess>>,
        console: Option<Console>,
        slot: Arc<ConnectionSlot>,
        address: IpAddr,
        certified: Option<Principal>,
    ) -> Visit {
        if let (Some(access), Some(certified)) = (&access, &certified)
            && access.passwords.is_none()
        {
            access.record_login(certified, address, CERTIFICATE, None);
        }
        Visit { access, console, slot, address, certified, logged_in: Mutex::default() }
    }

    fn is_over_tls(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.tls.is_some())
    }

    /// Admits a request. Returns its principal, unless the console checks the login.
    async fn admit(&self, request: &Parts) -> Result<Option<Principal>, Refusal> {
        let Some(access) = &self.access else {
            self.slot.begin(None)?;
            return Ok(None);
        };
        let own_login = self.console.as_ref().filter(|console| console.has_login());
        let user = own_login.and_then(|console| console.user(&request.headers));
        match need(request.uri.path(), own_login.is_some()) {
            // The connection stays a stranger's; the console answers with its login page.
            Need::Nothing => return Ok(None),
            Need::OwnLogin if user.is_none() => return Ok(None),
            Need::OwnLoginAndRight if user.is_none() && !request.headers.contains_key(AUTHORIZATION) => {
                return Ok(None);
            }
            Need::OwnLogin => {
                self.slot.begin(user.as_deref())?;
                return Ok(user.map(Principal::user));
            }
            Need::OwnLoginAndRight | Need::Right => {}
        }
        // A name and password are checked with each request; a session was checked at its start.
        let user = user.filter(|_| !request.headers.contains_key(AUTHORIZATION)).map(Principal::user);
        let login = match (&access.passwords, user) {
            (_, Some(user)) => Some(user),
            (Some(passwords), None) => Some(self.login(access, passwords, &request.headers).await?),
            (None, None) => self.certified.clone(),
        };
        let is_named = login.is_some();
        let principal = login.unwrap_or_else(Principal::anonymous);
        // A named principal gets a guest's slot even if the request is refused below.
        if is_named {
            self.slot.begin(Some(principal.name()))?;
        }
        let operation = operation(&request.method, request.uri.path());
        let (method, path) = (&request.method, request.uri.path());
        let path = path.get(..PATH_LOGGED).unwrap_or(path);
        if !access.rights.allow(&principal, self.address, operation, format_args!("{method} {path}")) {
            self.slot.end();
            let (principal, request) = (principal.to_string(), format!("{method} {path}"));
            return Err(Refusal::Forbidden { principal, operation, request });
        }
        if !is_named {
            self.slot.begin(None)?;
        }
        Ok(Some(principal))
    }

    /// A recorder that writes the changes of a request to the audit trail.
    fn recorder(&self, principal: Option<Principal>) -> Option<Recorder> {
        let (access, address) = (Arc::clone(self.access.as_ref()?), self.address);
        let principal = principal.unwrap_or_else(Principal::anonymous);
        let requester = principal.to_string();
        let recorder = Recorder::new(move |change| {
            let principal = change.user.clone().map_or_else(|| principal.clone(), Principal::user);
            access.record_change(&principal, address, audited(change));
        });
        Some(recorder.requested_by(&requester))
    }

    async fn login(
        &self,
        access: &HttpAccess,
        passwords: &Passwords,
        headers: &HeaderMap,
    ) -> Result<Principal, Refusal> {
        let Some(shown) = headers.get(AUTHORIZATION) else {
            return Err(Refusal::NoLogin("This listener asks for a user and a password (HTTP Basic)"));
        };
        let began = Instant::now();
        let Some((user, password)) = basic(shown) else {
            let expected =
                "The Authorization header is not of HTTP Basic, with user:password in UTF-8 and Base64";
            return Err(Refusal::NoLogin(expected));
        };
        if passwords.verify(self.address, &user, &password).await {
            let principal = Principal::user(user.as_str());
            let before = self.logged_in.lock().replace(user);
            if before.as_deref() != Some(principal.name()) {
                access.record_login(&principal, self.address, PASSWORD, None);
            }
            return Ok(principal);
        }
        access.record_login(&Principal::user(user.as_str()), self.address, PASSWORD, Some(WRONG_LOGIN));
        tracing::info!(address = %self.address, ?user, "HTTP login failed");
        // The delay counts from the start of the check, so that its duration reveals nothing about the user.
        tokio::time::sleep_until(began + passwords.failure_delay()).await;
        Err(Refusal::WrongLogin)
    }
}

/// A change as the audit trail stores it.
fn audited(change: Change) -> HttpChange {
    HttpChange {
        request: change.request.to_owned(),
        action: match change.action {
            Action::Create => HttpAction::Create,
            Action::Update => HttpAction::Update,
            Action::Delete => HttpAction::Delete,
        },
        resource_type: change.resource_type,
        resource_name: change.resource_name,
        detail: change.detail,
        failure: change.failure.map(|(code, message)| HttpFailure { code, message: Some(message) }),
    }
}

/// The requirement of a path. Streams run with the rights of this process, so the pages of streams need a
/// right, too.
fn need(path: &str, has_own_login: bool) -> Need {
    let is_under = |root: &str| is_under(path, root);
    if health::PATHS.contains(&path) {
        return Need::Nothing;
    }
    if !has_own_login || is_under("/metrics") || is_under("/api/v1/streams") {
        return Need::Right;
    }
    let is_of_streams = ["/streams", "/streams-check", "/create-stream"].into_iter().any(is_under);
    if is_of_streams { Need::OwnLoginAndRight } else { Need::OwnLogin }
}

/// The operation that a request needs. A stream may read topics that the client may not, so a tap on its
/// messages needs ALTER.
fn operation(method: &Method, path: &str) -> Operation {
    let of_stream = path.strip_prefix("/api/v1").unwrap_or(path).strip_prefix("/streams/");
    let is_tap = of_stream.and_then(|rest| rest.split('/').nth(1)).is_some_and(|part| part == "taps");
    match *method {
        Method::GET | Method::HEAD if !is_tap => Operation::Describe,
        _ => Operation::Alter,
    }
}

/// User and password of an Authorization header of the Basic scheme (RFC 7617).
fn basic(header: &HeaderValue) -> Option<(String, String)> {
    let (scheme, shown) = header.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let shown = String::from_utf8(STANDARD.decode(shown.trim()).ok()?).ok()?;
    let (user, password) = shown.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

impl From<NoSlot> for Refusal {
    fn from(_: NoSlot) -> Refusal {
        Refusal::Full
    }
}

/// True for the paths of pages, if there is a console.
fn is_page(path: &str) -> bool {
    let is_of_others = ["/api", "/metrics"].into_iter().any(|root| is_under(path, root));
    !is_of_others && !health::PATHS.contains(&path)
}

fn is_under(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Refusal {
    /// A page for pages of the console, and JSON for everything else.
    fn answer(self, console: Option<&Console>, request: &Parts) -> Response {
        let (status, kind, message) = match &self {
            Refusal::NoLogin(message) => (StatusCode::UNAUTHORIZED, "unauthenticated", (*message).to_owned()),
            Refusal::WrongLogin => (StatusCode::UNAUTHORIZED, "unauthenticated", WRONG_LOGIN.to_owned()),
            Refusal::Forbidden { principal, operation, request } => {
                let operation = operation.name();
                let message = format!(
                    "{principal} may not {request}: it needs the operation {operation} on the resource \
                     Cluster:{CLUSTER_NAME} (thalweg security acl add {principal} --cluster --allow {})",
                    operation.to_lowercase()
                );
                (StatusCode::FORBIDDEN, "forbidden", message)
            }
            Refusal::Full => {
                let message = "Too many connections are being served: try again".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
            }
        };
        let mut response = match console.filter(|_| is_page(request.uri.path())) {
            Some(console) => console.refusal(request, status, kind, &message),
            None => {
                let body = json!({ "error": { "kind": kind, "message": message } });
                (status, [(CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
            }
        };
        let headers = response.headers_mut();
        thalweg_console::set_headers(headers);
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        // One login attempt per connection, as on Kafka's listeners.
        if matches!(self, Refusal::WrongLogin | Refusal::Full) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Marks the request as ended when dropped.
struct BusySlot(Arc<ConnectionSlot>);

impl Drop for BusySlot {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn pages_with_a_login_of_their_own_need_no_other() {
        for (path, without, with) in [
            ("/healthz", Need::Nothing, Need::Nothing),
            ("/healthz/", Need::Right, Need::OwnLogin),
            ("/", Need::Right, Need::OwnLogin),
            ("/create-topic", Need::Right, Need::OwnLogin),
            ("/metrics", Need::Right, Need::Right),
            ("/streams", Need::Right, Need::OwnLoginAndRight),
            ("/streams/orders/deploy", Need::Right, Need::OwnLoginAndRight),
            ("/streams-check", Need::Right, Need::OwnLoginAndRight),
            ("/api/v1/streams", Need::Right, Need::Right),
            ("/api/v1/streams/orders", Need::Right, Need::Right),
            ("/api/v1/streamsx", Need::Right, Need::OwnLogin),
        ] {
            assert_eq!((need(path, false), need(path, true)), (without, with), "{path}");
        }
    }

    #[test]
    fn pages_are_refused_by_a_page() {
        for page in ["/", "/streams", "/streams/orders/taps/filter", "/create-stream", "/metricsx"] {
            assert!(is_page(page), "{page}");
        }
        for other in ["/metrics", "/api/v1/streams", "/api/v1/topics", "/livez", "/readyz"] {
            assert!(!is_page(other), "{other}");
        }
        let (request, _) = Request::new(Body::empty()).into_parts();
        let kind = Refusal::Full.answer(None, &request).headers()[CONTENT_TYPE].clone();
        assert_eq!(kind, "application/json", "there is no console");
    }

    #[test]
    fn messages_of_streams_are_for_those_who_may_change_them() {
        for (method, path, needed) in [
            (Method::GET, "/streams/orders", Operation::Describe),
            (Method::GET, "/streams/taps", Operation::Describe),
            (Method::GET, "/streams/orders/taps/filter", Operation::Alter),
            (Method::HEAD, "/api/v1/streams/orders/taps/filter", Operation::Alter),
            (Method::POST, "/api/v1/streams/orders/deploy", Operation::Alter),
            (Method::GET, "/topics/a/taps/b", Operation::Describe),
        ] {
            assert_eq!(operation(&method, path), needed, "{method} {path}");
        }
    }

    #[test]
    fn basic_has_a_user_and_a_password() {
        let read = |text: &str| basic(&HeaderValue::from_str(text).expect("a header"));
        let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let of = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read(&encoded("ann:s3cret:x")), of("ann", "s3cret:x"), "a password may have colons");
        assert_eq!(read(&encoded("ann:s3cret").replace("Basic", "bAsIc")), of("ann", "s3cret"));
        assert_eq!(read(&encoded("änn:pässwörd")), of("änn", "pässwörd"));
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), of("Aladdin", "open sesame"));
        for wrong in [&encoded("ann"), "Basic", "Basic !", "Bearer abc", "Basic /w==", ""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
