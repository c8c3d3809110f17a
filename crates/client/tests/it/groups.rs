//! A member of a group: rebalances, a coordinator that moves or forgets it, and a consumer that does not
//! poll.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use thalweg_client::{
    AssignmentStrategy, ByteStream, CloseReason, Cluster, CommittedOffset, ConnectionOptions, Connector,
    Consumer, ConsumerConfig, FrameReader, PollEvent, TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::data::consumer_protocol_assignment::TopicPartition as AssignedPartitions;
use thalweg_wire::data::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::fetch_response::{FetchableTopicResponse, PartitionData};
use thalweg_wire::request::find_coordinator_response::Coordinator;
use thalweg_wire::request::join_group_response::JoinGroupResponseMember;
use thalweg_wire::request::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_wire::request::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_wire::request::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message, Uuid, frame};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use crate::fake::{TOPIC, TOPIC_ID};

pub const GROUP: &str = "g";
const RACK: &str = "rack";
/// The group's committed offset.
const COMMITTED: i64 = 7;
const SERVED: [ApiKey; 10] = [
    ApiKey::ApiVersions,
    ApiKey::Metadata,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::SyncGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::OffsetFetch,
    ApiKey::OffsetCommit,
    ApiKey::Fetch,
];

/// Two brokers, `node:1` and `node:2`. The first coordinates the group until it has moved.
#[derive(Clone, Default)]
pub struct Brokers {
    moved: Arc<AtomicBool>,
    /// Whether it moves when it is asked for offsets.
    moves: Arc<AtomicBool>,
    /// The answers to the next heartbeats.
    heartbeats: Arc<Mutex<VecDeque<ErrorCode>>>,
    /// The requests of the member, with its generation where they have it.
    requests: Arc<Mutex<Vec<(ApiKey, i32)>>>,
    joins: Arc<AtomicI32>,
    /// The errors of the next joins.
    refused_joins: Arc<Mutex<VecDeque<ErrorCode>>>,
    /// The members' ids in requests to join, and the partitions that they own.
    joined: Arc<Mutex<Vec<(String, usize)>>>,
    /// The committers, by member id and generation.
    pub committers: Arc<Mutex<Vec<(String, i32)>>>,
    /// The errors of the next commits.
    refused_commits: Arc<Mutex<VecDeque<ErrorCode>>>,
    /// Whether commits are answered late.
    pub delays_commits: Arc<AtomicBool>,
    /// Whether the first broker, which leads, sends consumers to the second.
    sends_on: Arc<AtomicBool>,
    /// Whether the member leads the group again, whose members have their partitions.
    leads_again: Arc<AtomicBool>,
    /// Whether the topic has a third partition.
    has_grown: Arc<AtomicBool>,
    /// Whether the member has partition 1 too, which has neither a leader nor a committed offset.
    has_leaderless: Arc<AtomicBool>,
    connections: Arc<AtomicI32>,
    /// When heartbeats arrived.
    beats: Arc<Mutex<BTreeSet<Instant>>>,
}

/// Streams to a peer of the test's.
pub fn connector<F>(serve: impl Fn(DuplexStream) -> F + Send + Sync + 'static) -> Connector
where
    F: Future<Output = Result<(), CloseReason>> + Send + 'static,
{
    Connector::new(move |_: String| {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let served = serve(theirs);
        async move {
            tokio::spawn(served);
            Ok(Box::new(ours) as Box<dyn ByteStream>)
        }
    })
}

/// Answers requests by key, version and correlation id. Those that wait are answered half a second later.
pub async fn serve(
    stream: DuplexStream,
    waits: impl Fn(ApiKey) -> bool,
    answer: impl Fn(ApiKey, i16, i32, Bytes) -> Bytes,
) -> Result<(), CloseReason> {
    let hold = |key| {
        let hold = if waits(key) { Duration::from_millis(500) } else { Duration::ZERO };
        async move {
            if !hold.is_zero() {
                tokio::time::sleep(hold).await;
            }
        }
    };
    serve_after(stream, hold, answer).await
}

/// Answers requests like [`serve`], each when `hold` is over.
pub async fn serve_after<F: Future<Output = ()>>(
    stream: DuplexStream,
    hold: impl Fn(ApiKey) -> F,
    answer: impl Fn(ApiKey, i16, i32, Bytes) -> Bytes,
) -> Result<(), CloseReason> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut frames = FrameReader::new(reader, 1 << 20);
    loop {
        let request = frames.next().await?;
        let prefix = frame::peek_request(&request).expect("a request");
        let key = ApiKey::from_i16(prefix.api_key).expect("a known API");
        hold(key).await;
        writer.write_all(&answer(key, prefix.api_version, prefix.correlation_id, request)).await?;
    }
}

