//! The controller's published state: the committed image, and counters since the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use thalweg_hash::HashMap;
use thalweg_metadata::{Image, LeaderRecoveryState, VersionedRecord};
use thalweg_places::gives_way;
use thalweg_security::quota::{Average, METRICS_WINDOW, Rate, Sharers};
use thalweg_wire::MetadataRecord;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::state::QuotaUse;

/// Maximum number of clients of the mutation quota with figures. Beyond that, the oldest figures of the user
/// with the most are dropped.
const MUTATING_MAX: usize = 1_000;

/// The published state, written by the controller's task only.
#[derive(Debug)]
pub struct PublishedState {
    began: Instant,
    mutations: Mutex<HashMap<Sharers, Mutating>>,
    committed: Mutex<Arc<Image>>,
    changed: Notify,
    epoch: AtomicI64,
    end_offset: AtomicI64,
    elections: AtomicU64,
    unclean_elections: AtomicU64,
    ended_sessions: AtomicU64,
    requests: AtomicU64,
    refused_on_full_disk: AtomicU64,
}

/// A client of the mutation quota.
#[derive(Debug)]
struct Mutating {
    used_ms: i64,
    tokens: f64,
    rate: Rate,
    throttle_ms: Average,
}

/// The use of the mutation quota by clients that share a limit.
#[derive(Clone, Debug)]
pub struct MutationFigures {
    /// The user, the client id, or both that share the limit.
    pub sharers: Sharers,
    /// Remaining tokens after the last request; negative if the clients are throttled.
    pub tokens: f64,
    /// Partitions created and deleted per second, over the last 30 to 60 seconds.
    pub per_second: f64,
    /// Average of the throttle times in the last 30 to 60 seconds, in milliseconds; NaN without any.
    pub throttle_ms: f64,
}

/// The figures at one moment.
#[derive(Clone, Debug)]
pub struct ControllerFigures {
    /// The latest committed image.
    pub committed: Arc<Image>,
    /// The epoch in which the controller leads.
    pub epoch: i64,
    /// The offset of the next record of the metadata log.
    pub end_offset: i64,
    /// Number of elected leaders.
    pub elections: u64,
    /// Number of elected leaders that were not in sync.
    pub unclean_elections: u64,
    /// Number of brokers fenced because their sessions expired.
    pub ended_sessions: u64,
    /// Number of decided requests.
    pub requests: u64,
    /// Number of requests refused because the disk of the metadata log was full.
    pub refused_on_full_disk: u64,
    /// Number of requests waiting for the controller's task.
    pub waiting_requests: usize,
    /// The use of the mutation quota.
    pub mutations: Vec<MutationFigures>,
}

impl Default for PublishedState {
    fn default() -> PublishedState {
        PublishedState {
            began: Instant::now(),
            mutations: Mutex::default(),
            committed: Mutex::default(),
            changed: Notify::new(),
            epoch: AtomicI64::default(),
            end_offset: AtomicI64::default(),
            elections: AtomicU64::default(),
            unclean_elections: AtomicU64::default(),
            ended_sessions: AtomicU64::default(),
            requests: AtomicU64::default(),
            refused_on_full_disk: AtomicU64::default(),
        }
    }
}

impl PublishedState {
    /// Notes the use of the mutation quota by a request, with the remaining tokens.
    pub(crate) fn spent(&self, spent: &QuotaUse, tokens: f64) {
        let now_ms = self.now_ms();
        let mut mutations = self.mutations.lock();
        if mutations.len() >= MUTATING_MAX && !mutations.contains_key(&spent.sharers) {
            make_room(&mut mutations, &spent.sharers.user);
        }
        let mutating = mutations.entry(spent.sharers.clone()).or_insert_with(|| Mutating {
            used_ms: now_ms,
            tokens,
            rate: Rate::new(METRICS_WINDOW),
            throttle_ms: Average::new(METRICS_WINDOW),
        });
        (mutating.used_ms, mutating.tokens) = (now_ms, tokens);
        mutating.rate.record(spent.quota.taken(), now_ms);
        if spent.quota.throttle_ms() > 0 {
            mutating.throttle_ms.record(milliseconds(spent.quota.throttle_ms()), now_ms);
        }
    }

