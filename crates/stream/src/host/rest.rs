//! The HTTP API: each verb is a request, answers are JSON.
//!
//! | request | effect |
//! |---|---|
//! | `GET /api/v1/streams` | lists all streams; `?figures=true` adds the figures of each stage |
//! | `POST /api/v1/streams` | creates one: `{"name", "definition", "deploy", "properties"}` |
//! | `GET /api/v1/streams/NAME` | describes one |
//! | `POST /api/v1/streams/NAME/deploy` | deploys it on this node: `{"properties"}` |
//! | `POST /api/v1/streams/NAME/undeploy` | stops it cleanly |
//! | `DELETE /api/v1/streams/NAME` | stops and deletes it |
//!
//! Errors are `{"error": {"kind", "message"}}`; the message for an invalid definition shows the text with a caret under the
//! mistake. Who may create streams runs them with the rights of the process: the listener decides who that is, not this API.
//! Requests from web pages, which
//! have an `Origin`, are rejected: a browser on the machine must not act as an operator.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, RawQuery, Request, State as Extracted};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::definition::properties;
use super::{Host, HostError, StreamStatus};

/// The largest body: a definition of maximum length, escaped.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The host, once it has started.
pub type Starting = watch::Receiver<Option<Host>>;

/// The API, also while the host is still starting.
pub fn router(host: Starting) -> Router {
    Router::new()
        .route("/api/v1/streams", get(list).post(create))
        .route("/api/v1/streams/{name}", get(status).delete(destroy))
        .route("/api/v1/streams/{name}/deploy", post(deploy))
        .route("/api/v1/streams/{name}/undeploy", post(undeploy))
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(refuse_web_pages))
        .with_state(host)
}

/// The API of a run without a host: only the list, with figures.
pub fn figures_router(statuses: Arc<dyn Fn() -> Vec<StreamStatus> + Send + Sync>) -> Router {
    let listed = move |query: RawQuery| async move { shown(&statuses(), &query) };
    Router::new().route("/api/v1/streams", get(listed)).layer(from_fn(refuse_web_pages))
}

async fn not_allowed() -> Response {
    let message = "No such request: use GET /api/v1/streams, POST /api/v1/streams, GET or DELETE /api/v1/streams/NAME, POST /api/v1/streams/NAME/deploy \
                   or POST /api/v1/streams/NAME/undeploy";
    refusal(StatusCode::METHOD_NOT_ALLOWED, "no such verb", message)
}

async fn refuse_web_pages(request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::ORIGIN) {
        let message = "Requests from web pages are refused: use curl or thalweg stream";
        return refusal(StatusCode::FORBIDDEN, "forbidden", message);
    }
    next.run(request).await
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

fn refusal(status: StatusCode, kind: &str, message: &str) -> Response {
    answer(status, &json!({ "error": { "kind": kind, "message": message } }))
}

impl IntoResponse for HostError {
    fn into_response(self) -> Response {
        let message = self.to_string();
        match &self {
            HostError::WrongDefinition(complaints) => {
                let places = complaints.complaints.iter().map(|complaint| {
                    json!({
                        "message": complaint.message,
                        "right": complaint.right,
                        "from": complaint.span.start,
                        "to": complaint.span.end,
                    })
                });
                let places: Vec<Value> = places.collect();
                let error = json!({ "kind": "wrong definition", "message": message, "complaints": places });
                answer(StatusCode::BAD_REQUEST, &json!({ "error": error }))
            }
            HostError::WrongProperty(_) => refusal(StatusCode::BAD_REQUEST, "wrong property", &message),
            HostError::NotExactlyOnce(_) => refusal(StatusCode::BAD_REQUEST, "not exactly once", &message),
            HostError::WrongName(_) => refusal(StatusCode::BAD_REQUEST, "wrong name", &message),
            HostError::NoSuchStream { .. } => refusal(StatusCode::NOT_FOUND, "no such stream", &message),
            HostError::Conflict(_) => refusal(StatusCode::CONFLICT, "conflict", &message),
            HostError::Unavailable(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &message),
        }
    }
}

/// A malformed request.
struct WrongRequest(String);

impl IntoResponse for WrongRequest {
    fn into_response(self) -> Response {
        refusal(StatusCode::BAD_REQUEST, "wrong request", &self.0)
    }
}

/// The name in the path.
struct Named(String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = WrongRequest;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named, WrongRequest> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Named(name)),
            Err(refused) => Err(WrongRequest(format!("The name of a stream cannot be read: {refused}"))),
        }
    }
}

/// The fields of a body; each is taken once.
struct Body(serde_json::Map<String, Value>);

