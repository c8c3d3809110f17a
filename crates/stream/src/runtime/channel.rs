//! Bounded channels of batches between streams. A topic passes every batch to each reading stream, a tap to
//! its one listener. Buffers are shared, and slow readers slow the writer down.
//!
//! Each batch carries a receipt, which the reader returns when its own sink has acknowledged the batch. Until
//! then the writer reports the batch as held. So a source gets acknowledgements only when the messages were
//! delivered behind every named destination. Taps do not count.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use crate::message::Batch;
use crate::stage::{FillResult, ReaderGone, Sink, Source, StageError, Turn, Wait};

/// Maximum number of batches queued to one reader, which bounds the memory cost of a slow reader.
pub const BATCHES_MAX: usize = 16;

/// Number of unacknowledged batches of which each is acknowledged by itself. Beyond it, neighbours are
/// acknowledged together, so that a reader that holds messages for long needs bounded memory.
const HELD_MAX: usize = 4096;

/// A queued batch.
struct Parcel {
    batch: Batch,
    receipt: Receipt,
}

/// Confirms to the writer that a batch was delivered. All receipts of a writer and a reader share one
/// counter; when the last receipt is dropped, the writer knows that no more will follow.
struct Receipt {
    /// The batch's number among the sent batches, from 1.
    number: u64,
    arrived: Arc<watch::Sender<u64>>,
}

impl Receipt {
    /// True if both receipts are for one writer.
    fn is_of(&self, other: &Receipt) -> bool {
        Arc::ptr_eq(&self.arrived, &other.arrived)
    }

    fn give_back(self) {
        self.arrived.send_replace(self.number);
    }
}

/// The sending end, until a writer clones it.
#[derive(Clone)]
pub struct Sender(mpsc::Sender<Parcel>);

/// A channel to one reader.
pub fn channel() -> (Sender, ChannelSource) {
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    let source = ChannelSource { inbox: Inbox::new(receiver), sequence: 0, receipts: VecDeque::new() };
    (Sender(sender), source)
}

/// The readers of a topic or tap, before a writer exists.
#[derive(Clone, Default)]
pub struct Readers(Vec<Sender>);

impl Readers {
    /// Adds a reader.
    pub fn add(&mut self, sender: Sender) {
        self.0.push(sender);
    }
}

/// A writer's channel to one reader.
struct Joint {
    /// `None` once closed.
    sender: Option<(mpsc::Sender<Parcel>, Arc<watch::Sender<u64>>)>,
    arrived: watch::Receiver<u64>,
    sent: u64,
    /// The first message of each unacknowledged batch.
    held: VecDeque<(u64, u64)>,
}

impl Joint {
    fn to(reader: Sender) -> Joint {
        let (sender, arrived) = watch::channel(0);
        Joint { sender: Some((reader.0, Arc::new(sender))), arrived, sent: 0, held: VecDeque::new() }
    }

    async fn send(&mut self, batch: &Batch, first_sequence: Option<u64>) {
        if self.sender.is_none() {
            return;
        }
        self.sent += 1;
        if let Some(first_sequence) = first_sequence {
            self.hold(first_sequence);
        }
        let Some((sender, receipts)) = &self.sender else { return };
        let receipt = Receipt { number: self.sent, arrived: receipts.clone() };
        // Ignore a failed reader: its failure ends the run.
        let _ = sender.send(Parcel { batch: batch.clone(), receipt }).await;
        self.forget_arrived();
    }

    fn hold(&mut self, first_sequence: u64) {
        self.held.push_back((self.sent, first_sequence));
        if self.held.len() > HELD_MAX {
            let pairs = self.held.make_contiguous().chunks(2);
            // Both are held until the later one has arrived.
            let merged =
                pairs.filter_map(|pair| Some((pair.last()?.0, pair.iter().map(|held| held.1).min()?)));
            self.held = merged.collect();
        }
    }

    fn forget_arrived(&mut self) {
        let arrived = *self.arrived.borrow();
        while self.held.front().is_some_and(|(number, _)| *number <= arrived) {
            self.held.pop_front();
        }
    }

    fn held_since(&mut self) -> Option<u64> {
        self.forget_arrived();
        self.held.iter().map(|(_, first_sequence)| *first_sequence).min()
    }

    async fn arrive(&mut self) -> Result<(), ReaderGone> {
        self.sender = None;
        while *self.arrived.borrow_and_update() < self.sent {
            if self.arrived.changed().await.is_err() && *self.arrived.borrow() < self.sent {
                return Err(ReaderGone);
            }
        }
        self.held.clear();
        Ok(())
    }
}

/// A writer's channels to several readers.
#[derive(Default)]
pub struct Outlet(Vec<Joint>);

impl Outlet {
    /// The channels to these readers.
    pub fn to(readers: Readers) -> Outlet {
        Outlet(readers.0.into_iter().map(Joint::to).collect())
    }

