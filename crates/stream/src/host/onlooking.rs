//! Views of a stage's output: the newest messages, for people. The stream does not wait for viewers; a slow
//! viewer misses messages.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::{Host, HostError};
use crate::message::{Batch, Message};
use crate::runtime::Onlooker;

/// Maximum number of messages per batch shown.
pub const MESSAGES_MAX: usize = 20;
/// Maximum bytes kept of a value or key.
const VALUE_BYTES_MAX: usize = 4 << 10;
const KEY_BYTES_MAX: usize = 1 << 10;
/// Maximum number of headers of a message, and maximum bytes of each name or value.
const HEADERS_MAX: usize = 16;
const HEADER_BYTES_MAX: usize = 256;
/// Pause between two batches: at most ten batches per second are copied.
const PAUSE: Duration = Duration::from_millis(100);

/// A message that passed a stage.
#[derive(Clone, Debug)]
pub struct TappedMessage {
    /// The message's number, counted by its source.
    pub sequence: u64,
    /// The message's timestamp, in milliseconds since 1970.
    pub time_ms: i64,
    /// The message's key, if any.
    pub key: Option<Cut>,
    /// The message's value, if any.
    pub value: Option<Cut>,
    /// The message's first headers.
    pub headers: Vec<(String, Option<Cut>)>,
}

/// Bytes, possibly cut to the first ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The kept bytes.
    pub bytes: Bytes,
    /// Number of bytes before the cut.
    pub whole_bytes: usize,
}

/// A viewer of a stage's output, until dropped.
pub struct Look {
    onlooker: Onlooker,
    due: Instant,
}

impl Host {
    /// Starts viewing the output of a stage of a stream, by label. No messages arrive while the stream does
    /// not run on this node.
    pub fn look_at(&self, name: &str, stage: &str) -> Result<Look, HostError> {
        self.known_exactly(name)?;
        let point = {
            let state = self.state();
            let stages = state.streams.get(name).map(|known| known.tappable.clone()).unwrap_or_default();
            let place = stages.iter().position(|label| **label == *stage);
            let place = place.ok_or_else(|| {
                let names = stages.join(", ");
                HostError::NoSuchStage { stream: name.to_owned(), stage: stage.to_owned(), stages: names }
            })?;
            self.0.taps.point(&name.into(), place)
        };
        Ok(Look { onlooker: point.look_on(), due: Instant::now() })
    }

    /// The labels of the stages of a stream whose output can be viewed: all but the sink.
    pub fn stages(&self, name: &str) -> Vec<String> {
        let state = self.state();
        let stages = state.streams.get(name).map(|known| known.tappable.as_slice()).unwrap_or_default();
        stages.iter().map(ToString::to_string).collect()
    }
}

impl Look {
    /// The last messages of the next batch, oldest first; `None` once the stream was deleted. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<TappedMessage>> {
        sleep_until(self.due).await;
        let batch = self.onlooker.next().await?;
        self.due = Instant::now() + PAUSE;
        Some(last_of(&batch))
    }

    /// Collects at most this many messages, for at most this time.
    pub async fn collect(mut self, messages: usize, within: Duration) -> Vec<TappedMessage> {
        let deadline = Instant::now() + within;
        let mut passed = Vec::new();
        while passed.len() < messages {
            let Ok(Some(next)) = tokio::time::timeout_at(deadline, self.next()).await else { break };
            passed.extend(next);
        }
        passed.truncate(messages);
        passed
    }
}

fn last_of(batch: &Batch) -> Vec<TappedMessage> {
    let skipped = batch.len().saturating_sub(MESSAGES_MAX);
    batch.messages().skip(skipped).map(passed).collect()
}

fn passed(message: Message<'_>) -> TappedMessage {
    let header = |value: Option<&[u8]>| value.map(|value| cut(value, HEADER_BYTES_MAX));
    TappedMessage {
        sequence: message.sequence,
        time_ms: message.time_ms,
        key: message.key.map(|key| cut(key, KEY_BYTES_MAX)),
        value: (!message.is_null).then(|| cut(message.value, VALUE_BYTES_MAX)),
        headers: message
            .headers
            .iter()
            .take(HEADERS_MAX)
            .map(|found| (found.name.chars().take(HEADER_BYTES_MAX).collect(), header(found.value)))
            .collect(),
    }
}

fn cut(bytes: &[u8], most: usize) -> Cut {
    Cut { bytes: Bytes::copy_from_slice(&bytes[..bytes.len().min(most)]), whole_bytes: bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_messages_are_kept_and_long_ones_cut() {
        let mut batch = Batch::new();
        for number in 0..30 {
            batch.push(Bytes::from(vec![b'x'; 10_000]), Some(Bytes::from_static(b"key")), 5, number);
        }
        let last = last_of(&batch);
        assert_eq!((last.len(), last[0].sequence, last[MESSAGES_MAX - 1].sequence), (MESSAGES_MAX, 10, 29));
        let value = last[0].value.as_ref().expect("a value");
        assert_eq!((value.bytes.len(), value.whole_bytes), (VALUE_BYTES_MAX, 10_000));
        assert_eq!(last[0].key.as_ref().map(|key| &key.bytes[..]), Some(&b"key"[..]));
    }
}
