//! Members of a share group (KIP-932), implemented without the client: they acquire records, accept, release
//! and reject them, forget some, and die. `share_ledger` has the invariants.
//!
//! From time to time, an administrator makes all members leave and sets the group's offsets, from which all
//! records are delivered again.

use crate::chance::Chance;
use crate::clients::{AGAIN, Clients};
use crate::history::TOPIC;
use crate::share_ledger::{AcknowledgeType, AcknowledgementOutcome, AcquiredRecords, Holder};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_client::{Admin, Cluster, Connection, CoordinatorKind};
use thalweg_record::{DecompressBuffer, batches};
use thalweg_wire::request::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use thalweg_wire::request::share_acknowledge_request as acknowledge;
use thalweg_wire::request::share_fetch_request::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ForgottenTopic,
};
use thalweg_wire::request::share_fetch_response::PartitionData;
use thalweg_wire::request::{
    AlterShareGroupOffsetsRequest, ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest,
};
use thalweg_wire::{ErrorCode, Records, Uuid};
use tokio::time::Instant;

/// The id of the share group.
pub(crate) const QUEUE: &str = "queue";
/// `group.share.session.timeout.ms` of the brokers.
pub(crate) const SESSION: Duration = Duration::from_secs(6);
/// `group.share.record.lock.duration.ms` of the brokers.
pub(crate) const LOCK: Duration = Duration::from_secs(3);
/// Interval between a member's heartbeats.
const BEAT: Duration = Duration::from_millis(500);
/// Maximum wait of a fetch.
const WAIT_MS_MAX: u64 = 400;
/// Time after which a request with a lost answer has taken effect or never will.
const OVER: Duration = Duration::from_secs(15);
const LEAVES: i32 = -1;

/// The member is no longer in the group: it starts again.
struct LostMembership;

/// The outcome of a request to set the group's offsets.
enum AlterOutcome {
    Done,
    Refused,
    /// No acknowledged member yet.
    NoGroup,
    /// No answer, or some partitions failed. The request may still arrive.
    Unknown,
}

/// A session with a leader, which ends with its connection.
struct Session {
    number: u64,
    connection: Connection,
    epoch: i32,
    partitions: BTreeSet<i32>,
    held: Vec<AcquiredRecords>,
}

impl Session {
    /// Adds acquired records, which replace records whose lock has expired unnoticed.
    fn hold(&mut self, held: AcquiredRecords) {
        let before = std::mem::take(&mut self.held);
        for old in before {
            if old.partition != held.partition || old.last < held.first || old.first > held.last {
                self.held.push(old);
                continue;
            }
            if old.first < held.first {
                self.held.push(AcquiredRecords { last: held.first - 1, ..old });
            }
            if old.last > held.last {
                self.held.push(AcquiredRecords { first: held.last + 1, ..old });
            }
        }
        self.held.push(held);
    }
}

/// An acknowledgement in a request.
struct SentAcknowledgement {
    held: AcquiredRecords,
    acknowledge_type: AcknowledgeType,
}

/// The life of a member.
struct Member<'a> {
    clients: &'a Clients,
    cluster: Cluster,
    id: u32,
    life: u32,
    epoch: i32,
    topic: Uuid,
    assigned: BTreeSet<i32>,
    /// True if the next heartbeat has all fields, which requests the assignment: an answer with it may have
    /// been lost.
    is_full: bool,
    next_beat: Instant,
    next_look: Instant,
    sessions: BTreeMap<i32, Session>,
    /// Number of sessions so far.
    count: u64,
}

