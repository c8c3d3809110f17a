//! Readings of two brokers that answer late, over connections in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_client::{ByteStream, CloseReason, Connector, FrameReader};
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::describe_log_dirs_response::DescribeLogDirsResult;
use thalweg_wire::request::find_coordinator_response::Coordinator;
use thalweg_wire::request::list_groups_response::ListedGroup;
use thalweg_wire::request::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use thalweg_wire::request::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_wire::request::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use thalweg_wire::request::{
    ApiVersionsResponse, DescribeLogDirsResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    ListGroupsResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataResponse, OffsetFetchRequest,
    OffsetFetchResponse,
};
use thalweg_wire::{ApiKey, Decoder, Message, frame};
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::*;

const TOPIC: &str = "orders";
const SERVED: [ApiKey; 7] = [
    ApiKey::ApiVersions,
    ApiKey::Metadata,
    ApiKey::ListOffsets,
    ApiKey::DescribeLogDirs,
    ApiKey::ListGroups,
    ApiKey::FindCoordinator,
    ApiKey::OffsetFetch,
];
const LIMIT: Duration = Duration::from_millis(600);

/// Two brokers; each leads the partition before its number. Broker 1 coordinates all groups.
#[derive(Clone)]
struct Pair {
    delay: fn(i32, ApiKey) -> Duration,
    groups: usize,
    /// The end of both partitions grows by one for each committed offset that was read.
    end: Arc<Mutex<i64>>,
}

impl Pair {
    fn new(groups: usize, delay: fn(i32, ApiKey) -> Duration) -> Pair {
        Pair { delay, groups, end: Arc::new(Mutex::new(10)) }
    }

    async fn reader(&self) -> Reader {
        let pair = self.clone();
        let connector = Connector::new(move |address: String| {
            let node = address.strip_prefix("node:").and_then(|id| id.parse().ok()).expect("a node");
            let (ours, theirs) = tokio::io::duplex(1 << 10);
            tokio::spawn(pair.clone().serve(node, theirs));
            async move { Ok(Box::new(ours) as Box<dyn ByteStream>) }
        });
        let bootstrap = ["node:1".to_owned()];
        let options = ConnectionOptions::default();
        let cluster = Cluster::connect_by(connector, &bootstrap, &options).await.expect("connected");
        Reader { cluster, limit: LIMIT, silent: BTreeMap::new(), facts: None }
    }

    async fn serve(self, node: i32, stream: DuplexStream) -> Result<(), CloseReason> {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut frames = FrameReader::new(reader, 1 << 20);
        loop {
            let request = frames.next().await?;
            let prefix = frame::peek_request(&request).expect("a request");
            let (version, id) = (prefix.api_version, prefix.correlation_id);
            let key = ApiKey::from_i16(prefix.api_key).expect("a known API");
            tokio::time::sleep((self.delay)(node, key)).await;
            let mut d = Decoder::new(request);
            frame::decode_request_header(&mut d, key, version).expect("a header");
            writer.write_all(&self.answer(node, key, version, id, &mut d)).await?;
        }
    }

    fn end(&self) -> MutexGuard<'_, i64> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, node: i32, key: ApiKey, version: i16, id: i32, d: &mut Decoder) -> Vec<u8> {
        let (v, i) = (version, id);
        match key {
            ApiKey::ApiVersions => encode(&versions(), key, v, i),
            ApiKey::Metadata => encode(&metadata(), key, v, i),
            ApiKey::DescribeLogDirs => {
                let result = DescribeLogDirsResult { log_dir: "/logs".to_owned(), ..Default::default() };
                encode(&DescribeLogDirsResponse { results: vec![result], ..Default::default() }, key, v, i)
            }
            ApiKey::ListGroups => {
                let group = |number: usize| ListedGroup {
                    group_id: format!("group-{number:04}"),
                    group_state: "Empty".to_owned(),
                    group_type: "classic".to_owned(),
                    ..ListedGroup::default()
                };
                let groups = (0..self.groups).filter(|_| node == 1).map(group).collect();
                encode(&ListGroupsResponse { groups, ..Default::default() }, key, v, i)
            }
            ApiKey::FindCoordinator => {
                let request = FindCoordinatorRequest::decode(d, version).expect("a request");
                let found = |key: String| Coordinator {
                    key,
                    node_id: 1,
                    host: "node".to_owned(),
                    port: 1,
                    ..Coordinator::default()
                };
                let coordinators = request.coordinator_keys.into_iter().map(found).collect();
                encode(&FindCoordinatorResponse { coordinators, ..Default::default() }, key, v, i)
            }
            ApiKey::OffsetFetch => {
                let request = OffsetFetchRequest::decode(d, version).expect("a request");
                let committed_offset = *self.end();
                // A producer appends between the answers for positions and for ends.
                *self.end() += 1;
                let group = |group_id: String| {
                    let partition = OffsetFetchResponsePartitions { committed_offset, ..Default::default() };
                    let topic = OffsetFetchResponseTopics {
                        name: TOPIC.to_owned(),
                        partitions: vec![partition],
                        ..Default::default()
                    };
                    OffsetFetchResponseGroup { group_id, topics: vec![topic], ..Default::default() }
                };
                let groups = request.groups.into_iter().map(|one| group(one.group_id)).collect();
                encode(&OffsetFetchResponse { groups, ..Default::default() }, key, v, i)
            }
            ApiKey::ListOffsets => {
                let request = ListOffsetsRequest::decode(d, version).expect("a request");
                let end = *self.end();
                let topics = request.topics.into_iter().map(|topic| {
                    let partitions = topic.partitions.iter().map(|one| ListOffsetsPartitionResponse {
                        partition_index: one.partition_index,
                        offset: if one.timestamp == -1 { end } else { 3 },
                        ..Default::default()
                    });
                    ListOffsetsTopicResponse { name: topic.name, partitions: partitions.collect() }
                });
                encode(&ListOffsetsResponse { topics: topics.collect(), ..Default::default() }, key, v, i)
            }
            other => panic!("{other:?} is not expected"),
        }
    }
}

