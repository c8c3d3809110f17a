//! Incremental fetch sessions (KIP-227): a client lists its partitions once, then only changes; so do the answers.
//!
//! Session id 0 is no session. Epoch 0 requests a new one, epoch -1 ends it; in between the epoch counts the fetches,
//! so that a lost answer is detected. The number of sessions is bounded by
//! `max.incremental.fetch.session.cache.slots`; a full cache evicts a session that was unused for two minutes, or one
//! smaller than the new one, as in Kafka.
//!
//! Each session has its own lock, which its client's fetches take one after another. The shared lock is held to find,
//! add or remove a session, but never while iterating over partitions.

use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;
use thalweg_wire::Uuid;
use thalweg_wire::request::FetchRequest;
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};

/// A session that was idle for this long may be evicted.
const EVICTION_MS: i64 = 120_000;

/// Number of partitions from which on a request is checked for repetitions.
const MANY: usize = 1_000;

/// The partition of a fetch: by id from version 13 on, by name before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub topic: Arc<str>,
    pub topic_id: Uuid,
    pub partition: PartitionIndex,
}

/// The state of a partition in a session.
#[derive(Clone, Debug)]
struct Cached {
    key: Key,
    wanted: FetchPartition,
    /// The values in the last answer.
    answered: Option<Answered>,
}

/// The values that decide whether a partition without new records is included in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub error_code: i16,
    pub high_watermark: i64,
    pub log_start_offset: i64,
}

/// A session in its slot, with its eviction criteria.
#[derive(Debug)]
struct Slot {
    created_ms: i64,
    used_ms: AtomicI64,
    /// How many partitions it has.
    size: AtomicUsize,
    session: Mutex<Session>,
}

#[derive(Debug, Default)]
struct Session {
    epoch: i32,
    by_id: bool,
    partitions: Vec<Cached>,
    /// Places in `partitions`, in the order in which they are read; those that returned records move to the end.
    order: Vec<u32>,
    /// The place of each in `partitions`, which does not change when the order does.
    index: HashMap<Key, u32>,
}

/// The session of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFetch {
    /// Without a session: every partition is answered.
    None,
    /// The first of a session: every partition is answered.
    Full { id: i32 },
    /// A later one: partitions without news are left out.
    Incremental { id: i32 },
}

impl SessionFetch {
    /// The session's id; 0 for none.
    pub fn id(self) -> i32 {
        match self {
            SessionFetch::None => 0,
            SessionFetch::Full { id } | SessionFetch::Incremental { id } => id,
        }
    }
}

/// The reason why a fetch cannot continue its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// No session has the id.
    NotFound,
    /// The session has another epoch: an answer or a request was lost.
    InvalidEpoch,
    /// The session names topics by id and the request by name, or the other way round.
    TopicIds,
}

/// All sessions of this broker.
#[derive(Debug)]
pub struct FetchSessions {
    slots: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: i32,
    sessions: HashMap<i32, Arc<Slot>>,
}

/// Room for a session.
enum Place {
    Free,
    /// That of the session with this id.
    Of(i32),
}

type Wanted = Vec<(Key, FetchPartition)>;

