//! Taps between streams that start and stop independently. A tap waits while its stream does not run, and
//! misses the messages sent while it was not connected.
//!
//! A slow tap slows its stream down, like any reader. Otherwise the stream does not depend on the tap:
//! messages not processed by a tap at its end are not repeated. A viewer ([`Onlooker`]) is not a reader: the
//! stream never waits for a viewer, which misses messages when it is slow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::channel::{BATCHES_MAX, Inbox};
use crate::message::Batch;
use crate::stage::{FillResult, Source, StageError, Turn, Wait};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// The outputs of stages that can be tapped.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<TapPoints>>);

/// By stream and stage.
type TapPoints = BTreeMap<(Arc<str>, usize), TapPoint>;

impl Taps {
    /// The tappable output of a stage.
    pub fn point(&self, stream: &Arc<str>, stage: usize) -> TapPoint {
        let mut points = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        points.entry((stream.clone(), stage)).or_default().clone()
    }

    /// Removes the outputs of a stream that will not return.
    pub fn forget(&self, stream: &str) {
        let mut points = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        points.retain(|(name, _), _| **name != *stream);
    }
}

/// The tappable output of one stage.
#[derive(Clone, Default)]
pub struct TapPoint(Arc<Listeners>);

#[derive(Default)]
struct Listeners {
    /// Number of listeners, read for each batch.
    count: AtomicUsize,
    senders: Mutex<Vec<Listener>>,
}

/// A listener of a tap point.
#[derive(Clone)]
enum Listener {
    /// A reader, which receives every batch.
    Reader(mpsc::Sender<Batch>),
    /// A viewer, which receives a batch only if its queue has room.
    Onlooker(mpsc::Sender<Batch>),
}

impl Listener {
    fn is_closed(&self) -> bool {
        let (Listener::Reader(sender) | Listener::Onlooker(sender)) = self;
        sender.is_closed()
    }

    /// Sends a batch; false if the listener was dropped.
    async fn send(&self, batch: &Batch) -> bool {
        match self {
            Listener::Reader(sender) => sender.send(batch.clone()).await.is_ok(),
            // The batch is copied only if there is room.
            Listener::Onlooker(sender) => match sender.try_reserve() {
                Ok(room) => {
                    room.send(batch.clone());
                    true
                }
                Err(TrySendError::Full(())) => true,
                Err(TrySendError::Closed(())) => false,
            },
        }
    }
}

impl TapPoint {
    fn senders(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.0.senders.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// True if there are no listeners.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) == 0
    }

    /// Adds a tap, which receives later batches.
    pub fn listen(&self) -> TapSource {
        let (sender, receiver) = mpsc::channel(BATCHES_MAX);
        self.add(Listener::Reader(sender));
        TapSource { inbox: Inbox::new(receiver), sequence: 0 }
    }

    /// Adds a viewer, which receives later batches.
    pub fn look_on(&self) -> Onlooker {
        let (sender, batches) = mpsc::channel(1);
        self.add(Listener::Onlooker(sender));
        Onlooker { batches }
    }

    fn add(&self, listener: Listener) {
        let mut senders = self.senders();
        // Remove closed viewers here too, because a stream that does not run sends no batch that would detect
        // them.
        senders.retain(|sender| !sender.is_closed());
        senders.push(listener);
        self.0.count.store(senders.len(), Ordering::Relaxed);
    }

    /// Sends a batch to all taps, and removes closed ones.
    pub async fn send(&self, batch: &Batch) {
        let senders = self.senders().clone();
        let mut is_gone = false;
        for sender in senders {
            is_gone |= !sender.send(batch).await;
        }
        if is_gone {
            let mut senders = self.senders();
            senders.retain(|sender| !sender.is_closed());
            self.0.count.store(senders.len(), Ordering::Relaxed);
        }
    }
}

/// A viewer of passing batches, which misses batches when it is slow.
pub struct Onlooker {
    batches: mpsc::Receiver<Batch>,
}

impl Onlooker {
    /// The next batch; `None` once the stream was deleted. Cancel safe.
    pub async fn next(&mut self) -> Option<Batch> {
        self.batches.recv().await
    }
}

/// A tap as the source of a stream.
pub struct TapSource {
    inbox: Inbox<Batch>,
    sequence: u64,
}

impl Source for TapSource {
    fn fill(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        *batch = match self.inbox.take() {
            Ok(next) => next,
            Err(nothing) => return Ok(nothing),
        };
        // A restarted stream counts from 0 again; renumber.
        batch.renumber(self.sequence);
        self.sequence += batch.len() as u64;
        Ok(FillResult::Ready)
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(self.inbox.ready())
    }

    fn close(&mut self) {
        self.inbox.close();
    }
}
