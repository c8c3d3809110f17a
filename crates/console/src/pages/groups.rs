//! The list of groups.

use axum::extract::Query;
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};

use super::group::path;
use crate::cluster::groups::{self, GroupList, GroupQuery};
use crate::format;
use crate::page::{Section, Shell, or_dash, pager};

/// Shows the groups.
pub async fn list(shell: Shell, uri: Uri, Query(query): Query<GroupQuery>) -> Response {
    let list = groups::list(shell.view(), &query).await;
    shell.answer(Section::Groups, "Groups", list.map(|list| body(&uri, &query, &list)))
}

fn body(uri: &Uri, query: &GroupQuery, list: &GroupList) -> Markup {
    html! {
        (filter(query))
        div id="groups" data-live {
            @for missing in &list.missing { p class="note warn" { "Some groups are missing: " (missing) } }
            p class="quiet" {
                (format::counted(list.matched, "group"))
                @if list.matched < list.total { " of " (format::count(list.total)) }
            }
            div class="table" tabindex="0" role="region" aria-label="Groups" {
                table {
                    thead { tr {
                        th scope="col" { "Group" } th scope="col" { "Type" } th scope="col" { "State" } th scope="col" { "Protocol" }
                        th scope="col" class="number" { "Lag" }
                    } }
                    tbody {
                        @for group in &list.groups {
                            tr {
                                th scope="row" { a href=(path(&group.group)) { bdi { (shown(&group.group)) } } }
                                td { (group.kind) }
                                td { (state(&group.state)) }
                                td { (group.protocol) }
                                td class="number" { (or_dash(group.lag.map(format::count))) }
                            }
                        }
                    }
                }
            }
            (pager(uri, list.page, list.pages))
        }
    }
}

/// A group id, or a substitute if empty.
pub fn shown(name: &str) -> &str {
    if name.is_empty() { "(empty name)" } else { name }
}

/// A badge for the state of a group.
pub fn state(state: &str) -> Markup {
    let class = match state {
        "Stable" => "badge good",
        "Empty" | "Dead" | "" => "badge",
        _ => "badge warn",
    };
    html! { span class=(class) { (if state.is_empty() { "not known" } else { state }) } }
}

fn filter(query: &GroupQuery) -> Markup {
    let option = |name: &str, value: &str, chosen: &str| {
        html! { option value=(value) selected[value == chosen] { (name) } }
    };
    html! {
        form class="filter" method="get" action="/groups" role="search" {
            label { "Name" input type="search" name="filter" value=(query.filter) placeholder="a part of it"; }
            label { "Type" select name="kind" {
                (option("any", "", &query.kind))
                @for kind in ["classic", "consumer", "share", "streams"] { (option(kind, kind, &query.kind)) }
            } }
            label { "State" select name="state" {
                (option("any", "", &query.state))
                @for state in ["Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead"] {
                    (option(state, state, &query.state))
                }
            } }
            button { "Show" }
        }
    }
}
