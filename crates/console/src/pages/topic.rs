//! One topic: partitions, configuration, and changes.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::configuration::{self, Change, ConfigTableQuery};
use super::history;
use crate::cluster::configs::{self, ConfiguredResource};
use crate::cluster::topic::{self, Partition, Topic};
use crate::cluster::topics;
use crate::format;
use crate::page::{Section, Shell, encode, figure, or_dash, pager, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// Partitions per page.
const PER_PAGE: usize = 200;

/// The page number of the partition list.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct PageQuery {
    page: usize,
}

/// Shows the partitions.
pub async fn show(
    shell: Shell,
    uri: Uri,
    Path(name): Path<String>,
    Query(paged): Query<PageQuery>,
) -> Response {
    let topic = topic::read(shell.view(), &name).await;
    let hour = history::of_topic(&shell, &name).await;
    let body = topic.map(|topic| {
        html! {
            (tabs(&name, "partitions"))
            (partitions(&uri, &topic, paged.page))
            (hour)
            @if !shell.is_read_only() { (changes(&topic)) }
        }
    });
    shell.answer(Section::Topics, &name, body)
}

/// Shows the configuration.
pub async fn configuration(
    shell: Shell,
    Path(name): Path<String>,
    Query(shown): Query<ConfigTableQuery>,
) -> Response {
    let lines = configs::read(shell.view(), &ConfiguredResource::Topic(name.clone())).await;
    let body = lines.map(|lines| {
        html! {
            (tabs(&name, "configuration"))
            (configuration::table(&format!("{}/configuration", path(&name)), &lines, &shown, !shell.is_read_only()))
        }
    });
    shell.answer(Section::Topics, &name, body)
}

/// Changes the configuration.
pub async fn configure(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(change): Form<Change>,
) -> Response {
    let words = change.words();
    let done = configs::alter(shell.view(), &ConfiguredResource::Topic(name.clone()), change.changes()).await;
    see_other(&console, &format!("{}/configuration", path(&name)), Note::of(done, words))
}

/// The form for adding partitions.
#[derive(Deserialize)]
pub struct Growth {
    partitions: i32,
}

pub async fn grow(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(growth): Form<Growth>,
) -> Response {
    let done = topic::grow(shell.view(), &name, growth.partitions).await;
    see_other(&console, &path(&name), Note::of(done, format!("{name} has {} partitions.", growth.partitions)))
}

/// The form for a deletion, with the typed confirmation.
#[derive(Deserialize)]
pub struct Deletion {
    confirm: String,
}

/// Deletes the topic if the typed name matches.
pub async fn delete(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(deletion): Form<Deletion>,
) -> Response {
    if deletion.confirm != name {
        let note = Note::error(format!("{name} was not deleted: {:?} is not its name.", deletion.confirm));
        return see_other(&console, &path(&name), note);
    }
    match topic::delete(shell.view(), &name).await {
        Ok(()) => see_other(&console, "/topics", Note::done(format!("{name} was deleted."))),
        Err(error) => see_other(&console, &path(&name), Note::error(Problem::from(error).message)),
    }
}

/// The path of a topic.
pub fn path(name: &str) -> String {
    format!("/topics/{}", encode(name))
}

/// The tabs of the pages about a topic.
pub fn tabs(name: &str, shown: &str) -> Markup {
    let path = path(name);
    let tabs = [
        ("partitions", "Partitions", path.clone()),
        ("messages", "Messages", format!("{path}/messages")),
        ("groups", "Groups", format!("{path}/groups")),
        ("configuration", "Configuration", format!("{path}/configuration")),
        ("replicas", "Moves and elections", format!("{path}/replicas")),
        ("producers", "Producers", format!("{path}/producers")),
    ];
    html! {
        nav class="tabs" aria-label="Topic" {
            @for (tab, title, path) in tabs { a href=(path) aria-current=[(tab == shown).then_some("page")] { (title) } }
        }
    }
}