    /// True if there are no readers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends a batch to every reader.
    pub async fn send(&mut self, batch: &Batch) {
        let first = batch.lowest_sequence();
        if first.is_none() && batch.provenance.is_none() {
            return;
        }
        for joint in &mut self.0 {
            joint.send(batch, first).await;
        }
    }

    /// The first message that some reader has not acknowledged.
    pub fn held_since(&mut self) -> Option<u64> {
        self.0.iter_mut().filter_map(Joint::held_since).min()
    }

    /// Waits until every remaining reader has acknowledged everything sent so far. Cancel safe.
    pub async fn catch_up(&mut self) {
        for joint in &mut self.0 {
            let sent = joint.sent;
            // An error means that the reader has ended; the reader's failure ends the run.
            let _ = joint.arrived.wait_for(|arrived| *arrived >= sent).await;
        }
    }

    /// Closes the channels.
    pub fn close(&mut self) {
        for joint in &mut self.0 {
            joint.sender = None;
        }
    }

    /// Closes the channels, and waits for all acknowledgements.
    pub async fn arrive(&mut self) -> Result<(), ReaderGone> {
        self.close();
        for joint in &mut self.0 {
            joint.arrive().await?;
        }
        Ok(())
    }
}

/// The receiving end. A source polls it, and awaits it if it is empty.
pub(super) struct Inbox<T> {
    receiver: mpsc::Receiver<T>,
    next: Option<T>,
    has_ended: bool,
}

impl<T> Inbox<T> {
    pub(super) fn new(receiver: mpsc::Receiver<T>) -> Inbox<T> {
        Inbox { receiver, next: None, has_ended: false }
    }

    /// Takes a batch; otherwise the error is [`FillResult::Pending`] or [`FillResult::End`].
    pub(super) fn take(&mut self) -> Result<T, FillResult> {
        match self.next.take() {
            Some(next) => Ok(next),
            None => self.receiver.try_recv().map_err(|why| match why {
                TryRecvError::Empty if !self.has_ended => FillResult::Pending,
                TryRecvError::Empty | TryRecvError::Disconnected => FillResult::End,
            }),
        }
    }

    /// Waits for a batch or the end.
    pub(super) async fn ready(&mut self) {
        if self.next.is_none() {
            self.next = self.receiver.recv().await;
            self.has_ended = self.next.is_none();
        }
    }

    /// Accepts no more batches.
    pub(super) fn close(&mut self) {
        self.receiver.close();
    }
}

/// The receiving end as the source of a stream.
pub struct ChannelSource {
    inbox: Inbox<Parcel>,
    sequence: u64,
    /// The unreturned receipts, with the last sequence of each batch in this stream.
    receipts: VecDeque<(u64, Receipt)>,
}

impl ChannelSource {
    /// Drops every other receipt of each writer: a later one stands for it.
    fn thin_out(&mut self) {
        let mut is_next_dropped = BTreeMap::new();
        let mut kept = VecDeque::with_capacity(self.receipts.len());
        for (last, receipt) in std::mem::take(&mut self.receipts).into_iter().rev() {
            let is_dropped = is_next_dropped.entry(Arc::as_ptr(&receipt.arrived)).or_insert(false);
            if !std::mem::replace(is_dropped, !*is_dropped) {
                kept.push_front((last, receipt));
            }
        }
        self.receipts = kept;
    }
}

impl Source for ChannelSource {
    fn fill(&mut self, batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        let next = match self.inbox.take() {
            Ok(next) => next,
            Err(nothing) => return Ok(nothing),
        };
        *batch = next.batch;
        // Each writer has its own sequence: renumber.
        batch.renumber(self.sequence);
        self.sequence += batch.len() as u64;
        if !batch.is_empty() {
            self.receipts.push_back((self.sequence - 1, next.receipt));
            if self.receipts.len() > HELD_MAX {
                self.thin_out();
            }
        } else if let Some((_, last)) =
            self.receipts.iter_mut().rev().find(|(_, last)| last.is_of(&next.receipt))
        {
            // An announcement arrives with the messages before it.
            *last = next.receipt;
        } else {
            next.receipt.give_back();
        }
        Ok(FillResult::Ready)
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(self.inbox.ready())
    }

    fn close(&mut self) {
        self.inbox.close();
    }

    fn is_fed(&self) -> bool {
        true
    }

    fn wants_acknowledgement(&self) -> bool {
        !self.receipts.is_empty()
    }

    fn acknowledge(&mut self, through: u64) -> Wait<'_, Result<(), StageError>> {
        while self.receipts.front().is_some_and(|(last, _)| *last <= through) {
            if let Some((_, receipt)) = self.receipts.pop_front() {
                receipt.give_back();
            }
        }
        Box::pin(async { Ok(()) })
    }
}

/// A topic as the sink of a stream.
pub struct TopicSink {
    outlet: Outlet,
    waiting: Option<Batch>,
}

