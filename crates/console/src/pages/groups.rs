//! The list of groups.

use axum::extract::Query;
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};

use super::group::{path, state, sum_of_lags as lag};
use crate::cluster::groups::{self, COLUMNS, GroupList, GroupQuery, READ_COLUMNS, READ_MAX};
use crate::format;
use crate::page::{Section, Shell, or_dash, pager, read_at};
use crate::sorting::{Sorting, kept};

/// Shows the groups.
pub async fn list(shell: Shell, uri: Uri, Query(query): Query<GroupQuery>) -> Response {
    let list = groups::list(shell.view(), &query).await;
    shell.answer(Section::Groups, "Groups", list.map(|list| body(&uri, &query, &list)))
}

fn body(uri: &Uri, query: &GroupQuery, list: &GroupList) -> Markup {
    html! {
        (filter(query))
        div id="groups" data-live {
            @for missing in &list.missing { p class="note warn" { (missing) "." } }
            @if let Some(why) = &list.lag_unknown { p class="note warn" { "The lag of the groups is not known: " (why) "." } }
            p class="quiet" { (extent(list)) }
            div class="table" tabindex="0" role="region" aria-label="Groups" {
                table {
                    thead { tr { (heads(uri, query, list.matched)) } }
                    tbody {
                        @for group in &list.groups {
                            tr {
                                th scope="row" { a href=(path(&group.group)) { bdi { (format::id(&group.group)) } } }
                                td { (group.kind) }
                                td { (state(&group.state)) }
                                td { (group.protocol) }
                                td class="number" { (or_dash(group.members.map(format::count))) }
                                td class="number lag" { (lag(group.lag, group.beyond_end)) }
                            }
                        }
                    }
                }
            }
            (pager(uri, list.page, list.pages))
            (read_at(list.read_at_ms))
        }
    }
}

/// The number of the groups in words.
fn extent(list: &GroupList) -> String {
    let matched = format::counted(list.matched, "group");
    match list.total {
        Some(total) if list.matched < total => format!("{matched} of {}", format::count(total)),
        Some(_) => matched,
        None if list.matched == 0 => {
            "No group among those that this login sees; others may exist.".to_owned()
        }
        None => format!("{matched} among those that this login sees; others may exist."),
    }
}

/// The heads. Those of figures that are read group by group are no links while too many groups match.
fn heads(uri: &Uri, query: &GroupQuery, matched: usize) -> Markup {
    let Ok(sorting) = Sorting::of(&COLUMNS, &query.sort, &query.order) else { return html! {} };
    html! {
        @for column in &COLUMNS {
            @if matched > READ_MAX && READ_COLUMNS.contains(&column.name) {
                th scope="col" class=[column.class()] title=(format!("At most {READ_MAX} groups are sorted by this column: filter them")) { (column.title) }
            } @else { (sorting.head(uri, column)) }
        }
    }
}

fn filter(query: &GroupQuery) -> Markup {
    let option = |name: &str, value: &str, chosen: &str| {
        html! { option value=(value) selected[value == chosen] { (name) } }
    };
    html! {
        form class="filter" method="get" action="/groups" role="search" {
            (kept(&query.sort, &query.order))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_groups_is_not_that_of_the_cluster_if_some_are_missing() {
        let extent = |matched, total| {
            let (groups, missing) = (Vec::new(), Vec::new());
            let (page, pages, lag_unknown) = (1, 1, None);
            extent(&GroupList { groups, matched, total, page, pages, missing, lag_unknown, read_at_ms: 0 })
        };
        assert_eq!(
            (extent(3, Some(3)), extent(1, Some(3))),
            ("3 groups".to_owned(), "1 group of 3".to_owned())
        );
        assert_eq!(extent(0, None), "No group among those that this login sees; others may exist.");
        assert!(extent(3, None).starts_with("3 groups among those that this login sees"));
    }

    #[test]
    fn too_many_groups_are_not_sorted_by_what_is_read_group_by_group() {
        let uri: Uri = "/groups".parse().expect("an address");
        let links = |matched| {
            let heads = heads(&uri, &GroupQuery::default(), matched).0;
            (heads.matches("class=\"sort\"").count(), heads.contains("At most 256 groups"))
        };
        assert_eq!((links(READ_MAX), links(READ_MAX + 1)), ((6, false), (4, true)));
    }
}
