//! A shard with a log in memory and a manual clock: acts as the driver, step by step.

use crate::answer::GroupAnswer;
use crate::client::ClientInfo;
use crate::config::{GroupConfig, StreamsGroupTimes};
use crate::offsets::TransactionOutcome;
use crate::record::CoordinatorRecord;
use crate::shard::{GroupShard, SharedState};
use crate::topics::{TopicPlacement, TopicsView};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchBuilder, BatchOptions, ControlRecordType, DecompressBuffer, Offset, batches};
use thalweg_shard::{DividedWrites, HeldAnswers, Moment, Piece, Shard as _, Ticket, WriteError};
use thalweg_wire::request::join_group_request::JoinGroupRequestProtocol;
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Message, Uuid};

/// The group of most tests.
pub(super) const GROUP: &str = "g";
pub(super) const SESSION_MS: i32 = 10_000;
pub(super) const REBALANCE_MS: i32 = 60_000;
/// Kafka's initial rebalance delay.
pub(super) const DELAY_MS: i64 = 3_000;

/// Topics by name, which tests create and delete: id, partitions.
#[derive(Default)]
pub(super) struct TestTopics {
    by_name: Mutex<BTreeMap<String, (Uuid, i32)>>,
    /// Version of the metadata, which tests raise themselves.
    pub(super) version: AtomicI64,
}

impl TestTopics {
    /// Creates a topic, or changes its partition count.
    pub(super) fn set(&self, name: &str, id: u128, partitions: i32) {
        self.by_name.lock().insert(name.to_owned(), (Uuid(id), partitions));
    }

    pub(super) fn delete(&self, name: &str) {
        self.by_name.lock().remove(name);
    }
}

impl TopicsView for TestTopics {
    fn id(&self, name: &str) -> Option<Uuid> {
        self.by_name.lock().get(name).map(|(id, _)| *id)
    }
    fn name(&self, id: Uuid) -> Option<String> {
        self.by_name.lock().iter().find(|(_, topic)| topic.0 == id).map(|(name, _)| name.clone())
    }
    fn offsets_partition_count(&self) -> Option<i32> {
        Some(1)
    }
    fn names(&self) -> Vec<String> {
        self.by_name.lock().keys().cloned().collect()
    }
    fn version(&self) -> i64 {
        self.version.load(Ordering::Relaxed)
    }
    fn partition_count(&self, id: Uuid) -> Option<i32> {
        self.by_name.lock().values().find(|topic| topic.0 == id).map(|(_, partitions)| *partitions)
    }
    fn placement(&self, name: &str) -> Option<TopicPlacement> {
        let topics = self.by_name.lock();
        let (id, partitions) = *topics.get(name)?;
        let racks = vec![Vec::new(); usize::try_from(partitions).expect("a count")];
        Some(TopicPlacement { id, racks })
    }
    fn has_partition(&self, name: &str, partition: PartitionIndex) -> bool {
        self.by_name.lock().get(name).is_some_and(|(_, partitions)| (0..*partitions).contains(&partition.0))
    }
}

pub(super) fn shared_state() -> Arc<SharedState> {
    Arc::new(SharedState::new(GroupConfig::default(), Arc::new(TestTopics::default())))
}

pub(super) struct Harness {
    pub(super) shard: GroupShard,
    shared: Arc<SharedState>,
    pub(super) topics: Arc<TestTopics>,
    pub(super) now_ms: i64,
    /// The log: one encoded batch per write.
    pub(super) log: Vec<Bytes>,
    /// Places in the log of the batches that cannot be read any more.
    pub(super) lost: BTreeSet<usize>,
    next_offset: i64,
    /// True if appends wait for [`Harness::acknowledge`].
    pub(super) holds: bool,
    /// Last offsets of the unacknowledged batches.
    pub(super) held: VecDeque<i64>,
    pub(super) acknowledged: i64,
    /// The next appends fail with this error.
    pub(super) refuses: Option<WriteError>,
    /// Number of refused writes.
    pub(super) refused: usize,
    /// Larger batches are refused.
    pub(super) batch_bytes_max: usize,
    next_ticket: u64,
    /// Answers that wait for the log.
    waiting: HeldAnswers<GroupAnswer>,
    answers: BTreeMap<Ticket, GroupAnswer>,
    /// All answers, in order, for tests that check all of them.
    pub(super) answered: Vec<(Ticket, GroupAnswer)>,
}

