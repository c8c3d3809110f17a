//! Share sessions (KIP-932): a member lists its partitions once, then only changes. Kafka:
//! `ShareSessionCache`.
//!
//! A session is identified by group and member. Epoch 0 begins a session and replaces the member's earlier
//! one, and -1 ends it; in between, the epoch counts the requests, so that a lost request is detected. The
//! number of sessions is limited by `group.share.max.share.sessions`. A session also ends with its
//! connection, which releases the member's acquired records.
//!
//! Departure from Kafka: if there is no room, the oldest session of the principal with most sessions ends in
//! favour of a principal with fewer. The member of the ended session begins another, as after the end of a
//! connection.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_hash::HashMap;
use thalweg_metadata::TopicIdPartition;
use thalweg_net::Holder;
use thalweg_places::Counts;
use thalweg_wire::ErrorCode;

/// The epoch that begins a session.
pub const INITIAL_EPOCH: i32 = 0;
/// The epoch that ends a session.
pub const FINAL_EPOCH: i32 = -1;

/// The identity of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShareSessionKey {
    pub group: Arc<str>,
    pub member: Arc<str>,
}

/// A partition in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareSessionPartition {
    /// Topic id and partition.
    pub id: TopicIdPartition,
    /// True if the partition was added after the session began and no answer has named it: the next answer
    /// does, even without records. The first answer names all.
    pub is_new: bool,
}

/// Why a request cannot continue its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareSessionError {
    /// The member has no session.
    NotFound,
    /// The session has another epoch, because an answer or a request was lost.
    InvalidEpoch,
    /// There is no room for another session.
    LimitReached,
    /// The first request of a session acknowledges records, which its member cannot have.
    AcknowledgesFirst,
}

impl ShareSessionError {
    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            ShareSessionError::NotFound => ErrorCode::ShareSessionNotFound,
            ShareSessionError::InvalidEpoch => ErrorCode::InvalidShareSessionEpoch,
            ShareSessionError::LimitReached => ErrorCode::ShareSessionLimitReached,
            ShareSessionError::AcknowledgesFirst => ErrorCode::InvalidRequest,
        }
    }
}

/// The session fields of a ShareFetch request.
#[derive(Clone, Debug)]
pub struct ShareSessionRequest {
    pub key: ShareSessionKey,
    pub epoch: i32,
    /// Id of the connection.
    pub connection: u64,
    /// The principal of the member.
    pub holder: Holder,
    /// Partitions added to the session.
    pub added: Vec<TopicIdPartition>,
    /// Partitions removed from the session.
    pub forgotten: Vec<TopicIdPartition>,
    /// True if the request acknowledges records.
    pub acknowledges: bool,
    /// True if the request may acquire records; false for a request that only renews locks.
    pub acquires: bool,
}

/// True once a session has ended, for waiting fetches: another request may end the session meanwhile. The
/// member's records are released once, after the end, so no records may be acquired for the session
/// afterwards.
#[derive(Clone, Debug, Default)]
pub struct ShareSessionEnd(Arc<AtomicBool>);

impl ShareSessionEnd {
    /// True if the session has ended. Under the lock of a share partition, `false` means that the release of
    /// the member's records there has yet to come.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl PartialEq for ShareSessionEnd {
    /// True if both belong to the same session.
    fn eq(&self, other: &ShareSessionEnd) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ShareSessionEnd {}

/// A request within its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareSessionContext {
    /// The partitions to read.
    pub wanted: Vec<ShareSessionPartition>,
    /// The number of fetches that might acquire records after the session's first request.
    pub fetches: usize,
    /// Shows whether the session has ended meanwhile.
    pub end: ShareSessionEnd,
    /// A session that ended to make room; the caller releases its member's records.
    pub displaced: Option<ShareSessionKey>,
}

impl ShareSessionContext {
    fn of(session: &ShareSession, wanted: Vec<ShareSessionPartition>) -> ShareSessionContext {
        let (fetches, end) = (session.fetches, session.end.clone());
        ShareSessionContext { wanted, fetches, end, displaced: None }
    }
}

