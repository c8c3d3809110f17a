//! One fetcher: a task that follows one leader broker for many partitions over one connection.
//!
//! It loops: apply changes of the image, fetch all partitions that are not paused, wait for the answer,
//! process it. One request is in flight at a time. A failing partition is paused alone; a failing connection
//! pauses the fetcher.

use super::Replication;
use super::answer::{FollowerAction, backoff, judge};
use super::durability::{OwedFlushes, OwingStarts};
use super::session::FetchSession;
use crate::partition::{
    Divergence, FetchPosition, FollowError, FollowerAppend, LeaderBounds, Partition, Truncation,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thalweg_dial::{ClientError, Connection, RequestOptions};
use thalweg_membership::PeerError;
use thalweg_metadata::{BrokerId, PartitionIndex, TopicIdPartition};
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_watch as watch;
use thalweg_wire::list_offsets::{EARLIEST_TIMESTAMP, LATEST_TIMESTAMP};
use thalweg_wire::request::fetch_request::{FetchPartition, ReplicaState};
use thalweg_wire::request::fetch_response::PartitionData;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::{FetchRequest, FetchResponse, ListOffsetsRequest};
use thalweg_wire::{ErrorCode, Records};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first version of Fetch with topic ids.
const FETCH_VERSION_MIN: i16 = 13;
/// Interval of checks for the broker's registration.
const BEFORE_REGISTRATION: Duration = Duration::from_millis(10);
/// Pause of a partition whose log is closed, as in an offline directory.
const CLOSED: Duration = Duration::from_secs(1);
/// Pause of a partition that is throttled or whose disk is full.
const HELD_BACK: Duration = Duration::from_millis(100);

/// A partition to follow, with the leader epoch.
#[derive(Debug, Clone)]
pub(super) struct FollowTarget {
    pub partition: Arc<Partition>,
    pub epoch: LeaderEpoch,
}

/// Commands to a fetcher: the latest for each partition.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    changes: Mutex<BTreeMap<TopicIdPartition, Option<FollowTarget>>>,
    news: Notify,
}

impl Inbox {
    pub fn add(&self, key: TopicIdPartition, follow: FollowTarget) {
        self.put(key, Some(follow));
    }

    pub fn remove(&self, key: TopicIdPartition) {
        self.put(key, None);
    }

    fn put(&self, key: TopicIdPartition, change: Option<FollowTarget>) {
        self.changes.lock().insert(key, change);
        self.news.notify_one();
    }
}

#[derive(Debug)]
struct FollowedPartition {
    partition: Arc<Partition>,
    epoch: LeaderEpoch,
    failures: u32,
    /// The last failure in the log of a series.
    logged: Option<String>,
    /// End of the partition's pause.
    rests_until: Option<Instant>,
    /// True if the partition waits for another leader epoch.
    stopped: bool,
    /// True if a log with a lost beginning was compared with the leader's log start.
    is_compared: bool,
    /// Consecutive failed comparisons: other answers do not end this series.
    comparison_failures: u32,
    /// Number of times that the leader took back records it had sent.
    taken_back: u32,
}

impl FollowedPartition {
    /// Notes whether the leader returned its log start for a comparison. If not, the partition pauses, longer
    /// each time.
    fn note_comparison(&mut self, is_compared: bool, now: Instant, longest: Duration) {
        self.is_compared = is_compared;
        if !is_compared {
            self.comparison_failures = self.comparison_failures.saturating_add(1);
            self.rests_until = Some(now + backoff(self.comparison_failures, longest));
        }
    }
}

/// Why a round got no answer.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("the leader serves Fetch only up to version {0}, which does not name topics by id")]
    TooOld(i16),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Replicates the followed partitions of one leader: a task with one connection and one Fetch at a time.
pub(super) struct Fetcher {
    replication: Arc<Replication>,
    leader: BrokerId,
    inbox: Arc<Inbox>,
    stopping: watch::Receiver<bool>,
    followed: BTreeMap<TopicIdPartition, FollowedPartition>,
    owing: OwedFlushes,
    owing_starts: OwingStarts,
    session: FetchSession,
    connection: Option<Connection>,
    failures: u32,
    /// Number of online log directories at the last check, and number of replicas handed over.
    seen: (usize, u64),
}