impl Harness {
    pub(super) fn new() -> Harness {
        Harness::with(GroupConfig::default())
    }

    pub(super) fn with(config: GroupConfig) -> Harness {
        let topics = Arc::new(TestTopics::default());
        let shared = Arc::new(SharedState::new(config, topics.clone()));
        let now_ms = 1_000_000;
        let shard = GroupShard::new(&shared, 0, moment(now_ms));
        Harness {
            shard,
            shared,
            topics,
            now_ms,
            log: Vec::new(),
            lost: BTreeSet::new(),
            next_offset: 0,
            holds: false,
            held: VecDeque::new(),
            acknowledged: -1,
            refuses: None,
            refused: 0,
            batch_bytes_max: usize::MAX,
            next_ticket: 0,
            waiting: HeldAnswers::new(-1, -1),
            answers: BTreeMap::new(),
            answered: Vec::new(),
        }
    }

    /// Sets the times of streams groups.
    pub(super) fn set_streams_times(&mut self, times: StreamsGroupTimes) {
        self.shared.set_streams_times(times, HashMap::default());
    }

    pub(super) fn now(&self) -> Moment {
        moment(self.now_ms)
    }

    /// A new coordinator, loaded from the log.
    pub(super) fn reloaded(&self) -> GroupShard {
        let mut shard = GroupShard::new(&self.shared, 0, self.now());
        let mut buffer = DecompressBuffer::default();
        for (place, batch) in self.log.iter().enumerate() {
            if self.lost.contains(&place) {
                shard.skip_lost();
                continue;
            }
            shard
                .replay(Piece::acknowledged(batch), &mut buffer, self.now())
                .expect("the log was written here");
        }
        shard.loaded(None, self.now());
        shard
    }

    /// Restarts the broker: waiting requests are lost.
    pub(super) fn restart(&mut self) {
        self.shard = self.reloaded();
        self.held.clear();
        self.acknowledged = self.next_offset - 1;
        self.waiting = HeldAnswers::new(self.acknowledged, self.acknowledged);
        self.finish_turn();
    }

    /// The records of the log.
    pub(super) fn records(&self) -> Vec<CoordinatorRecord> {
        let mut buffer = DecompressBuffer::default();
        let mut records = Vec::new();
        for bytes in &self.log {
            for batch in batches(bytes) {
                let batch = batch.expect("whole");
                if batch.header.attributes.is_control() {
                    continue;
                }
                for record in batch.records(&mut buffer).expect("readable") {
                    let record = record.expect("well-formed");
                    let decoded = CoordinatorRecord::decode(record.key, record.value).expect("ours");
                    records.push(decoded.expect("a type that is served"));
                }
            }
        }
        records
    }

    /// Writes records without a request, for a later load.
    pub(super) fn append(&mut self, records: &[CoordinatorRecord]) {
        let base_offset = Offset(self.next_offset);
        let mut builder = BatchBuilder::new(BatchOptions { base_offset, ..BatchOptions::default() });
        for record in records {
            let (key, value) = record.encode().expect("short strings");
            builder.append(self.now_ms, Some(&key), value.as_deref(), &[]).expect("a small batch");
        }
        self.next_offset += i64::from(builder.record_count());
        self.log.push(builder.build());
    }

