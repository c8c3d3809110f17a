//! Replicas that move: added ones fill up and join, removed ones leave the disk.

use super::*;
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};

async fn reassign(cluster: &Cluster, topic: &Topic, replicas: &[i32]) {
    let partition = ReassignablePartition { partition_index: 0, replicas: Some(replicas.to_vec()) };
    let topics = vec![ReassignableTopic { name: topic.name.clone(), partitions: vec![partition] }];
    let request = AlterPartitionReassignmentsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    let answer = cluster.somebody().ask(&request).await;
    assert_eq!((answer.error_code, answer.responses[0].partitions[0].error_code), (0, 0), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_partition_moves_with_its_records_and_leaves_nothing_behind() {
    let cluster = Cluster::start(&[]).await;
    let topic = cluster.create("topic", &[&[2]], &[]).await;
    for round in 0..50 {
        cluster.put(&topic, 0, -1, format!("{round}").as_bytes()).await;
    }
    let before = contents(&cluster.replica(2, &topic, 0));
    reassign(&cluster, &topic, &[3, 1]).await;
    wait_for("the new replicas", || {
        let now = cluster.registration(&topic, 0);
        now.replicas == [3, 1] && !now.is_reassigning() && now.leader != 2
    })
    .await;
    wait_for("the old replica's end", || {
        cluster.broker(2).server().broker.partitions.get(&topic.name, 0).is_none()
    })
    .await;
    assert_eq!(cluster.put(&topic, 0, -1, b"after").await, 50);
    let log = cluster.assert_same(&topic, 0, &[3, 1]).await;
    assert_eq!(log[..before.len()], before[..]);
    assert!(!cluster.dirs[1].path().join("topic-0").exists());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_controller_learns_in_which_of_its_directories_a_broker_put_a_replica() {
    let mut cluster = Cluster::start(&[]).await;
    let other = tempfile::tempdir().expect("a temporary directory");
    cluster.stop(2).await;
    let dirs = format!("{},{}", cluster.dirs[1].path().display(), other.path().display());
    cluster.begin_with(2, &[("log.dirs", &dirs)]).await;
    let topic = cluster.create("topic", &[&[2, 3], &[2, 3], &[2, 3]], &[]).await;
    let online = cluster.broker(2).server().broker.log_dirs.online_ids();
    assert_eq!(online.len(), 2);
    let told = |partition| {
        let directory = cluster.registration(&topic, partition).directory(2).expect("2 has a replica");
        let actual = cluster.replica(2, &topic, partition).with_log(|log| log.directory_id());
        actual.is_some_and(|actual| u128::from_be_bytes(*actual.as_bytes()) == directory.0)
    };
    wait_for("the directories in the image", || (0..3).all(told)).await;
    for partition in 0..3 {
        cluster.put(&topic, partition, -1, b"x").await;
    }
    cluster.stop_all().await;
}
