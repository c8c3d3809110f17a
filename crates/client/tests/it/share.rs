//! A share consumer beside a scripted broker: its sessions, what it acknowledges by itself, and what it makes
//! of refusals.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use thalweg_client::{
    AcknowledgeType, AcknowledgementMode, CloseReason, Cluster, ConnectionOptions, Connector, ShareChunk,
    ShareConfig, ShareConsumer, SharePollEvent,
};
use thalweg_record::{BatchBuilder, BatchOptions, ControlRecordType, DecompressBuffer, Offset};
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::share_fetch_response::{
    AcquiredRecords, PartitionData, ShareFetchableTopicResponse,
};
use thalweg_wire::request::share_group_heartbeat_response::{Assignment, TopicPartitions};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message, Records, frame};
use tokio::io::DuplexStream;
use tokio::time::Instant;

use crate::fake::{TOPIC, TOPIC_ID};
use crate::groups::{GROUP, connector, encode, found_coordinator, metadata, serve};

const SERVED: [ApiKey; 6] = [
    ApiKey::ApiVersions,
    ApiKey::Metadata,
    ApiKey::FindCoordinator,
    ApiKey::ShareGroupHeartbeat,
    ApiKey::ShareFetch,
    ApiKey::ShareAcknowledge,
];

/// The content of a request: its epoch, the partitions that it named and forgot, and the acknowledgements of
/// partition 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReceivedRequest {
    api: ApiKey,
    epoch: i32,
    partitions: Vec<i32>,
    forgotten: Vec<i32>,
    acknowledged: Vec<(i64, i64, i8)>,
}

/// A broker that leads and coordinates.
#[derive(Clone, Default)]
struct Broker {
    /// The answers to the next fetches; then there is nothing.
    fetches: Arc<Mutex<VecDeque<ShareFetchResponse>>>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    beats: Arc<Mutex<Vec<ShareGroupHeartbeatRequest>>>,
    /// The errors of the next heartbeats.
    beat_errors: Arc<Mutex<VecDeque<ErrorCode>>>,
}

impl Broker {
    fn next(&self, answer: ShareFetchResponse) {
        self.fetches.lock().expect("no panic").push_back(answer);
    }

    /// Refuses a heartbeat, after those that are to be refused already.
    fn refuse(&self, error: ErrorCode) {
        self.beat_errors.lock().expect("no panic").push_back(error);
    }

    fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().expect("no panic").clone()
    }

    fn connector(&self) -> Connector {
        let broker = self.clone();
        connector(move |stream| broker.clone().serve(stream))
    }

    async fn serve(self, stream: DuplexStream) -> Result<(), CloseReason> {
        let waits = |key| key == ApiKey::ShareFetch && self.fetches.lock().expect("no panic").is_empty();
        serve(stream, waits, |key, version, id, request| self.answer(key, version, id, request)).await
    }

    fn answer(&self, key: ApiKey, version: i16, id: i32, request: Bytes) -> Bytes {
        let mut d = Decoder::new(request);
        frame::decode_request_header(&mut d, key, version).expect("a header");
        match key {
            ApiKey::ApiVersions => {
                let api_keys = SERVED.map(|key| {
                    let (min_version, max_version) = key.versions();
                    ApiVersion { api_key: key as i16, min_version, max_version }
                });
                let response = ApiVersionsResponse { api_keys: api_keys.to_vec(), ..Default::default() };
                encode(&response, key, version, id)
            }
            ApiKey::Metadata => encode(&metadata(version), key, version, id),
            ApiKey::FindCoordinator => encode(&found_coordinator(1), key, version, id),
            ApiKey::ShareGroupHeartbeat => {
                let request = ShareGroupHeartbeatRequest::decode(&mut d, version).expect("a request");
                self.beats.lock().expect("no panic").push(request);
                let topic = TopicPartitions { topic_id: TOPIC_ID, partitions: vec![0, 1] };
                let error = self.beat_errors.lock().expect("no panic").pop_front();
                let response = ShareGroupHeartbeatResponse {
                    error_code: error.map_or(0, ErrorCode::code),
                    member_epoch: 1,
                    heartbeat_interval_ms: 1000,
                    assignment: Some(Assignment { topic_partitions: vec![topic] }),
                    ..Default::default()
                };
                encode(&response, key, version, id)
            }
            ApiKey::ShareFetch => {
                let request = ShareFetchRequest::decode(&mut d, version).expect("a request");
                let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
                let of_first = partitions.clone().filter(|partition| partition.partition_index == 0);
                let batches = of_first.flat_map(|partition| &partition.acknowledgement_batches);
                let forgotten = request.forgotten_topics_data.iter();
                self.received.lock().expect("no panic").push(ReceivedRequest {
                    api: key,
                    epoch: request.share_session_epoch,
                    partitions: partitions.map(|partition| partition.partition_index).collect(),
                    forgotten: forgotten.flat_map(|topic| topic.partitions.clone()).collect(),
                    acknowledged: batches
                        .map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types[0]))
                        .collect(),
                });
                let scripted = self.fetches.lock().expect("no panic").pop_front();
                encode(&scripted.unwrap_or_default(), key, version, id)
            }
            ApiKey::ShareAcknowledge => {
                let request = ShareAcknowledgeRequest::decode(&mut d, version).expect("a request");
                let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
                let batches = partitions.clone().flat_map(|partition| &partition.acknowledgement_batches);
                self.received.lock().expect("no panic").push(ReceivedRequest {
                    api: key,
                    epoch: request.share_session_epoch,
                    partitions: partitions.map(|partition| partition.partition_index).collect(),
                    forgotten: Vec::new(),
                    acknowledged: batches
                        .map(|batch| (batch.first_offset, batch.last_offset, batch.acknowledge_types[0]))
                        .collect(),
                });
                encode(&ShareAcknowledgeResponse::default(), key, version, id)
            }
            other => panic!("{other:?} is not expected"),
        }
    }

    async fn consumer(&self, acknowledgement_mode: AcknowledgementMode) -> ShareConsumer {
        let bootstrap = ["node:1".to_owned()];
        let options = ConnectionOptions::default();
        let cluster = Cluster::connect_by(self.connector(), &bootstrap, &options);
        let config = ShareConfig { acknowledgement_mode, ..ShareConfig::new(GROUP) };
        let mut consumer = ShareConsumer::new(cluster.await.expect("connected"), config);
        consumer.subscribe(vec![TOPIC.to_owned()]);
        consumer
    }
}

