//! News of a fetch session: the partitions that changed since the last fetch. A session subscribes to its
//! partitions once, and a fetch looks only at the changed ones. The cost of a fetch then follows the changes,
//! not the number of partitions in the session.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// The news of one session.
#[derive(Debug, Default)]
pub struct News {
    noted: Mutex<NotedSlots>,
    /// Bytes that a waiting fetch still needs; 0 while no fetch waits.
    missing: AtomicUsize,
    notify: Notify,
}

#[derive(Debug, Default)]
struct NotedSlots {
    /// The slots with news, each once.
    slots: Vec<u32>,
    /// True for each slot in `slots`.
    is_noted: Vec<bool>,
}

/// A partition's link to the news of a session, valid while the session keeps it.
#[derive(Debug)]
pub struct Subscription {
    news: Arc<News>,
    /// The slot of the partition in the session.
    slot: u32,
}

impl News {
    /// The subscription for the partition at a slot of the session.
    pub fn subscription(news: &Arc<News>, slot: u32) -> Arc<Subscription> {
        Arc::new(Subscription { news: Arc::clone(news), slot })
    }

    /// The slots with news since the last call.
    pub fn take(&self) -> Vec<u32> {
        let mut noted = self.noted.lock();
        let slots = std::mem::take(&mut noted.slots);
        for slot in &slots {
            noted.is_noted[*slot as usize] = false;
        }
        slots
    }

    /// Begins to wait for this many bytes. Earlier news is not counted: take it between this call and
    /// [`News::woken`].
    pub fn wait_for(&self, bytes: usize) {
        self.missing.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Completes when enough bytes have arrived, or another change requires a check.
    pub async fn woken(&self) {
        self.notify.notified().await;
    }

    pub(super) fn wake(&self) {
        self.notify.notify_one();
    }

    /// Notes news and counts its bytes. Returns true if the waiting fetch has enough.
    fn note(&self, slot: u32, bytes: usize) -> bool {
        let at = slot as usize;
        let mut noted = self.noted.lock();
        if noted.is_noted.len() <= at {
            noted.is_noted.resize(at + 1, false);
        }
        if !std::mem::replace(&mut noted.is_noted[at], true) {
            noted.slots.push(slot);
        }
        // Before the count: a fetch that begins to wait now either finds the slot, or is seen here as
        // waiting.
        drop(noted);
        let left = self.missing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |missing| {
            (missing > 0).then(|| missing.saturating_sub(bytes))
        });
        left.is_ok_and(|before| before <= bytes)
    }
}

/// The sessions that have subscribed to one partition.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    made: Vec<Arc<Subscription>>,
    /// Number of subscriptions at which abandoned ones are removed.
    sweep_at: usize,
}

impl Subscriptions {
    /// Adds a subscription, unless it is present.
    pub(super) fn add(&mut self, subscription: &Arc<Subscription>) {
        if self.made.iter().any(|made| Arc::ptr_eq(made, subscription)) {
            return;
        }
        if self.made.len() >= self.sweep_at.max(16) {
            self.made.retain(is_kept);
            self.sweep_at = 2 * self.made.len();
        }
        self.made.push(Arc::clone(subscription));
    }

    /// Notes this many bytes in all sessions. Sessions whose fetch has enough are added to `woken`.
    pub(super) fn note(&mut self, bytes: usize, woken: &mut Vec<Arc<News>>) {
        self.made.retain(|subscription| {
            if subscription.news.note(subscription.slot, bytes) {
                woken.push(Arc::clone(&subscription.news));
            }
            is_kept(subscription)
        });
    }
}

/// True if a session still holds the subscription.
fn is_kept(subscription: &Arc<Subscription>) -> bool {
    Arc::strong_count(subscription) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_woken(subscriptions: &mut Subscriptions, bytes: usize) -> bool {
        let mut woken = Vec::new();
        subscriptions.note(bytes, &mut woken);
        woken.iter().for_each(|news| news.wake());
        !woken.is_empty()
    }

    #[tokio::test]
    async fn slots_are_noted_once_and_a_fetch_wakes_when_it_has_enough() {
        let news = Arc::new(News::default());
        let (one, other) = (News::subscription(&news, 3), News::subscription(&news, 0));
        let (mut first, mut second) = (Subscriptions::default(), Subscriptions::default());
        for _ in 0..2 {
            first.add(&one);
        }
        second.add(&other);
        assert!(!is_woken(&mut first, 500), "no fetch waits");
        assert!(!is_woken(&mut first, 500));
        assert_eq!(news.take(), [3]);
        news.wait_for(100);
        assert!(news.take().is_empty());
        assert!(!is_woken(&mut first, 60));
        assert!(is_woken(&mut second, 40));
        assert!(!is_woken(&mut second, 40), "it is awake");
        news.woken().await;
        assert_eq!(news.take(), [3, 0]);
    }

    #[test]
    fn what_a_session_gave_up_is_forgotten() {
        let news = Arc::new(News::default());
        let mut subscriptions = Subscriptions::default();
        let kept = News::subscription(&news, 0);
        subscriptions.add(&kept);
        for slot in 1..10_000 {
            subscriptions.add(&News::subscription(&news, slot));
        }
        assert!(subscriptions.made.len() <= 32, "{}", subscriptions.made.len());
        subscriptions.note(1, &mut Vec::new());
        assert_eq!(subscriptions.made.len(), 1);
    }
}
