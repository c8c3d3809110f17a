//! Brokers with their configurations, the quorum of controllers, and feature levels.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::configuration::{self, Change, ConfigTableQuery};
use super::history;
use crate::cluster::View;
use crate::cluster::configs::{self, ConfiguredResource};
use crate::cluster::overview::{self, BrokerLine};
use crate::cluster::quorum::{self, Direction, Feature, LevelChange, Quorum, QuorumNode};
use crate::format;
use crate::page::{Section, Shell, figure, or_dash, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

fn resource(id: &str) -> Result<ConfiguredResource, Problem> {
    match id {
        "all" => Ok(ConfiguredResource::AllBrokers),
        id => {
            let parsed = id.parse().map(ConfiguredResource::Broker);
            parsed.map_err(|_| Problem::missing(format!("There is no broker {id:?}")))
        }
    }
}

fn title(id: &str) -> String {
    if id == "all" { "All brokers".to_owned() } else { format!("Broker {id}") }
}

/// Shows the configuration of one broker, or the defaults of all brokers.
pub async fn show(shell: Shell, Path(id): Path<String>, Query(shown): Query<ConfigTableQuery>) -> Response {
    let lines = async { configs::read(shell.view(), &resource(&id)?).await.map_err(configs::problem) };
    let hour = history::of_broker_with_id(&shell, &id).await;
    let lines = lines.await;
    if lines.as_ref().is_err_and(|problem| problem.status == StatusCode::NOT_FOUND)
        && let Some(broker) = absent(shell.view(), &id).await
    {
        return shell.answer::<Problem>(Section::Brokers, &title(&id), Ok(absence(&broker)));
    }
    let body = lines.map(|lines| {
        html! {
            (hour)
            @if id == "all" { p class="quiet" { "What is set here counts for every broker that does not set it itself. Only what is set is listed." } }
            (configuration::table(&format!("/brokers/{id}"), &lines, &shown, !shell.is_read_only()))
            @if id == "all" && !shell.is_read_only() { (set_for_all()) }
        }
    });
    shell.answer(Section::Brokers, &title(&id), body)
}

/// A broker of the list that clients do not see: it is fenced, or known by its replicas only.
async fn absent(view: &Arc<View>, id: &str) -> Option<BrokerLine> {
    let id: i32 = id.parse().ok()?;
    let overview = overview::read(view).await.ok()?;
    overview.brokers.into_iter().find(|broker| broker.id == id)
}

fn absence(broker: &BrokerLine) -> Markup {
    html! {
        p class="note warn" {
            "Broker " (broker.id) " is " (broker.state) ". Its configuration can be shown once clients see it in the cluster."
        }
        dl class="facts" {
            dt { "Address" } dd { (or_dash(broker.address.clone())) }
            dt { "Replicas" } dd { (or_dash(broker.replicas.map(format::count))) }
            dt { "Not in sync" } dd { (or_dash(broker.lagging.map(format::count))) }
        }
    }
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

/// Changes the configuration of one broker, or the defaults of all brokers.
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

/// The feature whose level form is open.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct FeatureQuery {
    feature: String,
}

/// Shows the quorum and the features.
pub async fn quorum(shell: Shell, Query(chosen): Query<FeatureQuery>) -> Response {
    let (quorum, features) = tokio::join!(quorum::read(shell.view()), quorum::features(shell.view()));
    let body = quorum.map(|quorum| {
        html! {
            (members(&quorum))
            @match &features {
                Ok(features) => {
                    (levels(features, !shell.is_read_only()))
                    @if let Some(feature) = features.iter().find(|feature| feature.name == chosen.feature && !shell.is_read_only()) {
                        (level_form(feature))
                    }
                },
                Err(error) => p class="note warn" { (error) },
            }
        }
    });
    shell.answer(Section::Quorum, "Quorum and features", body)
}

fn level_form(feature: &Feature) -> Markup {
    let directions = [
        ("upgrade", "a higher level"),
        ("downgrade", "a lower level, if no metadata is lost"),
        ("unsafe", "a lower level, also if metadata is lost"),
    ];
    html! {
        form class="card narrow stack" id="change-level" method="post" action="/features" {
            h3 { "Change " code { (feature.name) } }
            input type="hidden" name="feature" value=(feature.name);
            label { "New level" input name="level" type="number" min="0" required value=(feature.level.unwrap_or(0));
                span class="hint" { "0 turns the feature off. All brokers and controllers must support the level." } }
            label { "Allow" select name="change" { @for (value, words) in directions { option value=(value) { (words) } } } }
            div class="actions" {
                button name="action" value="check" { "Check" }
            }
            label { "To set it, type the feature's name" input name="confirm" autocomplete="off" spellcheck="false";
                span class="hint" { "An upgrade may be impossible to take back." } }
            div class="actions" {
                button class="danger" name="action" value="set" { "Set the level" }
                a class="button" href="/quorum" { "Cancel" }
            }
        }
    }
}

/// The form for a feature level.
#[derive(Deserialize)]
pub struct Level {
    feature: String,
    level: i16,
    change: Direction,
    action: String,
    #[serde(default)]
    confirm: String,
}

/// Validates or sets a feature level.
pub async fn set_level(State(console): State<Console>, shell: Shell, Form(form): Form<Level>) -> Response {
    let page = format!("/quorum?feature={}", crate::page::encode(&form.feature));
    let dry_run = form.action != "set";
    if !dry_run && form.confirm != form.feature {
        let note = Note::error(format!("Nothing was set: {:?} is not the feature's name.", form.confirm));
        return see_other(&console, &page, note);
    }
    let words = match dry_run {
        true => format!("{} could be set to level {}.", form.feature, form.level),
        false => format!("{} has level {} now.", form.feature, form.level),
    };
    let change = LevelChange { feature: form.feature, level: form.level, change: form.change, dry_run };
    see_other(&console, &page, Note::of(quorum::set_level(shell.view(), &change).await, words))
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
                    thead { tr { th scope="col" { "Node" } th scope="col" class="number" { "Log end" } th scope="col" class="number" { "Behind" } th scope="col" { "Last fetch" } } }
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

fn levels(features: &[Feature], may_change: bool) -> Markup {
    html! {
        h2 { "Feature levels" }
        div class="table" tabindex="0" role="region" aria-label="Feature levels" {
            table {
                thead { tr { th scope="col" { "Feature" } th scope="col" class="number" { "Level" } th scope="col" { "This broker supports" } @if may_change { th scope="col" { "Change" } } } }
                tbody {
                    @for feature in features {
                        tr {
                            th scope="row" { code { (feature.name) } }
                            td class="number" { (or_dash(feature.level.map(|level| level.to_string()))) }
                            td { (or_dash(feature.supported_min.zip(feature.supported_max).map(|(min, max)| format!("{min} to {max}")))) }
                            @if may_change {
                                td { a href=(format!("/quorum?feature={}#change-level", crate::page::encode(&feature.name))) aria-label=(format!("Change {}", feature.name)) { "Change" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fenced_broker_of_the_list_has_a_page() {
        let page = absence(&BrokerLine {
            id: 2,
            state: "fenced, not reached",
            address: Some("broker-2:9092".to_owned()),
            rack: None,
            leaders: Some(0),
            replicas: Some(1200),
            lagging: None,
            log_bytes: None,
        });
        assert!(page.0.contains("Broker 2 is fenced, not reached. "), "{}", page.0);
        assert!(page.0.contains("<dd>broker-2:9092</dd>") && page.0.contains("<dd>1,200</dd>"), "{}", page.0);
    }
}