impl Brokers {
    pub fn connector(&self) -> Connector {
        let brokers = self.clone();
        Connector::new(move |address: String| {
            let brokers = brokers.clone();
            async move {
                let node = address.strip_prefix("node:").and_then(|id| id.parse().ok()).expect("a node");
                let (ours, theirs) = tokio::io::duplex(1 << 10);
                tokio::spawn(async move {
                    brokers.connections.fetch_add(1, Ordering::SeqCst);
                    let ended = brokers.clone().serve(node, theirs).await;
                    brokers.connections.fetch_sub(1, Ordering::SeqCst);
                    ended
                });
                Ok(Box::new(ours) as Box<dyn ByteStream>)
            }
        })
    }

    async fn serve(self, node: i32, stream: DuplexStream) -> Result<(), CloseReason> {
        // There is nothing to read.
        let waits = |key| {
            let delays_commits = self.delays_commits.load(Ordering::SeqCst);
            key == ApiKey::Fetch || delays_commits && key == ApiKey::OffsetCommit
        };
        serve(stream, waits, |key, version, id, request| self.answer(node, key, version, id, request)).await
    }

    pub fn count(&self, key: ApiKey) -> usize {
        let requests = self.requests.lock().expect("nobody panicked");
        requests.iter().filter(|(of, _)| *of == key).count()
    }

