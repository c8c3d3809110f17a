//! The state of a consumer: queued entries, permits, acknowledgements and the connection. Without I/O but the
//! queueing of commands.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use tokio::time::Instant;

use super::acks::PendingAcks;
use super::error::ConsumeError;
use super::message::message_count;
use super::options::ConsumerOptions;
use crate::connection::{Connection, ConnectionId};
use crate::error::CloseReason;
use crate::message_id::MessageId;
use crate::protocol::Command;
use crate::protocol::{EntryCommand, Flow, Redeliver};

/// Entries that a broker may send without permits: it counts the messages of a batch after reading it.
const OVERRUN_ENTRIES_MAX: i64 = 1000;

/// An entry as it arrived.
pub(super) struct QueuedEntry {
    pub command: EntryCommand,
    /// From the checksum on.
    pub bytes: Bytes,
    /// Messages of the entry before this place are not wanted.
    pub from_index: i32,
}

pub(super) struct ConsumerState {
    pub connection: Option<Connection>,
    /// True if the broker closed the consumer while it was being opened.
    pub is_closed_early: bool,
    pub is_active: bool,
    pub reconnects: u64,
    /// Rises when queued and current messages become invalid.
    pub generation: u64,
    /// `consumer_epoch`: rises with each redelivery of everything.
    pub epoch: u64,
    pub acks: PendingAcks,
    /// The position of the last seek.
    pub seek_target: Option<MessageId>,
    id: u64,
    queue: VecDeque<QueuedEntry>,
    /// Messages that the broker may send, less the entries that it has sent. Each entry has at least one
    /// message.
    allowance: i64,
    is_end_of_topic: bool,
    /// Why the consumer has ended.
    end: Option<ConsumeError>,
}

impl fmt::Debug for ConsumerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerState").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ConsumerState {
    pub(super) fn new(id: u64, options: &ConsumerOptions) -> ConsumerState {
        ConsumerState {
            connection: None,
            is_closed_early: false,
            is_active: options.subscription_type != super::SubscriptionType::Failover,
            reconnects: 0,
            generation: 0,
            epoch: 0,
            acks: PendingAcks::default(),
            seek_target: None,
            id,
            queue: VecDeque::new(),
            allowance: 0,
            is_end_of_topic: false,
            end: None,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Fails if the consumer has ended.
    pub(super) fn check(&self) -> Result<(), ConsumeError> {
        self.end.clone().map_or(Ok(()), Err)
    }

    /// True if `connection` is the consumer's.
    pub(super) fn is_on(&self, connection: ConnectionId) -> bool {
        self.connection.as_ref().is_some_and(|current| current.id() == connection)
    }

    /// Queues an entry. False for a stale one, which precedes a redelivery.
    pub(super) fn push(&mut self, command: EntryCommand, bytes: Bytes) -> Result<bool, CloseReason> {
        self.allowance -= 1;
        if self.allowance < -OVERRUN_ENTRIES_MAX {
            let entries = usize::try_from(-self.allowance).unwrap_or_default();
            return Err(CloseReason::Overrun { entries });
        }
        if command.consumer_epoch.is_some_and(|epoch| epoch < self.epoch) {
            self.give_permits(message_count(&bytes));
            return Ok(false);
        }
        let id = MessageId::of_entry(&command.message_id, -1);
        let target = self.seek_target.filter(|target| target.is_in_entry_of(&id));
        let from_index = target.map_or(0, |target| target.batch_index);
        self.queue.push_back(QueuedEntry { command, bytes, from_index });
        Ok(true)
    }

    /// Takes the oldest entry out. The queue is read to its end before the consumer's end is returned.
    pub(super) fn pop(&mut self, generation: u64) -> Result<Option<QueuedEntry>, ConsumeError> {
        if self.generation != generation {
            return Ok(None);
        }
        if let Some(entry) = self.queue.pop_front() {
            return Ok(Some(entry));
        }
        self.check()?;
        if self.is_end_of_topic { Err(ConsumeError::EndOfTopic) } else { Ok(None) }
    }

    /// Permits the broker to send `count` more messages.
    pub(super) fn give_permits(&mut self, count: u32) {
        if let Some(connection) = self.connection.as_ref().filter(|_| count > 0) {
            self.allowance += i64::from(count);
            connection.send(Command::Flow(Flow { consumer_id: self.id, message_permits: count }));
        }
    }

    /// Adopts a connection on which the consumer has been opened. Its messages follow the permits.
    pub(super) fn adopt(&mut self, connection: Connection, options: &ConsumerOptions) {
        self.connection = Some(connection);
        self.is_end_of_topic = false;
        self.queue.clear();
        self.generation += 1;
        self.allowance = 0;
        self.send_acks();
        self.give_permits(options.receiver_queue_size.max(1));
    }

    /// Drops the queue, and permits its messages again with `unread` others.
    pub(super) fn forget_queue(&mut self, unread: u32) {
        let queued: u32 = self.queue.drain(..).map(|entry| message_count(&entry.bytes)).sum();
        self.generation += 1;
        self.give_permits(queued + unread);
    }

    /// Has the broker send all messages again that are not acknowledged.
    pub(super) fn redeliver(&mut self, unread: u32, is_ordered: bool) {
        self.send_acks();
        self.epoch += u64::from(is_ordered);
        if let Some(connection) = &self.connection {
            connection.send(Command::Redeliver(Redeliver {
                consumer_id: self.id,
                message_ids: Vec::new(),
                consumer_epoch: is_ordered.then_some(self.epoch),
            }));
        }
        self.forget_queue(unread);
    }

    pub(super) fn note_end_of_topic(&mut self) {
        self.is_end_of_topic = true;
    }

    /// Sends acknowledgements if their number or age requires it, and there is a connection.
    pub(super) fn send_due_acks(&mut self, now: Instant, options: &ConsumerOptions) {
        let is_old = self.acks.since().is_some_and(|since| since + options.ack_delay <= now);
        if is_old || self.acks.len() >= options.ack_group_max {
            self.send_acks();
        }
    }

    /// Sends all acknowledgements, if there is a connection.
    pub(super) fn send_acks(&mut self) {
        let Some(connection) = &self.connection else { return };
        for command in self.acks.take_commands(self.id) {
            connection.send(command);
        }
    }

    /// The time at which acknowledgements are due. Without a connection they wait for the next one.
    pub(super) fn acks_due(&self, options: &ConsumerOptions) -> Option<Instant> {
        self.connection.as_ref()?;
        self.acks.since().map(|since| since + options.ack_delay)
    }

    /// Number of queued entries.
    #[cfg(test)]
    pub(super) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Ends the consumer, once. Returns its connection.
    pub(super) fn end(&mut self, error: ConsumeError) -> Option<Connection> {
        self.end.get_or_insert(error);
        self.connection.take()
    }
}
