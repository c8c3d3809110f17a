//! What has become of messages that were handed to librdkafka: how many are under way, what failed first, and up to where all
//! have arrived.
//!
//! Each message carries a share of the part that it belongs to, and its delivery report drops it: a part whose shares are all
//! gone has arrived. That costs no lock for a message.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;
use tokio::sync::Notify;

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
    failed: Mutex<Option<String>>,
    changed: Notify,
    /// Nothing has arrived since librdkafka told of trouble.
    is_troubled: AtomicBool,
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

    /// Why the first message that did not arrive did not.
    pub fn failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until none is under way.
    pub async fn all(&self) {
        loop {
            // Listen, then look.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.under_way() == 0 {
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
pub struct Context(pub Arc<Reports>);

impl ClientContext for Context {
    /// Told once, until anything arrives: librdkafka tells it at every try.
    fn error(&self, error: KafkaError, reason: &str) {
        match self.0.is_troubled.swap(true, Ordering::Relaxed) {
            false => tracing::warn!(error = %error, reason, "librdkafka has trouble, and tries again"),
            true => tracing::debug!(error = %error, reason, "librdkafka has trouble, and tries again"),
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Arc<Part>;

    fn delivery(&self, result: &DeliveryResult<'_>, part: Arc<Part>) {
        if let Err((error, _message)) = result {
            let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| error.to_string());
        } else if self.0.is_troubled.load(Ordering::Relaxed) {
            self.0.is_troubled.store(false, Ordering::Relaxed);
            tracing::warn!("Messages arrive again");
        }
        drop(part);
        // The last one wakes whoever waits for all.
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
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