    /// The open connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst).try_into().expect("as many were opened")
    }

    /// The number of times at which heartbeats arrived.
    pub fn times_of_beats(&self) -> usize {
        self.beats.lock().expect("nobody panicked").len()
    }

    fn note(&self, key: ApiKey, generation: i32) {
        self.requests.lock().expect("nobody panicked").push((key, generation));
    }

    pub fn next_heartbeat(&self, error: ErrorCode) {
        self.heartbeats.lock().expect("nobody panicked").push_back(error);
    }

    pub fn refuse_commit(&self, error: ErrorCode) {
        self.refused_commits.lock().expect("nobody panicked").push_back(error);
    }

    fn has_leaderless(&self) -> bool {
        self.has_leaderless.load(Ordering::SeqCst)
    }

    fn coordinator(&self) -> i32 {
        if self.moved.load(Ordering::SeqCst) { 2 } else { 1 }
    }

    fn answer(&self, node: i32, key: ApiKey, version: i16, id: i32, request: Bytes) -> Bytes {
        let mut d = Decoder::new(request);
        frame::decode_request_header(&mut d, key, version).expect("a header");
        let here = if self.coordinator() == node { 0 } else { ErrorCode::NotCoordinator.code() };
        match key {
            ApiKey::ApiVersions => encode(&versions(), key, version, id),
            ApiKey::Metadata => {
                self.note(key, -1);
                let mut metadata = metadata(version);
                if self.has_grown.load(Ordering::SeqCst) {
                    let partitions = &mut metadata.topics[0].partitions;
                    let third = MetadataResponsePartition { partition_index: 2, ..partitions[0].clone() };
                    partitions.push(third);
                }
                if self.has_leaderless() {
                    metadata.topics[0].partitions[1].leader_id = -1;
                }
                encode(&metadata, key, version, id)
            }
            ApiKey::FindCoordinator => encode(&found_coordinator(self.coordinator()), key, version, id),
            ApiKey::JoinGroup => {
                let generation_id = self.joins.fetch_add(1, Ordering::SeqCst) + 1;
                self.note(key, generation_id);
                let request = JoinGroupRequest::decode(&mut d, version).expect("a request");
                let owned = request.protocols.iter().map(|protocol| owned(&protocol.metadata)).sum();
                let leads_again = self.leads_again.load(Ordering::SeqCst);
                let metadata = request.protocols[0].metadata.clone();
                let member_id = "member".to_owned();
                let itself = JoinGroupResponseMember { member_id, metadata, ..Default::default() };
                self.joined.lock().expect("nobody panicked").push((request.member_id, owned));
                let refused = self.refused_joins.lock().expect("nobody panicked").pop_front();
                let response = JoinGroupResponse {
                    error_code: refused.map_or(here, ErrorCode::code),
                    generation_id,
                    protocol_type: Some("consumer".to_owned()),
                    protocol_name: Some("range".to_owned()),
                    leader: if leads_again { "member" } else { "another" }.to_owned(),
                    skip_assignment: leads_again,
                    member_id: "member".to_owned(),
                    members: if leads_again { vec![itself] } else { Vec::new() },
                    ..JoinGroupResponse::default()
                };
                encode(&response, key, version, id)
            }
            ApiKey::SyncGroup => {
                let request = SyncGroupRequest::decode(&mut d, version).expect("a request");
                assert_eq!(request.assignments, [], "it does not lead, or has nothing to assign");
                let assignment = assignment(if self.has_leaderless() { &[0, 1] } else { &[0] });
                let response = SyncGroupResponse { error_code: here, assignment, ..Default::default() };
                encode(&response, key, version, id)
            }
            ApiKey::Heartbeat => {
                let request = HeartbeatRequest::decode(&mut d, version).expect("a request");
                self.note(key, request.generation_id);
                self.beats.lock().expect("nobody panicked").insert(Instant::now());
                let scripted = self.heartbeats.lock().expect("nobody panicked").pop_front();
                let error_code = scripted.map_or(here, ErrorCode::code);
                encode(&HeartbeatResponse { error_code, ..Default::default() }, key, version, id)
            }
            ApiKey::LeaveGroup => {
                self.note(key, -1);
                encode(&LeaveGroupResponse::default(), key, version, id)
            }
            ApiKey::OffsetCommit => {
                let request = OffsetCommitRequest::decode(&mut d, version).expect("a request");
                self.note(key, request.generation_id_or_member_epoch);
                let by = (request.member_id, request.generation_id_or_member_epoch);
                self.committers.lock().expect("nobody panicked").push(by);
                let refused = self.refused_commits.lock().expect("nobody panicked").pop_front();
                encode(&committed(refused), key, version, id)
            }
            ApiKey::OffsetFetch => {
                if self.moves.load(Ordering::SeqCst) {
                    self.moved.store(true, Ordering::SeqCst);
                }
                let here = if self.coordinator() == node { 0 } else { ErrorCode::NotCoordinator.code() };
                let mut offsets = offsets(here);
                if self.has_leaderless() {
                    offsets.groups[0].topics[0].partitions[1].committed_offset = -1;
                }
                self.note(key, -1);
                encode(&offsets, key, version, id)
            }
            ApiKey::Fetch => {
                let request = FetchRequest::decode(&mut d, version).expect("a request");
                self.note(key, node);
                let sends_on = node == 1 && self.sends_on.load(Ordering::SeqCst);
                assert!(!sends_on || request.rack_id == RACK, "it says where it is");
                let response = if sends_on { sent_on() } else { FetchResponse::default() };
                encode(&response, key, version, id)
            }
            other => panic!("{other:?} is not expected"),
        }
    }
}

pub fn encode<M: Message>(message: &M, key: ApiKey, version: i16, id: i32) -> Bytes {
    frame::encode_response(message, key, version, id).expect("an answer").0.freeze()
}

fn versions() -> ApiVersionsResponse {
    let api_keys = SERVED.map(|key| {
        let (min_version, max_version) = key.versions();
        // Later ones name topics by their ids.
        let by_name = [ApiKey::OffsetFetch, ApiKey::OffsetCommit].contains(&key);
        let max_version = if by_name { 8 } else { max_version };
        ApiVersion { api_key: key as i16, min_version, max_version }
    });
    ApiVersionsResponse { api_keys: api_keys.to_vec(), ..Default::default() }
}

