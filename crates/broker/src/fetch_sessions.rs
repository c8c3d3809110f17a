//! Incremental fetch sessions (KIP-227): a client lists its partitions once, then only changes; answers do
//! the same.
//!
//! Session id 0 means no session. Epoch 0 requests a new session, epoch -1 ends a session; otherwise the
//! epoch counts the fetches, so that a lost answer is detected. The number of sessions is bounded by
//! `max.incremental.fetch.session.cache.slots`; a full cache evicts a session that was unused for two
//! minutes, then the least recently used session of the principal with the most sessions if the new session's
//! principal has fewer, then a smaller session. Sessions of followers evict sessions of clients; clients
//! never evict a follower's session in use.
//!
//! Departures: Kafka's cache ignores principals. Here a principal that fills the cache does not keep other
//! principals out, its larger sessions evict no session of a principal with fewer, and a session can only be
//! used by its own principal.
//!
//! Each session has its own lock, taken by the fetches of its client. The shared lock is held to find, add or
//! remove a session, but never while iterating over partitions.

mod order;
mod session;

use order::Order;
use parking_lot::Mutex;
use session::{FetchSession, flatten};
pub use session::{PartitionResult, Scope, WantedPartition};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;
use thalweg_net::Holder;
use thalweg_replica::partition::News;
use thalweg_wire::Uuid;
use thalweg_wire::request::FetchRequest;

/// A session that was idle for this long may be evicted.
const EVICTION_MS: i64 = 120_000;

/// The first version of Fetch with sessions (KIP-227).
const SESSIONS_FROM: i16 = 7;
/// The first version of Fetch that names topics by their ids (KIP-516).
pub const TOPIC_IDS_FROM: i16 = 13;

/// The partition of a fetch: by id from [`TOPIC_IDS_FROM`] on, by name before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FetchPartitionKey {
    pub topic: Arc<str>,
    pub topic_id: Uuid,
    pub partition: PartitionIndex,
}

/// The values that decide whether a partition without new records is included in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionAnswer {
    pub error_code: i16,
    pub high_watermark: i64,
    pub log_start_offset: i64,
}

/// A session with its eviction criteria.
#[derive(Debug)]
struct CachedSession {
    holder: Holder,
    used_ms: AtomicI64,
    session: Mutex<FetchSession>,
}

/// The session of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFetch {
    /// Without a session: every partition is answered.
    None,
    /// The first fetch of a session: every partition is answered.
    Full { id: i32 },
    /// A later fetch: partitions without news are left out.
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
    sessions: HashMap<i32, Arc<CachedSession>>,
    order: Order,
}

/// Room for a session.
enum Room {
    Free,
    /// The session with this id.
    Of(i32),
}

/// A fetch within its session.
#[derive(Debug)]
pub struct StartedFetch {
    pub fetch: SessionFetch,
    /// The partitions to read, in order.
    pub wanted: Vec<WantedPartition>,
    /// The news to wait on, if partitions without news are left out.
    pub news: Option<Arc<News>>,
}

impl StartedFetch {
    fn without_session(wanted: Vec<WantedPartition>) -> StartedFetch {
        StartedFetch { fetch: SessionFetch::None, wanted, news: None }
    }
}

impl FetchSessions {
    /// Room for `slots` sessions.
    pub fn new(slots: usize) -> Self {
        Self { slots, state: Mutex::default() }
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.state.lock().sessions.len()
    }

    /// Ends a session whose first answer is not sent.
    pub fn forget(&self, id: i32) {
        self.state.lock().remove(id);
    }

    /// True if there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens, continues or ends the session of a request.
    pub fn begin(
        &self,
        holder: &Holder,
        version: i16,
        request: FetchRequest,
        scope: Scope,
        now_ms: i64,
    ) -> Result<StartedFetch, SessionError> {
        let (id, epoch) = (request.session_id, request.session_epoch);
        if epoch == -1 || epoch == 0 {
            // The removed session is dropped after the lock is released.
            let ended = self
                .find(id)
                .filter(|cached| cached.holder == *holder)
                .and_then(|_| self.state.lock().remove(id));
            drop(ended);
            let wanted = flatten(request.topics);
            if epoch == -1 || version < SESSIONS_FROM {
                return Ok(StartedFetch::without_session(wanted));
            }
            return Ok(self.open(holder, version, wanted, scope, now_ms));
        }
        let cached = self.find(id).filter(|cached| cached.holder == *holder).ok_or(SessionError::NotFound)?;
        let mut session = cached.session.lock();
        if session.epoch != epoch {
            return Err(SessionError::InvalidEpoch);
        }
        if session.by_id != (version >= TOPIC_IDS_FROM) {
            return Err(SessionError::TopicIds);
        }
        session.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        cached.used_ms.store(now_ms, Ordering::Relaxed);
        let size_before = session.len();
        session.update(flatten(request.topics), request.forgotten_topics_data);
        let size = session.len();
        if size == 0 {
            drop(session);
            self.state.lock().remove(id);
            return Ok(StartedFetch::without_session(Vec::new()));
        }
        if size != size_before {
            self.state.lock().order.resize(id, size);
        }
        let wanted = session.wanted(scope, now_ms);
        let news = (scope == Scope::Unread).then(|| Arc::clone(&session.news));
        Ok(StartedFetch { fetch: SessionFetch::Incremental { id }, wanted, news })
    }

