//! The metadata log as observers get it: epochs, long polls, divergence, snapshots.

use std::path::Path;
use std::time::Duration;

use thalweg_metadata::batches::ControlRecord;
use thalweg_wire::request::fetch_snapshot_request::{PartitionSnapshot, SnapshotId, TopicSnapshot};
use thalweg_wire::request::{FetchRequest, FetchSnapshotRequest};
use thalweg_wire::{ErrorCode, MetadataRecord, Records};

use crate::support::*;

#[tokio::test]
async fn the_log_begins_as_kafkas_does() {
    let bench = Bench::new().await;
    let epoch = bench.epoch().await;
    assert_eq!(epoch, 1);
    let data = bench.fetch(epoch, 0, 0, 0).await;
    let batches = batches_of(&data);
    let [change, version, voters] = batches[0].control.as_slice() else { panic!("{:?}", batches[0]) };
    let ControlRecord::LeaderChange(change) = change else { panic!("{change:?}") };
    assert_eq!((change.leader_id, change.voters.len()), (NODE, 1));
    assert!(matches!(version, ControlRecord::KRaftVersion(version) if version.k_raft_version == 1));
    assert!(
        matches!(voters, ControlRecord::Voters(voters) if voters.voters[0].voter_directory_id == DIRECTORY)
    );
    let kinds: Vec<_> = batches[1].records.iter().map(|record| record.api_key()).collect();
    assert_eq!(kinds, [23, 12, 24], "begin, metadata.version, end");
    assert!(matches!(batches[2].records[0], MetadataRecord::RegisterController(_)));
}

#[tokio::test]
async fn an_epoch_begins_with_each_start() {
    let mut bench = Bench::new().await;
    for epoch in 1..4 {
        assert_eq!(bench.epoch().await, epoch);
        bench = bench.restart().await;
    }
    let state = std::fs::read_to_string(bench.log_dir().join("quorum-state")).unwrap();
    assert!(state.contains("\"leaderEpoch\":4,"), "{state}");
}

#[tokio::test]
async fn a_fetch_waits_and_is_woken_by_a_record() {
    let bench = Bench::new().await;
    let epoch = bench.epoch().await;
    let end = bench.fetch(epoch, 0, 0, 0).await.high_watermark;
    let start = tokio::time::Instant::now();
    let empty = bench.fetch(epoch, end, epoch, 60).await;
    assert!(batches_of(&empty).is_empty() && start.elapsed() >= Duration::from_millis(60));

    let start = tokio::time::Instant::now();
    let (data, _) = tokio::join!(bench.fetch(epoch, end, epoch, 60_000), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        bench.register(9).await
    });
    assert_eq!(batches_of(&data).len(), 1);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn wrong_fetches_get_an_error() {
    let bench = Bench::new().await;
    let epoch = bench.epoch().await;
    let code = |code: i16| ErrorCode::from_i16(code).unwrap();
    assert_eq!(code(bench.fetch(epoch + 1, 0, 0, 0).await.error_code), ErrorCode::UnknownLeaderEpoch);
    assert_eq!(code(bench.fetch(epoch, 0, -1, 0).await.error_code), ErrorCode::InvalidRequest);
    assert_eq!(code(bench.fetch(epoch, 5, epoch + 1, 0).await.error_code), ErrorCode::InvalidRequest);
    let mut other = fetch_request(epoch, 0, 0, 0);
    other.cluster_id = Some("other".to_owned());
    assert_eq!(code(bench.send(other).await.error_code), ErrorCode::InconsistentClusterId);
    let mut other = fetch_request(epoch, 0, 0, 0);
    other.topics[0].topic_id = thalweg_wire::Uuid(99);
    assert_eq!(code(bench.send(other).await.error_code), ErrorCode::InvalidRequest);
    let old = FetchRequest { topics: vec![Default::default()], ..Default::default() };
    assert_eq!(code(bench.send_version(old, 12).await.unwrap().error_code), ErrorCode::InvalidRequest);
}

