//! The state of a producer: the open batch, batches without a receipt, and the connection. Without I/O but
//! the queueing of frames.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::time::Instant;

use super::batch::{BatchLimits, BatchOrigin, OpenBatch, OutgoingMessage, PendingBatch};
use super::error::SendError;
use super::options::ProducerOptions;
use super::receipt::{BatchOutcome, SendReceipt, StoredEntry};
use crate::compression::Compressor;
use crate::connection::{Connection, ConnectionId};
use crate::error::CloseReason;

/// Number of buffers that are kept for the next batches.
const SPARE_BUFFERS_MAX: usize = 16;
/// Capacity of the first buffers.
const BUFFER_BYTES: usize = 4 << 10;

/// An outcome that its receipts learn without the producer's lock.
pub(super) type DueOutcome = (Arc<BatchOutcome>, Result<StoredEntry, SendError>);

pub(super) struct ProducerState {
    pub connection: Option<Connection>,
    /// True if the broker closed the producer while it was being opened.
    pub is_closed_early: bool,
    /// True if the broker refused a batch that is to be sent again, until the reconnection.
    pub is_refused: bool,
    pub name: Arc<str>,
    pub next_sequence_id: u64,
    /// Number of reconnections.
    pub reconnects: u64,
    open: Option<OpenBatch>,
    pending: VecDeque<PendingBatch>,
    /// Messages, and bytes of payloads, in the open and the pending batches.
    messages: usize,
    payload_bytes: usize,
    /// The broker's limit of a message, in bytes.
    message_bytes_max: usize,
    compressor: Compressor,
    spare: Vec<BytesMut>,
    /// The time of the last finished batch.
    sealed_at: Option<Instant>,
    /// The time until which the task sleeps.
    pub timer_at: Option<Instant>,
    /// Why the producer has ended.
    end: Option<SendError>,
}

impl fmt::Debug for ProducerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerState").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The producer's settings and id, for its state.
pub(super) struct ProducerContext<'a> {
    pub id: u64,
    pub options: &'a ProducerOptions,
}

/// A batch that got its outcome.
pub(super) struct TakenBatch {
    pub outcome: Arc<BatchOutcome>,
    /// Number of messages.
    pub count: u32,
    /// Bytes of the payload as sent.
    pub bytes: u64,
}

/// The result of adding a message.
pub(super) struct AppendedMessage {
    pub receipt: SendReceipt,
    /// True if the task has to be notified, because it sleeps for too long.
    pub needs_timer: bool,
}

impl ProducerState {
    pub(super) fn new(name: Arc<str>, options: &ProducerOptions) -> ProducerState {
        ProducerState {
            connection: None,
            is_closed_early: false,
            is_refused: false,
            name,
            next_sequence_id: options.initial_sequence_id.map_or(0, |last| last + 1),
            reconnects: 0,
            open: None,
            pending: VecDeque::new(),
            messages: 0,
            payload_bytes: 0,
            message_bytes_max: 0,
            compressor: Compressor::new(options.compression),
            spare: Vec::new(),
            sealed_at: None,
            timer_at: None,
            end: None,
        }
    }

    /// True if no message waits for its outcome.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_none() && self.pending.is_empty()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// True if `connection` is the producer's.
    pub(super) fn is_on(&self, connection: ConnectionId) -> bool {
        self.connection.as_ref().is_some_and(|current| current.id() == connection)
    }

