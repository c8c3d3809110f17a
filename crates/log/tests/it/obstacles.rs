//! Directories and other objects that are no files, with the names of files of a log or a log directory.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use thalweg_log::{CleanupPolicy, LogConfig, LogDirs, LogDirsOptions, OpenOptions, TopicPartition};
use thalweg_record::Offset;

use crate::support::*;

type Put = fn(&Path);

/// What is put there, each with something in it, where that is possible.
const OBSTACLES: [(&str, Put); 3] = [
    ("directory", |path| std::fs::create_dir_all(path.join("full")).expect("something else is there")),
    ("link to nothing", |path| symlink("nowhere", path).expect("something else is there")),
    ("socket", |path| drop(std::os::unix::net::UnixListener::bind(path).expect("something else is there"))),
];

/// The names of a partition's directory that begin with one, and end otherwise.
fn others(bench: &Bench, name: &str) -> Vec<String> {
    bench.names().into_iter().filter(|found| found.starts_with(name) && found != name).collect()
}

#[test]
fn what_has_the_name_of_a_file_of_the_log_is_renamed() {
    let names = [
        ".log",
        ".index",
        ".snapshot",
        ".log.swap",
        ".log.cleaned",
        ".index.swap",
        ".log.deleted",
        ".snapshot.deleted",
        ".log.cut.deleted",
        ".timeindex.tmp",
    ];
    let cases = names.into_iter().flat_map(|suffix| [0, 4].map(|base| format!("{base:020}{suffix}")));
    let of_others =
        ["leader-epoch-checkpoint.tmp", "transaction-index-checkpoint", "x.swap", "x.cleaned", "x.deleted"]
            .map(String::from);
    let cases = cases.filter(|name| !["0.log", "0.index"].iter().any(|end| name.ends_with(end)));
    for name in cases.chain(of_others) {
        for ((what, put), clean) in OBSTACLES.into_iter().flat_map(|put| [(put, true), (put, false)]) {
            let config = LogConfig { segment_bytes: 250, file_delete_delay_ms: 0, ..LogConfig::default() };
            let bench = Bench::with(config);
            let mut log = bench.create();
            append(&mut log, &Spec::new(2).value_bytes(60).producer(7, 0, 0).build());
            log.close().expect("closes");
            drop(log);
            put(&bench.file(&name));
            for start in 0..2 {
                let options =
                    OpenOptions { recovery_point: Offset(2), ..OpenOptions::new(clean && start == 0) };
                let mut log = bench.open(&options);
                assert_eq!(others(&bench, &name).len(), 1, "{what} {name}, start {start}");
                if start == 0 {
                    for sequence in [2, 4] {
                        append(&mut log, &Spec::new(2).value_bytes(60).producer(7, 0, sequence).build());
                    }
                }
                assert_eq!(log.segment_offsets(), [Offset(0), Offset(2), Offset(4)], "{what} {name}");
                assert_eq!(log.damage(), None, "{what} {name}");
                log.close().expect("closes");
            }
            if what == "directory" {
                assert!(bench.disk.exists(&bench.file(&others(&bench, &name)[0]).join("full")));
            }
        }
    }
}

#[test]
fn compaction_goes_on_where_a_directory_was_in_its_way() {
    let mut bench = Bench::with(LogConfig {
        segment_bytes: 250,
        cleanup_policy: CleanupPolicy::COMPACT,
        min_cleanable_dirty_ratio: 0.0,
        ..LogConfig::default()
    });
    let mut log = bench.create();
    (0..4).for_each(|_| _ = append(&mut log, &Spec::new(2).value_bytes(60).build()));
    log.set_high_watermark(log.log_end_offset());
    log.close().expect("closes");
    drop(log);
    for suffix in [".log.swap", ".log.cleaned", ".log.deleted", ".index.deleted"] {
        (OBSTACLES[0].1)(&bench.file(&format!("{:020}{suffix}", 0)));
    }
    bench.config.segment_bytes = 2000;
    let options =
        OpenOptions { recovery_point: Offset(8), high_watermark: Offset(8), ..OpenOptions::new(true) };
    let mut log = bench.open(&options);
    compact(&mut log, NOW_MS).expect("it is dirty");
    assert_eq!(log.segment_offsets().len(), 2);
}

#[test]
fn what_has_the_name_of_a_checkpoint_while_it_is_written_is_renamed() {
    let names = [
        "recovery-point-offset-checkpoint.tmp",
        "replication-offset-checkpoint.tmp",
        "log-start-offset-checkpoint.tmp",
        "cleaner-offset-checkpoint.tmp",
        "meta.properties.tmp",
        ".kafka_cleanshutdown.tmp",
    ];
    let open = |dir: &TempDir| {
        let options = LogDirsOptions { threads: 2, ..LogDirsOptions::new(vec![dir.path().to_owned()], 1) };
        LogDirs::open(options, |_| Arc::default()).expect("opens")
    };
    for (name, (what, put)) in names.into_iter().flat_map(|name| OBSTACLES.map(|put| (name, put))) {
        let dir = TempDir::new();
        drop(open(&dir));
        put(&dir.path().join(name));
        let (dirs, _) = open(&dir);
        let created = dirs.create(&TopicPartition::new("t", 0), None, Arc::default(), None);
        let mut log = created.expect("creates");
        append(&mut log, &Spec::new(2).build());
        log.close().expect("closes");
        dirs.close(7);
        assert_eq!((dirs.online_count(), dirs.failed().len()), (1, 0), "{what} {name}");
        drop((log, dirs));
        let (dirs, logs) = open(&dir);
        assert_eq!(dirs.previous_broker_epoch(), Some(7), "{what} {name}");
        assert_eq!(logs[0].log_end_offset(), Offset(2), "{what} {name}");
    }
}