    /// One turn of the shard, for a request.
    pub(super) fn turn(&mut self, turn: impl FnOnce(&mut GroupShard, Ticket, Moment)) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        turn(&mut self.shard, ticket, moment(self.now_ms));
        self.finish_turn();
        ticket
    }

    fn finish_turn(&mut self) {
        let now = self.now();
        let mut divided = DividedWrites::default();
        while let Some(write) = divided.next(&mut self.shard) {
            if let Some(error) = self.refuses {
                self.refused += 1;
                divided.refused(&mut self.shard, write, error, self.batch_bytes_max, now);
                continue;
            }
            let mut options =
                BatchOptions { base_offset: Offset(self.next_offset), ..BatchOptions::default() };
            if let Some(producer) = write.producer {
                let (producer_id, producer_epoch) = (producer.id, producer.epoch);
                options = BatchOptions { producer_id, producer_epoch, transactional: true, ..options };
            }
            options.control = write.marker.is_some();
            let mut builder = BatchBuilder::new(options);
            for record in &write.records {
                let (key, value) = record.encode().expect("short strings");
                builder.append(now.wall_ms, Some(&key), value.as_deref(), &[]).expect("a small batch");
            }
            if let Some(marker) = write.marker {
                let kind = match marker.outcome {
                    TransactionOutcome::Commit => ControlRecordType::Commit,
                    TransactionOutcome::Abort => ControlRecordType::Abort,
                };
                builder.append_control(now.wall_ms, kind, &[0; 6]).expect("a small batch");
            }
            let last = self.next_offset + i64::from(builder.record_count()) - 1;
            let batch = builder.build();
            if batch.len() > self.batch_bytes_max {
                self.refused += 1;
                divided.refused(&mut self.shard, write, WriteError::TooLarge, self.batch_bytes_max, now);
                continue;
            }
            self.next_offset = last + 1;
            self.log.push(batch);
            self.shard.written(write, last, now);
            self.waiting.written(last);
            if self.holds {
                self.held.push_back(last);
            } else {
                self.acknowledged = last;
                self.shard.acknowledged(last, now);
                self.waiting.acknowledged(last);
            }
        }
        let expires_ms = self.now_ms + GroupShard::answer_timeout_ms(&self.shared);
        self.waiting.take_in(self.shard.answers(), expires_ms);
        for (ticket, answer) in self.waiting.drain() {
            let earlier = self.answers.insert(ticket, answer.clone());
            assert_eq!(earlier, None, "{ticket:?} was answered before");
            self.answered.push((ticket, answer));
        }
    }

    /// Acknowledges the oldest held write.
    pub(super) fn acknowledge(&mut self) -> bool {
        let Some(last) = self.held.pop_front() else { return false };
        self.acknowledged = last;
        self.shard.acknowledged(last, self.now());
        self.waiting.acknowledged(last);
        self.finish_turn();
        true
    }

    /// Advances the clock, and runs due work in time.
    pub(super) fn advance(&mut self, ms: i64) {
        let until_ms = self.now_ms + ms;
        let next_ms = |h: &Harness| h.shard.next_deadline_ms().min(h.waiting.next_deadline_ms());
        while next_ms(self) <= until_ms {
            self.now_ms = self.now_ms.max(next_ms(self));
            let now = self.now();
            if self.waiting.next_deadline_ms() <= self.now_ms {
                self.waiting.expire(self.now_ms);
            } else {
                assert!(self.shard.expire_next(now), "a deadline that comes has something to do");
            }
            self.finish_turn();
        }
        self.now_ms = until_ms;
    }

    /// The answer, if it has arrived.
    pub(super) fn answer(&self, ticket: Ticket) -> Option<&GroupAnswer> {
        self.answers.get(&ticket)
    }

    pub(super) fn send_join(&mut self, join: Join<'_>) -> Ticket {
        let request = join.request();
        self.turn(|shard, ticket, now| {
            let unique = Uuid(u128::from(ticket.0) << 64 | 0xabc);
            shard.join_group(&client(join.client), &request, join.version, unique, ticket, now);
        })
    }

    pub(super) fn join_answer(&self, ticket: Ticket) -> Option<JoinGroupResponse> {
        match self.answer(ticket)? {
            GroupAnswer::JoinGroup(response) => Some(response.clone()),
            other => panic!("a join was answered by {other:?}"),
        }
    }

    /// A dynamic member gets its id and joins. The ticket is that of the second request.
    pub(super) fn send_new(&mut self, client: &str) -> (String, Ticket) {
        let first = self.send_join(Join { client, ..Join::default() });
        let response = self.join_answer(first).expect("an id is given at once");
        assert_eq!(response.error_code, ErrorCode::MemberIdRequired.code());
        let id = response.member_id;
        let ticket = self.send_join(Join { client, member_id: &id, ..Join::default() });
        (id, ticket)
    }

    pub(super) fn send_sync(&mut self, id: &str, generation: i32, assignments: &[(&str, &str)]) -> Ticket {
        let assign = |(id, assignment): &(&str, &str)| {
            ((*id).to_owned(), Bytes::copy_from_slice(assignment.as_bytes()))
        };
        let request = SyncGroupRequest {
            group_id: GROUP.to_owned(),
            generation_id: generation,
            member_id: id.to_owned(),
            ..SyncGroupRequest::default()
        };
        let given = assignments.iter().map(assign).collect();
        self.turn(|shard, ticket, now| shard.sync_group(&request, &given, ticket, now))
    }

    /// The answer to SyncGroup: the assignment, or the error.
    pub(super) fn sync_answer(&self, ticket: Ticket) -> Option<Result<String, ErrorCode>> {
        match self.answer(ticket)? {
            GroupAnswer::SyncGroup(response) => Some(match error(response.error_code) {
                ErrorCode::None => Ok(String::from_utf8_lossy(&response.assignment).into_owned()),
                error => Err(error),
            }),
            other => panic!("a sync was answered by {other:?}"),
        }
    }

    pub(super) fn heartbeat(&mut self, id: &str, generation: i32) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: GROUP.to_owned(),
            generation_id: generation,
            member_id: id.to_owned(),
            ..HeartbeatRequest::default()
        };
        let ticket = self.turn(|shard, ticket, now| shard.heartbeat(&request, ticket, now));
        match self.answer(ticket) {
            Some(GroupAnswer::Heartbeat(response)) => error(response.error_code),
            other => panic!("a heartbeat was answered by {other:?}"),
        }
    }

    pub(super) fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Vec<ErrorCode> {
        let identify = |(id, instance_id): &(&str, Option<&str>)| MemberIdentity {
            member_id: (*id).to_owned(),
            group_instance_id: instance_id.map(str::to_owned),
            reason: None,
        };
        let request = LeaveGroupRequest {
            group_id: GROUP.to_owned(),
            members: members.iter().map(identify).collect(),
            ..LeaveGroupRequest::default()
        };
        let ticket = self.turn(|shard, ticket, now| shard.leave_group(&request, ticket, now));
        match self.answer(ticket) {
            Some(GroupAnswer::LeaveGroup(response)) => {
                response.members.iter().map(|member| error(member.error_code)).collect()
            }
            other => panic!("a leave was answered by {other:?}"),
        }
    }

    pub(super) fn send_commit(&mut self, commit: Commit<'_>) -> Ticket {
        let request = commit.request();
        self.turn(|shard, ticket, now| shard.commit_offsets(&request, commit.version, ticket, now))
    }

    pub(super) fn commit_answer(&self, ticket: Ticket) -> Option<ErrorCode> {
        match self.answer(ticket)? {
            GroupAnswer::OffsetCommit(response) => Some(error(response.topics[0].partitions[0].error_code)),
            other => panic!("a commit was answered by {other:?}"),
        }
    }

    pub(super) fn commit(&mut self, commit: Commit<'_>) -> ErrorCode {
        let ticket = self.send_commit(commit);
        self.commit_answer(ticket).expect("nothing is held")
    }

    /// The offset visible to readers for a partition of topic `t`.
    pub(super) fn fetch(&self, group: &str, partition: i32) -> i64 {
        let response = self.shard.fetch_offsets(&fetch_request(group, partition));
        response.topics[0].partitions[0].committed_offset
    }

    /// Members of a stable group, in the order of joining, with its generation. Each member's assignment is
    /// its own id.
    pub(super) fn stable_group(&mut self, clients: &[&str]) -> (Vec<String>, i32) {
        let joins: Vec<_> = clients.iter().map(|client| self.send_new(client)).collect();
        self.advance(DELAY_MS * 2);
        let ids: Vec<String> = joins.iter().map(|(id, _)| id.clone()).collect();
        let answer = self.join_answer(joins[0].1).expect("the initial rebalance is over");
        assert_eq!(answer.error_code, 0);
        let generation = answer.generation_id;
        self.sync_all(&ids, generation);
        (ids, generation)
    }

    /// Sends SyncGroup of all members; the first one leads.
    pub(super) fn sync_all(&mut self, ids: &[String], generation: i32) {
        let assignments: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
        let tickets: Vec<Ticket> =
            ids.iter().rev().map(|id| self.send_sync(id, generation, &assignments)).collect();
        for (ticket, id) in tickets.iter().zip(ids.iter().rev()) {
            assert_eq!(self.sync_answer(*ticket), Some(Ok(id.clone())));
        }
        assert_eq!(self.state(GROUP), "Stable");
    }

    pub(super) fn state(&self, group: &str) -> String {
        self.shard.describe_group(group, 5).group_state
    }
}