    /// Adds a message; `None` if there is no room.
    pub(super) fn append(
        &mut self,
        message: &OutgoingMessage<'_>,
        context: &ProducerContext<'_>,
    ) -> Result<Option<AppendedMessage>, SendError> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        let options = context.options;
        message.check(options.compression, self.message_bytes_max)?;
        if !self.has_room(message.payload.len(), options) {
            // A batch may wait for its delay; the room is needed now.
            self.seal(context);
            return Ok(None);
        }
        let limits = BatchLimits {
            messages: options.batch_messages_max,
            bytes: options.batch_bytes_max.min(self.message_bytes_max),
            is_per_key: options.is_batch_per_key,
        };
        if self.open.as_ref().is_some_and(|open| !open.takes(message, &limits)) {
            self.seal(context);
        }
        let sequence_id = self.next_sequence_id;
        let is_new = self.open.is_none();
        let open = match &mut self.open {
            Some(open) => {
                open.append(message, sequence_id);
                open
            }
            none => {
                let buffer = self.spare.pop().unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES));
                none.insert(OpenBatch::open(buffer, message, sequence_id))
            }
        };
        let (receipt, is_full) = (open.receipt(), open.is_full(&limits));
        self.next_sequence_id += 1;
        self.messages += 1;
        self.payload_bytes += message.payload.len();
        if is_full {
            self.seal(context);
        }
        let is_early = |due| self.timer_at.is_none_or(|at| at > due);
        let needs_timer = is_new && self.next_act(options).is_some_and(is_early);
        Ok(Some(AppendedMessage { receipt, needs_timer }))
    }

    /// A message that exceeds the limit of bytes alone is accepted if nothing else waits.
    fn has_room(&self, payload_len: usize, options: &ProducerOptions) -> bool {
        let is_within = |limit: Option<usize>, used: usize| limit.is_none_or(|limit| used <= limit);
        self.messages == 0
            || is_within(options.pending_messages_max, self.messages + 1)
                && self.payload_bytes + payload_len <= options.pending_bytes_max
    }

    /// Finishes the open batch and sends it, if there is a connection.
    pub(super) fn seal(&mut self, context: &ProducerContext<'_>) {
        let Some(open) = self.open.take() else { return };
        self.sealed_at = Some(Instant::now());
        let origin = BatchOrigin { producer_id: context.id, producer_name: &self.name };
        let compression = context.options.compression;
        let (batch, size, buffer) =
            open.seal(origin, compression, &mut self.compressor, self.message_bytes_max);
        self.keep_buffer(buffer);
        if let Err(too_large) = size {
            // The caller holds the receipt, and no other lock is taken by waking its task.
            self.forget(&batch);
            batch.outcome.complete(Err(too_large.into()));
            return;
        }
        if let Some(connection) = &self.connection {
            connection.send_entry(&batch.frame);
        }
        self.pending.push_back(batch);
    }

    fn keep_buffer(&mut self, buffer: Option<BytesMut>) {
        if let Some(mut buffer) = buffer
            && self.spare.len() < SPARE_BUFFERS_MAX
        {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    fn forget(&mut self, batch: &PendingBatch) {
        self.messages -= usize::try_from(batch.count).expect("a usize has at least 32 bits");
        self.payload_bytes -= batch.payload_bytes;
    }

    /// Takes the batch of a receipt out; `None` for a batch that has its outcome already.
    pub(super) fn take_stored(&mut self, sequence_id: u64) -> Result<Option<TakenBatch>, CloseReason> {
        match self.pending.front() {
            None => Ok(None),
            Some(oldest) if sequence_id < oldest.first_sequence_id => Ok(None),
            Some(oldest) if sequence_id > oldest.first_sequence_id => {
                let expected = Some(oldest.first_sequence_id);
                Err(CloseReason::Receipt { received: sequence_id, expected })
            }
            Some(_) => Ok(self.take_pending(0)),
        }
    }

    /// Takes a refused batch out. A refusal may overtake receipts.
    pub(super) fn take_refused(&mut self, sequence_id: u64) -> Option<TakenBatch> {
        let index = self.position(sequence_id)?;
        self.take_pending(index)
    }

    /// Takes a refused batch out if its bytes have changed since its checksum was computed.
    pub(super) fn take_corrupted(&mut self, sequence_id: u64) -> Option<TakenBatch> {
        let index = self.position(sequence_id).filter(|index| !self.pending[*index].frame.is_intact())?;
        self.take_pending(index)
    }

    /// The place of the batch with a message. Brokers name a refused batch by its first or its last one.
    fn position(&self, sequence_id: u64) -> Option<usize> {
        let after = self.pending.partition_point(|batch| batch.first_sequence_id <= sequence_id);
        let index = after.checked_sub(1)?;
        let batch = &self.pending[index];
        (sequence_id - batch.first_sequence_id < u64::from(batch.count)).then_some(index)
    }

    /// Sends all batches without a receipt, if there is a connection.
    pub(super) fn send_again(&self) {
        if let Some(connection) = &self.connection {
            for batch in &self.pending {
                connection.send_entry(&batch.frame);
            }
        }
    }

    fn take_pending(&mut self, index: usize) -> Option<TakenBatch> {
        let batch = self.pending.remove(index)?;
        self.forget(&batch);
        let bytes = batch.frame.payload.len() as u64;
        self.keep_buffer(batch.frame.payload.try_into_mut().ok());
        Some(TakenBatch { outcome: batch.outcome, count: batch.count, bytes })
    }

    /// Adopts a connection on which the producer has been opened, and sends all batches without a receipt.
    pub(super) fn adopt(&mut self, connection: Connection, name: Arc<str>) {
        self.message_bytes_max = connection.message_bytes_max();
        self.name = name;
        self.connection = Some(connection);
        self.send_again();
    }

    /// Finishes the open batch if its delay is over, and takes batches out whose receipt is overdue.
    pub(super) fn act_on_time(&mut self, now: Instant, context: &ProducerContext<'_>) -> Vec<TakenBatch> {
        let options = context.options;
        if self.batch_due(options).is_some_and(|due| due <= now) {
            self.seal(context);
        }
        let mut overdue = Vec::new();
        while let (Some(timeout), Some(oldest)) = (options.send_timeout, self.pending.front())
            && oldest.opened_at + timeout <= now
        {
            overdue.extend(self.take_pending(0));
        }
        overdue
    }

    /// The time at which the open batch is finished. As by Pulsar's Java client, the delay counts from the
    /// last finished batch if that is less than a delay before the first message, so that messages of a
    /// steady flow wait half of it on average.
    fn batch_due(&self, options: &ProducerOptions) -> Option<Instant> {
        let opened_at = self.open.as_ref()?.opened_at;
        let delay = options.batch_delay;
        let in_flow = self.sealed_at.map(|sealed_at| sealed_at + delay).filter(|due| *due > opened_at);
        Some(in_flow.unwrap_or(opened_at + delay))
    }

    /// The next time at which [`ProducerState::act_on_time`] has something to do.
    pub(super) fn next_act(&self, options: &ProducerOptions) -> Option<Instant> {
        let delay = self.batch_due(options);
        let oldest = self.pending.front().zip(options.send_timeout);
        let timeout = oldest.map(|(oldest, timeout)| oldest.opened_at + timeout);
        delay.into_iter().chain(timeout).min()
    }

    /// Ends the producer, once. Returns its connection and all messages.
    pub(super) fn end(&mut self, error: &SendError) -> (Option<Connection>, Vec<DueOutcome>) {
        self.end.get_or_insert_with(|| error.clone());
        let pending = std::mem::take(&mut self.pending).into_iter().map(|batch| batch.outcome);
        let open = self.open.take().map(OpenBatch::into_outcome);
        (self.messages, self.payload_bytes) = (0, 0);
        let due = pending.chain(open).map(|outcome| (outcome, Err(error.clone()))).collect();
        (self.connection.take(), due)
    }
}