#[derive(Debug)]
struct ShareSession {
    epoch: i32,
    fetches: usize,
    connection: u64,
    holder: Holder,
    /// Position of the session among all sessions by age.
    number: u64,
    partitions: Vec<ShareSessionPartition>,
    /// Position of each partition in `partitions`.
    index: HashMap<TopicIdPartition, usize>,
    end: ShareSessionEnd,
}

impl Drop for ShareSession {
    fn drop(&mut self) {
        self.end.0.store(true, Ordering::Release);
    }
}

impl ShareSession {
    fn add(&mut self, id: TopicIdPartition, is_new: bool) {
        let place = self.partitions.len();
        if let std::collections::hash_map::Entry::Vacant(free) = self.index.entry(id) {
            free.insert(place);
            self.partitions.push(ShareSessionPartition { id, is_new });
        }
    }

    fn forget(&mut self, ids: &[TopicIdPartition]) {
        let mut gone = false;
        for id in ids {
            gone |= self.index.remove(id).is_some();
        }
        if gone {
            let index = &mut self.index;
            self.partitions.retain(|partition| index.contains_key(&partition.id));
            for (place, partition) in self.partitions.iter().enumerate() {
                index.insert(partition.id, place);
            }
        }
    }

    fn advance(&mut self) {
        self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
    }
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<ShareSessionKey, ShareSession>,
    by_connection: HashMap<u64, Vec<ShareSessionKey>>,
    by_group: HashMap<Arc<str>, usize>,
    /// Number of sessions of each holder.
    counts: Counts<Holder>,
    next_number: u64,
}

impl State {
    fn remove(&mut self, key: &ShareSessionKey) -> bool {
        let Some(session) = self.sessions.remove(key) else { return false };
        self.counts.remove(&session.holder, 1);
        if let Some(keys) = self.by_connection.get_mut(&session.connection) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.by_connection.remove(&session.connection);
            }
        }
        if let Some(count) = self.by_group.get_mut(&key.group) {
            *count -= 1;
            if *count == 0 {
                self.by_group.remove(&key.group);
            }
        }
        true
    }

    fn insert(&mut self, key: ShareSessionKey, session: ShareSession) {
        self.by_connection.entry(session.connection).or_default().push(key.clone());
        *self.by_group.entry(Arc::clone(&key.group)).or_default() += 1;
        self.counts.add(&session.holder, 1);
        self.sessions.insert(key, session);
    }

    /// Ends the oldest session of the holder with most sessions in favour of a holder with fewer. Returns the
    /// session's key.
    fn displace(&mut self, new: &Holder) -> Option<ShareSessionKey> {
        let larger = self.counts.larger(new)?;
        let sessions = self.sessions.iter().filter(|(_, session)| session.holder == *larger);
        let (oldest, _) = sessions.min_by_key(|(_, session)| session.number)?;
        let oldest = oldest.clone();
        self.remove(&oldest).then_some(oldest)
    }

    fn continued(
        &mut self,
        key: &ShareSessionKey,
        epoch: i32,
    ) -> Result<&mut ShareSession, ShareSessionError> {
        let session = self.sessions.get_mut(key).ok_or(ShareSessionError::NotFound)?;
        if session.epoch == epoch { Ok(session) } else { Err(ShareSessionError::InvalidEpoch) }
    }
}

/// All share sessions of this broker.
#[derive(Debug)]
pub struct ShareSessions {
    max: usize,
    state: Mutex<State>,
}

impl ShareSessions {
    /// Creates an empty cache for up to `max` sessions.
    pub fn new(max: usize) -> ShareSessions {
        ShareSessions { max, state: Mutex::default() }
    }

