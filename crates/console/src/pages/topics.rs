//! The list of topics.

use axum::extract::Query;
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};

use crate::cluster::topics::{self, COLUMNS, TopicList, TopicQuery, TopicRow};
use crate::format;
use crate::page::{Section, Shell, encode, or_dash, pager, read_at, time_of_day};
use crate::sorting::{Sorting, kept};

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
                    thead { tr { @if let Ok(sorting) = Sorting::of(&COLUMNS, &query.sort, &query.order) { (sorting.heads(uri, &COLUMNS)) } } }
                    tbody { @for topic in &list.topics { (row(topic)) } }
                }
            }
            (pager(uri, list.page, list.pages))
            (read_at(list.read_at_ms))
            @if let Some(at_ms) = list.rates_at_ms { p class="quiet" { "Records in: measured at " (time_of_day(at_ms)) " UTC." } }
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
    html! {
        tr {
            th scope="row" {
                a href=(format!("/topics/{}", encode(&topic.name))) { (topic.name) }
                @if topic.is_internal { " " span class="badge" { "internal" } }
            }
            td class="number" { (format::count(topic.partitions)) }
            td class="number" { (topic.replicas) }
            td { (state(topic)) }
            td class="number" { (or_dash(topic.bytes.map(format::bytes))) }
            td class="number" { (or_dash(topic.records_per_second.map(format::rate))) }
        }
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
}