fn partitions(uri: &Uri, topic: &Topic, page: usize) -> Markup {
    let (page, pages, range) = topics::page_of(topic.partitions.len(), page, PER_PAGE);
    let replicas = topic.partitions.first().map_or(0, |first| first.replicas.len());
    html! {
        div id="partitions" data-live {
            dl class="figures" {
                (figure("Partitions", &format::count(topic.partitions.len()), None))
                (figure("Replicas", &format::count(replicas), None))
                @match topic.records {
                    Some(records) => (figure("Records", &format::count(records), Some("at most"))),
                    None => (figure("Records", "–", Some(&unknown_records(topic)))),
                }
                @match topic.bytes {
                    Some(bytes) => (figure("Data", &format::bytes(bytes), Some("over all replicas"))),
                    None => (figure("Data", "–", Some("not known of all replicas"))),
                }
            }
            div class="table" tabindex="0" role="region" aria-label="Partitions" {
                table {
                    thead { tr {
                        th scope="col" class="number" { "Partition" } th scope="col" class="number" { "Leader" } th scope="col" class="number" { "Epoch" }
                        th scope="col" { "Replicas" } th scope="col" { "In sync" }
                        th scope="col" class="number" { "Start" } th scope="col" class="number" { "End" }
                        th scope="col" class="number" { "Records" } th scope="col" class="number" { "Data of the leader" }
                    } }
                    tbody { @for partition in &topic.partitions[range] { (row(partition)) } }
                }
            }
            (pager(uri, page, pages))
            p class="quiet" { "Topic id " code { (topic.id) } @if topic.is_internal { " · one of the cluster's own" } }
        }
    }
}

/// The reason for an unknown number of records.
fn unknown_records(topic: &Topic) -> String {
    let unknown = topic.partitions.iter().filter(|one| one.start.is_none() || one.end.is_none());
    format!("not known of {}", format::counted(unknown.count(), "partition"))
}

fn row(partition: &Partition) -> Markup {
    let records = partition.end.zip(partition.start).map(|(end, start)| format::count(end - start));
    let is_short = partition.in_sync.len() < partition.replicas.len();
    html! {
        tr {
            th scope="row" class="number" { (partition.index) }
            td class="number" { @match partition.leader {
                Some(leader) => (leader),
                None => span class="badge bad" { "none" },
            } }
            td class="number" { (partition.leader_epoch) }
            td { (format::ids(&partition.replicas)) }
            td { @if is_short { span class="badge warn" { (format::ids(&partition.in_sync)) } } @else { (format::ids(&partition.in_sync)) } }
            td class="number" { (or_dash(partition.start.map(format::count))) }
            td class="number" { (or_dash(partition.end.map(format::count))) }
            td class="number" { (or_dash(records)) }
            td class="number" { (or_dash(partition.bytes.map(format::bytes))) }
        }
    }
}

fn changes(topic: &Topic) -> Markup {
    let path = path(&topic.name);
    html! {
        h2 { "Change" }
        p class="actions" {
            a class="button" href=(format!("/create-topic?like={}", encode(&topic.name))) { "Create a topic like this…" }
            a class="button" href=(format!("{path}/purge")) { "Delete all messages…" }
        }
        div class="row" {
            details class="card" {
                summary { "Add partitions" }
                form class="stack" method="post" action=(format!("{path}/partitions")) {
                    label { "Partitions in all" input name="partitions" type="number" required min=(topic.partitions.len() + 1) value=(topic.partitions.len() + 1);
                        span class="hint" { "Partitions cannot be removed again, and keys may go to other partitions from then on." } }
                    button class="primary" { "Add" }
                }
            }
            details class="card" {
                summary { "Delete this topic" }
                form class="stack" method="post" action=(format!("{path}/delete")) {
                    label { "Type the topic's name" input name="confirm" required autocomplete="off" spellcheck="false" data-expect=(topic.name);
                        span class="hint" { "All records of " strong { (topic.name) } " are lost. There is no way back." } }
                    button class="danger" { "Delete" }
                }
            }
        }
    }
}
