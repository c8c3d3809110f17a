//! Who is in sync: followers leave when they lag and come back when they have caught up, and acks=all heeds it.

use super::*;

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
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_follower_that_the_controller_takes_for_alive_and_that_lags_is_dropped_by_the_leader() {
    let mut cluster =
        Cluster::start(&[("broker.session.timeout.ms", "600000"), ("replica.lag.time.max.ms", "1500")]).await;
    let topic = cluster.create("topic", &[&[1, 2, 3]], &[("min.insync.replicas", "2")]).await;
    cluster.put(&topic, 0, -1, b"before").await;
    cluster.kill(3).await;
    // This waits for the third replica, until it is dropped.
    cluster.put(&topic, 0, -1, b"waits").await;
    cluster.wait_for_isr(&topic, 0, &[1, 2]).await;
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