impl Fetcher {
    pub fn new(
        replication: Arc<Replication>,
        leader: BrokerId,
        inbox: Arc<Inbox>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let (followed, owing, session) = (BTreeMap::new(), OwedFlushes::default(), FetchSession::default());
        let owing_starts = OwingStarts::default();
        let seen = (replication.log_dirs.online_count(), replication.directories.hand_overs());
        let connection = None;
        Self {
            replication,
            leader,
            inbox,
            stopping,
            followed,
            owing,
            owing_starts,
            session,
            connection,
            failures: 0,
            seen,
        }
    }

    /// Runs until the broker stops.
    pub async fn run(mut self) {
        let mut stopping = self.stopping.clone();
        while !*stopping.borrow() {
            self.take_inbox();
            self.end_rests(Instant::now());
            self.leave_out_leaving();
            self.leave_out_unusable();
            self.make_durable().await;
            self.report_log_starts();
            if self.replication.broker.epoch() < 0 {
                // A fetch needs the broker epoch, which registration assigns.
                self.pause(Some(Instant::now() + BEFORE_REGISTRATION)).await;
                continue;
            }
            if self.session.is_empty() {
                let next = self.next_rest_end();
                if next.is_none() {
                    self.connection = None;
                    self.session.reset();
                }
                self.pause(next).await;
                continue;
            }
            // A round may be dropped while waiting for the leader, but never while working on a log.
            let answer = tokio::select! {
                biased;
                answer = self.fetch() => answer,
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            match answer {
                Ok(response) => self.work_through(response).await,
                Err(error) => self.failed(&error).await,
            }
        }
    }

    /// Pauses until `until`, a command in the inbox, or the stop of the broker.
    async fn pause(&mut self, until: Option<Instant>) {
        let rest = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = rest => {}
            () = self.inbox.news.notified() => {}
            _ = self.stopping.wait_for(|stop| *stop) => {}
        }
    }

    fn take_inbox(&mut self) {
        let changes = std::mem::take(&mut *self.inbox.changes.lock());
        for (key, change) in changes {
            let Some(FollowTarget { partition, epoch }) = change else {
                self.followed.remove(&key);
                self.owing.forget(&key);
                self.session.remove(&key);
                continue;
            };
            // Only another leader epoch restarts fetching.
            if self.followed.get(&key).is_some_and(|known| known.epoch >= epoch) {
                continue;
            }
            tracing::debug!(?partition, leader = %self.leader, epoch = epoch.0, "Follows");
            let position = partition.fetch_position(epoch);
            if partition.with_log(|log| log.flush_is_due()) {
                self.owing.add(key, &partition);
            }
            let followed = FollowedPartition {
                partition,
                epoch,
                failures: 0,
                logged: None,
                rests_until: None,
                stopped: false,
                is_compared: false,
                comparison_failures: 0,
                taken_back: 0,
            };
            self.followed.insert(key, followed);
            self.go_on(key, position);
        }
    }

    /// Sets the next fetch position of a partition, or stops fetching it if it is no longer followed.
    fn go_on(&mut self, key: TopicIdPartition, position: Result<FetchPosition, FollowError>) {
        let Some(followed) = self.followed.get_mut(&key) else { return };
        match position {
            // A partition that accepts no records would count as in sync if it lacks none, and then delay the
            // leader.
            Ok(_) if followed.partition.is_closed() => {
                followed.rests_until = Some(Instant::now() + CLOSED);
                self.session.remove(&key);
            }
            Ok(_)
                if followed.partition.is_held_back()
                    || self.replication.directories.is_away(key.0, key.1)
                    || self.replication.leaving.get(&key).is_some() =>
            {
                followed.rests_until = Some(Instant::now() + HELD_BACK);
                self.session.remove(&key);
            }
            Ok(position) => {
                if position.owes_log_start {
                    self.owing_starts.add(key);
                }
                let bytes = self.replication.settings().fetch_max_bytes;
                self.session.set(key, partition_at(key.1, followed.epoch, position, bytes));
            }
            Err(_) => self.session.remove(&key),
        }
    }

    /// Continues at the current log end: the log may have been cut since the fetch, because of damage.
    fn go_on_at_end(&mut self, key: TopicIdPartition) {
        let Some(followed) = self.followed.get(&key) else { return };
        let position = followed.partition.fetch_position(followed.epoch);
        self.go_on(key, position);
    }

    /// Removes leaving replicas from the session. No fetch is in flight here.
    fn leave_out_leaving(&mut self) {
        for key in self.replication.leaving.keys() {
            let Some(followed) = self.followed.get_mut(&key) else { continue };
            if self.session.wants(&key) {
                followed.rests_until = Some(Instant::now() + HELD_BACK);
                self.session.remove(&key);
            }
            if self.replication.leaving.note_quiet(&key) {
                self.replication.context.damage_found.notify_one();
            }
        }
    }

