//! Checks and headers around every request: host, origin, read-only mode and login.
//!
//! - Responses forbid inline and foreign scripts, styles, frames and connections.
//! - Without a login, host names of other sites are refused ([`Hosts`]), because DNS rebinding may point them
//!   here.
//! - A change must come from a page of this console (`Sec-Fetch-Site`, `Origin`) or from a program, which
//!   sends neither header and no form. Session cookies also have `SameSite=Strict`.
//! - In read-only mode, a change is refused before any handler sees the request.
//!
//! The streams API, served beside the console, passes the same checks ([`Guard`]).

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, ORIGIN,
    REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use std::net::IpAddr;
use std::sync::Arc;

use crate::arrival::Arrival;
use crate::page::{self, Shell, is_api};
use crate::pages::kept_form::KeptForm;
use crate::pages::login;
use crate::problem::Problem;
use crate::session::{Person, basic};
use crate::settings::{BODY_MAX, Hosts, Login};
use crate::state::{Console, LoginProblem};
use crate::{api, pages};

/// Maximum bytes of a refusal text.
const REFUSAL_MAX: usize = 64 << 10;
/// Resources of this server only, nothing inline, no embedding in frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The pages use no browser features.
const PERMISSIONS: &str = "camera=(), geolocation=(), microphone=(), payment=(), usb=()";
/// The path by which the script checks the definition of a stream.
const STREAM_CHECK: &str = "/streams-check";
/// The challenge for programs.
const CHALLENGE: &str = "Basic realm=\"Thalweg\", charset=\"UTF-8\"";

/// Request checks for the console and the routes beside it: host names and read-only mode.
#[derive(Clone)]
pub struct Guard {
    hosts: Hosts,
    is_read_only: bool,
    /// Logged-in users of this console may use any host name, since other sites lack their login.
    console: Option<Console>,
}

impl Guard {
    /// Creates checks for routes beside the console.
    pub fn new(hosts: Hosts, is_read_only: bool) -> Guard {
        Guard { hosts, is_read_only, console: None }
    }

    /// Also accepts any host name from users who have logged in to `console`.
    #[must_use]
    pub fn with(self, console: Option<&Console>) -> Guard {
        Guard { console: console.cloned(), ..self }
    }

    /// Wraps routes in the checks.
    pub fn protect(&self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self.clone(), protect))
    }
}

impl Console {
    /// The pages and the API, wrapped in the checks.
    pub fn router(&self) -> Router {
        let guard = Guard::new(self.settings().hosts.clone(), self.settings().read_only);
        Router::new()
            .merge(api::with_known_parameters(pages::routes()))
            .merge(api::routes(self))
            .fallback(pages::missing)
            .layer(DefaultBodyLimit::max(BODY_MAX))
            .layer(from_fn_with_state(self.clone(), enter))
            .layer(from_fn_with_state(guard, protect))
            .with_state(self.clone())
    }
}

impl Console {
    /// The answer to a request that the server around the console refuses: JSON to the API and the script,
    /// otherwise a page in the frame of the person.
    pub fn refusal(&self, request: &Parts, status: StatusCode, kind: &str, message: &str) -> Response {
        let problem = Problem { status, kind: kind.to_owned(), message: message.to_owned() };
        let path = request.uri.path();
        if is_api(path) || path == STREAM_CHECK {
            return page::json(status, &problem.answer());
        }
        let person = match &self.settings().login {
            Login::None => self.everyone().ok(),
            Login::Password(_) | Login::Impossible(_) => self.sessions().person(&request.headers),
        };
        Shell::new(self, person, None).refuse_at(path, &problem)
    }
}