impl Clients {
    /// Joins, consumes and leaves repeatedly, as long as the future is polled.
    pub(crate) async fn be_share_member(self, id: u32) {
        let mut chance = Chance::new(self.seed, 6000 + u64::from(id));
        // A member that stopped without leaving keeps its connections, and its records until their locks
        // expire.
        let mut silent = None;
        for life in 0.. {
            while self.attendance.is_closed.load(Ordering::SeqCst) {
                tokio::time::sleep(AGAIN).await;
            }
            self.attendance.present.fetch_add(1, Ordering::SeqCst);
            let mut member = Member {
                clients: &self,
                cluster: self.cluster(&format!("share-member-{id}")).await,
                id,
                life,
                epoch: 0,
                topic: Uuid::default(),
                assigned: BTreeSet::new(),
                is_full: true,
                next_beat: Instant::now(),
                next_look: Instant::now(),
                sessions: BTreeMap::new(),
                count: 0,
            };
            let ended = {
                let mut living = std::pin::pin!(member.live(&mut chance));
                tokio::select! {
                    biased;
                    ended = &mut living => ended,
                    () = self.ends() => {
                        // A leader with such a session learns only by its next write that the group's offset
                        // was set, as in Kafka. In the end there may be no further write.
                        drop(silent.take());
                        living.await
                    }
                }
            };
            self.attendance.present.fetch_sub(1, Ordering::SeqCst);
            match chance.below(3) {
                0 if ended.is_ok() => silent = Some(member),
                1 if ended.is_ok() => member.leave().await,
                _ => drop(silent.take()),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Returns when the faults are over.
    async fn ends(&self) {
        while !self.ending.load(Ordering::SeqCst) {
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Sets the offsets of the group now and then, and watches them in the end.
    pub(crate) async fn administer_queue(self) {
        let mut chance = Chance::new(self.seed, 6999);
        let mut next = Instant::now() + Duration::from_millis(chance.between(3_000, 12_000));
        loop {
            tokio::time::sleep(AGAIN).await;
            if self.ending.load(Ordering::SeqCst) {
                self.describe_queue().await;
            } else if Instant::now() >= next {
                self.begin_queue_again(&mut chance).await;
                next = Instant::now() + Duration::from_millis(chance.between(5_000, 15_000));
            }
        }
    }

    async fn describe_queue(&self) {
        let admin = Admin::new(self.cluster("share-administrator").await);
        let admin = admin.with_timeout(Duration::from_secs(3));
        // The written start offset may stay before the last final records; the lag includes them.
        let ends: BTreeMap<i32, i64> =
            (0..self.partitions).map(|partition| (partition, self.end_of(partition))).collect();
        let Ok(described) = admin.list_share_group_offsets(QUEUE).await else { return };
        for (at, offset) in described {
            let Ok(offset) = offset else { continue };
            let end = ends.get(&at.partition).copied().unwrap_or(0);
            let described = if offset.lag == Some(0) { end } else { offset.start.0.min(end) };
            self.history.with(|known| known.queue.describes(at.partition, described));
        }
    }

    /// The end of the records read from a partition.
    fn end_of(&self, partition: i32) -> i64 {
        self.history.with(|known| {
            let last = known.read.get(&partition).and_then(|read| read.last_key_value());
            last.map_or(0, |(at, _)| at + 1)
        })
    }

    /// Waits until the group has no members, and sets its offsets.
    async fn begin_queue_again(&self, chance: &mut Chance) {
        self.attendance.is_closed.store(true, Ordering::SeqCst);
        while self.attendance.present.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(AGAIN).await;
        }
        let starts: BTreeMap<i32, i64> = (0..self.partitions)
            .map(|partition| {
                let end = u64::try_from(self.end_of(partition)).unwrap_or(0);
                (partition, i64::try_from(chance.below(end + 1)).unwrap_or(0))
            })
            .collect();
        let mut is_certain = true;
        let is_set = loop {
            match self.set_queue(&starts).await {
                AlterOutcome::Done => break true,
                AlterOutcome::NoGroup if is_certain => break false,
                AlterOutcome::Refused | AlterOutcome::NoGroup => {}
                AlterOutcome::Unknown => {
                    is_certain = false;
                    tokio::time::sleep(OVER).await;
                }
            }
            tokio::time::sleep(AGAIN).await;
        };
        for (partition, start) in starts.into_iter().filter(|_| is_set) {
            tracing::info!(partition, start, "The share group begins again");
            self.history.with(|known| known.queue.begin_again(partition, start));
        }
        self.attendance.is_closed.store(false, Ordering::SeqCst);
    }

    /// Sets the offsets by one request.
    async fn set_queue(&self, starts: &BTreeMap<i32, i64>) -> AlterOutcome {
        let cluster = self.cluster("share-administrator").await;
        let Ok(connection) = cluster.coordinator(CoordinatorKind::Group, QUEUE).await else {
            return AlterOutcome::Refused;
        };
        let partitions = starts.iter().map(|(&partition_index, &start_offset)| {
            AlterShareGroupOffsetsRequestPartition { partition_index, start_offset }
        });
        let topic = AlterShareGroupOffsetsRequestTopic {
            topic_name: TOPIC.to_owned(),
            partitions: partitions.collect(),
        };
        let request = AlterShareGroupOffsetsRequest { group_id: QUEUE.to_owned(), topics: vec![topic] };
        let answer = connection.send(&request).await;
        let code = answer.as_ref().ok().and_then(|answer| ErrorCode::from_i16(answer.error_code));
        let set = answer.iter().flat_map(|answer| &answer.responses).flat_map(|topic| &topic.partitions);
        let set = set.filter(|partition| partition.error_code == 0).count();
        match code {
            Some(ErrorCode::None) if set == starts.len() => AlterOutcome::Done,
            Some(ErrorCode::NonEmptyGroup | ErrorCode::NotCoordinator) => AlterOutcome::Refused,
            Some(ErrorCode::GroupIdNotFound) => AlterOutcome::NoGroup,
            _ => {
                tracing::info!(?answer, "Offsets of the share group may be set in part");
                AlterOutcome::Unknown
            }
        }
    }
}

impl Member<'_> {
    fn name(&self) -> String {
        format!("share-{}-{}", self.id, self.life)
    }

    fn violation(&self, what: &str) {
        self.clients.history.violation(format!("share group, {}: {what}", self.name()));
    }

    fn is_closing(&self) -> bool {
        self.clients.attendance.is_closed.load(Ordering::SeqCst)
    }

    async fn live(&mut self, chance: &mut Chance) -> Result<(), LostMembership> {
        loop {
            tokio::time::sleep(Duration::from_millis(chance.between(10, 120))).await;
            if Instant::now() >= self.next_beat {
                self.beat().await?;
            }
            self.look_for_leaders().await;
            for leader in self.leaders() {
                self.consume(leader, chance).await;
            }
            let is_ending = self.clients.ending.load(Ordering::SeqCst);
            if self.is_closing() || (chance.one_in(150) && !is_ending) {
                return Ok(());
            }
        }
    }

    async fn beat(&mut self) -> Result<(), LostMembership> {
        self.next_beat = Instant::now() + BEAT;
        let Ok(connection) = self.cluster.coordinator(CoordinatorKind::Group, QUEUE).await else {
            return Ok(());
        };
        let Ok(answer) = connection.send(&self.heartbeat(self.epoch)).await else {
            self.is_full = true;
            return Ok(());
        };
        match ErrorCode::from_i16(answer.error_code).unwrap_or(ErrorCode::UnknownServerError) {
            ErrorCode::None => {}
            ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::RequestTimedOut => {
                self.is_full = true;
                return Ok(());
            }
            ErrorCode::FencedMemberEpoch
            | ErrorCode::UnknownMemberId
            | ErrorCode::GroupIdNotFound
            // A starting broker does not know `share.version` yet.
            | ErrorCode::UnsupportedVersion => return Err(LostMembership),
            code => {
                self.violation(&format!("a heartbeat got {code:?}: {:?}", answer.error_message));
                return Err(LostMembership);
            }
        }
        self.epoch = answer.member_epoch;
        self.is_full = false;
        tracing::debug!(member = self.name(), ?answer, "Heartbeat");
        if let Some(assignment) = answer.assignment {
            self.assigned.clear();
            for topic in assignment.topic_partitions {
                self.topic = topic.topic_id;
                self.assigned.extend(topic.partitions);
            }
        }
        Ok(())
    }

    fn heartbeat(&self, member_epoch: i32) -> ShareGroupHeartbeatRequest {
        ShareGroupHeartbeatRequest {
            group_id: QUEUE.to_owned(),
            member_id: self.name(),
            member_epoch,
            subscribed_topic_names: (self.is_full && member_epoch >= 0).then(|| vec![TOPIC.to_owned()]),
            ..ShareGroupHeartbeatRequest::default()
        }
    }

    async fn leave(self) {
        if let Ok(connection) = self.cluster.coordinator(CoordinatorKind::Group, QUEUE).await
            && let Err(error) = connection.send(&self.heartbeat(LEAVES)).await
        {
            tracing::info!(member = self.name(), %error, "Farewell was not answered: the session ends in time");
        }
    }

    async fn look_for_leaders(&mut self) {
        if Instant::now() >= self.next_look {
            self.next_look = Instant::now() + Duration::from_secs(2);
            if let Err(error) = self.cluster.refresh(&[TOPIC.to_owned()], false).await {
                tracing::info!(member = self.name(), %error, "No metadata");
            }
        }
    }

    fn leader_of(&self, partition: i32) -> Option<i32> {
        self.cluster.metadata().leader(TOPIC, partition)
    }

    /// The leaders of the assigned partitions, and leaders with a session.
    fn leaders(&self) -> BTreeSet<i32> {
        let leaders = self.assigned.iter().filter_map(|&partition| self.leader_of(partition));
        leaders.chain(self.sessions.keys().copied()).collect()
    }

    /// Sends one request to a leader, and handles the answer.
    async fn consume(&mut self, leader: i32, chance: &mut Chance) {
        let mut session = match self.sessions.remove(&leader) {
            Some(session) => session,
            None => {
                let Ok(connection) = self.cluster.broker(leader).await else { return };
                self.count += 1;
                Session {
                    number: self.count,
                    connection,
                    epoch: 0,
                    partitions: BTreeSet::new(),
                    held: Vec::new(),
                }
            }
        };
        let holder = (self.id, self.life, session.number);
        let said = if session.epoch == 0 { Vec::new() } else { self.decide(&mut session, chance) };
        for SentAcknowledgement { held, acknowledge_type } in &said {
            self.clients.history.with(|known| known.queue.sends(held, *acknowledge_type));
        }
        let goes_on = if !said.is_empty() && chance.one_in(2) {
            self.acknowledge(&mut session, holder, said).await
        } else {
            self.fetch(leader, &mut session, holder, said, chance).await
        };
        if goes_on {
            self.sessions.insert(leader, session);
        }
    }

    /// Decides on the held records: some are kept for a while, and some forgotten.
    fn decide(&self, session: &mut Session, chance: &mut Chance) -> Vec<SentAcknowledgement> {
        let is_ending = self.clients.ending.load(Ordering::SeqCst);
        let (mut said, mut kept) = (Vec::new(), Vec::new());
        for held in std::mem::take(&mut session.held) {
            let acknowledge_type = match chance.below(if is_ending { 1 } else { 20 }) {
                0..=12 => AcknowledgeType::Accept,
                13..=15 => AcknowledgeType::Release,
                16 => AcknowledgeType::Reject,
                17 => continue,
                _ => {
                    kept.push(held);
                    continue;
                }
            };
            // A part of the records now, and the rest later.
            let len = u64::try_from(held.last - held.first + 1).unwrap_or(1);
            let some = i64::try_from(chance.between(1, len)).unwrap_or(1);
            let last = if chance.one_in(2) { held.last } else { held.first + some - 1 };
            said.push(SentAcknowledgement { held: AcquiredRecords { last, ..held }, acknowledge_type });
            if last < held.last {
                kept.push(AcquiredRecords { first: last + 1, ..held });
            }
        }
        session.held = kept;
        // A request lists offsets in order.
        said.sort_by_key(|said: &SentAcknowledgement| (said.held.partition, said.held.first));
        said
    }

    /// Sends acknowledgements without fetching. Returns true if the session continues.
    async fn acknowledge(
        &mut self,
        session: &mut Session,
        holder: Holder,
        said: Vec<SentAcknowledgement>,
    ) -> bool {
        let partitions: BTreeSet<i32> = said.iter().map(|said| said.held.partition).collect();
        let partitions = partitions.into_iter().map(|partition_index| {
            let of_it = said.iter().filter(|said| said.held.partition == partition_index);
            let batches = of_it.map(|SentAcknowledgement { held, acknowledge_type }| {
                acknowledge::AcknowledgementBatch {
                    first_offset: held.first,
                    last_offset: held.last,
                    acknowledge_types: vec![acknowledge_type.code()],
                }
            });
            let acknowledgement_batches = batches.collect();
            acknowledge::AcknowledgePartition { partition_index, acknowledgement_batches }
        });
        let topic = acknowledge::AcknowledgeTopic { topic_id: self.topic, partitions: partitions.collect() };
        let request = ShareAcknowledgeRequest {
            group_id: Some(QUEUE.to_owned()),
            member_id: Some(self.name()),
            share_session_epoch: session.epoch,
            topics: vec![topic],
            ..ShareAcknowledgeRequest::default()
        };
        let sent = Instant::now();
        let Ok(answer) = session.connection.send(&request).await else {
            self.all(holder, &said, sent, AcknowledgementOutcome::Unknown);
            return false;
        };
        if !self.is_taken(answer.error_code) {
            self.all(holder, &said, sent, AcknowledgementOutcome::NotTaken);
            return false;
        }
        session.epoch += 1;
        let partitions = answer.responses.into_iter().flat_map(|topic| topic.partitions);
        let codes = partitions.map(|data| (data.partition_index, data.error_code)).collect();
        self.learn(holder, &said, sent, &codes);
        true
    }

    /// Fetches records, with acknowledgements of others. Returns true if the session continues.
    async fn fetch(
        &mut self,
        leader: i32,
        session: &mut Session,
        holder: Holder,
        said: Vec<SentAcknowledgement>,
        chance: &mut Chance,
    ) -> bool {
        let led =
            self.assigned.iter().copied().filter(|&partition| self.leader_of(partition) == Some(leader));
        let wanted: BTreeSet<i32> = led.collect();
        let sent = Instant::now();
        let epochs: BTreeMap<i32, i32> = self.clients.history.with(|known| {
            let partitions = wanted.iter().chain(&session.partitions);
            partitions.map(|&partition| (partition, known.queue.leader_epoch(partition))).collect()
        });
        let request = self.share_fetch(session, &wanted, &said, chance);
        session.partitions = wanted;
        let Ok(answer) = session.connection.send(&request).await else {
            self.all(holder, &said, sent, AcknowledgementOutcome::Unknown);
            epochs.keys().for_each(|&partition| self.lost_answer(partition));
            return false;
        };
        if !self.is_taken(answer.error_code) {
            self.all(holder, &said, sent, AcknowledgementOutcome::NotTaken);
            return false;
        }
        session.epoch += 1;
        let data: Vec<PartitionData> =
            answer.responses.into_iter().flat_map(|topic| topic.partitions).collect();
        let codes = data.iter().map(|data| (data.partition_index, data.acknowledge_error_code)).collect();
        self.learn(holder, &said, sent, &codes);
        for data in data {
            let leader_epoch = epochs.get(&data.partition_index).copied().unwrap_or(-1);
            self.take(session, holder, sent, leader_epoch, data);
        }
        true
    }

    fn share_fetch(
        &self,
        session: &Session,
        wanted: &BTreeSet<i32>,
        said: &[SentAcknowledgement],
        chance: &mut Chance,
    ) -> ShareFetchRequest {
        let mut batches: BTreeMap<i32, Vec<AcknowledgementBatch>> =
            wanted.difference(&session.partitions).map(|&new| (new, Vec::new())).collect();
        for SentAcknowledgement { held, acknowledge_type } in said {
            batches.entry(held.partition).or_default().push(AcknowledgementBatch {
                first_offset: held.first,
                last_offset: held.last,
                acknowledge_types: vec![acknowledge_type.code()],
            });
        }
        let partitions = batches.into_iter().map(|(partition_index, acknowledgement_batches)| {
            FetchPartition { partition_index, acknowledgement_batches }
        });
        let forgotten: Vec<i32> = session.partitions.difference(wanted).copied().collect();
        let forgotten = ForgottenTopic { topic_id: self.topic, partitions: forgotten };
        let number = |chance: &mut Chance, most| i32::try_from(chance.between(1, most)).unwrap_or(1);
        let is_ending = self.clients.ending.load(Ordering::SeqCst);
        ShareFetchRequest {
            group_id: Some(QUEUE.to_owned()),
            member_id: Some(self.name()),
            share_session_epoch: session.epoch,
            max_wait_ms: number(chance, WAIT_MS_MAX),
            min_bytes: 1,
            max_bytes: number(chance, 40_000),
            // In the end, all records have to become final soon.
            max_records: if is_ending { 500 } else { number(chance, 60) },
            batch_size: number(chance, 30),
            share_acquire_mode: i8::from(chance.one_in(3)),
            topics: vec![FetchTopic { topic_id: self.topic, partitions: partitions.collect() }],
            forgotten_topics_data: if forgotten.partitions.is_empty() { Vec::new() } else { vec![forgotten] },
            ..ShareFetchRequest::default()
        }
    }

    /// True if the whole request was accepted. Otherwise the session is over.
    fn is_taken(&self, code: i16) -> bool {
        match ErrorCode::from_i16(code).unwrap_or(ErrorCode::UnknownServerError) {
            ErrorCode::None => true,
            ErrorCode::ShareSessionNotFound
            | ErrorCode::InvalidShareSessionEpoch
            | ErrorCode::UnsupportedVersion => false,
            code => {
                self.violation(&format!("a request got {code:?}"));
                false
            }
        }
    }

    fn lost_answer(&self, partition: i32) {
        self.clients.history.with(|known| known.queue.lost_answer(partition));
    }

    fn all(
        &self,
        holder: Holder,
        said: &[SentAcknowledgement],
        sent: Instant,
        outcome: AcknowledgementOutcome,
    ) {
        // All acknowledgements of a partition take effect, or none: a late one, or one of a leader that does
        // not know the group's new offset, makes the rest fail.
        let locked_until = said.iter().map(|said| said.held.locked_until).min();
        let leader_epoch = said.iter().map(|said| said.held.leader_epoch).min();
        let received = said.iter().map(|said| said.held.received).min();
        for SentAcknowledgement { held, acknowledge_type } in said {
            let held = match (locked_until, leader_epoch, received, outcome) {
                (
                    Some(locked_until),
                    Some(leader_epoch),
                    Some(received),
                    AcknowledgementOutcome::NotAcquired,
                ) => AcquiredRecords { locked_until, leader_epoch, received, ..*held },
                _ => *held,
            };
            let wrong = self
                .clients
                .history
                .with(|known| known.queue.answered(holder, &held, *acknowledge_type, sent, outcome));
            wrong.iter().for_each(|what| self.violation(what));
        }
    }

    /// Handles the results of the acknowledgements of each partition.
    fn learn(&self, holder: Holder, said: &[SentAcknowledgement], sent: Instant, codes: &BTreeMap<i32, i16>) {
        for one in said.chunk_by(|one, next| one.held.partition == next.held.partition) {
            let partition = one[0].held.partition;
            let code = codes.get(&partition).and_then(|&code| ErrorCode::from_i16(code));
            let outcome = match code {
                Some(ErrorCode::None) => AcknowledgementOutcome::Acknowledged,
                Some(ErrorCode::InvalidRecordState | ErrorCode::InvalidRequest) => {
                    AcknowledgementOutcome::NotAcquired
                }
                // Another leader was elected, another leader writes the state, or the state cannot be
                // written.
                Some(
                    ErrorCode::NotLeaderOrFollower
                    | ErrorCode::FencedLeaderEpoch
                    | ErrorCode::UnknownTopicOrPartition
                    | ErrorCode::UnknownTopicId
                    | ErrorCode::CoordinatorNotAvailable,
                ) => AcknowledgementOutcome::Unknown,
                code => {
                    self.violation(&format!("acknowledgements of partition {partition} got {code:?}"));
                    AcknowledgementOutcome::Unknown
                }
            };
            self.all(holder, one, sent, outcome);
        }
    }

    /// Handles the acquired records of a partition.
    fn take(
        &mut self,
        session: &mut Session,
        holder: Holder,
        sent: Instant,
        leader_epoch: i32,
        data: PartitionData,
    ) {
        let partition = data.partition_index;
        match ErrorCode::from_i16(data.error_code).unwrap_or(ErrorCode::UnknownServerError) {
            ErrorCode::None => {}
            ErrorCode::NotLeaderOrFollower
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId => self.next_look = Instant::now(),
            ErrorCode::CoordinatorNotAvailable => {}
            code => return self.violation(&format!("partition {partition} got {code:?}")),
        }
        let received = Instant::now();
        for run in data.acquired_records {
            let held = AcquiredRecords {
                partition,
                first: run.first_offset,
                last: run.last_offset,
                received,
                locked_until: sent + LOCK,
                leader_epoch,
            };
            let wrong =
                self.clients.history.with(|known| known.queue.acquired(holder, held, run.delivery_count));
            wrong.iter().for_each(|what| self.violation(what));
            session.hold(held);
        }
        let offsets = match &data.records {
            Some(Records::Inline(bytes)) => offsets(bytes),
            _ => Ok(BTreeSet::new()),
        };
        match offsets {
            Ok(found) => {
                let of_it = session
                    .held
                    .iter()
                    .filter(|held| held.partition == partition && held.received == received);
                let mut all = of_it.flat_map(|held| held.first..=held.last);
                if let Some(missing) = all.find(|offset| !found.contains(offset)) {
                    self.violation(&format!(
                        "partition {partition}: {missing} was acquired, and did not come"
                    ));
                }
            }
            Err(error) => self.violation(&format!("partition {partition}: {error}")),
        }
    }
}

/// The offsets of the records in consecutive batches.
fn offsets(bytes: &[u8]) -> Result<BTreeSet<i64>, String> {
    let mut found = BTreeSet::new();
    let mut buffer = DecompressBuffer::default();
    for batch in batches(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        for record in batch.records(&mut buffer).map_err(|error| error.to_string())? {
            found.insert(record.map_err(|error| error.to_string())?.offset.0);
        }
    }
    Ok(found)
}
