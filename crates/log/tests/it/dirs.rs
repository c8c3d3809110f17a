//! Log directories: ownership, content, and clean shutdown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_log::disk::{CallError, Descriptors, Disk, Faults, FaultyCall};
use thalweg_log::{
    AppendError, CleanupPolicy, Clock, CreateError, Damage, LogConfig, LogDirs, LogDirsOptions, OpenError,
    PartitionLog, TopicPartition, Uuid,
};
use thalweg_record::{LeaderEpoch, Offset};

use crate::support::*;

const PARTITION_DIR: &str = "topic-with.dots_and-dashes-0";

fn options(dirs: &[&Path]) -> LogDirsOptions {
    LogDirsOptions {
        clock: Clock::manual(NOW_MS),
        threads: 2,
        ..LogDirsOptions::new(dirs.iter().map(|dir| dir.to_path_buf()).collect(), 1)
    }
}

fn open(options: LogDirsOptions) -> Result<(LogDirs, Vec<PartitionLog>), OpenError> {
    LogDirs::open(options, |_| Arc::new(LogConfig { file_delete_delay_ms: 1000, ..LogConfig::default() }))
}

fn close(dirs: LogDirs, logs: Vec<PartitionLog>) {
    for mut log in logs {
        log.close().expect("closes");
    }
    dirs.close(42);
}

fn partition(index: i32) -> TopicPartition {
    TopicPartition::new("topic-with.dots_and-dashes", index)
}

fn create(dirs: &LogDirs, index: i32) -> PartitionLog {
    dirs.create(&partition(index), Some(Uuid::random()), Arc::default(), None).expect("creates")
}

#[test]
fn a_new_directory_gets_its_identity_and_keeps_it() {
    let dir = TempDir::new();
    let path = dir.path().join("deep/data");
    let (dirs, logs) = open(options(&[&path])).expect("opens");
    assert!(logs.is_empty());
    let (cluster_id, ids) = (dirs.cluster_id().to_owned(), dirs.online_ids());
    let text =
        String::from_utf8(Disk::real().read(&path.join("meta.properties")).expect("there")).expect("text");
    for line in
        ["version=1", "node.id=1", &format!("cluster.id={cluster_id}"), &format!("directory.id={}", ids[0])]
    {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    close(dirs, logs);
    let (dirs, _) = open(options(&[&path])).expect("opens again");
    assert_eq!((dirs.cluster_id(), dirs.online_ids()), (cluster_id.as_str(), ids));
    assert_eq!(dirs.previous_broker_epoch(), Some(42));
}

#[test]
fn directories_of_others_are_refused() {
    let dir = TempDir::new();
    let (dirs, logs) = open(options(&[dir.path()])).expect("opens");
    let locked = open(options(&[dir.path()]));
    assert!(matches!(locked, Err(OpenError::Locked(_))), "{:?}", locked.err());
    close(dirs, logs);
    let other_node = open(LogDirsOptions { node_id: 2, ..options(&[dir.path()]) });
    assert!(matches!(other_node, Err(OpenError::WrongNodeId(_))), "{:?}", other_node.err());
    let other_cluster =
        open(LogDirsOptions { cluster_id: Some("other".to_owned()), ..options(&[dir.path()]) });
    assert!(matches!(other_cluster, Err(OpenError::WrongClusterId(_))), "{:?}", other_cluster.err());
    std::fs::write(dir.path().join("meta.properties"), "version=9\n").expect("writes");
    let nonsense = open(options(&[dir.path()]));
    assert!(matches!(nonsense, Err(OpenError::BadMetaProperties(_))), "{:?}", nonsense.err());
}

#[test]
fn a_file_in_the_place_of_a_directory_is_named() {
    let dir = TempDir::new();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("writes");
    for path in [file.clone(), file.join("data")] {
        let refused = open(options(&[&path])).expect_err("a file holds no logs").to_string();
        let wanted = format!("{} is not a directory, and must be one", file.display());
        assert!(refused.contains(&wanted), "{refused}");
    }
}

#[test]
fn copies_of_a_directory_are_refused() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let (dirs, logs) = open(options(&[one.path()])).expect("opens");
    close(dirs, logs);
    std::fs::copy(one.path().join("meta.properties"), two.path().join("meta.properties")).expect("copies");
    let copies = open(options(&[one.path(), two.path()]));
    assert!(matches!(copies, Err(OpenError::DuplicateDirectoryId(_))), "{:?}", copies.err());
}

#[test]
fn an_empty_directory_beside_one_that_was_used_is_refused_unless_it_is_added() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let (dirs, logs) = open(options(&[one.path()])).expect("opens");
    close(dirs, logs);
    let both = [one.path(), two.path()];
    let refused = open(options(&both)).expect_err("its disk may not be mounted").to_string();
    let [one_is, two_is] = both.map(|path| path.display().to_string());
    assert!(refused.contains(&one_is) && refused.contains(&two_is), "{refused}");
    assert!(refused.contains("thalweg.log.dirs.add"), "{refused}");
    let (dirs, logs) = open(LogDirsOptions { adds: true, ..options(&both) }).expect("it is added");
    close(dirs, logs);
    let (dirs, logs) = open(options(&both)).expect("both were used");
    close(dirs, logs);
    // A first start that was interrupted: it has written one meta.properties, and nothing else.
    let three = TempDir::new();
    let meta = std::fs::read(one.path().join("meta.properties")).expect("reads");
    std::fs::write(three.path().join("meta.properties"), meta).expect("writes");
    let (dirs, _) = open(options(&[three.path(), TempDir::new().path()])).expect("it goes on");
    assert_eq!(dirs.online_ids().len(), 2);
}

