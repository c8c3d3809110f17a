//! Policies for bad messages: messages that a stage cannot process.
//!
//! A dead letter is as durable as any message: the source gets the acknowledgement once the file or topic has
//! the dead letter.
//!
//! A source whose senders wait for an answer, such as `http`, returns a bad message to its sender, with the
//! reason, as soon as a dead letter is stored. Such a message does not fail the stream, whatever the policy,
//! unless its sender already has another answer.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use crate::disk::Appender;
use crate::kafka::{Cluster, TopicWriter};
use crate::message::{BatchBuilder, Header, Message};
use crate::reach::Reach;
use crate::retry::Retry;
use crate::sink;
use crate::stage::{BadMessage, IoFailed, Refusals, StageError};
use crate::topics::is_topic;

/// Maximum bytes of a bad message in an error text.
const EXCERPT_CHARS: usize = 60;

/// The policy for messages that a stage cannot process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Fail the stream.
    #[default]
    Fail,
    /// Skip and count the message.
    Skip,
    /// Append the message to a file as a line of JSON with the reason, and count it.
    DeadLetter(PathBuf),
    /// Send the message unchanged to a topic, with the reason in its headers, and count it.
    DeadLetterTopic(String),
}

/// Time for which writes to a file of dead letters are retried.
const RETRY_FOR: Duration = Duration::from_secs(300);

/// The same when the stream was stopped.
const STOPPED_RETRY_FOR: Duration = Duration::from_secs(1);

/// Dead letter header: the reason.
const REASON: &str = "thalweg.error.reason";
/// Dead letter header: the stream.
const STREAM: &str = "thalweg.error.stream";
/// Dead letter header: the stage that rejected the message.
const STAGE: &str = "thalweg.error.stage";

/// An unknown policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a policy for bad messages: use fail, skip, dead-letter:FILE or dead-letter:topic:NAME"
)]
pub struct NoSuchPolicy {
    /// The rejected text.
    pub text: String,
}

impl FromStr for OnError {
    type Err = NoSuchPolicy;

    fn from_str(text: &str) -> Result<OnError, NoSuchPolicy> {
        let wrong = || NoSuchPolicy { text: text.to_owned() };
        match text {
            "fail" => return Ok(OnError::Fail),
            "skip" => return Ok(OnError::Skip),
            _ => {}
        }
        let to = text.strip_prefix("dead-letter:").filter(|to| !to.is_empty()).ok_or_else(wrong)?;
        match to.strip_prefix("topic:") {
            Some(topic) if is_topic(topic) => Ok(OnError::DeadLetterTopic(topic.to_owned())),
            Some(_) => Err(wrong()),
            None => Ok(OnError::DeadLetter(PathBuf::from(to))),
        }
    }
}

/// Handles the bad messages of one stream.
pub struct BadMessages {
    policy: Policy,
    stream: Arc<str>,
    stage: Arc<str>,
    count: Arc<AtomicU64>,
    /// Bad messages that the source returns to their senders; `None` if it has no senders that wait.
    returned: Option<Vec<ReturnedMessage>>,
    /// True if the messages of the current stage have the sequences of the source.
    is_traceable: bool,
}

/// A bad message on its way back to its sender.
pub struct ReturnedMessage {
    pub sequence: u64,
    pub stage: Arc<str>,
    /// The reason, and the place of a dead letter.
    pub reason: String,
    /// The beginning of the message.
    excerpt: String,
}

enum Policy {
    Fail,
    Skip,
    DeadLetter(Box<DeadLetterFile>),
    DeadLetterTopic(Box<DeadLetters>),
}

/// A file of dead letters, and its failed writes.
struct DeadLetterFile {
    file: Appender,
    retry: Retry,
}

impl DeadLetterFile {
    fn append(&mut self, line: &Map<String, Value>) {
        // A map of strings and numbers has a text.
        let line = serde_json::to_vec(line).unwrap_or_default();
        self.file.append(&[&line, b"\n"]);
    }

    /// Writes all lines. The medium may be full for a while.
    async fn flush(&mut self) -> Result<(), IoFailed> {
        while let Err(error) = self.file.flush() {
            let Some(pause) = self.retry.failed(Instant::now()) else {
                // Another error would hide the first one.
                let _ = self.file.take_back();
                return Err(error);
            };
            if self.retry.tries() == 1 {
                tracing::warn!(%error, "Failed to write dead letters, retrying");
            }
            sleep(pause).await;
        }
        self.retry.succeeded();
        Ok(())
    }
}

