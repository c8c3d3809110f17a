//! Connected clients.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::{RequestView, answer};
use crate::clients::{self, ClientList, ClientQuery};
use crate::problem::ErrorAnswer;
use crate::state::Console;

/// Lists one page of the connections to the broker of this console. Needs DESCRIBE on the cluster.
#[utoipa::path(
    get,
    path = "/api/v1/clients",
    tag = "clients",
    params(ClientQuery),
    responses((status = 200, body = ClientList), (status = "default", body = ErrorAnswer))
)]
pub async fn list(
    State(console): State<Console>,
    RequestView(view): RequestView,
    Query(query): Query<ClientQuery>,
) -> Response {
    answer(StatusCode::OK, clients::list(console.settings().clients.as_ref(), &view, &query).await)
}