    /// Stops fetching replicas whose directories have failed since the last check, or that were handed over
    /// because their directories are full.
    fn leave_out_unusable(&mut self) {
        let Replication { log_dirs, directories, .. } = &*self.replication;
        let now = (log_dirs.online_count(), directories.hand_overs());
        if std::mem::replace(&mut self.seen, now) == now {
            return;
        }
        let is_unusable = |key: &TopicIdPartition, followed: &FollowedPartition| {
            followed.partition.is_closed() || directories.is_away(key.0, key.1)
        };
        let unusable = self.followed.iter().filter(|(key, followed)| is_unusable(key, followed));
        let unusable: Vec<_> = unusable.map(|(key, _)| *key).collect();
        unusable.into_iter().for_each(|key| self.go_on_at_end(key));
    }

    fn end_rests(&mut self, now: Instant) {
        let rested: Vec<_> = self
            .followed
            .iter_mut()
            .filter(|(_, followed)| followed.rests_until.is_some_and(|until| until <= now))
            .map(|(key, followed)| {
                followed.rests_until = None;
                (*key, followed.partition.fetch_position(followed.epoch))
            })
            .collect();
        for (key, position) in rested {
            self.go_on(key, position);
        }
    }

    /// Syncs the state that the next fetch reports. A partition whose sync fails is not fetched until a sync
    /// succeeds.
    async fn make_durable(&mut self) {
        let followed = &self.followed;
        let is_fetched = |key: &TopicIdPartition| {
            followed.get(key).is_some_and(|followed| followed.rests_until.is_none() && !followed.stopped)
        };
        for key in self.owing.pay(is_fetched).await {
            self.rest(key);
        }
    }

    /// Includes newly synced log starts in the next fetch, and requests the sync of the others.
    fn report_log_starts(&mut self) {
        for key in self.owing_starts.take() {
            // A paused partition is checked when it is fetched again.
            let Some(followed) = self.followed.get(&key).filter(|_| self.session.wants(&key)) else {
                continue;
            };
            match followed.partition.fetch_position(followed.epoch) {
                Ok(position) if position.owes_log_start => self.owing_starts.add(key),
                position => self.go_on(key, position),
            }
        }
        if self.owing_starts.any() {
            self.replication.log_starts_owed.notify_one();
        }
    }

    fn next_rest_end(&self) -> Option<Instant> {
        self.followed.values().filter_map(|followed| followed.rests_until).min()
    }

    async fn fetch(&mut self) -> Result<FetchResponse, RoundError> {
        let connection = self.connect().await?;
        let version = connection.version_of::<FetchRequest>().map_err(ClientError::from)?;
        if version < FETCH_VERSION_MIN {
            return Err(RoundError::TooOld(version));
        }
        let settings = self.replication.settings();
        let session = self.session.request();
        // A paused partition must not wait for the others.
        let rest = self.next_rest_end().map(|end| end.saturating_duration_since(Instant::now()));
        let waits = [Some(settings.fetch_wait_max), rest, self.owing_starts.wait_max()];
        let wait = waits.into_iter().flatten().min().unwrap_or_default();
        let (replica_id, replica_epoch) =
            (self.replication.broker.node_id.0, self.replication.broker.epoch());
        let mut request = FetchRequest {
            max_wait_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: settings.fetch_min_bytes,
            max_bytes: settings.fetch_response_max_bytes,
            session_id: session.id,
            session_epoch: session.epoch,
            topics: session.topics,
            forgotten_topics_data: session.forgotten,
            ..FetchRequest::default()
        };
        if version >= 15 {
            request.replica_state = ReplicaState { replica_id, replica_epoch };
        } else {
            request.replica_id = replica_id;
        }
        let options = RequestOptions { version: Some(version), timeout: Some(settings.socket_timeout) };
        Ok(connection.send_with(&request, options).await?)
    }