/// Records 0 to 2, a marker at 3, and record 4, of which these are acquired.
fn records(first: i64, last: i64, delivery_count: i16) -> ShareFetchResponse {
    let batch = |base, count, marker| {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: Offset(base),
            control: marker,
            transactional: marker,
            ..BatchOptions::default()
        });
        for _ in 0..count {
            builder.append(1, None, Some(b"v"), &[]).expect("it fits");
        }
        if marker {
            builder.append_control(1, ControlRecordType::Commit, &[0; 6]).expect("it fits");
        }
        builder.finish().to_vec()
    };
    let bytes = [batch(0, 3, false), batch(3, 0, true), batch(4, 1, false)].concat();
    answer(PartitionData {
        records: Some(Records::Inline(bytes.into())),
        acquired_records: vec![AcquiredRecords { first_offset: first, last_offset: last, delivery_count }],
        ..PartitionData::default()
    })
}

fn answer(partition: PartitionData) -> ShareFetchResponse {
    let topic = ShareFetchableTopicResponse { topic_id: TOPIC_ID, partitions: vec![partition] };
    ShareFetchResponse {
        acquisition_lock_timeout_ms: 30_000,
        responses: vec![topic],
        ..ShareFetchResponse::default()
    }
}

fn refused(error: ErrorCode) -> ShareFetchResponse {
    ShareFetchResponse { error_code: error.code(), ..ShareFetchResponse::default() }
}

async fn chunk(consumer: &mut ShareConsumer) -> ShareChunk {
    for _ in 0..20 {
        match consumer.poll(Duration::from_secs(1)).await.expect("a poll") {
            SharePollEvent::Chunk(chunk) => return chunk,
            SharePollEvent::NotAcknowledged(at, error) => panic!("{at}: {error}"),
            SharePollEvent::Nothing => {}
        }
    }
    panic!("no records");
}

async fn idle(consumer: &mut ShareConsumer) {
    let polled = consumer.poll(Duration::from_secs(2)).await.expect("a poll");
    assert!(matches!(polled, SharePollEvent::Nothing), "{polled:?}");
}

