//! ShareFetch and ShareAcknowledge (KIP-932), as members of a share group use them. The state of the group is
//! initialised by hand, as its coordinator does.

use crate::records::{Topic, batch, put, values_of};
use crate::running::RunningBroker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use thalweg_dial::{Connection, ConnectionOptions};
use thalweg_metadata::PartitionIndex;
use thalweg_wire::request::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch as AcknowledgedBatch,
};
use thalweg_wire::request::share_fetch_request::{AcknowledgementBatch, FetchPartition, FetchTopic};
use thalweg_wire::request::share_fetch_response::PartitionData;
use thalweg_wire::request::*;
use thalweg_wire::request::{
    initialize_share_group_state_request as initialize, read_share_group_state_summary_request as summary,
};
use thalweg_wire::{ErrorCode, Records, Request, Uuid};
use tokio::time::Instant;

const GROUP: &str = "queue";
const PROPERTIES: &[(&str, &str)] = &[
    ("share.coordinator.state.topic.num.partitions", "1"),
    ("group.share.min.record.lock.duration.ms", "1000"),
];

/// First and last offset, type.
type AckBatches<'a> = &'a [(i64, i64, i8)];

/// A member with a session on its own connection.
struct Member<'a> {
    connection: Connection,
    topic: &'a Topic,
    id: String,
    epoch: i32,
}

