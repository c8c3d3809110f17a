//! The state after a crash at any byte.

use std::sync::Arc;

use thalweg_controller::{Controller, ControllerOptions, ControllerStartError};
use thalweg_log::disk::{CallError, Disk, Faults, FaultyCall};

use crate::support::*;

/// A copy of the log's directory, as a killed process leaves it.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

async fn open(dir: &std::path::Path) -> Arc<Controller> {
    Arc::new(Controller::start(options(dir), Arc::new(Rules)).await.unwrap())
}

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let bench = Bench::new().await;
    bench.join(1).await;
    for index in 0..20 {
        bench.create(&format!("t{index}"), 3, 1).await;
    }
    let before = bench.image().await;
    let dir = tempfile::tempdir().unwrap();
    copy(bench.dir.path(), dir.path());
    let controller = open(dir.path()).await;
    let restarted = Bench { dir, controller };
    let after = restarted.image().await;
    assert_eq!(after.topics(), before.topics());
    assert_eq!(after.cluster().brokers, before.cluster().brokers);
    assert_eq!(after.features(), before.features());
}

#[tokio::test]
async fn a_log_that_is_cut_at_any_byte_is_opened_up_to_its_last_whole_batch() {
    let bench = Bench::new().await;
    bench.join(1).await;
    for name in ["a", "b", "c"] {
        bench.create(name, 1, 1).await;
    }
    let log = bench.log_dir().join("00000000000000000000.log");
    let bytes = std::fs::read(&log).unwrap();
    let boundaries: Vec<(usize, i64)> = thalweg_record::batches(&bytes)
        .scan(0, |end, batch| {
            let batch = batch.unwrap();
            *end += batch.bytes.len();
            Some((*end, batch.header.next_offset().0))
        })
        .collect();
    let mut cuts: Vec<usize> = (0..bytes.len()).step_by(37).collect();
    cuts.extend(boundaries.iter().map(|(end, _)| *end));
    for cut in cuts {
        // Nothing says that more was synced.
        let dir = damaged(&bench, &bytes[..cut], true);
        let controller = open(dir.path()).await;
        let restarted = Bench { dir, controller };
        let whole =
            boundaries.iter().filter(|(end, _)| *end <= cut).map(|(_, next)| *next).next_back().unwrap_or(0);
        let epoch = restarted.epoch().await;
        assert_eq!(epoch, 2, "the epoch is kept apart from the log");
        let data = restarted.fetch(epoch, 0, 0, 0).await;
        let change = batches_of(&data).into_iter().find(|batch| batch.last.epoch == 2).unwrap();
        assert_eq!(change.base_offset, whole, "cut at {cut}");
        let image = restarted.image().await;
        assert_eq!(image.features().metadata_version().map(|v| v.level()), Some(30), "cut at {cut}");
    }
}

const LOG: &str = "__cluster_metadata-0/00000000000000000000.log";

/// A copy of a log whose file is other bytes, without the recovery point if `forgets_it`: it may not survive
/// a power failure.
fn damaged(bench: &Bench, bytes: &[u8], forgets_it: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(bench.dir.path(), dir.path());
    std::fs::write(dir.path().join(LOG), bytes).unwrap();
    if forgets_it {
        std::fs::remove_file(dir.path().join("__cluster_metadata-0/recovery-point")).unwrap();
    }
    dir
}

/// The damage that a start refuses.
async fn refused(dir: &std::path::Path) -> (i64, thalweg_controller::Remedy) {
    match Controller::start(options(dir), Arc::new(Rules)).await.map(drop) {
        Err(ControllerStartError::Damaged { offset, remedy, .. }) => (offset, remedy),
        other => panic!("{other:?}"),
    }
}

