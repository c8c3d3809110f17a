//! Eligible leader replicas (KIP-966) with the embedded controller: who left the in-sync replicas while these were too few to
//! commit anything has all that is committed, and may lead.

use super::*;
use thalweg_wire::request::update_features_request::FeatureUpdateKey;

async fn turn_on(cluster: &Cluster) {
    let update = FeatureUpdateKey {
        feature: "eligible.leader.replicas.version".to_owned(),
        max_version_level: 1,
        upgrade_type: 1,
        ..Default::default()
    };
    let request =
        UpdateFeaturesRequest { timeout_ms: 30_000, feature_updates: vec![update], ..Default::default() };
    let answer = cluster.somebody().ask(&request).await;
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_to_leave_in_order_need_not_be_the_first_to_come_back() {
    let mut cluster = Cluster::start(&[]).await;
    turn_on(&cluster).await;
    let topic = cluster.create("topic", &[&[1, 2, 3]], &[("min.insync.replicas", "2")]).await;
    for round in 0..10 {
        cluster.put(&topic, 0, -1, format!("{round}").as_bytes()).await;
    }
    cluster.stop(3).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2]).await;
    assert!(
        cluster.registration(&topic, 0).eligible_leader_replicas.is_empty(),
        "more is committed without 3"
    );
    assert_eq!(cluster.put(&topic, 0, -1, b"without 3").await, 10);
    cluster.stop(2).await;
    cluster.wait_for_isr(&topic, 0, &[1]).await;
    assert_eq!(cluster.registration(&topic, 0).eligible_leader_replicas, [2]);
    let (code, _) = cluster.try_put(&topic, 0, -1, b"refused").await;
    assert_eq!(code, ErrorCode::NotEnoughReplicas.code());
    cluster.stop(1).await;

    // 3 lacks what was committed without it; 2 has it all.
    cluster.begin(3).await;
    let registered = cluster.registration(&topic, 0);
    assert_eq!((registered.leader, registered.isr), (-1, vec![]), "3 may not lead");
    cluster.begin(2).await;
    wait_for("2 as the leader", || cluster.registration(&topic, 0).leader == 2).await;
    cluster.wait_for_isr(&topic, 0, &[2, 3]).await;
    assert_eq!(cluster.put(&topic, 0, -1, b"after").await, 11);
    cluster.begin(1).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
    assert!(cluster.registration(&topic, 0).eligible_leader_replicas.is_empty());
    cluster.assert_same(&topic, 0, &[1, 2, 3]).await;
    cluster.stop_all().await;
}
