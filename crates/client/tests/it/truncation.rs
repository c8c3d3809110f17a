//! A consumer beside a leader whose log is cut, as after an unclean election: it looks where its position and
//! the log part (KIP-320), and passes over nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use thalweg_client::{
    Cluster, ConnectionOptions, Consumer, ConsumerConfig, ConsumerError, OffsetReset, OffsetSpec, PollEvent,
    StartAt, TopicPartition,
};
use thalweg_record::{BatchBuilder, BatchOptions, DecompressBuffer, LeaderEpoch, Offset};
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::fetch_response::{FetchableTopicResponse, PartitionData};
use thalweg_wire::request::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use thalweg_wire::request::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message, Records, frame};

use crate::fake::{TOPIC, TOPIC_ID};
use crate::groups::{GROUP, committed_positions, connector, encode, found_coordinator, metadata, serve};

const SERVED: [ApiKey; 7] = [
    ApiKey::ApiVersions,
    ApiKey::Metadata,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::FindCoordinator,
    ApiKey::OffsetFetch,
    ApiKey::OffsetForLeaderEpoch,
];

/// The leader of a partition.
#[derive(Clone)]
struct Leader(Arc<Mutex<State>>);

struct State {
    epoch: i32,
    /// The epoch in the metadata, which may be behind.
    seen_epoch: i32,
    /// The epoch and value of each record.
    log: Vec<(i32, String)>,
    /// Offset and epoch of the group's committed position.
    committed: (i64, i32),
    /// The last version of OffsetForLeaderEpoch, if it is served.
    newest: Option<i16>,
    /// Errors of the next requests for the end of an epoch, or of the next fetches.
    refused: BTreeMap<ApiKey, Vec<ErrorCode>>,
    /// The epochs whose ends were asked for.
    asked: Vec<i32>,
}

impl Leader {
    /// One of epoch 1 with ten records.
    fn new() -> Leader {
        let leader = Leader(Arc::new(Mutex::new(State {
            epoch: 1,
            seen_epoch: 1,
            log: Vec::new(),
            committed: (-1, -1),
            newest: Some(ApiKey::OffsetForLeaderEpoch.versions().1),
            refused: BTreeMap::new(),
            asked: Vec::new(),
        })));
        leader.state().append(10);
        leader
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another replica leads, whose log ends at `end`; it appends so many records.
    fn elect(&self, end: usize, count: usize) {
        let mut state = self.state();
        state.epoch += 1;
        state.seen_epoch = state.epoch;
        state.log.truncate(end);
        state.append(count);
    }

    fn refuse(&self, key: ApiKey, errors: &[ErrorCode]) {
        self.state().refused.insert(key, errors.to_vec());
    }

    async fn consumer(&self, offset_reset: OffsetReset) -> Consumer {
        let leader = self.clone();
        let connector = connector(move |stream| {
            let leader = leader.clone();
            let waits = |key| key == ApiKey::Fetch;
            async move {
                serve(stream, waits, |key, version, id, request| leader.answer(key, version, id, request))
                    .await
            }
        });
        let (bootstrap, options) = (["node:1".to_owned()], ConnectionOptions::default());
        let cluster = Cluster::connect_by(connector, &bootstrap, &options).await.expect("connected");
        let group = Some(GROUP.to_owned());
        let config = ConsumerConfig { group, offset_reset, auto_commit: None, ..ConsumerConfig::default() };
        Consumer::new(cluster, config)
    }

    /// A consumer that has read all records.
    async fn reader(&self, offset_reset: OffsetReset) -> Consumer {
        let mut consumer = self.consumer(offset_reset).await;
        consumer.assign(vec![(at(), StartAt::Offset(Offset(0)))]).await.expect("assigned");
        let count = self.state().log.len();
        assert_eq!(take(&mut consumer, count).await.len(), count);
        consumer
    }

    fn answer(&self, key: ApiKey, version: i16, id: i32, request: Bytes) -> Bytes {
        let mut d = Decoder::new(request);
        frame::decode_request_header(&mut d, key, version).expect("a header");
        let mut state = self.state();
        match key {
            ApiKey::ApiVersions => encode(&state.versions(), key, version, id),
            ApiKey::Metadata => {
                let mut response = metadata(version);
                for partition in &mut response.topics[0].partitions {
                    partition.leader_epoch = state.seen_epoch;
                }
                encode(&response, key, version, id)
            }
            ApiKey::FindCoordinator => encode(&found_coordinator(1), key, version, id),
            ApiKey::OffsetFetch => encode(&committed_positions(state.committed), key, version, id),
            ApiKey::ListOffsets => {
                let request = ListOffsetsRequest::decode(&mut d, version).expect("a request");
                let is_latest = request.topics[0].partitions[0].timestamp == -1;
                let offset = if is_latest { state.end() } else { 0 };
                let partition = ListOffsetsPartitionResponse { offset, ..Default::default() };
                let topic = ListOffsetsTopicResponse { name: TOPIC.to_owned(), partitions: vec![partition] };
                encode(&ListOffsetsResponse { topics: vec![topic], ..Default::default() }, key, version, id)
            }
            ApiKey::OffsetForLeaderEpoch => {
                let request = OffsetForLeaderEpochRequest::decode(&mut d, version).expect("a request");
                encode(&state.ends(&request), key, version, id)
            }
            ApiKey::Fetch => {
                let request = FetchRequest::decode(&mut d, version).expect("a request");
                encode(&state.fetch(&request), key, version, id)
            }
            other => panic!("{other:?} is not expected"),
        }
    }
}

impl State {
    fn append(&mut self, count: usize) {
        for _ in 0..count {
            let value = format!("{}-{}", self.epoch, self.log.len());
            self.log.push((self.epoch, value));
        }
    }