/// A join of a consumer that supports `range` and `roundrobin`, in the version of today's clients.
#[derive(Clone, Copy)]
pub(super) struct Join<'a> {
    pub(super) group: &'a str,
    pub(super) client: &'a str,
    pub(super) member_id: &'a str,
    pub(super) instance_id: Option<&'a str>,
    pub(super) version: i16,
    pub(super) protocol_type: &'a str,
    pub(super) protocols: &'a [(&'a str, &'a [u8])],
    pub(super) session_ms: i32,
    pub(super) rebalance_ms: i32,
}

impl Default for Join<'_> {
    fn default() -> Self {
        Join {
            group: GROUP,
            client: "c",
            member_id: "",
            instance_id: None,
            version: 9,
            protocol_type: "consumer",
            protocols: &[("range", b""), ("roundrobin", b"")],
            session_ms: SESSION_MS,
            rebalance_ms: REBALANCE_MS,
        }
    }
}

impl Join<'_> {
    fn request(&self) -> JoinGroupRequest {
        let protocol = |(name, metadata): &(&str, &[u8])| JoinGroupRequestProtocol {
            name: (*name).to_owned(),
            metadata: Bytes::copy_from_slice(metadata),
        };
        JoinGroupRequest {
            group_id: self.group.to_owned(),
            session_timeout_ms: self.session_ms,
            rebalance_timeout_ms: self.rebalance_ms,
            member_id: self.member_id.to_owned(),
            group_instance_id: self.instance_id.map(str::to_owned),
            protocol_type: self.protocol_type.to_owned(),
            protocols: self.protocols.iter().map(protocol).collect(),
            reason: None,
        }
    }
}

