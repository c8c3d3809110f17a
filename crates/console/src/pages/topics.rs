//! The list of topics.

use axum::extract::Query;
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};

use super::group::{path as group_path, sum_of_lags};
use crate::cluster::groups_by_topic::TopicGroupRow;
use crate::cluster::topics::{self, COLUMNS, TopicList, TopicQuery, TopicRow};
use crate::format;
use crate::page::{Section, Shell, encode, or_dash, pager, read_at, time_of_day};
use crate::sorting::{Sorting, kept};

/// Groups in the row of a topic.
const GROUPS_MAX: usize = 3;

/// Shows the topics.
pub async fn list(shell: Shell, uri: Uri, Query(query): Query<TopicQuery>) -> Response {
    let list = topics::list(shell.view(), &query).await;
    shell.answer(Section::Topics, "Topics", list.map(|list| body(&shell, &uri, &query, &list)))
}

fn body(shell: &Shell, uri: &Uri, query: &TopicQuery, list: &TopicList) -> Markup {
    html! {
        (filter(query))
        @if !shell.is_read_only() { p class="actions" { a class="button primary" href="/create-topic" { "Create a topic" } } }
        div id="topics" data-live {
            p class="quiet" { (extent(list)) }
            div class="table" tabindex="0" role="region" aria-label="Topics" {
                table {
                    thead { tr {
                        @if let Ok(sorting) = Sorting::of(&COLUMNS, &query.sort, &query.order) { (sorting.heads(uri, &COLUMNS)) }
                        th scope="col" class="lag" { "Groups, lag" }
                    } }
                    tbody { @for topic in &list.topics { (row(topic)) } }
                }
            }
            (pager(uri, list.page, list.pages))
            (read_at(list.read_at_ms))
            @if let Some(at_ms) = list.rates_at_ms { p class="quiet" { "Records in: measured at " (time_of_day(at_ms)) " UTC." } }
            @if let Some(at_ms) = list.groups_at_ms { p class="quiet" { "Groups: read at " (time_of_day(at_ms)) " UTC." } }
            @for missing in &list.groups_missing { p class="quiet" { (missing) "." } }
        }
    }
}

/// The number of the topics in words.
fn extent(list: &TopicList) -> String {
    let matched = format::counted(list.matched, "topic");
    match (list.total, list.hidden) {
        (Some(total), _) if list.matched < total => format!("{matched} of {}", format::count(total)),
        (Some(_), _) => matched,
        (None, Some(hidden)) => format!(
            "{matched} among those that this login may describe; {} more {} hidden from it.",
            format::count(hidden),
            if hidden == 1 { "is" } else { "are" }
        ),
        (None, None) => format!("{matched} among those that this login may describe; others may exist."),
    }
}

fn row(topic: &TopicRow) -> Markup {
    let path = format!("/topics/{}", encode(&topic.name));
    html! {
        tr {
            th scope="row" {
                a href=(path) { (topic.name) }
                @if topic.is_internal { " " span class="badge" { "internal" } }
                " "
                a class="aside" href=(format!("{path}/messages")) aria-label=(format!("Messages of {}", topic.name)) { "Messages" }
            }
            td class="number" { (format::count(topic.partitions)) }
            td class="number" { (topic.replicas) }
            td { (state(topic)) }
            td class="number" { (or_dash(topic.bytes.map(format::bytes))) }
            td class="number" { (or_dash(topic.records_per_second.map(format::rate))) }
            td class="lag" { (groups(topic, &path)) }
        }
    }
}

/// The groups with the largest lag, and a link to the others.
fn groups(topic: &TopicRow, path: &str) -> Markup {
    let shown = &topic.groups[..topic.groups.len().min(GROUPS_MAX)];
    let more = topic.groups_found - shown.len();
    html! {
        @for group in shown { p { (self::group(group)) } }
        @if more > 0 {
            p { a href=(format!("{path}/groups")) aria-label=(format!("{more} more groups of {}", topic.name)) { (more) " more" } }
        }
        @if shown.is_empty() {
            @match topic.group_count { Some(_) => span class="quiet" { "none" }, None => (or_dash(None)) }
        }
    }
}