impl TopicSink {
    /// The sink for these readers.
    pub fn new(readers: Readers) -> TopicSink {
        TopicSink { outlet: Outlet::to(readers), waiting: None }
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

    fn held_since(&mut self) -> Option<u64> {
        self.outlet.held_since()
    }

    fn catch_up(&mut self) -> Wait<'_, ()> {
        Box::pin(self.outlet.catch_up())
    }

    fn arrive(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(self.outlet.arrive().await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bad::{BadMessages, OnError};
    use crate::kafka::Cluster;
    use crate::reach::Reach;
    use crate::stage::SourceWatch;
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    use tokio::time::Instant;

    fn batch(sequences: std::ops::Range<u64>) -> Batch {
        let mut batch = Batch::new();
        for sequence in sequences {
            batch.push(bytes::Bytes::from_static(b"x"), None, 0, sequence);
        }
        batch
    }

    /// Channels with room need no runtime.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn fill(source: &mut ChannelSource) -> Option<u64> {
        let cluster = Cluster { bootstrap: "none".to_owned(), properties: None };
        let bad =
            BadMessages::new(&OnError::Fail, &cluster, &Reach::everything(), "s".into(), Arc::default());
        let mut bad = bad.expect("there is nothing to open");
        let now = Instant::now();
        let mut turn = Turn { now, time_ms: 0, source: SourceWatch::new(now), bad: &mut bad };
        let mut batch = Batch::new();
        let filled = source.fill(&mut batch, &mut turn).expect("a channel does not fail");
        (filled == FillResult::Ready).then(|| batch.last_sequence()).flatten()
    }

    fn two_readers() -> (Outlet, ChannelSource, ChannelSource) {
        let (first, first_source) = channel();
        let (second, second_source) = channel();
        let mut readers = Readers::default();
        readers.add(first);
        readers.add(second);
        (Outlet::to(readers), first_source, second_source)
    }

    #[test]
    fn a_batch_is_held_until_every_reader_has_acknowledged_it() {
        let (mut outlet, mut first, mut second) = two_readers();
        for sequences in [10..12, 20..23] {
            assert_eq!(now(outlet.send(&batch(sequences))), Some(()));
        }
        assert_eq!(outlet.held_since(), Some(10));
        for reader in [&mut first, &mut second] {
            assert_eq!((fill(reader), fill(reader), fill(reader)), (Some(1), Some(4), None));
        }
        // The first batch has sequences 0 and 1 at its readers.
        assert!(now(first.acknowledge(4)).is_some_and(|result| result.is_ok()));
        assert_eq!(outlet.held_since(), Some(10));
        assert!(now(second.acknowledge(3)).is_some_and(|result| result.is_ok()));
        assert_eq!(outlet.held_since(), Some(20));
        assert!(!first.wants_acknowledgement() && second.wants_acknowledgement());
        assert!(now(outlet.arrive()).is_none(), "one batch has not arrived");
        assert!(now(second.acknowledge(4)).is_some_and(|result| result.is_ok()));
        assert_eq!(now(outlet.arrive()), Some(Ok(())));
        assert_eq!(outlet.held_since(), None);
    }

    #[test]
    fn a_long_hold_needs_bounded_memory() {
        let (mut outlet, mut first, second) = two_readers();
        drop(second);
        let count = 3 * HELD_MAX as u64;
        for sequence in 0..count {
            assert_eq!(now(outlet.send(&batch(sequence..sequence + 1))), Some(()));
            assert_eq!(fill(&mut first), Some(sequence));
        }
        let joint = &outlet.0[0];
        assert!(joint.held.len() <= HELD_MAX && first.receipts.len() <= HELD_MAX);
        assert_eq!(outlet.0[0].held_since(), Some(0));
        assert!(now(first.acknowledge(count / 2)).is_some_and(|result| result.is_ok()));
        let held = outlet.0[0].held_since().expect("the second half is held");
        assert!(held <= count / 2 + 1 && held > count / 2 - 64, "{held}");
        assert!(now(first.acknowledge(count - 1)).is_some_and(|result| result.is_ok()));
        assert_eq!(outlet.0[0].held_since(), None);
    }

    #[test]
    fn a_reader_that_ends_before_its_time_is_found_out() {
        let (mut outlet, mut first, second) = two_readers();
        assert_eq!(now(outlet.send(&batch(0..1))), Some(()));
        assert_eq!(fill(&mut first), Some(0));
        assert!(now(first.acknowledge(0)).is_some_and(|result| result.is_ok()));
        drop(second);
        // Other readers continue.
        assert_eq!(now(outlet.send(&batch(1..2))), Some(()));
        assert_eq!(fill(&mut first), Some(1));
        assert!(now(first.acknowledge(1)).is_some_and(|result| result.is_ok()));
        assert_eq!(outlet.held_since(), Some(0));
        assert_eq!(now(outlet.arrive()), Some(Err(ReaderGone)));
    }
}