#[test]
fn partitions_are_spread_and_found_again() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let paths = [one.path(), two.path()];
    let (dirs, _) = open(options(&paths)).expect("opens");
    let mut logs: Vec<_> = (0..6).map(|index| create(&dirs, index)).collect();
    for (index, log) in logs.iter_mut().enumerate() {
        append(log, &Spec::new(1 + index).build());
        log.set_high_watermark(Offset(1));
    }
    let counts: Vec<_> = dirs.describe().iter().map(|dir| dir.partitions.len()).collect();
    assert_eq!(counts, [3, 3]);
    let there = dirs.create(&partition(0), None, Arc::default(), None);
    assert!(matches!(there, Err(CreateError::Exists(_))), "{there:?}");
    let topic_ids: Vec<_> = logs.iter().map(PartitionLog::topic_id).collect();
    close(dirs, logs);
    assert!(one.path().join(".kafka_cleanshutdown").exists());
    let (dirs, mut logs) = open(options(&paths)).expect("opens");
    assert!(!one.path().join(".kafka_cleanshutdown").exists(), "the marker goes before anything is changed");
    logs.sort_by(|a, b| a.name().cmp(b.name()));
    assert_eq!(logs.len(), 6);
    for (index, log) in logs.iter().enumerate() {
        let end = Offset(index as i64 + 1);
        assert_eq!((log.log_end_offset(), log.recovery_point()), (end, end));
        assert_eq!(log.high_watermark(), Offset(1), "from the checkpoint");
        assert_eq!(log.topic_id(), topic_ids[index]);
        assert_eq!(dirs.directory_of(log.name()), dirs.directory_of(&partition(index as i32)));
    }
}

#[test]
fn a_log_that_was_not_closed_means_no_marker() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let mut left = create(&dirs, 0);
    let mut closed = create(&dirs, 1);
    append(&mut left, &Spec::new(2).build());
    closed.close().expect("closes");
    dirs.close(42);
    assert!(!dir.path().join(".kafka_cleanshutdown").exists());
    drop(dirs);
    let (dirs, logs) = open(options(&[dir.path()])).expect("opens");
    assert_eq!(dirs.previous_broker_epoch(), None);
    assert_eq!(logs.iter().map(|log| log.log_end_offset().0).sum::<i64>(), 2);
}

#[test]
fn file_that_cannot_be_read_is_named() {
    let names = [
        "replication-offset-checkpoint",
        "meta.properties",
        ".kafka_cleanshutdown",
        "topic-with.dots_and-dashes-0/partition.metadata",
        "topic-with.dots_and-dashes-0/leader-epoch-checkpoint",
    ];
    for name in names {
        let dir = TempDir::new();
        let (dirs, _) = open(options(&[dir.path()])).expect("opens");
        let log = create(&dirs, 0);
        close(dirs, vec![log]);
        let path = dir.path().join(name);
        Disk::real().remove(&path).expect("removes");
        Disk::real().create_dir(&path).expect("something else is there");
        let reason = match open(options(&[dir.path()])) {
            Ok((dirs, _)) => dirs.describe()[0].offline.as_deref().unwrap_or_default().to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(reason.contains(&path.display().to_string()), "{name}: {reason}");
    }
}

#[test]
fn lock_file_that_is_a_directory_is_named() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let lock = one.path().join(".lock");
    Disk::real().create_dir(&lock).expect("something else is there");
    let (dirs, _) = open(options(&[one.path(), two.path()])).expect("the other directory opens");
    let reason = format!("{} is a directory, and must be a file: remove it", lock.display());
    assert_eq!(dirs.failed()[0].reason, reason);
    let refused = open(options(&[one.path()])).map(drop).expect_err("it is the only one").to_string();
    assert!(refused.contains(&reason), "{refused}");
}

/// A broker without a directory would be refused by its controllers, for another reason.
#[test]
fn directories_that_fail_while_they_are_opened_are_named() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let log = create(&dirs, 0);
    close(dirs, vec![log]);
    let metadata = dir.path().join("topic-with.dots_and-dashes-0/partition.metadata");
    Disk::real().remove(&metadata).expect("removes");
    Disk::real().create_dir(&metadata).expect("something else is there");
    let refused = open(options(&[dir.path()])).map(drop);
    let Err(OpenError::NoDirectory(error)) = refused else { panic!("no directory is left: {refused:?}") };
    let reason = error.to_string();
    assert!(
        [dir.path(), &metadata].iter().all(|path| reason.contains(&path.display().to_string())),
        "{reason}"
    );
}

#[test]
fn checkpoints_have_kafkas_form() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let mut log = create(&dirs, 3);
    append(&mut log, &Spec::new(5).build());
    log.set_high_watermark(Offset(4));
    log.delete_records(Offset(2)).expect("deletes");
    log.flush().expect("syncs");
    dirs.checkpoint_high_watermarks();
    dirs.checkpoint_recovery_points();
    dirs.checkpoint_log_starts();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("there");
    let name = "topic-with.dots_and-dashes 3";
    assert_eq!(read("replication-offset-checkpoint"), format!("0\n1\n{name} 4\n"));
    assert_eq!(read("recovery-point-offset-checkpoint"), format!("0\n1\n{name} 5\n"));
    assert_eq!(read("log-start-offset-checkpoint"), format!("0\n1\n{name} 2\n"));
    drop((dirs, log));
    let (_dirs, logs) = open(options(&[dir.path()])).expect("opens");
    assert_eq!((logs[0].log_start_offset(), logs[0].high_watermark()), (Offset(2), Offset(4)));
}

