//! Messages of a topic: bounded searches, and sending one message.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use thalweg_browse::{
    End, EndReason, Event, Filter, Limits, Message, MessagePosition, NewMessage, PlaceError, ProduceError,
    Progress, Query, Search, SearchError, Share, Start, TextTest, produce,
};
use thalweg_client::{ConsumerError, DeliveryError, ProducerConfig};
use thalweg_places::Place;
use thalweg_record::Offset;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::View;
use crate::format;
use crate::problem::Problem;

/// Maximum and default number of messages per answer.
const MESSAGES_MAX: usize = 500;
pub const MESSAGES_DEFAULT: usize = 50;
/// Bytes kept of each key or value.
const MESSAGE_BYTES: usize = 32 << 10;
/// Maximum bytes per answer.
const BYTES_MAX: u64 = 4 << 20;
/// Messages per partition that a live tail repeats from before its start, so that none is lost between a page
/// and its tail.
const TAIL_BEFORE: u64 = 50;
/// Threads of a search. The node has other work, and a user gets one turn at a time.
const THREADS: usize = 1;
/// Time limit of a search, including the wait for a place.
pub const SEARCH_MAX: Duration = Duration::from_secs(10);

/// A search for messages.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct MessageQuery {
    /// Start of the search: empty for the newest messages, `earliest`, `offset` or `time`.
    #[param(required = false)]
    pub from: String,
    /// The offset or the time (UTC).
    #[param(required = false)]
    pub at: String,
    /// A partition index; all partitions if empty.
    #[param(required = false)]
    pub partition: String,
    /// Maximum number of messages, up to 500. Default: 50.
    #[param(required = false)]
    #[serde(deserialize_with = "number_or_none")]
    pub limit: usize,
    /// The whole key.
    #[param(required = false)]
    pub key: String,
    /// A substring of the value.
    #[param(required = false)]
    pub text: String,
    /// A filter expression in the streams language, such as `payload.amount > 1000`.
    #[param(required = false)]
    pub expression: String,
    /// `on` hides records of open and aborted transactions.
    #[param(required = false)]
    pub committed: String,
    /// `on` shows transaction markers.
    #[param(required = false)]
    pub control: String,
    /// Display form: `auto`, `json`, `text` or `hex`.
    #[param(required = false)]
    pub shape: String,
}

/// A live tail of new messages.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TailQuery {
    /// A partition index; all partitions if empty.
    #[param(required = false)]
    pub partition: String,
    /// The whole key.
    #[param(required = false)]
    pub key: String,
    /// A substring of the value.
    #[param(required = false)]
    pub text: String,
    /// A filter expression in the streams language, such as `payload.amount > 1000`.
    #[param(required = false)]
    pub expression: String,
    /// `on` hides records of open and aborted transactions.
    #[param(required = false)]
    pub committed: String,
    /// `on` shows transaction markers.
    #[param(required = false)]
    pub control: String,
}

impl From<TailQuery> for MessageQuery {
    fn from(tail: TailQuery) -> MessageQuery {
        let TailQuery { partition, key, text, expression, committed, control } = tail;
        MessageQuery { partition, key, text, expression, committed, control, ..MessageQuery::default() }
    }
}

/// Parses a number. An empty form field is 0.
fn number_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.trim() {
        "" => Ok(0),
        text => text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not a number"))),
    }
}

/// The result of a search.
pub struct SearchResult {
    pub messages: Vec<Message>,
    pub progress: Progress,
    /// The reason for the end, in words.
    pub ended: &'static str,
}

impl MessageQuery {
    async fn read(&self, topic: &str, time: Duration, share: &Share) -> Result<Query, Problem> {
        let number = |name: &str, text: &str| {
            text.trim()
                .replace(',', "")
                .parse::<i64>()
                .map_err(|_| Problem::wrong(format!("{name}: {text:?} is not a number")))
        };
        let limit = if self.limit == 0 { MESSAGES_DEFAULT } else { self.limit.min(MESSAGES_MAX) };
        let mut query = Query::new(topic);
        query.start = match self.from.as_str() {
            "earliest" => Start::Earliest,
            "offset" => Start::At(Offset(number("Offset", &self.at)?)),
            "time" => {
                let ms = self.at.trim().parse::<i64>().ok().or_else(|| format::parse_time(&self.at));
                Start::Time(ms.ok_or_else(|| {
                    Problem::wrong(format!("{:?} is not a time: use 2026-01-31 12:00, in UTC", self.at))
                })?)
            }
            other => {
                Problem::unless_known("from", other, &["newest", "earliest", "offset", "time"])?;
                Start::Last(limit as u64)
            }
        };
        Problem::unless_known("shape", &self.shape, &["auto", "json", "text", "hex"])?;
        if !self.partition.trim().is_empty() {
            let partition = number("Partition", &self.partition)?;
            query.partitions = vec![i32::try_from(partition).unwrap_or(-1)];
        }
        query.filter = match self.expression.trim() {
            "" => Filter::default(),
            text => share.filter(text).await.map_err(|wrong| Problem::wrong(wrong.to_string()))?,
        };
        query.filter.key = Some(&self.key).filter(|key| !key.is_empty()).map(|key| TextTest::equals(key));
        query.filter.value =
            Some(&self.text).filter(|text| !text.is_empty()).map(|text| TextTest::contains(text));
        if !query.filter.is_empty() && matches!(query.start, Start::Last(_)) {
            // The newest messages may contain no match.
            query.start = Start::Earliest;
        }
        query.read_committed = is_on("committed", &self.committed)?;
        query.control = is_on("control", &self.control)?;
        query.limits.matches = Some(limit);
        query.limits.bytes = Some(BYTES_MAX);
        query.limits.message_bytes = MESSAGE_BYTES;
        query.limits.time = Some(time);
        query.limits.threads = query.limits.threads.min(THREADS);
        Ok(query)
    }
}