/// A log of one epoch, its bytes, and the position and offset of each of its batches.
async fn one_epoch() -> (Bench, Vec<u8>, Vec<(usize, i64)>) {
    let bench = Bench::new().await;
    bench.join(1).await;
    for name in ["a", "b", "c"] {
        bench.create(name, 1, 1).await;
    }
    let bytes = std::fs::read(bench.dir.path().join(LOG)).unwrap();
    let mut at = 0;
    let batches = thalweg_record::batches(&bytes).map_while(Result::ok).map(|batch| {
        let position = at;
        at += batch.bytes.len();
        (position, batch.header.base_offset.0)
    });
    let batches = batches.collect();
    (bench, bytes, batches)
}

#[tokio::test]
async fn a_flipped_bit_before_sound_batches_refuses_the_start_and_names_the_offset() {
    let (bench, bytes, batches) = one_epoch().await;
    for (index, (position, offset)) in batches.iter().enumerate().take(batches.len() - 1) {
        let end = batches[index + 1].0;
        for (at, forgets_it) in
            [(position + 20, false), (end - 1, false), (position + 20, true), (end - 1, true)]
        {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            let dir = damaged(&bench, &flipped, forgets_it);
            let (named, remedy) = refused(dir.path()).await;
            assert_eq!((named, remedy.position), (*offset, *position as u64));
            assert!(std::fs::read(dir.path().join(LOG)).unwrap() == flipped, "the file is kept");
        }
    }
}

#[tokio::test]
async fn a_log_whose_file_is_gone_refuses_the_start() {
    let (bench, bytes, _) = one_epoch().await;
    let dir = damaged(&bench, &bytes, false);
    std::fs::remove_file(dir.path().join(LOG)).unwrap();
    match Controller::start(options(dir.path()), Arc::new(Rules)).await.map(drop) {
        Err(ControllerStartError::EndsEarly { log_end: 0, synced_to, .. }) => assert!(synced_to > 0),
        other => panic!("{other:?}"),
    }
    assert!(!dir.path().join(LOG).exists(), "nothing was begun");
}

#[tokio::test]
async fn a_damaged_log_goes_on_after_the_remedy_of_its_error() {
    let (bench, mut bytes, batches) = one_epoch().await;
    let &(position, _) = batches.last().unwrap();
    bytes[position - 1] ^= 0x40;
    let dir = damaged(&bench, &bytes, false);
    let (_, remedy) = refused(dir.path()).await;
    assert!(remedy.to_string().contains(&format!("truncate -s {} ", remedy.position)), "{remedy}");
    bytes.truncate(usize::try_from(remedy.position).unwrap());
    std::fs::write(dir.path().join(LOG), bytes).unwrap();
    for file in ["leader-epoch-checkpoint", "recovery-point"] {
        std::fs::remove_file(remedy.dir.join(file)).unwrap();
    }
    let image = Bench { controller: open(dir.path()).await, dir }.image().await;
    assert!(image.topic("a").is_some() && image.topic("c").is_none());
}

#[tokio::test]
async fn damage_to_the_last_batch_is_a_torn_tail_unless_it_was_synced() {
    let (bench, mut bytes, batches) = one_epoch().await;
    let &(_, offset) = batches.last().unwrap();
    let end = batches.last().unwrap().0 + 10;
    bytes[end] ^= 0x40;
    assert_eq!(refused(damaged(&bench, &bytes, false).path()).await.0, offset);
    let dir = damaged(&bench, &bytes, true);
    let image = Bench { controller: open(dir.path()).await, dir }.image().await;
    assert!(image.topic("b").is_some() && image.topic("c").is_none());
}

/// A power failure may persist the pages of a file in any order.
#[tokio::test]
async fn a_page_that_did_not_reach_the_medium_is_no_damage_unless_it_was_synced() {
    let bench = Bench::new().await;
    bench.join(1).await;
    for index in 0..200 {
        bench.create(&format!("t{index}"), 1, 1).await;
    }
    let mut bytes = std::fs::read(bench.dir.path().join(LOG)).unwrap();
    assert!(bytes.len() > 4 * 4096);
    bytes[2 * 4096..3 * 4096].fill(0);
    refused(damaged(&bench, &bytes, false).path()).await;
    let dir = damaged(&bench, &bytes, true);
    let topics = Bench { controller: open(dir.path()).await, dir }.image().await.topics().len();
    assert!((10..190).contains(&topics), "{topics}");
}

