//! A producer for one topic or partition.
//!
//! The caller's thread writes messages straight into the payload of the open batch. Full batches are finished
//! (compression, metadata, checksum) by the caller, and others by the producer's task after the batching
//! delay. Many batches are in flight; their receipts arrive in order. Each message has a [`SendReceipt`], a
//! future of its id, which costs no allocation: the messages of a batch share one outcome.
//!
//! After the end of a connection the producer's task looks the topic up and opens the producer again, under
//! its name and with a higher epoch, and sends all unanswered batches again. Without deduplication at the
//! broker a batch can therefore be stored twice; [`Producer::reconnects`] counts such occasions.

mod batch;
mod error;
mod options;
mod receipt;
mod session;
mod state;

use std::sync::Arc;

use crate::BoxedFuture;
use crate::client::Client;
use crate::error::PulsarError;
use crate::topic::TopicName;
use session::ProducerCore;

pub use batch::OutgoingMessage;
pub use error::{MessageTooLarge, ProducerClosed, SendError, SendRefused, SendTimedOut};
pub use options::ProducerOptions;
pub use receipt::SendReceipt;

/// A producer. Several tasks may send by one producer.
///
/// Dropping a producer closes it without waiting: unanswered messages fail with [`SendError::Closed`], and
/// may still be stored. [`Producer::close`] waits for them.
#[derive(Debug)]
pub struct Producer(Arc<ProducerCore>);

impl Producer {
    /// Opens a producer for a topic without partitions, or a partition ([`Client::partitions`]). Failures
    /// that may pass are retried within the operation timeout.
    pub fn open<'a>(
        client: &'a Client,
        topic: &'a str,
        options: ProducerOptions,
    ) -> BoxedFuture<'a, Result<Producer, PulsarError>> {
        Box::pin(async move {
            let core = ProducerCore::open(client, TopicName::parse(topic)?, options).await?;
            tokio::spawn(session::run(Arc::clone(&core)));
            Ok(Producer(core))
        })
    }

    /// Complete name of the topic.
    pub fn topic(&self) -> &TopicName {
        &self.0.topic
    }

    /// Name of the producer: as in the options, or chosen by the broker.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.0.state.lock().name)
    }

    /// Sequence id of the last message, `None` before the first one. With deduplication at the broker that
    /// includes the messages of earlier producers of this name.
    pub fn last_sequence_id(&self) -> Option<u64> {
        self.0.state.lock().next_sequence_id.checked_sub(1)
    }

    /// Number of reconnections so far. A message that was unanswered at one of them may be stored twice.
    pub fn reconnects(&self) -> u64 {
        self.0.state.lock().reconnects
    }

    /// Adds a message to the open batch if there is room; `None` otherwise. Never waits. The future is the
    /// message's id.
    pub fn try_send<'a>(
        &self,
        message: impl Into<OutgoingMessage<'a>>,
    ) -> Result<Option<SendReceipt>, SendError> {
        self.0.append(&message.into())
    }

    /// Adds a message to the open batch, as soon as there is room. The future in the result is the message's
    /// id.
    pub async fn send<'a>(&self, message: impl Into<OutgoingMessage<'a>>) -> Result<SendReceipt, SendError> {
        let message = message.into();
        loop {
            let progress = self.0.progress.notified();
            if let Some(receipt) = self.0.append(&message)? {
                return Ok(receipt);
            }
            progress.await;
        }
    }

    /// Sends the open batch, and waits until all messages have their outcome.
    pub async fn flush(&self) {
        self.0.seal();
        loop {
            let progress = self.0.progress.notified();
            if self.0.state.lock().is_idle() {
                return;
            }
            progress.await;
        }
    }

    /// Sends all messages, waits for their outcomes, and closes the producer at the broker.
    pub async fn close(self) -> Result<(), PulsarError> {
        self.flush().await;
        self.0.close().await
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests;