/// Searches for at most [`SEARCH_MAX`].
pub async fn search(view: &View, topic: &str, asked: &MessageQuery) -> Result<SearchResult, Problem> {
    let (reader, began) = (view.reader(), Instant::now());
    let place = Box::new(reader.search(SEARCH_MAX).await?);
    let left = SEARCH_MAX.saturating_sub(began.elapsed());
    let share = reader.share();
    let query = asked.read(topic, left, &share).await?;
    // The limit applies to the newest of all partitions together, not of each.
    let is_newest = matches!(query.start, Start::Last(_));
    let limit = query.limits.matches.unwrap_or(MESSAGES_MAX);
    let mut query = query;
    if is_newest {
        // Partitions are read in ascending order, so the newest messages are known only at the end.
        (query.limits.matches, query.limits.bytes) = (None, None);
    }
    let mut search = start(view, query, share, place)?;
    let mut messages: Vec<Message> = Vec::new();
    let mut newest = NewestMessages::new(limit, BYTES_MAX);
    while let Some(event) = search.next().await {
        match event {
            Event::Matches(found) if is_newest => found.into_iter().for_each(|message| newest.take(message)),
            Event::Matches(found) => messages.extend(found),
            Event::Progress(_) | Event::Waiting(_) => {}
            Event::Ended(ended) => {
                let words = match ended.why {
                    EndReason::Complete if newest.is_full => "There may be more: the answer is full.",
                    EndReason::Complete => "Everything was read.",
                    EndReason::Matches => "There may be more.",
                    EndReason::Bytes => "There may be more: the answer is full.",
                    EndReason::Time => "There may be more: the time is over.",
                    EndReason::Failed(error) => return Err(failed(error)),
                };
                if is_newest {
                    messages = newest.into_messages();
                }
                return Ok(SearchResult { messages, progress: ended.progress, ended: words });
            }
        }
    }
    Err(Problem::wrong("The search ended without an end"))
}

/// The newest messages of all partitions, limited in number and bytes. The oldest messages give way.
struct NewestMessages {
    limit: usize,
    bytes_max: u64,
    bytes: u64,
    /// True if the byte limit dropped messages.
    is_full: bool,
    messages: BTreeMap<(i64, i64, i32), Message>,
}

impl NewestMessages {
    fn new(limit: usize, bytes_max: u64) -> NewestMessages {
        NewestMessages { limit, bytes_max, bytes: 0, is_full: false, messages: BTreeMap::new() }
    }

    fn take(&mut self, message: Message) {
        self.bytes += message.size_bytes();
        self.messages.insert((message.timestamp, message.offset.0, message.partition), message);
        while self.messages.len() > self.limit || (self.bytes > self.bytes_max && self.messages.len() > 1) {
            self.is_full |= self.messages.len() <= self.limit;
            let Some((_, oldest)) = self.messages.pop_first() else { return };
            self.bytes -= oldest.size_bytes();
        }
    }

    /// Returns the messages, newest first.
    fn into_messages(self) -> Vec<Message> {
        self.messages.into_values().rev().collect()
    }
}

/// Starts a search that keeps its place until the end.
fn start(view: &View, query: Query, share: Share, place: Box<Place>) -> Result<Search, Problem> {
    let (cluster, reading) = (view.cluster().clone(), view.reader().reading());
    Search::start_sharing(cluster, query, &reading.masking, reading.registry.clone(), share, place)
        .map_err(|wrong| Problem::wrong(wrong.to_string()))
}

/// Starts a live tail at the end, or a few messages earlier to overlap with a page.
pub async fn tail(
    view: &View,
    topic: &str,
    asked: &MessageQuery,
    from_before: bool,
    time: Duration,
) -> Result<Search, Problem> {
    let newest = MessageQuery { from: String::new(), ..asked.clone() };
    let (place, share) = (Box::new(view.reader().tail()?), view.reader().share());
    let mut query = newest.read(topic, time, &share).await?;
    query.start = if from_before { Start::Last(TAIL_BEFORE) } else { Start::Latest };
    query.end = End::Never;
    query.limits = Limits { matches: None, bytes: None, threads: 1, ..query.limits };
    start(view, query, share, place)
}

