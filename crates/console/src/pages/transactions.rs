//! Transactions, and the producers of a topic.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use crate::cluster::transactions::{
    self, Abortion, HangingList, HangingQuery, OpenTransaction, TopicProducers, Transaction, TransactionList,
    TransactionQuery,
};
use crate::confirm::{is_name, visible_form};
use crate::format;
use crate::page::{Section, Shell, encode, figure, or_dash, pager, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// Shows the transactional ids.
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
            label { "Producer" input name="producer" value=(query.producer) inputmode="numeric" placeholder="its id"; }
            label { "Minutes at least" input name="longer" value=(query.longer) inputmode="numeric" placeholder="any"; }
            button { "Show" }
        }
        p { a href="/hanging-transactions" { "Find hanging transactions" } }
        div id="transactions" data-live {
            @for missing in &list.missing { p class="note warn" { "Some transactions are missing: " (missing) } }
            p class="quiet" {
                @if list.matched == 0 { "No transactional id matches, of those that your login may describe." }
                @else { (format::counted(list.matched, "transactional id")) " of those that your login may describe" }
            }
            @if !list.transactions.is_empty() {
                div class="table" tabindex="0" role="region" aria-label="Transactions" {
                    table {
                        thead { tr { th scope="col" { "Transactional id" } th scope="col" { "State" } th scope="col" class="number" { "Producer" } } }
                        tbody {
                            @for line in &list.transactions {
                                tr {
                                    th scope="row" { a href=(format!("/transaction?id={}", encode(&line.transactional_id))) { bdi { (format::id(&line.transactional_id)) } } }
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

/// The transactional id in the query.
#[derive(Deserialize)]
pub struct TransactionalIdQuery {
    id: String,
}

/// Shows one transactional id.
pub async fn show(shell: Shell, Query(named): Query<TransactionalIdQuery>) -> Response {
    let transaction = transactions::read(shell.view(), &named.id).await;
    let body = transaction.map(|transaction| {
        html! {
            (one(&transaction))
            @if !shell.is_read_only() { (end(&transaction)) }
        }
    });
    shell.answer(Section::Transactions, format::id(&named.id), body)
}

fn end(transaction: &Transaction) -> Markup {
    html! {
        details class="card narrow" {
            summary { "End its transaction and fence its producer" }
            form class="stack" method="post" action="/transaction/fence" {
                input type="hidden" name="id" value=(transaction.transactional_id);
                label { "Type the transactional id" input name="confirm" required autocomplete="off" spellcheck="false" data-expect=(transaction.transactional_id) data-visible=[visible_form(&transaction.transactional_id)];
                    span class="hint" { "An open transaction is aborted. A producer that is alive fails." } }
                button class="danger" { "End and fence" }
            }
        }
    }
}

/// The form for fencing, with the typed confirmation.
#[derive(Deserialize)]
pub struct FenceForm {
    id: String,
    confirm: String,
}

/// Ends the transaction of a transactional id if the typed id matches.
pub async fn fence(State(console): State<Console>, shell: Shell, Form(form): Form<FenceForm>) -> Response {
    let page = format!("/transaction?id={}", encode(&form.id));
    if !is_name(&form.confirm, &form.id) {
        let note = Note::error(format!("Nothing was ended: {:?} is not the transactional id.", form.confirm));
        return see_other(&console, &page, note);
    }
    let done = transactions::fence(shell.view(), &form.id).await;
    see_other(
        &console,
        &page,
        Note::of(done, format!("The producers of {} were fenced.", format::id(&form.id))),
    )
}

/// Finds hanging transactions.
pub async fn hanging(shell: Shell, Query(query): Query<HangingQuery>) -> Response {
    let found = transactions::hanging(shell.view(), &query).await;
    let body = match found {
        Ok(found) => Ok(html! { (hanging_form(&query)) (hanging_list(&shell, &found)) }),
        Err(problem) if problem.status.as_u16() == 400 => Ok(html! {
            (hanging_form(&query))
            p class="note bad" role="alert" { (problem.message) }
        }),
        Err(problem) => Err(problem),
    };
    shell.answer::<Problem>(Section::Transactions, "Hanging transactions", body)
}

fn hanging_form(query: &HangingQuery) -> Markup {
    html! {
        p class="quiet" {
            "Open transactions that their coordinator has forgotten. Consumers that read only committed records wait for them for ever. "
            a href="/transactions" { "All transactions" }
        }
        form class="filter" method="get" action="/hanging-transactions" role="search" {
            label { "Topic" input type="search" name="topic" value=(query.topic) placeholder="all" spellcheck="false"; }
            label { "Without a record for minutes" input name="minutes" value=(query.minutes) inputmode="numeric" placeholder="15"; }
            button { "Find" }
        }
    }
}

fn hanging_list(shell: &Shell, found: &HangingList) -> Markup {
    html! {
        @for missing in &found.missing { p class="note warn" { "Not everything could be looked at: " (missing) } }
        @if found.transactions.is_empty() && found.missing.is_empty() && found.unclear.is_empty() {
            p class="note good" role="status" { "No transaction hangs." }
        } @else if found.transactions.is_empty() && found.unclear.is_empty() {
            p class="note" role="status" { "No transaction hangs in what could be looked at." }
        } @else if !found.transactions.is_empty() {
            (hanging_table(shell, &found.transactions, "Hanging transactions"))
        }
        @if !found.unclear.is_empty() {
            h2 { "Open transactions" }
            p class="note warn" {
                "Whether these hang is not known: this login may not describe all transactional ids, and coordinators leave those out. "
                "A producer may be at work in them, and an abort would break its transaction."
            }
            (hanging_table(shell, &found.unclear, "Open transactions"))
        }
    }
}

fn hanging_table(shell: &Shell, transactions: &[OpenTransaction], label: &str) -> Markup {
    html! {
            div class="table" tabindex="0" role="region" aria-label=(label) {
                table {
                    thead { tr {
                        th scope="col" { "Topic" } th scope="col" class="number" { "Partition" } th scope="col" class="number" { "From offset" }
                        th scope="col" class="number" { "Producer" } th scope="col" { "Last record" }
                        @if !shell.is_read_only() { th scope="col" { "Change" } }
                    } }
                    tbody {
                        @for one in transactions {
                            tr {
                                th scope="row" { a href=(super::topic::path(&one.topic)) { (one.topic) } }
                                td class="number" { (one.partition) } td class="number" { (format::count(one.start)) }
                                td class="number" { (one.producer_id) } td { (format::time(one.last_timestamp_ms)) }
                                @if !shell.is_read_only() {
                                    td { a href=(abort_path(&one.topic, one.partition, one.start)) aria-label=(format!("Abort in {}, partition {}", one.topic, one.partition)) { "Abort…" } }
                                }
                            }
                        }
                    }
                }
            }
    }
}

fn abort_path(topic: &str, partition: i32, start: i64) -> String {
    format!("{}/abort-transaction?partition={partition}&start={start}", super::topic::path(topic))
}

/// The first offset of an open transaction in a partition.
#[derive(Deserialize)]
pub struct OpenTransactionQuery {
    partition: i32,
    start: i64,
}

/// Shows an open transaction, and asks for confirmation to abort it.
pub async fn abort_page(
    shell: Shell,
    Path(name): Path<String>,
    Query(open): Query<OpenTransactionQuery>,
) -> Response {
    let abortion = Abortion { partition: open.partition, start: open.start };
    let open = transactions::open(shell.view(), &name, &abortion).await;
    let body = open.map(|open| {
        html! {
            dl class="figures" {
                (figure("Partition", &format!("{name}-{}", open.partition), None))
                (figure("From offset", &format::count(open.start), None))
                (figure("Producer", &open.producer_id.to_string(), Some(&format!("epoch {}", open.producer_epoch))))
                (figure("Last record", &format::time(open.last_timestamp_ms), None))
            }
            (coordinator(&open))
            @if !shell.is_read_only() { (abort_form(&name, &open)) }
        }
    });
    shell.answer(Section::Transactions, "Abort a transaction", body)
}

/// What the coordinators know about the producer.
fn coordinator(open: &OpenTransaction) -> Markup {
    html! {
        @match (&open.transactional_id, &open.unanswered[..]) {
            (Some(id), _) => p class="note warn" {
                "A coordinator knows this producer, as " bdi { (format::id(id)) } ", and may end the transaction itself. An abort here can break a transaction that is going on: "
                a href=(format!("/transaction?id={}", encode(id))) { "look at it first" } "."
            },
            (None, []) => p class="note" { "No coordinator knows this producer: the transaction will not end without an abort." },
            (None, unanswered) => p class="note warn" {
                "Whether a coordinator knows this producer is not known. An abort here can break a transaction that is going on. "
                @for reason in unanswered { (reason) ". " }
            },
        }
    }
}

fn abort_form(name: &str, open: &OpenTransaction) -> Markup {
    let expected = format!("{name}-{}", open.partition);
    html! {
        form class="card narrow stack" method="post" action=(format!("{}/abort-transaction", super::topic::path(name))) {
            input type="hidden" name="partition" value=(open.partition);
            input type="hidden" name="start" value=(open.start);
            label { "Type " code { (expected) } input name="confirm" required autocomplete="off" spellcheck="false" data-expect=(expected);
                span class="hint" { "The leader writes a marker: the records of this transaction in this partition are never shown to consumers that read only committed records." } }
            div class="actions" { button class="danger" { "Abort" } a class="button" href="/hanging-transactions" { "Cancel" } }
        }
    }
}

/// The form for aborting a transaction, with the typed confirmation.
#[derive(Deserialize)]
pub struct AbortForm {
    partition: i32,
    start: i64,
    confirm: String,
}

/// Aborts a transaction in one partition if the typed name matches.
pub async fn abort(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(form): Form<AbortForm>,
) -> Response {
    let at = format!("{name}-{}", form.partition);
    if form.confirm != at {
        let note = Note::error(format!("Nothing was aborted: {:?} is not {at}.", form.confirm));
        return see_other(&console, &abort_path(&name, form.partition, form.start), note);
    }
    let abortion = Abortion { partition: form.partition, start: form.start };
    let done = transactions::abort(shell.view(), &name, &abortion).await;
    let page = format!("{}/producers", super::topic::path(&name));
    see_other(&console, &page, Note::of(done, format!("The transaction in {at} was aborted.")))
}

fn one(transaction: &Transaction) -> Markup {
    html! {
        div id="transaction" data-live {
            dl class="figures" {
                div class="figure" { dt { "State" } dd { (state(&transaction.state)) } }
                (figure("Producer", &transaction.producer_id.to_string(), Some(&format!("epoch {}", transaction.producer_epoch))))
                (figure("Timeout", &format::millis(transaction.timeout_ms.into()), None))
                (figure("Began", &transaction.started_ms.map_or("–".to_owned(), format::time), None))
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
    let body = producers.map(|found| {
        html! {
            (super::topic::tabs(&name, "producers"))
            (producer_table(&name, &found))
        }
    });
    shell.answer(Section::Topics, &name, body)
}

fn producer_table(name: &str, TopicProducers { producers, missing }: &TopicProducers) -> Markup {
    html! {
        div id="producers" data-live {
            @for missing in missing { p class="note warn" { "Producers are missing: " (missing) } }
            @if producers.is_empty() && missing.is_empty() {
                p class="quiet" { "No idempotent or transactional producer has written lately." }
            } @else if producers.is_empty() {
                p class="quiet" { "The other partitions have no idempotent or transactional producer that has written lately." }
            } @else {
                div class="table" tabindex="0" role="region" aria-label="Producers" {
                    table {
                        thead { tr {
                            th scope="col" class="number" { "Partition" } th scope="col" class="number" { "Producer" } th scope="col" class="number" { "Epoch" }
                            th scope="col" class="number" { "Last sequence" } th scope="col" { "Last record" } th scope="col" class="number" { "Open transaction from" }
                        } }
                        tbody {
                            @for producer in producers {
                                tr {
                                    th scope="row" class="number" { (producer.partition) }
                                    td class="number" { (producer.producer_id) } td class="number" { (producer.epoch) }
                                    td class="number" { (producer.last_sequence) }
                                    td { (or_dash((producer.last_timestamp_ms >= 0).then(|| format::time(producer.last_timestamp_ms)))) }
                                    td class="number" { @match producer.transaction_start {
                                        Some(start) => a href=(abort_path(name, producer.partition, start)) { (format::count(start)) },
                                        None => (or_dash(None)),
                                    } }
                                }
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
    fn a_transaction_is_not_forgotten_while_a_coordinator_does_not_answer() {
        let mut open = OpenTransaction {
            topic: "orders".to_owned(),
            partition: 0,
            producer_id: 7,
            producer_epoch: 0,
            coordinator_epoch: 0,
            start: 5,
            last_timestamp_ms: 0,
            transactional_id: None,
            unanswered: Vec::new(),
        };
        assert!(coordinator(&open).0.contains("will not end without an abort"));
        open.unanswered.push("Broker 2 does not answer".to_owned());
        let page = coordinator(&open).0;
        assert!(page.contains("is not known.") && page.contains("Broker 2 does not answer"), "{page}");
        assert!(!page.contains("will not end"), "{page}");
    }

    #[test]
    fn no_producer_has_written_only_if_all_partitions_answered() {
        let mut found = TopicProducers { producers: Vec::new(), missing: Vec::new() };
        let page = producer_table("orders", &found).0;
        assert!(page.contains("No idempotent or transactional producer has written lately."), "{page}");
        found.missing.push("orders-1 has no leader".to_owned());
        let page = producer_table("orders", &found).0;
        assert!(page.contains("Producers are missing: orders-1 has no leader"), "{page}");
        assert!(page.contains("The other partitions have no") && !page.contains("No idempotent"), "{page}");
    }
}
