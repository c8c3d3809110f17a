//! A consumer beside a broker that accepts connections and does not answer, like a stopped process: the
//! partitions of other leaders are read without delay, and those of the silent one once another leads.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use thalweg_client::{
    ByteStream, CloseReason, Cluster, ConnectionOptions, Connector, Consumer, ConsumerConfig, OffsetReset,
    OffsetSpec, PollEvent, StartAt, TopicPartition,
};
use thalweg_record::{BatchBuilder, BatchOptions, DecompressBuffer, LeaderEpoch, Offset};
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::fetch_response::{FetchableTopicResponse, PartitionData};
use thalweg_wire::request::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use thalweg_wire::request::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message, Records, frame};
use tokio::io::DuplexStream;
use tokio::time::Instant;

use crate::fake::{TOPIC, TOPIC_ID};
use crate::groups::{GROUP, committed_positions, encode, found_coordinator, metadata, serve_after};

const SERVED: [ApiKey; 7] = [
    ApiKey::ApiVersions,
    ApiKey::Metadata,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::FindCoordinator,
    ApiKey::OffsetFetch,
    ApiKey::OffsetForLeaderEpoch,
];

/// Two brokers; each leads one partition at first, by the partition's number.
#[derive(Clone)]
struct Pair(Arc<Mutex<State>>);

struct State {
    leaders: [i32; 2],
    epochs: [i32; 2],
    ends: [i64; 2],
    /// Brokers that read requests and do not answer.
    silent: BTreeSet<i32>,
    /// Offset and leader epoch of the group's committed position in both partitions.
    committed: (i64, i32),
}

