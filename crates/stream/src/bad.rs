//! Policies for bad messages: messages that a stage cannot process.
//!
//! A dead letter is as durable as any message: the source gets the acknowledgement once the file or topic has
//! the dead letter.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::Appender;
use crate::kafka::{Cluster, TopicWriter};
use crate::message::{BatchBuilder, Header, Message};
use crate::reach::Reach;
use crate::sink;
use crate::stage::{BadMessage, Refusals, StageError};
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
}

enum Policy {
    Fail,
    Skip,
    DeadLetter(Appender),
    DeadLetterTopic(Box<DeadLetters>),
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
            OnError::DeadLetter(path) => Policy::DeadLetter(Appender::open(&reach.file(path)?)?),
            OnError::DeadLetterTopic(topic) => Policy::DeadLetterTopic(Box::new(DeadLetters {
                topic: TopicWriter::open(&cluster.settings(&sink::kafka::MODULE, &[("topic", topic)]))?,
                waiting: BatchBuilder::default(),
            })),
        };
        Ok(BadMessages { policy, stage: stream.clone(), stream, count })
    }

    /// Sets the stage of the next messages.
    pub fn enter(&mut self, stage: &Arc<str>) {
        if !Arc::ptr_eq(&self.stage, stage) {
            self.stage = stage.clone();
        }
    }

    /// The stage of the latest messages.
    pub fn stage(&self) -> Arc<str> {
        self.stage.clone()
    }

    /// Waits until dead letters no longer occupy unbounded memory. Call it after every few batches.
    pub async fn hand_over(&mut self) -> Result<(), StageError> {
        match &mut self.policy {
            Policy::DeadLetterTopic(letters) if !letters.waiting.is_empty() => {
                letters.topic.take(&letters.waiting.take())?;
                letters.topic.hand_over_rest().await
            }
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
            Policy::DeadLetter(file) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let line = serde_json::json!({
                    "stream": &*self.stream,
                    "stage": &*self.stage,
                    "reason": reason,
                    "sequence": message.sequence,
                    "time_ms": message.time_ms,
                    "key": message.key.map(text),
                    "value": text(message.value),
                });
                file.append(format!("{line}\n").as_bytes());
                file.flush()?;
            }
        }
        Ok(true)
    }
}

impl Refusals for BadMessages {
    fn take(&mut self, message: &Message<'_>, reason: &str) -> Result<(), StageError> {
        if !self.bury(message, reason)? && matches!(self.policy, Policy::Fail) {
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
    fn an_excerpt_is_short_and_on_one_line() {
        assert_eq!(excerpt(b"a\nb"), r#""a\nb""#);
        assert_eq!(excerpt(&[b'x'; 1000]).len(), EXCERPT_CHARS + 5);
    }
}
