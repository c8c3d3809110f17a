//! A topic written at least once: a message is delivered when the cluster has acknowledged it. The first
//! reported failure is final, since the producer retries until its delivery timeout.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use thalweg_client::{Cluster, Delivery};
use tokio::time::{Instant, sleep};

use super::reports::Reports;
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
    waiting: Option<PendingMessages>,
}

impl TopicWriter {
    /// Starts opening the topic of a `kafka` sink. Call on a runtime.
    pub fn open(settings: &Settings) -> Result<TopicWriter, StageError> {
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
        Ok(TopicWriter { topic, cluster, patience, outlet: None, opening, reports, waiting: None })
    }

    /// The counter of messages that the cluster has acknowledged.
    pub fn acknowledged(&self) -> Arc<AtomicU64> {
        self.reports.arrived()
    }

    /// True if a failure or delivery is possible without a new message: the topic is not open yet, or
    /// messages are in flight.
    pub fn is_busy(&self) -> bool {
        self.outlet.is_none() || self.reports.under_way() > 0
    }

    /// The lowest sequence not known to be delivered.
    pub fn held_since(&self) -> Option<u64> {
        self.reports.held_since()
    }

    /// True if messages wait for [`TopicWriter::hand_over_rest`].
    pub fn has_waiting(&self) -> bool {
        self.waiting.is_some()
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
        let Some(lowest) = batch.lowest_sequence() else { return Ok(()) };
        let number = self.reports.begin(lowest, batch.len() as u64);
        self.waiting = Some(PendingMessages::new(batch.clone(), number));
        self.hand_over().map(drop)
    }

    /// Hands messages over. Returns true if all were handed over.
    fn hand_over(&mut self) -> Result<bool, StageError> {
        let Some(waiting) = &mut self.waiting else { return Ok(true) };
        let Some(outlet) = &mut self.outlet else { return Ok(false) };
        match outlet.hand_over(waiting) {
            Ok(is_all) => {
                if is_all {
                    self.waiting = None;
                }
                Ok(is_all)
            }
            Err(error) => Err(self.not_taken(error)),
        }
    }

    /// Waits until the producer has accepted all messages.
    pub async fn hand_over_rest(&mut self) -> Result<(), StageError> {
        if self.waiting.is_some() && self.outlet.is_none() {
            let opened = self.opening.opened_until(Instant::now() + self.patience).await;
            self.opened(opened);
            self.check()?;
        }
        while !self.hand_over()? {
            sleep(FULL_PAUSE).await;
            self.check()?;
        }
        Ok(())
    }

    /// Waits until all messages are delivered.
    pub async fn arrive(&mut self) -> Result<(), StageError> {
        self.hand_over_rest().await?;
        self.reports.all().await;
        self.check()
    }
}
