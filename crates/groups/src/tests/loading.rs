//! Partitions whose log cannot be read after this broker's election: loading is retried until it succeeds or
//! the leader epoch ends.

use super::driver::{commit_errors, commit_request, coordinator, elected};
use super::harness::error;
use crate::coordinator::GroupCoordinator;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::ShardLoadError;
use thalweg_shard::testing::MemoryLog;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::OffsetFetchRequest;
use tokio::time::{Instant, sleep};

/// An upper bound for every wait.
const PATIENCE: Duration = Duration::from_secs(30);

fn shortage() -> ShardLoadError {
    ShardLoadError::Read { reason: "Too many open files".to_owned() }
}

/// The offset that the group has committed, or the error.
async fn fetched(groups: &GroupCoordinator) -> Result<i64, ErrorCode> {
    let request = OffsetFetchRequest { group_id: "g".to_owned(), topics: None, ..Default::default() };
    let answer = groups.offset_fetch(request, 7).await;
    match error(answer.error_code) {
        ErrorCode::None => Ok(answer.topics[0].partitions[0].committed_offset),
        error => Err(error),
    }
}

/// Waits until all of these partitions are loaded.
async fn wait_for_load(groups: &GroupCoordinator, partitions: impl Iterator<Item = i32> + Clone) {
    let deadline = Instant::now() + PATIENCE;
    while !partitions.clone().all(|index| groups.is_loaded(PartitionIndex(index))) {
        assert!(Instant::now() < deadline, "the partitions are not loaded");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the log has been read this many times.
async fn wait_for_replays(log: &MemoryLog, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while log.replays.load(Ordering::Relaxed) < count {
        assert!(Instant::now() < deadline, "no other attempt is made");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A log with a committed offset, 9.
async fn written() -> Arc<MemoryLog> {
    let log = MemoryLog::new();
    let groups = elected(&log).await;
    let committed = groups.offset_commit(commit_request(&[("t", 0, 1)]), 9).await;
    assert_eq!(commit_errors(&committed)[0].2, ErrorCode::None);
    groups.shutdown();
    log.replays.store(0, Ordering::Relaxed);
    log
}

#[tokio::test]
async fn shortage_while_a_partition_loads_passes() {
    let log = written().await;
    log.unreadable.lock().insert(PartitionIndex(0), shortage);
    let groups = coordinator(&log);
    groups.on_elected(PartitionIndex(0), 6);
    wait_for_replays(&log, 2).await;
    assert_eq!(fetched(&groups).await, Err(ErrorCode::CoordinatorLoadInProgress));
    log.unreadable.lock().clear();
    wait_for_load(&groups, 0..1).await;
    assert_eq!(fetched(&groups).await, Ok(9));
    let replays = log.replays.load(Ordering::Relaxed);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(log.replays.load(Ordering::Relaxed), replays, "it is loaded once");
}

#[tokio::test]
async fn partitions_that_cannot_be_read_hold_up_no_others() {
    let log = MemoryLog::new();
    log.unreadable.lock().extend((0..6).map(|index| (PartitionIndex(index), shortage as fn() -> _)));
    let groups = coordinator(&log);
    (0..8).for_each(|index| groups.on_elected(PartitionIndex(index), 6));
    wait_for_load(&groups, 6..8).await;
    let figures = groups.load_figures();
    assert_eq!((figures.active, figures.loading, figures.failed), (2, 6, 0));
    log.unreadable.lock().clear();
    wait_for_load(&groups, 0..8).await;
}

#[tokio::test]
async fn attempts_to_load_end_with_the_leader_epoch() {
    let log = MemoryLog::new();
    log.unreadable.lock().insert(PartitionIndex(0), shortage);
    let groups = coordinator(&log);
    groups.on_elected(PartitionIndex(0), 6);
    wait_for_replays(&log, 2).await;
    groups.on_resigned(PartitionIndex(0), Some(6));
    let replays = log.replays.load(Ordering::Relaxed);
    sleep(Duration::from_secs(1)).await;
    assert!(log.replays.load(Ordering::Relaxed) <= replays + 1, "one may have been under way");
    assert_eq!(fetched(&groups).await, Err(ErrorCode::NotCoordinator));
}

#[tokio::test]
async fn damaged_log_is_served_once_its_batch_is_restored() {
    let log = written().await;
    let whole = log.batches.lock()[0].clone();
    let mut damaged = whole.to_vec();
    *damaged.last_mut().expect("it is no empty batch") ^= 4;
    log.batches.lock()[0] = Bytes::from(damaged);
    let groups = coordinator(&log);
    groups.on_elected(PartitionIndex(0), 6);
    wait_for_replays(&log, 2).await;
    assert_eq!(fetched(&groups).await, Err(ErrorCode::NotCoordinator), "clients look for another");
    assert_eq!(groups.load_figures().failed, 1);
    log.batches.lock()[0] = whole;
    wait_for_load(&groups, 0..1).await;
    assert_eq!(fetched(&groups).await, Ok(9));
    assert_eq!(groups.load_figures().failed, 0);
}

#[tokio::test]
async fn damaged_batch_that_no_replica_can_mend_is_left_out() {
    let log = written().await;
    let groups = elected(&log).await;
    let committed = groups.offset_commit(commit_request(&[("t", 0, 0)]), 9).await;
    assert_eq!(commit_errors(&committed)[0].2, ErrorCode::None);
    groups.shutdown();
    let mut damaged = log.batches.lock()[0].to_vec();
    *damaged.last_mut().expect("it is no empty batch") ^= 4;
    log.batches.lock()[0] = Bytes::from(damaged);
    log.is_only_replica.store(true, Ordering::Relaxed);
    log.replays.store(0, Ordering::Relaxed);
    let groups = coordinator(&log);
    groups.on_elected(PartitionIndex(0), 6);
    wait_for_load(&groups, 0..1).await;
    let request = OffsetFetchRequest { group_id: "g".to_owned(), topics: None, ..Default::default() };
    let answer = groups.offset_fetch(request, 7).await;
    let partitions = &answer.topics[0].partitions;
    assert_eq!(
        (partitions.len(), partitions[0].partition_index),
        (1, 0),
        "the other is in the damaged batch"
    );
    assert_eq!(groups.load_figures().failed, 0);
    let committed = groups.offset_commit(commit_request(&[("t", 0, 1)]), 9).await;
    assert_eq!(commit_errors(&committed)[0].2, ErrorCode::None);
    assert_eq!(log.replays.load(Ordering::Relaxed), 1);
}
