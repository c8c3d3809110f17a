//! Replicas that move: added ones fill up and join, removed ones leave the disk. Or they stay, and move to
//! another directory of their broker.

use super::*;
use crate::moves::alter;
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};

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
        now.replicas == [3, 1].map(BrokerId) && !now.is_reassigning() && now.leader != BrokerId(2)
    })
    .await;
    wait_for("the old replica's end", || {
        cluster.broker(2).server().broker.partitions.get(&topic.name, PartitionIndex(0)).is_none()
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
    cluster.begin_with(2, &[("log.dirs", &dirs), ("thalweg.log.dirs.add", "true")]).await;
    let topic = cluster.create("topic", &[&[2, 3], &[2, 3], &[2, 3]], &[]).await;
    let online = cluster.broker(2).server().broker.log_dirs.online_ids();
    assert_eq!(online.len(), 2);
    let told = |partition| {
        let directory =
            cluster.registration(&topic, partition).directory(BrokerId(2)).expect("2 has a replica");
        let actual = cluster.replica(2, &topic, partition).with_log(|log| log.directory_id());
        actual.is_some_and(|actual| actual == directory)
    };
    wait_for("the directories in the image", || (0..3).all(told)).await;
    for partition in 0..3 {
        cluster.put(&topic, partition, -1, b"x").await;
    }
    cluster.stop_all().await;
}

const OF_TOPICS: i8 = 2;
const OF_BROKERS: i8 = 4;

/// Sets a configuration by this broker, or deletes it. Those of a broker go to that broker.
async fn configure(broker: &RunningBroker, kind: i8, resource: &str, name: &str, value: Option<&str>) {
    let config = AlterableConfig {
        name: name.to_owned(),
        config_operation: i8::from(value.is_none()),
        value: value.map(str::to_owned),
    };
    let resource = AlterConfigsResource {
        resource_type: kind,
        resource_name: resource.to_owned(),
        configs: vec![config],
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let answer = broker.ask(&request).await;
    assert_eq!(answer.responses[0].error_code, 0, "{answer:?}");
}

/// A partition of 2.5 MB moves from broker 2 to broker 3, while this side of one of them is limited to 1 MB a
/// second.
async fn move_throttled(side: &str, limited: usize) {
    let cluster = Cluster::start(&[("replica.fetch.max.bytes", "100000")]).await;
    let (rate, list) =
        (format!("{side}.replication.throttled.rate"), format!("{side}.replication.throttled.replicas"));
    let topic = cluster.create("moved", &[&[2]], &[]).await;
    let in_sync = cluster.create("in-sync", &[&[1, 2]], &[(&list, "*")]).await;
    for _ in 0..50 {
        cluster.put(&topic, 0, -1, &[7; 50_000]).await;
    }
    configure(cluster.somebody(), OF_TOPICS, &topic.name, &list, Some("*")).await;
    configure(cluster.broker(limited), OF_BROKERS, &limited.to_string(), &rate, Some("1000000")).await;
    let context = &cluster.broker(limited).server().broker.replication.context;
    let throttle = if side == "leader" { &context.leader_throttle } else { &context.follower_throttle };
    wait_for("the limit", || throttle.limit() == Some(1_000_000)).await;

    let began = Instant::now();
    reassign(&cluster, &topic, &[3]).await;
    // The other topic's replicas are throttled too. They are in sync, so nothing holds them back.
    let mut puts = 0;
    while cluster.registration(&topic, 0).replicas != [BrokerId(3)] {
        cluster.put(&in_sync, 0, -1, b"x").await;
        puts += 1;
        assert!(began.elapsed() < PATIENCE, "the replica does not come");
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1900), "2.5 MB in {took:?} is faster than 1 MB a second");
    assert!(throttle.copied() >= 2_500_000, "{}", throttle.copied());
    assert!(puts > 20, "{puts} records in {took:?}");

    // Without the limit the way back is fast.
    configure(cluster.broker(limited), OF_BROKERS, &limited.to_string(), &rate, None).await;
    wait_for("no limit", || throttle.limit().is_none()).await;
    let copied = throttle.copied();
    reassign(&cluster, &topic, &[2]).await;
    wait_for("the way back", || cluster.registration(&topic, 0).replicas == [BrokerId(2)]).await;
    assert_eq!(throttle.copied(), copied);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_sends_replicas_that_are_throttled_no_faster_than_its_limit() {
    move_throttled("leader", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_follower_fetches_replicas_that_are_throttled_no_faster_than_its_limit() {
    move_throttled("follower", 3).await;
}

/// Starts each broker again with a second directory.
async fn with_two_directories(cluster: &mut Cluster, others: &[TempDir; 3]) -> [String; 3] {
    let paths = [1, 2, 3].map(|id| two_directories(cluster, others, id));
    for id in 1..=3 {
        cluster.stop(id).await;
        cluster.begin_with(id, &[("log.dirs", &paths[id - 1]), ("thalweg.log.dirs.add", "true")]).await;
    }
    paths
}

fn two_directories(cluster: &Cluster, others: &[TempDir; 3], id: usize) -> String {
    format!("{},{}", cluster.dirs[id - 1].path().display(), others[id - 1].path().display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_move_while_the_leader_is_killed_and_records_are_deleted() {
    let mut cluster = Cluster::start(&[("replica.alter.log.dirs.io.max.bytes.per.second", "100000")]).await;
    let others = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let paths = with_two_directories(&mut cluster, &others).await;
    let topic = cluster.create("topic", &[&[1, 2, 3]], &[("min.insync.replicas", "2")]).await;
    let value = [b'v'; 5_000];
    for offset in 0..100 {
        assert_eq!(cluster.put(&topic, 0, -1, &value).await, offset);
    }
    let targets = [1, 2, 3].map(|id| {
        let place = cluster.replica(id, &topic, 0).dir();
        let target = paths[id - 1].split(',').find(|path| !place.starts_with(path));
        target.expect("it lies in one of two").to_owned()
    });
    for id in 1..=3 {
        assert_eq!(alter(cluster.broker(id), &targets[id - 1], &topic.name).await, ErrorCode::None);
        assert!(cluster.replica(id, &topic, 0).is_moving());
    }
    cluster.kill(1).await;
    for offset in 100..110 {
        assert_eq!(cluster.put(&topic, 0, -1, &value).await, offset);
    }
    let leader = usize::try_from(cluster.registration(&topic, 0).leader.0).expect("a leader");
    let partition = delete_records_request::DeleteRecordsPartition { partition_index: 0, offset: 50 };
    let deleted =
        delete_records_request::DeleteRecordsTopic { name: topic.name.clone(), partitions: vec![partition] };
    let request = DeleteRecordsRequest { topics: vec![deleted], timeout_ms: 30_000 };
    cluster.begin_with(1, &[("log.dirs", &paths[0])]).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
    let answer = cluster.broker(leader).ask(&request).await;
    assert_eq!(
        (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].low_watermark),
        (0, 50)
    );
    for offset in 110..120 {
        assert_eq!(cluster.put(&topic, 0, -1, &value).await, offset);
    }
    let has_moved = |id: usize| {
        let replica = cluster.replica(id, &topic, 0);
        let directory = replica.with_log(|log| log.directory_id()).expect("it lies in one");
        let broker = BrokerId(i32::try_from(id).expect("a small id"));
        let told = cluster.registration(&topic, 0).directory(broker);
        replica.dir().starts_with(&targets[id - 1]) && told.is_some_and(|told| told == directory)
    };
    wait_for("the moves, and the controller's word", || (1..=3).all(has_moved)).await;
    assert_eq!(cluster.put(&topic, 0, -1, &value).await, 120);
    let log = cluster.assert_same(&topic, 0, &[1, 2, 3]).await;
    assert_eq!(
        values_of(&log).into_iter().map(|(offset, _)| offset).collect::<Vec<_>>(),
        (50..121).collect::<Vec<_>>()
    );
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn log_keeps_its_directory_until_the_controller_knows_the_next() {
    let mut cluster = Cluster::start(&[]).await;
    let others = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let paths = with_two_directories(&mut cluster, &others).await;
    let topic = cluster.create("topic", &[&[1, 2]], &[("min.insync.replicas", "2")]).await;
    for offset in 0..20 {
        assert_eq!(cluster.put(&topic, 0, -1, b"value").await, offset);
    }
    wait_for("the directory in the image", || {
        let (actual, known) = cluster_directory(&cluster, &topic);
        actual == known
    })
    .await;
    let (before, _) = cluster_directory(&cluster, &topic);
    let replica = cluster.replica(1, &topic, 0);
    let target = paths[0].split(',').find(|path| !replica.dir().starts_with(path)).expect("one of two");
    cluster.stop_controller().await;
    assert_eq!(alter(cluster.broker(1), target, &topic.name).await, ErrorCode::None);
    // Much longer than the copying takes. Records written meanwhile are copied, too.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(cluster.put(&topic, 0, 1, b"value").await, 20);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(replica.is_moving() && cluster_directory(&cluster, &topic) == (before, before));
    cluster.begin_controller().await;
    wait_for("the move", || {
        let (actual, known) = cluster_directory(&cluster, &topic);
        actual == known && actual != before
    })
    .await;
    assert!(replica.dir().starts_with(target));
    cluster.assert_same(&topic, 0, &[1, 2]).await;
    cluster.stop_all().await;
}

/// Where broker 1 has its replica, and where it has it by the metadata.
fn cluster_directory(cluster: &Cluster, topic: &Topic) -> (thalweg_log::Uuid, thalweg_log::Uuid) {
    let actual = cluster.replica(1, topic, 0).with_log(|log| log.directory_id());
    let known = cluster.registration(topic, 0).directory(BrokerId(1));
    (actual.expect("in one of them"), known.expect("it has a replica"))
}

/// A move that is abandoned leaves no word of it with the controller.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn abandoned_moves_leave_the_directory_that_the_controller_knows() {
    let mut cluster = Cluster::start(&[]).await;
    let others = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let paths = with_two_directories(&mut cluster, &others).await;
    let topic = cluster.create("topic", &[&[1, 2]], &[]).await;
    cluster.put(&topic, 0, -1, b"value").await;
    let replica = cluster.replica(1, &topic, 0);
    let (here, there): (Vec<&str>, Vec<&str>) =
        paths[0].split(',').partition(|path| replica.dir().starts_with(path));
    wait_for("the directory in the image", || {
        let (actual, known) = cluster_directory(&cluster, &topic);
        actual == known
    })
    .await;
    let before = cluster_directory(&cluster, &topic);
    // The report of the move is on its way when the move is abandoned.
    cluster.stop_controller().await;
    assert_eq!(alter(cluster.broker(1), there[0], &topic.name).await, ErrorCode::None);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(alter(cluster.broker(1), here[0], &topic.name).await, ErrorCode::None);
    assert!(!replica.is_moving());
    cluster.begin_controller().await;
    let mark = cluster.create("mark", &[&[1]], &[]).await;
    cluster.put(&mark, 0, -1, b"value").await;
    wait_for("the directory of the log", || cluster_directory(&cluster, &topic) == before).await;
    // It takes the way again, by the same task or another.
    assert_eq!(alter(cluster.broker(1), there[0], &topic.name).await, ErrorCode::None);
    wait_for("the move", || replica.dir().starts_with(there[0])).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_replica_goes_to_the_requested_directory() {
    let mut cluster = Cluster::start(&[]).await;
    let others = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let paths = with_two_directories(&mut cluster, &others).await;
    for (name, path) in ["one", "two"].into_iter().zip(paths[1].split(',')) {
        let topic = cluster.create(name, &[&[1]], &[]).await;
        wait_for("the topic", || {
            cluster.broker(2).server().broker.image().partition(name, PartitionIndex(0)).is_some()
        })
        .await;
        assert_eq!(alter(cluster.broker(2), path, name).await, ErrorCode::ReplicaNotAvailable);
        reassign(&cluster, &topic, &[2]).await;
        wait_for("the replica", || {
            cluster.broker(2).server().broker.partitions.get(name, PartitionIndex(0)).is_some()
        })
        .await;
        let place = cluster.replica(2, &topic, 0).dir();
        assert!(place.starts_with(path), "{} is not in {path}", place.display());
        wait_for("the end of the reassignment", || cluster.registration(&topic, 0).replicas == [BrokerId(2)])
            .await;
    }
    cluster.stop_all().await;
}
