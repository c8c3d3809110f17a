//! Incremental fetch sessions (KIP-227), as a client lives through them.

use crate::raw::Raw;
use crate::records::{Topic, batch, fetch, fetch_partition, produce, put, values};
use crate::running::RunningBroker;
use std::time::Duration;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::fetch_request::{FetchPartition, ForgottenTopic};
use thalweg_wire::request::*;
use tokio::time::Instant;

fn data() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A client with a session.
struct Consumer<'a> {
    broker: &'a RunningBroker,
    topic: &'a Topic,
    version: i16,
    id: i32,
    epoch: i32,
}

impl<'a> Consumer<'a> {
    fn new(broker: &'a RunningBroker, topic: &'a Topic, version: i16) -> Self {
        Self { broker, topic, version, id: 0, epoch: 0 }
    }

    fn request(&self, partitions: Vec<FetchPartition>) -> FetchRequest {
        let mut request = fetch(self.version, self.topic, partitions);
        request.topics.retain(|topic| !topic.partitions.is_empty());
        FetchRequest { session_id: self.id, session_epoch: self.epoch, ..request }
    }

    async fn send(&mut self, request: FetchRequest) -> FetchResponse {
        let answer = self.broker.ask_at(&request, self.version).await;
        if answer.error_code == 0 {
            self.id = answer.session_id;
            self.epoch += 1;
        }
        answer
    }

    /// A fetch that waits on a separate connection while something happens, and not much longer.
    async fn wait(&mut self, min_bytes: i32, meanwhile: impl Future<Output = ()>) -> FetchResponse {
        let mut raw = Raw::connect(self.broker).await;
        let request = FetchRequest { max_wait_ms: 20_000, min_bytes, ..self.request(Vec::new()) };
        let id = raw.send(&request, self.version).await;
        meanwhile.await;
        let happened = Instant::now();
        let answer = raw.answer::<FetchRequest>(id, self.version).await.expect("an answer");
        assert!(happened.elapsed() < Duration::from_secs(5), "{:?}", happened.elapsed());
        self.epoch += 1;
        answer
    }

    async fn fetch(&mut self, partitions: Vec<FetchPartition>) -> FetchResponse {
        let request = self.request(partitions);
        self.send(request).await
    }
}

