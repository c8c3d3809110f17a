//! The memory of answers that peers have not read, over all connections.
//!
//! Owns: the limit, and the choice of the connection to close at the limit: of the holder with the most bytes
//! of answers, the one whose answers use the most memory for the longest time. An answer counts once its
//! connection has to wait to send it. Slices of files use no memory.

use super::holder::Holder;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The memory budget of answers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AnswerMemory(Arc<Mutex<Answers>>);

#[derive(Debug)]
struct Answers {
    max: usize,
    bytes: usize,
    next_id: u64,
    waiting: BTreeMap<u64, WaitingConnection>,
    /// Number of bytes of each holder.
    holders: BTreeMap<Holder, usize>,
}

#[derive(Debug)]
struct WaitingConnection {
    holder: Holder,
    bytes: usize,
    since: Instant,
    cut_off: Arc<Notify>,
}

impl AnswerMemory {
    /// A budget of `max` bytes. The answers of a single connection may always exceed it.
    pub fn new(max: usize) -> Self {
        let answers =
            Answers { max, bytes: 0, next_id: 0, waiting: BTreeMap::new(), holders: BTreeMap::new() };
        Self(Arc::new(Mutex::new(answers)))
    }

    /// The budget in bytes.
    pub fn max(&self) -> usize {
        self.0.lock().max
    }

    /// Number of connections that wait to send.
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Number of bytes held.
    pub fn used(&self) -> usize {
        self.0.lock().bytes
    }

    /// Counts the answers of another connection, which starts waiting to send them.
    pub(super) fn hold(&self, holder: Holder, bytes: usize) -> HeldAnswers {
        let mut answers = self.0.lock();
        let (id, cut_off) = (answers.next_id, Arc::new(Notify::new()));
        answers.next_id += 1;
        let since = Instant::now();
        let waiting = WaitingConnection { holder, bytes: 0, since, cut_off: Arc::clone(&cut_off) };
        answers.waiting.insert(id, waiting);
        answers.set(id, bytes);
        drop(answers);
        HeldAnswers { memory: self.clone(), id, cut_off }
    }
}

impl Answers {
    fn set(&mut self, id: u64, bytes: usize) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let before = std::mem::replace(&mut waiting.bytes, bytes);
        self.bytes = self.bytes - before + bytes;
        let of_holder = self.holders.entry(waiting.holder.clone()).or_default();
        *of_holder = *of_holder - before + bytes;
        if bytes > before {
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        let now = Instant::now();
        while self.bytes > self.max && self.waiting.len() > 1 {
            let most = self.holders.iter().max_by_key(|(_, bytes)| **bytes).map(|(holder, _)| holder);
            let cost = |waiting: &WaitingConnection| {
                let age_ms = now.duration_since(waiting.since).as_millis();
                waiting.bytes as u128 * (age_ms + 1)
            };
            let of_most = self.waiting.iter().filter(|(_, waiting)| Some(&waiting.holder) == most);
            let dearest = of_most.max_by_key(|(_, waiting)| cost(waiting)).map(|(id, _)| *id);
            let Some(waiting) = dearest.and_then(|id| self.remove(id)) else { return };
            waiting.cut_off.notify_one();
        }
    }

    fn remove(&mut self, id: u64) -> Option<WaitingConnection> {
        let waiting = self.waiting.remove(&id)?;
        self.bytes -= waiting.bytes;
        if let Some(bytes) = self.holders.get_mut(&waiting.holder) {
            *bytes -= waiting.bytes;
            if *bytes == 0 {
                self.holders.remove(&waiting.holder);
            }
        }
        Some(waiting)
    }
}

/// The answers that a connection is waiting to send.
#[derive(Debug)]
pub(super) struct HeldAnswers {
    memory: AnswerMemory,
    id: u64,
    cut_off: Arc<Notify>,
}

impl HeldAnswers {
    /// Sets the current size.
    pub(super) fn set(&self, bytes: usize) {
        self.memory.0.lock().set(self.id, bytes);
    }

    /// Returns when the connection has to end, to make room for other connections.
    pub(super) async fn cut_off(&self) {
        self.cut_off.notified().await;
    }
}

impl Drop for HeldAnswers {
    fn drop(&mut self) {
        self.memory.0.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn is_cut_off(held: &HeldAnswers) -> bool {
        let notified = held.cut_off.notified();
        tokio::pin!(notified);
        notified.enable()
    }

    fn holder(address: u8) -> Holder {
        Holder::Network([127, 0, 0, address].into())
    }

    #[tokio::test(start_paused = true)]
    async fn many_small_answers_of_one_holder_make_room_before_a_large_one_of_another() {
        let memory = AnswerMemory::new(100);
        let large = memory.hold(holder(1), 40);
        tokio::time::advance(Duration::from_secs(5)).await;
        let small: Vec<HeldAnswers> = (0..20).map(|_| memory.hold(holder(2), 5)).collect();
        assert!(!is_cut_off(&large));
        assert_eq!(small.iter().filter(|held| is_cut_off(held)).count(), 8);
        assert_eq!(memory.used(), 100);
        drop((large, small));
        assert_eq!(memory.used(), 0);
        assert!(memory.0.lock().holders.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn dearest_answers_make_room_for_others() {
        let memory = AnswerMemory::new(100);
        let alone = memory.hold(holder(1), 500);
        assert!(!is_cut_off(&alone), "one connection may hold as much as it needs");
        drop(alone);
        let (large, old) = (memory.hold(holder(1), 50), memory.hold(holder(1), 30));
        tokio::time::advance(Duration::from_secs(1)).await;
        let small = memory.hold(holder(1), 20);
        assert_eq!(memory.used(), 100);
        small.set(25);
        assert!(is_cut_off(&large) && !is_cut_off(&old) && !is_cut_off(&small));
        assert_eq!(memory.used(), 55);
        drop(large);
        assert_eq!(memory.used(), 55, "what was cut off is not given back twice");
        drop((old, small));
        assert_eq!(memory.used(), 0);
    }
}
