//! Transactions, by the older protocol and by transaction.version 2: visibility for readers of committed
//! records, refusals, and restarts.

use crate::records::{Topic, batch_at, fetch, fetch_partition, produce, values};
use crate::running::RunningBroker;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use tempfile::TempDir;
use thalweg_dial::Connection;
use thalweg_record::{BatchOptions, ProducerEpoch, ProducerId};
use thalweg_wire::request::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use thalweg_wire::request::describe_producers_request::TopicRequest;
use thalweg_wire::request::fetch_response::PartitionData;
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use thalweg_wire::request::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Request};
use tokio::time::Instant;

/// Longer than anything here takes, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// By which protocol a producer acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Older,
    Newer,
}

/// Records here are older than their markers, by more than a segment spans: one fetch would not show both.
pub const ONE_SEGMENT: (&str, &str) = ("segment.ms", "9223372036854775807");

const BOTH: [Protocol; 2] = [Protocol::Older, Protocol::Newer];

/// A producer with a transactional id, as clients act.
#[derive(Clone, Debug)]
pub struct Transactional {
    pub id: String,
    protocol: Protocol,
    pub producer_id: i64,
    pub epoch: i16,
    /// Of the next record of each topic.
    sequences: BTreeMap<String, i32>,
}

fn error(code: i16) -> ErrorCode {
    ErrorCode::from_i16(code).expect("a code of Kafka's")
}

/// Where a producer turns to: one broker, or whichever of a cluster is right at the moment.
pub trait Servers {
    /// The coordinator of an id.
    fn coordinator(&self, id: &str) -> impl Future<Output = &Connection>;
    /// The leader of a topic's first partition.
    fn leader(&self, topic: &Topic) -> &Connection;
}

impl Servers for RunningBroker {
    async fn coordinator(&self, _: &str) -> &Connection {
        self.connection()
    }

    fn leader(&self, _: &Topic) -> &Connection {
        self.connection()
    }
}

async fn ask<R: Request>(connection: &Connection, request: &R) -> R::Response {
    connection.send(request).await.expect("an answer")
}

async fn ask_at<R: Request>(connection: &Connection, request: &R, version: i16) -> R::Response {
    connection.send_at(request, version).await.expect("an answer")
}

