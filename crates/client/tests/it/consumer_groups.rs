//! A member of a consumer group (KIP-848) beside a scripted coordinator: the fields of its heartbeats, the
//! order of a rebalance, commits while its epoch changes, and its ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use thalweg_client::{
    CloseReason, Cluster, CommittedOffset, ConnectionOptions, Connector, Consumer, ConsumerConfig,
    GroupProtocol, PollEvent, TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use thalweg_wire::request::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message, Uuid, frame};
use tokio::io::DuplexStream;

use crate::fake::{TOPIC, TOPIC_ID};
use crate::groups::{GROUP, connector, encode, found_coordinator, metadata, offsets, serve};

/// The interval of heartbeats.
const INTERVAL: Duration = Duration::from_secs(1);
const SERVED: [ApiKey; 7] = [
    ApiKey::ApiVersions,
    ApiKey::Metadata,
    ApiKey::FindCoordinator,
    ApiKey::ConsumerGroupHeartbeat,
    ApiKey::OffsetFetch,
    ApiKey::OffsetCommit,
    ApiKey::Fetch,
];

/// A broker that coordinates the group.
#[derive(Clone)]
pub struct Coordinator {
    /// The answers to the next heartbeats; then the epoch stays.
    answers: Arc<Mutex<VecDeque<ConsumerGroupHeartbeatResponse>>>,
    epoch: Arc<Mutex<i32>>,
    beats: Arc<Mutex<Vec<ConsumerGroupHeartbeatRequest>>>,
    /// The epochs of commits.
    pub commits: Arc<Mutex<Vec<i32>>>,
    /// Whether Metadata has the topic.
    has_topic: Arc<AtomicBool>,
    /// The last version of the heartbeat, if it is served.
    newest: Option<i16>,
}

impl Coordinator {
    fn serving(newest: Option<i16>) -> Coordinator {
        Coordinator {
            answers: Arc::default(),
            epoch: Arc::default(),
            beats: Arc::default(),
            commits: Arc::default(),
            has_topic: Arc::new(AtomicBool::new(true)),
            newest,
        }
    }

    /// One that gives both partitions to the first member.
    pub fn new() -> Coordinator {
        let coordinator = Coordinator::serving(Some(1));
        coordinator.next(assigned(1, &[0, 1]));
        coordinator
    }

    fn next(&self, answer: ConsumerGroupHeartbeatResponse) {
        self.answers.lock().expect("no panic").push_back(answer);
    }

    pub fn refuse(&self, error: ErrorCode) {
        self.next(ConsumerGroupHeartbeatResponse { error_code: error.code(), ..Default::default() });
    }

    pub fn beats(&self) -> Vec<ConsumerGroupHeartbeatRequest> {
        self.beats.lock().expect("no panic").clone()
    }

    fn last(&self) -> ConsumerGroupHeartbeatRequest {
        self.beats().pop().expect("a heartbeat")
    }

    fn connector(&self) -> Connector {
        let coordinator = self.clone();
        connector(move |stream| coordinator.clone().serve(stream))
    }

    async fn serve(self, stream: DuplexStream) -> Result<(), CloseReason> {
        // There is nothing to read.
        let waits = |key| key == ApiKey::Fetch;
        serve(stream, waits, |key, version, id, request| self.answer(key, version, id, request)).await
    }

    fn answer(&self, key: ApiKey, version: i16, id: i32, request: Bytes) -> Bytes {
        let mut d = Decoder::new(request);
        frame::decode_request_header(&mut d, key, version).expect("a header");
        match key {
            ApiKey::ApiVersions => encode(&self.versions(), key, version, id),
            ApiKey::Metadata => {
                let mut response = metadata(version);
                if !self.has_topic.load(Ordering::SeqCst) {
                    response.topics.clear();
                }
                encode(&response, key, version, id)
            }
            ApiKey::FindCoordinator => encode(&found_coordinator(1), key, version, id),
            ApiKey::ConsumerGroupHeartbeat => {
                let request = ConsumerGroupHeartbeatRequest::decode(&mut d, version).expect("a request");
                encode(&self.heartbeat(request), key, version, id)
            }
            ApiKey::OffsetFetch => encode(&offsets(0), key, version, id),
            ApiKey::OffsetCommit => {
                let request = OffsetCommitRequest::decode(&mut d, version).expect("a request");
                let epoch = request.generation_id_or_member_epoch;
                self.commits.lock().expect("no panic").push(epoch);
                let is_stale = epoch != *self.epoch.lock().expect("no panic");
                let partition = OffsetCommitResponsePartition {
                    partition_index: 0,
                    error_code: if is_stale { ErrorCode::StaleMemberEpoch.code() } else { 0 },
                };
                let topic = OffsetCommitResponseTopic {
                    name: TOPIC.to_owned(),
                    partitions: vec![partition],
                    ..Default::default()
                };
                encode(&OffsetCommitResponse { topics: vec![topic], ..Default::default() }, key, version, id)
            }
            ApiKey::Fetch => encode(&FetchResponse::default(), key, version, id),
            other => panic!("{other:?} is not expected"),
        }
    }