fn encode<M: Message>(message: &M, key: ApiKey, version: i16, id: i32) -> Vec<u8> {
    frame::encode_response(message, key, version, id).expect("an answer").0.to_vec()
}

fn versions() -> ApiVersionsResponse {
    let api_keys = SERVED.map(|key| {
        let (min_version, max_version) = key.versions();
        // Later ones name topics by their ids.
        let max_version = if key == ApiKey::OffsetFetch { 8 } else { max_version };
        ApiVersion { api_key: key as i16, min_version, max_version }
    });
    ApiVersionsResponse { api_keys: api_keys.to_vec(), ..Default::default() }
}

fn metadata() -> MetadataResponse {
    let broker = |node_id| MetadataResponseBroker {
        node_id,
        host: "node".to_owned(),
        port: node_id,
        ..MetadataResponseBroker::default()
    };
    let partition = |partition_index| MetadataResponsePartition {
        partition_index,
        leader_id: partition_index + 1,
        replica_nodes: vec![1, 2],
        isr_nodes: vec![1, 2],
        ..MetadataResponsePartition::default()
    };
    let topic = MetadataResponseTopic {
        name: Some(TOPIC.to_owned()),
        partitions: vec![partition(0), partition(1)],
        ..MetadataResponseTopic::default()
    };
    MetadataResponse { brokers: [1, 2].map(broker).to_vec(), topics: vec![topic], ..Default::default() }
}

fn late_when(is_late: bool) -> Duration {
    if is_late { Duration::from_millis(900) } else { Duration::ZERO }
}

#[tokio::test]
async fn late_log_directories_are_no_silence() {
    let pair = Pair::new(0, |node, key| late_when(node == 2 && key == ApiKey::DescribeLogDirs));
    let mut reader = pair.reader().await;
    let reading = reader.read().await.expect("a reading");
    let slow = &reading.brokers[&2];
    assert!(slow.answers() && slow.logs.is_none() && reader.silent.is_empty(), "{slow:?}");
    let absence = slow.directories.as_ref().expect_err("they are late");
    assert_eq!((absence.cause, absence.why.as_str()), (Cause::Failed, "no answer for them within 600 ms"));
    assert_eq!(reading.counts().offline, 0);
    assert!(reading.brokers[&1].logs.is_some());
}

#[tokio::test]
async fn a_broker_that_answers_nothing_is_silent_and_delays_no_other() {
    let pair = Pair::new(1, |node, _| if node == 2 { Duration::from_secs(60) } else { Duration::ZERO });
    let mut reader = pair.reader().await;
    for _ in 0..2 {
        let reading = reader.read().await.expect("a reading");
        assert!(!reading.answers(2) && reading.answers(1), "{:?}", reading.brokers);
        assert_eq!(reading.counts().offline, 1);
        let groups = reading.groups.expect("groups of broker 1").groups;
        assert!(groups[0].positions.as_ref().is_some_and(|found| found.len() == 1), "{groups:?}");
    }
    assert_eq!((reader.limit_of(1), reader.limit_of(2)), (LIMIT, SILENT_WAIT));
}

#[tokio::test]
async fn ends_are_read_after_positions() {
    let reading = Pair::new(1, |_, _| Duration::ZERO).reader().await.read().await.expect("a reading");
    let at = TopicPartition::new(TOPIC, 0);
    let groups = reading.groups.as_ref().expect("groups");
    let position = groups.groups[0].positions.as_ref().expect("positions")[&at].offset.0;
    assert_eq!((position, reading.end(&at)), (10, Some(11)));
    let partition = &reading.topics[TOPIC].partitions[0];
    assert_eq!(partition.start, Some(3));
    assert!(partition.end_at > Some(groups.groups[0].positions_at));
}

#[tokio::test]
async fn groups_that_are_read_in_time_are_kept() {
    let pair = Pair::new(200, |_, key| match key {
        ApiKey::OffsetFetch => Duration::from_millis(150),
        _ => Duration::ZERO,
    });
    let reading = pair.reader().await.read().await.expect("a reading");
    let groups = reading.groups.expect("groups").groups;
    let read = groups.iter().filter(|group| group.positions.is_some()).count();
    assert!(groups.len() == 200 && (20..200).contains(&read), "{read} of {}", groups.len());
}
