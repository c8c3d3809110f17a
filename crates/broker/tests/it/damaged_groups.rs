//! A partition of `__consumer_offsets` with one replica, in which a batch was damaged while the broker was
//! stopped: its groups are served without what was in the batch.

use crate::records::Topic;
use crate::restart::{ask_loaded, commit, commit_noted, committed, member, start};
use crate::running::RunningBroker;
use crate::transactions::{Protocol, Transactional};
use std::path::{Path, PathBuf};
use thalweg_record::{BatchHeader, batches};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::HeartbeatRequest;

/// Damages one batch of the log, and leaves the others as they are.
fn damage(dir: &Path, index: usize, how: impl FnOnce(&mut [u8])) {
    let path = dir.join(format!("__consumer_offsets-0/{:020}.log", 0));
    let mut bytes = std::fs::read(&path).expect("the segment is there");
    let sizes = batches(&bytes).map_while(Result::ok).map(|batch| batch.bytes.len());
    let sizes: Vec<usize> = sizes.collect();
    let at: usize = sizes[..index].iter().sum();
    how(&mut bytes[at..at + sizes[index]]);
    std::fs::write(&path, bytes).expect("the segment can be written");
}

/// Damages the second of three commits and looks at the groups, twice: the damage stays.
async fn groups_are_served(how: impl FnOnce(&mut [u8])) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path()).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    for (group, offset) in [("first", 11), ("second", 12), ("third", 13)] {
        commit(&broker, group, &topic, offset).await;
    }
    // So that the index of the segment has an entry behind the damage: a start walks over the batches from
    // the last one on.
    for number in 0..80 {
        commit(&broker, "filler", &topic, number).await;
    }
    let (member_id, generation_id) = member(&broker, "members").await;
    broker.stop().await;
    damage(dir.path(), 1, how);
    let mut second = -1;
    for restart in 0..2 {
        let broker = start(dir.path()).await;
        for (group, offset) in [("first", 11), ("second", second), ("third", 13), ("filler", 79)] {
            assert_eq!(committed(&broker, group, &topic).await.0, offset, "{group} {restart}");
        }
        let (group_id, member_id) = ("members".to_owned(), member_id.clone());
        let heartbeat = HeartbeatRequest { group_id, generation_id, member_id, ..Default::default() };
        let beat = ask_loaded(&broker, &heartbeat, |answer| answer.error_code).await;
        assert_eq!(beat.error_code, ErrorCode::UnknownMemberId.code(), "it joins again");
        member(&broker, "members").await;
        second = 20 + restart;
        commit(&broker, "second", &topic, second).await;
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_served_although_a_record_is_damaged() {
    groups_are_served(|batch| batch[BatchHeader::LEN + 10] ^= 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_served_although_a_header_is_damaged() {
    groups_are_served(|batch| batch[..BatchHeader::LEN + 5].fill(0xA5)).await;
}

/// The segments of the log, in their order.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(dir.join("__consumer_offsets-0")).expect("the partition is there");
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths.sort();
    paths
}

/// A producer's transaction is aborted, and the marker that says so is lost with its whole segment. The next
/// one is committed.
async fn aborted_offsets_stay_aborted(lose: impl FnOnce(&Path) -> std::io::Result<()>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let properties = [
        ("offsets.topic.segment.bytes", "1048576"),
        ("offset.metadata.max.bytes", "30000"),
        ("log.cleaner.enable", "false"),
    ];
    let broker = RunningBroker::start(dir.path(), &properties).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    commit(&broker, "g", &topic, 7).await;
    let roll = async |count: usize| {
        while segments(dir.path()).len() < count {
            commit_noted(&broker, "filler", &topic, 1, "n".repeat(30_000)).await;
        }
    };
    let mut one = Transactional::begin(&broker, "one", Protocol::Older).await;
    for (group, offset, commits) in [("g", 50, false), ("other", 60, true)] {
        assert_eq!(one.add_group(&broker, group).await, ErrorCode::None);
        assert_eq!(one.commit_offset(broker.connection(), group, offset).await, ErrorCode::None);
        if !commits {
            roll(2).await;
        }
        assert_eq!(one.end(&broker, commits).await, ErrorCode::None);
        roll(3).await;
    }
    broker.stop().await;
    lose(&segments(dir.path())[1]).expect("the segment can be lost");
    for restart in 0..3 {
        let broker = RunningBroker::start(dir.path(), &properties).await;
        for (group, offset) in [("g", 7), ("other", 60)] {
            assert_eq!(committed(&broker, group, &topic).await.0, offset, "{group} {restart}");
        }
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marker_behind_a_lost_one_commits_nothing_from_before() {
    aborted_offsets_stay_aborted(|segment| std::fs::write(segment, [])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marker_behind_a_lost_segment_commits_nothing_from_before() {
    aborted_offsets_stay_aborted(|segment| std::fs::remove_file(segment)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_join_again_where_the_end_of_the_log_is_lost() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path()).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    commit(&broker, "first", &topic, 11).await;
    let (member_id, generation_id) = member(&broker, "members").await;
    commit(&broker, "last", &topic, 12).await;
    broker.stop().await;
    let path = &segments(dir.path())[0];
    let mut bytes = std::fs::read(path).expect("the segment is there");
    let last = batches(&bytes).map_while(Result::ok).last().map_or(0, |batch| batch.bytes.len());
    bytes.truncate(bytes.len() - last);
    std::fs::write(path, bytes).expect("the segment can be written");
    let broker = start(dir.path()).await;
    for (group, offset) in [("first", 11), ("last", -1)] {
        assert_eq!(committed(&broker, group, &topic).await.0, offset, "{group}");
    }
    let group_id = "members".to_owned();
    let heartbeat = HeartbeatRequest { group_id, generation_id, member_id, ..Default::default() };
    let beat = ask_loaded(&broker, &heartbeat, |answer| answer.error_code).await;
    assert_eq!(beat.error_code, ErrorCode::UnknownMemberId.code(), "it may have left");
    broker.stop().await;
}
