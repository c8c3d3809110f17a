//! The messages of a topic: search by position, time, key, text and expression, page by page; a live tail.
//!
//! A search has limits for the number of messages, their bytes and the time, and ends with the request.

mod parts;
mod query;
mod sending;
mod table;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use thalweg_browse::Message;

pub use parts::{download, part};
pub use sending::{again, send};

use super::topic::{path, tabs};
use crate::cluster::messages::{self, Keeping, MessageQuery};
use crate::cluster::positions::Positions;
use crate::cluster::search_result::SearchResult;
use crate::columns::{self, Column, MessageFields};
use crate::format;
use crate::page::{Section, Shell, json};
use crate::problem::Problem;
use crate::state::Console;
use crate::tail;
use crate::unseen::visible_markup;
use query::{PageQuery, address};
use table::{MessageTable, id};

/// Maximum partitions whose end offsets fit in the address of a tail. With more partitions, a tail starts at
/// the time of its request.
const PARTITIONS_MAX: usize = 200;

/// Shows a search with its result.
pub async fn list(
    shell: Shell,
    Path(name): Path<String>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Response {
    let query = match PageQuery::read(pairs) {
        Ok(query) => query,
        Err(problem) => return shell.answer::<Problem>(Section::Topics, &name, Err(problem)),
    };
    let found = messages::search(shell.view(), &name, &query.search, Keeping::First).await;
    let status = found.as_ref().map_or_else(|problem| problem.status, |_| StatusCode::OK);
    let frame = html! {
        (tabs(&name, "messages"))
        (form(&name, &query))
        @if !shell.is_read_only() { (sending::closed_form(&name)) }
    };
    let body = match found {
        Ok(mut found) => {
            let offered = offered(&query, &found.messages);
            query.sort(&mut found.messages);
            let page = MessagesPage {
                name: &name,
                query: &query,
                found: &found,
                offered,
                can_send: !shell.is_read_only(),
            };
            Ok(html! { (frame) (page.markup()) })
        }
        Err(problem) if problem.status.as_u16() == 400 => Ok(html! {
            (frame)
            pre class="note bad" role="alert" { (problem.message) }
        }),
        Err(problem) => Err(problem),
    };
    let mut response = shell.answer::<Problem>(Section::Topics, &name, body);
    *response.status_mut() = status;
    response
}

fn form(name: &str, query: &PageQuery) -> Markup {
    let option = |title: &str, value: &str, chosen: &str| html! { option value=(value) selected[value == chosen] { (title) } };
    let search = &query.search;
    html! {
        form class="card stack" method="get" action=(format!("{}/messages", path(name))) role="search" {
            div class="row" {
                label { "From" select name="from" {
                    (option("the newest messages", "", &search.from)) (option("the beginning", "earliest", &search.from))
                    (option("an offset", "offset", &search.from)) (option("a time", "time", &search.from))
                } }
                label { "Offset or time" input name="at" value=(search.at) placeholder=(format::EXAMPLE_TIME); }
                label { "Partition" input name="partition" value=(search.partition) inputmode="numeric" placeholder="all"; }
                label { "At most" input name="limit" value=(search.limit) inputmode="numeric"; }
                label { "Show as" select name="shape" {
                    @for shape in ["auto", "json", "text", "hex"] { (option(shape, shape, &search.shape)) }
                } }
            }
            div class="row" {
                label { "Key" input name="key" value=(search.key) placeholder="the whole key" spellcheck="false"; }
                label { "Text in the value" input name="text" value=(search.text) placeholder="a part of it" spellcheck="false"; }
                label { "Expression" input name="expression" value=(search.expression) placeholder="payload.amount > 1000" spellcheck="false"; }
                label class="check" { input type="checkbox" name="committed" value="on" checked[search.committed == "on"]; "Only committed" }
                label class="check" { input type="checkbox" name="control" value="on" checked[search.control == "on"]; "Markers of transactions" }
                @for (name, value) in query.pairs_of_table() { input type="hidden" name=(name) value=(value); }
                button class="primary" { "Search" }
            }
        }
    }
}

/// The fields of the messages that are no columns yet.
fn offered(query: &PageQuery, messages: &[Message]) -> Vec<String> {
    let fields: Vec<MessageFields<'_>> = messages.iter().map(MessageFields::of).collect();
    let mut offered = columns::offered(fields.iter());
    offered.retain(|name| query.columns.iter().all(|column| column.name() != name));
    offered
}

/// The page below its forms: a sentence on the search, tools, the table, links to other pages.
struct MessagesPage<'a> {
    name: &'a str,
    query: &'a PageQuery,
    found: &'a SearchResult,
    offered: Vec<String>,
    can_send: bool,
}