    fn end(&self) -> i64 {
        self.log.len().try_into().expect("few records")
    }

    fn versions(&self) -> ApiVersionsResponse {
        let api_keys = SERVED.into_iter().filter_map(|key| {
            let (min_version, max_version) = key.versions();
            let max_version = match key {
                ApiKey::OffsetForLeaderEpoch => self.newest?,
                // Later ones name topics by their ids.
                ApiKey::OffsetFetch => 9,
                _ => max_version,
            };
            Some(ApiVersion { api_key: key as i16, min_version, max_version })
        });
        ApiVersionsResponse { api_keys: api_keys.collect(), ..Default::default() }
    }

    /// The scripted error of a request, or that of its leader epoch.
    fn error(&mut self, key: ApiKey, epoch: i32) -> ErrorCode {
        let scripted = self.refused.get_mut(&key).filter(|errors| !errors.is_empty());
        match scripted.map(|errors| errors.remove(0)) {
            Some(error) => error,
            None if epoch >= 0 && epoch < self.epoch => ErrorCode::FencedLeaderEpoch,
            None if epoch > self.epoch => ErrorCode::UnknownLeaderEpoch,
            None => ErrorCode::None,
        }
    }

    fn ends(&mut self, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        assert_eq!(request.replica_id, -1, "a consumer asks");
        let [topic] = request.topics.as_slice() else { panic!("one topic") };
        let [wanted] = topic.partitions.as_slice() else { panic!("one partition") };
        self.asked.push(wanted.leader_epoch);
        let error_code = self.error(ApiKey::OffsetForLeaderEpoch, wanted.current_leader_epoch).code();
        let epochs = || self.log.iter().map(|(epoch, _)| *epoch);
        let known = epochs().filter(|epoch| *epoch <= wanted.leader_epoch).max();
        let end = epochs().take_while(|epoch| *epoch <= wanted.leader_epoch).count();
        // An epoch after the leader's is unknown to it.
        let found = known.filter(|_| error_code == 0 && wanted.leader_epoch <= self.epoch);
        let partition = EpochEndOffset {
            error_code,
            leader_epoch: found.unwrap_or(-1),
            end_offset: found.map_or(-1, |_| i64::try_from(end).expect("few records")),
            ..EpochEndOffset::default()
        };
        let topic = OffsetForLeaderTopicResult { topic: TOPIC.to_owned(), partitions: vec![partition] };
        OffsetForLeaderEpochResponse { topics: vec![topic], ..Default::default() }
    }