/// Adds bytes to a line: as text, or in base64 under another name if they are not text.
fn add(line: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes)) {
        None => line.insert(name.to_owned(), Value::Null),
        Some(Ok(text)) => line.insert(name.to_owned(), text.into()),
        Some(Err(bytes)) => line.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// A dead letter as a line of JSON.
fn letter(stream: &str, stage: &str, reason: &str, message: &Message<'_>) -> Map<String, Value> {
    let mut line = Map::new();
    for (name, text) in [("stream", stream), ("stage", stage), ("reason", reason)] {
        line.insert(name.to_owned(), text.into());
    }
    line.insert("sequence".to_owned(), message.sequence.into());
    line.insert("time_ms".to_owned(), message.time_ms.into());
    add(&mut line, "key", message.key);
    add(&mut line, "value", (!message.is_null).then_some(message.value));
    let headers: Vec<Value> = message
        .headers
        .iter()
        .map(|header| {
            let mut fields = Map::new();
            fields.insert("name".to_owned(), header.name.into());
            add(&mut fields, "value", header.value);
            fields.into()
        })
        .collect();
    if !headers.is_empty() {
        line.insert("headers".to_owned(), headers.into());
    }
    line
}

/// Dead letters in flight to a topic.
struct DeadLetters {
    topic: TopicWriter,
    waiting: BatchBuilder,
}

impl BadMessages {
    /// The handler of a stream. Opens the file or topic at once, so that an unusable one fails the start.
    pub fn new(
        policy: &OnError,
        cluster: &Cluster,
        reach: &Reach,
        stream: Arc<str>,
        count: Arc<AtomicU64>,
    ) -> Result<BadMessages, StageError> {
        let policy = match policy {
            OnError::Fail => Policy::Fail,
            OnError::Skip => Policy::Skip,
            OnError::DeadLetter(path) => Policy::DeadLetter(Box::new(DeadLetterFile {
                file: Appender::open(&reach.file(path)?, b"\n")?,
                retry: Retry::within(RETRY_FOR),
            })),
            OnError::DeadLetterTopic(topic) => Policy::DeadLetterTopic(Box::new(DeadLetters {
                topic: TopicWriter::open(
                    &cluster.settings(&sink::kafka::MODULE, &[("topic", topic)]),
                    false,
                )?,
                waiting: BatchBuilder::default(),
            })),
        };
        let stage = stream.clone();
        Ok(BadMessages { policy, stage, stream, count, returned: None, is_traceable: false })
    }

    /// Keeps bad messages for [`BadMessages::take_returned`], where they can be traced to the source.
    pub fn return_to_senders(&mut self) {
        self.returned = Some(Vec::new());
    }

    /// The bad messages since the last call, in order of their refusal, when their dead letters are stored.
    pub async fn take_returned(&mut self) -> Result<Vec<ReturnedMessage>, StageError> {
        match self.returned.as_mut().map(std::mem::take) {
            Some(returned) if !returned.is_empty() => {
                self.flush().await?;
                Ok(returned)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Applies the policy to a message whose sender already has another answer.
    pub fn keep(&self, returned: ReturnedMessage) -> Result<(), StageError> {
        let ReturnedMessage { sequence, reason, excerpt, .. } = returned;
        match self.policy {
            Policy::Fail => Err(BadMessage { reason, sequence, excerpt }.into()),
            // The message is skipped, or a dead letter already.
            Policy::Skip | Policy::DeadLetter(_) | Policy::DeadLetterTopic(_) => Ok(()),
        }
    }

    /// Sets the stage of the next messages. They are traceable if they have the sequences of the source.
    pub fn enter(&mut self, stage: &Arc<str>, is_traceable: bool) {
        if !Arc::ptr_eq(&self.stage, stage) {
            self.stage = stage.clone();
        }
        self.is_traceable = is_traceable;
    }

    /// The stage of the latest messages.
    pub fn stage(&self) -> Arc<str> {
        self.stage.clone()
    }

    /// Limits the time for which writes are retried, since the stream was stopped.
    pub fn stop(&mut self) {
        if let Policy::DeadLetter(letters) = &mut self.policy {
            letters.retry.limit(STOPPED_RETRY_FOR);
        }
    }

    /// Waits until dead letters no longer occupy unbounded memory. Call it after every few batches. Cancel
    /// safe.
    pub async fn hand_over(&mut self) -> Result<(), StageError> {
        match &mut self.policy {
            Policy::DeadLetterTopic(letters) => {
                if !letters.waiting.is_empty() {
                    // A batch that is still waiting comes first.
                    letters.topic.hand_over_rest().await?;
                    letters.topic.take(&letters.waiting.take())?;
                }
                letters.topic.hand_over_rest().await
            }
            Policy::DeadLetter(letters) => Ok(letters.flush().await?),
            _ => Ok(()),
        }
    }

    /// Waits until all dead letters are acknowledged.
    pub async fn flush(&mut self) -> Result<(), StageError> {
        self.hand_over().await?;
        match &mut self.policy {
            Policy::DeadLetterTopic(letters) => letters.topic.arrive().await,
            _ => Ok(()),
        }
    }
}

impl BadMessages {
    /// Writes a message to the dead letters. Returns false if there are none.
    fn bury(&mut self, message: &Message<'_>, reason: &str) -> Result<bool, StageError> {
        match &mut self.policy {
            Policy::Fail | Policy::Skip => return Ok(false),
            Policy::DeadLetterTopic(letters) => {
                let why = [(REASON, reason), (STREAM, &*self.stream), (STAGE, &*self.stage)];
                let why = why.map(|(name, value)| Header { name, value: Some(value.as_bytes()) });
                let headers = message.headers.iter().chain(why);
                let value = (!message.is_null).then_some(message.value);
                letters.waiting.push(value, message.key, headers, message.time_ms, message.sequence);
            }
            Policy::DeadLetter(letters) => {
                letters.append(&letter(&self.stream, &self.stage, reason, message));
            }
        }
        Ok(true)
    }
}

impl Refusals for BadMessages {
    fn take(&mut self, message: &Message<'_>, reason: &str) -> Result<(), StageError> {
        let is_buried = self.bury(message, reason)?;
        if let Some(returned) = self.returned.as_mut().filter(|_| self.is_traceable) {
            // One answer is enough for all parts of a message.
            if returned.last().is_none_or(|last| last.sequence != message.sequence) {
                let buried = if is_buried { "; it is a dead letter" } else { "" };
                returned.push(ReturnedMessage {
                    sequence: message.sequence,
                    stage: self.stage.clone(),
                    reason: format!("{reason}{buried}"),
                    excerpt: excerpt(message.value),
                });
            }
        } else if !is_buried && matches!(self.policy, Policy::Fail) {
            let reason = reason.to_owned();
            return Err(
                BadMessage { reason, sequence: message.sequence, excerpt: excerpt(message.value) }.into()
            );
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn take_late(&mut self, message: &Message<'_>, reason: &str) -> Result<(), StageError> {
        self.bury(message, reason).map(drop)
    }
}

/// The beginning of a message, printable.
pub fn excerpt(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * EXCERPT_CHARS)]);
    let mut short: String = text.chars().take(EXCERPT_CHARS).collect();
    if short.len() < value.len() {
        short.push_str("...");
    }
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        assert_eq!("fail".parse(), Ok(OnError::Fail));
        assert_eq!("skip".parse(), Ok(OnError::Skip));
        assert_eq!("dead-letter:x/y".parse(), Ok(OnError::DeadLetter(PathBuf::from("x/y"))));
        assert_eq!("dead-letter:topic:bad".parse(), Ok(OnError::DeadLetterTopic("bad".to_owned())));
        for wrong in
            ["", "ignore", "dead-letter:", "dead-letter", "dead-letter:topic:", "dead-letter:topic:a b"]
        {
            let error = wrong.parse::<OnError>().expect_err(wrong);
            assert!(error.to_string().contains("or dead-letter:topic:NAME"), "{error}");
        }
    }

    #[test]
    fn a_dead_letter_has_all_of_its_message() {
        let mut builder = BatchBuilder::default();
        let headers = [("kind", Some(&b"x"[..])), ("none", None), ("bytes", Some(b"\xff\x00"))]
            .map(|(name, value)| Header { name, value });
        builder.push(Some(b"\xfe"), Some(b"\xff"), headers, 7, 3);
        builder.push(None, None, [], 8, 4);
        let batch = builder.take();
        let letters: Vec<Value> =
            batch.messages().map(|message| letter("s", "filter", "bad", &message).into()).collect();
        let common = |sequence: u64, time_ms: i64| serde_json::json!({"stream": "s", "stage": "filter", "reason": "bad", "sequence": sequence, "time_ms": time_ms});
        let mut expected = common(3, 7);
        expected["key_base64"] = "/w==".into();
        expected["value_base64"] = "/g==".into();
        expected["headers"] = serde_json::json!([
            {"name": "kind", "value": "x"}, {"name": "none", "value": null}, {"name": "bytes", "value_base64": "/wA="}
        ]);
        assert_eq!(letters[0], expected);
        let mut expected = common(4, 8);
        (expected["key"], expected["value"]) = (Value::Null, Value::Null);
        assert_eq!(letters[1], expected);
    }

    #[tokio::test]
    async fn a_stopped_stream_does_not_wait_for_a_full_medium() {
        let policy = OnError::DeadLetter(PathBuf::from("/dev/full"));
        let cluster = Cluster { bootstrap: "localhost:9092".to_owned(), properties: None };
        let bad = BadMessages::new(&policy, &cluster, &Reach::everything(), "s".into(), Arc::default());
        let mut bad = bad.expect("the file opens");
        let mut builder = BatchBuilder::default();
        builder.push(Some(b"x"), None, [], 0, 0);
        let batch = builder.take();
        batch.messages().for_each(|message| bad.take(&message, "bad").expect("it is buffered"));
        let waiting = tokio::time::timeout(Duration::from_millis(50), bad.hand_over());
        assert!(waiting.await.is_err(), "the medium may have room soon");
        bad.stop();
        let begun = Instant::now();
        let error = bad.hand_over().await.expect_err("the medium is full").to_string();
        assert!(begun.elapsed() < 2 * STOPPED_RETRY_FOR && error.contains("No space left"), "{error}");
    }

    #[test]
    fn an_excerpt_is_short_and_on_one_line() {
        assert_eq!(excerpt(b"a\nb"), r#""a\nb""#);
        assert_eq!(excerpt(&[b'x'; 1000]).len(), EXCERPT_CHARS + 5);
    }
}
