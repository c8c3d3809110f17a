//! Outcomes of messages, as futures.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::error::SendError;
use crate::message_id::MessageId;

/// A future of the id of a sent message. Dropping it does not affect the message.
#[must_use = "a message is known to be stored when its receipt is ready"]
pub struct SendReceipt {
    batch: Arc<BatchOutcome>,
    /// The message's place in its batch.
    index: u32,
}

impl fmt::Debug for SendReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendReceipt").field("index", &self.index).finish_non_exhaustive()
    }
}

impl SendReceipt {
    pub(super) fn new(batch: &Arc<BatchOutcome>, index: u32) -> SendReceipt {
        SendReceipt { batch: Arc::clone(batch), index }
    }

    /// The outcome, if it is known.
    pub fn peek(&self) -> Option<Result<MessageId, SendError>> {
        match &*self.batch.0.lock() {
            OutcomeState::Open(_) => None,
            OutcomeState::Stored(stored) => Some(Ok(stored.id_of(self.index))),
            OutcomeState::Failed(error) => Some(Err(error.clone())),
        }
    }

    /// Size of the message's batch as sent, its payload compressed; `None` unless it is stored. The batch of
    /// a message that is alone is that message.
    pub fn batch_bytes(&self) -> Option<u64> {
        match &*self.batch.0.lock() {
            OutcomeState::Stored(stored) => Some(stored.bytes),
            OutcomeState::Open(_) | OutcomeState::Failed(_) => None,
        }
    }
}

impl Future for SendReceipt {
    type Output = Result<MessageId, SendError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self.batch.0.lock() {
            OutcomeState::Open(wakers) => {
                if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
            OutcomeState::Stored(stored) => Poll::Ready(Ok(stored.id_of(self.index))),
            OutcomeState::Failed(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

/// The outcome of a batch, shared by the receipts of its messages.
#[derive(Debug)]
pub(super) struct BatchOutcome(Mutex<OutcomeState>);

#[derive(Debug)]
enum OutcomeState {
    /// Tasks that wait; usually one.
    Open(Vec<Waker>),
    Stored(StoredEntry),
    Failed(SendError),
}

/// A stored batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredEntry {
    /// The id without a place in the batch.
    pub id: MessageId,
    /// Number of messages.
    pub count: u32,
    /// Bytes of the payload as sent.
    pub bytes: u64,
}

impl StoredEntry {
    fn id_of(&self, index: u32) -> MessageId {
        if self.count == 1 {
            return self.id;
        }
        let in_range = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        self.id.in_batch(in_range(index), in_range(self.count))
    }
}

impl BatchOutcome {
    pub(super) fn open() -> Arc<BatchOutcome> {
        Arc::new(BatchOutcome(Mutex::new(OutcomeState::Open(Vec::new()))))
    }

    pub(super) fn complete(&self, outcome: Result<StoredEntry, SendError>) {
        let completed = match outcome {
            Ok(stored) => OutcomeState::Stored(stored),
            Err(error) => OutcomeState::Failed(error),
        };
        let before = std::mem::replace(&mut *self.0.lock(), completed);
        if let OutcomeState::Open(wakers) = before {
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProducerClosed;

    #[tokio::test]
    async fn messages_of_a_batch_share_an_outcome() {
        let outcome = BatchOutcome::open();
        let receipts = [0, 1, 2].map(|index| SendReceipt::new(&outcome, index));
        assert!(receipts.iter().all(|receipt| receipt.peek().is_none()));
        let [first, second, third] = receipts;
        assert_eq!(second.batch_bytes(), None);
        let waiting = tokio::spawn(first);
        tokio::task::yield_now().await;
        let id = MessageId { ledger: 5, entry: 6, partition: 7, ..MessageId::EARLIEST };
        outcome.complete(Ok(StoredEntry { id, count: 3, bytes: 70 }));
        assert_eq!(waiting.await.expect("no panic").expect("stored").to_string(), "5:6:7:0");
        assert_eq!(second.batch_bytes(), Some(70));
        assert_eq!(second.await.expect("stored"), MessageId { batch_index: 1, batch_size: 3, ..id });
        assert!(matches!(third.peek(), Some(Ok(MessageId { batch_index: 2, .. }))));
    }

    #[tokio::test]
    async fn failures_reach_every_message() {
        let outcome = BatchOutcome::open();
        let receipts = [0, 1].map(|index| SendReceipt::new(&outcome, index));
        outcome.complete(Err(ProducerClosed.into()));
        for receipt in receipts {
            assert!(matches!(receipt.await, Err(SendError::Closed(_))));
        }
    }
}