    /// Begins, continues or ends the session of a ShareFetch. Returns the partitions to read, none for the
    /// last request, and the session that ended to make room.
    pub fn begin(&self, request: ShareSessionRequest) -> Result<ShareSessionContext, ShareSessionError> {
        let ShareSessionRequest { key, epoch, connection, holder, added, forgotten, acknowledges, acquires } =
            request;
        let mut state = self.state.lock();
        match epoch {
            FINAL_EPOCH => {
                let session = state.sessions.get(&key).ok_or(ShareSessionError::NotFound)?;
                Ok(ShareSessionContext::of(session, Vec::new()))
            }
            INITIAL_EPOCH => {
                if acknowledges {
                    return Err(ShareSessionError::AcknowledgesFirst);
                }
                state.remove(&key);
                let mut displaced = None;
                if state.sessions.len() >= self.max {
                    displaced = Some(state.displace(&holder).ok_or(ShareSessionError::LimitReached)?);
                }
                let number = state.next_number;
                state.next_number += 1;
                let mut session = ShareSession {
                    epoch: 1,
                    fetches: 0,
                    connection,
                    holder,
                    number,
                    partitions: Vec::new(),
                    index: HashMap::default(),
                    end: ShareSessionEnd::default(),
                };
                added.into_iter().for_each(|id| session.add(id, false));
                let wanted =
                    session.partitions.iter().map(|one| ShareSessionPartition { is_new: true, ..*one });
                let begun =
                    ShareSessionContext { displaced, ..ShareSessionContext::of(&session, wanted.collect()) };
                state.insert(key, session);
                Ok(begun)
            }
            epoch => {
                let session = state.continued(&key, epoch)?;
                added.into_iter().for_each(|id| session.add(id, true));
                session.forget(&forgotten);
                session.advance();
                session.fetches = session.fetches.wrapping_add(usize::from(acquires));
                Ok(ShareSessionContext::of(session, session.partitions.clone()))
            }
        }
    }

    /// Continues the session of a ShareAcknowledge, and returns the flag of its end.
    pub fn acknowledges(
        &self,
        key: &ShareSessionKey,
        epoch: i32,
    ) -> Result<ShareSessionEnd, ShareSessionError> {
        let mut state = self.state.lock();
        let session = match epoch {
            INITIAL_EPOCH => return Err(ShareSessionError::InvalidEpoch),
            FINAL_EPOCH => state.sessions.get(key).ok_or(ShareSessionError::NotFound)?,
            epoch => {
                let session = state.continued(key, epoch)?;
                session.advance();
                session
            }
        };
        Ok(session.end.clone())
    }

    /// Records that an answer has named these partitions: a later answer names them only with records.
    pub fn note_listed(&self, key: &ShareSessionKey, ids: &[TopicIdPartition]) {
        if ids.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let Some(session) = state.sessions.get_mut(key) else { return };
        for id in ids {
            if let Some(place) = session.index.get(id) {
                session.partitions[*place].is_new = false;
            }
        }
    }

    /// Ends a session. Returns false if it has ended already: the member may have begun another session.
    pub fn end(&self, key: &ShareSessionKey, session: &ShareSessionEnd) -> bool {
        let mut state = self.state.lock();
        state.sessions.get(key).is_some_and(|known| known.end == *session) && state.remove(key)
    }

    /// Ends the sessions of a connection, and returns their keys.
    pub fn end_of_connection(&self, connection: u64) -> Vec<ShareSessionKey> {
        let mut state = self.state.lock();
        let keys = state.by_connection.get(&connection).cloned().unwrap_or_default();
        for key in &keys {
            state.remove(key);
        }
        keys
    }

    /// Ends all sessions.
    pub fn end_all(&self) {
        *self.state.lock() = State::default();
    }

    /// True if a member of the group has a session here.
    pub fn has_group(&self, group: &str) -> bool {
        self.state.lock().by_group.contains_key(group)
    }