#[test]
fn log_that_was_removed_while_no_broker_ran_is_known_as_lost() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let mut logs: Vec<_> = (0..4).map(|index| create(&dirs, index)).collect();
    for log in &mut logs[..3] {
        append(log, &Spec::new(5).build());
        log.set_high_watermark(Offset(5));
    }
    dirs.checkpoint_high_watermarks();
    assert!((0..4).all(|index| !dirs.has_lost(&partition(index))), "all are there");
    // 0 stays, 1 is removed with its records, 2 is deleted as its topic is. 3 is removed, too: the checkpoint
    // cannot tell whether it had records, which may have been committed later.
    dirs.delete(&mut logs[2]).expect("deletes");
    drop((dirs, logs));
    for index in [1, 3] {
        std::fs::remove_dir_all(dir.path().join(partition(index).dir_name())).expect("is removed");
    }
    let (dirs, logs) = open(options(&[dir.path()])).expect("opens again");
    assert_eq!(logs.len(), 1);
    assert_eq!([0, 1, 2, 3].map(|index| dirs.has_lost(&partition(index))), [false, true, true, true]);
    // It is still known after a failed start, and no longer once the log has restarted empty.
    drop((dirs, logs));
    let (dirs, logs) = open(options(&[dir.path()])).expect("opens again");
    assert!(dirs.has_lost(&partition(1)));
    let log = create(&dirs, 1);
    drop((dirs, logs, log));
    let (dirs, _logs) = open(options(&[dir.path()])).expect("opens again");
    assert!(!dirs.has_lost(&partition(1)));
}

#[test]
fn previous_epoch_is_not_claimed_where_a_log_is_missing_or_its_directory_fails() {
    for is_removed in [true, false] {
        let (one, two) = (TempDir::new(), TempDir::new());
        let paths = [one.path(), two.path()];
        let (dirs, _) = open(options(&paths)).expect("opens");
        let mut logs: Vec<_> = (0..2).map(|index| create(&dirs, index)).collect();
        for log in &mut logs {
            append(log, &Spec::new(5).build());
        }
        let lost = logs[1].dir().to_owned();
        close(dirs, logs);
        let faults = Arc::new(Faults::default());
        match is_removed {
            true => std::fs::remove_dir_all(&lost).expect("is removed"),
            false => faults.fail(FaultyCall::List, &partition(1).dir_name(), CallError::InputOutput),
        }
        let (dirs, logs) =
            open(LogDirsOptions { disk: Disk::with_faults(faults), ..options(&paths) }).expect("opens");
        assert_eq!((logs.len(), dirs.online_count()), (1, 1 + usize::from(is_removed)));
        assert_eq!(dirs.previous_broker_epoch(), None, "removed: {is_removed}");
    }
}

#[test]
fn a_deleted_partition_goes_and_a_new_one_of_its_name_inherits_nothing() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let mut log = create(&dirs, 0);
    for _ in 0..10 {
        append(&mut log, &Spec::new(10).build());
    }
    log.set_high_watermark(Offset(100));
    log.delete_records(Offset(90)).expect("deletes");
    log.flush().expect("syncs");
    dirs.checkpoint_high_watermarks();
    dirs.checkpoint_recovery_points();
    dirs.checkpoint_log_starts();
    dirs.delete(&mut log).expect("deletes");
    assert!(log.append_as_leader(&Spec::new(1).build(), LeaderEpoch(0), Default::default()).is_err());
    let listed = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir.path()).expect("lists");
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()).collect()
    };
    assert!(listed()[0].to_string_lossy().ends_with("-delete"));
    let mut log = create(&dirs, 0);
    append(&mut log, &Spec::new(3).build());
    dirs.purge_deleted(NOW_MS + 999);
    assert_eq!(listed().len(), 2);
    dirs.purge_deleted(NOW_MS + 60_000);
    assert_eq!(listed().len(), 1);
    drop((dirs, log));
    let (_dirs, logs) = open(options(&[dir.path()])).expect("opens after a crash");
    assert_eq!((logs[0].log_start_offset(), logs[0].log_end_offset()), (Offset(0), Offset(3)));
}

#[test]
fn a_partition_that_is_there_but_was_not_opened_is_not_overwritten() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let path = dir.path().join(partition(0).dir_name());
    std::fs::create_dir(&path).expect("creates");
    std::fs::write(path.join(log_name(0)), Spec::new(1).build()).expect("writes");
    let refused = dirs.create(&partition(0), None, Arc::default(), None);
    assert!(matches!(refused, Err(CreateError::Exists(_))), "{refused:?}");
    assert_eq!(std::fs::read(path.join(log_name(0))).expect("reads"), Spec::new(1).build());
    create(&dirs, 1);
}

#[test]
fn truncation_lowers_the_recovery_point_on_disk() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let mut log = create(&dirs, 0);
    append(&mut log, &Spec::new(10).build());
    log.flush().expect("syncs");
    dirs.checkpoint_recovery_points();
    log.truncate_to(Offset(0)).expect("truncates");
    let text = std::fs::read_to_string(dir.path().join("recovery-point-offset-checkpoint")).expect("there");
    assert_eq!(text, "0\n1\ntopic-with.dots_and-dashes 0 0\n");
}

