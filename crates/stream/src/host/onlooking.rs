//! Looking at what flows out of a stage: the newest messages, for people. The stream does not wait for those who look on: what
//! they have no time for passes them by.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::{Host, HostError};
use crate::message::{Batch, Message};
use crate::runtime::Onlooker;

/// Messages of one look at most.
pub const MESSAGES_MAX: usize = 20;
/// Bytes that are kept of a value, and of a key.
const VALUE_BYTES_MAX: usize = 4 << 10;
const KEY_BYTES_MAX: usize = 1 << 10;
/// Headers of a message, and bytes of each.
const HEADERS_MAX: usize = 16;
const HEADER_BYTES_MAX: usize = 256;
/// Between two looks: at most ten batches in a second are copied.
const PAUSE: Duration = Duration::from_millis(100);

/// A message that passed a stage.
#[derive(Clone, Debug)]
pub struct Passed {
    /// Its number, counted by its source.
    pub sequence: u64,
    /// Its timestamp, in milliseconds since 1970.
    pub time_ms: i64,
    /// Its key, if it has one.
    pub key: Option<Cut>,
    /// Its value, if it has one.
    pub value: Option<Cut>,
    /// Its first headers.
    pub headers: Vec<(String, Option<Cut>)>,
}

/// Bytes, or the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// These.
    pub bytes: Bytes,
    /// The number of all.
    pub whole_bytes: usize,
}

/// One who looks at a stage, until dropped.
pub struct Look {
    onlooker: Onlooker,
    due: Instant,
}

impl Host {
    /// Begins to look at what flows out of a stage of a stream, by its label. Nothing flows while the stream does not run on this
    /// node.
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

    /// The labels of the stages of a stream whose output can be looked at: all but the sink.
    pub fn stages(&self, name: &str) -> Vec<String> {
        let state = self.state();
        let stages = state.streams.get(name).map(|known| known.tappable.as_slice()).unwrap_or_default();
        stages.iter().map(ToString::to_string).collect()
    }
}

impl Look {
    /// The last messages of the next batch, oldest first; none once the stream was deleted. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<Passed>> {
        sleep_until(self.due).await;
        let batch = self.onlooker.next().await?;
        self.due = Instant::now() + PAUSE;
        Some(last_of(&batch))
    }

    /// As many messages as pass within this time, at most so many.
    pub async fn collect(mut self, messages: usize, within: Duration) -> Vec<Passed> {
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

fn last_of(batch: &Batch) -> Vec<Passed> {
    let skipped = batch.len().saturating_sub(MESSAGES_MAX);
    batch.messages().skip(skipped).map(passed).collect()
}

fn passed(message: Message<'_>) -> Passed {
    let header = |value: Option<&[u8]>| value.map(|value| cut(value, HEADER_BYTES_MAX));
    Passed {
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
