//! Downloads of messages: what a search finds, as JSON lines, CSV or raw values, in a response that is
//! written while the search goes on.
//!
//! A download is a sequence of searches, each of which continues where the last one ended. Thus it holds no
//! more memory than a page, and other searches take their turns in between. It has limits for messages,
//! bytes and time, and ends with the session. The last line of a file that is not whole says why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use thalweg_browse::show::{PortableText, headers_to_json, portable, to_json};
use thalweg_browse::{Content, Message};
use thalweg_places::FairPermit;
use tokio::sync::mpsc;
use tokio::time::Instant;
use utoipa::IntoParams;

use crate::cluster::View;
use crate::cluster::messages::{self, Keeping, MESSAGES_MAX, MessageQuery};
use crate::cluster::positions::Positions;
use crate::cluster::search_result::SearchResult;
use crate::columns::{Column, MessageFields};
use crate::csv::CsvLine;
use crate::format;
use crate::problem::Problem;
use crate::session::SessionKey;
use crate::state::Console;
use crate::tail::ChannelBody;

/// Maximum messages, bytes of messages, and duration of a download.
const DOWNLOAD_MESSAGES_MAX: usize = 100_000;
const DOWNLOAD_BYTES_MAX: u64 = 256 << 20;
const DOWNLOAD_MAX: Duration = Duration::from_secs(5 * 60);
/// Bytes that are written at once, approximately, and number of such pieces ahead of a slow connection.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_AHEAD: usize = 2;
/// Unreadable partitions that the last line of a file names.
const UNREADABLE_NAMED: usize = 10;

/// The format of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownloadFormat {
    /// A JSON object for each message, on one line.
    JsonLines,
    /// A line of CSV for each message, after a line with names.
    Csv,
    /// The bytes of each value, with a line end. Tombstones are left out.
    Values,
}

/// The format and the columns of a download.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes the parameters, which are read by DownloadQuery")]
pub struct DownloadParameters {
    /// `jsonl`, the default: a JSON object on each line; `csv`; or `values`: the bytes of each value with a
    /// line end, without tombstones.
    #[param(required = false)]
    format: String,
    /// Columns of CSV: fields of JSON in values (`customer.id`) and keys (`key:id`), and headers
    /// (`header:trace`).
    #[param(required = false)]
    column: Vec<String>,
}

/// A search with the format of its download.
#[derive(Clone, Debug)]
pub struct DownloadQuery {
    pub search: MessageQuery,
    pub columns: Vec<Column>,
    pub format: DownloadFormat,
}

impl DownloadFormat {
    fn media_type(self) -> &'static str {
        match self {
            DownloadFormat::JsonLines => "application/jsonl; charset=utf-8",
            DownloadFormat::Csv => "text/csv; charset=utf-8; header=present",
            DownloadFormat::Values => "application/octet-stream",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            DownloadFormat::JsonLines => "jsonl",
            DownloadFormat::Csv => "csv",
            DownloadFormat::Values => "txt",
        }
    }
}

impl DownloadQuery {
    /// Reads the parameters of an address: those of a search, `format`, and any number of `column`.
    pub fn read(pairs: Vec<(String, String)>) -> Result<DownloadQuery, Problem> {
        let (mut names, mut format, mut rest) = (Vec::new(), String::new(), Vec::new());
        for (name, value) in pairs {
            match name.as_str() {
                "column" => names.push(value),
                "format" => format = value,
                _ => rest.push((name, value)),
            }
        }
        Problem::unless_known("format", &format, &["jsonl", "csv", "values"])?;
        let format = match format.as_str() {
            "csv" => DownloadFormat::Csv,
            "values" => DownloadFormat::Values,
            _ => DownloadFormat::JsonLines,
        };
        let search = MessageQuery::of_pairs(rest)?;
        if search.limit > DOWNLOAD_MESSAGES_MAX {
            let most = format::count(DOWNLOAD_MESSAGES_MAX);
            return Err(Problem::wrong(format!("limit: {} is too much: use at most {most}", search.limit)));
        }
        let is_against_the_order = match search.is_newest_first() {
            true => search.before.is_empty() && !search.after.is_empty(),
            false => search.after.is_empty() && !search.before.is_empty(),
        };
        if is_against_the_order {
            let message = "before, after: a download in this order needs both, or the other one: give both, or another from";
            return Err(Problem::wrong(message));
        }
        Ok(DownloadQuery { search, columns: Column::parse_all(&names)?, format })
    }
}

