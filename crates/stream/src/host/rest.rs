//! The HTTP API: each verb is a request, answers are JSON.
//!
//! | request | effect |
//! |---|---|
//! | `GET /api/v1/streams` | lists all streams; `?figures=true` adds the figures of each stage |
//! | `POST /api/v1/streams` | creates a stream: `{"name", "definition", "deploy", "properties"}` |
//! | `GET /api/v1/streams/NAME` | describes a stream |
//! | `POST /api/v1/streams/NAME/deploy` | deploys a stream on this node: `{"properties"}` |
//! | `POST /api/v1/streams/NAME/undeploy` | stops a stream cleanly |
//! | `DELETE /api/v1/streams/NAME` | stops and deletes a stream |
//! | `GET /api/v1/streams/NAME/taps/STAGE` | shows the output of a stage (`look`) |
//!
//! Errors are `{"error": {"kind", "message"}}`; the message for an invalid definition shows the text with a
//! caret under the mistake. The listener authorizes requests; a stream has the rights of the principal that
//! created it, or deployed it last. Requests from web pages, which have an `Origin`, are rejected: a browser
//! on the machine must not act as an operator.
//!
//! [`document`] describes this API in OpenAPI. A handler is served by its entry in that document.

mod taps;

pub use taps::Hide;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, RawQuery, Request, State as Extracted};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use utoipa::ToSchema;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::definition::properties;
use super::recorder::{Action, Change, Recorder};
use super::{Host, HostError, StreamReport, StreamStatus};
use crate::passwords;

/// Maximum size of a body: a definition of maximum length, escaped.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Receives the host once it has started.
pub type Starting = watch::Receiver<Option<Host>>;

/// The API's routes, also while the host is still starting. `hide` hides parts of messages that pass a stage.
pub fn router(host: Starting, hide: Option<Hide>) -> Router {
    let (router, _) = described().split_for_parts();
    router
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(refuse_web_pages))
        .layer(Extension(hide))
        .with_state(host)
}

/// The OpenAPI document.
pub fn document() -> OpenApi {
    described().to_openapi()
}

fn described() -> OpenApiRouter<Starting> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(status, destroy))
        .routes(routes!(deploy))
        .routes(routes!(undeploy))
        .routes(routes!(taps::look))
}

/// The streams of the cluster.
#[derive(Serialize, ToSchema)]
struct StreamReports {
    /// The streams, sorted by name.
    streams: Vec<StreamReport>,
}

/// A stream that was deleted.
#[derive(Serialize, ToSchema)]
struct DestroyedStream {
    /// The name of the stream.
    name: String,
    /// `destroyed`.
    state: &'static str,
}

/// The answer to a refused request.
#[derive(Serialize, ToSchema)]
struct StreamErrorAnswer {
    error: StreamErrorBody,
}

/// The reason of a refusal.
#[derive(Serialize, ToSchema)]
struct StreamErrorBody {
    /// The kind of the error, for programs, such as `no such stream`.
    kind: &'static str,
    /// The error in words. For an invalid definition, it shows the text with a caret under each mistake.
    message: String,
    /// The mistakes in an invalid definition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    complaints: Vec<Mistake>,
}

/// A mistake in a definition.
#[derive(Serialize, ToSchema)]
struct Mistake {
    /// The description of the mistake.
    message: String,
    /// The correction.
    right: String,
    /// The start of the mistake in the definition, in bytes.
    from: usize,
    /// The end of the mistake, in bytes, exclusive.
    to: usize,
}

/// A stream to create.
#[derive(ToSchema)]
#[expect(
    dead_code,
    reason = "the schema of a body that `create` reads by field, so that an error names the field"
)]
struct Creation {
    /// The name of the stream.
    name: String,
    /// The text of the stream, from source to sink.
    definition: String,
    /// True to deploy the stream on this node, too.
    #[schema(required = false)]
    deploy: bool,
    /// The properties of the deployment: an object of texts by name, or the text `key=value,...`.
    #[schema(required = false)]
    properties: BTreeMap<String, String>,
}