    fn heartbeat(&self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
        let member_id = Some(request.member_id.clone());
        self.beats.lock().expect("no panic").push(request);
        let mut epoch = self.epoch.lock().expect("no panic");
        let scripted = self.answers.lock().expect("no panic").pop_front();
        let answer = scripted.unwrap_or(ConsumerGroupHeartbeatResponse {
            member_epoch: *epoch,
            heartbeat_interval_ms: i32::try_from(INTERVAL.as_millis()).expect("a second"),
            ..Default::default()
        });
        if answer.error_code == 0 {
            *epoch = answer.member_epoch;
        }
        ConsumerGroupHeartbeatResponse { member_id, ..answer }
    }

    fn versions(&self) -> ApiVersionsResponse {
        let api_keys = SERVED.into_iter().filter_map(|key| {
            let (min_version, max_version) = key.versions();
            let max_version = match key {
                ApiKey::ConsumerGroupHeartbeat => self.newest?,
                // Later ones name topics by their ids.
                ApiKey::OffsetFetch | ApiKey::OffsetCommit => 9,
                _ => max_version,
            };
            Some(ApiVersion { api_key: key as i16, min_version, max_version })
        });
        ApiVersionsResponse { api_keys: api_keys.collect(), ..Default::default() }
    }

    async fn consumer(&self, config: ConsumerConfig) -> Consumer {
        let bootstrap = ["node:1".to_owned()];
        let options = ConnectionOptions::default();
        let cluster = Cluster::connect_by(self.connector(), &bootstrap, &options);
        let config = ConsumerConfig {
            group: Some(GROUP.to_owned()),
            group_protocol: GroupProtocol::Consumer,
            auto_commit: None,
            ..config
        };
        Consumer::new(cluster.await.expect("connected"), config)
    }

    /// A member that has the assigned partitions and has reported that.
    pub async fn member(&self, config: ConsumerConfig) -> Consumer {
        let mut consumer = self.consumer(config).await;
        consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
        let polled = next(&mut consumer).await;
        assert!(matches!(polled, PollEvent::Assigned(_)), "{polled:?}");
        idle(&mut consumer, 2).await;
        consumer
    }
}

fn assigned(epoch: i32, partitions: &[i32]) -> ConsumerGroupHeartbeatResponse {
    let topic = TopicPartitions { topic_id: TOPIC_ID, partitions: partitions.to_vec() };
    let topic_partitions = if partitions.is_empty() { Vec::new() } else { vec![topic] };
    ConsumerGroupHeartbeatResponse {
        member_epoch: epoch,
        heartbeat_interval_ms: i32::try_from(INTERVAL.as_millis()).expect("a second"),
        assignment: Some(Assignment { topic_partitions }),
        ..Default::default()
    }
}

/// The partitions that a heartbeat reports, if it does.
fn reported(request: &ConsumerGroupHeartbeatRequest) -> Option<Vec<(Uuid, Vec<i32>)>> {
    let topics = request.topic_partitions.as_ref()?;
    Some(topics.iter().map(|topic| (topic.topic_id, topic.partitions.clone())).collect())
}

/// The next nonempty result of polling.
async fn next(consumer: &mut Consumer) -> PollEvent {
    for _ in 0..100 {
        let polled = consumer.poll(Duration::from_secs(1)).await.expect("a poll");
        if !matches!(polled, PollEvent::Nothing) {
            return polled;
        }
    }
    panic!("nothing happens");
}

/// Polls for so many intervals, in which nothing is to happen.
async fn idle(consumer: &mut Consumer, intervals: usize) {
    for _ in 0..intervals {
        let polled = consumer.poll(INTERVAL).await.expect("a poll");
        assert!(matches!(polled, PollEvent::Nothing), "{polled:?}");
    }
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, partition)
}