/// A commit for one partition of topic `t` by a consumer without a group.
#[derive(Clone, Copy)]
pub(super) struct Commit<'a> {
    pub(super) group: &'a str,
    pub(super) member_id: &'a str,
    pub(super) generation: i32,
    pub(super) version: i16,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) metadata: Option<&'a str>,
    pub(super) retention_ms: i64,
}

impl Default for Commit<'_> {
    fn default() -> Self {
        Commit {
            group: GROUP,
            member_id: "",
            generation: -1,
            version: 9,
            partition: 0,
            offset: 1,
            metadata: None,
            retention_ms: -1,
        }
    }
}

impl Commit<'_> {
    fn request(&self) -> OffsetCommitRequest {
        let partition = OffsetCommitRequestPartition {
            partition_index: self.partition,
            committed_offset: self.offset,
            committed_metadata: self.metadata.map(str::to_owned),
            ..OffsetCommitRequestPartition::default()
        };
        let topic =
            OffsetCommitRequestTopic { name: "t".to_owned(), topic_id: Uuid(7), partitions: vec![partition] };
        OffsetCommitRequest {
            group_id: self.group.to_owned(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.member_id.to_owned(),
            retention_time_ms: self.retention_ms,
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        }
    }
}

pub(super) fn fetch_request(group: &str, partition: i32) -> OffsetFetchRequestGroup {
    let topic = OffsetFetchRequestTopics {
        name: "t".to_owned(),
        partition_indexes: vec![partition],
        ..OffsetFetchRequestTopics::default()
    };
    OffsetFetchRequestGroup { group_id: group.to_owned(), topics: Some(vec![topic]), ..Default::default() }
}

pub(super) fn moment(now_ms: i64) -> Moment {
    Moment { wall_ms: now_ms, monotonic_ms: now_ms }
}

pub(super) fn client(id: &str) -> ClientInfo {
    ClientInfo { client_id: id.to_owned(), client_host: "/192.0.2.1".to_owned() }
}

pub(super) fn error(code: i16) -> ErrorCode {
    ErrorCode::from_i16(code).expect("errors are Kafka's")
}

/// A consumer's metadata for these topics.
pub(super) fn subscription(topics: &[&str]) -> Vec<u8> {
    let subscription = thalweg_wire::data::ConsumerProtocolSubscription {
        topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
        ..Default::default()
    };
    let mut bytes = 1i16.to_be_bytes().to_vec();
    bytes.extend(subscription.to_bytes(1).expect("version 1 has it all"));
    bytes
}