/// The deployment of a stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the schema of the body that `deploy` reads")]
struct Deployment {
    /// The properties of the deployment: an object of texts by name, or the text `key=value,...`.
    #[schema(required = false)]
    properties: BTreeMap<String, String>,
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

fn answer(status: StatusCode, body: &impl Serialize) -> Response {
    // Fields sorted by name, as in all answers.
    let body = serde_json::to_value(body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

fn refusal(status: StatusCode, kind: &'static str, message: &str) -> Response {
    refusal_with(status, kind, message, Vec::new())
}

fn refusal_with(status: StatusCode, kind: &'static str, message: &str, complaints: Vec<Mistake>) -> Response {
    let error = StreamErrorBody { kind, message: message.to_owned(), complaints };
    answer(status, &StreamErrorAnswer { error })
}

impl HostError {
    /// A short name for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            HostError::WrongDefinition(_) => "wrong definition",
            HostError::WrongProperty(_) => "wrong property",
            HostError::NotGuaranteed(_) => "not guaranteed",
            HostError::WrongName(_) => "wrong name",
            HostError::NoSuchStream { .. } => "no such stream",
            HostError::NoSuchStage { .. } => "no such stage",
            HostError::Refused(_) => "refused",
            HostError::MissingRight(_) => "forbidden",
            HostError::Conflict(_) => "conflict",
            HostError::Unavailable(_) => "unavailable",
        }
    }
}

impl IntoResponse for HostError {
    fn into_response(self) -> Response {
        let status = match &self {
            HostError::WrongDefinition(complaints) => {
                let places = complaints.complaints.iter().map(|complaint| Mistake {
                    message: complaint.message.clone(),
                    right: complaint.right.clone(),
                    from: complaint.span.start,
                    to: complaint.span.end,
                });
                let (message, places) = (self.to_string(), places.collect());
                return refusal_with(StatusCode::BAD_REQUEST, self.kind(), &message, places);
            }
            HostError::WrongProperty(_)
            | HostError::NotGuaranteed(_)
            | HostError::WrongName(_)
            | HostError::Refused(_) => StatusCode::BAD_REQUEST,
            HostError::MissingRight(_) => StatusCode::FORBIDDEN,
            HostError::NoSuchStream { .. } | HostError::NoSuchStage { .. } => StatusCode::NOT_FOUND,
            HostError::Conflict(_) => StatusCode::CONFLICT,
            HostError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        refusal(status, self.kind(), &self.to_string())
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
struct StreamName(String);

impl<S: Send + Sync> FromRequestParts<S> for StreamName {
    type Rejection = WrongRequest;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<StreamName, WrongRequest> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(StreamName(name)),
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
    let mut with_figures = false;
    for part in query.0.iter().flat_map(|query| query.split('&')).filter(|part| !part.is_empty()) {
        match part {
            "figures=true" => with_figures = true,
            "figures=false" => {}
            _ => {
                let message = format!("{part:?} is not a parameter: use figures=true");
                return WrongRequest(message).into_response();
            }
        }
    }
    let streams = statuses.iter().map(|status| status.report(with_figures)).collect();
    answer(StatusCode::OK, &StreamReports { streams })
}

/// Completes a verb even if its client disconnects, and records it.
pub async fn complete<F>(host: &Host, recorder: Recorder, change: Change, verb: F) -> Result<(), HostError>
where
    F: Future<Output = Result<(), HostError>> + Send + 'static,
{
    let recorded = async move {
        let outcome = verb.await;
        let failure = outcome.as_ref().err().map(|error| {
            // An error may show the definition.
            (error.kind().to_owned(), passwords::hidden(&error.to_string()).into_owned())
        });
        recorder.record(Change { failure, ..change });
        outcome
    };
    match host.runtime().spawn(recorded).await {
        Ok(outcome) => outcome,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn done<F>(host: &Host, recorder: Recorder, change: Change, verb: F) -> Result<(), Box<Response>>
where
    F: Future<Output = Result<(), HostError>> + Send + 'static,
{
    complete(host, recorder, change, verb).await.map_err(|error| Box::new(error.into_response()))
}

fn describe(host: &Host, name: &str, code: StatusCode) -> Response {
    match host.status(name) {
        Ok(status) => answer(code, &status.report(true)),
        Err(error) => error.into_response(),
    }
}

fn either(response: Result<Response, Box<Response>>) -> Response {
    response.unwrap_or_else(|refusal| *refusal)
}

/// Lists the streams of the cluster.
#[utoipa::path(
    get,
    path = "/api/v1/streams",
    tag = "streams",
    params(("figures" = Option<bool>, Query, description = "`true` adds the figures of each stage")),
    responses((status = 200, body = StreamReports), (status = "default", body = StreamErrorAnswer))
)]
async fn list(Extracted(host): Extracted<Starting>, query: RawQuery) -> Response {
    either(started(&host).map(|host| shown(&host.list(), &query)))
}

/// Describes a stream, with the figures of each stage.
#[utoipa::path(
    get,
    path = "/api/v1/streams/{name}",
    tag = "streams",
    params(("name" = String, Path, description = "The name of the stream")),
    responses((status = 200, body = StreamReport), (status = "default", body = StreamErrorAnswer))
)]
async fn status(Extracted(host): Extracted<Starting>, StreamName(name): StreamName) -> Response {
    either(started(&host).map(|host| describe(&host, &name, StatusCode::OK)))
}

/// Creates a stream.
#[utoipa::path(
    post,
    path = "/api/v1/streams",
    tag = "streams",
    request_body = Creation,
    responses((status = 201, body = StreamReport), (status = "default", body = StreamErrorAnswer))
)]
async fn create(
    Extracted(host): Extracted<Starting>,
    recorder: Recorder,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let requested = || {
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
    let (name, text, deploy) = match requested() {
        Ok(requested) => requested,
        Err(wrong) => return wrong.into_response(),
    };
    let created = async {
        let host = started(&host)?;
        let (verb, created, by) = (host.clone(), name.clone(), recorder.requester());
        let change =
            Change { detail: Some(text.clone()), ..Change::of_stream("CreateStream", Action::Create, &name) };
        done(&host, recorder, change, async move { verb.create(&created, &text, deploy, by).await }).await?;
        Ok(describe(&host, &name, StatusCode::CREATED))
    };
    either(created.await)
}

/// Deploys a stream on this node.
#[utoipa::path(
    post,
    path = "/api/v1/streams/{name}/deploy",
    tag = "streams",
    params(("name" = String, Path, description = "The name of the stream")),
    request_body(content = Option<Deployment>),
    responses((status = 200, body = StreamReport), (status = "default", body = StreamErrorAnswer))
)]
async fn deploy(
    Extracted(host): Extracted<Starting>,
    StreamName(name): StreamName,
    recorder: Recorder,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let requested = Body::read(&body).and_then(|mut body| {
        let properties = body.properties()?;
        body.end("properties")?;
        Ok(properties)
    });
    let properties = match requested {
        Ok(properties) => properties,
        Err(wrong) => return wrong.into_response(),
    };
    let deployed = async {
        let host = started(&host)?;
        let (verb, deployed, by) = (host.clone(), name.clone(), recorder.requester());
        let change = Change::of_stream("DeployStream", Action::Update, &name);
        done(&host, recorder, change, async move { verb.deploy(&deployed, properties, by).await }).await?;
        Ok(describe(&host, &name, StatusCode::OK))
    };
    either(deployed.await)
}

