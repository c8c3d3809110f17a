//! Eligible leader replicas (KIP-966) with the embedded controller: a replica that left the in-sync set when
//! it was too small to commit has all committed records, and may lead.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_to_leave_in_order_need_not_be_the_first_to_come_back() {
    let mut cluster = Cluster::start(&[]).await;
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
    assert_eq!(cluster.registration(&topic, 0).eligible_leader_replicas, [BrokerId(2)]);
    let (code, _) = cluster.try_put(&topic, 0, -1, b"refused").await;
    assert_eq!(code, ErrorCode::NotEnoughReplicas.code());
    cluster.stop(1).await;

    // 3 lacks later commits; 2 has all of them.
    cluster.begin(3).await;
    let registered = cluster.registration(&topic, 0);
    assert_eq!((registered.leader, registered.isr), (BrokerId::NONE, vec![]), "3 may not lead");
    cluster.begin(2).await;
    wait_for("2 as the leader", || cluster.registration(&topic, 0).leader == BrokerId(2)).await;
    cluster.wait_for_isr(&topic, 0, &[2, 3]).await;
    assert_eq!(cluster.put(&topic, 0, -1, b"after").await, 11);
    cluster.begin(1).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
    assert!(cluster.registration(&topic, 0).eligible_leader_replicas.is_empty());
    cluster.assert_same(&topic, 0, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replaced_broker_is_filled_by_the_others_after_all_were_killed() {
    let (mut cluster, topic) = with_ten_records(&[]).await;
    kill_all(&mut cluster).await;
    cluster.dirs[2] = tempfile::tempdir().expect("a temporary directory");
    begin_and_find_all(cluster, &topic, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replica_whose_folder_was_removed_does_not_lead_with_an_empty_log() {
    remove_a_folder("100", "topic 0 10\n").await;
}

/// Also before the first regular checkpoint of high watermarks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replica_whose_folder_was_new_and_removed_does_not_lead_with_an_empty_log() {
    remove_a_folder("3600000", "topic 0 ").await;
}

/// Kills all brokers once the checkpoint of one has these words, and removes the folder of its replica.
async fn remove_a_folder(checkpoint_interval_ms: &'static str, words: &str) {
    let interval = ("replica.high.watermark.checkpoint.interval.ms", checkpoint_interval_ms);
    let (mut cluster, topic) = with_ten_records(&[interval]).await;
    let data = cluster.dirs[2].path().to_owned();
    let checkpoint = data.join("replication-offset-checkpoint");
    let is_noted = || std::fs::read_to_string(&checkpoint).is_ok_and(|text| text.contains(words));
    wait_for("the partition in the checkpoint", is_noted).await;
    kill_all(&mut cluster).await;
    // The directory keeps its id, so that the controller knows of nothing.
    std::fs::remove_dir_all(data.join("topic-0")).expect("is removed");
    begin_and_find_all(cluster, &topic, 2).await;
}

/// As after a crash between the controller's consent to a move and the switch, and the loss of the directory
/// that the log was in: the copy takes its place. It may lack records, so that it is compared with the other
/// logs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn copy_that_is_left_leads_if_it_is_whole() {
    let (cluster, topic) = with_only_a_copy().await;
    // It was the leader, and no log is better.
    begin_and_find_all(cluster, &topic, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn copy_that_is_left_does_not_lead_if_it_lacks_records() {
    let (cluster, topic) = with_only_a_copy().await;
    let file = cluster.dirs[2].path().join(COPY).join("00000000000000000000.log");
    let bytes = std::fs::read(&file).expect("reads");
    let batches = thalweg_record::batches(&bytes).map(|batch| batch.map_or(0, |batch| batch.bytes.len()));
    let lengths: Vec<_> = batches.take(9).collect();
    std::fs::write(file, &bytes[..lengths.iter().sum()]).expect("is cut");
    begin_and_find_all(cluster, &topic, 2).await;
}

const COPY: &str = "topic-0.0123456789abcdef0123456789abcdef-future";

/// Three brokers that were killed, of which 3 led a topic with ten records, and has only a copy of the log.
async fn with_only_a_copy() -> (Cluster, Topic) {
    let (mut cluster, topic) = with_ten_records(&[]).await;
    kill_all(&mut cluster).await;
    let data = cluster.dirs[2].path();
    std::fs::rename(data.join("topic-0"), data.join(COPY)).expect("is renamed");
    (cluster, topic)
}

/// Three brokers and a topic with ten records, led by 3: the broker that leaves the in-sync replicas last.
async fn with_ten_records(properties: &[(&'static str, &'static str)]) -> (Cluster, Topic) {
    let mut all = vec![("broker.session.timeout.ms", "2000")];
    all.extend(properties);
    let cluster = Cluster::start(&all).await;
    let topic = cluster.create("topic", &[&[3, 2, 1]], &[("min.insync.replicas", "2")]).await;
    for round in 0..10 {
        cluster.put(&topic, 0, -1, format!("{round}").as_bytes()).await;
    }
    (cluster, topic)
}

async fn kill_all(cluster: &mut Cluster) {
    for id in 1..=3 {
        cluster.kill(id).await;
    }
}

/// Starts all brokers: this one leads, and no replica lacks any of the ten records. Nothing is left of a
/// copy, or of a log that was set aside.
async fn begin_and_find_all(mut cluster: Cluster, topic: &Topic, leader: i32) {
    for id in [3, 2, 1] {
        cluster.begin(id).await;
    }
    let is_elected = || cluster.registration(topic, 0).leader == BrokerId(leader);
    wait_for(&format!("{leader} as the leader"), is_elected).await;
    cluster.wait_for_isr(topic, 0, &[1, 2, 3]).await;
    let log = values_of(&cluster.assert_same(topic, 0, &[1, 2, 3]).await);
    assert_eq!(log.len(), 10);
    let names = std::fs::read_dir(cluster.dirs[2].path()).expect("lists");
    let names = names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let names: Vec<_> = names.filter(|name| name.starts_with("topic-")).collect();
    assert_eq!(names, ["topic-0"]);
    cluster.stop_all().await;
}