/// Starts a download. The first search decides on the status of the response.
pub async fn open(
    console: &Console,
    view: &Arc<View>,
    headers: &HeaderMap,
    topic: &str,
    query: DownloadQuery,
) -> Result<Response, Problem> {
    let place = view.reader().download()?;
    let (to, pieces) = mpsc::channel(PIECES_AHEAD);
    let DownloadQuery { search, columns, format } = query;
    let download = Download {
        console: console.clone(),
        view: Arc::clone(view),
        session: console.sessions().key(headers),
        topic: topic.to_owned(),
        limit: if search.limit == 0 { DOWNLOAD_MESSAGES_MAX } else { search.limit },
        is_limit_given: search.limit > 0,
        search,
        file: FileWriter { format, columns, text: Vec::new(), truncated: 0 },
        to,
        began: Instant::now(),
        messages: 0,
        bytes: 0,
        unreadable: BTreeMap::new(),
        _place: place,
    };
    let first = download.step().await?;
    tokio::spawn(download.run(first));
    let name: String =
        topic.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    let disposition = format!("attachment; filename=\"{name}.{}\"", format.extension());
    let mut response = Body::new(ChannelBody(pieces)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_str(&disposition).expect("the name is plain"));
    Ok(response)
}

struct Download {
    console: Console,
    view: Arc<View>,
    session: Option<SessionKey>,
    topic: String,
    /// The next search.
    search: MessageQuery,
    limit: usize,
    /// True if the request names the limit, so that a file with so many messages is whole.
    is_limit_given: bool,
    file: FileWriter,
    to: mpsc::Sender<Bytes>,
    began: Instant,
    messages: usize,
    bytes: u64,
    /// The partitions that could not be read, with the reason.
    unreadable: BTreeMap<i32, String>,
    _place: FairPermit,
}

/// The connection is closed.
struct ClosedConnection;

impl Download {
    async fn step(&self) -> Result<SearchResult, Problem> {
        let limit = (self.limit - self.messages).min(MESSAGES_MAX);
        let search = MessageQuery { limit, ..self.search.clone() };
        messages::search(&self.view, &self.topic, &search, Keeping::Whole).await
    }

    async fn run(mut self, first: SearchResult) {
        // A closed connection needs no end of the file.
        let _ = self.write(first).await;
    }

    async fn write(&mut self, first: SearchResult) -> Result<(), ClosedConnection> {
        self.file.begin();
        let mut found = first;
        let cut = loop {
            self.take(&found).await?;
            if !found.has_rest() {
                break None;
            }
            if let Some(reason) = self.reached_limit() {
                break reason;
            }
            self.advance(&found);
            // Without a match nothing is written, so that a write would not notice the end of the connection.
            let step = tokio::select! {
                biased;
                () = self.to.closed() => return Err(ClosedConnection),
                step = self.step() => step,
            };
            found = match step {
                Ok(found) => found,
                Err(problem) => break Some(problem.message),
            };
        };
        if let Some(reason) = self.end_of_file(cut) {
            self.file.end(&reason);
        }
        self.flush().await
    }

    /// Writes the messages of a search.
    async fn take(&mut self, found: &SearchResult) -> Result<(), ClosedConnection> {
        let unreadable = found.progress.unreadable.iter();
        self.unreadable.extend(unreadable.map(|one| (one.partition, one.reason.clone())));
        for message in &found.messages {
            self.messages += 1;
            self.bytes += message.size_bytes();
            self.file.message(message);
            if self.file.text.len() >= PIECE_BYTES {
                self.flush().await?;
            }
        }
        self.flush().await
    }

    /// The reason to stop before the end of the range; none within it if the download goes on.
    fn reached_limit(&self) -> Option<Option<String>> {
        if self.messages >= self.limit {
            let most = format::count(self.limit);
            return Some((!self.is_limit_given).then(|| format!("{most} messages are the most of one file")));
        }
        if self.bytes >= DOWNLOAD_BYTES_MAX {
            return Some(Some(format!("{} are the most of one file", format::bytes(DOWNLOAD_BYTES_MAX))));
        }
        if self.began.elapsed() >= DOWNLOAD_MAX {
            return Some(Some(format!("the time of {} min was over", DOWNLOAD_MAX.as_secs() / 60)));
        }
        let has_ended = self.session.as_ref().is_some_and(|session| !self.console.sessions().lasts(session));
        has_ended.then(|| Some("the session has ended".to_owned()))
    }

    /// Continues where a search ended. The end of the range stays, although new messages arrive.
    fn advance(&mut self, found: &SearchResult) {
        if found.is_backward {
            self.search.before = found.lower().text();
            return;
        }
        self.search.after = found.upper().text();
        if self.search.before.is_empty() {
            let ends =
                found.progress.partitions.iter().map(|one| (one.partition, one.end.unwrap_or(one.latest)));
            self.search.before = Positions(ends.collect()).text();
        }
    }

