//! Taps between streams that start and stop independently. A tap waits while its stream does not run, and does not see the
//! messages it missed.
//!
//! A slow tap slows its stream down, like any reader. Otherwise the stream does not depend on it: messages that a tap had not
//! processed when it ended are not repeated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::channel::{BATCHES_MAX, Inbox};
use crate::message::Batch;
use crate::stage::{Filled, Source, StageError, Turn, Wait};
use tokio::sync::mpsc;

/// The outputs of stages that can be tapped.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<TapPoints>>);

/// By stream and stage.
type TapPoints = BTreeMap<(Arc<str>, usize), TapPoint>;

impl Taps {
    /// The tappable output of a stage.
    pub(super) fn point(&self, stream: &Arc<str>, stage: usize) -> TapPoint {
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
    /// Their number, read for each batch.
    count: AtomicUsize,
    senders: Mutex<Vec<mpsc::Sender<Batch>>>,
}

impl TapPoint {
    fn senders(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Batch>>> {
        self.0.senders.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether nothing taps it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) == 0
    }

    /// Adds a tap, from now on.
    pub fn listen(&self) -> TapSource {
        let (sender, receiver) = mpsc::channel(BATCHES_MAX);
        let mut senders = self.senders();
        senders.push(sender);
        self.0.count.store(senders.len(), Ordering::Relaxed);
        TapSource { inbox: Inbox::new(receiver), sequence: 0 }
    }

    /// Sends a batch to all taps, and removes closed ones.
    pub async fn send(&self, batch: &Batch) {
        let senders = self.senders().clone();
        let mut is_gone = false;
        for sender in senders {
            is_gone |= sender.send(batch.clone()).await.is_err();
        }
        if is_gone {
            let mut senders = self.senders();
            senders.retain(|sender| !sender.is_closed());
            self.0.count.store(senders.len(), Ordering::Relaxed);
        }
    }
}

/// A tap as the source of a stream.
pub struct TapSource {
    inbox: Inbox<Batch>,
    sequence: u64,
}

impl Source for TapSource {
    fn fill(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<Filled, StageError> {
        *batch = match self.inbox.take() {
            Ok(next) => next,
            Err(nothing) => return Ok(nothing),
        };
        // A restarted stream counts from 0 again; renumber.
        batch.renumber(self.sequence);
        self.sequence += batch.len() as u64;
        Ok(Filled::Ready)
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(self.inbox.ready())
    }

    fn close(&mut self) {
        self.inbox.close();
    }
}