/// Stops a stream cleanly: its source is closed, and messages in flight are delivered.
#[utoipa::path(
    post,
    path = "/api/v1/streams/{name}/undeploy",
    tag = "streams",
    params(("name" = String, Path, description = "The name of the stream")),
    responses((status = 200, body = StreamReport), (status = "default", body = StreamErrorAnswer))
)]
async fn undeploy(
    Extracted(host): Extracted<Starting>,
    StreamName(name): StreamName,
    recorder: Recorder,
) -> Response {
    let undeployed = async {
        let host = started(&host)?;
        let (verb, undeployed) = (host.clone(), name.clone());
        let change = Change::of_stream("UndeployStream", Action::Update, &name);
        done(&host, recorder, change, async move { verb.undeploy(&undeployed).await }).await?;
        Ok(describe(&host, &name, StatusCode::OK))
    };
    either(undeployed.await)
}

/// Stops a stream cleanly, and deletes its definition.
#[utoipa::path(
    delete,
    path = "/api/v1/streams/{name}",
    tag = "streams",
    params(("name" = String, Path, description = "The name of the stream")),
    responses((status = 200, body = DestroyedStream), (status = "default", body = StreamErrorAnswer))
)]
async fn destroy(
    Extracted(host): Extracted<Starting>,
    StreamName(name): StreamName,
    recorder: Recorder,
) -> Response {
    let destroyed = async {
        let host = started(&host)?;
        let (verb, destroyed) = (host.clone(), name.clone());
        let change = Change::of_stream("DestroyStream", Action::Delete, &name);
        done(&host, recorder, change, async move { verb.destroy(&destroyed).await }).await?;
        Ok(answer(StatusCode::OK, &DestroyedStream { name, state: "destroyed" }))
    };
    either(destroyed.await)
}