async fn protect(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let checked = check(&guard, request.method(), request.uri(), request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = match checked {
        Ok(()) => in_words(&method, &path, next.run(request).await).await,
        Err(problem) => page::refusal(&path, &problem),
    };
    set_headers(response.headers_mut());
    response
}

/// Converts refusals of the framework, which are plain text or empty, to JSON of the API or a page.
async fn in_words(method: &Method, path: &str, response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_plain = kind.is_empty() || kind.starts_with("text/plain");
    if !response.status().is_client_error() || !is_plain {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, REFUSAL_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let (status, message) = match parts.status {
        StatusCode::METHOD_NOT_ALLOWED => (parts.status, format!("{method} is not served at {path}")),
        // A missing form field is a bad request, like a missing query parameter.
        StatusCode::UNPROCESSABLE_ENTITY => (StatusCode::BAD_REQUEST, text.into_owned()),
        status if text.trim().is_empty() => (status, format!("{method} {path} is refused: {status}")),
        status => (status, text.into_owned()),
    };
    let mut answer = page::refusal(path, &Problem { status, ..Problem::wrong(message) });
    for name in [CONTENT_TYPE, CONTENT_LENGTH] {
        parts.headers.remove(name);
    }
    // Keeps headers such as Allow.
    answer.headers_mut().extend(parts.headers);
    answer
}

/// Sets the headers of every response.
pub fn set_headers(headers: &mut HeaderMap) {
    // A lab report sets its own policy, which is equally strict.
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(HeaderName::from_static("permissions-policy"), HeaderValue::from_static(PERMISSIONS));
    let same_origin = HeaderValue::from_static("same-origin");
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), same_origin.clone());
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), same_origin);
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

fn check(guard: &Guard, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(|authority| authority.as_str()).or(host).unwrap_or_default();
    if let Hosts::Local(names) = &guard.hosts
        && !is_local(host, |name| names.contains(name))
        && guard.console.as_ref().is_none_or(|console| console.user(headers).is_none())
    {
        let message = format!(
            "This console does not answer to the name {host:?}: another site may have pointed its name here. Use localhost or an IP \
             address, or allow the name (thalweg.console.hosts, --allow-host)"
        );
        return Err(Problem {
            status: StatusCode::MISDIRECTED_REQUEST,
            ..Problem::forbidden("wrong host", message)
        });
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    if !is_own(host, headers) {
        let message =
            "Changes are taken from the pages of this console and from programs, not from other sites";
        return Err(Problem::forbidden("cross-site request", message));
    }
    if guard.is_read_only && !matches!(uri.path(), "/login" | "/logout") {
        let message =
            "This console is read-only: it was started with thalweg.console.read.only or --read-only";
        return Err(Problem::forbidden("read-only", message));
    }
    Ok(())
}

/// True if the host of a request cannot be the name of another site.
fn is_local(host: &str, is_known: impl Fn(&str) -> bool) -> bool {
    let has_port = host.rsplit_once(':').filter(|(name, port)| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']'))
    });
    let name = has_port.map_or(host, |(name, _)| name).to_ascii_lowercase();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    name == "localhost" || address.parse::<IpAddr>().is_ok() || is_known(&name)
}

/// True if a change comes from a page of this console or from a program.
fn is_own(host: &str, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
    if let Some(site) = text(HeaderName::from_static("sec-fetch-site")) {
        return site == "same-origin";
    }
    if let Some(origin) = text(ORIGIN) {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        return authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host));
    }
    // Only an ancient browser would send a form without either header.
    let kind = text(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    !["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"]
        .iter()
        .any(|form| kind.starts_with(form))
}

/// Attaches the person to a request, or asks for a login.
async fn enter(State(console): State<Console>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if matches!(path, "/login" | "/logout") || path.starts_with("/assets/") {
        return next.run(request).await;
    }
    // The body is set aside, because it cannot be shared between threads.
    let (mut parts, body) = request.into_parts();
    match person(&console, &parts).await {
        Ok(person) => {
            person.view.touch();
            parts.extensions.insert(person);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refused) if refused.status().is_redirection() => match KeptForm::of(&parts, body).await {
            Some(kept) => login::carrying(&console, &kept),
            None => *refused,
        },
        Err(refused) => *refused,
    }
}

async fn person(console: &Console, request: &Parts) -> Result<Arc<Person>, Box<Response>> {
    let path = request.uri.path();
    let failed = |problem: &Problem| Box::new(page::refusal(path, problem));
    match &console.settings().login {
        Login::None => return console.everyone().map_err(|problem| failed(&problem)),
        Login::Impossible(reason) => return Err(failed(&Problem::forbidden("no login", reason.as_str()))),
        Login::Password(_) => {}
    }
    if let Some(person) = console.sessions().person(&request.headers) {
        return Ok(person);
    }
    if let Some((user, password)) = basic(&request.headers) {
        match console.log_in(request.extensions.get(), &user, &password).await {
            Ok((person, login)) => {
                Arrival::admit(request, &user).map_err(|problem| failed(&problem))?;
                console.sessions().remember(Arc::clone(&person), login);
                return Ok(person);
            }
            Err(LoginProblem::Failed(problem)) => return Err(failed(&problem)),
            Err(LoginProblem::Wrong) => {}
        }
    } else if !is_api(path) {
        let next = request.uri.path_and_query().map_or("/", |next| next.as_str());
        let page = match request.method {
            Method::GET if path != "/" => format!("/login?next={}", page::encode(next)),
            _ => "/login".to_owned(),
        };
        return Err(Box::new(Redirect::to(&page).into_response()));
    }
    Err(Box::new(unauthenticated(request)))
}