impl<'a> Member<'a> {
    async fn new(broker: &RunningBroker, topic: &'a Topic, id: &str) -> Member<'a> {
        let connected = Connection::connect(broker.address(), &ConnectionOptions::default()).await;
        Member { connection: connected.expect("the broker answers"), topic, id: id.to_owned(), epoch: 0 }
    }

    async fn ask<R: Request>(&self, request: &R) -> R::Response {
        self.connection.send(request).await.expect("an answer")
    }

    fn request(&self, batches: AckBatches<'_>) -> ShareFetchRequest {
        let acknowledged = batches.iter().map(|(first_offset, last_offset, code)| AcknowledgementBatch {
            first_offset: *first_offset,
            last_offset: *last_offset,
            acknowledge_types: vec![*code],
        });
        let partition =
            FetchPartition { acknowledgement_batches: acknowledged.collect(), ..FetchPartition::default() };
        ShareFetchRequest {
            group_id: Some(GROUP.to_owned()),
            member_id: Some(self.id.clone()),
            share_session_epoch: self.epoch,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 500,
            batch_size: 500,
            topics: vec![FetchTopic { topic_id: self.topic.id, partitions: vec![partition] }],
            ..ShareFetchRequest::default()
        }
    }

    /// Sends a fetch, and gives the answer for the only partition.
    async fn send(&mut self, request: ShareFetchRequest) -> PartitionData {
        let mut answer = self.ask(&request).await;
        assert_eq!(answer.error_code, 0, "the fetch as a whole");
        self.epoch += 1;
        let topic = answer.responses.pop();
        topic.and_then(|mut topic| topic.partitions.pop()).unwrap_or_default()
    }

    /// Acquires what there is, at once or within ten seconds.
    async fn acquire(&mut self) -> PartitionData {
        self.acquire_within(10_000).await
    }

    async fn acquire_within(&mut self, max_wait_ms: i32) -> PartitionData {
        let request = ShareFetchRequest { max_wait_ms, ..self.request(&[]) };
        self.send(request).await
    }

    /// Acknowledges records, alone; returns the error.
    async fn acknowledge(&mut self, batches: AckBatches<'_>) -> i16 {
        let acknowledged = batches.iter().map(|(first_offset, last_offset, code)| AcknowledgedBatch {
            first_offset: *first_offset,
            last_offset: *last_offset,
            acknowledge_types: vec![*code],
        });
        let partition =
            AcknowledgePartition { partition_index: 0, acknowledgement_batches: acknowledged.collect() };
        let request = ShareAcknowledgeRequest {
            group_id: Some(GROUP.to_owned()),
            member_id: Some(self.id.clone()),
            share_session_epoch: self.epoch,
            is_renew_ack: batches.iter().any(|(_, _, code)| *code == 4),
            topics: vec![AcknowledgeTopic { topic_id: self.topic.id, partitions: vec![partition] }],
        };
        let answer = self.ask(&request).await;
        assert_eq!(answer.error_code, 0, "the request as a whole");
        self.epoch += 1;
        // A request without batches is answered without partitions.
        answer.responses.first().map_or(0, |topic| topic.partitions[0].error_code)
    }
}

/// The acquired runs: first and last offset, number of deliveries.
fn runs(data: &PartitionData) -> Vec<(i64, i64, i16)> {
    assert_eq!((data.error_code, data.acknowledge_error_code), (0, 0), "{data:?}");
    data.acquired_records.iter().map(|run| (run.first_offset, run.last_offset, run.delivery_count)).collect()
}

/// Offsets of the records that came.
fn offsets(data: &PartitionData) -> Vec<i64> {
    match &data.records {
        Some(Records::Inline(bytes)) => values_of(bytes).into_iter().map(|(offset, _)| offset).collect(),
        _ => Vec::new(),
    }
}

/// Initialises the state of the group for partition 0, as its coordinator does.
async fn initialized(broker: &RunningBroker, topic: &Topic, start_offset: i64) {
    let partition = initialize::PartitionData { partition: 0, state_epoch: 0, start_offset };
    let topic = initialize::InitializeStateData { topic_id: topic.id, partitions: vec![partition] };
    let request = InitializeShareGroupStateRequest { group_id: GROUP.to_owned(), topics: vec![topic] };
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = broker.ask(&request).await;
        match answer.results[0].partitions[0].error_code {
            0 => return,
            code => assert!(Instant::now() < deadline, "{code} after 30 s"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Where the persisted state begins, and how many records behind that are complete.
async fn persisted(broker: &RunningBroker, topic: &Topic) -> (i64, i32) {
    let partition = summary::PartitionData { partition: 0, leader_epoch: -1 };
    let topic = summary::ReadStateSummaryData { topic_id: topic.id, partitions: vec![partition] };
    let request = ReadShareGroupStateSummaryRequest { group_id: GROUP.to_owned(), topics: vec![topic] };
    let answer = broker.ask(&request).await;
    let partition = &answer.results[0].partitions[0];
    (partition.start_offset, partition.delivery_complete_count)
}

async fn started(dir: &std::path::Path) -> (RunningBroker, Topic) {
    let broker = RunningBroker::start(dir, PROPERTIES).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    // The topic of the coordinator is made when one is first looked for.
    let key = format!("{GROUP}:{}:0", topic.id);
    broker
        .ask(&FindCoordinatorRequest { key_type: 2, coordinator_keys: vec![key], ..Default::default() })
        .await;
    initialized(&broker, &topic, 0).await;
    (broker, topic)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_get_different_records_and_acknowledge_them() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    for _ in 0..3 {
        put(&broker, &topic, -1, batch(&[b"a", b"b"])).await;
    }
    let (mut one, mut other) =
        (Member::new(&broker, &topic, "one").await, Member::new(&broker, &topic, "other").await);
    let few = ShareFetchRequest { max_records: 3, max_wait_ms: 10_000, ..one.request(&[]) };
    let data = one.send(few).await;
    assert_eq!((runs(&data), offsets(&data)), (vec![(0, 3, 1)], vec![0, 1, 2, 3]));
    let data = other.acquire().await;
    assert_eq!((runs(&data), offsets(&data)), (vec![(4, 5, 1)], vec![4, 5]));
    assert!(runs(&other.acquire_within(0).await).is_empty());

    assert_eq!(other.acknowledge(&[(0, 0, 1)]).await, ErrorCode::InvalidRecordState.code());
    assert_eq!(other.acknowledge(&[(5, 5, 1)]).await, 0);
    assert_eq!(one.acknowledge(&[(0, 1, 1), (2, 2, 2), (3, 3, 3)]).await, 0);
    assert_eq!(one.acknowledge(&[(0, 0, 1)]).await, 0, "what is behind the start is complete");
    let data = other.acquire().await;
    assert_eq!((runs(&data), offsets(&data)), (vec![(2, 2, 2)], vec![2, 3]));
    // With the next fetch.
    let data = other.send(other.request(&[(2, 2, 1), (4, 4, 1)])).await;
    assert!(runs(&data).is_empty());
    put(&broker, &topic, -1, batch(&[b"c"])).await;
    let data = other.acquire().await;
    assert_eq!(runs(&data), [(6, 6, 1)]);
    assert_eq!(other.acknowledge(&[(6, 6, 1)]).await, 0);
    assert_eq!(persisted(&broker, &topic).await, (6, 1));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_take_turns_although_a_member_acknowledges_after_each_fetch() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    let other = Topic::create(&broker, "other", 1, &[]).await;
    initialized(&broker, &other, 0).await;
    for _ in 0..8 {
        put(&broker, &topic, -1, batch(&[b"a"])).await;
        put(&broker, &other, -1, batch(&[b"b"])).await;
    }
    let mut member = Member::new(&broker, &topic, "one").await;
    let mut of_topic = Vec::new();
    for _ in 0..8 {
        let mut request = member.request(&[]);
        let named = FetchTopic { topic_id: other.id, partitions: vec![FetchPartition::default()] };
        request.topics.push(named);
        request = ShareFetchRequest { max_records: 1, share_acquire_mode: 1, max_wait_ms: 10_000, ..request };
        let answer = member.ask(&request).await;
        assert_eq!(answer.error_code, 0, "the fetch as a whole");
        member.epoch += 1;
        let found = answer.responses.iter().find(|found| found.partitions[0].acquired_records.len() == 1);
        let found = found.expect("there are records in both");
        let run = found.partitions[0].acquired_records[0].first_offset;
        of_topic.push(found.topic_id == topic.id);
        if found.topic_id == topic.id {
            assert_eq!(member.acknowledge(&[(run, run, 1)]).await, 0);
        } else {
            // Another acknowledgement, which counts as much.
            member.acknowledge(&[]).await;
        }
    }
    let of_other = of_topic.iter().filter(|is_of_topic| !**is_of_topic).count();
    assert!((3..=5).contains(&of_other), "{of_topic:?}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_waits_for_records_and_for_what_others_release() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    let (mut one, mut other) =
        (Member::new(&broker, &topic, "one").await, Member::new(&broker, &topic, "other").await);
    let began = Instant::now();
    assert!(runs(&one.acquire_within(300).await).is_empty());
    assert!(began.elapsed() >= Duration::from_millis(300));
    let (data, _) = tokio::join!(one.acquire(), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        put(&broker, &topic, -1, batch(&[b"a", b"b"])).await
    });
    assert_eq!(runs(&data), [(0, 1, 1)]);
    let (data, error) = tokio::join!(other.acquire(), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        one.acknowledge(&[(0, 1, 2)]).await
    });
    assert_eq!((runs(&data), error), (vec![(0, 1, 2)], 0));
    assert!(began.elapsed() < Duration::from_secs(8), "not for the whole time");
    // Fewer bytes than wanted wait for the time to be over.
    assert_eq!(other.acknowledge(&[(0, 1, 2)]).await, 0);
    let began = Instant::now();
    let request = ShareFetchRequest { min_bytes: 10_000, max_wait_ms: 300, ..one.request(&[]) };
    assert_eq!(runs(&one.send(request).await), [(0, 1, 3)]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_back_from_members_that_are_gone_or_too_slow() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    put(&broker, &topic, -1, batch(&[b"a", b"b"])).await;
    let mut stays = Member::new(&broker, &topic, "stays").await;
    let mut leaves = Member::new(&broker, &topic, "leaves").await;
    assert_eq!(runs(&leaves.acquire().await), [(0, 1, 1)]);
    // Its connection ends.
    leaves.connection.close();
    assert_eq!(runs(&stays.acquire().await), [(0, 1, 2)]);
    assert_eq!(stays.acknowledge(&[(0, 1, 2)]).await, 0);
    // Its session ends.
    let mut leaves = Member::new(&broker, &topic, "leaves").await;
    assert_eq!(runs(&leaves.acquire().await), [(0, 1, 3)]);
    let last = ShareFetchRequest { share_session_epoch: -1, ..leaves.request(&[(0, 0, 1)]) };
    assert_eq!(leaves.send(last).await.acknowledge_error_code, 0);
    assert_eq!(runs(&stays.acquire().await), [(1, 1, 4)]);
    assert_eq!(stays.acknowledge(&[(1, 1, 1)]).await, 0);
    // Its time is over.
    set(&broker, &[("share.record.lock.duration.ms", "1000")]).await;
    put(&broker, &topic, -1, batch(&[b"c"])).await;
    let mut slow = Member::new(&broker, &topic, "slow").await;
    assert_eq!(runs(&slow.acquire().await), [(2, 2, 1)]);
    let began = Instant::now();
    assert_eq!(runs(&stays.acquire().await), [(2, 2, 2)]);
    assert!(began.elapsed() >= Duration::from_millis(900) && began.elapsed() < Duration::from_secs(5));
    assert_eq!(slow.acknowledge(&[(2, 2, 1)]).await, ErrorCode::InvalidRecordState.code());
    assert_eq!(stays.acknowledge(&[(2, 2, 4)]).await, 0, "renewed");
    assert_eq!(stays.acknowledge(&[(2, 2, 1)]).await, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_waits_acquires_nothing_when_its_session_has_ended() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    let mut before = Member::new(&broker, &topic, "m").await;
    before.acquire_within(0).await;
    let mut after = Member::new(&broker, &topic, "m").await;
    let waits = ShareFetchRequest { max_wait_ms: 3000, ..before.request(&[]) };
    let (waited, ()) = tokio::join!(before.ask(&waits), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // The member has lost its connection, say, and begins again.
        after.acquire_within(0).await;
        put(&broker, &topic, -1, batch(&[b"a", b"b"])).await;
        assert_eq!(runs(&after.acquire().await), [(0, 1, 1)], "the session that lives gets them");
    });
    let acquired = waited.responses.iter().flat_map(|topic| &topic.partitions);
    assert_eq!(acquired.map(|data| data.acquired_records.len()).sum::<usize>(), 0, "{waited:?}");
    broker.stop().await;
}

/// The records of a session that ends are released for its member as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn member_begins_again_once_the_records_of_its_last_session_are_released() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    put(&broker, &topic, -1, batch(&[b"a", b"b"])).await;
    let mut before = Member::new(&broker, &topic, "m").await;
    assert_eq!(runs(&before.acquire().await), [(0, 1, 1)]);
    let mut after = Member::new(&broker, &topic, "m").await;
    let share_partitions = Arc::clone(&broker.server().broker.share_partitions);
    let led = share_partitions.find(GROUP, (topic.id, PartitionIndex(0))).expect("it is led here");
    // The release of the records waits for this lock, whose holder is a thread: the runtime may stand still
    // meanwhile.
    let (locked, is_locked) = mpsc::sync_channel(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let holder = std::thread::spawn(move || {
        led.with(|_| {
            locked.send(()).expect("the test waits for it");
            std::thread::park_timeout(Duration::from_secs(1));
            over.store(true, Ordering::SeqCst);
        })
    });
    is_locked.recv().expect("the lock is free");
    before.connection.close();
    let deadline = Instant::now() + Duration::from_secs(30);
    while share_partitions.sessions.counts().0 > 0 {
        assert!(Instant::now() < deadline, "the session does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let begins = ShareFetchRequest { max_records: 0, ..after.request(&[]) };
    after.send(begins).await;
    assert!(
        is_over.load(Ordering::SeqCst),
        "what it acquires now would be released with the records of its last session"
    );
    holder.join().expect("does not panic").expect("it is led here");
    assert_eq!(runs(&after.acquire().await), [(0, 1, 2)]);
    assert_eq!(after.acknowledge(&[(0, 1, 1)]).await, 0);
    broker.stop().await;
}

async fn set(broker: &RunningBroker, configs: &[(&str, &str)]) {
    use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
    let configs = configs.iter().map(|(name, value)| AlterableConfig {
        name: (*name).to_owned(),
        config_operation: 0,
        value: Some((*value).to_owned()),
    });
    let resource = AlterConfigsResource {
        resource_type: 32,
        resource_name: GROUP.to_owned(),
        configs: configs.collect(),
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let answer = broker.ask(&request).await;
    assert_eq!(answer.responses[0].error_code, 0, "{:?}", answer.responses[0].error_message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_survives_a_kill_and_what_is_not_comes_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    put(&broker, &topic, -1, batch(&[b"a", b"b", b"c", b"d", b"e", b"f"])).await;
    let mut member = Member::new(&broker, &topic, "member").await;
    assert_eq!(runs(&member.acquire().await), [(0, 5, 1)]);
    assert_eq!(member.acknowledge(&[(0, 0, 1), (2, 2, 3), (4, 4, 2)]).await, 0);
    // The member's end would give the others back, and count their delivery.
    broker.kill().await;
    drop(member);

    let broker = RunningBroker::start(dir.path(), PROPERTIES).await;
    let mut member = Member::new(&broker, &topic, "another").await;
    let mut found = Vec::new();
    while found.len() < 4 {
        found.extend(runs(&member.acquire().await));
    }
    assert_eq!(found, [(1, 1, 1), (3, 3, 1), (4, 4, 2), (5, 5, 1)]);
    broker.stop().await;
}

async fn set_share_version(broker: &RunningBroker, level: i16) {
    use thalweg_wire::request::update_features_request::FeatureUpdateKey;
    const UPGRADE: i8 = 1;
    const SAFE_DOWNGRADE: i8 = 2;
    let update = FeatureUpdateKey {
        feature: "share.version".to_owned(),
        max_version_level: level,
        upgrade_type: if level == 0 { SAFE_DOWNGRADE } else { UPGRADE },
        ..FeatureUpdateKey::default()
    };
    let request =
        UpdateFeaturesRequest { timeout_ms: 10_000, feature_updates: vec![update], ..Default::default() };
    let answer = broker.ask(&request).await;
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
    let deadline = Instant::now() + Duration::from_secs(30);
    while broker.server().broker.image().features().level("share.version") != level {
        assert!(Instant::now() < deadline, "the broker does not follow");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn share_groups_end_with_their_feature_and_go_on_with_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    put(&broker, &topic, -1, batch(&[b"a", b"b", b"c"])).await;
    let mut member = Member::new(&broker, &topic, "member").await;
    assert_eq!(runs(&member.acquire().await), [(0, 2, 1)]);
    assert_eq!(member.acknowledge(&[(0, 0, 1)]).await, 0);
    set_share_version(&broker, 0).await;
    let whole = async |request: ShareFetchRequest| member.ask(&request).await.error_code;
    let fetch = || ShareFetchRequest { max_wait_ms: 1, ..member.request(&[]) };
    assert_eq!(whole(fetch()).await, ErrorCode::UnsupportedVersion.code());
    let refusal =
        (ErrorCode::UnsupportedVersion.code(), Some("The version of API is not supported.".to_owned()));
    let group_id = GROUP.to_owned();
    let altered = AlterShareGroupOffsetsRequest { group_id: group_id.clone(), ..Default::default() };
    let altered = broker.ask(&altered).await;
    assert_eq!((altered.error_code, altered.error_message), refusal);
    let deleted = broker.ask(&DeleteShareGroupOffsetsRequest { group_id, ..Default::default() }).await;
    assert_eq!((deleted.error_code, deleted.error_message), refusal);
    set_share_version(&broker, 1).await;
    assert_eq!(whole(fetch()).await, ErrorCode::ShareSessionNotFound.code());
    // What was acknowledged stays so; the rest is not acquired any more, and its delivery was not written.
    let mut another = Member::new(&broker, &topic, "another").await;
    assert_eq!(runs(&another.acquire().await), [(1, 2, 1)]);
    assert_eq!(another.acknowledge(&[(1, 2, 1)]).await, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_begins_by_its_settings_and_stays_there() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    let other = Topic::create(&broker, "other", 1, &[]).await;
    initialized(&broker, &other, -1).await;
    for _ in 0..3 {
        put(&broker, &other, -1, batch(&[b"old"])).await;
    }
    drop(topic);
    let mut member = Member::new(&broker, &other, "member").await;
    assert!(runs(&member.acquire_within(500).await).is_empty());
    put(&broker, &other, -1, batch(&[b"new"])).await;
    assert_eq!(runs(&member.acquire().await), [(3, 3, 1)]);
    // Nothing is acknowledged: the group begins at the same record again, not at the end.
    broker.kill().await;
    drop(member);
    let broker = RunningBroker::start(dir.path(), PROPERTIES).await;
    let mut member = Member::new(&broker, &other, "another").await;
    // The end of the connection may have released the record in time, which counts the delivery.
    let found = runs(&member.acquire().await);
    assert!(found == [(3, 3, 1)] || found == [(3, 3, 2)], "{found:?}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_requests_get_kafkas_errors() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = started(dir.path()).await;
    put(&broker, &topic, -1, batch(&[b"a"])).await;
    let member = Member::new(&broker, &topic, "member").await;
    let whole = async |request: ShareFetchRequest| {
        ErrorCode::from_i16(member.ask(&request).await.error_code).expect("one of Kafka's codes")
    };
    let base = || ShareFetchRequest { max_wait_ms: 1, ..member.request(&[]) };
    let nameless = ShareFetchRequest { group_id: None, ..base() };
    assert_eq!(whole(nameless).await, ErrorCode::InvalidRequest);
    for id in [None, Some(String::new()), Some("x".repeat(37))] {
        let request = ShareFetchRequest { member_id: id, ..base() };
        assert_eq!(whole(request).await, ErrorCode::InvalidRequest);
    }
    for (epoch, error) in [(1, ErrorCode::ShareSessionNotFound), (-1, ErrorCode::ShareSessionNotFound)] {
        let request = ShareFetchRequest { share_session_epoch: epoch, ..base() };
        assert_eq!(whole(request).await, error);
    }
    let acknowledges = ShareFetchRequest { max_wait_ms: 1, ..member.request(&[(0, 0, 1)]) };
    assert_eq!(whole(acknowledges).await, ErrorCode::InvalidRequest);
    assert_eq!(whole(base()).await, ErrorCode::None);
    let wrong = ShareFetchRequest { share_session_epoch: 7, ..base() };
    assert_eq!(whole(wrong).await, ErrorCode::InvalidShareSessionEpoch);
    let renews = ShareFetchRequest { share_session_epoch: 1, is_renew_ack: true, ..base() };
    assert_eq!(whole(renews).await, ErrorCode::InvalidRequest);

    // Topics that are not there, and a group that was never initialised.
    let unknown = Topic { name: "unknown".to_owned(), id: Uuid(topic.id.0 ^ 1) };
    let mut lost = Member::new(&broker, &unknown, "lost").await;
    let data = lost.send(ShareFetchRequest { max_wait_ms: 0, ..lost.request(&[]) }).await;
    assert_eq!(data.error_code, ErrorCode::UnknownTopicId.code());
    let mut member = Member::new(&broker, &topic, "stranger").await;
    let request =
        ShareFetchRequest { group_id: Some("stranger".to_owned()), max_wait_ms: 200, ..member.request(&[]) };
    let data = member.send(request).await;
    assert_eq!(data.error_code, ErrorCode::UnknownServerError.code());
    broker.stop().await;
}
