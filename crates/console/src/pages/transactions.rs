//! Transactions, and the producers of a topic.

use axum::extract::{Path, Query};
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::groups::shown;
use crate::cluster::transactions::{self, ProducerLine, Transaction, TransactionList, TransactionQuery};
use crate::format;
use crate::page::{Section, Shell, encode, figure, or_dash, pager};

/// Shows the list.
pub async fn list(shell: Shell, uri: Uri, Query(query): Query<TransactionQuery>) -> Response {
    let list = transactions::list(shell.view(), &query).await;
    shell.answer(Section::Transactions, "Transactions", list.map(|list| body(&uri, &query, &list)))
}

fn body(uri: &Uri, query: &TransactionQuery, list: &TransactionList) -> Markup {
    html! {
        form class="filter" method="get" action="/transactions" role="search" {
            label { "Transactional id" input type="search" name="filter" value=(query.filter) placeholder="a part of it"; }
            label { "State" select name="state" {
                option value="" selected[query.state.is_empty()] { "any" }
                @for state in ["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", "PrepareEpochFence"] {
                    option value=(state) selected[query.state == state] { (state) }
                }
            } }
            button { "Show" }
        }
        div id="transactions" data-live {
            @for missing in &list.missing { p class="note warn" { "Some transactions are missing: " (missing) } }
            p class="quiet" { (format::counted(list.matched, "transactional id")) }
            @if !list.transactions.is_empty() {
                div class="table" tabindex="0" role="region" aria-label="Transactions" {
                    table {
                        thead { tr { th scope="col" { "Transactional id" } th scope="col" { "State" } th scope="col" class="number" { "Producer" } } }
                        tbody {
                            @for line in &list.transactions {
                                tr {
                                    th scope="row" { a href=(format!("/transaction?id={}", encode(&line.transactional_id))) { bdi { (shown(&line.transactional_id)) } } }
                                    td { (state(&line.state)) }
                                    td class="number" { (line.producer_id) }
                                }
                            }
                        }
                    }
                }
            }
            (pager(uri, list.page, list.pages))
        }
    }
}

fn state(state: &str) -> Markup {
    let class = match state {
        "Ongoing" => "badge warn",
        "CompleteCommit" => "badge good",
        _ => "badge",
    };
    html! { span class=(class) { (state) } }
}

/// Which transaction.
#[derive(Deserialize)]
pub struct Named {
    id: String,
}

/// Shows one.
pub async fn show(shell: Shell, Query(named): Query<Named>) -> Response {
    let transaction = transactions::read(shell.view(), &named.id).await;
    shell.answer(Section::Transactions, shown(&named.id), transaction.map(|transaction| one(&transaction)))
}

fn one(transaction: &Transaction) -> Markup {
    html! {
        div id="transaction" data-live {
            dl class="figures" {
                div class="figure" { dt { "State" } dd { (state(&transaction.state)) } }
                (figure("Producer", &transaction.producer_id.to_string(), Some(&format!("epoch {}", transaction.producer_epoch))))
                (figure("Timeout", &format::millis(transaction.timeout_ms.into()), None))
                (figure("Began", &transaction.started_ms.map_or("–".to_owned(), format::time), transaction.started_ms.map(|_| "UTC")))
            }
            h2 { "Partitions" }
            @if transaction.partitions.is_empty() { p class="quiet" { "No transaction is open." } }
            @for (topic, partitions) in &transaction.partitions {
                p { a href=(super::topic::path(topic)) { (topic) } ": " (format::ids(partitions)) }
            }
        }
    }
}

/// Shows the producers of a topic.
pub async fn producers(shell: Shell, Path(name): Path<String>) -> Response {
    let producers = transactions::producers(shell.view(), &name).await;
    let body = producers.map(|producers| {
        html! {
            (super::topic::tabs(&name, "producers"))
            (producer_table(&producers))
        }
    });
    shell.answer(Section::Topics, &name, body)
}

fn producer_table(producers: &[ProducerLine]) -> Markup {
    html! {
        div id="producers" data-live {
            @if producers.is_empty() {
                p class="quiet" { "No idempotent or transactional producer has written lately." }
            } @else {
                div class="table" tabindex="0" role="region" aria-label="Producers" {
                    table {
                        thead { tr {
                            th scope="col" class="number" { "Partition" } th scope="col" class="number" { "Producer" } th scope="col" class="number" { "Epoch" }
                            th scope="col" class="number" { "Last sequence" } th scope="col" { "Last record (UTC)" } th scope="col" class="number" { "Open transaction from" }
                        } }
                        tbody {
                            @for producer in producers {
                                tr {
                                    th scope="row" class="number" { (producer.partition) }
                                    td class="number" { (producer.producer_id) } td class="number" { (producer.epoch) }
                                    td class="number" { (producer.last_sequence) }
                                    td { (or_dash((producer.last_timestamp_ms >= 0).then(|| format::time(producer.last_timestamp_ms)))) }
                                    td class="number" { (or_dash(producer.transaction_start.map(format::count))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