    fn fetch(&mut self, request: &FetchRequest) -> FetchResponse {
        let Some(topic) = request.topics.first() else { return FetchResponse::default() };
        let wanted = &topic.partitions[0];
        let error = self.error(ApiKey::Fetch, wanted.current_leader_epoch);
        let is_there = (0..=self.end()).contains(&wanted.fetch_offset);
        let error_code = match error {
            ErrorCode::None if !is_there => ErrorCode::OffsetOutOfRange,
            error => error,
        };
        let mut bytes = Vec::new();
        if error_code == ErrorCode::None {
            let from = usize::try_from(wanted.fetch_offset).expect("it is there");
            for (offset, (epoch, value)) in (0..).zip(&self.log).skip(from) {
                let mut builder = BatchBuilder::new(BatchOptions {
                    base_offset: Offset(offset),
                    leader_epoch: LeaderEpoch(*epoch),
                    ..BatchOptions::default()
                });
                builder.append(1, None, Some(value.as_bytes()), &[]).expect("it fits");
                bytes.extend(builder.finish().iter());
            }
        }
        let partition = PartitionData {
            error_code: error_code.code(),
            high_watermark: self.end(),
            records: Some(Records::Inline(bytes.into())),
            ..PartitionData::default()
        };
        let topic = FetchableTopicResponse {
            topic: TOPIC.to_owned(),
            topic_id: TOPIC_ID,
            partitions: vec![partition],
        };
        FetchResponse { responses: vec![topic], ..FetchResponse::default() }
    }
}

fn at() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

fn values(polled: &PollEvent) -> Vec<String> {
    let PollEvent::Chunk(chunk) = polled else { return Vec::new() };
    let mut values = Vec::new();
    let each = |record: &thalweg_record::Record<'_>| {
        values.push(String::from_utf8_lossy(record.value.expect("a value")).into_owned());
        ControlFlow::Continue(())
    };
    chunk.for_each(&mut DecompressBuffer::default(), each).expect("readable");
    values
}

