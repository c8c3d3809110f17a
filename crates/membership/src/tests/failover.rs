//! A simulated quorum with changing leaders. The observer drops only uncommitted records; a stopping broker
//! waits for the new leader.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use thalweg_dial::{Connector, FrameReader, Properties};
use thalweg_metadata::{Delta, Image, VersionedRecord};
use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch, Offset};
use thalweg_wire::frame::{decode_request_header, encode_response, peek_request};
use thalweg_wire::metadata::{FeatureLevelRecord, RegisterBrokerRecord, TopicRecord};
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use thalweg_wire::request::{
    ApiVersionsResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse, FetchRequest, FetchResponse,
};
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message, MetadataRecord, Records, Uuid};
use tokio::io::{AsyncWriteExt, DuplexStream};

use crate::member::{Member, Wish};
use crate::observer::Observer;
use crate::*;

/// A batch in the log of a node.
#[derive(Clone)]
struct Entry {
    base: i64,
    next: i64,
    epoch: i32,
    bytes: Bytes,
}

#[derive(Clone, Default)]
struct Node {
    is_up: bool,
    log: Vec<Entry>,
    high_watermark: i64,
}

/// Nodes 0, 1 and 2 at `node:0`, `node:1` and `node:2`.
#[derive(Default)]
struct Fake {
    epoch: i32,
    leader: usize,
    nodes: [Node; 3],
    /// The offset of an observer's last request.
    asked: i64,
    /// Number of diverging epochs that an observer received.
    diverged: usize,
    /// The time that a leader takes to answer a heartbeat.
    beat_takes: Duration,
    /// Number of answered heartbeats per node.
    beats: [usize; 3],
    /// The node that allows a broker's shutdown, with its third answer.
    lets_go: Option<usize>,
    /// True if leaders know no broker, and reject registrations.
    knows_nobody: bool,
    /// Number of refused registrations.
    registrations: usize,
}

type SharedFake = Arc<Mutex<Fake>>;