impl FetchSessions {
    /// Room for `slots` sessions.
    pub fn new(slots: usize) -> Self {
        Self { slots, state: Mutex::default() }
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.state.lock().sessions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens, continues or ends the session of a request; returns it, and the partitions to read, in order.
    pub fn begin(
        &self,
        version: i16,
        request: FetchRequest,
        now_ms: i64,
    ) -> Result<(SessionFetch, Wanted), SessionError> {
        let (id, epoch) = (request.session_id, request.session_epoch);
        if epoch == -1 || epoch == 0 {
            // The removed session is dropped after the lock is released.
            let ended = if id == 0 { None } else { self.state.lock().sessions.remove(&id) };
            drop(ended);
            let wanted = flatten(request.topics);
            if epoch == -1 || version < 7 {
                return Ok((SessionFetch::None, wanted));
            }
            let id = self.open(version, &wanted, now_ms);
            return Ok((id.map_or(SessionFetch::None, |id| SessionFetch::Full { id }), wanted));
        }
        let slot = self.find(id).ok_or(SessionError::NotFound)?;
        let mut session = slot.session.lock();
        if session.epoch != epoch {
            return Err(SessionError::InvalidEpoch);
        }
        if session.by_id != (version >= 13) {
            return Err(SessionError::TopicIds);
        }
        session.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        slot.used_ms.store(now_ms, Ordering::Relaxed);
        session.update(flatten(request.topics), request.forgotten_topics_data);
        slot.size.store(session.partitions.len(), Ordering::Relaxed);
        if session.partitions.is_empty() {
            drop(session);
            self.state.lock().sessions.remove(&id);
            return Ok((SessionFetch::None, Vec::new()));
        }
        let wanted = session.ordered().map(|c| (c.key.clone(), c.wanted.clone())).collect();
        Ok((SessionFetch::Incremental { id }, wanted))
    }

    fn find(&self, id: i32) -> Option<Arc<Slot>> {
        self.state.lock().sessions.get(&id).cloned()
    }

    /// Opens a session for these partitions, if there is room for it.
    fn open(&self, version: i16, wanted: &Wanted, now_ms: i64) -> Option<i32> {
        if wanted.is_empty() {
            return None;
        }
        // Without room the list of partitions is not worth its making.
        self.state.lock().place(self.slots, wanted.len(), now_ms)?;
        let mut session = Session { epoch: 1, by_id: version >= 13, ..Session::default() };
        session.update(wanted.clone(), Vec::new());
        let slot = Arc::new(Slot {
            created_ms: now_ms,
            used_ms: AtomicI64::new(now_ms),
            size: AtomicUsize::new(session.partitions.len()),
            session: Mutex::new(session),
        });
        let mut state = self.state.lock();
        // Another may have taken the slot meanwhile.
        let given_up = match state.place(self.slots, wanted.len(), now_ms)? {
            Place::Free => None,
            Place::Of(other) => state.sessions.remove(&other),
        };
        let id = state.add(slot);
        // A long list of partitions is dropped without the lock.
        drop(state);
        drop(given_up);
        Some(id)
    }

    /// Records the values of an answer, partition by partition in the order of [`FetchSessions::begin`], and returns
    /// which must be included. `answered` has the values of each, `has_records` whether it has records.
    pub fn finish(&self, fetch: SessionFetch, answered: &[(Key, Answered, bool)]) -> Vec<bool> {
        let full = !matches!(fetch, SessionFetch::Incremental { .. });
        let mut mentioned = vec![true; answered.len()];
        if fetch == SessionFetch::None {
            return mentioned;
        }
        let Some(slot) = self.find(fetch.id()) else { return mentioned };
        let mut session = slot.session.lock();
        let session = &mut *session;
        let mut moved = vec![false; session.partitions.len()];
        for (position, (key, now, has_records)) in answered.iter().enumerate() {
            // Usually nothing has moved since the fetch began, and the index is not needed.
            let at = session.order.get(position).filter(|at| session.partitions[**at as usize].key == *key);
            let Some(at) = at.or_else(|| session.index.get(key)).map(|at| *at as usize) else { continue };
            let cached = &mut session.partitions[at];
            let changed = *has_records || cached.answered != Some(*now) || now.error_code != 0;
            mentioned[position] = full || changed;
            // An error is repeated until it is gone, and the recovery is reported.
            cached.answered = (now.error_code == 0).then_some(*now);
            moved[at] |= *has_records;
        }
        session.read_last(&moved);
        mentioned
    }
}

impl State {
    fn add(&mut self, slot: Arc<Slot>) -> i32 {
        loop {
            self.next_id = if self.next_id == i32::MAX { 1 } else { self.next_id + 1 };
            if !self.sessions.contains_key(&self.next_id) {
                self.sessions.insert(self.next_id, slot);
                return self.next_id;
            }
        }
    }