/// The answer to a request without a valid login.
fn unauthenticated(request: &Parts) -> Response {
    let message =
        "This console asks for a user and a password of the cluster (HTTP Basic, or the page /login)";
    let problem =
        Problem { status: StatusCode::UNAUTHORIZED, ..Problem::forbidden("unauthenticated", message) };
    let mut response = page::refusal(request.uri.path(), &problem);
    // WWW-Authenticate would make a browser open its own login dialog.
    if !request.headers.contains_key("sec-fetch-mode") {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ConsoleSettings;

    #[test]
    fn names_of_other_sites_are_not_local() {
        let known = |name: &str| name == "console.example.org";
        for local in [
            "localhost",
            "LOCALHOST:9090",
            "127.0.0.1:9090",
            "[::1]:9090",
            "[::1]",
            "10.0.0.7",
            "console.example.org:80",
        ] {
            assert!(is_local(local, known), "{local}");
        }
        for other in [
            "",
            "evil.example",
            "localhost.evil.example:9090",
            "127.0.0.1.evil.example",
            "evil.example:localhost",
        ] {
            assert!(!is_local(other, known), "{other}");
        }
    }

    #[test]
    fn changes_come_from_own_pages_or_programs() {
        let of = |headers: &[(&'static str, &'static str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_own("localhost:9090", &headers.collect())
        };
        assert!(of(&[
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded")
        ]));
        assert!(of(&[("origin", "http://LOCALHOST:9090")]));
        assert!(of(&[("content-type", "application/json")]) && of(&[]));
        assert!(!of(&[("sec-fetch-site", "cross-site"), ("origin", "http://localhost:9090")]));
        assert!(!of(&[("sec-fetch-site", "same-site")]) && !of(&[("sec-fetch-site", "none")]));
        assert!(!of(&[("origin", "null")]) && !of(&[("origin", "http://localhost:9091")]));
        assert!(!of(&[("origin", "http://evil.example"), ("content-type", "application/json")]));
        for form in [
            "application/x-www-form-urlencoded",
            "Text/Plain;charset=utf-8",
            "multipart/form-data; boundary=x",
        ] {
            assert!(!of(&[("content-type", form)]), "{form}");
        }
    }

    async fn refused(login: Login, path: &str) -> (StatusCode, String, String) {
        let console = Console::new(ConsoleSettings { login, ..ConsoleSettings::without_login() });
        let (request, ()) = axum::http::Request::get(path).body(()).expect("a request").into_parts();
        let answer = console.refusal(&request, StatusCode::FORBIDDEN, "forbidden", "User:ann may <not>");
        let kind = answer.headers()[CONTENT_TYPE].to_str().expect("text").to_owned();
        let status = answer.status();
        let body = axum::body::to_bytes(answer.into_body(), REFUSAL_MAX).await.expect("a body");
        (status, kind, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn a_refused_page_is_a_page() {
        for (path, title) in [
            ("/streams", "<h1>Streams</h1>"),
            ("/streams/orders/taps/filter", "<h1>Streams</h1>"),
            ("/create-stream", "<h1>Not served</h1>"),
        ] {
            let (status, kind, page) = refused(Login::None, path).await;
            assert_eq!((status, kind.as_str()), (StatusCode::FORBIDDEN, "text/html; charset=utf-8"));
            assert!(page.contains(title) && page.contains("aria-label=\"Main\""), "{path}: {page}");
            assert!(page.contains("role=\"alert\">User:ann may &lt;not&gt;</p>"), "{page}");
        }
        let (_, _, page) = refused(Login::Password(Vec::new()), "/streams").await;
        assert!(page.contains("<h1>Streams</h1>") && !page.contains("aria-label=\"Main\""), "no session");
        for path in ["/api/v1/streams", STREAM_CHECK] {
            let (_, kind, body) = refused(Login::None, path).await;
            assert_eq!(kind, "application/json");
            assert_eq!(body, "{\"error\":{\"kind\":\"forbidden\",\"message\":\"User:ann may <not>\"}}\n");
        }
    }
}