#[tokio::test(start_paused = true)]
async fn returned_records_are_accepted_by_the_next_poll_and_markers_are_gaps() {
    let broker = Broker::default();
    broker.next(records(1, 4, 1));
    let mut consumer = broker.consumer(AcknowledgementMode::Implicit).await;
    let chunk = chunk(&mut consumer).await;
    let mut offsets = Vec::new();
    let each = |record: &thalweg_record::Record<'_>, count| {
        offsets.push((record.offset.0, count));
        ControlFlow::Continue(())
    };
    chunk.for_each(&mut DecompressBuffer::default(), each).expect("readable");
    assert_eq!(offsets, [(1, 1), (2, 1), (4, 1)]);
    assert_eq!(consumer.acquisition_lock_timeout(), Some(Duration::from_secs(30)));
    idle(&mut consumer).await;
    let received = broker.received();
    let fetch = |epoch, partitions: &[i32], acknowledged: &[(i64, i64, i8)]| ReceivedRequest {
        api: ApiKey::ShareFetch,
        epoch,
        partitions: partitions.to_vec(),
        forgotten: Vec::new(),
        acknowledged: acknowledged.to_vec(),
    };
    assert_eq!(received[0], fetch(0, &[0, 1], &[]), "the first names all partitions");
    assert_eq!(received[1], fetch(1, &[0], &[(1, 2, 1), (3, 3, 0), (4, 4, 1)]));
    assert_eq!(received[2], fetch(2, &[], &[]), "later ones name what is new");
    consumer.close().await.expect("left");
    let last = broker.received().pop().expect("a request");
    assert_eq!((last.api, last.epoch), (ApiKey::ShareAcknowledge, -1), "the session ends");
    assert_eq!(broker.beats.lock().expect("no panic").last().expect("a heartbeat").member_epoch, -1);
}

