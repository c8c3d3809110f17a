//! The messages of a topic: search by position, time, key, text and expression; a live tail; sending one
//! message.
//!
//! A search has limits for the number of messages, their bytes and the time, and ends with the request.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use std::collections::BTreeMap;
use thalweg_browse::show::{Form as Shape, show};
use thalweg_browse::{Content, Message};
use thalweg_record::Offset;

use super::topic::{path, tabs};
use crate::cluster::messages::{self, MessageQuery, MessageToSend, SearchResult};
use crate::format;
use crate::page::{Section, Shell, encode, json, or_dash, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};
use crate::tail;
use crate::unseen::visible_markup;

/// Maximum partitions whose end offsets fit in the address of a tail. With more partitions, a tail starts at
/// the time of its request.
const PARTITIONS_MAX: usize = 200;

/// Shows a search with its result.
pub async fn list(shell: Shell, Path(name): Path<String>, Query(mut query): Query<MessageQuery>) -> Response {
    if query.limit == 0 {
        query.limit = messages::MESSAGES_DEFAULT;
    }
    let found = messages::search(shell.view(), &name, &query).await;
    let status = found.as_ref().map_or_else(|problem| problem.status, |_| StatusCode::OK);
    let body = match found {
        Ok(found) => Ok(html! { (frame(&shell, &name, &query)) (result(&name, &query, &found)) }),
        Err(problem) if problem.status.as_u16() == 400 => Ok(html! {
            (frame(&shell, &name, &query))
            pre class="note bad" role="alert" { (problem.message) }
        }),
        Err(problem) => Err(problem),
    };
    let mut response = shell.answer::<Problem>(Section::Topics, &name, body);
    *response.status_mut() = status;
    response
}

fn frame(shell: &Shell, name: &str, query: &MessageQuery) -> Markup {
    html! {
        (tabs(name, "messages"))
        (form(name, query))
        @if !shell.is_read_only() { (new(name)) }
    }
}

fn form(name: &str, query: &MessageQuery) -> Markup {
    let option = |title: &str, value: &str, chosen: &str| html! { option value=(value) selected[value == chosen] { (title) } };
    html! {
        form class="card stack" method="get" action=(format!("{}/messages", path(name))) role="search" {
            div class="row" {
                label { "From" select name="from" {
                    (option("the newest messages", "", &query.from)) (option("the beginning", "earliest", &query.from))
                    (option("an offset", "offset", &query.from)) (option("a time (UTC)", "time", &query.from))
                } }
                label { "Offset or time" input name="at" value=(query.at) placeholder="2026-01-31 12:00"; }
                label { "Partition" input name="partition" value=(query.partition) inputmode="numeric" placeholder="all"; }
                label { "At most" input name="limit" value=(query.limit) inputmode="numeric"; }
                label { "Show as" select name="shape" {
                    @for shape in ["auto", "json", "text", "hex"] { (option(shape, shape, &query.shape)) }
                } }
            }
            div class="row" {
                label { "Key" input name="key" value=(query.key) placeholder="the whole key" spellcheck="false"; }
                label { "Text in the value" input name="text" value=(query.text) placeholder="a part of it" spellcheck="false"; }
                label { "Expression" input name="expression" value=(query.expression) placeholder="payload.amount > 1000" spellcheck="false"; }
                label class="check" { input type="checkbox" name="committed" value="on" checked[query.committed == "on"]; "Only committed" }
                label class="check" { input type="checkbox" name="control" value="on" checked[query.control == "on"]; "Markers of transactions" }
                button class="primary" { "Search" }
            }
        }
    }
}

fn result(name: &str, query: &MessageQuery, found: &SearchResult) -> Markup {
    let shape = Shape::from_name(&query.shape).unwrap_or(Shape::Auto);
    // Only the newest messages have a live tail.
    let tail = query.from.is_empty().then(|| tail_path(name, query, found));
    html! {
        @if let Some(tail) = &tail {
            p class="quiet" id="tail" data-tail=(tail) role="status" {}
        }
        div id="messages" {
            p class="quiet" {
                (format::counted(found.messages.len(), "message")) " of " (format::counted(found.progress.records, "record")) " looked at. " (found.ended)
            }
            @if let Some(reason) = &found.progress.without_value_reason {
                p class="note warn" { (format::counted(found.progress.without_value, "record")) " without a value of the expression, such as: " (reason) }
            }
            @for message in &found.messages { (one(name, message, shape)) }
        }
    }
}

/// The address of the live tail that continues a search.
fn tail_path(name: &str, query: &MessageQuery, found: &SearchResult) -> String {
    let ends = found.progress.partitions.iter().take(PARTITIONS_MAX + 1);
    let ends: Vec<String> = ends.map(|end| format!("{}:{}", end.partition, end.latest.0)).collect();
    let after = if ends.len() > PARTITIONS_MAX { String::new() } else { ends.join(",") };
    let pairs = [
        ("partition", &query.partition),
        ("key", &query.key),
        ("text", &query.text),
        ("expression", &query.expression),
        ("committed", &query.committed),
        ("control", &query.control),
        ("shape", &query.shape),
        ("after", &after),
    ];
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", encode(value))).collect();
    format!("{}/tail?limit={}&{}", path(name), query.limit, pairs.join("&"))
}

