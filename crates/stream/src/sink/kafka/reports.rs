//! What has become of messages that were handed to librdkafka: how many are under way, what failed first, and up to where all
//! have arrived.
//!
//! Each message carries a share of the part that it belongs to, and its delivery report drops it: a part whose shares are all
//! gone has arrived. That costs no lock for a message.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;
use thalweg_client::ClientError;
use tokio::sync::Notify;

use crate::kafka::Cluster;

/// Messages that were taken together.
pub struct Part {
    /// The sequence of the first of them.
    first_sequence: u64,
}

/// What has come of messages that were handed over.
#[derive(Default)]
pub struct Reports {
    /// Handed over and not reported yet.
    under_way: AtomicU64,
    /// Acknowledged by the cluster.
    arrived: Arc<AtomicU64>,
    failed: Mutex<Option<String>>,
    changed: Notify,
    /// Nothing has arrived since librdkafka told of trouble.
    is_troubled: AtomicBool,
    /// The cluster has let the producer in, once.
    is_let_in: AtomicBool,
}

impl Reports {
    /// A message is about to be handed over.
    pub fn hand_over(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    /// It was not taken.
    pub fn take_back(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many are under way.
    pub fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Acquire)
    }

    /// How many the cluster has acknowledged: counted before anybody can know that a message has arrived.
    pub fn arrived(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.arrived)
    }

    /// Why the first message that did not arrive did not.
    pub fn failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cluster has answered.
    pub fn let_in(&self) {
        self.is_let_in.store(true, Ordering::Relaxed);
    }

    fn fail(&self, reason: impl FnOnce() -> String) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(reason);
        self.changed.notify_waiters();
    }

    /// Waits until none is under way, or one has failed.
    pub async fn all(&self) {
        loop {
            // Listen, then look.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.under_way() == 0 || self.failure().is_some() {
                return;
            }
            changed.await;
        }
    }
}

/// Parts in the order in which they were taken.
#[derive(Default)]
pub struct Parts(VecDeque<Arc<Part>>);

impl Parts {
    /// Another part: each of its messages carries a share.
    pub fn begin(&mut self, first_sequence: u64) -> Arc<Part> {
        let part = Arc::new(Part { first_sequence });
        self.0.push_back(part.clone());
        part
    }

    /// The first message of which it is not known that it has arrived, and with it all before.
    pub fn held_since(&mut self, reports: &Reports) -> Option<u64> {
        while let Some(first) = self.0.front_mut() {
            // Looked at in this order: a failure is noted before its share is dropped.
            if Arc::get_mut(first).is_none() || reports.failure().is_some() {
                return Some(first.first_sequence);
            }
            self.0.pop_front();
        }
        None
    }
}

/// Hears of deliveries, on the thread that polls.
pub struct Context {
    /// What becomes of them.
    pub reports: Arc<Reports>,
    /// Where they go.
    pub cluster: Cluster,
}

impl Context {
    /// Why the cluster has not let the producer in and will not, though it be asked again.
    fn shut_out(&self, error: &KafkaError) -> Option<ClientError> {
        let code = error.rdkafka_error_code();
        let is_of_door = matches!(code, Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL));
        if !is_of_door || self.reports.is_let_in.load(Ordering::Relaxed) {
            return None;
        }
        self.cluster.trouble_now().filter(|trouble| !trouble.is_retriable())
    }
}

impl ClientContext for Context {
    /// Told once, until anything arrives: librdkafka tells it at every try.
    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(trouble) = self.shut_out(&error) {
            self.reports.fail(|| trouble.to_string());
            return;
        }
        match self.reports.is_troubled.swap(true, Ordering::Relaxed) {
            false => tracing::warn!(error = %error, reason, "librdkafka has trouble, and tries again"),
            true => tracing::debug!(error = %error, reason, "librdkafka has trouble, and tries again"),
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Arc<Part>;

    fn delivery(&self, result: &DeliveryResult<'_>, part: Arc<Part>) {
        let reports = &self.reports;
        if let Err((error, _message)) = result {
            reports.fail(|| error.to_string());
        } else {
            reports.arrived.fetch_add(1, Ordering::AcqRel);
            reports.let_in();
            if reports.is_troubled.load(Ordering::Relaxed) {
                reports.is_troubled.store(false, Ordering::Relaxed);
                tracing::warn!("Messages arrive again");
            }
        }
        drop(part);
        // The last one wakes whoever waits for all.
        if reports.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            reports.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_arrived_is_known_up_to_the_first_that_has_not() {
        let (reports, mut parts) = (Reports::default(), Parts::default());
        let first = parts.begin(10);
        let of_last = parts.begin(20).clone();
        let of_first = [first.clone(), first];
        assert_eq!(parts.held_since(&reports), Some(10));
        drop(of_last);
        assert_eq!(parts.held_since(&reports), Some(10), "the second was faster");
        drop(of_first);
        assert_eq!(parts.held_since(&reports), None);
        let failed = parts.begin(30);
        *reports.failed.lock().expect("nobody panicked") = Some("too large".to_owned());
        drop(failed);
        assert_eq!(parts.held_since(&reports), Some(30), "it has not arrived");
    }
}
