//! A topic written at least once: a message is delivered when the cluster has acknowledged it. The first
//! reported failure is final, since the producer retries until its delivery timeout. A message that is
//! refused for good, because it is too large, can be given back instead.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use thalweg_client::{Cluster, Delivery, SendError};
use tokio::time::{Instant, sleep};

use super::copies::Copies;
use super::reports::{RefusedMessage, Reports};
use super::{Opening, PendingMessages, TopicProducer, failed, producer, with_grant, with_headers};
use crate::declaration::Settings;
use crate::message::Batch;
use crate::stage::StageError;

/// Pause while the producer's buffer is full.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// A topic and its messages in flight.
pub struct TopicWriter {
    topic: Arc<str>,
    cluster: Cluster,
    /// Delivery timeout of a message.
    patience: Duration,
    outlet: Option<TopicProducer>,
    /// The pending opening of the outlet.
    opening: Opening,
    reports: Arc<Reports>,
    /// Messages that wait until the copies have room.
    accepted: Option<(Batch, Option<Copies>)>,
    waiting: Option<PendingMessages>,
    /// True if refused messages are given back, and do not fail the writer.
    gives_back: bool,
    /// Maximum size of the copies of messages in flight. One batch may have more.
    copied_max: u64,
}

impl TopicWriter {
    /// Starts opening the topic of a `kafka` sink. Call on a runtime. To give refused messages back, the
    /// writer keeps copies of messages in flight.
    pub fn open(settings: &Settings, gives_back: bool) -> Result<TopicWriter, StageError> {
        let client = producer(settings, &[], &[])?;
        if client.config.transactional_id.is_some() {
            let reason =
                "remove transactional.id: it is for --guarantee=exactly-once only, which sets it itself";
            return Err(failed("Opening a topic", reason));
        }
        let (topic, patience) = (Arc::<str>::from(settings.text("topic")), client.config.delivery_timeout);
        let reports = Arc::<Reports>::default();
        let reported = Arc::clone(&reports);
        let report = move |delivery: &Delivery<'_>| reported.delivered(delivery);
        let (cluster, with_headers) = (client.cluster(), with_headers(settings));
        let opening =
            Opening::begin(cluster.clone(), client.config, Arc::clone(&topic), with_headers, report);
        Ok(TopicWriter {
            topic,
            cluster,
            patience,
            outlet: None,
            opening,
            reports,
            accepted: None,
            waiting: None,
            gives_back,
            copied_max: settings.integer("buffer"),
        })
    }

    /// The counter of messages that the cluster has acknowledged.
    pub fn acknowledged(&self) -> Arc<AtomicU64> {
        self.reports.arrived()
    }

    /// True if a failure or delivery is possible without a new message: the topic is not open yet, or
    /// messages are in flight.
    pub fn is_busy(&self) -> bool {
        self.outlet.is_none()
            || self.has_waiting()
            || self.reports.under_way() > 0
            || self.reports.has_refused()
            || self.has_apart()
    }

    /// The lowest sequence not known to be delivered.
    pub fn held_since(&self) -> Option<u64> {
        let accepted = self.accepted.as_ref().and_then(|(batch, _)| batch.lowest_sequence());
        accepted.into_iter().chain(self.reports.held_since()).min()
    }

    /// True if messages wait for [`TopicWriter::hand_over_rest`].
    pub fn has_waiting(&self) -> bool {
        self.accepted.is_some() || self.waiting.is_some()
    }

    /// Fails when a message has failed, or the topic cannot be opened.
    pub fn check(&mut self) -> Result<(), StageError> {
        let opened = self.opening.opened();
        self.opened(opened);
        match self.reports.failure() {
            Some(reason) => Err(self.not_taken(reason)),
            None => Ok(()),
        }
    }

    fn opened(&mut self, opened: Result<Option<TopicProducer>, StageError>) {
        match opened {
            Ok(Some(outlet)) => self.outlet = Some(outlet),
            // The outlet is not open yet, or its opening has failed already.
            Ok(None) => {}
            Err(error) => self.reports.fail(error.to_string()),
        }
    }

