//! Taps between streams that are started and stopped each on its own: a tap waits for what it listens to, as long as
//! that does not run, and is told nothing of what it has missed.
//!
//! A tap is waited for like any reader. The stream that it listens to does not depend on it otherwise: what a tap has
//! not worked on when it ends is not told again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::channel::{BATCHES_MAX, Inbox};
use crate::message::Batch;
use crate::stage::{Filled, Source, StageError, Turn, Wait};
use tokio::sync::mpsc;

/// The places where streams can be tapped.
#[derive(Clone, Default)]
pub struct Taps(Arc<Mutex<TapPoints>>);

/// By stream and stage.
type TapPoints = BTreeMap<(Arc<str>, usize), TapPoint>;

impl Taps {
    /// Where what leaves a stage can be listened to.
    pub(super) fn point(&self, stream: &Arc<str>, stage: usize) -> TapPoint {
        let mut points = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        points.entry((stream.clone(), stage)).or_default().clone()
    }

    /// Forgets the places of a stream that is gone for good.
    pub fn forget(&self, stream: &str) {
        let mut points = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        points.retain(|(name, _), _| **name != *stream);
    }
}

/// Where what leaves one stage can be listened to.
#[derive(Clone, Default)]
pub struct TapPoint(Arc<Listeners>);

#[derive(Default)]
struct Listeners {
    /// How many there are: asked for each batch.
    count: AtomicUsize,
    senders: Mutex<Vec<mpsc::Sender<Batch>>>,
}

impl TapPoint {
    fn senders(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Batch>>> {
        self.0.senders.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether nobody listens.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) == 0
    }

    /// A listener, from now on.
    pub fn listen(&self) -> TapSource {
        let (sender, receiver) = mpsc::channel(BATCHES_MAX);
        let mut senders = self.senders();
        senders.push(sender);
        self.0.count.store(senders.len(), Ordering::Relaxed);
        TapSource { inbox: Inbox::new(receiver), sequence: 0 }
    }

    /// Hands a batch to everybody who listens. Who does so no more is forgotten.
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

/// A listener, as the source of a stream.
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
        // The stream may have been started anew, and then counts from 0: here it goes on.
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