impl MessagesPage<'_> {
    fn markup(&self) -> Markup {
        let found = self.found;
        let tail = self.query.is_live().then(|| tail_path(self.name, self.query, found));
        let pinned = self.query.pinned(found);
        let (name, query, can_send) = (self.name, self.query, self.can_send);
        let table = MessageTable { topic: name, query, pinned: &pinned, can_send };
        let has_messages = !found.messages.is_empty();
        html! {
            @if let Some(tail) = &tail {
                p class="quiet" id="tail" data-tail=(tail) {}
            }
            div id="messages" {
                p class="quiet" id="looked-at" { (found.summary()) }
                @if !found.progress.unreadable.is_empty() {
                    p class="note warn" { "Messages are missing: " (format::counted(found.progress.unreadable.len(), "partition")) " of " (name) " cannot be read." }
                }
                @if let Some(reason) = &found.progress.without_value_reason {
                    p class="note warn" { (format::counted(found.progress.without_value, "record")) " without a value of the expression, such as: " (reason) }
                }
                (self.tools())
                @if has_messages || tail.is_some() { (table.of(&found.messages)) }
                @if has_messages { (self.pager("Pages, below the messages")) }
            }
            span id="copied" class="hidden" role="status" {}
        }
    }

    /// Links to other pages, columns and downloads.
    fn tools(&self) -> Markup {
        html! {
            div class="tools" {
                (self.pager("Pages"))
                @if !self.offered.is_empty() {
                    details { summary { "Columns" }
                        ul class="choices" {
                            @for name in &self.offered { @if let Some(address) = self.with_column(name) {
                                li { a href=(address) aria-label=(format!("Add the column {name}")) { "+ " bdi { (name) } } }
                            } }
                        }
                    }
                }
                (self.downloads())
            }
        }
    }

    /// The address of the same messages with another column.
    fn with_column(&self, name: &str) -> Option<String> {
        let mut query = self.query.clone();
        query.columns.push(Column::parse(name).ok()?);
        let names: Vec<String> = query.columns.iter().map(|column| column.name().to_owned()).collect();
        Column::parse_all(&names).ok()?;
        Some(query.address(self.name))
    }

    fn downloads(&self) -> Markup {
        let all = MessageQuery {
            before: String::new(),
            after: String::new(),
            limit: 0,
            shape: String::new(),
            ..self.query.search.clone()
        };
        let (lower, upper) = (self.found.lower().parameter(), self.found.upper().parameter());
        let page = lower.zip(upper).map(|(after, before)| {
            let limit = self.query.search.limit;
            MessageQuery { after, before, limit, ..all.clone() }
        });
        html! {
            @if !self.found.messages.is_empty() {
                nav class="downloads" aria-label="Downloads" {
                    @if let Some(page) = &page { (self.formats("This page", page)) }
                    (self.formats("All that is found", &all))
                }
            }
        }
    }

    fn formats(&self, title: &str, search: &MessageQuery) -> Markup {
        let to = |format: &'static str| {
            let pairs = [("format", format.to_owned())].into_iter().chain(search.pairs());
            let pairs = pairs.chain(self.query.pairs_of_columns());
            address(&format!("{}/messages/download", path(self.name)), pairs)
        };
        html! {
            span { span class="quiet" { (title) ": " }
                @for (at, (format, words)) in [("jsonl", "JSON lines"), ("csv", "CSV"), ("values", "values")].into_iter().enumerate() {
                    @if at > 0 { ", " }
                    a href=(to(format)) download aria-label=(format!("Download: {title}, as {words}")) { (words) }
                }
            }
        }
    }

    fn pager(&self, label: &str) -> Markup {
        let search = &self.query.search;
        let none = MessageQuery { before: String::new(), after: String::new(), ..search.clone() };
        let is_first = search.before.is_empty() && search.after.is_empty();
        let to = |search: MessageQuery| self.query.with_search(search).address(self.name);
        let older = self.found.older().map(|at| at.parameter());
        let newer = self.found.newer().map(|at| at.parameter());
        let is_too_long = [&older, &newer].into_iter().any(|at| matches!(at, Some(None)));
        let older = older.flatten().map(|before| to(MessageQuery { before, ..none.clone() }));
        let newer = newer.flatten().map(|after| to(MessageQuery { after, ..none.clone() }));
        let (start, links) = match search.is_newest_first() {
            true => ("Newest", [("prev", "‹ Newer", newer), ("next", "Older ›", older)]),
            false => ("Start", [("prev", "‹ Older", older), ("next", "Newer ›", newer)]),
        };
        html! {
            @if !is_first || links.iter().any(|(_, _, address)| address.is_some()) || is_too_long {
                nav class="pager" aria-label=(label) {
                    @if !is_first { a href=(to(none.clone())) { "« " (start) } }
                    @for (rel, title, address) in &links {
                        @if let Some(address) = address { a href=(address) rel=(rel) { (title) } }
                    }
                    @if is_too_long { span { "There are too many partitions for links to further messages: search one of them." } }
                }
            }
        }
    }
}