impl Body {
    fn read(bytes: &Result<Bytes, BytesRejection>) -> Result<Body, WrongRequest> {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(refused) if refused.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                return Err(WrongRequest(format!(
                    "The body is too large: the limit is {BODY_BYTES_MAX} bytes"
                )));
            }
            Err(refused) => return Err(WrongRequest(format!("The body cannot be read: {refused}"))),
        };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Body(serde_json::Map::new()));
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(object)) => Ok(Body(object)),
            Ok(_) => Err(WrongRequest("The body is not an object: use {\"name\": ...}".to_owned())),
            Err(error) => Err(WrongRequest(format!("The body is not JSON: {error}"))),
        }
    }

    fn text(&mut self, name: &str) -> Result<String, WrongRequest> {
        match self.0.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(WrongRequest(format!("{name} cannot be {other}: use a string"))),
            None => Err(WrongRequest(format!("{name} is missing: add a string"))),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool, WrongRequest> {
        match self.0.remove(name) {
            Some(Value::Bool(flag)) => Ok(flag),
            None => Ok(false),
            Some(other) => Err(WrongRequest(format!("{name} cannot be {other}: use true or false"))),
        }
    }

    fn properties(&mut self) -> Result<BTreeMap<String, String>, WrongRequest> {
        properties(&self.0.remove("properties").unwrap_or_default()).map_err(WrongRequest)
    }

    /// Checks that no field is left.
    fn end(self, known: &str) -> Result<(), WrongRequest> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(field) => Err(WrongRequest(format!("Unknown field {field}: use {known}"))),
        }
    }
}

fn started(host: &Starting) -> Result<Host, Box<Response>> {
    host.borrow().clone().ok_or_else(|| {
        let message = "The streams are starting: try again in a moment";
        Box::new(refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message))
    })
}

fn shown(statuses: &[StreamStatus], query: &RawQuery) -> Response {
    let with_figures =
        query.0.as_deref().is_some_and(|query| query.split('&').any(|part| part == "figures=true"));
    let streams: Vec<Value> = statuses.iter().map(|status| status.to_json(with_figures)).collect();
    answer(StatusCode::OK, &json!({ "streams": streams }))
}

/// Completes a verb even if its client disconnects.
async fn done<F>(host: &Host, verb: F) -> Result<(), Box<Response>>
where
    F: Future<Output = Result<(), HostError>> + Send + 'static,
{
    match host.runtime().spawn(verb).await {
        Ok(done) => done.map_err(|error| Box::new(error.into_response())),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn describe(host: &Host, name: &str, code: StatusCode) -> Response {
    match host.status(name) {
        Ok(status) => answer(code, &status.to_json(true)),
        Err(error) => error.into_response(),
    }
}

fn either(response: Result<Response, Box<Response>>) -> Response {
    response.unwrap_or_else(|refusal| *refusal)
}

async fn list(Extracted(host): Extracted<Starting>, query: RawQuery) -> Response {
    either(started(&host).map(|host| shown(&host.list(), &query)))
}

async fn status(Extracted(host): Extracted<Starting>, Named(name): Named) -> Response {
    either(started(&host).map(|host| describe(&host, &name, StatusCode::OK)))
}

async fn create(Extracted(host): Extracted<Starting>, body: Result<Bytes, BytesRejection>) -> Response {
    let asked = || {
        let mut body = Body::read(&body)?;
        let (name, text) = (body.text("name")?, body.text("definition")?);
        let (is_deployed, properties) = (body.flag("deploy")?, body.properties()?);
        body.end("name, definition, deploy or properties")?;
        if !is_deployed && !properties.is_empty() {
            return Err(WrongRequest(
                "properties belong to a deployment: add \"deploy\": true, or remove them".to_owned(),
            ));
        }
        Ok((name, text, is_deployed.then_some(properties)))
    };
    let (name, text, deploy) = match asked() {
        Ok(asked) => asked,
        Err(wrong) => return wrong.into_response(),
    };
    let created = async {
        let host = started(&host)?;
        let (verb, created) = (host.clone(), name.clone());
        done(&host, async move { verb.create(&created, &text, deploy).await }).await?;
        Ok(describe(&host, &name, StatusCode::CREATED))
    };
    either(created.await)
}

async fn deploy(
    Extracted(host): Extracted<Starting>,
    Named(name): Named,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let asked = Body::read(&body).and_then(|mut body| {
        let properties = body.properties()?;
        body.end("properties")?;
        Ok(properties)
    });
    let properties = match asked {
        Ok(properties) => properties,
        Err(wrong) => return wrong.into_response(),
    };
    let deployed = async {
        let host = started(&host)?;
        let (verb, deployed) = (host.clone(), name.clone());
        done(&host, async move { verb.deploy(&deployed, properties).await }).await?;
        Ok(describe(&host, &name, StatusCode::OK))
    };
    either(deployed.await)
}

async fn undeploy(Extracted(host): Extracted<Starting>, Named(name): Named) -> Response {
    let undeployed = async {
        let host = started(&host)?;
        let (verb, undeployed) = (host.clone(), name.clone());
        done(&host, async move { verb.undeploy(&undeployed).await }).await?;
        Ok(describe(&host, &name, StatusCode::OK))
    };
    either(undeployed.await)
}

async fn destroy(Extracted(host): Extracted<Starting>, Named(name): Named) -> Response {
    let destroyed = async {
        let host = started(&host)?;
        let (verb, destroyed) = (host.clone(), name.clone());
        done(&host, async move { verb.destroy(&destroyed).await }).await?;
        Ok(answer(StatusCode::OK, &json!({ "name": name, "state": "destroyed" })))
    };
    either(destroyed.await)
}
