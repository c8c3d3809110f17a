//! The table of messages: a row for each, with a second row of details that opens below it. A row that is
//! open needs no script: its style depends on an element for details in its first cell.

use maud::{Markup, html};
use thalweg_browse::show::{Form as Shape, line, show};
use thalweg_browse::{Content, Message, MessageHeader};

use super::query::{PageQuery, Sort, SortKey, address};
use crate::cluster::messages::MessageQuery;
use crate::columns::MessageFields;
use crate::format;
use crate::json_text;
use crate::page::or_dash;
use crate::pages::topic::path;

/// Columns besides those that the query names.
const FIXED_COLUMNS: usize = 7;
/// Named columns from which on the table scrolls instead of making them narrower.
const WIDE_FROM: usize = 3;

/// A table of messages of one topic.
pub struct MessageTable<'a> {
    pub topic: &'a str,
    pub query: &'a PageQuery,
    /// The query for the same messages, to order them.
    pub pinned: &'a PageQuery,
    /// False if messages cannot be sent from the page.
    pub can_send: bool,
}

impl MessageTable<'_> {
    /// The table. A single message is open.
    pub fn of(&self, messages: &[Message]) -> Markup {
        let is_single = self.query.search.limit == 1;
        let wide = if self.query.columns.len() >= WIDE_FROM { "messages wide" } else { "messages" };
        html! {
            div class="table" tabindex="0" role="region" aria-label="Messages" {
                table id="message-rows" class=(wide) {
                    thead { (self.head()) }
                    @for message in messages { (self.row(message, is_single)) }
                }
            }
        }
    }

    fn head(&self) -> Markup {
        html! {
            tr {
                td class="open" {}
                (self.head_cell(&SortKey::Time, "Time", "time", None))
                (self.head_cell(&SortKey::Partition, "Partition", "partition", None))
                (self.head_cell(&SortKey::Offset, "Offset", "offset", None))
                (self.head_cell(&SortKey::Key, "Key", "key", None))
                (self.head_cell(&SortKey::Value, "Value", "value", None))
                th scope="col" class="headers" { "Headers" }
                @for (at, column) in self.query.columns.iter().enumerate() {
                    (self.head_cell(&SortKey::Column(column.clone()), column.name(), "named", Some(&self.without(at))))
                }
            }
        }
    }

    /// The address of the page without a column.
    fn without(&self, at: usize) -> String {
        let mut query = self.query.clone();
        let removed = query.columns.remove(at);
        query.sort = query.sort.filter(|sort| sort.by != SortKey::Column(removed));
        query.address(self.topic)
    }

    /// A head cell, whose link orders the rows: ascending, then descending, then as they were found.
    /// `without` is the address of the page without the column.
    fn head_cell(&self, by: &SortKey, title: &str, class: &str, without: Option<&str>) -> Markup {
        let now = self.query.sort.as_ref().filter(|sort| sort.by == *by).map(|sort| sort.is_descending);
        let next = match now {
            None => Some(false),
            Some(false) => Some(true),
            Some(true) => None,
        };
        let sort = next.map(|is_descending| Sort { by: by.clone(), is_descending });
        let address = PageQuery { sort, ..self.pinned.clone() }.address(self.topic);
        let (order, arrow) = match now {
            None => (None, ""),
            Some(false) => (Some("ascending"), " ▲"),
            Some(true) => (Some("descending"), " ▼"),
        };
        html! {
            th scope="col" class=(class) aria-sort=[order] {
                @if let Some(without) = without {
                    a class="remove" href=(without) aria-label=(format!("Remove the column {title}")) { "×" } " "
                }
                a href=(address) title=[without.map(|_| title)] { bdi { (title) } span aria-hidden="true" { (arrow) } }
            }
        }
    }

    /// The two rows of a message.
    pub fn row(&self, message: &Message, is_open: bool) -> Markup {
        let shape = Shape::from_name(&self.query.search.shape).unwrap_or(Shape::Auto);
        let fields = MessageFields::of(message);
        let batch = &message.batch;
        let headers = message.headers.len() + message.headers_omitted;
        html! {
            tbody id=(id(message)) {
                tr {
                    td class="open" {
                        details open[is_open] { summary {
                            span class="hidden" { "Message " (message.offset.0) " of partition " (message.partition) }
                        } }
                    }
                    td class="time" { (time(message.timestamp)) }
                    td class="number partition" { (message.partition) }
                    td class="number offset" { (message.offset.0) }
                    td class="line key" {
                        @match &message.key {
                            Some(key) => (one_line(key, shape, fields.has_json_key())),
                            None => span class="quiet" { "none" },
                        }
                    }
                    td class="line value" {
                        @if let Some(control) = batch.control { span class="badge warn" { "marker: " (control.name()) } }
                        @match &message.value {
                            Some(_) if batch.control.is_some() => {},
                            Some(value) => (one_line(value, shape, fields.has_json_value())),
                            None => span class="badge" { "tombstone" },
                        }
                    }
                    td class="number headers" { @if headers > 0 { (headers) } }
                    @for column in &self.query.columns {
                        td class="line named" data-name=(column.name()) {
                            @match fields.cell(column) {
                                Some(cell) => (cell.text.chars().take(240).collect::<String>()),
                                None => span class="quiet" { "–" },
                            }
                        }
                    }
                }
                tr class="detail" {
                    td colspan=(FIXED_COLUMNS + self.query.columns.len()) { (self.detail(message, shape)) }
                }
            }
        }
    }

    /// The second row: links and facts, then key, value and headers as a whole.
    fn detail(&self, message: &Message, shape: Shape) -> Markup {
        html! {
            (self.actions(message))
            (facts(message))
            @if let Some(key) = &message.key { (part("Key", key, shape)) }
            @match &message.value {
                Some(value) => (part("Value", value, shape)),
                None => p { span class="badge" { "tombstone" } " The message has no value." },
            }
            @if !message.headers.is_empty() {
                div class="part" {
                    span class="quiet" {
                        (format::counted(message.headers.len() + message.headers_omitted, "header"))
                        @if message.headers_omitted > 0 { ", the first " (message.headers.len()) " of them" }
                    }
                    dl class="facts" {
                        @for header in &message.headers { (header_of(header, shape)) }
                    }
                }
            }
        }
    }

    fn actions(&self, message: &Message) -> Markup {
        let place = [("partition", message.partition.to_string()), ("offset", message.offset.0.to_string())];
        let to = |page: &str, pairs: &[(&'static str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| (*name, (*value).to_owned()));
            address(&format!("{}/{page}", path(self.topic)), place.clone().into_iter().chain(pairs))
        };
        let copy = |part: &str, content: &Option<Content>| {
            let is_text = content.as_ref().is_none_or(|content| std::str::from_utf8(&content.bytes).is_ok());
            let form: &[_] = if is_text { &[] } else { &[("form", "base64")] };
            to("message", &[&[("part", part)], form].concat())
        };
        let alone = MessageQuery {
            from: "offset".to_owned(),
            at: message.offset.0.to_string(),
            partition: message.partition.to_string(),
            limit: 1,
            control: self.query.search.control.clone(),
            shape: self.query.search.shape.clone(),
            ..MessageQuery::default()
        };
        let alone = PageQuery { sort: None, ..self.query.with_search(alone) };
        html! {
            p class="actions" {
                @if message.key.is_some() { a class="button small" data-copy href=(copy("key", &message.key)) { "Copy the key" } }
                @if message.value.is_some() { a class="button small" data-copy href=(copy("value", &message.value)) { "Copy the value" } }
                a class="button small" data-copy href=(to("message", &[("part", "json")])) { "Copy as a JSON line" }
                @if self.can_send && message.batch.control.is_none() {
                    a class="button small" href=(to("send", &[])) { "Send again" }
                }
                @if let Some(key) = self.with_key(message) { a class="button small" href=(key) { "Only this key" } }
                a class="button small" href=(alone.address(self.topic)) { "Only this message" }
            }
        }
    }

    /// The address of the newest messages with the key of a message, if a search can have the key.
    fn with_key(&self, message: &Message) -> Option<String> {
        let key = message.key.as_ref().filter(|key| key.omitted_bytes() == 0 && !key.bytes.is_empty())?;
        let key = std::str::from_utf8(&key.bytes).ok().filter(|key| key.len() <= 1024)?;
        let search = MessageQuery {
            key: key.to_owned(),
            limit: self.query.search.limit,
            shape: self.query.search.shape.clone(),
            ..MessageQuery::default()
        };
        Some(PageQuery { sort: None, ..self.query.with_search(search) }.address(self.topic))
    }
}