#[test]
fn loss_of_synced_records_is_known_at_each_start_until_it_is_accepted() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let mut log = create(&dirs, 0);
    for _ in 0..10 {
        append(&mut log, &Spec::new(10).build());
    }
    close(dirs, vec![log]);
    let segment = dir.path().join(partition(0).dir_name()).join(log_name(0));
    let half = std::fs::metadata(&segment).expect("there").len() / 2;
    Disk::real().open(&segment).and_then(|file| file.set_len(half)).expect("cuts");
    let mut end = None;
    // After a clean stop, after another, and after a kill.
    for is_closed in [true, false, true] {
        let (dirs, logs) = open(options(&[dir.path()])).expect("opens");
        assert_eq!(dirs.previous_broker_epoch(), None, "it has not all that it had in that epoch");
        assert_eq!(logs[0].damage(), Some(Damage::Missing(Offset(100))));
        assert!(logs[0].published().is_damaged());
        assert_eq!(*end.get_or_insert(logs[0].log_end_offset()), logs[0].log_end_offset());
        dirs.checkpoint_recovery_points();
        if is_closed {
            close(dirs, logs);
        }
    }
    let (dirs, mut logs) = open(options(&[dir.path()])).expect("opens");
    logs[0].drop_damage().expect("the checkpoint can be written");
    assert_eq!((logs[0].damage(), logs[0].published().is_damaged()), (None, false));
    assert_eq!(Some(logs[0].log_end_offset()), end);
    append(&mut logs[0], &Spec::new(10).build());
    drop((dirs, logs));
    let (dirs, logs) = open(options(&[dir.path()])).expect("opens after a kill");
    assert_eq!((logs[0].damage(), logs[0].log_end_offset().0), (None, end.expect("known").0 + 10));
    close(dirs, logs);
    let (dirs, logs) = open(options(&[dir.path()])).expect("opens");
    assert_eq!((logs[0].damage(), dirs.previous_broker_epoch()), (None, Some(42)));
}

#[test]
fn truncation_on_a_full_disk_blocks_appends_until_the_recovery_point_is_lowered() {
    let dir = TempDir::new();
    let faults = Arc::new(Faults::default());
    faults.only("checkpoint.tmp");
    let disk = Disk::with_faults(Arc::clone(&faults));
    let (dirs, _) = open(LogDirsOptions { disk, ..options(&[dir.path()]) }).expect("opens");
    let mut log = create(&dirs, 0);
    append(&mut log, &Spec::new(10).build());
    log.flush().expect("syncs");
    dirs.checkpoint_recovery_points();
    faults.set_free_bytes(Some(0));
    log.truncate_to(Offset(0)).expect("truncates");
    let next = Spec::new(1).build();
    let refused = log.append_as_leader(&next, LeaderEpoch(0), Default::default());
    assert!(matches!(refused, Err(AppendError::DiskFull(_))), "{refused:?}");
    faults.set_free_bytes(None);
    append(&mut log, &next);
    let text = std::fs::read_to_string(dir.path().join("recovery-point-offset-checkpoint")).expect("there");
    assert_eq!(text, "0\n1\ntopic-with.dots_and-dashes 0 0\n");
}

#[test]
fn a_directory_that_fails_does_not_take_the_others_with_it() {
    let (one, two) = (TempDir::new(), TempDir::new());
    std::fs::write(two.path().join("file"), "in the way").expect("writes");
    let blocked = two.path().join("file");
    let (dirs, _) = open(options(&[one.path(), &blocked])).expect("opens");
    assert_eq!(dirs.online_ids().len(), 1);
    assert_eq!(dirs.failed()[0].path, blocked);
    create(&dirs, 0);
    let none = open(options(&[&blocked]));
    assert!(matches!(none, Err(OpenError::NoDirectory(_))), "{:?}", none.err());
}

#[test]
fn a_directory_that_failed_at_the_first_start_begins_at_a_later_one() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let second = two.path().join("file");
    for _ in 0..2 {
        std::fs::write(&second, "in the way").expect("writes");
        let (dirs, logs) = open(options(&[one.path(), &second])).expect("opens");
        assert_eq!(dirs.online_ids().len(), 1);
        close(dirs, logs);
    }
    std::fs::remove_file(&second).expect("removes");
    let (dirs, logs) = open(options(&[one.path(), &second])).expect("it was never used");
    assert_eq!(dirs.online_ids().len(), 2);
    close(dirs, logs);
    std::fs::remove_dir_all(&second).expect("removes");
    let refused = open(options(&[one.path(), &second]));
    assert!(matches!(refused, Err(OpenError::EmptyDirectory(_))), "{:?}", refused.err());
}

