//! Messages of a topic: bounded searches and live tails.

use std::time::Duration;

use axum::http::StatusCode;
use serde::de::Error;
use serde::de::value::{Error as ValueError, MapDeserializer};
use serde::{Deserialize, Deserializer};
use thalweg_browse::{
    End, Event, Filter, Limits, Message, Order, PrincipalCapacity, Query, RangeError, Search, SearchError,
    Start, TextTest,
};
use thalweg_client::ConsumerError;
use thalweg_places::FairPermit;
use thalweg_record::Offset;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::View;
use super::positions::Positions;
use super::search_result::{BYTES_MAX, READ_BYTES_MAX, SEARCH_MAX, SearchEndKind, SearchResult};
use crate::format;
use crate::problem::Problem;

/// Maximum and default number of messages per answer.
pub const MESSAGES_MAX: usize = 500;
pub const MESSAGES_DEFAULT: usize = 50;
/// Bytes kept of each key or value for a page.
const MESSAGE_BYTES: usize = 32 << 10;
/// Bytes kept of each key or value of a download, or of a message that is shown alone.
pub const WHOLE_MESSAGE_BYTES: usize = 4 << 20;
/// Messages per partition that a live tail repeats from before its start, so that none is lost between a page
/// and its tail.
const TAIL_BEFORE: u64 = 50;
/// Threads of a search. The node has other work, and a user gets one turn at a time.
const THREADS: usize = 1;

/// A search for messages.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessageQuery {
    /// Start of the search: `newest` (the default) for the newest messages, newest first; or `earliest`,
    /// `offset` or `time`, oldest first. Partitions are merged by timestamp.
    #[param(required = false)]
    pub from: String,
    /// The offset, or the time: 2026-01-31T12:00:00Z, or milliseconds since 1970.
    #[param(required = false)]
    pub at: String,
    /// Positions of partitions, from `older` of another answer: the next older messages. Their order in the
    /// answer is that of `from`.
    #[param(required = false)]
    pub before: String,
    /// Positions of partitions, from `newer` of another answer: the next newer messages. With `before`, the
    /// messages between the positions.
    #[param(required = false)]
    pub after: String,
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

impl MessageQuery {
    /// Reads the parameters of an address. Unknown and repeated ones are refused.
    pub fn of_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Result<MessageQuery, Problem> {
        let pairs = MapDeserializer::<_, ValueError>::new(pairs.into_iter());
        MessageQuery::deserialize(pairs).map_err(|wrong| Problem::wrong(format!("The address: {wrong}")))
    }

    /// The parameters that are not empty.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        let limit = if self.limit == 0 { String::new() } else { self.limit.to_string() };
        let texts = [
            ("from", &self.from),
            ("at", &self.at),
            ("before", &self.before),
            ("after", &self.after),
            ("partition", &self.partition),
            ("limit", &limit),
            ("key", &self.key),
            ("text", &self.text),
            ("expression", &self.expression),
            ("committed", &self.committed),
            ("control", &self.control),
            ("shape", &self.shape),
        ];
        texts.map(|(name, text)| (name, text.clone())).into_iter().filter(|(_, text)| !text.is_empty())
    }

    /// True if messages are shown from the newest to the oldest.
    pub fn is_newest_first(&self) -> bool {
        matches!(self.from.as_str(), "" | "newest")
    }

    /// The search that these parameters describe, in at most `time`.
    async fn to_query(
        &self,
        topic: &str,
        time: Duration,
        share: &PrincipalCapacity,
    ) -> Result<Query, Problem> {
        let number = |name: &str, text: &str| match text.trim().replace(',', "").parse::<i64>() {
            Ok(number @ 0..) => Ok(number),
            Ok(_) => Err(Problem::wrong(format!("{name}: {text:?} is negative: use 0 or more"))),
            Err(_) => Err(Problem::wrong(format!("{name}: {text:?} is not a number"))),
        };
        let limit = if self.limit == 0 { MESSAGES_DEFAULT } else { self.limit.min(MESSAGES_MAX) };
        let mut query = Query::new(topic);
        let (start, order) = match self.from.as_str() {
            "earliest" => (Start::Earliest, Order::OldestFirst),
            "offset" => (Start::At(Offset(number("Offset", &self.at)?)), Order::OldestFirst),
            "time" => (Start::Time(format::time_ms("at", &self.at)?), Order::OldestFirst),
            other => {
                Problem::unless_known("from", other, &["newest", "earliest", "offset", "time"])?;
                (Start::Earliest, Order::NewestFirst)
            }
        };
        (query.start, query.order) = (start, order);
        match (self.before.as_str(), self.after.as_str()) {
            ("", "") => {}
            (before, "") => {
                (query.start, query.order) = (Start::Earliest, Order::NewestFirst);
                query.ends = Positions::parse("before", before)?.0;
            }
            ("", after) => {
                query.order = Order::OldestFirst;
                query.starts = Positions::parse("after", after)?.0;
            }
            (before, after) => {
                query.ends = Positions::parse("before", before)?.0;
                query.starts = Positions::parse("after", after)?.0;
            }
        }
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
        query.read_committed = is_on("committed", &self.committed)?;
        query.control = is_on("control", &self.control)?;
        query.limits.matches = Some(limit);
        query.limits.bytes = Some(BYTES_MAX);
        query.limits.read_bytes = query.filter.is_empty().then_some(READ_BYTES_MAX);
        query.limits.message_bytes = MESSAGE_BYTES;
        query.limits.time = Some(time);
        query.limits.threads = query.limits.threads.min(THREADS);
        Ok(query)
    }
}