/// The address of the live tail that continues a search.
fn tail_path(name: &str, query: &PageQuery, found: &SearchResult) -> String {
    let partitions = &found.progress.partitions;
    let ends = partitions.iter().map(|end| (end.partition, end.latest)).collect();
    let after = if partitions.len() > PARTITIONS_MAX { Positions::default() } else { Positions(ends) };
    let search = MessageQuery { after: after.text(), ..query.search.clone() };
    address(&format!("{}/tail", path(name)), search.pairs().chain(query.pairs_of_columns()))
}

/// A live tail with messages as HTML.
pub async fn tail(
    State(console): State<Console>,
    shell: Shell,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Response {
    let open = async {
        let query = PageQuery::read(pairs)?;
        // A browser that connects again sends the id of the last event.
        let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
        let after = Positions::parse("after", last.unwrap_or(&query.search.after))?;
        let unpinned = MessageQuery { after: String::new(), ..query.search.clone() };
        let page = query.with_search(unpinned);
        let (topic, can_send) = (name.clone(), !shell.is_read_only());
        let write = move |message: &Message| {
            let table = MessageTable { topic: &topic, query: &page, pinned: &page, can_send };
            // A browser reads rows within a table only.
            let row = html! { table { (table.row(message, false)) } };
            serde_json::json!({ "id": id(message), "html": visible_markup(&row.0) }).to_string()
        };
        tail::open(&console, shell.view(), &headers, &name, &query.search, after.0, write).await
    };
    match open.await {
        Ok(response) => response,
        Err(problem) => json(problem.status, &problem.answer()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::search_result::SearchEndKind;
    use crate::cluster::testing::message;
    use thalweg_browse::{PartitionProgress, Progress};
    use thalweg_record::Offset;

    fn found(from: i64, latest: i64) -> SearchResult {
        let progress = PartitionProgress {
            partition: 0,
            start: Offset(0),
            from: Offset(from),
            position: Offset(20),
            resume: Offset(from),
            end: Some(Offset(20)),
            earliest: Offset(0),
            latest: Offset(latest),
        };
        SearchResult {
            messages: vec![message(0, 19, 0), message(0, 18, 0)],
            progress: Progress { partitions: vec![progress], ..Progress::default() },
            is_newest_first: true,
            is_backward: true,
            is_whole: true,
            positions: Positions::default(),
            end: SearchEndKind::Limit,
        }
    }

    fn page(pairs: &[(&str, &str)], found: &SearchResult) -> String {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let query = PageQuery::read(pairs.collect()).expect("right");
        let offered = vec!["customer.id".to_owned()];
        MessagesPage { name: "orders", query: &query, found, offered, can_send: true }.markup().0
    }

    #[test]
    fn the_live_region_of_a_tail_is_the_scripts() {
        let page = page(&[("column", "n")], &found(18, 20));
        // The count of passed messages changes in this paragraph, which a screen reader must not read aloud.
        let tail = "id=\"tail\" data-tail=\"/topics/orders/tail?after=0:20&amp;limit=50&amp;column=n\"></p>";
        assert!(page.contains(tail), "{page}");
        assert_eq!(page.matches("role=\"status\"").count(), 1, "that of copies");
    }

    #[test]
    fn pages_link_older_and_newer_messages_and_the_first_page() {
        let first = page(&[("key", "k")], &found(18, 20));
        assert!(first.contains("limit=50&amp;key=k\" rel=\"next\">Older ›</a>"), "{first}");
        assert!(first.contains("?before=0:18&amp;") && !first.contains("‹ Newer"), "{first}");
        let next = page(&[("before", "0:20")], &found(18, 30));
        assert!(next.contains("?after=0:20&amp;limit=50\" rel=\"prev\">‹ Newer</a>"), "{next}");
        assert!(next.contains("/messages?limit=50\">« Newest</a>") && !next.contains("data-tail"), "{next}");
        let last = page(&[("before", "0:20")], &found(0, 20));
        assert!(
            !last.contains("Older ›") && !last.contains("‹ Newer") && last.contains("« Newest"),
            "{last}"
        );
        let forward = SearchResult { is_newest_first: false, ..found(18, 30) };
        let forward = page(&[("from", "earliest")], &forward);
        assert!(forward.contains("‹ Older") && forward.contains("rel=\"next\">Newer ›"), "{forward}");
    }

    #[test]
    fn downloads_and_columns_keep_what_the_view_selects() {
        let page =
            page(&[("key", "k"), ("column", "n"), ("before", "0:20"), ("sort", "key")], &found(18, 20));
        for part in [
            "/messages/download?format=csv&amp;before=0:20&amp;after=0:18&amp;limit=50&amp;key=k&amp;column=n\"",
            "/messages/download?format=jsonl&amp;key=k&amp;column=n\" download aria-label=\"Download: All that is found, as JSON lines\"",
            "limit=50&amp;key=k&amp;column=n&amp;column=customer.id&amp;sort=key\" aria-label=\"Add the column customer.id\"",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