pub fn metadata(version: i16) -> MetadataResponse {
    let broker = |node_id| MetadataResponseBroker {
        node_id,
        host: "node".to_owned(),
        port: node_id,
        ..MetadataResponseBroker::default()
    };
    let partition = |partition_index| MetadataResponsePartition {
        partition_index,
        leader_id: 1,
        ..MetadataResponsePartition::default()
    };
    let topic = MetadataResponseTopic {
        name: Some(TOPIC.to_owned()),
        topic_id: if version >= 10 { TOPIC_ID } else { Uuid::ZERO },
        partitions: vec![partition(0), partition(1)],
        ..MetadataResponseTopic::default()
    };
    MetadataResponse { brokers: [1, 2].map(broker).to_vec(), topics: vec![topic], ..Default::default() }
}

fn assignment(partitions: &[i32]) -> Bytes {
    let partitions = AssignedPartitions { topic: TOPIC.to_owned(), partitions: partitions.to_vec() };
    let assigned_partitions = vec![partitions];
    let assignment = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
    let mut framed = BytesMut::new();
    framed.put_i16(1);
    framed.put_slice(&assignment.to_bytes(1).expect("version 1 holds it"));
    framed.freeze()
}

/// How many partitions a member owns, by its subscription.
fn owned(subscription: &Bytes) -> usize {
    let mut d = Decoder::new(subscription.clone());
    let version = d.i16().expect("a version");
    let subscription = ConsumerProtocolSubscription::decode(&mut d, version).expect("a subscription");
    subscription.owned_partitions.iter().map(|topic| topic.partitions.len()).sum()
}

fn committed(error: Option<ErrorCode>) -> OffsetCommitResponse {
    let partition =
        OffsetCommitResponsePartition { partition_index: 0, error_code: error.map_or(0, ErrorCode::code) };
    let topic = OffsetCommitResponseTopic {
        name: TOPIC.to_owned(),
        partitions: vec![partition],
        ..OffsetCommitResponseTopic::default()
    };
    OffsetCommitResponse { topics: vec![topic], ..OffsetCommitResponse::default() }
}

/// A fetch that is to be made from the follower.
fn sent_on() -> FetchResponse {
    let partition = PartitionData { preferred_read_replica: 2, ..PartitionData::default() };
    let (topic, topic_id) = (TOPIC.to_owned(), TOPIC_ID);
    let topic = FetchableTopicResponse { topic, topic_id, partitions: vec![partition] };
    FetchResponse { responses: vec![topic], ..FetchResponse::default() }
}

/// The node that coordinates the group.
pub fn found_coordinator(node_id: i32) -> FindCoordinatorResponse {
    let (group, host) = (GROUP.to_owned(), "node".to_owned());
    let found = Coordinator { key: group, node_id, host, port: node_id, ..Default::default() };
    FindCoordinatorResponse { coordinators: vec![found], ..Default::default() }
}

/// The group's committed offset of both partitions, without its leader epoch.
pub fn offsets(error_code: i16) -> OffsetFetchResponse {
    let mut offsets = committed_positions((COMMITTED, -1));
    let group = &mut offsets.groups[0];
    group.error_code = error_code;
    if error_code != 0 {
        group.topics.clear();
    }
    offsets
}

/// Offset and leader epoch of the group's committed position in both partitions.
pub fn committed_positions((committed_offset, committed_leader_epoch): (i64, i32)) -> OffsetFetchResponse {
    let partition = |partition_index| OffsetFetchResponsePartitions {
        partition_index,
        committed_offset,
        committed_leader_epoch,
        ..OffsetFetchResponsePartitions::default()
    };
    let topic = OffsetFetchResponseTopics {
        name: TOPIC.to_owned(),
        partitions: vec![partition(0), partition(1)],
        ..OffsetFetchResponseTopics::default()
    };
    let group = OffsetFetchResponseGroup {
        group_id: GROUP.to_owned(),
        topics: vec![topic],
        ..OffsetFetchResponseGroup::default()
    };
    OffsetFetchResponse { groups: vec![group], ..Default::default() }
}

/// A consumer with the group, which has not joined.
pub async fn consumer_of(brokers: &Brokers, config: ConsumerConfig) -> Consumer {
    let bootstrap = ["node:1".to_owned()];
    let options = ConnectionOptions::default();
    let cluster = Cluster::connect_by(brokers.connector(), &bootstrap, &options);
    let config = ConsumerConfig { group: Some(GROUP.to_owned()), ..config };
    Consumer::new(cluster.await.expect("connected"), config)
}

