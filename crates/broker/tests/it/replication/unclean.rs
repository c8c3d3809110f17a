//! A consumer of `thalweg-client` beside an unclean election: the new leader lacks records that the consumer
//! has read, and has others in their place (KIP-320).

use super::*;
use std::ops::ControlFlow;
use thalweg_client::{
    Consumer, ConsumerConfig, ConsumerError, OffsetReset, PollEvent, StartAt, TopicPartition,
};
use thalweg_record::{DecompressBuffer, Offset};

/// Brokers 2 and 3 had the first five records, of which 3 has no more; 2 has seven others, and died.
const BOTH: usize = 5;
const ONLY_OF_2: usize = 7;

const PROPERTIES: [(&str, &str); 2] =
    [("broker.session.timeout.ms", "1500"), ("offsets.topic.num.partitions", "1")];

/// A cluster whose broker 2 leads with records that broker 3, which is down, lacks.
async fn before_the_election() -> (Cluster, Topic) {
    let mut cluster = Cluster::start(&PROPERTIES).await;
    let unclean = [("unclean.leader.election.enable", "true")];
    let topic = cluster.create("topic", &[&[2, 3]], &unclean).await;
    for at in 0..BOTH {
        cluster.put(&topic, 0, -1, format!("both {at}").as_bytes()).await;
    }
    // The topic of the group's offsets is made while all brokers run, so that broker 1 keeps it.
    let (mut consumer, _) = consumer(&cluster, &topic, OffsetReset::None).await;
    read(&mut consumer, BOTH).await.expect("records");
    consumer.commit().await.expect("committed");
    drop(consumer);
    cluster.kill(3).await;
    cluster.wait_for_isr(&topic, 0, &[2]).await;
    for at in BOTH..BOTH + ONLY_OF_2 {
        cluster.put(&topic, 0, 1, format!("only 2 has {at}").as_bytes()).await;
    }
    (cluster, topic)
}

/// Broker 3 is elected in place of broker 2, and gets so many records.
async fn elect(cluster: &mut Cluster, topic: &Topic, records: usize) {
    cluster.kill(2).await;
    wait_for("no leader", || cluster.registration(topic, 0).leader.0 == -1).await;
    cluster.begin(3).await;
    wait_for("an unclean leader", || cluster.registration(topic, 0).leader.0 == 3).await;
    for at in BOTH..BOTH + records {
        cluster.put(topic, 0, 1, format!("only 3 has {at}").as_bytes()).await;
    }
}

async fn consumer(cluster: &Cluster, topic: &Topic, offset_reset: OffsetReset) -> (Consumer, TopicPartition) {
    let bootstrap = [cluster.broker(1).address().to_owned()];
    let group = Some("group".to_owned());
    let config = ConsumerConfig { group, offset_reset, auto_commit: None, ..ConsumerConfig::default() };
    let mut consumer = Consumer::connect(&bootstrap, config).await.expect("connected");
    let at = TopicPartition::new(&*topic.name, 0);
    consumer.assign(vec![(at.clone(), StartAt::Offset(Offset(0)))]).await.expect("assigned");
    (consumer, at)
}

/// The next records, so many at least.
async fn read(consumer: &mut Consumer, count: usize) -> Result<Vec<String>, ConsumerError> {
    let (mut values, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while values.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} records: {values:?}", values.len());
        let PollEvent::Chunk(chunk) = consumer.poll(Duration::from_millis(200)).await? else { continue };
        let each = |record: &thalweg_record::Record<'_>| {
            values.push(String::from_utf8_lossy(record.value.expect("a value")).into_owned());
            ControlFlow::Continue(())
        };
        chunk.for_each(&mut DecompressBuffer::default(), each).expect("readable");
    }
    Ok(values)
}

fn of_3(records: usize) -> Vec<String> {
    (BOTH..BOTH + records).map(|at| format!("only 3 has {at}")).collect()
}

/// With fewer records than the consumer has read, the position is behind the log end; with more, only the
/// epoch shows that the log is another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_consumer_goes_back_to_where_the_log_of_an_unclean_leader_differs() {
    for records in [3, 20] {
        for reset in [OffsetReset::Earliest, OffsetReset::Latest] {
            let (mut cluster, topic) = before_the_election().await;
            let (mut consumer, at) = consumer(&cluster, &topic, reset).await;
            let values = read(&mut consumer, BOTH + ONLY_OF_2).await.expect("records");
            assert_eq!(values.last().map(String::as_str), Some("only 2 has 11"));
            elect(&mut cluster, &topic, records).await;
            let values = read(&mut consumer, records).await.expect("the policy decides");
            assert_eq!(values, of_3(records), "{reset:?}");
            let end = i64::try_from(BOTH + records).expect("few records");
            assert_eq!(consumer.position(&at), Some(Offset(end)));
            // The former leader cuts its log, and nothing changes for the consumer.
            cluster.begin(2).await;
            cluster.wait_for_isr(&topic, 0, &[2, 3]).await;
            cluster.put(&topic, 0, -1, b"both").await;
            assert_eq!(read(&mut consumer, 1).await.expect("a record"), ["both"]);
            drop(consumer);
            cluster.stop_all().await;
        }
    }
}

/// The former leader has deleted more than the unclean one ever had.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn former_leader_that_starts_behind_the_unclean_one_takes_its_records_over() {
    let (mut cluster, topic) = before_the_election().await;
    cluster.replica(2, &topic, 0).delete_records(8).expect("deletes");
    cluster.broker(2).server().broker.log_dirs.checkpoint_log_starts();
    elect(&mut cluster, &topic, 20).await;
    cluster.begin(2).await;
    cluster.wait_for_isr(&topic, 0, &[2, 3]).await;
    let log = cluster.assert_same(&topic, 0, &[3, 2]).await;
    assert_eq!(values_of(&log).len(), BOTH + 20);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_consumer_without_a_reset_policy_reports_an_unclean_leader() {
    let (mut cluster, topic) = before_the_election().await;
    let (mut consumer, at) = consumer(&cluster, &topic, OffsetReset::None).await;
    read(&mut consumer, BOTH + ONLY_OF_2).await.expect("records");
    elect(&mut cluster, &topic, 20).await;
    let error = read(&mut consumer, 1).await.expect_err("records that were read are gone");
    let ConsumerError::Truncated(truncated) = &error else { panic!("{error}") };
    assert_eq!((truncated.offset, truncated.divergent), (Offset(12), Some(Offset(5))), "{error}");
    consumer.seek(&at, Offset(5));
    assert_eq!(read(&mut consumer, 20).await.expect("records"), of_3(20));
    drop(consumer);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_position_that_was_committed_before_an_unclean_election_is_compared_with_the_log() {
    let (mut cluster, topic) = before_the_election().await;
    let (mut before, at) = consumer(&cluster, &topic, OffsetReset::Latest).await;
    read(&mut before, BOTH + ONLY_OF_2).await.expect("records");
    before.commit().await.expect("committed");
    drop(before);
    elect(&mut cluster, &topic, 20).await;
    let (mut after, _) = consumer(&cluster, &topic, OffsetReset::Latest).await;
    after.assign(vec![(at.clone(), StartAt::Committed)]).await.expect("assigned");
    let committed = after.committed(std::slice::from_ref(&at)).await.expect("an answer");
    assert_eq!(committed[&at].offset, Offset(12));
    assert_eq!(read(&mut after, 20).await.expect("records"), of_3(20));
    drop(after);
    cluster.stop_all().await;
}