#[tokio::test]
async fn a_divergent_log_gets_its_divergent_epoch() {
    let bench = Bench::new().await.restart().await;
    let epoch = bench.epoch().await;
    let end = bench.fetch(epoch, 0, 0, 0).await.high_watermark;
    // An observer that believes that epoch 1 extends to the current end.
    let data = bench.fetch(epoch, end, 1, 0).await;
    assert_eq!(data.diverging_epoch.epoch, 1);
    assert!(data.diverging_epoch.end_offset > 0 && data.diverging_epoch.end_offset < end);
    assert!(batches_of(&data).is_empty());
}

async fn fetch_snapshot(
    bench: &Bench,
    epoch: i32,
    id: SnapshotId,
    position: i64,
    max_bytes: i32,
) -> (i16, i64, Vec<u8>) {
    let request = FetchSnapshotRequest {
        max_bytes,
        topics: vec![TopicSnapshot {
            name: "__cluster_metadata".to_owned(),
            partitions: vec![PartitionSnapshot {
                current_leader_epoch: epoch,
                snapshot_id: id,
                position,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let piece = bench.send(request).await.topics[0].partitions[0].clone();
    let Records::Inline(bytes) = piece.unaligned_records else { panic!("records are inline") };
    (piece.error_code, piece.size, bytes.to_vec())
}

#[tokio::test]
async fn an_observer_that_is_new_gets_a_snapshot() {
    let bench = Bench::with(|options| options.snapshot_bytes = 1).await;
    bench.join(1).await;
    for index in 0..5 {
        bench.create(&format!("t{index}"), 2, 1).await;
    }
    let epoch = bench.epoch().await;
    let mut id = None;
    for _ in 0..200 {
        let data = bench.fetch(epoch, 0, 0, 0).await;
        if data.snapshot_id.end_offset > 0 {
            id = Some(SnapshotId { end_offset: data.snapshot_id.end_offset, epoch: data.snapshot_id.epoch });
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let id = id.expect("a snapshot is written");
    let (mut bytes, mut position) = (Vec::new(), 0);
    loop {
        let (code, size, part) = fetch_snapshot(&bench, epoch, id.clone(), position, 100).await;
        assert_eq!(code, 0);
        bytes.extend_from_slice(&part);
        position += i64::try_from(part.len()).unwrap();
        if position >= size {
            break;
        }
    }
    let batches = decode_all(&bytes);
    assert!(matches!(batches[0].control[0], ControlRecord::SnapshotHeader(_)));
    assert_eq!(batches.last().unwrap().control, [ControlRecord::SnapshotFooter]);
    let (code, ..) = fetch_snapshot(&bench, epoch, id.clone(), position, 100).await;
    assert_eq!(code, ErrorCode::PositionOutOfRange.code());
    let other = SnapshotId { end_offset: id.end_offset + 1, epoch: id.epoch };
    let (code, ..) = fetch_snapshot(&bench, epoch, other, 0, 100).await;
    assert_eq!(code, ErrorCode::SnapshotNotFound.code());
    // From the end of the snapshot on, the log serves.
    let data = bench.fetch(epoch, id.end_offset, id.epoch, 0).await;
    assert_eq!((data.error_code, data.diverging_epoch.epoch, data.snapshot_id.end_offset), (0, -1, -1));
}

/// SCRAM verifiers and the HMACs of delegation tokens are in it.
#[tokio::test]
async fn other_users_cannot_read_the_metadata_log() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let bench = Bench::new().await;
    let (log_dir, bootstrap) = (bench.log_dir(), bench.dir.path().join("bootstrap.checkpoint"));
    assert_eq!((mode(&log_dir), mode(&bootstrap)), (0o700, 0o600));
    for entry in std::fs::read_dir(&log_dir).expect("it is there") {
        let path = entry.expect("an entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    // As Apache Kafka leaves them. The rights of a group may be a backup's.
    for (path, mode) in [(&log_dir, 0o755), (&bootstrap, 0o644)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let bench = bench.restart().await;
    assert_eq!((mode(&log_dir), mode(&bootstrap)), (0o750, 0o640));
    drop(bench);
}