/// A consumer that joins once it is polled.
async fn member_of(brokers: &Brokers, config: ConsumerConfig) -> Consumer {
    let mut consumer = consumer_of(brokers, ConsumerConfig { auto_commit: None, ..config }).await;
    consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
    consumer
}

pub async fn member(brokers: &Brokers, config: ConsumerConfig) -> Consumer {
    assigned(member_of(brokers, config).await).await
}

/// Polls a consumer until it has joined.
pub async fn assigned(mut consumer: Consumer) -> Consumer {
    let polled = tokio::time::timeout(Duration::from_secs(60), consumer.poll(Duration::from_secs(1))).await;
    let polled = polled.expect("the coordinator is asked").expect("it answers");
    assert!(matches!(polled, PollEvent::Assigned(_)), "{polled:?}");
    consumer
}

/// The next nonempty result of polling.
pub async fn next(consumer: &mut Consumer) -> PollEvent {
    for _ in 0..100 {
        let polled = consumer.poll(Duration::from_secs(1)).await.expect("a poll");
        if !matches!(polled, PollEvent::Nothing) {
            return polled;
        }
    }
    panic!("nothing happens");
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moves_during_an_offset_fetch_is_found_again() {
    let brokers = Brokers::default();
    brokers.moves.store(true, Ordering::SeqCst);
    let consumer = member(&brokers, ConsumerConfig::default()).await;
    assert_eq!(consumer.position(&TopicPartition::new(TOPIC, 0)), Some(Offset(COMMITTED)));
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moves_costs_a_member_nothing() {
    let brokers = Brokers::default();
    let mut consumer = member(&brokers, ConsumerConfig::default()).await;
    brokers.moved.store(true, Ordering::SeqCst);
    for _ in 0..30 {
        let polled = consumer.poll(Duration::from_secs(1)).await.expect("a poll");
        assert!(matches!(polled, PollEvent::Nothing), "{polled:?}");
    }
    assert_eq!(brokers.count(ApiKey::JoinGroup), 1);
    assert!(brokers.count(ApiKey::Heartbeat) > 5);
}

#[tokio::test(start_paused = true)]
async fn revoked_partitions_are_the_members_until_it_polls_again() {
    let brokers = Brokers::default();
    let mut consumer = member(&brokers, ConsumerConfig::default()).await;
    brokers.next_heartbeat(ErrorCode::RebalanceInProgress);
    let PollEvent::Revoked(partitions) = next(&mut consumer).await else { panic!("the group rebalances") };
    assert_eq!(partitions, [TopicPartition::new(TOPIC, 0)]);
    let beats = brokers.count(ApiKey::Heartbeat);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(brokers.count(ApiKey::Heartbeat) >= beats + 9, "the session is kept alive");
    assert_eq!(brokers.count(ApiKey::JoinGroup), 1, "the partitions are not given up yet");
    let offsets = [(partitions[0].clone(), CommittedOffset::new(Offset(9)))];
    consumer.commit_offsets(offsets.into()).await.expect("committed");
    assert_eq!(brokers.requests.lock().expect("nobody panicked").last(), Some(&(ApiKey::OffsetCommit, 1)));
    let polled = next(&mut consumer).await;
    assert!(matches!(polled, PollEvent::Assigned(_)), "{polled:?}");
    assert_eq!(brokers.count(ApiKey::JoinGroup), 2);
    assert_eq!(consumer.group_metadata().expect("a member").generation, 2);
    let polled = consumer.poll(Duration::from_secs(1)).await.expect("a poll");
    assert!(matches!(polled, PollEvent::Nothing), "{polled:?}");
    // For metadata, for heartbeats and commits, and for fetches.
    assert_eq!(brokers.connections(), 3, "the connection of the second join has ended");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_forgotten_has_lost_its_partitions() {
    let brokers = Brokers::default();
    let mut consumer = member(&brokers, ConsumerConfig::default()).await;
    brokers.next_heartbeat(ErrorCode::UnknownMemberId);
    let polled = next(&mut consumer).await;
    assert!(matches!(polled, PollEvent::Lost(_)), "{polled:?}");
    assert_eq!(consumer.position(&TopicPartition::new(TOPIC, 0)), None);
    assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)));
}