    fn mutations(&self) -> Vec<MutationFigures> {
        let now_ms = self.now_ms();
        let figures = |(sharers, mutating): (&Sharers, &mut Mutating)| MutationFigures {
            sharers: sharers.clone(),
            tokens: mutating.tokens,
            per_second: mutating.rate.per_second(now_ms),
            throttle_ms: mutating.throttle_ms.get(now_ms),
        };
        self.mutations.lock().iter_mut().map(figures).collect()
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    pub(crate) fn lead(&self, epoch: i32) {
        self.epoch.store(i64::from(epoch), Ordering::Relaxed);
    }

    pub(crate) fn commit(&self, image: &Arc<Image>) {
        *self.committed.lock() = Arc::clone(image);
        self.changed.notify_waiters();
    }

    /// Completes at the next commit after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(crate) fn image(&self) -> Arc<Image> {
        Arc::clone(&self.committed.lock())
    }

    pub(crate) fn requested(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sessions_ended(&self, count: usize) {
        self.ended_sessions.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn disk_was_full(&self) {
        self.refused_on_full_disk.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes appended records, and the new end of the log.
    pub(crate) fn wrote(&self, records: &[VersionedRecord], end_offset: i64) {
        self.end_offset.store(end_offset, Ordering::Relaxed);
        for record in records {
            let MetadataRecord::PartitionChange(change) = &record.record else { continue };
            if change.leader < 0 {
                continue;
            }
            self.elections.fetch_add(1, Ordering::Relaxed);
            if change.leader_recovery_state == LeaderRecoveryState::Recovering.id() {
                self.unclean_elections.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn figures(&self, waiting_requests: usize) -> ControllerFigures {
        ControllerFigures {
            committed: Arc::clone(&self.committed.lock()),
            epoch: self.epoch.load(Ordering::Relaxed),
            end_offset: self.end_offset.load(Ordering::Relaxed),
            elections: self.elections.load(Ordering::Relaxed),
            unclean_elections: self.unclean_elections.load(Ordering::Relaxed),
            ended_sessions: self.ended_sessions.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            refused_on_full_disk: self.refused_on_full_disk.load(Ordering::Relaxed),
            waiting_requests,
            mutations: self.mutations(),
        }
    }
}

/// Drops the oldest figures of the user with the most, or of the new user.
fn make_room(mutations: &mut HashMap<Sharers, Mutating>, new: &Option<Box<str>>) {
    let oldest =
        gives_way(mutations.iter(), new, |(sharers, _)| &sharers.user, |(_, mutating)| mutating.used_ms);
    if let Some(oldest) = oldest.map(|(sharers, _)| sharers.clone()) {
        mutations.remove(&oldest);
    }
}

#[expect(clippy::cast_precision_loss, reason = "pauses are far below 2^53 milliseconds")]
fn milliseconds(ms: i64) -> f64 {
    ms as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_a_thousand_names_hides_no_other() {
        let mut mutations = HashMap::default();
        let sharers = |user: &str, client_id: &str| Sharers {
            user: Some(user.into()),
            client_id: Some(client_id.into()),
        };
        let mut spend = |sharers: Sharers, used_ms| {
            if mutations.len() >= 10 {
                make_room(&mut mutations, &sharers.user);
            }
            let (rate, throttle_ms) = (Rate::new(METRICS_WINDOW), Average::new(METRICS_WINDOW));
            mutations.insert(sharers, Mutating { used_ms, tokens: 0.0, rate, throttle_ms });
            mutations.len()
        };
        spend(sharers("ann", "app"), 0);
        for at in 1..100 {
            spend(sharers("eve", &format!("new-{at}")), at);
        }
        assert_eq!(spend(sharers("bob", "app"), 100), 10);
        for found in [sharers("ann", "app"), sharers("bob", "app"), sharers("eve", "new-99")] {
            assert!(mutations.contains_key(&found), "{found:?}");
        }
    }
}
