//! Replicas that know that their records are missing or unreadable: they leave the in-sync replicas, follow,
//! and fetch them again, and nothing that was acknowledged is lost.

use super::*;
use crate::records::{fetch, fetch_partition};
use std::path::PathBuf;
use thalweg_wire::request::fetch_request::FetchPartition;

/// Batches of a topic, and the size of each: some segments of the smallest size that a topic may have.
const BATCHES: i64 = 40;
const BATCH_BYTES: usize = 100_000;
const SETTINGS: &[(&str, &str)] = &[("segment.bytes", "1048576"), ("min.insync.replicas", "2")];

impl Cluster {
    /// A topic of one partition with these replicas, with acknowledged records.
    async fn filled(&self, name: &str, replicas: &[i32]) -> Topic {
        self.filled_with(name, replicas, SETTINGS).await
    }

    async fn filled_with(&self, name: &str, replicas: &[i32], settings: &[(&str, &str)]) -> Topic {
        let topic = self.create(name, &[replicas], settings).await;
        for number in 0..BATCHES {
            self.put(&topic, 0, -1, &value(number)).await;
        }
        let ids: Vec<_> = replicas.iter().map(|id| usize::try_from(*id).expect("small")).collect();
        self.assert_same(&topic, 0, &ids).await;
        topic
    }

    /// The segments of a replica of partition 0, oldest first.
    fn segments(&self, id: usize, topic: &Topic) -> Vec<PathBuf> {
        let dir = self.dirs[id - 1].path().join(format!("{}-0", topic.name));
        let listed = std::fs::read_dir(dir).expect("the partition is there");
        let mut segments: Vec<_> = listed.map(|entry| entry.expect("listed").path()).collect();
        segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        segments.sort();
        segments
    }

    /// Overwrites the middle of the second of several segments.
    fn garble(&self, id: usize, topic: &Topic) {
        let segments = self.segments(id, topic);
        assert!(segments.len() >= 3, "{segments:?}");
        let mut bytes = std::fs::read(&segments[1]).expect("the segment is there");
        let middle = bytes.len() / 2;
        bytes[middle - 200_000..middle + 200_000].fill(0xA5);
        std::fs::write(&segments[1], bytes).expect("the segment can be written");
    }

    /// Flips a bit inside a record of the second of several segments, also under a running broker. The
    /// headers stay whole. Returns the offset behind its batch.
    fn flip_in_record(&self, id: usize, topic: &Topic) -> i64 {
        let segments = self.segments(id, topic);
        assert!(segments.len() >= 3, "{segments:?}");
        let mut bytes = std::fs::read(&segments[1]).expect("the segment is there");
        // In the middle of the fifth batch.
        bytes[BATCH_BYTES * 9 / 2] ^= 1;
        std::fs::write(&segments[1], bytes).expect("the segment can be written");
        let base = segments[1].file_stem().expect("a name").to_string_lossy();
        base.parse::<i64>().expect("a base offset") + 5
    }

    /// Removes the folder of a replica whose broker is stopped.
    fn remove_folder(&self, id: usize, topic: &Topic) {
        let dir = self.dirs[id - 1].path().join(format!("{}-0", topic.name));
        std::fs::remove_dir_all(dir).expect("removes");
    }

    /// The code of a fetch of all offsets, one after another, from a broker; the first that is not 0.
    async fn read_through(&self, id: usize, topic: &Topic) -> i16 {
        for offset in 0..BATCHES {
            let partition = FetchPartition { partition_max_bytes: 1, ..fetch_partition(0, offset) };
            let request = FetchRequest { max_wait_ms: 0, ..fetch(12, topic, vec![partition]) };
            let answer = self.broker(id).ask_at(&request, 12).await;
            let code = answer.responses[0].partitions[0].error_code;
            if code != 0 {
                return code;
            }
        }
        0
    }