#[tokio::test(start_paused = true)]
async fn a_member_keeps_its_id_unless_it_is_unknown() {
    let cases = [(ErrorCode::IllegalGeneration, "member"), (ErrorCode::UnknownMemberId, "")];
    for (error, member_id) in cases {
        let brokers = Brokers::default();
        let mut consumer = member(&brokers, ConsumerConfig::default()).await;
        brokers.next_heartbeat(error);
        assert!(matches!(next(&mut consumer).await, PollEvent::Lost(_)), "{error}");
        assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)), "{error}");
        let joined = brokers.joined.lock().expect("nobody panicked").clone();
        let ids: Vec<&str> = joined.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(
            ids,
            ["", member_id],
            "{error}: with another id, the group waits for the session of the old one"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn joins_that_are_refused_again_and_again_have_pauses() {
    for error in [ErrorCode::UnknownMemberId, ErrorCode::RebalanceInProgress, ErrorCode::IllegalGeneration] {
        let brokers = Brokers::default();
        *brokers.refused_joins.lock().expect("nobody panicked") = [error; 40].into();
        let began = Instant::now();
        let mut consumer = member_of(&brokers, ConsumerConfig::default()).await;
        assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)), "{error}");
        assert!(began.elapsed() > Duration::from_secs(3), "{error}: 40 joins within {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_commit_makes_a_member_check_its_membership() {
    for error in [ErrorCode::UnknownMemberId, ErrorCode::IllegalGeneration] {
        let brokers = Brokers::default();
        let config =
            ConsumerConfig { heartbeat_interval: Duration::from_secs(30), ..ConsumerConfig::default() };
        let mut consumer = member(&brokers, config).await;
        brokers.refuse_commit(error);
        brokers.next_heartbeat(error);
        let offsets = [(TopicPartition::new(TOPIC, 0), CommittedOffset::new(Offset(9)))];
        consumer.commit_offsets(offsets.into()).await.expect_err("another generation");
        let polled = consumer.poll(Duration::from_secs(1)).await.expect("a poll");
        assert!(matches!(polled, PollEvent::Lost(_)), "{error}: {polled:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cooperative_member_gives_up_what_it_does_not_subscribe_to_before_it_joins() {
    let brokers = Brokers::default();
    let assignment_strategies = vec![AssignmentStrategy::CooperativeSticky];
    let config = ConsumerConfig { assignment_strategies, ..ConsumerConfig::default() };
    let mut consumer = member(&brokers, config).await;
    consumer.subscribe(vec!["other".to_owned()]).expect("it has a group");
    let polled = next(&mut consumer).await;
    let PollEvent::Revoked(partitions) = polled else { panic!("{polled:?} comes first") };
    assert_eq!(partitions, [TopicPartition::new(TOPIC, 0)]);
    assert_eq!(brokers.count(ApiKey::JoinGroup), 1, "others could have it at once");
    assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)));
    let joined = brokers.joined.lock().expect("nobody panicked").clone();
    assert_eq!(joined.last(), Some(&("member".to_owned(), 0)));
    // Topics that it keeps stay with it.
    consumer.subscribe(vec!["other".to_owned(), TOPIC.to_owned()]).expect("it has a group");
    assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)));
    let joined = brokers.joined.lock().expect("nobody panicked").clone();
    assert_eq!(joined.last(), Some(&("member".to_owned(), 1)));
}

#[tokio::test(start_paused = true)]
async fn a_fenced_member_gets_the_error() {
    let brokers = Brokers::default();
    let mut consumer = member(&brokers, ConsumerConfig::default()).await;
    brokers.next_heartbeat(ErrorCode::FencedInstanceId);
    assert!(matches!(next(&mut consumer).await, PollEvent::Lost(_)));
    let error = consumer.poll(Duration::from_secs(1)).await.expect_err("another has its name");
    assert_eq!(error.error_code(), Some(ErrorCode::FencedInstanceId));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_does_not_poll_leaves_until_it_does() {
    let brokers = Brokers::default();
    let rebalance_timeout = Duration::from_secs(20);
    let config = ConsumerConfig { rebalance_timeout, ..ConsumerConfig::default() };
    let mut consumer = member(&brokers, config).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(brokers.count(ApiKey::LeaveGroup), 0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((brokers.count(ApiKey::LeaveGroup), brokers.count(ApiKey::JoinGroup)), (1, 1));
    assert!(matches!(next(&mut consumer).await, PollEvent::Lost(_)));
    assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)));
    consumer.close().await.expect("left");
    assert_eq!(brokers.count(ApiKey::LeaveGroup), 2);
}

