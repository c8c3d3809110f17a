//! The pages. A handler reads through a view and writes HTML, or makes a change and redirects to a page.

mod access;
mod broker_list;
mod brokers;
mod clients;
mod configuration;
mod group;
mod groups;
mod history;
pub mod kept_form;
mod lab;
pub mod login;
mod messages;
mod new_user;
mod overview;
mod purge;
mod quotas;
mod replicas;
mod streams;
mod taps;
mod topic;
mod topic_creation;
mod topic_groups;
mod topics;
mod transactions;
mod users;

use axum::Router;
use axum::http::Uri;
use axum::response::Response;
use axum::routing::{get, post};

use crate::assets;
use crate::page::{self, Shell, is_api};
use crate::problem::Problem;
use crate::state::Console;

/// Routes of all pages.
pub fn routes() -> Router<Console> {
    Router::new()
        .route("/", get(overview::show))
        .route("/topics", get(topics::list))
        .route("/create-topic", get(topic_creation::show).post(topic_creation::create))
        .route("/topics/{name}", get(topic::show))
        .route("/topics/{name}/configuration", get(topic::configuration).post(topic::configure))
        .route("/topics/{name}/partitions", post(topic::grow))
        .route("/topics/{name}/groups", get(topic_groups::show))
        .route("/topics/{name}/messages", get(messages::list).post(messages::send))
        .route("/topics/{name}/messages/download", get(messages::download))
        .route("/topics/{name}/message", get(messages::part))
        .route("/topics/{name}/send", get(messages::again))
        .route("/topics/{name}/tail", get(messages::tail))
        .route("/topics/{name}/replicas", get(replicas::show).post(replicas::begin))
        .route("/topics/{name}/replicas/cancel", post(replicas::cancel))
        .route("/topics/{name}/replicas/end-throttle", post(replicas::end_throttle))
        .route("/topics/{name}/replicas/elect", post(replicas::elect))
        .route("/topics/{name}/abort-transaction", get(transactions::abort_page).post(transactions::abort))
        .route("/topics/{name}/delete", post(topic::delete))
        .route("/topics/{name}/purge", get(purge::show).post(purge::purge))
        .route("/groups", get(groups::list))
        .route("/group", get(group::show))
        .route("/group/reset", get(group::reset_page).post(group::reset))
        .route("/group/delete-offset", get(group::deletion_page).post(group::delete_offset))
        .route("/group/delete", post(group::delete))
        .route("/topics/{name}/producers", get(transactions::producers))
        .route("/acls", get(access::list).post(access::create))
        .route("/acls/delete", get(access::deletion_page).post(access::delete))
        .route("/acls/rights", get(access::rights))
        .route("/users", get(users::list).post(users::set_password))
        .route("/create-user", get(new_user::show).post(new_user::create))
        .route("/users/remove", get(users::removal_page).post(users::remove))
        .route("/quotas", get(quotas::list).post(quotas::set))
        .route("/quotas/remove", get(quotas::removal_page).post(quotas::remove))
        .route("/transactions", get(transactions::list))
        .route("/transaction", get(transactions::show))
        .route("/transaction/fence", post(transactions::fence))
        .route("/hanging-transactions", get(transactions::hanging))
        .route("/brokers", get(broker_list::show))
        .route("/brokers/{id}", get(brokers::show).post(brokers::configure))
        .route("/clients", get(clients::list))
        .route("/quorum", get(brokers::quorum))
        .route("/features", post(brokers::set_level))
        .route("/streams", get(streams::list).post(streams::create))
        .route("/streams-check", get(streams::check))
        .route("/create-stream", get(streams::creation_page))
        .route("/streams/{name}", get(streams::show))
        .route("/streams/{name}/taps/{stage}", get(taps::look_at))
        .route("/streams/{name}/{verb}", post(streams::change))
        .route("/lab", get(lab::show).post(lab::start))
        .route("/lab/stop", post(lab::stop))
        .route("/lab/compare", get(lab::compare))
        .route("/lab/results/{name}", get(lab::report))
        .route("/lab/results/{name}/delete", post(lab::delete))
        .route("/login", get(login::show).post(login::check))
        .route("/logout", post(login::end))
        .route("/assets/{name}", get(assets::serve))
}

/// The API of hosted streams.
const STREAMS_API: &str = "/api/v1/streams";

/// The answer for unknown paths.
pub async fn missing(shell: Shell, uri: Uri) -> Response {
    let path = uri.path();
    // A node with streams has their API in front of the console.
    let text = match path.strip_prefix(STREAMS_API) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            "This node hosts no streams: set streams.enabled=true in its configuration, and start it again"
                .to_owned()
        }
        _ => format!("There is nothing at {path}"),
    };
    let problem = Problem::missing(text);
    match is_api(uri.path()) {
        true => page::refusal(uri.path(), &problem),
        false => shell.refuse(&problem),
    }
}
