//! A member of a group whose coordinator moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use thalweg_client::{
    ByteStream, CloseReason, Cluster, ConnectionOptions, Connector, Consumer, ConsumerConfig, FrameReader,
    Polled, TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::data::ConsumerProtocolAssignment;
use thalweg_wire::data::consumer_protocol_assignment::TopicPartition as Assigned;
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::find_coordinator_response::Coordinator;
use thalweg_wire::request::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_wire::request::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode, Message, frame};
use tokio::io::{AsyncWriteExt, DuplexStream};

use crate::fake::TOPIC;

const GROUP: &str = "g";
/// What the group has committed.
const COMMITTED: i64 = 7;
const SERVED: [ApiKey; 8] = [
    ApiKey::ApiVersions,
    ApiKey::Metadata,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::SyncGroup,
    ApiKey::Heartbeat,
    ApiKey::OffsetFetch,
    ApiKey::Fetch,
];

/// Two brokers, `node:1` and `node:2`. The first coordinates the group until it is asked for offsets, then the second.
#[derive(Clone, Default)]
struct Brokers {
    moved: Arc<AtomicBool>,
}

impl Brokers {
    fn connector(&self) -> Connector {
        let brokers = self.clone();
        Connector::new(move |address: String| {
            let brokers = brokers.clone();
            async move {
                let node = address.strip_prefix("node:").and_then(|id| id.parse().ok()).expect("a node");
                let (ours, theirs) = tokio::io::duplex(64 << 10);
                tokio::spawn(async move { brokers.serve(node, theirs).await });
                Ok(Box::new(ours) as Box<dyn ByteStream>)
            }
        })
    }

    async fn serve(self, node: i32, stream: DuplexStream) -> Result<(), CloseReason> {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut frames = FrameReader::new(reader, 1 << 20);
        loop {
            let request = frames.next().await?;
            let prefix = frame::peek_request(&request).expect("a request");
            let key = ApiKey::from_i16(prefix.api_key).expect("a known API");
            if key == ApiKey::Fetch {
                // There is nothing to read.
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            writer.write_all(&self.answer(node, key, prefix.api_version, prefix.correlation_id)).await?;
        }
    }

    fn coordinator(&self) -> i32 {
        if self.moved.load(Ordering::SeqCst) { 2 } else { 1 }
    }

    fn answer(&self, node: i32, key: ApiKey, version: i16, id: i32) -> Bytes {
        let here = if self.coordinator() == node { 0 } else { ErrorCode::NotCoordinator.code() };
        match key {
            ApiKey::ApiVersions => encode(&versions(), key, version, id),
            ApiKey::Metadata => encode(&metadata(version), key, version, id),
            ApiKey::FindCoordinator => {
                let (key_, node_id) = (GROUP.to_owned(), self.coordinator());
                let (host, port) = ("node".to_owned(), node_id);
                let found = Coordinator { key: key_, node_id, host, port, ..Default::default() };
                let response = FindCoordinatorResponse { coordinators: vec![found], ..Default::default() };
                encode(&response, key, version, id)
            }
            ApiKey::JoinGroup => {
                let response = JoinGroupResponse {
                    error_code: here,
                    generation_id: 1,
                    protocol_type: Some("consumer".to_owned()),
                    protocol_name: Some("range".to_owned()),
                    leader: "another".to_owned(),
                    member_id: "member".to_owned(),
                    ..JoinGroupResponse::default()
                };
                encode(&response, key, version, id)
            }
            ApiKey::SyncGroup => {
                let response =
                    SyncGroupResponse { error_code: here, assignment: assignment(), ..Default::default() };
                encode(&response, key, version, id)
            }
            ApiKey::Heartbeat => {
                let response = HeartbeatResponse { error_code: here, ..HeartbeatResponse::default() };
                encode(&response, key, version, id)
            }
            ApiKey::OffsetFetch => {
                self.moved.store(true, Ordering::SeqCst);
                let error_code = if node == 2 { 0 } else { ErrorCode::NotCoordinator.code() };
                encode(&offsets(error_code), key, version, id)
            }
            ApiKey::Fetch => encode(&FetchResponse::default(), key, version, id),
            other => panic!("{other:?} is not expected"),
        }
    }
}

fn encode<M: Message>(message: &M, key: ApiKey, version: i16, id: i32) -> Bytes {
    frame::encode_response(message, key, version, id).expect("an answer").0.freeze()
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

fn metadata(version: i16) -> MetadataResponse {
    let broker = |node_id| MetadataResponseBroker {
        node_id,
        host: "node".to_owned(),
        port: node_id,
        ..MetadataResponseBroker::default()
    };
    let partition = MetadataResponsePartition { leader_id: 1, ..MetadataResponsePartition::default() };
    let topic = MetadataResponseTopic {
        name: Some(TOPIC.to_owned()),
        topic_id: if version >= 10 { thalweg_wire::Uuid(77) } else { thalweg_wire::Uuid::ZERO },
        partitions: vec![partition],
        ..MetadataResponseTopic::default()
    };
    MetadataResponse { brokers: [1, 2].map(broker).to_vec(), topics: vec![topic], ..Default::default() }
}

fn assignment() -> Bytes {
    let assigned_partitions = vec![Assigned { topic: TOPIC.to_owned(), partitions: vec![0] }];
    let assignment = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
    let mut framed = BytesMut::new();
    framed.put_i16(1);
    framed.put_slice(&assignment.to_bytes(1).expect("version 1 holds it"));
    framed.freeze()
}

fn offsets(error_code: i16) -> OffsetFetchResponse {
    let partition = OffsetFetchResponsePartitions {
        committed_offset: COMMITTED,
        ..OffsetFetchResponsePartitions::default()
    };
    let topic = OffsetFetchResponseTopics {
        name: TOPIC.to_owned(),
        partitions: vec![partition],
        ..OffsetFetchResponseTopics::default()
    };
    let topics = if error_code == 0 { vec![topic] } else { Vec::new() };
    let group = OffsetFetchResponseGroup { group_id: GROUP.to_owned(), topics, error_code };
    OffsetFetchResponse { groups: vec![group], ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moves_while_a_member_asks_for_offsets_is_found_again() {
    let bootstrap = ["node:1".to_owned()];
    let options = ConnectionOptions::default();
    let cluster = Cluster::connect_by(Brokers::default().connector(), &bootstrap, &options);
    let config =
        ConsumerConfig { group: Some(GROUP.to_owned()), auto_commit: None, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(cluster.await.expect("connected"), config);
    consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
    let polled = tokio::time::timeout(Duration::from_secs(60), consumer.poll(Duration::from_secs(1))).await;
    let polled = polled.expect("the new coordinator is asked").expect("it answers");
    assert!(matches!(polled, Polled::Assigned(_)), "{polled:?}");
    assert_eq!(consumer.position(&TopicPartition::new(TOPIC, 0)), Some(Offset(COMMITTED)));
}