/// The element id of a message.
pub fn id(message: &Message) -> String {
    format!("m-{}-{}", message.partition, message.offset.0)
}

fn time(timestamp: i64) -> Markup {
    or_dash((timestamp >= 0).then(|| format::time(timestamp)))
}

fn one_line(content: &Content, shape: Shape, is_json: bool) -> Markup {
    let line = line(content, shape);
    html! {
        @match content.whole_bytes {
            0 => span class="quiet" { "empty" },
            _ if is_json && shape != Shape::Text => (json_text::readable(&line)),
            _ => (line),
        }
    }
}

/// Sizes, and the facts of the batch.
fn facts(message: &Message) -> Markup {
    let batch = &message.batch;
    let size = |content: &Option<Content>| {
        content.as_ref().map_or("none".to_owned(), |content| format::bytes(content.whole_bytes as u64))
    };
    let codec = batch.compression.map_or("an unknown codec".to_owned(), |codec| codec.to_string());
    html! {
        p class="quiet" {
            "Partition " (message.partition) ", offset " (message.offset.0) ", "
            (time(message.timestamp)) " (" (batch.timestamp_name()) "). "
            "Key: " (size(&message.key)) ". Value: " (size(&message.value)) ". "
            "Batch: from offset " (batch.base_offset.0) ", " (format::counted(batch.records, "record")) ", "
            (format::bytes(batch.size_bytes as u64)) ", compression " (codec) ", leader epoch " (batch.leader_epoch.0) "."
            @if let Some((id, epoch)) = batch.producer {
                " Producer " (id.0) ", epoch " (epoch.0)
                @if let Some(sequence) = batch.sequence { ", sequence " (sequence) }
                "."
            }
            @if batch.is_transactional { " " span class="badge" { "transaction" } }
            @if message.is_masked { " " span class="badge" { "masked" } }
        }
    }
}