#[test]
fn a_metadata_log_of_an_unknown_cluster_is_refused() {
    for own_dir in [false, true] {
        let (dir, other) = (TempDir::new(), TempDir::new());
        let metadata = if own_dir { other.path() } else { dir.path() };
        let of_controller =
            || LogDirsOptions { metadata_log_dir: Some(metadata.to_owned()), ..options(&[dir.path()]) };
        let (dirs, logs) = open(of_controller()).expect("a new one is begun");
        let log = metadata.join("__cluster_metadata-0");
        std::fs::create_dir(&log).expect("creates");
        close(dirs, logs);
        let meta = dir.path().join("meta.properties");
        let kept = std::fs::read(&meta).expect("reads");
        for file in ["meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"] {
            std::fs::remove_file(dir.path().join(file)).ok();
        }
        let (dirs, _) = open(of_controller()).expect("the metadata log is empty");
        drop(dirs);
        std::fs::write(log.join("00000000000000000000.log"), "records").expect("writes");
        std::fs::remove_file(&meta).expect("removes");
        let refused = open(of_controller()).expect_err("its brokers have another cluster.id").to_string();
        assert!(refused.contains(&metadata.display().to_string()), "{refused}");
        assert!(!meta.exists(), "nothing was written");
        // In the directory of the metadata log the identity is as good.
        let kept = String::from_utf8(kept).expect("text");
        let of_log =
            kept.lines().filter(|line| !line.starts_with("directory.id")).collect::<Vec<_>>().join("\n");
        std::fs::write(metadata.join("meta.properties"), of_log).expect("writes");
        let (dirs, _) = open(of_controller()).expect("the cluster is known again");
        assert!(kept.contains(dirs.cluster_id()), "{kept}");
        drop(dirs);
        if own_dir {
            std::fs::write(metadata.join("meta.properties"), "version=1\ncluster.id=another\nnode.id=999\n")
                .expect("writes");
            let refused = open(of_controller()).expect_err("it belongs to another node").to_string();
            assert!(refused.contains("999"), "{refused}");
        }
    }
}

#[test]
fn a_partition_without_directory_is_recreated_unless_a_directory_is_offline() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let (dirs, _) = open(options(&[one.path(), two.path()])).expect("opens");
    let gone = Some(Uuid::random());
    let made = dirs.create(&partition(0), None, Arc::default(), gone).expect("in any directory");
    let [first, second] = dirs.online_ids()[..] else { panic!("two are online") };
    assert!([first, second].map(Some).contains(&made.directory_id()));
    dirs.fail_directory(first, "a test");
    for asked_for in [gone, Some(first)] {
        let refused = dirs.create(&partition(1), None, Arc::default(), asked_for);
        assert!(matches!(refused, Err(CreateError::Offline(_))), "{refused:?}");
    }
    let beside = dirs.create(&partition(1), None, Arc::default(), Some(second)).expect("it is online");
    assert_eq!(beside.directory_id(), Some(second));
}

#[test]
fn a_full_disk_is_known_as_full_until_there_is_room() {
    let dir = TempDir::new();
    let faults = Arc::new(Faults::default());
    let disk = Disk::with_faults(Arc::clone(&faults));
    let (dirs, _) = open(LogDirsOptions { disk, ..options(&[dir.path()]) }).expect("opens");
    let mut log = create(&dirs, 0);
    assert!(!dirs.are_full());
    faults.set_free_bytes(Some(0));
    log.append_as_leader(&Spec::new(1).build(), LeaderEpoch(0), Default::default()).expect_err("no room");
    assert!(dirs.are_full());
    faults.set_free_bytes(None);
    dirs.look_for_room();
    assert!(!dirs.are_full());
    append(&mut log, &Spec::new(1).build());
}

#[test]
fn hints_without_room_on_a_full_disk_are_logged_in_one_line() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    for index in 0..5 {
        append(&mut create(&dirs, index), &Spec::new(1).producer(5, 0, 0).build());
    }
    drop(dirs);
    let faults = Arc::new(Faults::default());
    faults.set_free_bytes(Some(0));
    let disk = Disk::with_faults(faults);
    let (told, (_dirs, logs)) = warnings_of(|| {
        // On this thread.
        open(LogDirsOptions { disk, threads: 1, ..options(&[dir.path()]) }).expect("opens")
    });
    assert_eq!(logs.len(), 5);
    let hints: Vec<_> =
        told.iter().filter(|line| line.contains("skipped index and checkpoint writes")).collect();
    assert!(matches!(hints[..], [line] if line.contains("count=15 ")), "{told:?}");
}

#[test]
fn a_failed_write_takes_its_directory_offline() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let faults = Arc::new(Faults::default());
    faults.only(".log");
    let disk = Disk::with_faults(Arc::clone(&faults));
    let (dirs, _) = open(LogDirsOptions { disk, ..options(&[one.path(), two.path()]) }).expect("opens");
    let mut log = create(&dirs, 0);
    let failing = dirs.directory_of(log.name()).expect("registered");
    faults.set_failing_writes(true);
    log.append_as_leader(&Spec::new(1).build(), LeaderEpoch(0), Default::default())
        .expect_err("the write fails");
    faults.set_failing_writes(false);
    assert!(!dirs.online_ids().contains(&failing));
    let described = dirs.describe().into_iter().find(|dir| dir.id == failing).expect("still listed");
    assert!(described.offline.expect("a reason").contains("write"));
    for index in 1..4 {
        assert_ne!(dirs.directory_of(create(&dirs, index).name()), Some(failing));
    }
    let refused = dirs.create(&partition(9), None, Arc::default(), Some(failing));
    assert!(matches!(refused, Err(CreateError::Offline(_))), "{refused:?}");
}

