//! Messages that cannot be worked on: what is done with them.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::Appender;
use crate::message::Message;
use crate::stage::{BadMessage, IoFailed, StageError};

/// How much of a bad message is shown.
const EXCERPT_CHARS: usize = 60;

/// What is done with a message that cannot be worked on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The stream ends.
    #[default]
    Fail,
    /// It is left out, and counted.
    Skip,
    /// It is written to a file, a line of JSON for each, with the reason, and counted.
    DeadLetter(PathBuf),
}

/// No such policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} says nothing about bad messages: fail, skip or dead-letter:FILE would be right")]
pub struct NoSuchPolicy {
    /// What was given.
    pub text: String,
}

impl FromStr for OnError {
    type Err = NoSuchPolicy;

    fn from_str(text: &str) -> Result<OnError, NoSuchPolicy> {
        match (text, text.strip_prefix("dead-letter:")) {
            ("fail", _) => Ok(OnError::Fail),
            ("skip", _) => Ok(OnError::Skip),
            (_, Some(path)) if !path.is_empty() => Ok(OnError::DeadLetter(PathBuf::from(path))),
            _ => Err(NoSuchPolicy { text: text.to_owned() }),
        }
    }
}

/// Takes the bad messages of one stream.
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
}

impl BadMessages {
    /// For a stream. Opens the file, if there is one: what cannot be written later is worth nothing.
    pub fn new(policy: &OnError, stream: Arc<str>, count: Arc<AtomicU64>) -> Result<BadMessages, IoFailed> {
        let policy = match policy {
            OnError::Fail => Policy::Fail,
            OnError::Skip => Policy::Skip,
            OnError::DeadLetter(path) => Policy::DeadLetter(Appender::open(path)?),
        };
        Ok(BadMessages { policy, stage: stream.clone(), stream, count })
    }

    /// Whose messages come from now on.
    pub fn enter(&mut self, stage: &Arc<str>) {
        if !Arc::ptr_eq(&self.stage, stage) {
            self.stage = stage.clone();
        }
    }

    /// Takes a message. An error ends the stream.
    pub fn take(&mut self, message: &Message<'_>, reason: &str) -> Result<(), StageError> {
        match &mut self.policy {
            Policy::Fail => {
                return Err(BadMessage {
                    reason: reason.to_owned(),
                    sequence: message.sequence,
                    excerpt: excerpt(message.value),
                }
                .into());
            }
            Policy::Skip => {}
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
                let written = writeln!(file, "{line}").and_then(|()| file.flush());
                written.map_err(|error| IoFailed::file("write", file.path(), error))?;
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// How a message begins, for people.
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
        for wrong in ["", "ignore", "dead-letter:", "dead-letter"] {
            let error = wrong.parse::<OnError>().expect_err(wrong);
            assert!(error.to_string().contains("dead-letter:FILE would be right"), "{error}");
        }
    }

    #[test]
    fn an_excerpt_is_short_and_on_one_line() {
        assert_eq!(excerpt(b"a\nb"), r#""a\nb""#);
        assert_eq!(excerpt(&[b'x'; 1000]).len(), EXCERPT_CHARS + 5);
    }
}