fn header_of(header: &MessageHeader, shape: Shape) -> Markup {
    html! {
        dt { bdi { (header.name) } (more(header.omitted_name_bytes)) }
        dd { @match &header.value { Some(value) => (header_value(value, shape)), None => span class="quiet" { "none" } } }
    }
}

fn header_value(value: &Content, shape: Shape) -> Markup {
    let shown = show(value, shape);
    html! { (json_text::text(&shown)) (more(shown.omitted_bytes)) }
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
            (json_text::text(&shown))
            (more(shown.omitted_bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::message;

    fn content(bytes: &[u8]) -> Option<Content> {
        Some(Content { bytes: bytes.to_vec().into(), whole_bytes: bytes.len(), schema: None })
    }

    fn page(pairs: &[(&str, &str)], messages: &[Message]) -> String {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let query = PageQuery::read(pairs.collect()).expect("right");
        MessageTable { topic: "orders", query: &query, pinned: &query, can_send: true }.of(messages).0
    }

    #[test]
    fn a_row_has_one_line_of_key_and_value_and_the_columns() {
        let mut one = message(3, 42, 0);
        one.key = content(b"k\n<b>");
        one.value = content(br#"{"name": "\u017dofka", "n": 1.50}"#);
        let row = page(&[("column", "n"), ("column", "none")], &[one]);
        for part in [
            "<tbody id=\"m-3-42\">",
            "Message 42 of partition 3</span></summary>",
            ">k &lt;b&gt;</td>",
            ">{&quot;name&quot;: &quot;Žofka&quot;, &quot;n&quot;: 1.50}</td>",
            "data-name=\"n\">1.50</td>",
            "data-name=\"none\"><span class=\"quiet\">–</span></td>",
            "<td colspan=\"9\">",
            "href=\"/topics/orders/message?partition=3&amp;offset=42&amp;part=value\">Copy the value",
            "href=\"/topics/orders/send?partition=3&amp;offset=42\">Send again",
            "href=\"/topics/orders/messages?limit=50&amp;column=none\" aria-label=\"Remove the column n\"",
            "1970-01-01T00:00:00.000Z (CreateTime)",
        ] {
            assert!(row.contains(part), "{part}: {row}");
        }
        assert!(!row.contains("<details open"), "{row}");
    }

    #[test]
    fn tombstones_markers_empty_values_and_bytes_are_distinct() {
        let mut messages = [message(0, 1, 0), message(0, 2, 0), message(0, 3, 0), message(0, 4, -1)];
        messages[1].value = content(b"");
        messages[2].value = content(b"\xff\0");
        messages[3].batch.control = Some(thalweg_browse::ControlKind::Unknown);
        let rows = messages.iter().map(|message| page(&[], std::slice::from_ref(message)));
        let rows: Vec<String> = rows.collect();
        assert!(rows[0].contains("value\"><span class=\"badge\">tombstone</span></td>"), "{}", rows[0]);
        assert!(rows[1].contains("value\"><span class=\"quiet\">empty</span></td>"), "{}", rows[1]);
        assert!(rows[2].contains("value\">ff 00</td>"), "{}", rows[2]);
        assert!(rows[2].contains("part=value&amp;form=base64\">Copy the value"), "{}", rows[2]);
        assert!(rows[3].contains("marker: unknown") && !rows[3].contains("Send again"), "{}", rows[3]);
        assert!(rows[3].contains("<td class=\"time\"><span class=\"quiet\""), "{}", rows[3]);
    }

    #[test]
    fn a_head_orders_up_then_down_then_not_at_all() {
        let key = |sort: &str| {
            let page = page(&[("sort", sort)], &[]);
            let (_, cell) = page.split_once("class=\"key\"").expect("a head");
            let (cell, _) = cell.split_once("</th>").expect("its end");
            (
                cell.contains("aria-sort"),
                cell.split('"').find(|part| part.starts_with("/topics")).map(str::to_owned),
            )
        };
        let to = |sort: &str| Some(format!("/topics/orders/messages?limit=50{sort}"));
        assert_eq!(key(""), (false, to("&amp;sort=key")));
        assert_eq!(key("time"), (false, to("&amp;sort=key")));
        assert_eq!(key("key"), (true, to("&amp;sort=-key")));
        assert_eq!(key("-key"), (true, to("")));
        assert!(
            page(&[("limit", "1")], &[message(0, 0, 0)]).contains("<details open>"),
            "a single one is open"
        );
    }
}