/// Polls until it has this many more records.
async fn take(consumer: &mut Consumer, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for _ in 0..100 {
        taken.extend(values(&consumer.poll(Duration::from_secs(1)).await.expect("a poll")));
        if taken.len() >= count {
            return taken;
        }
    }
    panic!("{} of {count} records came", taken.len());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_goes_back_to_where_its_records_and_the_log_part() {
    let leader = Leader::new();
    let mut consumer = leader.reader(OffsetReset::Latest).await;
    leader.elect(6, 8);
    // An answer that does not come at once makes no difference.
    leader.refuse(
        ApiKey::OffsetForLeaderEpoch,
        &[ErrorCode::NotLeaderOrFollower, ErrorCode::UnknownServerError],
    );
    let taken = take(&mut consumer, 8).await;
    assert_eq!(taken.first().map(String::as_str), Some("2-6"), "records 6 to 9 are others now");
    assert_eq!((taken.len(), consumer.position(&at())), (8, Some(Offset(14))));
    assert_eq!(leader.state().asked, [1, 1, 1]);
    // The records were not cut this time.
    leader.elect(14, 1);
    assert_eq!(take(&mut consumer, 1).await, ["3-14"]);
    assert_eq!(leader.state().asked.last(), Some(&2));
}

#[tokio::test(start_paused = true)]
async fn records_that_were_fetched_ahead_and_cut_are_followed_by_those_in_their_place() {
    let leader = Leader::new();
    let mut consumer = leader.reader(OffsetReset::Latest).await;
    leader.state().append(3);
    // The consumer does not poll while its fetcher fetches them.
    tokio::time::sleep(Duration::from_secs(3)).await;
    leader.elect(10, 5);
    let taken = take(&mut consumer, 8).await;
    assert_eq!(taken, ["1-10", "1-11", "1-12", "2-10", "2-11", "2-12", "2-13", "2-14"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_reset_policy_the_caller_decides_about_a_log_that_was_cut() {
    let leader = Leader::new();
    let mut consumer = leader.reader(OffsetReset::None).await;
    leader.elect(6, 8);
    for _ in 0..2 {
        let error = loop {
            match consumer.poll(Duration::from_secs(1)).await {
                Ok(polled) => assert!(matches!(polled, PollEvent::Nothing), "{polled:?}"),
                Err(error) => break error,
            }
        };
        let ConsumerError::Truncated(truncated) = &error else { panic!("{error}") };
        assert_eq!((truncated.offset, truncated.divergent), (Offset(10), Some(Offset(6))), "{error}");
    }
    consumer.seek(&at(), Offset(6));
    assert_eq!(take(&mut consumer, 8).await.len(), 8);
    // To the same offset again: that is the caller's decision, too.
    leader.elect(8, 8);
    let error = consumer.poll(Duration::from_secs(5)).await.expect_err("it was cut again");
    assert!(matches!(error, ConsumerError::Truncated(_)), "{error}");
    consumer.seek(&at(), Offset(14));
    assert_eq!(take(&mut consumer, 2).await, ["3-14", "3-15"]);
}

#[tokio::test(start_paused = true)]
async fn a_log_without_the_epoch_is_read_by_the_reset_policy() {
    for (reset, first) in [(OffsetReset::Earliest, "2-0"), (OffsetReset::Latest, "2-20")] {
        let leader = Leader::new();
        let mut consumer = leader.reader(reset).await;
        leader.elect(0, 20);
        for _ in 0..3 {
            if let Some(value) = values(&consumer.poll(Duration::from_secs(1)).await.expect("a poll")).first()
            {
                assert_eq!(value, first);
            }
        }
        leader.state().append(1);
        if reset == OffsetReset::Latest {
            assert_eq!(take(&mut consumer, 1).await, [first]);
        }
        assert_eq!(leader.state().asked, [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_committed_position_is_compared_with_the_log_before_it_is_read() {
    let leader = Leader::new();
    leader.elect(6, 8);
    leader.state().committed = (10, 1);
    let mut consumer = leader.consumer(OffsetReset::Latest).await;
    consumer.assign(vec![(at(), StartAt::Committed)]).await.expect("assigned");
    assert_eq!(consumer.position(&at()), Some(Offset(6)));
    assert_eq!(take(&mut consumer, 8).await.first().map(String::as_str), Some("2-6"));
}

#[tokio::test(start_paused = true)]
async fn metadata_older_than_a_position_does_not_change_its_leader() {
    let leader = Leader::new();
    leader.elect(10, 2);
    {
        let mut state = leader.state();
        (state.committed, state.seen_epoch) = ((11, 2), 1);
    }
    let mut consumer = leader.consumer(OffsetReset::Earliest).await;
    let later = leader.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        later.state().seen_epoch = 2;
    });
    consumer.assign(vec![(at(), StartAt::Committed)]).await.expect("assigned");
    assert_eq!(take(&mut consumer, 1).await, ["2-11"]);
    assert_eq!(leader.state().asked, [2], "an older leader would not know the epoch");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_find_the_end_of_an_epoch_is_believed() {
    for newest in [None, Some(2)] {
        let leader = Leader::new();
        leader.state().newest = newest;
        let mut consumer = leader.reader(OffsetReset::Latest).await;
        leader.elect(10, 2);
        assert_eq!(take(&mut consumer, 2).await, ["2-10", "2-11"]);
        assert!(leader.state().asked.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_fails_for_an_unknown_reason_is_repeated() {
    let leader = Leader::new();
    let mut consumer = leader.reader(OffsetReset::Latest).await;
    let errors = [ErrorCode::UnknownServerError, ErrorCode::UnknownLeaderEpoch, ErrorCode::FencedLeaderEpoch];
    leader.refuse(ApiKey::Fetch, &errors);
    leader.state().append(1);
    assert_eq!(take(&mut consumer, 1).await, ["1-10"]);
    consumer.seek_to(&at(), StartAt::Spec(OffsetSpec::Earliest));
    assert_eq!(take(&mut consumer, 11).await.len(), 11);
}