#[tokio::test(start_paused = true)]
async fn a_partition_without_a_leader_does_not_hold_back_the_others() {
    let brokers = Brokers::default();
    brokers.has_leaderless.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let mut consumer = member_of(&brokers, ConsumerConfig::default()).await;
    let PollEvent::Assigned(partitions) = next(&mut consumer).await else { panic!("it has joined") };
    let [led, leaderless] = [0, 1].map(|partition| TopicPartition::new(TOPIC, partition));
    assert_eq!(partitions, [led.clone(), leaderless.clone()]);
    assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
    assert_eq!((consumer.position(&led), consumer.position(&leaderless)), (Some(Offset(COMMITTED)), None));
    assert_eq!(consumer.unavailable(), [leaderless]);
    for _ in 0..3 {
        consumer.poll(Duration::from_secs(1)).await.expect("a poll");
    }
    assert!(brokers.count(ApiKey::Fetch) > 0, "the other partition is read");
    assert_eq!(brokers.count(ApiKey::OffsetFetch), 1, "the committed offsets are known");
}

#[tokio::test(start_paused = true)]
async fn a_follower_in_the_same_rack_is_read_from() {
    let brokers = Brokers::default();
    brokers.sends_on.store(true, Ordering::SeqCst);
    let config = ConsumerConfig { rack: Some(RACK.to_owned()), ..ConsumerConfig::default() };
    let mut consumer = member(&brokers, config).await;
    for _ in 0..30 {
        consumer.poll(Duration::from_secs(1)).await.expect("a poll");
    }
    let requests = brokers.requests.lock().expect("nobody panicked").clone();
    let of = |node| requests.iter().filter(|request| **request == (ApiKey::Fetch, node)).count();
    assert_eq!(of(1), 1, "the leader is asked once");
    assert!(of(2) > 50, "then the follower: {} fetches", of(2));
}

#[tokio::test(start_paused = true)]
async fn a_static_leader_that_returns_watches_the_topics() {
    let brokers = Brokers::default();
    brokers.leads_again.store(true, Ordering::SeqCst);
    let config = ConsumerConfig { metadata_max_age: Duration::from_secs(60), ..ConsumerConfig::default() };
    let mut consumer = member(&brokers, config).await;
    for _ in 0..120 {
        consumer.poll(Duration::from_secs(1)).await.expect("a poll");
    }
    assert_eq!(brokers.count(ApiKey::JoinGroup), 1, "nothing has changed");
    brokers.has_grown.store(true, Ordering::SeqCst);
    for _ in 0..120 {
        consumer.poll(Duration::from_secs(1)).await.expect("a poll");
    }
    assert_eq!(brokers.count(ApiKey::JoinGroup), 2, "the topic has a partition more");
}

#[tokio::test(start_paused = true)]
async fn a_poll_whose_future_is_dropped_loses_nothing() {
    let brokers = Brokers::default();
    let bootstrap = ["node:1".to_owned()];
    let options = ConnectionOptions::default();
    let cluster = Cluster::connect_by(brokers.connector(), &bootstrap, &options);
    let config = ConsumerConfig { group: Some(GROUP.to_owned()), ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(cluster.await.expect("connected"), config);
    consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
    for _ in 0..1000 {
        let poll = consumer.poll(Duration::from_secs(1));
        if let Ok(polled) = tokio::time::timeout(Duration::from_millis(1), poll).await {
            assert!(matches!(polled, Ok(PollEvent::Assigned(_))), "{polled:?}");
            assert_eq!(brokers.count(ApiKey::JoinGroup), 1);
            return;
        }
    }
    panic!("nothing was assigned");
}