/// Start offsets of a tail, in the address.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct TailStart {
    /// `PARTITION:OFFSET` pairs, separated by commas.
    after: String,
}

impl TailStart {
    fn read(&self) -> BTreeMap<i32, Offset> {
        let pairs = self.after.split(',').filter_map(|pair| pair.split_once(':'));
        let pairs = pairs
            .filter_map(|(partition, offset)| Some((partition.parse().ok()?, Offset(offset.parse().ok()?))));
        pairs.take(PARTITIONS_MAX).collect()
    }
}

/// A live tail with messages as HTML.
pub async fn tail(
    State(console): State<Console>,
    shell: Shell,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(query): Query<MessageQuery>,
    Query(from): Query<TailStart>,
) -> Response {
    let shape = Shape::from_name(&query.shape).unwrap_or(Shape::Auto);
    let topic = name.clone();
    let write = move |message: &Message| {
        serde_json::json!({
            "id": id(message),
            "html": visible_markup(&one(&topic, message, shape).0),
        })
        .to_string()
    };
    match tail::open(&console, shell.view(), &headers, &name, &query, from.read(), write).await {
        Ok(response) => response,
        Err(problem) => json(problem.status, &problem.answer()),
    }
}

/// The element id of a message.
fn id(message: &Message) -> String {
    format!("m-{}-{}", message.partition, message.offset.0)
}

fn one(name: &str, message: &Message, shape: Shape) -> Markup {
    let batch = &message.batch;
    html! {
        article id=(id(message)) class="card message" aria-label=(format!("Message {} of partition {}", message.offset.0, message.partition)) {
            p class="quiet" {
                a href=(format!("{}/messages?from=offset&at={}&partition={}&limit=1", path(name), message.offset.0, message.partition)) {
                    "partition " (message.partition) ", offset " (message.offset.0)
                }
                " · " (or_dash((message.timestamp >= 0).then(|| format!("{} UTC", format::time(message.timestamp)))))
                @if let Some(control) = batch.control { " " span class="badge warn" { "marker: " (control.name()) } }
                @if batch.is_transactional { " " span class="badge" { "transaction" } }
                @if message.is_masked { " " span class="badge" { "masked" } }
            }
            @if let Some(key) = &message.key { (part("Key", key, shape)) }
            @match &message.value {
                Some(value) => (part("Value", value, shape)),
                None => p { span class="badge" { "no value" } },
            }
            @if !message.headers.is_empty() {
                details { summary {
                        (format::counted(message.headers.len() + message.headers_omitted, "header"))
                        @if message.headers_omitted > 0 { ", the first " (message.headers.len()) " of them" }
                    }
                    dl class="facts" {
                        @for header in &message.headers {
                            dt { bdi { (header.name) } (more(header.omitted_name_bytes)) }
                            dd { @match &header.value { Some(value) => (header_value(value, shape)), None => span class="quiet" { "none" } } }
                        }
                    }
                }
            }
        }
    }
}

fn header_value(value: &Content, shape: Shape) -> Markup {
    let shown = show(value, shape);
    html! { pre { (shown.text) } (more(shown.omitted_bytes)) }
}

/// The number of bytes that are not shown.
fn more(bytes: usize) -> Markup {
    html! { @if bytes > 0 { span class="quiet" { " and " (format::bytes(bytes as u64)) " more" } } }
}

fn part(name: &str, content: &Content, shape: Shape) -> Markup {
    let shown = show(content, shape);
    html! {
        div class="part" {
            span class="quiet" { (name) ", " (format::bytes(content.whole_bytes as u64)) @if shown.form != "text" { ", " (shown.form) }
                @if let Some(schema) = &content.schema { ", schema " (schema.id) " (" (schema.kind) ")" @if let Some(problem) = &schema.problem { ": " (problem) } } }
            pre { (shown.text) }
            (more(shown.omitted_bytes))
        }
    }
}

fn new(name: &str) -> Markup {
    html! {
        details class="card" {
            summary { "Send a message" }
            form class="stack" method="post" action=(format!("{}/messages", path(name))) {
                div class="row" {
                    label { "Key of the message" input name="key" spellcheck="false"; }
                    label { "Partition of the message" input name="partition" inputmode="numeric" placeholder="by the key"; }
                }
                label { "Value" textarea name="value" spellcheck="false" {} }
                label { "Headers" textarea name="headers" spellcheck="false" placeholder="trace-id=42" {} span class="hint" { "One on each line, as NAME=VALUE." } }
                label class="check" { input type="checkbox" name="tombstone" value="on"; "Without a value: it deletes the key where the topic is compacted" }
                button class="primary" { "Send" }
            }
        }
    }
}

/// Sends a message.
pub async fn send(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(message): Form<MessageToSend>,
) -> Response {
    let sent = messages::send(shell.view(), &name, message).await;
    let note = match sent {
        Ok(at) => {
            Note::done(format!("The message is in partition {}, offset {}.", at.partition, at.offset.0))
        }
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, &format!("{}/messages", path(&name)), note)
}
