//! Brokers with their configurations, the quorum of controllers, and feature levels.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use maud::{Markup, html};

use super::configuration::{self, Change, Shown};
use super::overview::{brokers, directories};
use crate::cluster::configs::{self, Configured};
use crate::cluster::overview;
use crate::cluster::quorum::{self, Feature, Quorum, QuorumNode};
use crate::format;
use crate::page::{Section, Shell, figure, or_dash, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// Shows the brokers.
pub async fn list(shell: Shell) -> Response {
    let overview = overview::read(shell.view()).await;
    let body = overview.map(|overview| {
        html! {
            div id="brokers" data-live {
                (brokers(&overview.brokers))
                h2 { "Log directories" }
                (directories(&overview.directories))
            }
            p { a href="/brokers/all" { "Configuration of all brokers" } }
        }
    });
    shell.answer(Section::Brokers, "Brokers", body)
}

fn resource(id: &str) -> Result<Configured, Problem> {
    match id {
        "all" => Ok(Configured::AllBrokers),
        id => {
            let parsed = id.parse().map(Configured::Broker);
            parsed.map_err(|_| Problem::missing(format!("There is no broker {id:?}")))
        }
    }
}

fn title(id: &str) -> String {
    if id == "all" { "All brokers".to_owned() } else { format!("Broker {id}") }
}

/// Shows the configuration of one, or of all.
pub async fn show(shell: Shell, Path(id): Path<String>, Query(shown): Query<Shown>) -> Response {
    let lines = async { Ok::<_, Problem>(configs::read(shell.view(), &resource(&id)?).await?) };
    let body = lines.await.map(|lines| {
        html! {
            @if id == "all" { p class="quiet" { "What is set here counts for every broker that does not set it itself. Only what is set is listed." } }
            (configuration::table(&format!("/brokers/{id}"), &lines, &shown, !shell.is_read_only()))
            @if id == "all" && !shell.is_read_only() { (set_for_all()) }
        }
    });
    shell.answer(Section::Brokers, &title(&id), body)
}

fn set_for_all() -> Markup {
    html! {
        details class="card narrow" {
            summary { "Set a property" }
            form class="stack" method="post" action="/brokers/all" {
                label { "Property" input name="name" required spellcheck="false" placeholder="log.retention.ms"; }
                label { "Value" input name="value" spellcheck="false"; }
                button class="primary" name="action" value="set" { "Set for all brokers" }
            }
        }
    }
}

/// Changes it.
pub async fn configure(
    State(console): State<Console>,
    shell: Shell,
    Path(id): Path<String>,
    Form(change): Form<Change>,
) -> Response {
    let words = change.words();
    let done =
        async { Ok::<_, Problem>(configs::alter(shell.view(), &resource(&id)?, change.changes()).await?) };
    see_other(&console, &format!("/brokers/{}", crate::page::encode(&id)), Note::of(done.await, words))
}

/// Shows the quorum and the features.
pub async fn quorum(shell: Shell) -> Response {
    let (quorum, features) = tokio::join!(quorum::read(shell.view()), quorum::features(shell.view()));
    let body = quorum.map(|quorum| {
        html! {
            (members(&quorum))
            @match &features {
                Ok(features) => (levels(features)),
                Err(error) => p class="note warn" { (error) },
            }
        }
    });
    shell.answer(Section::Quorum, "Quorum and features", body)
}

fn members(quorum: &Quorum) -> Markup {
    html! {
        div id="quorum" data-live {
            dl class="figures" {
                (figure("Active controller", &quorum.leader.to_string(), Some(&format!("epoch {}", quorum.epoch))))
                (figure("Voters", &format::count(quorum.voters.len()), None))
                (figure("Observers", &format::count(quorum.observers.len()), None))
                (figure("Committed until", &format::count(quorum.high_watermark), None))
            }
            (nodes("Voters", &quorum.voters, quorum.leader))
            (nodes("Observers", &quorum.observers, quorum.leader))
        }
    }
}

fn nodes(name: &str, nodes: &[QuorumNode], leader: i32) -> Markup {
    html! {
        h2 { (name) }
        @if nodes.is_empty() { p class="quiet" { "None." } } @else {
            div class="table" tabindex="0" role="region" aria-label=(name) {
                table {
                    thead { tr { th scope="col" { "Node" } th scope="col" class="number" { "Log end" } th scope="col" class="number" { "Behind" } th scope="col" { "Last fetch (UTC)" } } }
                    tbody {
                        @for node in nodes {
                            tr {
                                th scope="row" { (node.id) @if node.id == leader { " " span class="badge good" { "leader" } } }
                                td class="number" { (format::count(node.end)) }
                                td class="number" { (format::count(node.lag)) }
                                td { (or_dash(node.last_fetch_ms.map(format::time))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn levels(features: &[Feature]) -> Markup {
    html! {
        h2 { "Feature levels" }
        div class="table" tabindex="0" role="region" aria-label="Feature levels" {
            table {
                thead { tr { th scope="col" { "Feature" } th scope="col" class="number" { "Level" } th scope="col" { "This broker supports" } } }
                tbody {
                    @for feature in features {
                        tr {
                            th scope="row" { code { (feature.name) } }
                            td class="number" { (or_dash(feature.level.map(|level| level.to_string()))) }
                            td { (feature.supported_min) " to " (feature.supported_max) }
                        }
                    }
                }
            }
        }
    }
}