fn entry(base: i64, epoch: i32, records: Vec<MetadataRecord>) -> Entry {
    let options = BatchOptions {
        base_offset: Offset(base),
        leader_epoch: LeaderEpoch(epoch),
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    let next = base + i64::try_from(records.len()).expect("few");
    for record in records {
        let value = VersionedRecord::new(record, 0).to_value().expect("version 0 holds it");
        builder.append(1, None, Some(&value), &[]).expect("it fits");
    }
    Entry { base, next, epoch, bytes: builder.build() }
}

fn topic(name: &str, id: u128) -> MetadataRecord {
    MetadataRecord::Topic(TopicRecord { name: name.to_owned(), topic_id: Uuid(id) })
}

fn is_leader(fake: &Fake, node: usize) -> bool {
    fake.leader == node && fake.nodes[node].is_up
}

/// The answer of a node to a Fetch, and true if the answer must be sent before the wait ends.
fn answer(fake: &mut Fake, node: usize, request: &FetchRequest) -> (FetchResponse, bool) {
    let asked = &request.topics[0].partitions[0];
    fake.asked = asked.fetch_offset;
    let leader = fake.leader;
    let mut data = PartitionData {
        current_leader: LeaderIdAndEpoch {
            leader_id: i32::try_from(leader).expect("small"),
            leader_epoch: fake.epoch,
        },
        high_watermark: fake.nodes[node].high_watermark,
        records: Some(Records::default()),
        ..PartitionData::default()
    };
    let mut is_ready = true;
    let log = &fake.nodes[node].log;
    let end_of = |epoch: i32| log.iter().filter(|e| e.epoch <= epoch).map(|e| (e.epoch, e.next)).next_back();
    if asked.current_leader_epoch < fake.epoch {
        data.error_code = ErrorCode::FencedLeaderEpoch.code();
    } else if !is_leader(fake, node) {
        data.error_code = ErrorCode::NotLeaderOrFollower.code();
    } else if asked.fetch_offset > 0
        && let Some((epoch, end_offset)) = end_of(asked.last_fetched_epoch)
        && (epoch != asked.last_fetched_epoch || end_offset < asked.fetch_offset)
    {
        data.diverging_epoch = EpochEndOffset { epoch, end_offset };
        fake.diverged += 1;
    } else {
        let wanted = log.iter().filter(|entry| entry.base >= asked.fetch_offset);
        let bytes: Vec<u8> = wanted.flat_map(|entry| entry.bytes.to_vec()).collect();
        is_ready = !bytes.is_empty() || asked.high_watermark < data.high_watermark;
        data.records = Some(Records::Inline(bytes.into()));
    }
    let endpoint = NodeEndpoint {
        node_id: i32::try_from(leader).expect("small"),
        host: "node".to_owned(),
        port: i32::try_from(leader).expect("small"),
        rack: None,
    };
    let topic = FetchableTopicResponse {
        topic_id: Uuid::METADATA_TOPIC,
        partitions: vec![data],
        ..Default::default()
    };
    let response =
        FetchResponse { responses: vec![topic], node_endpoints: vec![endpoint], ..Default::default() };
    (response, is_ready)
}

fn answer_beat(fake: &mut Fake, node: usize) -> BrokerHeartbeatResponse {
    if !is_leader(fake, node) {
        let error_code = ErrorCode::NotController.code();
        return BrokerHeartbeatResponse { error_code, ..Default::default() };
    }
    fake.beats[node] += 1;
    if fake.knows_nobody {
        let error_code = ErrorCode::StaleBrokerEpoch.code();
        return BrokerHeartbeatResponse { error_code, ..Default::default() };
    }
    let should_shut_down = fake.lets_go == Some(node) && fake.beats[node] == 3;
    BrokerHeartbeatResponse { should_shut_down, ..Default::default() }
}

fn versions() -> ApiVersionsResponse {
    let api = |api: ApiKey, max_version| ApiVersion { api_key: api as i16, min_version: 0, max_version };
    let beats = api(ApiKey::BrokerHeartbeat, BrokerHeartbeatRequest::MAX_VERSION);
    let registers = api(ApiKey::BrokerRegistration, BrokerRegistrationRequest::MAX_VERSION);
    ApiVersionsResponse {
        api_keys: vec![api(ApiKey::Fetch, 18), api(ApiKey::ApiVersions, 4), beats, registers],
        ..Default::default()
    }
}

/// Serves one connection to a node until the node is down.
async fn serve(shared: SharedFake, node: usize, stream: DuplexStream) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut frames = FrameReader::new(reader, 1 << 20);
    while let Ok(frame) = frames.next().await {
        let prefix = peek_request(&frame).expect("a header");
        let (version, id) = (prefix.api_version, prefix.correlation_id);
        let encoded = if prefix.api_key == ApiKey::ApiVersions as i16 {
            encode_response(&versions(), ApiKey::ApiVersions, version, id)
        } else if prefix.api_key == ApiKey::BrokerHeartbeat as i16 {
            let takes = shared.lock().beat_takes;
            tokio::time::sleep(takes).await;
            let response = answer_beat(&mut shared.lock(), node);
            encode_response(&response, ApiKey::BrokerHeartbeat, version, id)
        } else if prefix.api_key == ApiKey::BrokerRegistration as i16 {
            shared.lock().registrations += 1;
            let error_code = ErrorCode::DuplicateBrokerRegistration.code();
            let response = BrokerRegistrationResponse { error_code, ..Default::default() };
            encode_response(&response, ApiKey::BrokerRegistration, version, id)
        } else {
            let mut d = Decoder::new(frame);
            decode_request_header(&mut d, ApiKey::Fetch, version).expect("a header");
            let request = FetchRequest::decode(&mut d, version).expect("a Fetch");
            let deadline = Instant::now() + Duration::from_millis(request.max_wait_ms.unsigned_abs().into());
            let response = loop {
                let (response, is_ready) = answer(&mut shared.lock(), node, &request);
                if is_ready || Instant::now() >= deadline {
                    break response;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            };
            encode_response(&response, ApiKey::Fetch, version, id)
        };
        if !shared.lock().nodes[node].is_up {
            return;
        }
        let (bytes, _) = encoded.expect("it can be written");
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn link(shared: &SharedFake) -> ControllerLink {
    let shared = shared.clone();
    let connector = Connector::new(move |address: String| {
        let shared = shared.clone();
        async move {
            let node: usize = address.strip_prefix("node:").and_then(|id| id.parse().ok()).expect("a node");
            if !shared.lock().nodes[node].is_up {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(serve(shared, node, theirs));
            Ok(Box::new(ours) as Box<dyn thalweg_dial::ByteStream>)
        }
    });
    ControllerLink::to_quorum(QuorumOptions {
        listener: "CONTROLLER".to_owned(),
        servers: vec!["node:0".to_owned(), "node:1".to_owned()],
        voters: BTreeMap::new(),
        quorum_timeout: Duration::from_secs(2),
        session_timeout: Duration::from_secs(9),
        request_timeout: Duration::from_secs(30),
        client_id: "test".to_owned(),
        connector,
        security: OutgoingSecurity::new(Properties::new()).expect("plain text"),
    })
}

struct NullListener;

impl ImageListener for NullListener {
    fn publish(&self, _: &Delta, _: Arc<Image>) {}
}

/// The records that a broker's observer needs before it publishes an image, and later records.
fn beginning(options: &MembershipOptions) -> Vec<Entry> {
    let registration = RegisterBrokerRecord {
        broker_id: 9,
        incarnation_id: options.incarnation_id,
        broker_epoch: 1,
        ..Default::default()
    };
    let version = FeatureLevelRecord { name: "metadata.version".to_owned(), feature_level: 21 };
    let first = vec![MetadataRecord::FeatureLevel(version), MetadataRecord::RegisterBroker(registration)];
    vec![entry(0, 5, first), entry(2, 5, vec![topic("committed", 1)])]
}

fn with(common: &[Entry], rest: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    common.iter().cloned().chain(rest).collect()
}

async fn until_shown(images: &mut thalweg_watch::Receiver<Arc<Image>>, name: &str) -> Arc<Image> {
    let shown = images.wait_for(|image| image.topic(name).is_some());
    let shown = tokio::time::timeout(Duration::from_secs(20), shown).await;
    shown.expect("in time").expect("it goes on").clone()
}

#[tokio::test]
async fn what_a_new_leader_does_not_have_is_dropped_and_was_never_shown() {
    let options = MembershipOptions { node_id: BrokerId(9), ..MembershipOptions::default() };
    let common = beginning(&options);
    let shared: SharedFake = SharedFake::default();
    {
        let mut fake = shared.lock();
        (fake.epoch, fake.leader) = (5, 1);
        fake.nodes[0] = Node { is_up: true, log: common.clone(), high_watermark: 3 };
        let uncommitted = with(&common, [entry(3, 5, vec![topic("lost", 2)])]);
        fake.nodes[1] = Node { is_up: true, log: uncommitted, high_watermark: 3 };
        fake.nodes[2] = Node { is_up: true, log: common.clone(), high_watermark: 3 };
    }
    let progress = progress();
    let observer = Observer::new(link(&shared), &options, Arc::new(NullListener), progress.clone());
    let observer = tokio::spawn(observer.run());
    let mut images = progress.image.subscribe();
    let seen = until_shown(&mut images, "committed").await;
    assert!(seen.topic("lost").is_none() && seen.offset() == 2, "only what is committed is shown");
    {
        let mut fake = shared.lock();
        (fake.epoch, fake.leader) = (6, 2);
        fake.nodes[1].is_up = false;
        fake.nodes[2].log = with(&common, [entry(3, 6, vec![topic("kept", 3)])]);
        fake.nodes[2].high_watermark = 4;
    }
    let seen = until_shown(&mut images, "kept").await;
    assert!(seen.topic("committed").is_some() && seen.topic("lost").is_none());
    assert_eq!((seen.offset(), shared.lock().diverged), (3, 1));
    assert!(progress.failed.borrow().is_none());
    observer.abort();
}

/// The leader of one epoch fails, a second leader writes a record and fails too, and the first is elected
/// again with more records of its first epoch. The second leader's record then lies before the end of that
/// epoch.
#[tokio::test]
async fn what_a_leader_in_between_has_written_is_dropped() {
    let options = MembershipOptions { node_id: BrokerId(9), ..MembershipOptions::default() };
    let common = beginning(&options);
    let shared: SharedFake = SharedFake::default();
    {
        let mut fake = shared.lock();
        (fake.epoch, fake.leader) = (5, 1);
        fake.nodes.iter_mut().for_each(|node| {
            *node = Node { is_up: true, log: common.clone(), high_watermark: 3 };
        });
    }
    let progress = progress();
    let observer = Observer::new(link(&shared), &options, Arc::new(NullListener), progress.clone());
    let observer = tokio::spawn(observer.run());
    let mut images = progress.image.subscribe();
    until_shown(&mut images, "committed").await;
    {
        let mut fake = shared.lock();
        (fake.epoch, fake.leader) = (6, 2);
        fake.nodes[1].is_up = false;
        fake.nodes[2].log = with(&common, [entry(3, 6, vec![topic("lost", 2)])]);
    }
    let has_asked = async {
        while shared.lock().asked < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), has_asked).await.expect("the record arrives");
    {
        let mut fake = shared.lock();
        (fake.epoch, fake.leader) = (7, 1);
        let own = entry(3, 5, vec![topic("kept", 3), topic("too", 4)]);
        let log = with(&common, [own, entry(5, 7, vec![topic("new", 5)])]);
        fake.nodes[1] = Node { is_up: true, log, high_watermark: 6 };
        fake.nodes[2].is_up = false;
    }
    let seen = until_shown(&mut images, "new").await;
    assert!(seen.topic("kept").is_some() && seen.topic("too").is_some() && seen.topic("lost").is_none());
    assert_eq!((seen.offset(), shared.lock().diverged), (5, 1));
    assert!(progress.failed.borrow().is_none());
    observer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_leaves_waits_for_a_controller_that_was_just_elected() {
    let options = MembershipOptions { node_id: BrokerId(9), ..MembershipOptions::default() };
    let session = options.session_timeout;
    let shared: SharedFake = SharedFake::default();
    {
        let mut fake = shared.lock();
        (fake.epoch, fake.leader) = (5, 1);
        fake.nodes.iter_mut().for_each(|node| node.is_up = true);
        fake.beat_takes = Duration::from_millis(500);
    }
    let (link, progress) = (link(&shared), progress());
    let observer = Observer::new(link.clone(), &options, Arc::new(NullListener), progress.clone());
    let observer = tokio::spawn(observer.run());
    let (wishes, wished) = mpsc::channel(1);
    let member = tokio::spawn(Member::new(link, options, progress).run(wished));
    let (done, mut left) = oneshot::channel();
    wishes.send((Wish::Leave, done)).await.expect("the member runs");
    // The controller has received the wish, and fails before it can allow the shutdown.
    assert!(tokio::time::timeout(Duration::from_secs(3), &mut left).await.is_err());
    let heard = {
        let mut fake = shared.lock();
        fake.nodes[1].is_up = false;
        assert!(fake.beats[1] > 0);
        Instant::now()
    };
    // Another controller is elected shortly before the broker's session with the first one expires, and its
    // first answer arrives later.
    tokio::time::sleep_until(heard + session - Duration::from_secs(2)).await;
    {
        let mut fake = shared.lock();
        (fake.epoch, fake.leader, fake.lets_go) = (6, 2, Some(2));
        fake.beat_takes = Duration::from_secs(2);
    }
    tokio::time::timeout(session, left).await.expect("in time").expect("the broker leaves");
    assert_eq!(shared.lock().beats[2], 3, "the new controller has let it go");
    member.await.expect("it has ended in order");
    observer.abort();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_no_controller_knows_leaves_at_once() {
    let options = MembershipOptions { node_id: BrokerId(9), ..MembershipOptions::default() };
    let shared: SharedFake = SharedFake::default();
    {
        let mut fake = shared.lock();
        (fake.epoch, fake.leader, fake.knows_nobody) = (5, 1, true);
        fake.nodes.iter_mut().for_each(|node| node.is_up = true);
    }
    let (link, progress) = (link(&shared), progress());
    let observer = Observer::new(link.clone(), &options, Arc::new(NullListener), progress.clone());
    let observer = tokio::spawn(observer.run());
    let (wishes, wished) = mpsc::channel(1);
    let member = tokio::spawn(Member::new(link, options, progress).run(wished));
    while shared.lock().registrations < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (done, left) = oneshot::channel();
    wishes.send((Wish::Leave, done)).await.expect("the member runs");
    tokio::time::timeout(Duration::from_secs(1), left).await.expect("in time").expect("the broker leaves");
    member.await.expect("it has ended in order");
    observer.abort();
}