    /// The last line of a file that is not whole.
    fn end_of_file(&self, cut: Option<String>) -> Option<String> {
        let truncated = (self.file.truncated > 0).then(|| {
            let count = format::counted(self.file.truncated, "message");
            format!(
                "{count} with more than {} in a part are cut",
                format::bytes(messages::WHOLE_MESSAGE_BYTES as u64)
            )
        });
        let cut = cut.map(|reason| format!("the file is not complete: {reason}"));
        let parts = cut.into_iter().chain(unread(&self.unreadable)).chain(truncated);
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    async fn flush(&mut self) -> Result<(), ClosedConnection> {
        if self.file.text.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.file.text));
        self.to.send(piece).await.map_err(|_| ClosedConnection)
    }
}

/// Messages in the format of a file.
struct FileWriter {
    format: DownloadFormat,
    columns: Vec<Column>,
    text: Vec<u8>,
    /// Messages with a part that is not kept as a whole.
    truncated: usize,
}

impl FileWriter {
    fn begin(&mut self) {
        if self.format != DownloadFormat::Csv {
            return;
        }
        let mut line = CsvLine::default();
        for name in
            ["partition", "offset", "timestamp", "time", "key", "key_form", "value", "value_form", "headers"]
        {
            line.plain(name);
        }
        self.columns.iter().for_each(|column| line.text(column.name()));
        self.text.extend(line.finish());
    }

    fn message(&mut self, message: &Message) {
        let is_cut =
            |content: &Option<Content>| content.as_ref().is_some_and(|content| content.omitted_bytes() > 0);
        let is_cut_header = |headers: &[thalweg_browse::MessageHeader]| {
            headers.iter().any(|header| header.omitted_name_bytes > 0 || is_cut(&header.value))
        };
        let is_truncated = is_cut(&message.key)
            || is_cut(&message.value)
            || message.headers_omitted > 0
            || is_cut_header(&message.headers);
        self.truncated += usize::from(is_truncated);
        match (self.format, &message.value) {
            (DownloadFormat::JsonLines, _) => self.line(to_json(message).to_string().as_bytes()),
            (DownloadFormat::Csv, _) => self.text.extend(csv(message, &self.columns)),
            (DownloadFormat::Values, Some(value)) => self.line(&value.bytes),
            (DownloadFormat::Values, None) => {}
        }
    }

    fn line(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        self.text.push(b'\n');
    }

    /// Adds the last line of a file that is not whole.
    fn end(&mut self, reason: &str) {
        match self.format {
            DownloadFormat::JsonLines => {
                self.line(serde_json::json!({ "cut": reason }).to_string().as_bytes());
            }
            DownloadFormat::Csv => {
                let mut line = CsvLine::default();
                line.text(&format!("# cut: {reason}"));
                self.text.extend(line.finish());
            }
            DownloadFormat::Values => self.line(format!("# cut: {reason}").as_bytes()),
        }
    }
}

/// A message as a line of CSV.
fn csv(message: &Message, columns: &[Column]) -> Vec<u8> {
    let mut line = CsvLine::default();
    line.plain(&message.partition.to_string());
    line.plain(&message.offset.to_string());
    line.plain(&message.timestamp.to_string());
    line.plain(&if message.timestamp >= 0 { format::time(message.timestamp) } else { String::new() });
    for content in [&message.key, &message.value] {
        content_of(&mut line, content.as_ref());
    }
    match message.headers.is_empty() {
        true => line.text(""),
        false => line.text(&headers_to_json(message).to_string()),
    }
    let fields = MessageFields::of(message);
    for column in columns {
        match fields.cell(column) {
            None => line.text(""),
            Some(cell) if cell.number.is_some() => line.plain(&cell.text),
            Some(cell) => line.text(&cell.text),
        }
    }
    line.finish()
}

/// The partitions that could not be read; of many, the first.
fn unread(unreadable: &BTreeMap<i32, String>) -> Vec<String> {
    let named = unreadable.iter().take(UNREADABLE_NAMED);
    let named = named.map(|(partition, reason)| format!("partition {partition} cannot be read: {reason}"));
    let more = unreadable.len().saturating_sub(UNREADABLE_NAMED);
    let more = (more > 0).then(|| format!("{} cannot be read", format::counted(more, "more partition")));
    named.chain(more).collect()
}