    async fn connect(&mut self) -> Result<Connection, RoundError> {
        if let Some(connection) = self.connection.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        self.session.reset();
        let timeout = self.replication.settings().socket_timeout;
        let connection = self.replication.peers.connect(self.leader, "fetcher", timeout).await?;
        tracing::debug!(leader = %self.leader, address = %connection.peer(), "Fetcher connected");
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Handles the failure of a whole round.
    async fn failed(&mut self, error: &RoundError) {
        if self.failures == 0 {
            let partitions = self.followed.len();
            tracing::warn!(leader = %self.leader, partitions, %error, "Failed to fetch from a leader, retrying");
        }
        if let Some(connection) = self.connection.take() {
            connection.close();
        }
        self.rest_all().await;
    }

    /// Pauses fetching, longer after each consecutive failure, and then starts a new session.
    async fn rest_all(&mut self) {
        self.session.reset();
        self.failures = self.failures.saturating_add(1);
        let rest = backoff(self.failures, self.replication.settings().fetch_backoff);
        self.pause(Some(Instant::now() + rest)).await;
    }

    async fn work_through(&mut self, response: FetchResponse) {
        match ErrorCode::from_i16(response.error_code) {
            Some(ErrorCode::None) => {
                self.failures = 0;
                self.session.answered(response.session_id);
            }
            Some(ErrorCode::FetchSessionIdNotFound) => {
                self.session.lost();
                return;
            }
            code => {
                tracing::info!(leader = %self.leader, ?code, "Restarting a fetch session");
                self.rest_all().await;
                return;
            }
        }
        for topic in response.responses {
            for data in topic.partitions {
                let key = (topic.topic_id, PartitionIndex(data.partition_index));
                if self.session.wants(&key) {
                    self.act_on(key, data).await;
                }
            }
        }
    }

    /// Handles one partition's part of a Fetch response.
    async fn act_on(&mut self, key: TopicIdPartition, data: PartitionData) {
        let Some(requested) = self.session.partition(&key) else { return };
        let from = Offset(requested.fetch_offset);
        let Some(FollowedPartition { partition, epoch, .. }) = self.followed.get(&key) else { return };
        let (partition, epoch) = (Arc::clone(partition), *epoch);
        if requested.current_leader_epoch != epoch.0 {
            return;
        }
        match judge(&data) {
            FollowerAction::Take => {
                let records = match &data.records {
                    Some(Records::Inline(bytes)) => bytes.clone(),
                    _ => Bytes::new(),
                };
                let (high_watermark, start) = (Offset(data.high_watermark), Offset(data.log_start_offset));
                let taken = partition.append_from_leader(epoch, from, &records, high_watermark, start);
                if let Ok(FollowerAppend { flush_due: true, .. }) = taken {
                    self.owing.add(key, &partition);
                }
                self.note_appended(key, from, !records.is_empty(), taken);
                self.compare_beginning(key, &partition, epoch).await;
            }
            FollowerAction::Truncate(leader) => {
                self.session.not_taken();
                self.truncate(key, partition, epoch, from, leader).await;
            }
            FollowerAction::OutOfRange => {
                let lost_from = (data.log_start_offset >= 0).then_some(Offset(data.log_start_offset));
                self.restart_in_leader_log(key, partition, epoch, from, lost_from).await;
            }
            FollowerAction::Retry(code) => {
                tracing::debug!(
                    ?partition,
                    leader = %self.leader,
                    epoch = epoch.0,
                    ?code,
                    "Leader did not serve a partition"
                );
                self.rest(key);
            }
            FollowerAction::Stop(code) => {
                tracing::debug!(
                    ?partition,
                    leader = %self.leader,
                    epoch = epoch.0,
                    ?code,
                    "Waiting for a new leader epoch"
                );
                self.session.remove(&key);
                if let Some(followed) = self.followed.get_mut(&key) {
                    followed.stopped = true;
                }
            }
        }
    }

    /// Continues behind the appended records, or pauses if nothing could be appended. `received_any` is true
    /// if the leader sent records.
    fn note_appended(
        &mut self,
        key: TopicIdPartition,
        from: Offset,
        received_any: bool,
        taken: Result<FollowerAppend, FollowError>,
    ) {
        let Some(followed) = self.followed.get_mut(&key) else { return };
        match taken {
            Ok(FollowerAppend { next, .. }) => {
                followed.failures = 0;
                followed.logged = None;
                // An unchanged position need not be sent, unless the leader sent an unusable part, such as
                // the beginning of a batch.
                let sent = self.session.partition(&key).map(|sent| sent.log_start_offset);
                let is_sent = sent == Some(next.log_start_offset.0) && !next.owes_log_start;
                if next.offset != from || received_any || !is_sent {
                    self.go_on(key, Ok(next));
                }
            }
            Err(FollowError::Void(_)) => {
                self.session.not_taken();
                self.go_on_at_end(key);
            }
            Err(error) => {
                // Log a series of equal failures once: retries continue as long as a disk is full.
                let text = error.to_string();
                if followed.logged.as_ref() != Some(&text) {
                    let message = if error.is_damaged_batch() {
                        "Leader's batch at this offset is damaged: fetching it again, until the leader has checked it and hands over"
                    } else {
                        "Failed to append replicated records"
                    };
                    tracing::error!(partition = ?followed.partition, leader = %self.leader, from = from.0, %error, "{message}");
                    followed.logged = Some(text);
                }
                self.rest(key);
            }
        }
    }

    async fn truncate(
        &mut self,
        key: TopicIdPartition,
        partition: Arc<Partition>,
        epoch: LeaderEpoch,
        from: Offset,
        leader: Divergence,
    ) {
        tracing::info!(
            ?partition,
            leader = %self.leader,
            epoch = epoch.0,
            from = from.0,
            diverging_epoch = leader.leader_epoch.0,
            end_offset = leader.end_offset.0,
            "Log diverges from the leader's"
        );
        let is_taken_back = self
            .change_log(key, move || {
                let Truncation { next, is_taken_back } = partition.truncate_to_leader(epoch, from, leader)?;
                Ok((next, is_taken_back))
            })
            .await
            .unwrap_or_default();
        // A leader whose epochs do not match its records would resend and truncate the same records forever
        // without a pause.
        if is_taken_back && let Some(followed) = self.followed.get_mut(&key) {
            followed.taken_back = followed.taken_back.saturating_add(1);
            followed.failures = followed.failures.max(followed.taken_back);
            self.rest(key);
        }
    }

    /// Changes a log on a blocking thread, and continues at its new end. Returns the result of the work, if
    /// it succeeded.
    async fn change_log<T: Send + 'static>(
        &mut self,
        key: TopicIdPartition,
        work: impl FnOnce() -> Result<(FetchPosition, T), FollowError> + Send + 'static,
    ) -> Option<T> {
        let done = self.replication.log_dirs.disk().spawn(work).await.expect("work on a log does not panic");
        match done {
            Err(error @ (FollowError::Append(_) | FollowError::Log(_))) => {
                tracing::error!(topic = %key.0, partition = %key.1, %error, "Failed to truncate a log");
                self.rest(key);
                None
            }
            Err(FollowError::Void(_)) => {
                self.go_on_at_end(key);
                None
            }
            Ok((position, found)) => {
                self.go_on(key, Ok(position));
                Some(found)
            }
        }
    }

