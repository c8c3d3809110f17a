//! What an idle consumer costs: a host may have thousands.

use std::time::Duration;

use thalweg_client::{
    Cluster, CommittedOffset, ConnectionOptions, Consumer, ConsumerConfig, PollEvent, TopicPartition,
};
use thalweg_wire::ApiKey;

use crate::fake::TOPIC;
use crate::groups::{Brokers, GROUP};

const CONSUMERS: usize = 200;
/// Memory of a consumer, with its tasks and its two connections, of which this process has both ends here.
const BYTES_MAX: u64 = 32 << 10;
/// The time from the start of one consumer to that of the next.
const APART: Duration = Duration::from_millis(7);
/// How long they are idle.
const IDLE: Duration = Duration::from_secs(60);

/// Members with nothing to read, polled for a minute, after one commit of each.
async fn idle(brokers: &Brokers) -> Vec<Consumer> {
    let (bootstrap, options) = (["node:1".to_owned()], ConnectionOptions::default());
    let cluster = Cluster::connect_by(brokers.connector(), &bootstrap, &options).await.expect("connected");
    let mut consumers = Vec::new();
    for _ in 0..CONSUMERS {
        let config = ConsumerConfig { group: Some(GROUP.to_owned()), ..ConsumerConfig::default() };
        let mut consumer = Consumer::new(cluster.clone(), config);
        consumer.subscribe(vec![TOPIC.to_owned()]).expect("it has a group");
        let polled = consumer.poll(Duration::from_secs(30)).await.expect("a poll");
        let PollEvent::Assigned(assigned) = polled else { panic!("{polled:?}") };
        let position = |at: &TopicPartition| consumer.position(at).expect("it is known");
        let offsets = assigned.iter().map(|at| (at.clone(), CommittedOffset::new(position(at))));
        let offsets = offsets.collect();
        consumer.commit_offsets(offsets).await.expect("committed");
        tokio::time::sleep(APART).await;
        consumers.push(consumer);
    }
    let polls = consumers.into_iter().map(|mut consumer| {
        tokio::spawn(async move {
            let polled = consumer.poll(IDLE).await.expect("a poll");
            assert!(matches!(polled, PollEvent::Nothing), "{polled:?}");
            consumer
        })
    });
    let polls: Vec<_> = polls.collect();
    let mut consumers = Vec::new();
    for poll in polls {
        consumers.push(poll.await.expect("no panic"));
    }
    consumers
}

#[test]
fn an_idle_consumer_is_small_and_quiet() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    let brokers = Brokers::default();
    let mut consumers = Vec::new();
    let used = allocation_counter::measure(|| consumers = runtime.block_on(idle(&brokers)));
    let bytes = u64::try_from(used.bytes_current).expect("something is allocated") / CONSUMERS as u64;
    println!("{bytes} bytes for an idle consumer");
    assert!(bytes <= BYTES_MAX, "{bytes} bytes for an idle consumer");
    // One fetch per half second, one heartbeat per three seconds, and nothing else after the start. The first
    // to join have also waited for the others.
    let (fetches, beats) = (brokers.count(ApiKey::Fetch), brokers.count(ApiKey::Heartbeat));
    assert!(fetches <= CONSUMERS * 130, "{fetches} fetches");
    assert!(beats <= CONSUMERS * 25, "{beats} heartbeats");
    assert_eq!(brokers.count(ApiKey::JoinGroup), CONSUMERS);
    // At four ticks per interval, and before each has found its first tick.
    let times = brokers.times_of_beats();
    assert!(times <= 90, "heartbeats at {times} times");
    assert_eq!(brokers.count(ApiKey::OffsetCommit), CONSUMERS, "nothing was read since");
    // One for heartbeats and commits, one for fetches, and one that all share.
    assert_eq!(brokers.connections(), 2 * CONSUMERS + 1);
    let metadata = brokers.count(ApiKey::Metadata);
    assert!(metadata <= 2 * CONSUMERS + 2, "{metadata} requests for metadata");
}
