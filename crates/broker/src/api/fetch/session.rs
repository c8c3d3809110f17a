//! Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes, and is told
//! only what changed.
//!
//! Session id 0 is no session. Epoch 0 asks for a new one, epoch -1 ends it; in between the epoch counts the fetches,
//! so that a lost answer is noticed. The number of sessions is bounded by
//! `max.incremental.fetch.session.cache.slots`; a full cache gives up a session that has not been used for two
//! minutes, or one that is smaller than the newcomer, as Kafka's does.

use super::FetchFailed;
use crate::api::elsewhere::Named;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_wire::request::FetchRequest;
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use thalweg_wire::{ErrorCode, Uuid};

/// A session that was quiet for so long may be given up for another.
const EVICTION_MS: i64 = 120_000;

/// The partition of a fetch: by id from version 13 on, by name before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub topic: Arc<str>,
    pub topic_id: Uuid,
    pub partition: i32,
}

impl Key {
    /// The topic as the version names it.
    pub fn named(&self, version: i16) -> Named<'_> {
        if version >= 13 { Named::Id(self.topic_id) } else { Named::Name(&self.topic) }
    }
}

/// What a session remembers of a partition.
#[derive(Clone, Debug)]
struct Cached {
    key: Key,
    wanted: FetchPartition,
    /// What the client was last told.
    told: Option<Told>,
}

/// What decides whether a partition without new records is mentioned in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub error_code: i16,
    pub high_watermark: i64,
    pub log_start_offset: i64,
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    used_ms: i64,
    created_ms: i64,
    by_id: bool,
    /// In the order in which they are read; those that returned records move to the end.
    partitions: Vec<Cached>,
    index: HashMap<Key, usize>,
}

/// How a fetch takes part in sessions.
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

/// All sessions of this broker.
#[derive(Debug)]
pub struct FetchSessions {
    slots: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: i32,
    sessions: HashMap<i32, Session>,
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

    /// Opens, continues or ends the session of a request: what it is, and the partitions to read, in order.
    pub fn begin(
        &self,
        version: i16,
        request: FetchRequest,
        now_ms: i64,
    ) -> Result<(SessionFetch, Wanted), FetchFailed> {
        let (id, epoch) = (request.session_id, request.session_epoch);
        let mut state = self.state.lock();
        if epoch == -1 || epoch == 0 {
            if id != 0 {
                state.sessions.remove(&id);
            }
            let wanted = flatten(request.topics);
            if epoch == -1 || version < 7 {
                return Ok((SessionFetch::None, wanted));
            }
            let id = state.open(self.slots, version, &wanted, now_ms);
            return Ok((id.map_or(SessionFetch::None, |id| SessionFetch::Full { id }), wanted));
        }
        let session = state.sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != (version >= 13) {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        session.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        session.used_ms = now_ms;
        session.update(flatten(request.topics), request.forgotten_topics_data);
        if session.partitions.is_empty() {
            state.sessions.remove(&id);
            return Ok((SessionFetch::None, Vec::new()));
        }
        let wanted = session.partitions.iter().map(|c| (c.key.clone(), c.wanted.clone())).collect();
        Ok((SessionFetch::Incremental { id }, wanted))
    }

    /// Takes note of what an answer tells, partition by partition in the order of [`FetchSessions::begin`], and
    /// says which of them must be mentioned. `told` is what each would say, `has_records` whether it has records.
    pub fn finish(&self, fetch: SessionFetch, told: &[(Key, Told, bool)]) -> Vec<bool> {
        let full = !matches!(fetch, SessionFetch::Incremental { .. });
        let mut mentioned = vec![true; told.len()];
        let mut state = self.state.lock();
        let Some(session) = state.sessions.get_mut(&fetch.id()) else { return mentioned };
        let mut moved = Vec::new();
        for (position, (key, now, has_records)) in told.iter().enumerate() {
            // Most often nothing has moved since the fetch began, and the place tells without a look into the index.
            let is_there = session.partitions.get(position).is_some_and(|cached| cached.key == *key);
            let found = if is_there { Some(position) } else { session.index.get(key).copied() };
            let Some(index) = found else { continue };
            let cached = &mut session.partitions[index];
            let changed = *has_records || cached.told != Some(*now) || now.error_code != 0;
            mentioned[position] = full || changed;
            // An error is repeated until it is gone, and the recovery is told.
            cached.told = (now.error_code == 0).then_some(*now);
            if *has_records {
                moved.push(index);
            }
        }
        session.read_last(&moved);
        mentioned
    }
}

impl State {
    fn open(&mut self, slots: usize, version: i16, wanted: &Wanted, now_ms: i64) -> Option<i32> {
        if wanted.is_empty() || !self.make_room(slots, wanted.len(), now_ms) {
            return None;
        }
        let mut session = Session {
            epoch: 1,
            used_ms: now_ms,
            created_ms: now_ms,
            by_id: version >= 13,
            partitions: Vec::new(),
            index: HashMap::default(),
        };
        session.update(wanted.clone(), Vec::new());
        loop {
            self.next_id = if self.next_id == i32::MAX { 1 } else { self.next_id + 1 };
            if !self.sessions.contains_key(&self.next_id) {
                self.sessions.insert(self.next_id, session);
                return Some(self.next_id);
            }
        }
    }

