//! A partition of `__consumer_offsets` with one replica, in which a batch was damaged while the broker was stopped: its groups
//! are served without what was in the batch.

use crate::records::Topic;
use crate::restart::{ask_loaded, commit, committed, member, start};
use std::path::Path;
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
    // So that the index of the segment has an entry behind the damage: a start walks over the batches from the last one on.
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