#[tokio::test(start_paused = true)]
async fn a_member_joins_with_all_fields_and_then_sends_those_that_changed() {
    let coordinator = Coordinator::new();
    let config = ConsumerConfig {
        group_instance_id: Some("i".to_owned()),
        rack: Some("r".to_owned()),
        remote_assignor: Some("range".to_owned()),
        rebalance_timeout: Duration::from_secs(60),
        ..ConsumerConfig::default()
    };
    let mut consumer = coordinator.member(config).await;
    let beats = coordinator.beats();
    let join = ConsumerGroupHeartbeatRequest {
        group_id: GROUP.to_owned(),
        member_id: beats[0].member_id.clone(),
        member_epoch: 0,
        instance_id: Some("i".to_owned()),
        rack_id: Some("r".to_owned()),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec![TOPIC.to_owned()]),
        subscribed_topic_regex: Some(String::new()),
        server_assignor: Some("range".to_owned()),
        topic_partitions: Some(Vec::new()),
    };
    assert_eq!(beats[0], join);
    assert!(join.member_id.parse::<Uuid>().is_ok(), "the member chooses its id");
    let short = ConsumerGroupHeartbeatRequest {
        member_epoch: 1,
        instance_id: Some("i".to_owned()),
        group_id: GROUP.to_owned(),
        member_id: join.member_id.clone(),
        ..Default::default()
    };
    assert_eq!(reported(&beats[1]), Some(vec![(TOPIC_ID, vec![0, 1])]), "it acknowledges at once");
    assert_eq!(ConsumerGroupHeartbeatRequest { topic_partitions: None, ..beats[1].clone() }, short);
    assert_eq!(beats[2], short);

    consumer.subscribe(vec![TOPIC.to_owned(), "other".to_owned()]).expect("it has a group");
    idle(&mut consumer, 1).await;
    let changed = coordinator.beats().into_iter().rfind(|beat| beat.subscribed_topic_names.is_some());
    let changed = changed.expect("the subscription is sent");
    assert_eq!(changed.subscribed_topic_names.map(|names| names.len()), Some(2));
    assert_eq!((changed.member_epoch, changed.rebalance_timeout_ms), (1, -1));

    // After a failure the coordinator may have missed something.
    coordinator.refuse(ErrorCode::CoordinatorLoadInProgress);
    let before = coordinator.beats().len();
    idle(&mut consumer, 3).await;
    let again = coordinator.beats()[before + 1].clone();
    assert_eq!((again.member_epoch, again.rebalance_timeout_ms), (1, 60_000));
    assert_eq!(reported(&again), Some(vec![(TOPIC_ID, vec![0, 1])]));
    assert_eq!(coordinator.last().topic_partitions, None);
}

