//! A consumer of one topic or partition, in a subscription.
//!
//! The connection's task queues entries as they arrive. The caller's task verifies an entry, decompresses it
//! and takes it apart, message by message: a payload is a slice of the received bytes. The broker sends as
//! many messages as it was permitted to (the receiver queue), and gets new permits for returned ones.
//!
//! The broker learns of acknowledgements by entry: once all messages of a batch are acknowledged. After the
//! end of a connection the consumer's task subscribes again, and the broker sends all messages again whose
//! entries are not acknowledged: delivery is at least once.

mod acks;
mod error;
mod message;
mod options;
mod session;
mod state;

use std::sync::Arc;

use crate::BoxedFuture;
use crate::client::Client;
use crate::error::PulsarError;
use crate::message_id::MessageId;
use crate::topic::TopicName;
use message::{CursorStep, EntryCursor};
use session::ConsumerCore;

pub use error::{ConsumeError, EntryFault, NotCumulative, UnreadableEntry};
pub use message::Message;
pub use options::{ConsumerOptions, InitialPosition, SubscriptionType};

/// A consumer. Dropping it closes it without waiting: messages that are not acknowledged go to the next
/// consumer.
#[derive(Debug)]
pub struct Consumer {
    core: Arc<ConsumerCore>,
    /// The entry whose messages are returned.
    current: Option<EntryCursor>,
    /// Messages that were returned since permits were given.
    consumed: u32,
    /// The generation of `current` and `consumed`.
    generation: u64,
}

impl Consumer {
    /// Subscribes to a topic without partitions, or a partition ([`Client::partitions`]). Failures that may
    /// pass are retried within the operation timeout.
    pub fn subscribe<'a>(
        client: &'a Client,
        topic: &'a str,
        subscription: &'a str,
        options: ConsumerOptions,
    ) -> BoxedFuture<'a, Result<Consumer, PulsarError>> {
        Box::pin(async move {
            let topic = TopicName::parse(topic)?;
            let core = ConsumerCore::open(client, topic, subscription, options).await?;
            tokio::spawn(session::run(Arc::clone(&core)));
            Ok(Consumer { core, current: None, consumed: 0, generation: 0 })
        })
    }

    /// Complete name of the topic.
    pub fn topic(&self) -> &TopicName {
        &self.core.topic
    }

    /// Number of reconnections so far, of which each may have delivered messages again. A seek counts as one.
    pub fn reconnects(&self) -> u64 {
        self.core.state.lock().reconnects
    }

    /// False for a consumer of a Failover subscription while another one gets the messages.
    pub fn is_active(&self) -> bool {
        self.core.state.lock().is_active
    }

    /// The next message. Dropping the future loses no message.
    pub async fn next(&mut self) -> Result<Message, ConsumeError> {
        loop {
            if let Some(message) = self.try_next()? {
                return Ok(message);
            }
            self.core.arrived.notified().await;
        }
    }

    /// The next message if it has arrived. Never waits.
    pub fn try_next(&mut self) -> Result<Option<Message>, ConsumeError> {
        loop {
            self.follow_generation();
            let Some(cursor) = &mut self.current else {
                if !self.open_entry()? {
                    return Ok(None);
                }
                continue;
            };
            let remaining = cursor.remaining();
            match cursor.next() {
                Ok(CursorStep::Message(message)) => {
                    self.give_permits(1);
                    return Ok(Some(message));
                }
                Ok(CursorStep::Skipped { is_permitted }) => self.give_permits(u32::from(is_permitted)),
                Ok(CursorStep::End) => self.current = None,
                Err(fault) => {
                    let id = cursor.id();
                    self.current = None;
                    self.give_permits(remaining);
                    return Err(UnreadableEntry { id, fault }.into());
                }
            }
        }
    }

    /// Acknowledges a message. The broker learns of it after the delay of the options, once all messages of
    /// its batch are acknowledged.
    pub fn ack(&self, message: &Message) {
        if message.entry().acknowledge(message) {
            self.core.ack(message.entry().id);
        }
    }

    /// Acknowledges a message and all before it. Of a batch that is not read to its end, the broker learns
    /// with a later acknowledgement.
    pub fn ack_cumulative(&self, message: &Message) -> Result<(), NotCumulative> {
        let subscription_type = self.core.options.subscription_type;
        if !subscription_type.is_ordered() {
            return Err(NotCumulative(subscription_type));
        }
        let id = message.entry().id;
        if message.is_last_of_entry() {
            self.core.ack_all_until(id);
        } else if id.entry > 0 {
            self.core.ack_all_until(MessageId { entry: id.entry - 1, ..id });
        }
        Ok(())
    }

    /// Sends all acknowledgements now, and waits until the broker has taken them.
    pub async fn flush_acks(&self) -> Result<(), ConsumeError> {
        self.core.flush_acks().await
    }

    /// Moves the subscription, so that the message of `id` is the next one. [`MessageId::EARLIEST`] and
    /// [`MessageId::LATEST`] are the ends of the topic.
    pub async fn seek(&mut self, id: MessageId) -> Result<(), ConsumeError> {
        self.core.seek(id).await?;
        self.follow_generation();
        Ok(())
    }

    /// Has the broker send all messages again that are not acknowledged.
    pub fn redeliver_unacknowledged(&mut self) {
        self.follow_generation();
        let unread = self.current.take().map_or(0, |cursor| cursor.remaining());
        self.core.redeliver_unacknowledged(self.consumed + unread);
        self.follow_generation();
    }

    /// Id of the topic's last message; with the entry `-1` if there is none.
    pub async fn last_message_id(&self) -> Result<MessageId, ConsumeError> {
        self.core.last_message_id().await
    }

    /// Sends all acknowledgements, and closes the consumer at the broker. The subscription stays.
    pub async fn close(self) -> Result<(), ConsumeError> {
        self.core.flush_acks().await?;
        self.core.close().await
    }

    /// Removes the subscription, and closes the consumer. The broker refuses it while the subscription has
    /// other consumers.
    pub async fn unsubscribe(self) -> Result<(), ConsumeError> {
        self.core.unsubscribe().await
    }

    /// Drops messages of an earlier connection or position: the broker sends them again, as far as they are
    /// still wanted.
    fn follow_generation(&mut self) {
        let generation = self.core.generation();
        if self.generation != generation {
            (self.generation, self.current, self.consumed) = (generation, None, 0);
        }
    }

    /// Opens the next entry of the queue; false if it has none.
    fn open_entry(&mut self) -> Result<bool, ConsumeError> {
        let Some(queued) = self.core.take_entry(self.generation)? else { return Ok(false) };
        let id = MessageId::of_entry(&queued.command.message_id, self.core.partition);
        let count = || message::message_count(&queued.bytes);
        let limit = self.core.options.uncompressed_bytes_max;
        let bytes = queued.bytes.clone();
        match EntryCursor::open(queued.command, bytes, self.core.partition, queued.from_index, limit) {
            Ok(cursor) => {
                self.current = Some(cursor);
                Ok(true)
            }
            Err(fault) => {
                self.give_permits(count());
                Err(UnreadableEntry { id, fault }.into())
            }
        }
    }

    fn give_permits(&mut self, count: u32) {
        self.consumed += count;
        if self.consumed >= (self.core.options.receiver_queue_size / 2).max(1) {
            self.core.give_permits(self.generation, std::mem::take(&mut self.consumed));
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.core.abandon();
    }
}

#[cfg(test)]
mod tests;