impl Pair {
    fn new() -> Pair {
        Pair(Arc::new(Mutex::new(State {
            leaders: [1, 2],
            epochs: [1, 1],
            ends: [10, 10],
            silent: BTreeSet::new(),
            committed: (-1, -1),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silence(&self, node: i32) {
        self.state().silent.insert(node);
    }

    /// Broker 1 leads both partitions, and appends to partition 1.
    fn elect(&self) {
        let mut state = self.state();
        state.leaders = [1, 1];
        state.epochs[1] += 1;
        state.ends[1] += 5;
    }

    async fn cluster(&self) -> Cluster {
        let pair = self.clone();
        let connector = Connector::new(move |address: String| {
            let node = address.strip_prefix("node:").and_then(|id| id.parse::<i32>().ok()).expect("a node");
            let (ours, theirs) = tokio::io::duplex(1 << 10);
            let pair = pair.clone();
            async move {
                tokio::spawn(pair.serve(node, theirs));
                Ok(Box::new(ours) as Box<dyn ByteStream>)
            }
        });
        let bootstrap = ["node:2".to_owned(), "node:1".to_owned()];
        Cluster::connect_by(connector, &bootstrap, &ConnectionOptions::default()).await.expect("connected")
    }

    async fn serve(self, node: i32, stream: DuplexStream) -> Result<(), CloseReason> {
        let hold = |key| {
            let pair = self.clone();
            async move {
                if key == ApiKey::Fetch {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                if pair.state().silent.contains(&node) {
                    // Not even the connection ends.
                    std::future::pending::<()>().await;
                }
            }
        };
        let answer = |key, version, id, request| self.answer(node, key, version, id, request);
        serve_after(stream, hold, answer).await
    }

    async fn consumer(&self) -> Consumer {
        let config = ConsumerConfig {
            group: Some(GROUP.to_owned()),
            offset_reset: OffsetReset::Earliest,
            auto_commit: None,
            ..ConsumerConfig::default()
        };
        Consumer::new(self.cluster().await, config)
    }

    fn answer(&self, node: i32, key: ApiKey, version: i16, id: i32, request: Bytes) -> Bytes {
        let mut d = Decoder::new(request);
        frame::decode_request_header(&mut d, key, version).expect("a header");
        let state = self.state();
        match key {
            ApiKey::ApiVersions => encode(&versions(), key, version, id),
            ApiKey::Metadata => {
                let mut response = metadata(version);
                let partitions = response.topics[0].partitions.iter_mut();
                for (partition, (leader, epoch)) in partitions.zip(state.leaders.iter().zip(state.epochs)) {
                    (partition.leader_id, partition.leader_epoch) = (*leader, epoch);
                }
                encode(&response, key, version, id)
            }
            ApiKey::FindCoordinator => encode(&found_coordinator(1), key, version, id),
            ApiKey::OffsetFetch => encode(&committed_positions(state.committed), key, version, id),
            ApiKey::ListOffsets => {
                let request = ListOffsetsRequest::decode(&mut d, version).expect("a request");
                let found = |wanted: &list_offsets_request::ListOffsetsPartition| {
                    let at = place(wanted.partition_index);
                    ListOffsetsPartitionResponse {
                        partition_index: wanted.partition_index,
                        offset: if wanted.timestamp == -1 { state.ends[at] } else { 0 },
                        error_code: state.error(node, at),
                        ..Default::default()
                    }
                };
                let partitions = request.topics[0].partitions.iter().map(found).collect();
                let topic = ListOffsetsTopicResponse { name: TOPIC.to_owned(), partitions };
                encode(&ListOffsetsResponse { topics: vec![topic], ..Default::default() }, key, version, id)
            }
            ApiKey::OffsetForLeaderEpoch => {
                let request = OffsetForLeaderEpochRequest::decode(&mut d, version).expect("a request");
                let end = |wanted: &offset_for_leader_epoch_request::OffsetForLeaderPartition| {
                    let at = place(wanted.partition);
                    EpochEndOffset {
                        error_code: state.error(node, at),
                        partition: wanted.partition,
                        leader_epoch: wanted.leader_epoch,
                        end_offset: state.ends[at],
                    }
                };
                let partitions = request.topics[0].partitions.iter().map(end).collect();
                let topic = OffsetForLeaderTopicResult { topic: TOPIC.to_owned(), partitions };
                let response = OffsetForLeaderEpochResponse { topics: vec![topic], ..Default::default() };
                encode(&response, key, version, id)
            }
            ApiKey::Fetch => {
                let request = FetchRequest::decode(&mut d, version).expect("a request");
                encode(&state.fetch(node, &request), key, version, id)
            }
            other => panic!("{other:?} is not expected"),
        }
    }
}

impl State {
    fn error(&self, node: i32, at: usize) -> i16 {
        let leads = self.leaders[at] == node;
        if leads { 0 } else { ErrorCode::NotLeaderOrFollower.code() }
    }

    fn fetch(&self, node: i32, request: &FetchRequest) -> FetchResponse {
        let Some(topic) = request.topics.first() else { return FetchResponse::default() };
        let read = |wanted: &fetch_request::FetchPartition| {
            let at = place(wanted.partition);
            let mut bytes = Vec::new();
            for offset in wanted.fetch_offset..self.ends[at] {
                let mut builder = BatchBuilder::new(BatchOptions {
                    base_offset: Offset(offset),
                    leader_epoch: LeaderEpoch(self.epochs[at]),
                    ..BatchOptions::default()
                });
                builder.append(1, None, Some(b"value"), &[]).expect("it fits");
                bytes.extend(builder.finish().iter());
            }
            PartitionData {
                partition_index: wanted.partition,
                error_code: self.error(node, at),
                high_watermark: self.ends[at],
                records: Some(Records::Inline(bytes.into())),
                ..PartitionData::default()
            }
        };
        let partitions = topic.partitions.iter().map(read).collect();
        let topic = FetchableTopicResponse { topic: TOPIC.to_owned(), topic_id: TOPIC_ID, partitions };
        FetchResponse { responses: vec![topic], ..FetchResponse::default() }
    }
}

fn versions() -> ApiVersionsResponse {
    let api_keys = SERVED.map(|key| {
        let (min_version, max_version) = key.versions();
        // Later ones name topics by their ids.
        let max_version = if key == ApiKey::OffsetFetch { 9 } else { max_version };
        ApiVersion { api_key: key as i16, min_version, max_version }
    });
    ApiVersionsResponse { api_keys: api_keys.to_vec(), ..Default::default() }
}

fn place(partition: i32) -> usize {
    usize::try_from(partition).expect("a partition")
}

fn both(start: StartAt) -> Vec<(TopicPartition, StartAt)> {
    vec![(TopicPartition::new(TOPIC, 0), start), (TopicPartition::new(TOPIC, 1), start)]
}

/// Polls with this timeout until so many records of a partition have come, and returns the time that it took.
async fn take(consumer: &mut Consumer, partition: i32, count: usize, timeout: Duration) -> Duration {
    let began = Instant::now();
    let mut taken = 0;
    while taken < count {
        assert!(began.elapsed() < Duration::from_secs(60), "{taken} of {count} records of {partition} came");
        let polled = consumer.poll(timeout).await.expect("a poll");
        let PollEvent::Chunk(chunk) = polled else { continue };
        if chunk.at.partition == partition {
            let each = |_: &thalweg_record::Record<'_>| {
                taken += 1;
                ControlFlow::Continue(())
            };
            chunk.for_each(&mut DecompressBuffer::default(), each).expect("readable");
        }
    }
    began.elapsed()
}

/// The whole of a poll, and of a fetch that the broker holds.
const SOON: Duration = Duration::from_secs(2);
/// A timeout of a poll shorter than the time for which a consumer waits for its leaders.
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn a_silent_leader_does_not_delay_the_offsets_of_another() {
    let pair = Pair::new();
    let mut consumer = pair.consumer().await;
    pair.silence(2);
    let began = Instant::now();
    consumer
        .assign_within(both(StartAt::Spec(OffsetSpec::Earliest)), Duration::from_secs(1))
        .await
        .expect("assigned");
    assert!(began.elapsed() < 2 * SOON, "{:?}", began.elapsed());
    let took = take(&mut consumer, 0, 10, SHORT).await;
    assert!(took < SOON, "{took:?}");
    assert_eq!(consumer.unavailable(), [TopicPartition::new(TOPIC, 1)]);
    // Later records come as soon: nothing of the silent leader is waited for again.
    pair.state().ends[0] += 5;
    let took = take(&mut consumer, 0, 5, SHORT).await;
    assert!(took < SOON, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn positions_are_validated_although_a_leader_is_silent() {
    let pair = Pair::new();
    pair.state().committed = (4, 1);
    let mut consumer = pair.consumer().await;
    pair.silence(2);
    consumer.assign_within(both(StartAt::Committed), Duration::from_secs(1)).await.expect("assigned");
    let took = take(&mut consumer, 0, 6, SHORT).await;
    assert!(took < SOON, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_is_found_while_the_last_one_is_silent() {
    let pair = Pair::new();
    let mut consumer = pair.consumer().await;
    consumer.assign(both(StartAt::Spec(OffsetSpec::Earliest))).await.expect("assigned");
    take(&mut consumer, 1, 10, SHORT).await;
    pair.silence(2);
    // It is fenced after a while, which no answer says.
    tokio::time::timeout(Duration::from_secs(9), take(&mut consumer, 1, 1, SHORT)).await.expect_err("none");
    pair.elect();
    let took = take(&mut consumer, 1, 5, SHORT).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn offsets_of_a_silent_leader_are_requested_from_the_next_one() {
    let pair = Pair::new();
    let mut consumer = pair.consumer().await;
    pair.silence(2);
    let assigned = consumer.assign_within(both(StartAt::Spec(OffsetSpec::Earliest)), Duration::from_secs(1));
    assigned.await.expect("assigned");
    take(&mut consumer, 0, 10, SHORT).await;
    pair.elect();
    let took = take(&mut consumer, 1, 15, SHORT).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn metadata_comes_from_another_broker_if_the_first_is_silent() {
    let pair = Pair::new();
    let cluster = pair.cluster().await;
    pair.silence(2);
    // Twice over the connection that is there, and once when it is closed because an answer is overdue.
    for _ in 0..2 {
        let began = Instant::now();
        cluster.refresh(&[TOPIC.to_owned()], false).await.expect("metadata");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
    tokio::time::sleep(Duration::from_secs(40)).await;
    let began = Instant::now();
    cluster.refresh(&[TOPIC.to_owned()], false).await.expect("metadata");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_an_overdue_answer_is_closed_although_nobody_waits() {
    let pair = Pair::new();
    let cluster = pair.cluster().await;
    let connection = cluster.broker(2).await.expect("a connection");
    pair.silence(2);
    let request = MetadataRequest::default();
    tokio::time::timeout(Duration::from_secs(1), connection.send(&request)).await.expect_err("no answer");
    assert!(!connection.is_closed());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn offsets_within_a_limit_leave_out_a_silent_leader() {
    let pair = Pair::new();
    let cluster = pair.cluster().await;
    cluster.refresh(&[TOPIC.to_owned()], false).await.expect("metadata");
    pair.silence(2);
    let wanted = [0, 1].map(|index| (TopicPartition::new(TOPIC, index), OffsetSpec::Latest));
    let began = Instant::now();
    let found = cluster.list_offsets_within(&wanted, false, Duration::from_secs(3)).await;
    assert_eq!(began.elapsed().as_secs(), 3);
    assert_eq!(found[&wanted[0].0].as_ref().expect("an answer").offset, Offset(10));
    let late = found[&wanted[1].0].as_ref().expect_err("no answer");
    assert!(late.to_string().contains("broker 2"), "{late}");
}

#[tokio::test(start_paused = true)]
async fn all_topics_come_from_another_broker_if_the_first_is_silent() {
    let pair = Pair::new();
    let cluster = pair.cluster().await;
    pair.silence(2);
    let began = Instant::now();
    cluster.first_metadata(MetadataRequest::default()).await.expect("metadata");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn answers_of_leaders_have_their_own_limits_and_times() {
    let pair = Pair::new();
    let cluster = pair.cluster().await;
    cluster.refresh(&[TOPIC.to_owned()], false).await.expect("metadata");
    pair.silence(2);
    let wanted = [0, 1].map(|index| (TopicPartition::new(TOPIC, index), OffsetSpec::Latest));
    let began = Instant::now();
    let limit = |leader| Duration::from_millis(if leader == 2 { 500 } else { 3000 });
    let answers = cluster.answers_of_leaders(&wanted, false, limit).await;
    let found: Vec<_> = answers
        .iter()
        .map(|one| (one.leader, (one.at - began).as_millis() / 100, one.found.values().all(Result::is_ok)))
        .collect();
    assert_eq!(found, [(Some(1), 0, true), (Some(2), 5, false)]);
}