/// Whatever finds the disk failing, as a leader or as a follower: nobody has to ask for a checkpoint first.
#[test]
fn any_failing_call_takes_its_directory_offline() {
    type Work = fn(&mut PartitionLog);
    let lead: Work = |log| {
        let batch = Spec::new(1).value_bytes(100).build();
        log.append_as_leader(&batch, LeaderEpoch(1), Default::default()).expect_err("the disk fails");
    };
    let follow: Work = |log| {
        let batch = Spec::new(1).value_bytes(100).at(3, 1).build();
        log.append_as_follower(&batch, LeaderEpoch(1)).expect_err("the disk fails");
    };
    let flush: Work = |log| drop(log.flush());
    let cut: Work = |log| drop(log.truncate_to(Offset(1)));
    let close: Work = |log| drop(log.close());
    for (what, suffix, work) in [
        ("a leader's roll", "3.log", lead),
        ("a follower's roll", "3.log", follow),
        ("a leader's epochs", "leader-epoch-checkpoint", lead),
        ("a follower's epochs", "leader-epoch-checkpoint", follow),
        ("a flush", "", flush),
        ("a truncation", "", cut),
        ("a close", ".snapshot.tmp", close),
    ] {
        let (one, two) = (TempDir::new(), TempDir::new());
        let faults = Arc::new(Faults::default());
        let disk = Disk::with_faults(Arc::clone(&faults));
        let (dirs, _) = open(LogDirsOptions { disk, ..options(&[one.path(), two.path()]) }).expect("opens");
        let config = Arc::new(LogConfig { segment_bytes: 400, ..LogConfig::default() });
        let mut log = dirs.create(&partition(0), None, config, None).expect("creates");
        for sequence in 0..3 {
            append(&mut log, &Spec::new(1).producer(7, 0, sequence).build());
        }
        let failing = log.directory_id().expect("it is in one of them");
        faults.only(suffix);
        faults.set_failing_writes(true);
        faults.set_failing_syncs(true);
        work(&mut log);
        let described = dirs.describe().into_iter().find(|dir| dir.id == failing).expect("listed");
        assert!(described.offline.is_some(), "{what}");
        assert_eq!(dirs.online_ids().len(), 1, "{what}: the other goes on");
    }
}

/// The folder of a partition, the file of a segment, or all that a file system held, is gone under the
/// running broker.
#[test]
fn missing_folder_or_segment_takes_its_directory_offline() {
    type Work = fn(&LogDirs, &mut PartitionLog);
    fn append_in(log: &mut PartitionLog, epoch: i32) {
        let batch = Spec::new(1).value_bytes(200).build();
        log.append_as_leader(&batch, LeaderEpoch(epoch), Default::default())
            .expect_err("a file cannot be created");
    }
    let roll: Work = |_, log| append_in(log, 0);
    let epoch: Work = |_, log| append_in(log, 1);
    let read: Work = |_, log| drop(log.read(Offset(0), 1 << 20, Offset(3), true));
    let create_log: Work = |dirs, _| {
        let refused = dirs.create(&partition(1), Some(Uuid::random()), Arc::default(), None);
        assert!(matches!(refused, Err(CreateError::Io(_))), "{refused:?}");
    };
    let checkpoint: Work = |dirs, _| dirs.checkpoint_recovery_points();
    for (what, removed, work) in [
        ("a roll", PARTITION_DIR, roll),
        ("a leader epoch", PARTITION_DIR, epoch),
        ("a read of a closed segment", "topic-with.dots_and-dashes-0/00000000000000000000.log", read),
        ("a new partition", "", create_log),
        ("a checkpoint", "", checkpoint),
    ] {
        let dir = TempDir::new();
        let (dirs, _) = open(options(&[dir.path()])).expect("opens");
        let config = Arc::new(LogConfig { segment_bytes: 300, ..LogConfig::default() });
        let mut log = dirs.create(&partition(0), None, config, None).expect("creates");
        for _ in 0..3 {
            append(&mut log, &Spec::new(1).value_bytes(30).build());
        }
        log.release_idle_resources().expect("releases");
        let gone = dir.path().join(removed);
        if gone.extension().is_some_and(|suffix| suffix == "log") {
            Disk::real().remove(&gone).expect("removes");
        } else {
            Disk::real().remove_dir(&gone).expect("removes");
        }
        work(&dirs, &mut log);
        let reason = dirs.describe()[0].offline.clone();
        assert!(reason.as_deref().is_some_and(|reason| reason.contains("removed")), "{what}: {reason:?}");
        assert!(!removed.is_empty() || !Disk::real().exists(dir.path()), "{what}: it was created again");
    }
}

/// What still works on a log, without its lock, finds nothing any more.
#[test]
fn deleted_partition_takes_nothing_offline() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let config = LogConfig {
        segment_bytes: 300,
        cleanup_policy: CleanupPolicy::COMPACT,
        min_cleanable_dirty_ratio: 0.0,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    };
    let mut log = dirs.create(&partition(0), None, Arc::new(config), None).expect("creates");
    for sequence in 0..8 {
        append(&mut log, &Spec::new(1).value_bytes(100).producer(7, 0, sequence).build());
    }
    log.set_high_watermark(log.log_end_offset());
    let job = log.plan_compaction(NOW_MS).expect("plans").expect("it is dirty");
    let target = log.flush_target().expect("it is whole").expect("nothing is synced");
    dirs.delete(&mut log).expect("deletes");
    target.sync().expect_err("the folder has another name");
    job.run().expect_err("the segments have other names");
    dirs.purge_deleted(i64::MAX);
    let outcome = target.sync();
    log.complete_flush(&target, outcome).expect("it is of another log");
    log.release_idle_resources().expect_err("the folder is gone");
    assert_eq!(dirs.describe()[0].offline, None);
}