    /// Where a session of `size` partitions may go, by the rules of giving another up; `None` when there is no room.
    fn place(&self, slots: usize, size: usize, now_ms: i64) -> Option<Place> {
        if self.sessions.len() < slots {
            return Some(Place::Free);
        }
        let used_ms = |slot: &Slot| slot.used_ms.load(Ordering::Relaxed);
        let len = |slot: &Slot| slot.size.load(Ordering::Relaxed);
        let stale = self
            .sessions
            .iter()
            .filter(|(_, slot)| now_ms - used_ms(slot) > EVICTION_MS)
            .min_by_key(|(_, slot)| used_ms(slot));
        let smaller = || {
            self.sessions
                .iter()
                .filter(|(_, slot)| now_ms - slot.created_ms > EVICTION_MS && len(slot) < size)
                .min_by_key(|(_, slot)| len(slot))
        };
        stale.or_else(smaller).map(|(id, _)| Place::Of(*id))
    }
}

impl Session {
    /// The partitions in the order in which they are read.
    fn ordered(&self) -> impl Iterator<Item = &Cached> {
        self.order.iter().map(|at| &self.partitions[*at as usize])
    }

    fn update(&mut self, wanted: Wanted, forgotten: Vec<ForgottenTopic>) {
        for (key, wanted) in wanted {
            match self.index.get(&key) {
                Some(&at) => self.partitions[at as usize].wanted = wanted,
                None => self.add(Cached { key, wanted, answered: None }),
            }
        }
        if !forgotten.is_empty() {
            self.forget(forgotten);
        }
    }

    fn add(&mut self, cached: Cached) {
        let at =
            u32::try_from(self.partitions.len()).expect("a request names fewer partitions than it has bytes");
        self.index.insert(cached.key.clone(), at);
        self.order.push(at);
        self.partitions.push(cached);
    }

    fn forget(&mut self, forgotten: Vec<ForgottenTopic>) {
        for topic in forgotten {
            let name: Arc<str> = topic.topic.into();
            for partition in topic.partitions.into_iter().map(PartitionIndex) {
                self.index.remove(&Key { topic: Arc::clone(&name), topic_id: topic.topic_id, partition });
            }
        }
        let mut partitions: Vec<_> = std::mem::take(&mut self.partitions).into_iter().map(Some).collect();
        let still = std::mem::take(&mut self.index);
        for at in std::mem::take(&mut self.order) {
            let cached = partitions[at as usize].take().expect("a place stands in the order once");
            if still.contains_key(&cached.key) {
                self.add(cached);
            }
        }
    }

    /// Partitions that returned records are read last next time, so that none starves behind a full one.
    fn read_last(&mut self, moved: &[bool]) {
        if moved.contains(&true) {
            let (last, mut order): (Vec<u32>, Vec<u32>) =
                self.order.iter().partition(|at| moved[**at as usize]);
            order.extend(last);
            self.order = order;
        }
    }
}

/// The partitions of a request. In a long request repetitions are merged, as in Kafka, and the last one counts. Short
/// ones are not checked: no client repeats partitions, and the limits of the fetch apply to all of them together.
fn flatten(topics: Vec<FetchTopic>) -> Wanted {
    let count: usize = topics.iter().map(|t| t.partitions.len()).sum();
    let mut wanted: Wanted = Vec::with_capacity(count);
    let mut places: HashMap<Key, usize> = HashMap::default();
    for topic in topics {
        let name: Arc<str> = topic.topic.into();
        for partition in topic.partitions {
            let key = Key {
                topic: Arc::clone(&name),
                topic_id: topic.topic_id,
                partition: PartitionIndex(partition.partition),
            };
            if count >= MANY {
                match places.entry(key.clone()) {
                    Entry::Occupied(place) => {
                        wanted[*place.get()].1 = partition;
                        continue;
                    }
                    Entry::Vacant(free) => _ = free.insert(wanted.len()),
                }
            }
            wanted.push((key, partition));
        }
    }
    wanted
}

#[cfg(test)]
mod tests;