    fn find(&self, id: i32) -> Option<Arc<CachedSession>> {
        self.state.lock().sessions.get(&id).cloned()
    }

    /// Opens a session for these partitions, if there is room for it.
    fn open(
        &self,
        holder: &Holder,
        version: i16,
        wanted: Vec<WantedPartition>,
        scope: Scope,
        now_ms: i64,
    ) -> StartedFetch {
        // Do not build the session's partitions if the cache is full.
        if self.state.lock().room(holder, self.slots, wanted.len(), now_ms).is_none() {
            return StartedFetch::without_session(wanted);
        }
        let mut session = FetchSession::open(version >= TOPIC_IDS_FROM, wanted.clone(), now_ms);
        let (all, news) = (session.wanted(Scope::Whole, now_ms), Arc::clone(&session.news));
        let size = session.len();
        let cached = Arc::new(CachedSession {
            holder: holder.clone(),
            used_ms: AtomicI64::new(now_ms),
            session: Mutex::new(session),
        });
        let mut state = self.state.lock();
        // Another session may have taken the room meanwhile.
        let Some(room) = state.room(holder, self.slots, size, now_ms) else {
            return StartedFetch::without_session(wanted);
        };
        let given_up = match room {
            Room::Free => None,
            Room::Of(other) => state.remove(other),
        };
        let id = state.add(cached, size, now_ms);
        // A long list of partitions is dropped without the lock.
        drop(state);
        drop(given_up);
        let news = (scope == Scope::Unread).then_some(news);
        StartedFetch { fetch: SessionFetch::Full { id }, wanted: all, news }
    }

    /// The partitions of a session with news since its fetch began, or since the last call.
    pub fn with_news(&self, fetch: SessionFetch) -> Vec<WantedPartition> {
        self.find(fetch.id()).map_or_else(Vec::new, |cached| cached.session.lock().with_news())
    }

    /// Records an answer, and returns which of its partitions must be included.
    pub fn finish(&self, fetch: SessionFetch, reads: &[PartitionResult]) -> Vec<bool> {
        let cached = if fetch == SessionFetch::None { None } else { self.find(fetch.id()) };
        let is_full = !matches!(fetch, SessionFetch::Incremental { .. });
        match cached {
            Some(cached) => cached.session.lock().answered(reads, is_full),
            None => vec![true; reads.len()],
        }
    }
}

impl State {
    fn add(&mut self, cached: Arc<CachedSession>, size: usize, now_ms: i64) -> i32 {
        loop {
            self.next_id = if self.next_id == i32::MAX { 1 } else { self.next_id + 1 };
            if !self.sessions.contains_key(&self.next_id) {
                self.order.add(self.next_id, &cached.holder, size, now_ms);
                self.sessions.insert(self.next_id, cached);
                return self.next_id;
            }
        }
    }

    fn remove(&mut self, id: i32) -> Option<Arc<CachedSession>> {
        self.order.remove(id);
        self.sessions.remove(&id)
    }

    /// The room for a session of `size` partitions, by the rules of eviction; `None` if the cache is full.
    fn room(&mut self, holder: &Holder, slots: usize, size: usize, now_ms: i64) -> Option<Room> {
        if self.sessions.len() < slots {
            return Some(Room::Free);
        }
        let State { sessions, order, .. } = self;
        let used_ms = |id: i32| sessions.get(&id).map_or(0, |cached| cached.used_ms.load(Ordering::Relaxed));
        if let Some((id, at_ms)) = order.least_used(None, used_ms)
            && now_ms - at_ms > EVICTION_MS
        {
            return Some(Room::Of(id));
        }
        let enough = match holder {
            Holder::Brokers => 0,
            _ => order.count(holder) + 1,
        };
        if let Some(larger) = order.largest(enough) {
            return order.least_used(Some(&larger), used_ms).map(|(id, _)| Room::Of(id));
        }
        order.smaller(holder, size, now_ms - EVICTION_MS).map(Room::Of)
    }
}

#[cfg(test)]
mod tests;