#[tokio::test(start_paused = true)]
async fn partitions_are_reported_as_revoked_when_the_consumer_has_released_them() {
    let coordinator = Coordinator::new();
    let mut consumer = coordinator.member(ConsumerConfig::default()).await;
    coordinator.next(assigned(1, &[1]));
    let PollEvent::Revoked(partitions) = next(&mut consumer).await else { panic!("one is to be given up") };
    assert_eq!(partitions, [at(0)]);
    let before = coordinator.beats().len();
    tokio::time::sleep(10 * INTERVAL).await;
    let meanwhile = coordinator.beats().split_off(before);
    assert!(meanwhile.len() >= 9, "the session is kept alive");
    assert!(meanwhile.iter().all(|beat| beat.topic_partitions.is_none()), "it is not given up yet");
    let offsets = [(at(0), CommittedOffset::new(Offset(9)))];
    consumer.commit_offsets(offsets.into()).await.expect("committed");
    assert_eq!(*coordinator.commits.lock().expect("no panic"), [1]);

    coordinator.next(assigned(2, &[1]));
    idle(&mut consumer, 1).await;
    let last = coordinator.beats().split_off(before + meanwhile.len());
    assert_eq!(last.iter().find_map(reported), Some(vec![(TOPIC_ID, vec![1])]), "it is given up");
    assert_eq!(consumer.assignment().collect::<Vec<_>>(), [at(1)]);
    assert_eq!(consumer.group_metadata().expect("a member").generation, 2);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_member_has_lost_its_partitions_and_joins_again() {
    for error in [ErrorCode::FencedMemberEpoch, ErrorCode::UnknownMemberId] {
        let coordinator = Coordinator::new();
        let mut consumer = coordinator.member(ConsumerConfig::default()).await;
        coordinator.refuse(error);
        coordinator.next(assigned(5, &[1]));
        let before = coordinator.beats().len();
        let PollEvent::Lost(lost) = next(&mut consumer).await else { panic!("{error}: they are lost") };
        assert_eq!(lost, [at(0), at(1)]);
        let PollEvent::Assigned(partitions) = next(&mut consumer).await else { panic!("it joins") };
        assert_eq!(partitions, [at(1)]);
        let join = coordinator.beats()[before + 1].clone();
        assert_eq!((join.member_epoch, reported(&join)), (0, Some(Vec::new())));
        assert_eq!(join.member_id, coordinator.beats()[0].member_id);
        assert_eq!(consumer.group_metadata().expect("a member").generation, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_does_not_exist_ends_the_membership() {
    let coordinator = Coordinator::new();
    let mut consumer = coordinator.member(ConsumerConfig::default()).await;
    coordinator.refuse(ErrorCode::GroupIdNotFound);
    assert!(matches!(next(&mut consumer).await, PollEvent::Lost(_)));
    let beats = coordinator.beats().len();
    for _ in 0..2 {
        let error = consumer.poll(10 * INTERVAL).await.expect_err("it is no member");
        assert_eq!(error.error_code(), Some(ErrorCode::GroupIdNotFound), "{error}");
    }
    assert_eq!(coordinator.beats().len(), beats, "nothing more is asked");

    // The group is of another type: the join is refused.
    let other = Coordinator::serving(Some(1));
    (0..100).for_each(|_| other.refuse(ErrorCode::GroupIdNotFound));
    let mut consumer = other.consumer(ConsumerConfig::default()).await;
    consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
    let error = consumer.poll(INTERVAL).await.expect_err("it cannot join");
    assert_eq!(error.error_code(), Some(ErrorCode::GroupIdNotFound), "{error}");
    assert_eq!(other.beats().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_does_not_exist_any_more_is_left() {
    let coordinator = Coordinator::new();
    let consumer = coordinator.member(ConsumerConfig::default()).await;
    coordinator.refuse(ErrorCode::GroupIdNotFound);
    consumer.close().await.expect("left");
}

#[tokio::test(start_paused = true)]
async fn joins_that_are_refused_again_and_again_have_pauses() {
    let coordinator = Coordinator::serving(Some(1));
    (0..40).for_each(|_| coordinator.refuse(ErrorCode::UnknownMemberId));
    coordinator.next(assigned(1, &[0]));
    let began = tokio::time::Instant::now();
    let mut consumer = coordinator.consumer(ConsumerConfig::default()).await;
    consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
    assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)));
    assert!(began.elapsed() > Duration::from_secs(3), "40 joins within {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_the_member_may_not_see_is_reported_and_the_member_goes_on() {
    let coordinator = Coordinator::new();
    let mut consumer = coordinator.member(ConsumerConfig::default()).await;
    coordinator.refuse(ErrorCode::TopicAuthorizationFailed);
    let error = consumer.poll(10 * INTERVAL).await.expect_err("it is reported");
    assert_eq!(error.error_code(), Some(ErrorCode::TopicAuthorizationFailed), "{error}");
    let before = coordinator.beats().len();
    idle(&mut consumer, 3).await;
    assert!(coordinator.beats().len() > before + 1, "the member goes on");
    assert_eq!(coordinator.beats()[before].member_epoch, 1);
    assert_eq!(consumer.assignment().count(), 2, "it keeps its partitions");
}

#[tokio::test(start_paused = true)]
async fn a_commit_follows_the_epoch_while_its_partitions_are_held() {
    let coordinator = Coordinator::new();
    let mut consumer = coordinator.member(ConsumerConfig::default()).await;
    let raise = |epoch| *coordinator.epoch.lock().expect("no panic") = epoch;
    // Another member has joined: the next heartbeat brings the epoch.
    raise(2);
    let offsets = || [(at(0), CommittedOffset::new(Offset(9)))].into();
    let commit = consumer.commit_async(offsets()).expect("it has a group");
    let (committed, polled) = tokio::join!(commit, consumer.poll(3 * INTERVAL));
    committed.expect("committed");
    assert!(matches!(polled, Ok(PollEvent::Nothing)), "{polled:?}");
    let epochs = coordinator.commits.lock().expect("no panic").clone();
    assert_eq!((epochs.first(), epochs.last()), (Some(&1), Some(&2)), "{epochs:?}");

    // The partition is another member's now, and may be this one's again.
    coordinator.next(assigned(2, &[1]));
    assert!(matches!(next(&mut consumer).await, PollEvent::Revoked(_)));
    raise(3);
    let commit = consumer.commit_async(offsets()).expect("it has a group");
    coordinator.next(assigned(4, &[0, 1]));
    let polled = consumer.poll(3 * INTERVAL).await.expect("a poll");
    assert!(matches!(polled, PollEvent::Assigned(_)), "{polled:?}");
    let error = commit.await.expect_err("others may have read on");
    assert_eq!(error.error_code(), Some(ErrorCode::IllegalGeneration), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_member_leaves_for_good_and_a_static_one_for_a_while() {
    for (instance, epoch) in [(None, -1), (Some("i".to_owned()), -2)] {
        let coordinator = Coordinator::new();
        let config = ConsumerConfig { group_instance_id: instance.clone(), ..ConsumerConfig::default() };
        coordinator.member(config).await.close().await.expect("left");
        let last = coordinator.last();
        assert_eq!((last.member_epoch, last.instance_id), (epoch, instance));
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_does_not_poll_leaves_until_it_does() {
    let coordinator = Coordinator::new();
    let config = ConsumerConfig { rebalance_timeout: Duration::from_secs(20), ..ConsumerConfig::default() };
    let mut consumer = coordinator.member(config).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(coordinator.last().member_epoch, 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(coordinator.last().member_epoch, -1);
    coordinator.next(assigned(3, &[0]));
    assert!(matches!(next(&mut consumer).await, PollEvent::Lost(_)));
    assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)));
    consumer.close().await.expect("left");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_the_metadata_lacks_is_looked_up_by_its_id() {
    let coordinator = Coordinator::new();
    coordinator.has_topic.store(false, Ordering::SeqCst);
    let mut consumer = coordinator.consumer(ConsumerConfig::default()).await;
    consumer.subscribe_pattern("t.*").expect("it is one");
    idle(&mut consumer, 5).await;
    assert!(coordinator.beats().len() >= 4, "heartbeats do not wait for it");
    coordinator.has_topic.store(true, Ordering::SeqCst);
    let PollEvent::Assigned(partitions) = next(&mut consumer).await else { panic!("it is known") };
    assert_eq!(partitions, [at(0), at(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_pattern_is_for_the_coordinator() {
    let coordinator = Coordinator::new();
    let mut consumer = coordinator.consumer(ConsumerConfig::default()).await;
    consumer.subscribe_pattern("t.*").expect("it is one");
    assert!(matches!(next(&mut consumer).await, PollEvent::Assigned(_)));
    let join = coordinator.beats()[0].clone();
    assert_eq!(join.subscribed_topic_regex.as_deref(), Some("t.*"));
    assert_eq!(join.subscribed_topic_names, Some(Vec::new()));
    // Then names again: the coordinator is to forget the expression.
    consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
    idle(&mut consumer, 1).await;
    let changed = coordinator.beats().into_iter().rfind(|beat| beat.subscribed_topic_names.is_some());
    let changed = changed.expect("the subscription is sent");
    assert_eq!(changed.subscribed_topic_regex.as_deref(), Some(""));
    assert_eq!(changed.subscribed_topic_names, Some(vec![TOPIC.to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_broker_without_the_protocol_is_an_error_that_names_the_setting() {
    let off = Coordinator::serving(Some(1));
    off.refuse(ErrorCode::UnsupportedVersion);
    let older = Coordinator::serving(None);
    for coordinator in [off, older] {
        let mut consumer = coordinator.consumer(ConsumerConfig::default()).await;
        consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
        let error = consumer.poll(INTERVAL).await.expect_err("it cannot join");
        assert_eq!(error.error_code(), Some(ErrorCode::UnsupportedVersion), "{error}");
        assert!(error.to_string().contains("expected group.protocol=classic"), "{error}");
    }
    let mut consumer = Coordinator::serving(Some(0)).consumer(ConsumerConfig::default()).await;
    consumer.subscribe_pattern("t.*").expect("it is one");
    let error = consumer.poll(INTERVAL).await.expect_err("it has no expressions").to_string();
    assert!(error.contains("ConsumerGroupHeartbeat in versions 0 to 0, where 1 to 1"), "{error}");
}