/// The way in which a search keeps messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The first bytes of large keys and values, for a list.
    First,
    /// Keys and values up to [`WHOLE_MESSAGE_BYTES`].
    Whole,
    /// The same as they are stored, without a schema registry.
    Stored,
}

/// Searches for at most [`SEARCH_MAX`].
pub async fn search(
    view: &View,
    topic: &str,
    requested: &MessageQuery,
    keeping: Keeping,
) -> Result<SearchResult, Problem> {
    let (reader, began) = (view.reader(), Instant::now());
    let place = Box::new(reader.search_place(SEARCH_MAX).await?);
    let left = SEARCH_MAX.saturating_sub(began.elapsed());
    let share = reader.share();
    let mut query = requested.to_query(topic, left, &share).await?;
    if keeping != Keeping::First {
        query.limits.message_bytes = WHOLE_MESSAGE_BYTES;
    }
    let is_backward = query.order == Order::NewestFirst;
    let positions = Positions(if is_backward { query.ends.clone() } else { query.starts.clone() });
    let is_whole = query.start == Start::Earliest && positions.0.is_empty();
    let is_newest_first = requested.is_newest_first();
    let mut search = start(view, query, share, place, keeping != Keeping::Stored)?;
    let mut messages: Vec<Message> = Vec::new();
    while let Some(event) = search.next().await {
        match event {
            Event::Matches(found) => messages.extend(found),
            Event::Progress(_) | Event::Waiting(_) => {}
            Event::Ended(ended) => {
                let end = SearchEndKind::of(ended.why).map_err(failed)?;
                let progress = ended.progress;
                if is_backward != is_newest_first {
                    messages.reverse();
                }
                return Ok(SearchResult {
                    messages,
                    progress,
                    is_newest_first,
                    is_backward,
                    is_whole,
                    positions,
                    end,
                });
            }
        }
    }
    Err(Problem::wrong("The search ended without an end"))
}

/// Reads the message at an offset.
pub async fn one(
    view: &View,
    topic: &str,
    partition: i32,
    offset: i64,
    keeping: Keeping,
) -> Result<Message, Problem> {
    let query = MessageQuery {
        from: "offset".to_owned(),
        at: offset.to_string(),
        partition: partition.to_string(),
        limit: 1,
        control: "on".to_owned(),
        ..MessageQuery::default()
    };
    message_at(search(view, topic, &query, keeping).await?, topic, partition, offset)
}