    fn not_taken(&self, reason: impl ToString) -> StageError {
        // This right implies idempotent writes.
        let right = format!("--topic {} --allow write", self.topic);
        let reason = with_grant(reason, &self.cluster, &right);
        failed(format!("Topic {} did not take a message", self.topic), reason)
    }

    /// Accepts messages. Messages without room wait for [`TopicWriter::hand_over_rest`].
    pub fn take(&mut self, batch: &Batch) -> Result<(), StageError> {
        self.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        self.accepted = Some((batch.clone(), self.gives_back.then(|| Copies::of(batch))));
        self.hand_over().map(drop)
    }

    /// Registers accepted messages. Returns false if their copies have no room.
    fn register(&mut self) -> bool {
        let Some((_, copies)) = &self.accepted else { return true };
        if let Some(copies) = copies {
            let copied = self.reports.copied();
            if copied > 0 && copied + copies.bytes() > self.copied_max {
                return false;
            }
        }
        let Some((batch, copies)) = self.accepted.take() else { return true };
        let Some(lowest) = batch.lowest_sequence() else { return true };
        let number = self.reports.begin(lowest, batch.len() as u64, copies);
        self.waiting = Some(PendingMessages::new(batch, number));
        true
    }

    /// Hands messages over. Returns true if all were handed over.
    fn hand_over(&mut self) -> Result<bool, StageError> {
        if !self.register() {
            return Ok(false);
        }
        let Some(waiting) = &mut self.waiting else { return Ok(true) };
        let Some(outlet) = &mut self.outlet else { return Ok(false) };
        loop {
            match outlet.hand_over(waiting) {
                Ok(is_all) => {
                    if is_all {
                        self.waiting = None;
                    }
                    return Ok(is_all);
                }
                Err(SendError::TooLarge(error)) if self.gives_back => {
                    let (number, message) = waiting.pop();
                    self.reports.refuse(number, message, error.to_string());
                }
                Err(error) => return Err(self.not_taken(error)),
            }
        }
    }

    /// Takes the messages that were refused for good. Each is undelivered until [`TopicWriter::settle`].
    pub fn take_refused(&self) -> Vec<RefusedMessage> {
        self.reports.take_refused()
    }

    /// A refused message is dealt with.
    pub fn settle(&self, refused: &RefusedMessage) {
        self.reports.settle(refused);
    }

    /// Waits until the producer has accepted all messages.
    pub async fn hand_over_rest(&mut self) -> Result<(), StageError> {
        if self.has_waiting() && self.outlet.is_none() {
            let opened = self.opening.opened_until(Instant::now() + self.patience).await;
            self.opened(opened);
            self.check()?;
        }
        while !self.hand_over()? {
            sleep(FULL_PAUSE).await;
            self.check()?;
        }
        if self.reports.has_apart() { self.send_apart().await } else { Ok(()) }
    }

    /// True if messages of a refused batch wait for [`TopicWriter::hand_over_rest`].
    pub fn has_apart(&self) -> bool {
        self.reports.has_apart()
    }

    /// Sends the messages of refused batches again, each in a batch without others, so that only those are
    /// refused that are at fault. They arrive behind later messages.
    async fn send_apart(&mut self) -> Result<(), StageError> {
        let Some(outlet) = &mut self.outlet else { return Ok(()) };
        outlet.producer().flush().await;
        while let Some((number, message)) = self.reports.take_apart() {
            self.waiting = Some(PendingMessages::new(message, number));
            while !self.hand_over()? {
                sleep(FULL_PAUSE).await;
                self.check()?;
            }
            if let Some(outlet) = &mut self.outlet {
                outlet.producer().flush().await;
            }
            self.reports.all().await;
            self.check()?;
        }
        Ok(())
    }

    /// Waits until all messages are delivered.
    pub async fn arrive(&mut self) -> Result<(), StageError> {
        loop {
            self.hand_over_rest().await?;
            self.reports.all().await;
            self.check()?;
            if !self.reports.has_apart() {
                return Ok(());
            }
        }
    }
}