    /// Handles a log end outside the leader's log: requests the leader's bounds, and continues within them.
    async fn restart_in_leader_log(
        &mut self,
        key: TopicIdPartition,
        partition: Arc<Partition>,
        epoch: LeaderEpoch,
        from: Offset,
        lost_from: Option<Offset>,
    ) {
        let (end, start) = match self.leader_offsets(&partition, epoch).await {
            Ok(found) => found,
            Err(reason) => {
                tracing::warn!(
                    ?partition,
                    leader = %self.leader,
                    reason,
                    "Leader did not return its log start and end offsets"
                );
                self.rest(key);
                return;
            }
        };
        let is_repeated = self.followed.get(&key).is_some_and(|followed| followed.failures > 0);
        if !is_repeated {
            tracing::warn!(
                ?partition,
                leader = %self.leader,
                epoch = epoch.0,
                from = from.0,
                start = start.0,
                end = end.0,
                "Leader's log does not contain the next offset, or not the epoch of the last batch here"
            );
        }
        let bounds = LeaderBounds { start, end, lost_from };
        self.change_log(key, move || Ok((partition.reset_to_leader(epoch, from, bounds)?, ()))).await;
        if let Some(followed) = self.followed.get_mut(&key) {
            followed.failures = followed.failures.saturating_add(1);
            // The leader repeats its answer: pause before the next request.
            if followed.failures > 1 {
                self.rest(key);
            }
        }
    }