/// A key or value, and its form: `text`, `base64` or `null`, and `cut` if it is not kept as a whole.
fn content_of(line: &mut CsvLine, content: Option<&Content>) {
    let Some(content) = content else {
        line.text("");
        line.plain("null");
        return;
    };
    let form = match portable(content) {
        PortableText::Utf8(text) => {
            line.text(text);
            "text"
        }
        PortableText::Base64(digits) => {
            line.plain(&digits);
            "base64"
        }
    };
    line.plain(&format!("{form}{}", if content.omitted_bytes() > 0 { " cut" } else { "" }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::message;
    use thalweg_browse::MessageHeader;

    fn content(bytes: &[u8]) -> Option<Content> {
        Some(Content { bytes: bytes.to_vec().into(), whole_bytes: bytes.len(), schema: None })
    }

    fn messages() -> [Message; 3] {
        let mut all = [message(0, 1, 0), message(1, 2, 1000), message(0, 3, -1)];
        all[0].key = content(b"=1+1");
        all[0].value = content(b"{\"n\": -5, \"s\": \"+1,\\n\\\"\"}");
        all[0].headers = vec![MessageHeader {
            name: "h".to_owned(),
            raw_name: None,
            omitted_name_bytes: 0,
            value: content(b"\xff"),
        }];
        all[1].value = Some(Content { whole_bytes: 9, ..content(b"\xff\xfe").expect("there is one") });
        all
    }

    fn file(format: DownloadFormat, columns: &[&str], end: &str) -> (String, usize) {
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        let columns = Column::parse_all(&columns).expect("right");
        let mut file = FileWriter { format, columns, text: Vec::new(), truncated: 0 };
        file.begin();
        messages().iter().for_each(|message| file.message(message));
        file.end(end);
        (String::from_utf8_lossy(&file.text).into_owned(), file.truncated)
    }

    #[test]
    fn csv_has_every_part_and_no_formula() {
        let (text, truncated) = file(DownloadFormat::Csv, &["n", "s"], "why");
        let lines = [
            "partition,offset,timestamp,time,key,key_form,value,value_form,headers,\"n\",\"s\"",
            "0,1,0,1970-01-01T00:00:00.000Z,\"'=1+1\",text,\"{\"\"n\"\": -5, \"\"s\"\": \"\"+1,\\n\\\"\"\"\"}\",text,\
             \"[{\"\"key\"\":\"\"h\"\",\"\"value\"\":{\"\"base64\"\":\"\"/w==\"\"}}]\",-5,\"'+1,\n\"\"\"",
            "1,2,1000,1970-01-01T00:00:01.000Z,\"\",null,//4=,base64 cut,\"\",\"\",\"\"",
            "0,3,-1,,\"\",null,\"\",null,\"\",\"\",\"\"",
            "\"# cut: why\"",
            "",
        ];
        assert_eq!((text.as_str(), truncated), (lines.join("\r\n").as_str(), 1));
    }

    #[test]
    fn base64_in_csv_is_unchanged() {
        let mut message = message(0, 1, 0);
        message.key = content(b"\xfb\xff\xbf\x01");
        let line = String::from_utf8(csv(&message, &[])).expect("text");
        assert!(line.contains(",+/+/AQ==,base64,"), "{line}");
    }

    #[test]
    fn json_lines_and_values_have_one_line_for_each_message() {
        let (text, _) = file(DownloadFormat::JsonLines, &[], "why");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((lines.len(), &lines[0]["key"], &lines[3]["cut"]), (4, &"=1+1".into(), &"why".into()));
        assert_eq!((&lines[1]["value"]["base64"], &lines[1]["value_bytes"]), (&"//4=".into(), &9.into()));
        let (text, _) = file(DownloadFormat::Values, &[], "why");
        let expected = "{\"n\": -5, \"s\": \"+1,\\n\\\"\"}\n\u{fffd}\u{fffd}\n# cut: why\n";
        assert_eq!(text, expected, "raw bytes, and no line for a tombstone");
    }

    #[test]
    fn wrong_parameters_are_named() {
        let read = |name: &str, value: &str| {
            DownloadQuery::read(vec![(name.to_owned(), value.to_owned())]).map_err(|wrong| wrong.message)
        };
        assert_eq!(read("key", "k").expect("right").format, DownloadFormat::JsonLines);
        for (name, value, words) in [
            ("format", "xml", "format: \"xml\" is unknown: use jsonl, csv, values"),
            ("limit", "100001", "limit: 100001 is too much: use at most 100,000"),
            ("sort", "key", "unknown field `sort`"),
            ("after", "0:1", "before, after: a download in this order needs both"),
        ] {
            let wrong = read(name, value).expect_err(words);
            assert!(wrong.contains(words), "{wrong}");
        }
    }

    #[test]
    fn a_file_names_all_partitions_that_it_lacks() {
        let lacks =
            |count: i32| unread(&(0..count).map(|index| (index, "it has no leader".to_owned())).collect());
        let expected = [0, 1].map(|index| format!("partition {index} cannot be read: it has no leader"));
        assert_eq!(lacks(2), expected);
        assert_eq!((lacks(12).len(), &*lacks(12)[10]), (11, "2 more partitions cannot be read"));
    }
}