#[tokio::test]
async fn a_record_that_cannot_be_applied_is_named_with_the_way_on() {
    let (bench, bytes, batches) = one_epoch().await;
    // A change of a topic that does not exist, behind all others.
    let next = bench.fetch(1, 0, 0, 0).await.high_watermark;
    bench.controller.shutdown().await;
    let record = thalweg_wire::metadata::RemoveTopicRecord { topic_id: thalweg_wire::Uuid(4242) };
    let record = thalweg_metadata::VersionedRecord::new(thalweg_wire::MetadataRecord::RemoveTopic(record), 0);
    let options_of_batch = thalweg_record::BatchOptions {
        base_offset: thalweg_record::Offset(next),
        leader_epoch: thalweg_record::LeaderEpoch(1),
        ..Default::default()
    };
    let mut builder = thalweg_record::BatchBuilder::with_capacity(options_of_batch, 512);
    builder.append(0, None, Some(&record.to_value().unwrap()), &[]).unwrap();
    let whole = std::fs::read(bench.dir.path().join(LOG)).unwrap();
    let end =
        thalweg_record::batches(&whole).map_while(Result::ok).map(|batch| batch.bytes.len()).sum::<usize>();
    assert!(end >= batches.last().unwrap().0 && whole[..batches[1].0] == bytes[..batches[1].0]);
    let dir = damaged(&bench, &[&whole[..end], &builder.build()[..]].concat(), false);
    match Controller::start(options(dir.path()), Arc::new(Rules)).await.map(drop) {
        Err(ControllerStartError::Replay { offset, remedy, .. }) => {
            assert_eq!((offset, remedy.position, remedy.segment), (next, end as u64, 0));
        }
        other => panic!("{other:?}"),
    }
    std::fs::write(dir.path().join(LOG), &whole[..end]).unwrap();
    for file in ["leader-epoch-checkpoint", "recovery-point"] {
        std::fs::remove_file(dir.path().join("__cluster_metadata-0").join(file)).unwrap();
    }
    assert_eq!(Bench { controller: open(dir.path()).await, dir }.image().await.topics().len(), 3);
}