#[tokio::test(start_paused = true)]
async fn a_commit_waits_for_its_answer() {
    let broker = Broker::default();
    broker.next(records(0, 2, 3));
    let mut consumer = broker.consumer(AcknowledgementMode::Explicit).await;
    let chunk = chunk(&mut consumer).await;
    consumer.acknowledge(&chunk, Offset(0), Offset(0), AcknowledgeType::Accept).expect("acquired");
    consumer.acknowledge(&chunk, Offset(1), Offset(1), AcknowledgeType::Renew).expect("acquired");
    consumer.acknowledge(&chunk, Offset(2), Offset(2), AcknowledgeType::Reject).expect("acquired");
    let outcomes = consumer.commit().await.expect("answers");
    assert_eq!(outcomes.len(), 1);
    assert!(outcomes.values().all(Result::is_ok), "{outcomes:?}");
    let received = broker.received().pop().expect("a request");
    assert_eq!(received.acknowledged, [(0, 0, 1), (1, 1, 4), (2, 2, 3)]);
    assert_eq!((received.api, received.epoch), (ApiKey::ShareAcknowledge, 1));
    // The renewed one is held; the others are done with.
    consumer.acknowledge(&chunk, Offset(0), Offset(1), AcknowledgeType::Accept).expect_err("0 is accepted");
    consumer.acknowledge_chunk(&chunk, AcknowledgeType::Release).expect("the session lives");
    consumer.close().await.expect("left");
    let received = broker.received();
    let released = received.iter().filter(|request| request.acknowledged == [(1, 1, 2)]).count();
    assert_eq!(released, 1, "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_gone_is_opened_again_without_its_records() {
    let broker = Broker::default();
    broker.next(records(0, 4, 1));
    broker.next(refused(ErrorCode::ShareSessionNotFound));
    broker.next(records(0, 2, 2));
    let mut consumer = broker.consumer(AcknowledgementMode::Explicit).await;
    let first = chunk(&mut consumer).await;
    consumer.acknowledge(&first, Offset(0), Offset(0), AcknowledgeType::Accept).expect("acquired");
    let polled = consumer.poll(Duration::from_secs(5)).await.expect("a poll");
    let SharePollEvent::NotAcknowledged(at, error) = polled else { panic!("{polled:?}") };
    assert_eq!((&*at.topic, error.error_code()), (TOPIC, Some(ErrorCode::ShareSessionNotFound)));
    let again = chunk(&mut consumer).await;
    assert_eq!(again.acquired[0].delivery_count, 2);
    consumer.acknowledge(&first, Offset(1), Offset(1), AcknowledgeType::Accept).expect_err("it is over");
    consumer.acknowledge_chunk(&again, AcknowledgeType::Accept).expect("acquired");
    idle(&mut consumer).await;
    let epochs: Vec<i32> = broker.received().iter().map(|request| request.epoch).collect();
    assert_eq!(epochs[..4], [0, 1, 0, 1], "{epochs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_acknowledgement_is_reported() {
    let broker = Broker::default();
    broker.next(records(0, 2, 1));
    broker.next(answer(PartitionData {
        acknowledge_error_code: ErrorCode::InvalidRecordState.code(),
        ..PartitionData::default()
    }));
    let mut consumer = broker.consumer(AcknowledgementMode::Implicit).await;
    chunk(&mut consumer).await;
    let polled = consumer.poll(Duration::from_secs(5)).await.expect("a poll");
    let SharePollEvent::NotAcknowledged(_, error) = polled else { panic!("{polled:?}") };
    assert_eq!(error.error_code(), Some(ErrorCode::InvalidRecordState));
    idle(&mut consumer).await;
}

#[tokio::test(start_paused = true)]
async fn joins_that_are_refused_again_and_again_have_pauses() {
    let broker = Broker::default();
    (0..40).for_each(|_| broker.refuse(ErrorCode::UnknownMemberId));
    let mut consumer = broker.consumer(AcknowledgementMode::Implicit).await;
    idle(&mut consumer).await;
    let joins = broker.beats.lock().expect("no panic").len();
    assert!((2..10).contains(&joins), "{joins} joins within two seconds");
}

#[tokio::test(start_paused = true)]
async fn a_fenced_member_joins_again() {
    let broker = Broker::default();
    let mut consumer = broker.consumer(AcknowledgementMode::Implicit).await;
    idle(&mut consumer).await;
    broker.refuse(ErrorCode::FencedMemberEpoch);
    for _ in 0..3 {
        idle(&mut consumer).await;
    }
    let beats = broker.beats.lock().expect("no panic").clone();
    let joins: Vec<_> = beats.iter().filter(|beat| beat.member_epoch == 0).collect();
    assert_eq!(joins.len(), 2, "{beats:?}");
    assert_eq!(joins[0].member_id, joins[1].member_id);
    assert_eq!(joins[1].subscribed_topic_names, Some(vec![TOPIC.to_owned()]));
    broker.refuse(ErrorCode::UnsupportedVersion);
    let error = loop {
        if let Err(error) = consumer.poll(Duration::from_secs(1)).await {
            break error;
        }
    };
    assert!(error.to_string().contains("share.version=1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_the_member_may_not_see_is_reported_and_the_member_goes_on() {
    let broker = Broker::default();
    let mut consumer = broker.consumer(AcknowledgementMode::Implicit).await;
    idle(&mut consumer).await;
    broker.refuse(ErrorCode::TopicAuthorizationFailed);
    let error = consumer.poll(Duration::from_secs(5)).await.expect_err("it is reported");
    assert_eq!(error.error_code(), Some(ErrorCode::TopicAuthorizationFailed), "{error}");
    let before = broker.beats.lock().expect("no panic").len();
    broker.next(records(0, 2, 1));
    chunk(&mut consumer).await;
    (0..3).for_each(|_| broker.next(ShareFetchResponse::default()));
    for _ in 0..3 {
        idle(&mut consumer).await;
    }
    let beats = broker.beats.lock().expect("no panic").clone();
    assert!(beats.len() > before + 1, "the member goes on: {beats:?}");
    assert_eq!(beats[before].member_epoch, 1, "it is the same member");
    assert!(beats[before].subscribed_topic_names.is_some(), "all is said again");
    assert_eq!(consumer.assignment().len(), 2, "it keeps its partitions");
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_the_consumer_may_not_read_is_reported_and_the_consumer_goes_on() {
    for (error, is_reported) in [
        (ErrorCode::TopicAuthorizationFailed, true),
        (ErrorCode::InvalidRequest, true),
        (ErrorCode::UnknownServerError, false),
    ] {
        let broker = Broker::default();
        broker.next(answer(PartitionData { error_code: error.code(), ..PartitionData::default() }));
        broker.next(records(0, 2, 1));
        let mut consumer = broker.consumer(AcknowledgementMode::Implicit).await;
        if is_reported {
            let said = consumer.poll(Duration::from_secs(5)).await.expect_err("it is reported");
            assert_eq!(said.error_code(), Some(error), "{said}");
        }
        assert_eq!(chunk(&mut consumer).await.acquired[0].first, Offset(0), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_partition_does_not_hold_back_the_other_partitions_of_its_broker() {
    let broker = Broker::default();
    broker.next(answer(PartitionData {
        partition_index: 1,
        error_code: ErrorCode::UnknownServerError.code(),
        ..PartitionData::default()
    }));
    broker.next(records(0, 2, 1));
    let mut consumer = broker.consumer(AcknowledgementMode::Implicit).await;
    consumer.wait_for_assignment().await.expect("partitions");
    let begun = Instant::now();
    chunk(&mut consumer).await;
    assert!(begun.elapsed() < Duration::from_millis(100), "after {:?}", begun.elapsed());
    idle(&mut consumer).await;
    let received = broker.received();
    assert_eq!((&received[0].partitions[..], &received[0].forgotten[..]), (&[0, 1][..], &[][..]));
    assert_eq!(
        (&received[1].partitions[..], &received[1].forgotten[..]),
        (&[][..], &[1][..]),
        "the broker would refuse it again"
    );
    let named = received[2..].iter().filter(|request| request.partitions.contains(&1)).count();
    assert_eq!(named, 1, "it is tried again: {received:?}");
}