    /// Waits until a broker leads, as the preferred one.
    pub(super) async fn elect(&self, topic: &Topic, id: i32) {
        let deadline = Instant::now() + PATIENCE;
        while self.registration(topic, 0).leader.0 != id {
            assert!(Instant::now() < deadline, "broker {id} does not lead");
            let partitions =
                elect_leaders_request::TopicPartitions { topic: topic.name.clone(), partitions: vec![0] };
            let request = ElectLeadersRequest {
                topic_partitions: Some(vec![partitions]),
                timeout_ms: 5000,
                ..Default::default()
            };
            self.somebody().ask(&request).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Every acknowledged record is on these replicas.
    async fn assert_complete(&self, topic: &Topic, ids: &[usize]) {
        let mut isr: Vec<_> = ids.iter().map(|id| i32::try_from(*id).expect("small")).collect();
        isr.sort_unstable();
        self.wait_for_isr(topic, 0, &isr).await;
        let log = values_of(&self.assert_same(topic, 0, ids).await);
        let expected: Vec<_> = (0..BATCHES).map(|number| (number, value(number))).collect();
        assert!(log[..expected.len()] == expected[..], "acknowledged records are missing");
    }
}

fn value(number: i64) -> Vec<u8> {
    let mut value = format!("{number} ").into_bytes();
    value.resize(BATCH_BYTES, u8::try_from(number % 250).expect("small"));
    value
}

/// The log start is behind all that the replica has, and within what its leader has.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replica_with_a_wrong_log_start_fetches_all_records_again() {
    const MORE: i64 = 10;
    let mut cluster = Cluster::start(&[]).await;
    let topic = cluster.filled("topic", &[3, 1, 2]).await;
    cluster.kill(3).await;
    for number in 0..MORE {
        cluster.put(&topic, 0, -1, &value(number)).await;
    }
    let checkpoint = cluster.dirs[2].path().join("log-start-offset-checkpoint");
    let text = format!("0\n1\n{} 0 {}\n", topic.name, BATCHES + MORE / 2);
    std::fs::write(checkpoint, text).expect("writes");
    cluster.begin(3).await;
    cluster.assert_complete(&topic, &[1, 2, 3]).await;
    cluster.elect(&topic, 3).await;
    cluster.assert_complete(&topic, &[3, 1, 2]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leader_with_unreadable_records_hands_over_and_fetches_them_again() {
    let mut cluster = Cluster::start(&[]).await;
    let topic = cluster.filled("topic", &[1, 2, 3]).await;
    cluster.stop(1).await;
    cluster.garble(1, &topic);
    cluster.begin(1).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
    cluster.elect(&topic, 1).await;
    assert_eq!(cluster.read_through(1, &topic).await, ErrorCode::CorruptMessage.code());
    wait_for("another leader", || cluster.registration(&topic, 0).leader.0 != 1).await;
    cluster.assert_complete(&topic, &[1, 2, 3]).await;
    cluster.elect(&topic, 1).await;
    assert_eq!(cluster.read_through(1, &topic).await, 0);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leader_whose_batch_no_follower_can_take_hands_over_and_fetches_it_again() {
    let mut cluster = Cluster::start(&[]).await;
    let topic = cluster.filled("topic", &[1, 2, 3]).await;
    cluster.stop(3).await;
    cluster.flip_in_record(1, &topic);
    cluster.remove_folder(3, &topic);
    cluster.begin(3).await;
    wait_for("another leader", || cluster.registration(&topic, 0).leader.0 != 1).await;
    cluster.assert_complete(&topic, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

/// What the leader logs then, the deletion of the damaged records, lets the other replica join.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_replica_in_sync_keeps_leading_with_a_batch_that_no_follower_can_take() {
    let mut cluster = Cluster::start(&[]).await;
    let settings = [SETTINGS[0], ("min.insync.replicas", "1")];
    let topic = cluster.filled_with("topic", &[1, 2], &settings).await;
    cluster.stop(2).await;
    let behind = cluster.flip_in_record(1, &topic);
    cluster.remove_folder(2, &topic);
    cluster.begin(2).await;
    wait_for("the damage", || cluster.replica(1, &topic, 0).is_damaged()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.registration(&topic, 0).leader.0, 1);
    cluster.replica(1, &topic, 0).delete_records(behind).expect("deletes");
    // The segment still has the damage.
    wait_for("another leader", || cluster.registration(&topic, 0).leader.0 == 2).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2]).await;
    let log = values_of(&cluster.assert_same(&topic, 0, &[1, 2]).await);
    let expected: Vec<_> = (behind..BATCHES).map(|number| (number, value(number))).collect();
    assert!(log == expected, "acknowledged records are missing");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn follower_with_unreadable_records_fetches_them_again_outside_the_isr() {
    let mut cluster = Cluster::start(&[]).await;
    let topic = cluster.filled("topic", &[1, 2, 3]).await;
    cluster.stop(3).await;
    cluster.garble(3, &topic);
    cluster.begin(3).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
    // Consumers may read from a follower, too.
    assert_eq!(cluster.read_through(3, &topic).await, ErrorCode::CorruptMessage.code());
    wait_for("a truncation at the damage", || cluster.log_end(3, &topic, 0) < BATCHES).await;
    cluster.assert_complete(&topic, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_replica_in_sync_keeps_leading_with_damage_until_another_has_joined() {
    let mut cluster = Cluster::start(&[]).await;
    let topic = cluster.filled("topic", &[1, 2]).await;
    cluster.stop(2).await;
    cluster.stop(1).await;
    cluster.garble(1, &topic);
    cluster.begin(1).await;
    wait_for("the leader", || cluster.registration(&topic, 0).leader.0 == 1).await;
    assert_eq!(cluster.read_through(1, &topic).await, ErrorCode::CorruptMessage.code());
    let (code, _) = cluster.try_put(&topic, 0, 1, b"while alone").await;
    assert_eq!(code, 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.registration(&topic, 0).leader.0, 1);
    cluster.begin(2).await;
    wait_for("another leader", || cluster.registration(&topic, 0).leader.0 == 2).await;
    cluster.assert_complete(&topic, &[1, 2]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replica_without_its_synced_end_does_not_lead_those_that_have_it() {
    let mut cluster = Cluster::start(&[]).await;
    let settings = [SETTINGS[0], ("min.insync.replicas", "1")];
    let topic = cluster.filled_with("topic", &[1, 2, 3], &settings).await;
    for id in [3, 2, 1] {
        cluster.stop(id).await;
    }
    let last = cluster.segments(1, &topic).pop().expect("there are some");
    let bytes = std::fs::read(&last).expect("it is there");
    std::fs::write(&last, &bytes[..bytes.len() / 2]).expect("cut");
    // The last one to leave was the only one in sync.
    cluster.begin(1).await;
    assert!(cluster.log_end(1, &topic, 0) < BATCHES);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.registration(&topic, 0).leader, BrokerId::NONE);
    cluster.begin(2).await;
    cluster.begin(3).await;
    wait_for("a leader", || cluster.registration(&topic, 0).leader.0 > 1).await;
    cluster.assert_complete(&topic, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

/// Copies a directory with all that is in it.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("creates");
    for entry in std::fs::read_dir(from).expect("lists").map(|entry| entry.expect("listed")) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("copies");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn older_copy_of_the_last_leaders_directory_does_not_lead() {
    older_copy_of_the_last_leaders_directory(&[]).await;
}

/// The controller does not know the inter-broker listener: its configuration names none.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn older_copy_does_not_lead_where_the_controller_knows_no_listener() {
    older_copy_of_the_last_leaders_directory(&[
        ("listeners", "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"),
        // Nothing listens there.
        ("advertised.listeners", "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:1"),
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"),
        ("inter.broker.listener.name", "INTERNAL"),
    ])
    .await;
}

async fn older_copy_of_the_last_leaders_directory(of_brokers: &[(&str, &str)]) {
    let mut cluster = Cluster::start(&[("broker.session.timeout.ms", "2000")]).await;
    for id in 1..=3 {
        cluster.stop(id).await;
        cluster.begin_with(id, of_brokers).await;
    }
    let topic = cluster.create("topic", &[&[1, 2, 3]], SETTINGS).await;
    for number in 0..BATCHES / 2 {
        cluster.put(&topic, 0, -1, &value(number)).await;
    }
    cluster.stop(1).await;
    let saved = tempfile::tempdir().expect("a temporary directory");
    copy(cluster.dirs[0].path(), saved.path());
    cluster.begin_with(1, of_brokers).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
    cluster.elect(&topic, 1).await;
    for number in BATCHES / 2..BATCHES {
        cluster.put(&topic, 0, -1, &value(number)).await;
    }
    for id in 1..=3 {
        cluster.kill(id).await;
    }
    let dir = cluster.dirs[0].path();
    std::fs::remove_dir_all(dir).expect("removes");
    copy(saved.path(), dir);
    for id in 1..=3 {
        cluster.begin_with(id, of_brokers).await;
    }
    wait_for("a leader", || cluster.registration(&topic, 0).leader.0 > 1).await;
    cluster.assert_complete(&topic, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

/// The brokers have no such listener, so the controller cannot ask them: it does not wait for what cannot
/// come.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn last_leader_leads_where_the_controller_cannot_compare_logs() {
    let mut cluster = Cluster::start(&[("broker.session.timeout.ms", "2000")]).await;
    let topic = cluster.filled("topic", &[1, 2, 3]).await;
    let last = cluster.registration(&topic, 0).leader;
    for id in 1..=3 {
        cluster.kill(id).await;
    }
    cluster.stop_controller().await;
    cluster.begin_controller_with(&[("inter.broker.listener.name", "ELSEWHERE")]).await;
    for id in 1..=3 {
        cluster.begin(id).await;
    }
    wait_for("the last leader", || cluster.registration(&topic, 0).leader == last).await;
    cluster.assert_complete(&topic, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn older_copy_of_the_controllers_directory_raises_the_epochs_of_partitions() {
    let mut cluster = Cluster::start(&[]).await;
    let topic = cluster.create("topic", &[&[1, 2, 3]], SETTINGS).await;
    let single = cluster.create("single", &[&[2]], &[]).await;
    let saved = tempfile::tempdir().expect("a temporary directory");
    copy(cluster.controller_dir.path(), saved.path());
    for number in 0..BATCHES {
        // Twice it leads again after another.
        if number % 20 == 10 {
            cluster.stop(1).await;
        } else if number % 20 == 15 {
            cluster.begin(1).await;
            cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
            cluster.elect(&topic, 1).await;
        }
        cluster.put(&topic, 0, -1, &value(number)).await;
        cluster.put(&single, 0, -1, b"kept").await;
    }
    let epoch = cluster.registration(&topic, 0).leader_epoch;
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    cluster.stop_controller().await;
    let dir = cluster.controller_dir.path();
    std::fs::remove_dir_all(dir).expect("removes");
    copy(saved.path(), dir);
    cluster.begin_controller().await;
    for id in 1..=3 {
        cluster.begin(id).await;
    }
    cluster.assert_complete(&topic, &[1, 2, 3]).await;
    assert!(cluster.registration(&topic, 0).leader_epoch > epoch);
    cluster.put(&topic, 0, -1, b"afterwards").await;
    cluster.put(&single, 0, -1, b"afterwards").await;
    cluster.assert_same(&topic, 0, &[1, 2, 3]).await;
    cluster.stop_all().await;
}