/// The partitions of an answer, with how many records each brings.
fn brought(answer: &FetchResponse) -> Vec<(i32, usize)> {
    assert_eq!(answer.error_code, 0);
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| (partition.partition_index, values(partition).len())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_returns_only_news() {
    for version in [7, 12, 13, 18] {
        let dir = data();
        let broker = RunningBroker::start(dir.path(), &[]).await;
        let topic = Topic::create(&broker, "topic", 3, &[]).await;
        put(&broker, &topic, -1, batch(&[b"x"])).await;
        let mut consumer = Consumer::new(&broker, &topic, version);
        let full = consumer.fetch((0..3).map(|index| fetch_partition(index, 0)).collect()).await;
        assert_eq!(brought(&full), [(0, 1), (1, 0), (2, 0)], "at first, everything");
        assert_ne!(full.session_id, 0);
        let first = consumer.fetch(vec![fetch_partition(0, 1)]).await;
        assert_eq!((first.session_id, brought(&first)), (full.session_id, vec![]), "then, what changed");
        broker.ask(&produce(13, &topic, 2, -1, batch(&[b"y", b"z"]))).await;
        assert_eq!(brought(&consumer.fetch(Vec::new()).await), [(2, 2)], "as it was asked for before");
        assert_eq!(brought(&consumer.fetch(vec![fetch_partition(2, 2)]).await), []);

        // An error is repeated until it is gone.
        for _ in 0..2 {
            let beyond = consumer.fetch(vec![fetch_partition(1, 50)]).await;
            assert_eq!(beyond.responses[0].partitions[0].error_code, ErrorCode::OffsetOutOfRange.code());
        }
        assert_eq!(brought(&consumer.fetch(vec![fetch_partition(1, 0)]).await), [(1, 0)], "so is its end");
        assert_eq!(brought(&consumer.fetch(Vec::new()).await), []);

        // Forgotten partitions are not reported any more.
        let forgotten = ForgottenTopic {
            topic: topic.name_until(12, version),
            topic_id: topic.id_after(12, version),
            partitions: vec![0, 1],
        };
        let request = FetchRequest { forgotten_topics_data: vec![forgotten], ..consumer.request(Vec::new()) };
        assert_eq!(brought(&consumer.send(request).await), []);
        put(&broker, &topic, -1, batch(&[b"x"])).await;
        assert_eq!(brought(&consumer.fetch(Vec::new()).await), []);
        assert_eq!(
            brought(&consumer.fetch(vec![fetch_partition(0, 1)]).await),
            [(0, 1)],
            "until it is wanted again"
        );
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_checks_its_epoch_and_ends_on_request() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let sessions = &broker.server().broker.fetch_sessions;
    let mut consumer = Consumer::new(&broker, &topic, 18);
    consumer.fetch(vec![fetch_partition(0, 0)]).await;
    for epoch in [2, 5, i32::MAX] {
        let request = FetchRequest { session_epoch: epoch, ..consumer.request(Vec::new()) };
        assert_eq!(consumer.send(request).await.error_code, ErrorCode::InvalidFetchSessionEpoch.code());
    }
    let answer = consumer.fetch(Vec::new()).await;
    assert_eq!(answer.error_code, 0, "it goes on at the right epoch");
    // A client that did not get that answer asks again, and is out of step.
    consumer.epoch = 1;
    assert_eq!(consumer.fetch(Vec::new()).await.error_code, ErrorCode::InvalidFetchSessionEpoch.code());
    let other = FetchRequest { session_id: consumer.id + 1, ..consumer.request(Vec::new()) };
    assert_eq!(consumer.send(other).await.error_code, ErrorCode::FetchSessionIdNotFound.code());
    // A request with another kind of topic names gets an error.
    consumer.epoch = 2;
    consumer.version = 12;
    assert_eq!(consumer.fetch(Vec::new()).await.error_code, ErrorCode::FetchSessionTopicIdError.code());
    consumer.version = 18;
    assert_eq!(sessions.len(), 1);
    // A new session takes the place of the old; the last epoch ends it.
    let old = consumer.id;
    consumer.epoch = 0;
    let answer = consumer.fetch(vec![fetch_partition(0, 0)]).await;
    assert!(answer.session_id != 0 && answer.session_id != old);
    assert_eq!(sessions.len(), 1);
    let last = FetchRequest { session_epoch: -1, ..consumer.request(vec![fetch_partition(0, 0)]) };
    let answer = consumer.send(last).await;
    assert_eq!((answer.session_id, brought(&answer)), (0, vec![(0, 0)]));
    assert_eq!(sessions.len(), 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_have_a_bound_and_those_beyond_it_are_served_without() {
    let dir = data();
    let broker =
        RunningBroker::start(dir.path(), &[("max.incremental.fetch.session.cache.slots", "2")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    put(&broker, &topic, -1, batch(&[b"x"])).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let mut consumer = Consumer::new(&broker, &topic, 18);
        let answer = consumer.fetch(vec![fetch_partition(0, 0)]).await;
        assert_eq!(brought(&answer), [(0, 1)]);
        ids.push(answer.session_id);
    }
    assert!(ids[0] != 0 && ids[1] != 0 && ids[0] != ids[1]);
    assert_eq!(ids[2..], [0, 0]);
    assert_eq!(broker.server().broker.fetch_sessions.len(), 2);
    // A client that ends its own session makes room.
    let last = FetchRequest { session_id: ids[0], ..fetch(18, &topic, Vec::new()) };
    assert_eq!(broker.ask(&last).await.error_code, 0);
    assert_ne!(Consumer::new(&broker, &topic, 18).fetch(vec![fetch_partition(0, 0)]).await.session_id, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_with_much_to_bring_does_not_starve_the_others() {
    let dir = data();
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "topic", 3, &[]).await;
    for partition in 0..3 {
        for _ in 0..3 {
            broker.ask(&produce(13, &topic, partition, -1, batch(&[&[b'v'; 1000]]))).await;
        }
    }
    let mut consumer = Consumer::new(&broker, &topic, 18);
    let mut next = [0; 3];
    let mut seen = Vec::new();
    for _ in 0..6 {
        // One batch fits into an answer; only the partition that moved on is named again.
        let named = (0..3).filter(|index| consumer.epoch == 0 || seen.last() == Some(index));
        let partitions =
            named.map(|index| fetch_partition(index, next[usize::try_from(index).expect("small")])).collect();
        let request = FetchRequest { max_bytes: 1200, ..consumer.request(partitions) };
        let answer = consumer.send(request).await;
        let (partition, count) = *brought(&answer).iter().find(|(_, count)| *count > 0).expect("records");
        assert_eq!(count, 1);
        next[usize::try_from(partition).expect("small")] += 1;
        seen.push(partition);
    }
    assert_eq!(seen, [0, 1, 2, 0, 1, 2]);
    broker.stop().await;
}

/// Partitions that were read to their end are not looked at, and a fetch that waits hears of them all the
/// same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_fetch_notices_every_partition_of_its_session() {
    for version in [7, 12, 18] {
        let dir = data();
        let broker = RunningBroker::start(dir.path(), &[]).await;
        let topic = Topic::create(&broker, "topic", 20, &[]).await;
        let mut consumer = Consumer::new(&broker, &topic, version);
        consumer.fetch((0..20).map(|index| fetch_partition(index, 0)).collect()).await;
        assert_eq!(brought(&consumer.fetch(Vec::new()).await), []);
        let write = async |index| {
            tokio::time::sleep(Duration::from_millis(100)).await;
            broker.ask(&produce(13, &topic, index, -1, batch(&[b"x"]))).await;
        };
        for index in [4, 9, 14] {
            let answer = consumer.wait(1, write(index)).await;
            assert_eq!(brought(&answer), [(index, 1)], "version {version}");
            assert_eq!(brought(&consumer.fetch(Vec::new()).await), [(index, 1)], "until its offset moves");
            assert_eq!(brought(&consumer.fetch(vec![fetch_partition(index, 1)]).await), []);
        }
        // It waits for as much as it asks for, over its partitions.
        let size = i32::try_from(batch(&[b"x"]).len()).expect("it is small");
        let two = async {
            write(0).await;
            write(1).await;
        };
        assert_eq!(brought(&consumer.wait(2 * size, two).await), [(0, 1), (1, 1)], "version {version}");
        consumer.fetch(vec![fetch_partition(0, 1), fetch_partition(1, 1)]).await;
        // And of the end of its topic.
        let deleted = async {
            let topics = vec![delete_topics_request::DeleteTopicState {
                name: Some("topic".to_owned()),
                ..Default::default()
            }];
            broker.ask(&DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() }).await;
        };
        let answer = consumer.wait(1, deleted).await;
        let told = &answer.responses[0].partitions[0];
        assert_ne!(told.error_code, 0, "version {version}: {told:?}");
        broker.stop().await;
    }
}