#[tokio::test]
async fn damage_to_what_an_earlier_start_has_read_is_no_torn_tail() {
    let bench = Bench::new().await;
    bench.join(1).await;
    bench.create("a", 1, 1).await;
    bench.controller.shutdown().await;
    let synced = std::fs::read(bench.log_dir().join("00000000000000000000.log")).unwrap().len();
    let dir = bench.dir;
    let bench = Bench { controller: open(dir.path()).await, dir };
    bench.create("b", 1, 1).await;
    bench.controller.shutdown().await;
    let whole = std::fs::read(bench.log_dir().join("00000000000000000000.log")).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..synced)
        .step_by(41)
        .map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            bytes
        })
        .collect();
    // The first base offset, which the CRC leaves out.
    damaged.push([&[0x10], &whole[1..]].concat());
    damaged.extend([whole[..synced / 2].to_vec(), Vec::new(), vec![0; whole.len()]]);
    let mut refused = 0;
    for bytes in damaged {
        let dir = tempfile::tempdir().unwrap();
        copy(bench.dir.path(), dir.path());
        let log = dir.path().join("__cluster_metadata-0/00000000000000000000.log");
        std::fs::write(&log, &bytes).unwrap();
        match Controller::start(options(dir.path()), Arc::new(Rules)).await {
            // A leader epoch is outside the CRC.
            Ok(controller) => {
                let image = Bench { dir, controller: Arc::new(controller) }.image().await;
                assert!(image.topic("a").is_some() && image.topic("b").is_some());
            }
            Err(error @ (ControllerStartError::Damaged { .. } | ControllerStartError::EndsEarly { .. })) => {
                refused += 1;
                assert!(std::fs::read(&log).unwrap() == bytes, "nothing is cut: {error}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > synced / 41 / 2, "{refused}");
}

#[tokio::test]
async fn no_cluster_is_begun_where_data_of_one_lies() {
    let dir = tempfile::tempdir().unwrap();
    let beside_data = |may_format| ControllerOptions { may_format, ..options(dir.path()) };
    let refused = Controller::start(beside_data(false), Arc::new(Rules)).await;
    assert!(matches!(refused, Err(ControllerStartError::NoMetadataLog { .. })), "{:?}", refused.err());
    Controller::start(beside_data(true), Arc::new(Rules)).await.unwrap().shutdown().await;
    Controller::start(beside_data(false), Arc::new(Rules)).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn old_records_go_when_a_snapshot_stands_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let small = |dir: &std::path::Path| {
        let mut options = options(dir);
        options.snapshot_bytes = 2_000;
        options.segment_bytes = 4_000;
        options.retention_bytes = 8_000;
        options
    };
    let controller = Arc::new(Controller::start(small(dir.path()), Arc::new(Rules)).await.unwrap());
    let bench = Bench { dir, controller };
    bench.join(1).await;
    for index in 0..120 {
        bench.create(&format!("t{index}"), 1, 1).await;
    }
    bench.controller.shutdown().await;
    let names: Vec<String> = std::fs::read_dir(bench.log_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let snapshots = names.iter().filter(|name| name.ends_with(".checkpoint")).count();
    assert!((2..=4).contains(&snapshots), "{names:?}");
    assert!(!names.contains(&"00000000000000000000.log".to_owned()), "{names:?}");
    let dir = bench.dir;
    let controller = Arc::new(Controller::start(small(dir.path()), Arc::new(Rules)).await.unwrap());
    let bench = Bench { dir, controller };
    let epoch = bench.epoch().await;
    let data = bench.fetch(epoch, 0, 0, 0).await;
    assert!(data.snapshot_id.end_offset > 0, "the beginning is gone");
    let again = bench.create("t7", 1, 1).await;
    assert_eq!(again.topics[0].error_message.as_deref(), Some("Topic 't7' already exists."));
}

#[tokio::test]
async fn a_damaged_snapshot_is_passed_over_while_the_log_reaches_back() {
    let bench = Bench::with(|options| options.snapshot_bytes = 500).await;
    bench.join(1).await;
    for name in ["a", "b", "c", "d"] {
        bench.create(name, 1, 1).await;
    }
    bench.controller.shutdown().await;
    let mut damaged = 0;
    for entry in std::fs::read_dir(bench.log_dir()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.ends_with(".checkpoint") && !name.starts_with("00000000000000000000-") {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let opened = Controller::start(options(bench.dir.path()), Arc::new(Rules)).await;
    match opened {
        Ok(controller) => {
            let bench = Bench { dir: bench.dir, controller: Arc::new(controller) };
            assert_eq!(bench.image().await.topics().len(), 4);
        }
        // Where the log has been cut by the snapshot already, there is nothing to go back to.
        Err(error) => assert!(matches!(error, ControllerStartError::Snapshot(_)), "{error}"),
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let faults = Arc::new(Faults::default());
    let disk = Disk::with_faults(faults.clone());
    let bench = Bench::with(|options| options.disk = disk).await;
    bench.join(1).await;
    bench.create("before", 1, 1).await;
    faults.set_free_bytes(Some(0));
    let topics = vec![thalweg_wire::request::create_topics_request::CreatableTopic {
        name: "during".to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    }];
    let request = thalweg_wire::request::CreateTopicsRequest { topics, ..Default::default() };
    assert!(bench.send_version(request, 7).await.is_err());
    faults.set_free_bytes(None);
    assert_eq!(bench.create("after", 1, 1).await.topics[0].error_code, 0);
    let image = bench.image().await;
    assert!(
        image.topic("before").is_some() && image.topic("during").is_none() && image.topic("after").is_some()
    );
}

#[tokio::test]
async fn a_failed_sync_ends_the_controller_and_nothing_is_answered() {
    let faults = Arc::new(Faults::default());
    let disk = Disk::with_faults(faults.clone());
    let bench = Bench::with(|options| options.disk = disk).await;
    bench.join(1).await;
    faults.set_failing_syncs(true);
    let request = registration(4, thalweg_wire::Uuid::random());
    assert!(bench.send_version(request, 4).await.is_err());
    faults.set_failing_syncs(false);
    let request = registration(5, thalweg_wire::Uuid::random());
    assert!(bench.send_version(request, 4).await.is_err(), "it does not go on as if nothing had happened");
}

/// The snapshots beside the one that a cluster is formatted with.
fn snapshots(dir: &std::path::Path) -> usize {
    let names = std::fs::read_dir(dir.join("__cluster_metadata-0")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".checkpoint") && !name.starts_with("00000000000000000000-")).count()
}

/// Far more records than a start would replay unnoticed.
async fn write_much(bench: &Bench) {
    bench.join(1).await;
    for index in 0..6 {
        assert_eq!(bench.create(&format!("t{index}"), 1000, 1).await.topics[0].error_code, 0);
    }
}

async fn assert_topics_are_known(bench: &Bench) {
    for index in 0..6 {
        let created = bench.create(&format!("t{index}"), 1, 1).await;
        assert_eq!(created.topics[0].error_code, thalweg_wire::ErrorCode::TopicAlreadyExists.code());
    }
}

#[tokio::test]
async fn a_run_that_wrote_much_leaves_a_snapshot_and_one_that_wrote_little_does_not() {
    let bench = Bench::new().await;
    bench.join(1).await;
    let bench = bench.restart().await;
    assert_eq!(snapshots(bench.dir.path()), 0);
    write_much(&bench).await;
    let bench = bench.restart().await;
    assert_eq!(snapshots(bench.dir.path()), 1);
    let epoch = bench.epoch().await;
    assert_ne!(bench.fetch(epoch, 0, 0, 0).await.snapshot_id.end_offset, -1, "new observers begin with it");
    // Nothing is written that the snapshot has not, but for the start itself.
    let bench = bench.restart().await;
    assert_eq!(snapshots(bench.dir.path()), 1);
    assert_topics_are_known(&bench).await;
}

#[tokio::test]
async fn a_start_that_replays_much_spares_the_next_one() {
    let bench = Bench::new().await;
    write_much(&bench).await;
    let dir = tempfile::tempdir().unwrap();
    copy(bench.dir.path(), dir.path());
    assert_eq!(snapshots(dir.path()), 0, "it was killed");
    let bench = Bench { controller: open(dir.path()).await, dir };
    for _ in 0..600 {
        if snapshots(bench.dir.path()) == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(snapshots(bench.dir.path()), 1);
    let bench = bench.restart().await;
    assert_topics_are_known(&bench).await;
}

/// A sole voter takes its epoch from the log, so it can start when `quorum-state` cannot be written.
#[tokio::test]
async fn a_start_on_a_full_disk_leads_in_a_new_epoch() {
    let bench = Bench::new().await;
    bench.register(9).await;
    let dir = bench.dir;
    bench.controller.shutdown().await;
    let faults = Arc::new(Faults::default());
    faults.fail(FaultyCall::Create, "quorum-state.tmp", CallError::NoSpace);
    let mut epochs = Vec::new();
    for is_full in [true, true, false] {
        if !is_full {
            faults.heal();
        }
        let mut options = options(dir.path());
        options.disk = Disk::with_faults(faults.clone());
        let controller = Controller::start(options, Arc::new(Rules)).await.unwrap();
        let state = std::fs::read_to_string(dir.path().join("__cluster_metadata-0/quorum-state")).unwrap();
        let bench = Bench { dir: tempfile::tempdir().unwrap(), controller: Arc::new(controller) };
        epochs.push((bench.epoch().await, state.contains("\"leaderEpoch\":4,")));
        bench.controller.shutdown().await;
    }
    assert_eq!(epochs, [(2, false), (3, false), (4, true)], "no epoch is begun twice");
}
