//! Truncation below the high watermark: truncated records are kept beside the log, and no start loads them.

use std::path::Path;
use std::sync::Arc;

use thalweg_log::disk::{Disk, MemoryDisk};
use thalweg_log::{Clock, LogConfig, LogDirs, LogDirsOptions, OpenOptions, TopicPartition, Uuid};
use thalweg_record::Offset;

use crate::support::*;

/// A log of several segments of ten records in batches of one.
fn config() -> LogConfig {
    LogConfig { segment_bytes: 1000, file_delete_delay_ms: 0, ..LogConfig::default() }
}

/// The truncated batches, in the order of their offsets.
fn aside(bench: &Bench) -> Vec<u8> {
    let dirs = bench.set_aside().into_iter();
    let files =
        dirs.flat_map(|dir| std::fs::read_dir(dir).expect("lists")).map(|file| file.expect("lists").path());
    let mut logs: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    logs.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    logs.iter().flat_map(|path| std::fs::read(path).expect("can be read")).collect()
}

#[test]
fn batches_cut_below_the_high_watermark_are_kept_aside() {
    for (to, from_start) in [(0, false), (4, false), (25, false), (0, true)] {
        let bench = Bench::with(config());
        let mut log = bench.create();
        for _ in 0..40 {
            append(&mut log, &Spec::new(1).build());
        }
        log.set_high_watermark(Offset(40));
        if from_start {
            log.delete_records(Offset(30)).expect("records can be deleted");
            log.delete_old_segments(NOW_MS).expect("segments can be deleted");
        }
        let begin = log.log_start_offset().0.max(to);
        let given_up = read_all(&mut log, Offset(begin), 1 << 20);
        assert!(log.truncate_to(Offset(to)).expect("it can be cut"));
        assert!(aside(&bench).ends_with(&given_up), "to {to}");
        assert!(!given_up.is_empty());

        log.purge_deleted(i64::MAX);
        drop(log);
        let mut log = bench.open_unclean();
        assert_eq!(log.log_end_offset(), Offset(to));
        append(&mut log, &Spec::new(1).build());
        log.set_high_watermark(Offset(to + 1));
        log.truncate_to(Offset(to)).expect("it can be cut again");
        assert_eq!(bench.set_aside().len(), 2, "the second cut leaves the files of the first alone");
        assert!(aside(&bench).len() > given_up.len());
    }
}

/// The log of a follower may begin, and end, in the middle of a batch of its leader.
#[test]
fn nothing_is_kept_aside_where_no_record_is_cut() {
    for has_deleted in [false, true] {
        let bench = Bench::new();
        let mut log = bench.create();
        if has_deleted {
            append(&mut log, &Spec::new(30).build());
            log.set_high_watermark(Offset(30));
            log.delete_records(Offset(30)).expect("deletes");
        } else {
            log.truncate_fully_and_start_at(Offset(30), None).expect("restarts");
        }
        let (warnings, had_records) = warnings_of(|| log.truncate_to(Offset(20)).expect("it can be cut"));
        assert!(!had_records && warnings.is_empty(), "{has_deleted}: {warnings:?}");
        assert!(bench.set_aside().is_empty(), "{has_deleted}");
        assert!(log.log_end_offset() <= Offset(20));
    }
}

#[test]
fn batches_that_were_never_replicated_are_not_kept() {
    let bench = Bench::with(config());
    let mut log = bench.create();
    for _ in 0..40 {
        append(&mut log, &Spec::new(1).build());
    }
    log.set_high_watermark(Offset(15));
    log.truncate_to(Offset(15)).expect("it can be cut");
    assert_eq!(aside(&bench), b"");
}

#[test]
fn flushed_batches_that_are_cut_are_aside_after_power_loss() {
    for to in [0, 4, 25] {
        let clock = Clock::manual(NOW_MS);
        let disk = MemoryDisk::new(clock.clone());
        disk.set_names_apart(true);
        let options = LogDirsOptions {
            disk: Disk::in_memory(Arc::clone(&disk)),
            clock,
            threads: 1,
            ..LogDirsOptions::new(vec![Path::new("/data").to_path_buf()], 1)
        };
        let (dirs, _) = LogDirs::open(options, |_| Arc::new(config())).expect("the directory opens");
        let name = TopicPartition::new("t", 0);
        let mut log = dirs.create(&name, Some(Uuid::random()), Arc::new(config()), None).expect("creates");
        for _ in 0..40 {
            append(&mut log, &Spec::new(1).build());
        }
        log.flush().expect("it can be synced");
        log.set_high_watermark(Offset(40));
        let given_up = read_all(&mut log, Offset(to), 1 << 20);
        log.truncate_to(Offset(to)).expect("it can be cut");
        disk.end_process();
        disk.lose_power(&mut |_| 0);
        let files = disk.files().into_iter();
        let is_aside = |path: &Path| {
            path.parent().is_some_and(|dir| dir.as_os_str().as_encoded_bytes().ends_with(b"-stray"))
        };
        let kept =
            files.filter(|(path, _)| is_aside(path) && path.extension().is_some_and(|end| end == "log"));
        assert!(kept.flat_map(|(_, bytes)| bytes).collect::<Vec<_>>() == given_up, "to {to}");
    }
}

/// The process may end before the delay of the files is over.
#[test]
fn files_of_truncated_segments_are_removed_by_the_next_start() {
    for to in [0, 15, 25] {
        let bench = Bench::with(LogConfig { file_delete_delay_ms: 60_000, ..config() });
        let mut log = bench.create();
        (0..40).for_each(|_| _ = append(&mut log, &Spec::new(1).build()));
        log.truncate_to(Offset(to)).expect("it can be cut");
        let is_left = || bench.names().iter().any(|name| name.ends_with(".deleted"));
        assert!(is_left(), "to {to}");
        drop(log);
        let options = OpenOptions { recovery_point: Offset(to), ..OpenOptions::new(false) };
        let mut log = bench.open(&options);
        assert_eq!((log.end_at_gap().expect("looks"), log.damage()), (None, None), "to {to}");
        assert!(!is_left(), "to {to}: {:?}", bench.names());
    }
}

/// The same for segments that were deleted before the log began again in front of them.
#[test]
fn files_of_deleted_segments_behind_a_new_end_are_removed() {
    for to in [5, 15] {
        let bench = Bench::with(LogConfig { file_delete_delay_ms: 60_000, ..config() });
        let mut log = bench.create();
        (0..40).for_each(|_| _ = append(&mut log, &Spec::new(1).build()));
        log.set_high_watermark(Offset(40));
        log.delete_records(Offset(30)).expect("deletes");
        log.truncate_fully_and_start_at(Offset(to), None).expect("begins again");
        drop(log);
        let log = bench.open(&OpenOptions { log_start: Offset(to), ..OpenOptions::new(false) });
        assert_eq!((log.log_end_offset(), log.damage()), (Offset(to), None));
        assert!(!bench.names().iter().any(|name| name.ends_with(".deleted")), "to {to}: {:?}", bench.names());
    }
}