/// A message to send.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MessageToSend {
    /// The key; no key if empty.
    pub key: String,
    /// The partition index. If empty, the key determines the partition.
    pub partition: String,
    /// The value as text, possibly empty. Required unless `tombstone` is `on`.
    #[schema(nullable = false)]
    pub value: Option<String>,
    /// Headers, one NAME=VALUE per line.
    pub headers: String,
    /// `on` sends a null value.
    pub tombstone: String,
}

/// Sends a message and waits for the acknowledgement.
pub async fn send(view: &View, topic: &str, message: MessageToSend) -> Result<MessagePosition, Problem> {
    let partition = match message.partition.trim() {
        "" => None,
        text => {
            Some(text.parse().map_err(|_| Problem::wrong(format!("Partition: {text:?} is not a number")))?)
        }
    };
    let value = match (is_on("tombstone", &message.tombstone)?, message.value) {
        (true, Some(value)) if !value.is_empty() => {
            return Err(Problem::wrong(
                "value: a message with tombstone has none: leave it out, or leave tombstone out",
            ));
        }
        (true, _) => None,
        (false, Some(value)) => Some(value.into_bytes()),
        (false, None) => {
            return Err(Problem::wrong(
                "value is missing: a text is needed, or tombstone: \"on\" for a message without a value",
            ));
        }
    };
    let mut headers = Vec::new();
    for line in message.headers.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| Problem::wrong(format!("Headers: {line:?} is not NAME=VALUE")))?;
        headers.push((name.trim().to_owned(), Some(value.trim().as_bytes().to_vec())));
    }
    let new = NewMessage {
        topic: topic.to_owned(),
        partition,
        key: Some(message.key.into_bytes()).filter(|key| !key.is_empty()),
        value,
        headers,
        timestamp: now_ms(),
    };
    let config = ProducerConfig { connection: view.cluster().options().clone(), ..ProducerConfig::default() };
    produce(view.cluster().clone(), config, &new).await.map_err(not_stored)
}

/// Parses a parameter that is `on`, `off` or empty.
fn is_on(name: &str, text: &str) -> Result<bool, Problem> {
    Problem::unless_known(name, text, &["on", "off"])?;
    Ok(text == "on")
}

/// Maps a failed search to a problem.
fn failed(error: SearchError) -> Problem {
    match error {
        SearchError::Place(PlaceError::Client(error))
        | SearchError::Consumer(ConsumerError::Client(error)) => error.into(),
        error => Problem::wrong(error.to_string()),
    }
}

/// Maps a failed send to a problem.
fn not_stored(error: ProduceError) -> Problem {
    match error {
        ProduceError::Client(error) => error.into(),
        ProduceError::Delivery(DeliveryError::Refused(refused)) => {
            Problem::refused(refused.error_code, refused.to_string())
        }
        ProduceError::Delivery(error) => Problem {
            status: StatusCode::GATEWAY_TIMEOUT,
            kind: "timed out".to_owned(),
            message: error.to_string(),
        },
        error => Problem::wrong(error.to_string()),
    }
}

/// Milliseconds since 1970, for the timestamp of a new message and the age of old ones.
#[allow(clippy::disallowed_methods, reason = "a person looks and sends now, by the clock of this machine")]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thalweg_browse::{BatchFacts, Content};
    use thalweg_record::{LeaderEpoch, TimestampType};

    fn message(partition: i32, offset: i64, timestamp: i64, bytes: usize) -> Message {
        let batch = BatchFacts {
            base_offset: Offset(offset),
            records: 1,
            size_bytes: bytes,
            compression: None,
            timestamp_type: TimestampType::CreateTime,
            leader_epoch: LeaderEpoch(0),
            producer: None,
            sequence: None,
            is_transactional: false,
            control: None,
        };
        Message {
            topic: Arc::from("t"),
            partition,
            offset: Offset(offset),
            timestamp,
            key: None,
            value: Some(Content { bytes: vec![0; bytes].into(), whole_bytes: bytes, schema: None }),
            headers: Vec::new(),
            headers_omitted: 0,
            is_masked: false,
            batch,
        }
    }

    #[test]
    fn the_oldest_messages_make_room_for_the_newest() {
        let mut newest = NewestMessages::new(50, 4 << 20);
        for partition in 0..100 {
            (0..60).for_each(|offset| {
                newest.take(message(partition, offset, offset * 1000 + i64::from(partition), 10))
            });
        }
        assert!(!newest.is_full);
        let found = newest.into_messages();
        let places: Vec<_> = found.iter().map(|message| (message.partition, message.offset.0)).collect();
        assert_eq!(places, (50..100).rev().map(|partition| (partition, 59)).collect::<Vec<_>>());

        let mut newest = NewestMessages::new(300, 4 << 20);
        (0..300).for_each(|offset| newest.take(message(0, offset, offset, 32 << 10)));
        assert!(newest.is_full);
        let found = newest.into_messages();
        assert_eq!((found.len(), found[0].offset.0, found[127].offset.0), (128, 299, 172));
    }
}