    /// Number of sessions, and total number of their partitions.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        let partitions = state.sessions.values().map(|session| session.partitions.len());
        (state.sessions.len(), partitions.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::PartitionIndex;
    use thalweg_security::Principal;
    use thalweg_wire::Uuid;

    fn key(member: &str) -> ShareSessionKey {
        ShareSessionKey { group: "g".into(), member: member.into() }
    }

    fn request(member: &str, epoch: i32, added: &[i32]) -> ShareSessionRequest {
        ShareSessionRequest {
            key: key(member),
            epoch,
            connection: 7,
            holder: holder("ann"),
            added: added.iter().map(|index| id(*index)).collect(),
            forgotten: Vec::new(),
            acknowledges: false,
            acquires: true,
        }
    }

    fn holder(user: &str) -> Holder {
        Holder::of(&Arc::new(Principal::user(user)), [10, 0, 0, 1].into())
    }

    fn id(index: i32) -> TopicIdPartition {
        (Uuid::ZERO, PartitionIndex(index))
    }

    fn indexes(found: Result<ShareSessionContext, ShareSessionError>) -> Vec<(i32, bool)> {
        found.expect("the session goes on").wanted.iter().map(|one| (one.id.1.0, one.is_new)).collect()
    }

    #[test]
    fn a_session_remembers_its_partitions() {
        let sessions = ShareSessions::new(10);
        assert_eq!(indexes(sessions.begin(request("m", 0, &[0, 1]))), [(0, true), (1, true)]);
        assert_eq!(indexes(sessions.begin(request("m", 1, &[2, 0]))), [(0, false), (1, false), (2, true)]);
        sessions.note_listed(&key("m"), &[id(2)]);
        let forgets = ShareSessionRequest { forgotten: vec![id(0), id(5)], ..request("m", 2, &[]) };
        assert_eq!(indexes(sessions.begin(forgets)), [(1, false), (2, false)]);
        assert_eq!(sessions.counts(), (1, 2));
        let last = sessions.begin(request("m", FINAL_EPOCH, &[])).expect("it is there");
        assert_eq!(last.wanted, []);
        assert!(sessions.end(&key("m"), &last.end));
        assert_eq!(sessions.counts(), (0, 0));
    }

    #[test]
    fn epochs_count_the_requests() {
        let sessions = ShareSessions::new(10);
        assert_eq!(sessions.begin(request("m", 1, &[])), Err(ShareSessionError::NotFound));
        assert_eq!(sessions.begin(request("m", FINAL_EPOCH, &[])), Err(ShareSessionError::NotFound));
        assert_eq!(sessions.acknowledges(&key("m"), 1), Err(ShareSessionError::NotFound));
        sessions.begin(request("m", 0, &[0])).expect("it begins");
        assert_eq!(sessions.begin(request("m", 2, &[])), Err(ShareSessionError::InvalidEpoch));
        assert!(sessions.acknowledges(&key("m"), 1).is_ok());
        assert_eq!(sessions.acknowledges(&key("m"), 1), Err(ShareSessionError::InvalidEpoch));
        assert_eq!(sessions.acknowledges(&key("m"), 0), Err(ShareSessionError::InvalidEpoch));
        assert!(sessions.begin(request("m", 2, &[])).is_ok());
        let first = ShareSessionRequest { acknowledges: true, ..request("m", 0, &[]) };
        assert_eq!(sessions.begin(first), Err(ShareSessionError::AcknowledgesFirst));
        assert!(sessions.begin(request("m", 0, &[])).is_ok(), "it begins again");
        assert_eq!(sessions.counts(), (1, 0));
    }

    /// The number of fetches rotates the partitions; with the epoch, every second partition would never come
    /// first.
    #[test]
    fn fetches_are_counted_without_the_acknowledgements_between_them() {
        let sessions = ShareSessions::new(10);
        let counts = (0..4).map(|nth| {
            let fetches = sessions.begin(request("m", 2 * nth, &[0, 1])).expect("it goes on").fetches;
            if nth == 0 {
                sessions.begin(request("m", 1, &[])).expect("it goes on");
            } else {
                sessions.acknowledges(&key("m"), 2 * nth + 1).expect("it goes on");
            }
            fetches
        });
        assert_eq!(counts.collect::<Vec<_>>(), [0, 2, 3, 4]);
    }

    /// Kafka's consumers renew locks by a fetch without records.
    #[test]
    fn renewals_between_fetches_are_not_counted() {
        let sessions = ShareSessions::new(10);
        let fetches = (0..6).map(|epoch| {
            let renewal = ShareSessionRequest { acquires: epoch % 2 == 0, ..request("m", epoch, &[0, 1]) };
            sessions.begin(renewal).expect("it goes on").fetches
        });
        assert_eq!(fetches.collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn a_principal_with_all_sessions_gives_way_to_others() {
        let sessions = ShareSessions::new(4);
        let begin = |user: &str, member: &str| {
            sessions.begin(ShareSessionRequest { holder: holder(user), ..request(member, 0, &[0]) })
        };
        let displaced =
            |begun: Result<ShareSessionContext, ShareSessionError>| begun.map(|begun| begun.displaced);
        for member in ["e0", "e1", "e2", "e3"] {
            assert_eq!(displaced(begin("eve", member)), Ok(None));
        }
        assert_eq!(displaced(begin("eve", "e4")), Err(ShareSessionError::LimitReached), "as in Kafka");
        assert_eq!(displaced(begin("ann", "a0")), Ok(Some(key("e0"))), "the oldest");
        assert_eq!(displaced(begin("ann", "a1")), Ok(Some(key("e1"))));
        assert_eq!(displaced(begin("ann", "a2")), Err(ShareSessionError::LimitReached), "ann has as many");
        assert_eq!(displaced(begin("eve", "e0")), Err(ShareSessionError::LimitReached));
        let last = sessions.acknowledges(&key("a0"), FINAL_EPOCH).expect("it is there");
        assert!(sessions.end(&key("a0"), &last));
        assert_eq!(displaced(begin("eve", "e0")), Ok(None), "there is room again");
        assert_eq!(sessions.counts(), (4, 4));
    }

    #[test]
    fn fetches_learn_of_every_end_of_their_session() {
        let sessions = ShareSessions::new(2);
        let begin = |request| sessions.begin(request).expect("it begins");
        let first = begin(request("m", 0, &[0])).end;
        assert!(!first.is_over() && !begin(request("m", 1, &[])).end.is_over());
        let second = begin(request("m", 0, &[0])).end;
        assert!(first.is_over() && !second.is_over(), "the member began another");
        let last = begin(request("n", 0, &[0])).end;
        let by_bob = ShareSessionRequest { holder: holder("bob"), connection: 8, ..request("b", 0, &[0]) };
        let third = begin(by_bob).end;
        assert!(second.is_over() && !last.is_over(), "the older one gives way to another principal's");
        sessions.end_of_connection(8);
        assert!(third.is_over());
        assert!(sessions.end(&key("n"), &last) && last.is_over());
        let at_the_end = begin(request("m", 0, &[0])).end;
        sessions.end_all();
        assert!(at_the_end.is_over());
    }

    /// The last request of a session waits for its acknowledgements.
    #[test]
    fn last_request_of_a_session_does_not_end_the_next_one_of_its_member() {
        let sessions = ShareSessions::new(2);
        sessions.begin(request("m", 0, &[0])).expect("it begins");
        let by_fetch = sessions.begin(request("m", FINAL_EPOCH, &[])).expect("it is there").end;
        let by_acknowledge = sessions.acknowledges(&key("m"), FINAL_EPOCH).expect("it is there");
        let next = sessions.begin(request("m", 0, &[0])).expect("it begins again").end;
        assert!(!sessions.end(&key("m"), &by_fetch) && !sessions.end(&key("m"), &by_acknowledge));
        assert!(!next.is_over() && sessions.counts() == (1, 1));
        assert!(sessions.end(&key("m"), &next));
    }

    #[test]
    fn there_are_no_more_sessions_than_allowed_and_they_end_with_their_connection() {
        let sessions = ShareSessions::new(2);
        for member in ["a", "b"] {
            sessions.begin(request(member, 0, &[0])).expect("it begins");
        }
        assert_eq!(sessions.begin(request("c", 0, &[])), Err(ShareSessionError::LimitReached));
        assert!(sessions.begin(request("a", 0, &[])).is_ok(), "it takes its own place");
        assert_eq!(sessions.end_of_connection(8), []);
        assert!(sessions.has_group("g"));
        assert_eq!(sessions.end_of_connection(7).len(), 2);
        assert!(!sessions.has_group("g"));
        assert_eq!(sessions.begin(request("c", 0, &[])).map(|found| found.wanted.len()), Ok(0));
    }
}