/// The message that a search for one offset found.
fn message_at(found: SearchResult, topic: &str, partition: i32, offset: i64) -> Result<Message, Problem> {
    let message = found.messages.into_iter().next().filter(|message| message.offset.0 == offset);
    if let Some(message) = message {
        return Ok(message);
    }
    let problem = |status, kind: &str, message| Problem { status, kind: kind.to_owned(), message };
    if let Some(one) = found.progress.unreadable.first() {
        let message = format!("Partition {partition} of {topic} cannot be read: {}", one.reason);
        return Err(problem(StatusCode::SERVICE_UNAVAILABLE, "cluster unavailable", message));
    }
    Err(match found.end {
        SearchEndKind::Complete | SearchEndKind::Limit => {
            let gone = format!("Partition {partition} of {topic} has no message at offset {offset}");
            Problem::missing(format!("{gone}: it was deleted, compacted, or never there"))
        }
        end => {
            let unread = format!("Partition {partition} of {topic} was not read up to offset {offset}");
            problem(StatusCode::GATEWAY_TIMEOUT, "timed out", format!("{unread}: {}", end.words()))
        }
    })
}

/// Starts a search that keeps its place until the end.
fn start(
    view: &View,
    query: Query,
    share: PrincipalCapacity,
    place: Box<FairPermit>,
    is_decoded: bool,
) -> Result<Search, Problem> {
    let (cluster, reading) = (view.cluster().clone(), view.reader().reading());
    let registry = reading.registry.clone().filter(|_| is_decoded);
    Search::start_sharing(cluster, query, &reading.masking, registry, share, place)
        .map_err(|wrong| Problem::wrong(wrong.to_string()))
}

/// Starts a live tail at the end, or a few messages earlier to overlap with a page.
pub async fn tail(
    view: &View,
    topic: &str,
    requested: &MessageQuery,
    from_before: bool,
    time: Duration,
) -> Result<Search, Problem> {
    let newest = MessageQuery {
        from: String::new(),
        before: String::new(),
        after: String::new(),
        ..requested.clone()
    };
    let (place, share) = (Box::new(view.reader().tail()?), view.reader().share());
    let mut query = newest.to_query(topic, time, &share).await?;
    query.start = if from_before { Start::Last(TAIL_BEFORE) } else { Start::Latest };
    (query.end, query.order) = (End::Never, Order::Unordered);
    query.limits = Limits { matches: None, bytes: None, threads: 1, ..query.limits };
    start(view, query, share, place, true)
}

/// Parses a parameter that is `on`, `off` or empty.
pub(super) fn is_on(name: &str, text: &str) -> Result<bool, Problem> {
    Problem::unless_known(name, text, &["on", "off"])?;
    Ok(text == "on")
}

/// Maps a failed search to a problem.
fn failed(error: SearchError) -> Problem {
    match error {
        SearchError::Range(RangeError::Client(error))
        | SearchError::Consumer(ConsumerError::Client(error)) => error.into(),
        error => Problem::wrong(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::message;
    use thalweg_browse::{Progress, UnreadablePartition};

    #[test]
    fn only_a_completed_search_reports_that_a_message_is_gone() {
        let found = |messages: Vec<Message>, end, unreadable: &[&str]| {
            let unreadable = unreadable
                .iter()
                .map(|reason| UnreadablePartition { partition: 3, reason: (*reason).to_owned() });
            let progress = Progress { unreadable: unreadable.collect(), ..Progress::default() };
            let found = SearchResult {
                messages,
                progress,
                is_newest_first: false,
                is_backward: false,
                is_whole: false,
                positions: Positions::default(),
                end,
            };
            message_at(found, "orders", 3, 42)
        };
        let stored = found(vec![message(3, 42, 0)], SearchEndKind::Limit, &[]);
        assert_eq!(stored.expect("it is there").offset.0, 42);
        for (messages, end, unreadable, status, words) in [
            (vec![message(3, 43, 0)], SearchEndKind::Limit, &[][..], 404, "it was deleted, compacted"),
            (vec![], SearchEndKind::Complete, &[], 404, "it was deleted, compacted"),
            (vec![], SearchEndKind::Complete, &["it has no leader"], 503, "cannot be read: it has no leader"),
            (vec![], SearchEndKind::Time, &[], 504, "10 s was over"),
            (vec![], SearchEndKind::ReadBytes, &[], 504, "64 MiB were read"),
        ] {
            let problem = found(messages, end, unreadable).expect_err(words);
            assert_eq!(
                (problem.status.as_u16(), problem.message.contains(words)),
                (status, true),
                "{problem:?}"
            );
        }
    }
}
