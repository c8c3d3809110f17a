//! The clients that are connected to the broker of this console.

use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};

use crate::clients::{self, ClientConnection, ClientList, ClientQuery};
use crate::format;
use crate::page::{Section, Shell, encode, or_dash, pager};
use crate::state::Console;

/// Characters of a client id that brokers keep.
const CLIENT_ID_SHOWN: usize = 100;

/// The page of the connections with this client id.
pub fn path(client: &str) -> String {
    let kept: String = client.chars().take(CLIENT_ID_SHOWN).collect();
    format!("/clients?filter={}", encode(&kept))
}

/// Shows the connections.
pub async fn list(
    State(console): State<Console>,
    shell: Shell,
    uri: Uri,
    Query(query): Query<ClientQuery>,
) -> Response {
    let list = clients::list(console.settings().clients.as_ref(), shell.view(), &query).await;
    shell.answer(Section::Clients, "Clients", list.map(|list| body(&uri, &query, &list)))
}

fn body(uri: &Uri, query: &ClientQuery, list: &ClientList) -> Markup {
    html! {
        form class="filter" method="get" action="/clients" role="search" {
            label { "Contains" input type="search" name="filter" value=(query.filter) placeholder="client id, address, user or software"; }
            button { "Show" }
        }
        div id="clients" data-live {
            p class="quiet" {
                (format::counted(list.matched, "connection"))
                @if list.matched < list.total { " of " (format::count(list.total)) }
                " to broker " (list.broker) ". Clients of other brokers are on the pages of those."
            }
            @if list.omitted > 0 {
                p class="note warn" { (format::counted(list.omitted, "more connection")) " beyond the limit of this page." }
            }
            div class="table" tabindex="0" role="region" aria-label="Clients" {
                table {
                    thead { tr {
                        th scope="col" { "Client" } th scope="col" { "Address" } th scope="col" { "Principal" } th scope="col" { "Software" }
                        th scope="col" { "Listener" } th scope="col" class="number" { "Open for" } th scope="col" class="number" { "Idle for" }
                    } }
                    tbody { @for connection in &list.connections { (row(connection)) } }
                }
            }
            (pager(uri, list.page, list.pages))
        }
    }
}

fn row(connection: &ClientConnection) -> Markup {
    let ms = |ms: u64| format::millis(i64::try_from(ms).unwrap_or(i64::MAX));
    html! {
        tr {
            th scope="row" { @match &connection.client {
                Some(client) => bdi { (format::id(client)) },
                None => (or_dash(None)),
            } }
            td { (connection.address) }
            td { @match &connection.principal {
                Some(principal) => bdi { (principal) },
                None => span class="quiet" { "not logged in" },
            } }
            td {
                (or_dash(connection.software.clone()))
                @if let Some(version) = &connection.version { " " (version) }
            }
            td { (connection.listener) @if connection.tls { " (TLS)" } }
            td class="number" { (ms(connection.open_ms)) }
            td class="number" { (ms(connection.idle_ms)) }
        }
    }
}
