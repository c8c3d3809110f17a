//! The JSON API and its OpenAPI document. A handler is routed by its entry in the document.

mod access;
mod clients;
mod cluster;
mod groups;
mod history;
mod lab;
mod parameters;
mod purge;
mod replicas;
mod topics;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use parameters::KnownParameters;

use crate::cluster::View;
use crate::page;
use crate::problem::Problem;
use crate::session::Person;
use crate::settings::BODY_MAX;
use crate::state::Console;

/// Title and description of the OpenAPI document.
#[derive(OpenApi)]
#[openapi(info(
    title = "Thalweg console",
    version = "1",
    description = "A cluster as the login of the request sees it. Log in by HTTP Basic, or with the cookie of the page /login. \
                   Changes must not come from the pages of other sites."
))]
struct Document;

/// The API with its document, which covers streams if this node hosts streams.
pub fn routes(console: &Console) -> Router<Console> {
    let (router, mut document) = described().split_for_parts();
    let known = Arc::new(KnownParameters::of(&document));
    let router = router.route_layer(from_fn_with_state(known, parameters::check));
    if console.settings().streams.is_some() {
        document.merge(thalweg_stream::host::rest::document());
    }
    let document = Arc::new(document);
    let served = move || {
        let document = Arc::clone(&document);
        async move { page::json(StatusCode::OK, &*document) }
    };
    router.route("/api/v1/openapi.json", get(served))
}

/// Adds the check of query parameters to the pages that are lists of the API, too.
pub fn with_known_parameters(pages: Router<Console>) -> Router<Console> {
    let known = Arc::new(KnownParameters::of(described().get_openapi()));
    pages.route_layer(from_fn_with_state(known, parameters::check_page))
}

fn described() -> OpenApiRouter<Console> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(cluster::overview))
        .routes(routes!(cluster::brokers))
        .routes(routes!(cluster::quorum))
        .routes(routes!(cluster::features, cluster::set_level))
        .routes(routes!(cluster::configuration, cluster::configure))
        .routes(routes!(cluster::transactions))
        .routes(routes!(cluster::transaction))
        .routes(routes!(cluster::fence))
        .routes(routes!(cluster::hanging))
        .routes(routes!(cluster::abort))
        .routes(routes!(cluster::producers))
        .routes(routes!(access::acls, access::create_acl, access::delete_acl))
        .routes(routes!(access::rights))
        .routes(routes!(access::users, access::set_password, access::remove_credential))
        .routes(routes!(access::quotas, access::set_quota))
        .routes(routes!(topics::list, topics::create))
        .routes(routes!(topics::show, topics::delete))
        .routes(routes!(topics::configuration, topics::configure))
        .routes(routes!(topics::grow))
        .routes(routes!(purge::plan, purge::purge))
        .routes(routes!(topics::groups))
        .routes(routes!(replicas::progress, replicas::begin, replicas::cancel))
        .routes(routes!(replicas::plan))
        .routes(routes!(replicas::end_throttle))
        .routes(routes!(replicas::elect))
        .routes(routes!(topics::messages, topics::send))
        .routes(routes!(topics::download))
        .routes(routes!(topics::tail))
        .routes(routes!(groups::list))
        .routes(routes!(groups::show, groups::delete))
        .routes(routes!(groups::reset))
        .routes(routes!(groups::delete_offsets))
        .routes(routes!(clients::list))
        .routes(routes!(history::broker))
        .routes(routes!(history::topic))
        .routes(routes!(history::group))
        .routes(routes!(lab::overview))
        .routes(routes!(lab::start, lab::stop))
        .routes(routes!(lab::compare))
        .routes(routes!(lab::delete))
}

/// The cluster under the login of a request.
pub struct RequestView(pub Arc<View>);

impl FromRequestParts<Console> for RequestView {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &Console) -> Result<RequestView, Response> {
        let person = parts.extensions.get::<Arc<Person>>();
        let person = person.expect("the API has no path that is open to all");
        Ok(RequestView(Arc::clone(&person.view)))
    }
}

/// A request body with a JSON object. An empty body counts as an empty object.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Console> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Console) -> Result<Body<T>, Response> {
        let refused = |status: StatusCode, message: String| {
            page::json(status, &Problem { status, ..Problem::wrong(message) }.answer())
        };
        let bytes = Bytes::from_request(request, console).await.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let message = format!("The body is too large: the limit is {BODY_MAX} bytes");
                refused(StatusCode::PAYLOAD_TOO_LARGE, message)
            }
            _ => refused(StatusCode::BAD_REQUEST, format!("The body cannot be read: {error}")),
        })?;
        // A change without fields needs no body.
        let body = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes.trim_ascii() };
        let wrong = |message| refused(StatusCode::BAD_REQUEST, message);
        // Serde would accept an array as the fields in order.
        if body.first() != Some(&b'{') {
            return Err(wrong(
                "The body is not right: a JSON object is expected, as in {\"name\": ...}".to_owned(),
            ));
        }
        serde_json::from_slice(body)
            .map(Body)
            .map_err(|error| wrong(format!("The body is not right: {error}")))
    }
}

/// The result of a change.
#[derive(Serialize, ToSchema)]
struct ChangeAnswer {
    /// A sentence for people.
    done: String,
}

/// Builds the answer of a change.
fn done<P: Into<Problem>>(outcome: Result<(), P>, words: impl Into<String>) -> Response {
    answer(StatusCode::OK, outcome.map(|()| ChangeAnswer { done: words.into() }))
}

/// Builds the answer of a read or a change.
fn answer<T: Serialize, P: Into<Problem>>(status: StatusCode, outcome: Result<T, P>) -> Response {
    match outcome.map_err(Into::into) {
        Ok(body) => page::json(status, &body).into_response(),
        Err(problem) => page::json(problem.status, &problem.answer()),
    }
}