    /// Whether a session of `size` partitions may be added; gives another up for it where the rules say so.
    fn make_room(&mut self, slots: usize, size: usize, now_ms: i64) -> bool {
        if self.sessions.len() < slots {
            return true;
        }
        let stale = self
            .sessions
            .iter()
            .filter(|(_, s)| now_ms - s.used_ms > EVICTION_MS)
            .min_by_key(|(_, s)| s.used_ms);
        let smaller = || {
            self.sessions
                .iter()
                .filter(|(_, s)| now_ms - s.created_ms > EVICTION_MS && s.partitions.len() < size)
                .min_by_key(|(_, s)| s.partitions.len())
        };
        match stale.or_else(smaller).map(|(id, _)| *id) {
            Some(id) => self.sessions.remove(&id).is_some(),
            None => false,
        }
    }
}

impl Session {
    fn update(&mut self, wanted: Wanted, forgotten: Vec<ForgottenTopic>) {
        for (key, wanted) in wanted {
            match self.index.get(&key) {
                Some(&index) => self.partitions[index].wanted = wanted,
                None => {
                    self.index.insert(key.clone(), self.partitions.len());
                    self.partitions.push(Cached { key, wanted, told: None });
                }
            }
        }
        if forgotten.is_empty() {
            return;
        }
        for topic in forgotten {
            let name: Arc<str> = topic.topic.into();
            for partition in topic.partitions {
                self.index.remove(&Key { topic: Arc::clone(&name), topic_id: topic.topic_id, partition });
            }
        }
        let index = &self.index;
        self.partitions.retain(|cached| index.contains_key(&cached.key));
        self.number();
    }

    /// Partitions that returned records are read last next time, so that none starves behind a full one.
    fn read_last(&mut self, moved: &[usize]) {
        if moved.is_empty() || moved.len() == self.partitions.len() {
            return;
        }
        let mut last = Vec::with_capacity(moved.len());
        let mut rest = Vec::with_capacity(self.partitions.len());
        for (index, cached) in self.partitions.drain(..).enumerate() {
            if moved.contains(&index) { last.push(cached) } else { rest.push(cached) }
        }
        rest.append(&mut last);
        self.partitions = rest;
        self.number();
    }

    fn number(&mut self) {
        for (index, cached) in self.partitions.iter().enumerate() {
            self.index.insert(cached.key.clone(), index);
        }
    }
}

fn flatten(topics: Vec<FetchTopic>) -> Wanted {
    let mut wanted = Vec::with_capacity(topics.iter().map(|t| t.partitions.len()).sum());
    for topic in topics {
        let name: Arc<str> = topic.topic.into();
        for partition in topic.partitions {
            let key =
                Key { topic: Arc::clone(&name), topic_id: topic.topic_id, partition: partition.partition };
            wanted.push((key, partition));
        }
    }
    wanted
}
