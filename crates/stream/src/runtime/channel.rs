//! What joins streams: bounded channels of batches. A topic hands every batch to each stream that reads it, a tap to the one
//! that listens. The buffers are shared; whoever reads slowly is waited for.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use crate::message::Batch;
use crate::stage::{Filled, Sink, Source, StageError, Turn, Wait};

/// Batches on their way to one reader. With what a batch holds, this is the memory that a slow reader costs.
pub const BATCHES_MAX: usize = 16;

/// The end that is written to.
pub type Sender = mpsc::Sender<Batch>;

/// A channel to one reader.
pub fn channel() -> (Sender, ChannelSource) {
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    (sender, ChannelSource { receiver, next: None, sequence: 0, has_ended: false })
}

/// Where batches go to several readers.
#[derive(Clone, Default)]
pub struct Outlet(Vec<Sender>);

impl Outlet {
    /// Adds a reader.
    pub fn add(&mut self, sender: Sender) {
        self.0.push(sender);
    }

    /// Whether nobody reads.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Hands a batch to every reader. One that has failed is passed over: its failure ends the run, not this stream.
    pub async fn send(&self, batch: &Batch) {
        for sender in &self.0 {
            if let Err(_gone) = sender.send(batch.clone()).await {
                continue;
            }
        }
    }
}

/// The end of a channel, as the source of a stream.
pub struct ChannelSource {
    receiver: mpsc::Receiver<Batch>,
    next: Option<Batch>,
    sequence: u64,
    has_ended: bool,
}

impl Source for ChannelSource {
    fn fill(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<Filled, StageError> {
        let next = match self.next.take() {
            Some(next) => next,
            None => match self.receiver.try_recv() {
                Ok(next) => next,
                Err(TryRecvError::Empty) if !self.has_ended => return Ok(Filled::Pending),
                Err(_) => return Ok(Filled::End),
            },
        };
        *batch = next;
        // Several may write, each with its own count: here they become one.
        batch.renumber(self.sequence);
        self.sequence += batch.len() as u64;
        Ok(Filled::Ready)
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {
            if self.next.is_none() {
                self.next = self.receiver.recv().await;
                self.has_ended = self.next.is_none();
            }
        })
    }

    fn close(&mut self) {
        self.receiver.close();
    }

    fn is_fed(&self) -> bool {
        true
    }
}

/// A topic, as the sink of a stream.
pub struct TopicSink {
    outlet: Outlet,
    waiting: Option<Batch>,
}

impl TopicSink {
    /// To these readers.
    pub fn new(outlet: Outlet) -> TopicSink {
        TopicSink { outlet, waiting: None }
    }
}

impl Sink for TopicSink {
    fn write(&mut self, batch: &Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.waiting = Some(batch.clone());
        Ok(())
    }

    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        let batch = self.waiting.take()?;
        Some(Box::pin(async move {
            self.outlet.send(&batch).await;
            Ok(())
        }))
    }
}