#[test]
fn start_without_descriptors_names_the_limit_and_takes_nothing_offline() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let mut log = create(&dirs, 0);
    append(&mut log, &Spec::new(1).build());
    drop((dirs, log));
    for suffix in [".lock", ".log"] {
        let faults = Arc::new(Faults::default());
        faults.only(suffix);
        faults.set_lacking_descriptors(true);
        let disk = Disk::with_faults(Arc::clone(&faults)).with_descriptors(Descriptors::limited(77));
        let refused = open(LogDirsOptions { disk, ..options(&[dir.path()]) }).map(drop);
        let Err(OpenError::TooManyOpenFiles(error)) = refused else { panic!("{suffix}: {refused:?}") };
        assert!(error.to_string().contains("may open 77 files"), "{error}");
    }
    let (dirs, logs) = open(options(&[dir.path()])).expect("opens");
    assert_eq!((logs.len(), dirs.describe()[0].offline.clone()), (1, None));
}

#[test]
fn new_partition_goes_where_there_is_room() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let faults = Arc::new(Faults::default());
    let disk = Disk::with_faults(Arc::clone(&faults));
    let (dirs, _) = open(LogDirsOptions { disk, ..options(&[one.path(), two.path()]) }).expect("opens");
    let ids = dirs.online_ids();
    let in_dir = |index, id| dirs.create(&partition(index), None, Arc::default(), Some(id)).expect("creates");
    let mut alone = in_dir(0, ids[0]);
    (1..5).for_each(|index| drop(in_dir(index, ids[1])));
    faults.set_free_bytes(Some(0));
    alone.append_as_leader(&Spec::new(1).build(), LeaderEpoch(0), Default::default()).expect_err("no room");
    assert_eq!(dirs.full_ids(), ids[..1]);
    faults.set_free_bytes(None);
    assert_eq!(create(&dirs, 5).directory_id(), Some(ids[1]), "though it has more partitions");
    dirs.look_for_room();
    assert_eq!(create(&dirs, 6).directory_id(), Some(ids[0]));
    // The next is tried where one cannot take it.
    std::fs::remove_dir_all(one.path()).expect("removes");
    std::fs::write(one.path(), "in the way").expect("writes");
    assert_eq!(create(&dirs, 7).directory_id(), Some(ids[1]));
    assert_eq!(dirs.online_ids(), ids[1..]);
}

/// As on a disk that has no room for the longer name.
#[test]
fn deletion_that_fails_keeps_the_name_until_it_succeeds() {
    let root = TempDir::new();
    let [one, two, away] = ["one", "two", "away"].map(|name| root.path().join(name));
    let (dirs, _) = open(options(&[&one, &two])).expect("opens");
    let ids = dirs.online_ids();
    let make = |id| dirs.create(&partition(0), Some(Uuid::random()), Arc::default(), Some(id));
    let mut log = make(ids[0]).expect("creates");
    append(&mut log, &Spec::new(1).build());
    std::fs::rename(&one, &away).expect("is renamed");
    std::fs::write(&one, "in the way").expect("writes");
    dirs.delete(&mut log).expect_err("its directory is not there");
    let again = make(ids[1]);
    assert!(matches!(again, Err(CreateError::Exists(_))), "the next start would find two: {again:?}");
    std::fs::remove_file(&one).expect("removes");
    std::fs::rename(&away, &one).expect("is renamed");
    dirs.empty(log.dir()).expect("makes room");
    let left = std::fs::read_dir(log.dir()).expect("lists");
    let left: Vec<_> = left.map(|entry| entry.expect("a name").file_name()).collect();
    assert_eq!(left, ["partition.metadata"], "it tells the folder from one of another topic");
    dirs.delete(&mut log).expect("is tried again");
    assert!(!one.join(partition(0).dir_name()).exists());
    make(ids[1]).expect("the name can be used again");
}

#[test]
fn checkpoint_returns_directories_with_their_log_starts() {
    let (one, two) = (TempDir::new(), TempDir::new());
    let faults = Arc::new(Faults::default());
    faults.only("log-start-offset-checkpoint.tmp");
    let disk = Disk::with_faults(Arc::clone(&faults));
    let (dirs, _) = open(LogDirsOptions { disk, ..options(&[one.path(), two.path()]) }).expect("opens");
    let mut log = create(&dirs, 0);
    append(&mut log, &Spec::new(3).build());
    log.set_high_watermark(Offset(3));
    log.delete_records(Offset(2)).expect("deletes");
    let there = log.directory_id().expect("it is in one of them");
    faults.set_free_bytes(Some(0));
    assert!(!dirs.checkpoint_log_starts().contains(&there), "no room");
    assert_eq!(dirs.online_ids().len(), 2);
    faults.set_free_bytes(None);
    assert_eq!(dirs.checkpoint_log_starts().len(), 2);
}

#[test]
fn log_start_is_durable_once_the_checkpoint_has_it() {
    let dir = TempDir::new();
    let faults = Arc::new(Faults::default());
    let disk = Disk::with_faults(Arc::clone(&faults));
    let (dirs, _) = open(LogDirsOptions { disk, ..options(&[dir.path()]) }).expect("opens");
    let mut log = create(&dirs, 0);
    let delete = |log: &mut PartitionLog, offset| {
        for _ in 0..6 {
            append(log, &Spec::new(1).build());
        }
        log.set_high_watermark(log.log_end_offset());
        log.delete_records(Offset(offset)).expect("deletes");
    };
    delete(&mut log, 4);
    let durable = |log: &PartitionLog| log.published().durable_log_start().0;
    assert_eq!(durable(&log), 0);
    faults.set_free_bytes(Some(0));
    dirs.checkpoint_log_starts();
    assert_eq!(durable(&log), 0, "there is no room for it");
    faults.set_free_bytes(None);
    dirs.checkpoint_log_starts();
    assert_eq!(durable(&log), 4);
    log.truncate_fully_and_start_at(Offset(2), None).expect("truncates");
    assert_eq!(durable(&log), 2);
    delete(&mut log, 4);
    assert_eq!(durable(&log), 2, "the checkpoint was lowered with the log");
    dirs.checkpoint_log_starts();
    log.close().expect("closes");
    dirs.close(1);
    drop((dirs, log));
    let (_dirs, logs) = open(options(&[dir.path()])).expect("opens");
    assert_eq!((logs[0].log_start_offset(), durable(&logs[0])), (Offset(4), 4));
}