fn group(group: &TopicGroupRow) -> Markup {
    html! {
        a href=(group_path(&group.group)) { bdi { (format::id(&group.group)) } } " "
        (sum_of_lags(group.lag, group.beyond_end))
        @if group.members == Some(0) { " " span class="quiet" { "no members" } }
    }
}

fn state(topic: &TopicRow) -> Markup {
    html! {
        @if topic.leaderless > 0 {
            span class="badge bad" { (topic.leaderless) " without a leader" }
        } @else if topic.under_replicated > 0 {
            span class="badge warn" { (topic.under_replicated) " under-replicated" }
        } @else {
            span class="badge good" { "in sync" }
        }
    }
}

fn filter(query: &TopicQuery) -> Markup {
    let option = |name: &str, value: &str, chosen: &str| {
        html! { option value=(value) selected[value == chosen] { (name) } }
    };
    html! {
        form class="filter" method="get" action="/topics" role="search" {
            (kept(&query.sort, &query.order))
            label { "Name" input type="search" name="filter" value=(query.filter) placeholder="a part of it"; }
            label { "State" select name="state" {
                (option("any", "", &query.state))
                (option("under-replicated", "under-replicated", &query.state))
                (option("without a leader", "leaderless", &query.state))
            } }
            label class="check" { input type="checkbox" name="internal" value="on" checked[query.internal == "on"]; "Internal topics" }
            button { "Show" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_topics_is_not_that_of_the_cluster_if_some_are_hidden() {
        let extent = |matched, total, hidden| {
            let topics = Vec::new();
            extent(&TopicList {
                topics,
                matched,
                total,
                hidden,
                page: 1,
                pages: 1,
                read_at_ms: 0,
                rates_at_ms: None,
                groups_missing: Vec::new(),
                groups_at_ms: None,
            })
        };
        assert_eq!(extent(3, Some(3), Some(0)), "3 topics");
        assert_eq!(extent(1, Some(3), None), "1 topic of 3");
        assert_eq!(
            extent(0, None, Some(2)),
            "0 topics among those that this login may describe; 2 more are hidden from it."
        );
        assert_eq!(
            extent(0, None, None),
            "0 topics among those that this login may describe; others may exist."
        );
    }

    #[test]
    fn a_topic_has_links_to_its_groups_and_messages() {
        let group =
            |group: &str, lag, members| TopicGroupRow { group: group.into(), lag, beyond_end: 0, members };
        let mut topic = TopicRow {
            name: "orders".to_owned(),
            is_internal: false,
            partitions: 1,
            replicas: 1,
            under_replicated: 0,
            leaderless: 0,
            bytes: None,
            records_per_second: None,
            groups: vec![
                group("a&b", Some(1234), Some(2)),
                group("c", None, None),
                group("d", Some(0), Some(0)),
            ],
            group_count: Some(7),
            groups_found: 7,
        };
        let page = row(&topic).0;
        for part in [
            "<a href=\"/group?id=a%26b\"><bdi>a&amp;b</bdi></a> 1,234</p>",
            "<bdi>c</bdi></a> <span class=\"quiet\" title=\"not known\">–</span></p>",
            "<bdi>d</bdi></a> 0 <span class=\"quiet\">no members</span></p>",
            "<a href=\"/topics/orders/groups\" aria-label=\"4 more groups of orders\">4 more</a>",
            "<a class=\"aside\" href=\"/topics/orders/messages\" aria-label=\"Messages of orders\">Messages</a>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        topic.groups.clear();
        (topic.group_count, topic.groups_found) = (Some(0), 0);
        assert!(row(&topic).0.contains("<span class=\"quiet\">none</span></td>"));
        topic.group_count = None;
        assert!(
            row(&topic)
                .0
                .contains("<td class=\"lag\"><span class=\"quiet\" title=\"not known\">–</span></td>")
        );
    }
}