    /// Compares the beginning of the log with the leader's, once per leader epoch. If the beginning is lost
    /// because a leader lacked it, this leader may have it.
    async fn compare_beginning(&mut self, key: TopicIdPartition, partition: &Partition, epoch: LeaderEpoch) {
        let is_done = |followed: &FollowedPartition| followed.is_compared || followed.stopped;
        if !partition.lacks_what_a_leader_lacked() || self.followed.get(&key).is_none_or(is_done) {
            return;
        }
        let found = self.leader_offsets(partition, epoch).await;
        match &found {
            Ok((_, start)) => partition.compare_beginning(epoch, *start),
            Err(reason) => {
                tracing::debug!(?partition, leader = %self.leader, reason, "Leader did not return its log start");
                // The leader answers at once for a re-added partition, but not for an idle one.
                self.session.remove(&key);
            }
        }
        let longest: Duration = self.replication.settings().fetch_backoff;
        if let Some(followed) = self.followed.get_mut(&key) {
            followed.note_comparison(found.is_ok(), Instant::now(), longest);
        }
    }

    /// The end and start of the leader's log.
    async fn leader_offsets(
        &mut self,
        partition: &Partition,
        epoch: LeaderEpoch,
    ) -> Result<(Offset, Offset), String> {
        let connection = self.connection.clone().ok_or("the connection was closed")?;
        let mut offsets = [Offset::NONE; 2];
        for (offset, timestamp) in offsets.iter_mut().zip([LATEST_TIMESTAMP, EARLIEST_TIMESTAMP]) {
            let request = ListOffsetsRequest {
                replica_id: self.replication.broker.node_id.0,
                topics: vec![ListOffsetsTopic {
                    name: partition.topic.to_string(),
                    partitions: vec![ListOffsetsPartition {
                        partition_index: partition.index.0,
                        current_leader_epoch: epoch.0,
                        timestamp,
                    }],
                }],
                ..ListOffsetsRequest::default()
            };
            let response = connection.send(&request).await.map_err(|error| error.to_string())?;
            let topic = response.topics.first();
            let found = topic.and_then(|topic| topic.partitions.first()).ok_or("the answer is empty")?;
            if found.error_code != 0 || found.offset < 0 {
                return Err(format!("{:?}", ErrorCode::from_i16(found.error_code)));
            }
            *offset = Offset(found.offset);
        }
        Ok((offsets[0], offsets[1]))
    }

    /// Leaves a partition out of the fetches for a while.
    fn rest(&mut self, key: TopicIdPartition) {
        self.session.remove(&key);
        let longest: Duration = self.replication.settings().fetch_backoff;
        if let Some(followed) = self.followed.get_mut(&key).filter(|followed| !followed.stopped) {
            followed.failures = followed.failures.saturating_add(1);
            followed.rests_until = Some(Instant::now() + backoff(followed.failures, longest));
        }
    }
}

fn partition_at(
    index: PartitionIndex,
    epoch: LeaderEpoch,
    position: FetchPosition,
    max_bytes: i32,
) -> FetchPartition {
    FetchPartition {
        partition: index.0,
        current_leader_epoch: epoch.0,
        fetch_offset: position.offset.0,
        last_fetched_epoch: position.last_fetched_epoch.map_or(-1, |epoch| epoch.0),
        log_start_offset: position.log_start_offset.0,
        partition_max_bytes: max_bytes,
        ..FetchPartition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::{NODE, partition_as, registration};
    use thalweg_log::disk::Disk;
    use thalweg_log::{Clock, Home, LogConfig, PartitionLog, TopicPartition};

    #[test]
    fn partition_rests_longer_each_time_that_its_beginning_is_not_compared() {
        let dir = tempfile::tempdir().expect("a directory");
        let (home, name) = (Home::new(Disk::real(), dir.path().join("t-0")), TopicPartition::new("t", 0));
        let log = PartitionLog::create(home, name, None, Arc::new(LogConfig::default()), Clock::manual(0));
        let mut followed = FollowedPartition {
            partition: Arc::new(partition_as(log.expect("creates"), &registration(NODE, 4))),
            epoch: LeaderEpoch(4),
            failures: 0,
            logged: None,
            rests_until: None,
            stopped: false,
            is_compared: false,
            comparison_failures: 0,
            taken_back: 0,
        };
        let (now, longest) = (Instant::now(), Duration::from_millis(70));
        let mut rests = Vec::new();
        for _ in 0..4 {
            followed.note_comparison(false, now, longest);
            rests.push(followed.rests_until.take().expect("it rests") - now);
            // Records arrive in between.
            followed.failures = 0;
        }
        assert_eq!(rests, [20, 40, 70, 70].map(Duration::from_millis));
        followed.note_comparison(true, now, longest);
        assert_eq!((followed.is_compared, followed.rests_until), (true, None));
    }
}