#[test]
fn a_partition_that_is_set_aside_is_kept_and_not_opened_again() {
    let dir = TempDir::new();
    let (dirs, _) = open(options(&[dir.path()])).expect("opens");
    let mut log = create(&dirs, 0);
    append(&mut log, &Spec::new(3).build());
    log.close().expect("closes");
    let path = dirs.set_aside(&mut log).expect("is set aside");
    assert!(path.to_str().expect("UTF-8").ends_with("-stray"), "{}", path.display());
    append(&mut create(&dirs, 0), &Spec::new(1).build());
    dirs.purge_deleted(NOW_MS + 1_000_000);
    drop((log, dirs));
    let (dirs, logs) = open(options(&[dir.path()])).expect("opens");
    assert_eq!(logs.len(), 1, "only the new one of that name");
    assert_eq!(logs[0].log_end_offset(), Offset(1));
    dirs.purge_deleted(NOW_MS + 2_000_000);
    assert!(!Disk::real().read(&path.join(log_name(0))).expect("the batches are there").is_empty());
}

#[test]
fn lack_of_descriptors_refuses_a_partition_and_nothing_else() {
    let dir = TempDir::new();
    let faults = Arc::new(Faults::default());
    let disk = Disk::with_faults(Arc::clone(&faults));
    let (dirs, _) = open(LogDirsOptions { disk, ..options(&[dir.path()]) }).expect("opens");
    let mut log = create(&dirs, 0);
    append(&mut log, &Spec::new(1).build());
    faults.set_lacking_descriptors(true);
    let refused = dirs.create(&partition(1), Some(Uuid::random()), Arc::default(), None);
    assert!(matches!(refused, Err(CreateError::Io(_))), "{refused:?}");
    dirs.checkpoint_high_watermarks();
    dirs.checkpoint_recovery_points();
    dirs.checkpoint_log_starts();
    assert_eq!(dirs.online_ids().len(), 1, "the directory stays online");
    append(&mut log, &Spec::new(1).build());
    faults.set_lacking_descriptors(false);
    let later = create(&dirs, 1);
    close(dirs, vec![log, later]);
    assert_eq!(open(options(&[dir.path()])).expect("opens").1.len(), 2);
}

#[test]
fn partitions_leave_descriptors_to_those_that_are_there() {
    const MAX: usize = 120;
    let dir = TempDir::new();
    let disk = Disk::real().with_descriptors(Descriptors::limited(MAX));
    let (dirs, _) = open(LogDirsOptions { disk, ..options(&[dir.path()]) }).expect("opens");
    let mut logs = Vec::new();
    let refusal = loop {
        let index = i32::try_from(logs.len()).expect("few");
        match dirs.create(&partition(index), Some(Uuid::random()), Arc::default(), None) {
            Ok(log) => logs.push(log),
            Err(error) => break error,
        }
        assert!(logs.len() < MAX, "each has a file open");
    };
    assert!(refusal.to_string().contains("RLIMIT_NOFILE"), "{refusal}");
    assert!(logs.len() >= 50, "{} is too few", logs.len());
    assert_eq!(dirs.online_ids().len(), 1);
    assert!(!dir.path().join(partition(i32::try_from(logs.len()).expect("few")).dir_name()).exists());
    close(dirs, logs);
}

/// Apache Kafka takes the last one. With a larger log start records would be deleted, and with a larger
/// recovery point they would seem to be missing.
#[test]
fn checkpoint_that_names_a_partition_twice_counts_with_the_smaller_offset() {
    for is_smaller_first in [true, false] {
        let dir = TempDir::new();
        let (dirs, _) = open(options(&[dir.path()])).expect("opens");
        let mut log = create(&dirs, 3);
        append(&mut log, &Spec::new(5).build());
        log.set_high_watermark(Offset(5));
        log.delete_records(Offset(2)).expect("deletes");
        close(dirs, vec![log]);
        for (file, offset) in [("log-start-offset-checkpoint", 2), ("recovery-point-offset-checkpoint", 5)] {
            let mut lines = [offset, offset + 1].map(|at| format!("topic-with.dots_and-dashes 3 {at}\n"));
            if !is_smaller_first {
                lines.reverse();
            }
            std::fs::write(dir.path().join(file), format!("0\n2\n{}", lines.concat())).expect("writes");
        }
        let (lines, opened) = warnings_of(|| open(options(&[dir.path()])));
        let (_dirs, logs) = opened.expect("opens");
        assert_eq!((logs[0].log_start_offset(), logs[0].log_end_offset()), (Offset(2), Offset(5)));
        assert_eq!(logs[0].damage(), None);
        for file in ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint"] {
            assert!(lines.iter().any(|line| line.contains(file) && line.contains("line=4")), "{lines:?}");
        }
    }
}