/// Retries as long as the answer is retriable.
pub async fn patiently<T>(mut ask: impl AsyncFnMut() -> (ErrorCode, T)) -> (ErrorCode, T) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (error, answer) = ask().await;
        let comes_again = matches!(
            error,
            ErrorCode::ConcurrentTransactions
                | ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::CoordinatorNotAvailable
                | ErrorCode::NotCoordinator
                | ErrorCode::NotLeaderOrFollower
                | ErrorCode::UnknownTopicOrPartition
                | ErrorCode::NotEnoughReplicas
        );
        if !comes_again || Instant::now() > deadline {
            return (error, answer);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Transactional {
    /// Finds the coordinator, which makes it ready, and begins under the id.
    pub async fn begin(servers: &impl Servers, id: &str, protocol: Protocol) -> Transactional {
        let mut own = Transactional {
            id: id.to_owned(),
            protocol,
            producer_id: -1,
            epoch: -1,
            sequences: BTreeMap::new(),
        };
        patiently(async || {
            let request = FindCoordinatorRequest {
                key_type: 1,
                coordinator_keys: vec![id.to_owned()],
                ..Default::default()
            };
            let found = ask(servers.coordinator(id).await, &request).await.coordinators.remove(0);
            (error(found.error_code), ())
        })
        .await;
        assert_eq!(own.init(servers, 60_000).await, ErrorCode::None);
        own
    }

    /// InitProducerId, with retries.
    pub async fn init(&mut self, servers: &impl Servers, timeout_ms: i32) -> ErrorCode {
        let request = InitProducerIdRequest {
            transactional_id: Some(self.id.clone()),
            transaction_timeout_ms: timeout_ms,
            ..Default::default()
        };
        let (error, answer) = patiently(async || {
            let answer = ask(servers.coordinator(&self.id).await, &request).await;
            (error(answer.error_code), answer)
        })
        .await;
        if error == ErrorCode::None {
            (self.producer_id, self.epoch) = (answer.producer_id, answer.producer_epoch);
            self.sequences.clear();
        }
        error
    }

    fn batch(&self, topic: &Topic, values: &[&[u8]]) -> Bytes {
        let options = BatchOptions {
            producer_id: ProducerId(self.producer_id),
            producer_epoch: ProducerEpoch(self.epoch),
            base_sequence: self.sequences.get(&topic.name).copied().unwrap_or(0),
            transactional: true,
            ..BatchOptions::default()
        };
        batch_at(1_700_000_000_000, values, options)
    }

    /// `AddPartitionsToTxn` for one partition.
    pub async fn add(&self, servers: &impl Servers, topic: &Topic, partition: i32) -> ErrorCode {
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id.clone(),
            v3_and_below_producer_id: self.producer_id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: topic.name.clone(),
                partitions: vec![partition],
            }],
            ..Default::default()
        };
        let (error, ()) = patiently(async || {
            let mut answer = ask_at(servers.coordinator(&self.id).await, &request, 3).await;
            let result = answer.results_by_topic_v3_and_below.remove(0).results_by_partition.remove(0);
            (error(result.partition_error_code), ())
        })
        .await;
        error
    }

    /// Produces one batch to partition 0 at this version.
    pub async fn send_at(
        &mut self,
        servers: &impl Servers,
        topic: &Topic,
        values: &[&[u8]],
        version: i16,
    ) -> ErrorCode {
        let mut request = produce(version, topic, 0, -1, self.batch(topic, values));
        request.transactional_id = Some(self.id.clone());
        let (error, ()) = patiently(async || {
            let mut answer = ask_at(servers.leader(topic), &request, version).await;
            (error(answer.responses.remove(0).partition_responses.remove(0).error_code), ())
        })
        .await;
        if error == ErrorCode::None {
            *self.sequences.entry(topic.name.clone()).or_default() +=
                i32::try_from(values.len()).expect("few");
        }
        error
    }

    /// Produces one batch to partition 0 as part of the transaction, which is begun if need be.
    pub async fn send(&mut self, servers: &impl Servers, topic: &Topic, values: &[&[u8]]) -> ErrorCode {
        let version = match self.protocol {
            Protocol::Older => {
                let added = self.add(servers, topic, 0).await;
                if added != ErrorCode::None {
                    return added;
                }
                11
            }
            Protocol::Newer => 13,
        };
        self.send_at(servers, topic, values, version).await
    }

    /// AddOffsetsToTxn, of which the newer protocol has no need.
    pub async fn add_group(&self, servers: &impl Servers, group: &str) -> ErrorCode {
        let request = AddOffsetsToTxnRequest {
            transactional_id: self.id.clone(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            group_id: group.to_owned(),
        };
        let (error, ()) = patiently(async || {
            let answer = ask(servers.coordinator(&self.id).await, &request).await;
            (error(answer.error_code), ())
        })
        .await;
        error
    }

    /// TxnOffsetCommit for partition 0 of `topic`, to the coordinator of the group.
    pub async fn commit_offset(&self, coordinator: &Connection, group: &str, offset: i64) -> ErrorCode {
        let partition = TxnOffsetCommitRequestPartition { committed_offset: offset, ..Default::default() };
        let request = TxnOffsetCommitRequest {
            transactional_id: self.id.clone(),
            group_id: group.to_owned(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            topics: vec![TxnOffsetCommitRequestTopic {
                name: "topic".to_owned(),
                partitions: vec![partition],
            }],
            ..Default::default()
        };
        let version = if self.protocol == Protocol::Newer { 5 } else { 4 };
        let (error, ()) = patiently(async || {
            let answer = ask_at(coordinator, &request, version).await;
            (error(answer.topics[0].partitions[0].error_code), ())
        })
        .await;
        error
    }

    /// EndTxn, and the wait until it has ended everywhere, so that readers see it.
    pub async fn end(&mut self, servers: &impl Servers, commits: bool) -> ErrorCode {
        let error = self.decide(servers, commits).await;
        if error == ErrorCode::None {
            let deadline = Instant::now() + PATIENCE;
            while !describe(servers, &self.id).await.transaction_state.starts_with("Complete") {
                assert!(Instant::now() < deadline, "the transaction does not end");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        error
    }

    /// `EndTxn` alone.
    pub async fn decide(&mut self, servers: &impl Servers, commits: bool) -> ErrorCode {
        let request = EndTxnRequest {
            transactional_id: self.id.clone(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed: commits,
        };
        let version = if self.protocol == Protocol::Newer { 5 } else { 4 };
        let (error, answer) = patiently(async || {
            let answer = ask_at(servers.coordinator(&self.id).await, &request, version).await;
            (error(answer.error_code), answer)
        })
        .await;
        if error == ErrorCode::None && self.protocol == Protocol::Newer {
            if answer.producer_epoch != self.epoch {
                self.sequences.clear();
            }
            (self.producer_id, self.epoch) = (answer.producer_id, answer.producer_epoch);
        }
        error
    }
}

/// The coordinator's description of an id.
pub async fn describe(servers: &impl Servers, id: &str) -> describe_transactions_response::TransactionState {
    let request = DescribeTransactionsRequest { transactional_ids: vec![id.to_owned()] };
    ask(servers.coordinator(id).await, &request).await.transaction_states.remove(0)
}

/// What readers of committed records are given of a topic's first partition.
pub async fn committed(leader: &Connection, topic: &Topic) -> PartitionData {
    let request = fetch(18, topic, vec![fetch_partition(0, 0)]);
    let mut answer = ask(leader, &FetchRequest { isolation_level: 1, ..request }).await;
    assert_eq!(answer.error_code, 0, "the fetch as a whole");
    answer.responses.remove(0).partitions.remove(0)
}

/// The same as records, once nothing is open any more.
pub async fn settled(servers: &impl Servers, topic: &Topic) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let data = committed(servers.leader(topic), topic).await;
        if data.error_code == 0 && data.last_stable_offset == data.high_watermark {
            return committed_values(&data);
        }
        assert!(Instant::now() < deadline, "{} hangs: {data:?}", topic.name);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The values that a reader of committed records hands to its user: those that the list of aborted ones does
/// not exclude.
pub async fn read_committed(leader: &Connection, topic: &Topic) -> Vec<String> {
    let data = committed(leader, topic).await;
    committed_values(&data)
}

/// As a consumer does it: batches of a producer are left out from where an aborted transaction begins up to
/// its marker.
pub fn committed_values(data: &PartitionData) -> Vec<String> {
    let mut aborted: Vec<_> = data.aborted_transactions.clone().unwrap_or_default();
    aborted.sort_by_key(|transaction| transaction.first_offset);
    let (mut out, mut found) = (std::collections::HashSet::new(), Vec::new());
    let bytes = crate::records::fetched_bytes(data);
    for batch in thalweg_record::batches(&bytes) {
        let batch = batch.expect("whole batches");
        let (header, last) = (batch.header, batch.header.last_offset().0);
        while aborted.first().is_some_and(|transaction| transaction.first_offset <= last) {
            out.insert(aborted.remove(0).producer_id);
        }
        if header.attributes.is_control() {
            out.remove(&header.producer_id.0);
            continue;
        }
        if !(header.attributes.is_transactional() && out.contains(&header.producer_id.0)) {
            let values = crate::records::values_of(batch.bytes);
            found.extend(values.into_iter().map(|(_, value)| String::from_utf8(value).expect("text")));
        }
    }
    found
}

fn data() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

pub async fn start(dir: &TempDir, properties: &[(&str, &str)]) -> RunningBroker {
    let mut all = vec![("log.retention.ms", "-1"), ("transaction.state.log.num.partitions", "2")];
    all.extend(properties);
    RunningBroker::start(dir.path(), &all).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_committed_records_see_what_was_committed_and_nothing_else() {
    for protocol in BOTH {
        let dir = data();
        let broker = start(&dir, &[]).await;
        let topic = Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
        let mut one = Transactional::begin(&broker, "one", protocol).await;
        let mut other = Transactional::begin(&broker, "other", protocol).await;
        assert_eq!(one.send(&broker, &topic, &[b"a1", b"a2"]).await, ErrorCode::None);
        assert_eq!(other.send(&broker, &topic, &[b"b1"]).await, ErrorCode::None);
        let data = committed(broker.connection(), &topic).await;
        assert_eq!((data.last_stable_offset, data.high_watermark), (0, 3), "{protocol:?}: both are open");
        assert!(values(&data).is_empty());
        assert_eq!(other.end(&broker, false).await, ErrorCode::None);
        assert!(read_committed(broker.connection(), &topic).await.is_empty(), "the first is open");
        assert_eq!(one.end(&broker, true).await, ErrorCode::None);
        assert_eq!(read_committed(broker.connection(), &topic).await, ["a1", "a2"], "{protocol:?}");
        for round in 0..3 {
            let (kept, gone) = (format!("k{round}"), format!("g{round}"));
            assert_eq!(one.send(&broker, &topic, &[kept.as_bytes()]).await, ErrorCode::None);
            assert_eq!(one.end(&broker, true).await, ErrorCode::None);
            assert_eq!(one.send(&broker, &topic, &[gone.as_bytes()]).await, ErrorCode::None);
            assert_eq!(one.end(&broker, false).await, ErrorCode::None);
        }
        assert_eq!(read_committed(broker.connection(), &topic).await, ["a1", "a2", "k0", "k1", "k2"]);
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_waits_for_much_is_woken_by_the_end_of_the_transaction() {
    let dir = data();
    let broker = start(&dir, &[]).await;
    let topic = Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
    let mut one = Transactional::begin(&broker, "one", Protocol::Newer).await;
    let large = vec![b'x'; 5_000];
    assert_eq!(one.send(&broker, &topic, &[&large]).await, ErrorCode::None);
    let request = FetchRequest {
        isolation_level: 1,
        min_bytes: 4_000,
        max_wait_ms: 50_000,
        ..fetch(18, &topic, vec![fetch_partition(0, 0)])
    };
    let reader = Connection::connect(broker.address(), &Default::default()).await;
    let reader = reader.expect("the broker answers");
    let waiting = tokio::spawn(async move { reader.send(&request).await });
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    assert_eq!(one.end(&broker, true).await, ErrorCode::None);
    let answer = waiting.await.expect("it is not cancelled").expect("an answer");
    assert_eq!(values(&answer.responses[0].partitions[0]).len(), 2, "the record and its marker");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_no_transaction_is_refused() {
    let dir = data();
    let broker = start(&dir, &[]).await;
    let topic = Topic::create(&broker, "topic", 2, &[ONE_SEGMENT]).await;
    let mut one = Transactional::begin(&broker, "one", Protocol::Older).await;
    for (version, expected) in [(10, ErrorCode::InvalidTxnState), (11, ErrorCode::TransactionAbortable)] {
        assert_eq!(one.send_at(&broker, &topic, &[b"x"], version).await, expected, "version {version}");
    }
    assert_eq!(one.add(&broker, &topic, 1).await, ErrorCode::None);
    assert_eq!(
        one.send_at(&broker, &topic, &[b"x"], 11).await,
        ErrorCode::TransactionAbortable,
        "another partition was added"
    );
    let mut stranger = Transactional { producer_id: one.producer_id + 1000, ..one.clone() };
    let refused = stranger.send_at(&broker, &topic, &[b"x"], 11).await;
    assert_eq!(refused, ErrorCode::InvalidProducerIdMapping);
    let mut request = produce(11, &topic, 0, -1, one.batch(&topic, &[b"x"]));
    let answer = broker.ask_at(&request, 11).await;
    let code = answer.responses[0].partition_responses[0].error_code;
    let expected = ErrorCode::TransactionalIdAuthorizationFailed;
    assert_eq!(error(code), expected, "without a transactional id there is no right to write");
    request.transactional_id = Some("one".to_owned());
    let other = Transactional { producer_id: one.producer_id + 1, ..one.clone() };
    let second = produce(11, &topic, 1, -1, other.batch(&topic, &[b"y"])).topic_data.remove(0);
    request.topic_data[0].partition_data.extend(second.partition_data);
    let answer = broker.ask_at(&request, 11).await;
    for partition in &answer.responses[0].partition_responses {
        assert_eq!(error(partition.error_code), ErrorCode::InvalidProducerIdMapping, "of two producers");
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verification_can_be_turned_off() {
    let dir = data();
    let broker = start(&dir, &[("transaction.partition.verification.enable", "false")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
    let mut one = Transactional::begin(&broker, "one", Protocol::Older).await;
    assert_eq!(one.send_at(&broker, &topic, &[b"x"], 11).await, ErrorCode::None);
    // The coordinator does not know of it: it hangs, and can be found and ended as kafka-transactions.sh
    // does.
    let asked = TopicRequest { name: "topic".to_owned(), partition_indexes: vec![0] };
    let describe = DescribeProducersRequest { topics: vec![asked] };
    let producers =
        async || broker.ask(&describe).await.topics.remove(0).partitions.remove(0).active_producers;
    let open = producers().await.remove(0);
    assert_eq!((open.producer_id, open.current_txn_start_offset), (one.producer_id, 0));
    let marker = WritableTxnMarker {
        producer_id: open.producer_id,
        producer_epoch: i16::try_from(open.producer_epoch).expect("small"),
        transaction_result: false,
        topics: vec![WritableTxnMarkerTopic { name: "topic".to_owned(), partition_indexes: vec![0, 7] }],
        coordinator_epoch: open.coordinator_epoch,
        transaction_version: 0,
    };
    let mut answer = broker.ask(&WriteTxnMarkersRequest { markers: vec![marker] }).await;
    let partitions = answer.markers.remove(0).topics.remove(0).partitions;
    let codes: Vec<_> = partitions.iter().map(|p| (p.partition_index, error(p.error_code))).collect();
    assert_eq!(codes, [(0, ErrorCode::None), (7, ErrorCode::UnknownTopicOrPartition)]);
    assert_eq!(producers().await[0].current_txn_start_offset, -1);
    assert!(read_committed(broker.connection(), &topic).await.is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_was_replaced_can_do_nothing_more() {
    for protocol in BOTH {
        let dir = data();
        let broker = start(&dir, &[]).await;
        let topic = Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
        let mut old = Transactional::begin(&broker, "app", protocol).await;
        assert_eq!(old.send(&broker, &topic, &[b"old"]).await, ErrorCode::None);
        let mut new = Transactional::begin(&broker, "app", protocol).await;
        assert_eq!(new.producer_id, old.producer_id);
        assert!(new.epoch > old.epoch);
        assert_eq!(old.decide(&broker, true).await, ErrorCode::ProducerFenced);
        let version = if protocol == Protocol::Newer { 13 } else { 11 };
        let refused = old.send_at(&broker, &topic, &[b"late"], version).await;
        assert_eq!(refused, ErrorCode::InvalidProducerEpoch, "{protocol:?}");
        assert_eq!(new.send(&broker, &topic, &[b"new"]).await, ErrorCode::None);
        assert_eq!(new.end(&broker, true).await, ErrorCode::None);
        assert_eq!(read_committed(broker.connection(), &topic).await, ["new"]);
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_takes_too_long_is_aborted() {
    let dir = data();
    let interval = ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "50");
    let broker = start(&dir, &[interval, ("transaction.max.timeout.ms", "60000")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
    let mut one = Transactional::begin(&broker, "one", Protocol::Newer).await;
    assert_eq!(one.init(&broker, 60_001).await, ErrorCode::InvalidTransactionTimeout);
    assert_eq!(one.init(&broker, 0).await, ErrorCode::InvalidTransactionTimeout);
    assert_eq!(one.init(&broker, 300).await, ErrorCode::None);
    assert_eq!(one.send(&broker, &topic, &[b"x"]).await, ErrorCode::None);
    let deadline = Instant::now() + PATIENCE;
    while committed(broker.connection(), &topic).await.last_stable_offset < 2 {
        assert!(Instant::now() < deadline, "{:?}", describe(&broker, "one").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(read_committed(broker.connection(), &topic).await.is_empty());
    // By its epoch, the one before, it could only repeat itself, and the transaction was not committed.
    assert_eq!(one.decide(&broker, true).await, ErrorCode::InvalidTxnState);
    broker.stop().await;
}

/// The committed offset of partition 0 of `topic`, if it is stable.
pub async fn committed_offset(coordinator: &Connection, group: &str) -> Result<i64, ErrorCode> {
    let topic = OffsetFetchRequestTopics {
        name: "topic".to_owned(),
        partition_indexes: vec![0],
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: group.to_owned(),
        topics: Some(vec![topic]),
        ..Default::default()
    };
    let request = OffsetFetchRequest { groups: vec![group], require_stable: true, ..Default::default() };
    let mut answer = ask_at(coordinator, &request, 9).await;
    let mut group = answer.groups.remove(0);
    // An error of the whole group comes without its topics, as while its coordinator loads.
    if group.error_code != ErrorCode::None.code() {
        return Err(error(group.error_code));
    }
    let partition = group.topics.remove(0).partitions.remove(0);
    match error(partition.error_code) {
        ErrorCode::None => Ok(partition.committed_offset),
        error => Err(error),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_count_when_their_transaction_commits() {
    for protocol in BOTH {
        let dir = data();
        let broker = start(&dir, &[]).await;
        Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
        let find = FindCoordinatorRequest { coordinator_keys: vec!["g".to_owned()], ..Default::default() };
        patiently(async || (error(broker.ask(&find).await.coordinators[0].error_code), ())).await;
        let mut one = Transactional::begin(&broker, "one", protocol).await;
        for (offset, commits, expected) in [(5, true, 5), (9, false, 5), (7, true, 7)] {
            let at = broker.connection();
            if protocol == Protocol::Older {
                let refused = one.commit_offset(at, "g", offset).await;
                assert_eq!(refused, ErrorCode::TransactionAbortable, "the group was not added");
                assert_eq!(one.add_group(&broker, "g").await, ErrorCode::None);
            }
            assert_eq!(one.commit_offset(at, "g", offset).await, ErrorCode::None, "{protocol:?}");
            assert_eq!(
                committed_offset(broker.connection(), "g").await,
                Err(ErrorCode::UnstableOffsetCommit)
            );
            assert_eq!(one.end(&broker, commits).await, ErrorCode::None);
            assert_eq!(committed_offset(broker.connection(), "g").await, Ok(expected), "{protocol:?}");
        }
        let broker = {
            broker.kill().await;
            start(&dir, &[]).await
        };
        let (error, offset) = patiently(async || match committed_offset(broker.connection(), "g").await {
            Ok(offset) => (ErrorCode::None, offset),
            Err(error) => (error, -1),
        })
        .await;
        assert_eq!((error, offset), (ErrorCode::None, 7), "after a restart");
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_outlives_the_broker_at_each_of_its_steps() {
    for protocol in BOTH {
        let dir = data();
        let mut broker = start(&dir, &[]).await;
        let topic = Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
        let mut one = Transactional::begin(&broker, "one", protocol).await;
        let mut expected = Vec::new();
        let again = async |broker: RunningBroker| {
            broker.kill().await;
            start(&dir, &[]).await
        };
        for round in 0..4 {
            broker = again(broker).await;
            let (a, b) = (format!("a{round}"), format!("b{round}"));
            assert_eq!(one.send(&broker, &topic, &[a.as_bytes()]).await, ErrorCode::None, "{protocol:?}");
            broker = again(broker).await;
            assert_eq!(one.send(&broker, &topic, &[b.as_bytes()]).await, ErrorCode::None);
            broker = again(broker).await;
            let commits = round % 2 == 0;
            // Killed at once: the markers may or may not be written by then.
            assert_eq!(one.decide(&broker, commits).await, ErrorCode::None);
            broker = again(broker).await;
            if commits {
                expected.extend([a, b]);
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while read_committed(broker.connection(), &topic).await != expected {
            assert!(
                Instant::now() < deadline,
                "{:?} is not {expected:?}",
                read_committed(broker.connection(), &topic).await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let data = committed(broker.connection(), &topic).await;
        assert_eq!(data.last_stable_offset, data.high_watermark, "nothing hangs");
        broker.stop().await;
    }
}

/// InitProducerId version 6, which only a broker of unstable versions serves (KIP-939).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_phase_commits_are_begun_where_they_are_allowed_and_take_what_time_they_want() {
    const SOON: (&str, &str) = ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "50");
    const UNSTABLE: (&str, &str) = ("unstable.api.versions.enable", "true");
    const TWO_PHASE: (&str, &str) = ("transaction.two.phase.commit.enable", "true");
    let begin = |id: &str, begins, keeps, timeout_ms| InitProducerIdRequest {
        transactional_id: Some(id.to_owned()),
        transaction_timeout_ms: timeout_ms,
        enable2_pc: begins,
        keep_prepared_txn: keeps,
        ..Default::default()
    };
    for (properties, last, allowed) in [
        (vec![SOON, TWO_PHASE], 5, false),
        (vec![SOON, UNSTABLE], 6, false),
        (vec![SOON, UNSTABLE, TWO_PHASE], 6, true),
    ] {
        let dir = data();
        let broker = start(&dir, &properties).await;
        let versions = broker.ask_at(&ApiVersionsRequest::default(), 2).await.api_keys;
        let offered = versions.iter().find(|api| api.api_key == InitProducerIdRequest::KEY as i16);
        assert_eq!(offered.expect("it is served").max_version, last);
        let mut plain = Transactional::begin(&broker, "plain", Protocol::Newer).await;
        let asked = async |request: InitProducerIdRequest| {
            let answer = patiently(async || {
                let answer = ask_at(broker.connection(), &request, 6).await;
                (error(answer.error_code), answer)
            });
            answer.await
        };
        if last == 6 {
            assert_eq!(asked(begin("", true, true, 0)).await.0, ErrorCode::InvalidRequest);
            let (told, answer) = asked(begin("other", true, false, -1)).await;
            let refused = ErrorCode::TransactionalIdAuthorizationFailed;
            assert_eq!(told, if allowed { ErrorCode::None } else { refused });
            assert_eq!((answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch), (-1, -1));
            let (told, _) = asked(begin("other", allowed, true, 1_000)).await;
            assert_eq!(told, ErrorCode::UnsupportedVersion, "a prepared transaction is not kept");
        }
        if allowed {
            let topic = Topic::create(&broker, "topic", 1, &[ONE_SEGMENT]).await;
            let mut led = Transactional::begin(&broker, "led", Protocol::Newer).await;
            let (told, answer) = asked(begin("led", true, false, 1)).await;
            assert_eq!(told, ErrorCode::None);
            (led.producer_id, led.epoch) = (answer.producer_id, answer.producer_epoch);
            assert_eq!(led.send(&broker, &topic, &[b"led"]).await, ErrorCode::None);
            // Its time is over before that of the other, which begins later and is aborted.
            assert_eq!(plain.init(&broker, 300).await, ErrorCode::None);
            assert_eq!(plain.send(&broker, &topic, &[b"plain"]).await, ErrorCode::None);
            let deadline = Instant::now() + PATIENCE;
            while describe(&broker, "plain").await.transaction_state != "CompleteAbort" {
                assert!(Instant::now() < deadline, "the other is not aborted");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(describe(&broker, "led").await.transaction_state, "Ongoing");
            assert_eq!(led.end(&broker, true).await, ErrorCode::None);
            assert_eq!(settled(&broker, &topic).await, ["led"]);
        }
        broker.stop().await;
    }
}
