//! In-sync replicas: followers leave when they lag and return when they have caught up, and acks=all respects
//! it.

use super::*;
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_follower_that_stops_leaves_and_joins_again_when_it_has_caught_up() {
    let mut cluster = Cluster::start(&[]).await;
    let topic = cluster.create("topic", &[&[1, 2, 3]], &[]).await;
    cluster.put(&topic, 0, -1, b"before").await;
    cluster.stop(3).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2]).await;
    for round in 0..20 {
        cluster.put(&topic, 0, -1, format!("without {round}").as_bytes()).await;
    }
    cluster.begin(3).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
    cluster.put(&topic, 0, -1, b"after").await;
    let log = cluster.assert_same(&topic, 0, &[1, 2, 3]).await;
    assert_eq!(values_of(&log).len(), 22);
    wait_for("the broker's own view", || cluster.broker(3).server().broker.is_in_sync()).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lagging_live_follower_is_dropped_by_the_leader() {
    let mut cluster =
        Cluster::start(&[("broker.session.timeout.ms", "600000"), ("replica.lag.time.max.ms", "1500")]).await;
    let topic = cluster.create("topic", &[&[1, 2, 3]], &[("min.insync.replicas", "2")]).await;
    cluster.put(&topic, 0, -1, b"before").await;
    cluster.kill(3).await;
    // This waits for the third replica, until it is dropped.
    cluster.put(&topic, 0, -1, b"waits").await;
    cluster.wait_for_isr(&topic, 0, &[1, 2]).await;
    assert!(cluster.broker(1).server().broker.is_in_sync());
    cluster.kill(2).await;
    let request = ProduceRequest { timeout_ms: 300, ..produce(12, &topic, 0, -1, batch(&[b"in doubt"])) };
    let answer = cluster.broker(1).ask_at(&request, 12).await;
    let code = answer.responses[0].partition_responses[0].error_code;
    assert_eq!(code, ErrorCode::RequestTimedOut.code());
    cluster.wait_for_isr(&topic, 0, &[1]).await;
    let refused = cluster.try_put(&topic, 0, -1, b"refused").await;
    assert_eq!(refused, (ErrorCode::NotEnoughReplicas.code(), -1));
    let end = cluster.log_end(1, &topic, 0);
    let (code, offset) = cluster.try_put(&topic, 0, 1, b"acks=1 is taken").await;
    assert_eq!((code, offset), (0, end));
    // Too few are in sync for anything to count as replicated.
    assert_eq!(cluster.high_watermark(1, &topic, 0), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deleted_records_are_gone_on_every_replica_before_the_answer() {
    let mut cluster = Cluster::start(&[("broker.session.timeout.ms", "2000")]).await;
    let topic = cluster.create("topic", &[&[1, 2, 3]], &[]).await;
    for round in 0..10 {
        cluster.put(&topic, 0, -1, format!("{round}").as_bytes()).await;
    }
    let delete = |offset, timeout_ms| DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic.name.clone(),
            partitions: vec![DeleteRecordsPartition { partition_index: 0, offset }],
        }],
        timeout_ms,
    };
    let answer = cluster.broker(1).ask(&delete(4, 30_000)).await.topics.remove(0).partitions.remove(0);
    assert_eq!((answer.error_code, answer.low_watermark), (0, 4));
    for id in 1..=3 {
        assert_eq!(cluster.replica(id, &topic, 0).published_offsets().log_start_offset().0, 4, "broker {id}");
    }
    // A follower that counts as alive is waited for.
    cluster.kill(3).await;
    let answer = cluster.broker(1).ask(&delete(6, 100)).await.topics.remove(0).partitions.remove(0);
    assert_eq!(answer.error_code, ErrorCode::RequestTimedOut.code());
    cluster.wait_for_isr(&topic, 0, &[1, 2]).await;
    let answer = cluster.broker(1).ask(&delete(7, 30_000)).await.topics.remove(0).partitions.remove(0);
    assert_eq!((answer.error_code, answer.low_watermark), (0, 7));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_consumer_is_sent_to_the_replica_in_its_rack() {
    const SELECTOR: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let cluster = Cluster::start(&[("replica.selector.class", SELECTOR)]).await;
    let topic = cluster.create("topic", &[&[1, 2]], &[]).await;
    cluster.put(&topic, 0, -1, b"x").await;
    let preferred = async |rack: &str| {
        let mut request = crate::records::fetch(18, &topic, vec![crate::records::fetch_partition(0, 0)]);
        request.rack_id = rack.to_owned();
        let read = crate::records::ask_for(cluster.broker(1), request).await;
        (read.preferred_read_replica, crate::records::fetched_bytes(&read).is_empty())
    };
    let deadline = Instant::now() + PATIENCE;
    while preferred("b").await != (2, true) {
        assert!(Instant::now() < deadline, "the replica in the rack");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(preferred("a").await, (-1, false), "the leader's own rack");
    assert_eq!(preferred("c").await, (-1, false), "a rack without a replica");
    assert_eq!(preferred("").await, (-1, false));
    cluster.stop_all().await;
}
