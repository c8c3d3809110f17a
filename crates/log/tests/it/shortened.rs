//! Files that something else cuts while the log is open.

use thalweg_log::{AppendError, AppendOptions, Damage, LogConfig, LogError, PartitionLog, ReadError};
use thalweg_record::{LeaderEpoch, Offset, batches};

use crate::support::*;

fn cut(bench: &Bench, len: u64) {
    bench.disk.open(&bench.file(&log_name(0))).expect("opens").set_len(len).expect("is cut");
}

/// The base offsets of the batches that are served, and whether damage ends them. Nothing but whole batches
/// may be served.
fn served(log: &mut PartitionLog) -> (Vec<i64>, bool) {
    let (mut found, mut from) = (Vec::new(), log.log_start_offset());
    loop {
        match log.read(from, 1000, log.log_end_offset(), true) {
            Ok(None) => return (found, false),
            Err(ReadError::Log(LogError::Corrupt { .. })) => return (found, true),
            Err(error) => panic!("{error}"),
            Ok(Some(slice)) => {
                let mut bytes = vec![0; slice.len];
                let read = slice.file.read_at(&mut bytes, slice.position).expect("is read");
                assert_eq!(read, slice.len, "the slice lies within the file");
                for batch in batches(&bytes) {
                    let header = batch.expect("a whole batch").header;
                    found.push(header.base_offset.0);
                    from = header.next_offset();
                }
            }
        }
    }
}

fn refused(log: &mut PartitionLog) -> LogError {
    match log.append_as_leader(&Spec::new(1).build(), LeaderEpoch(0), AppendOptions::default()) {
        Err(AppendError::Log(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_appended_behind_a_cut() {
    let bench = Bench::new();
    let mut log = bench.create();
    (0..10).for_each(|_| _ = append(&mut log, &Spec::new(2).build()));
    let len = log.size_bytes() / 2;
    cut(&bench, len);
    let error = refused(&mut log).to_string();
    assert!(error.contains("bytes, and had"), "{error}");
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))));
    assert_eq!(bench.read_file(&log_name(0)).len() as u64, len, "the file has no hole");
    assert_eq!(served(&mut log), (vec![0, 2, 4, 6, 8], true));
    refused(&mut log);
    log.trim_if_quiet().expect("looks");
    log.release_idle_resources().expect("closes");
    refused(&mut log);
    assert_eq!(bench.read_file(&log_name(0)).len() as u64, len);
    // Below the cut all is well again, and acknowledged batches are kept as far as they are there.
    log.set_high_watermark(Offset(20));
    log.truncate_to(Offset(4)).expect("truncates");
    append(&mut log, &Spec::new(2).build());
    assert_eq!(served(&mut log), (vec![0, 2, 4], false));
}

#[test]
fn cut_of_a_closed_file_is_noticed() {
    let bench = Bench::new();
    let mut log = bench.create();
    (0..10).for_each(|_| _ = append(&mut log, &Spec::new(2).build()));
    log.release_idle_resources().expect("closes");
    cut(&bench, log.size_bytes() / 2);
    refused(&mut log);
    assert_eq!(served(&mut log), (vec![0, 2, 4, 6, 8], true));
}

#[test]
fn reader_that_finds_too_little_has_the_file_looked_at() {
    let bench = Bench::new();
    let mut log = bench.create();
    (0..10).for_each(|_| _ = append(&mut log, &Spec::new(2).build()));
    let slice = log.read(Offset(0), 1 << 20, Offset(20), true).expect("is read").expect("there is something");
    // A file that the log itself has cut meanwhile is not short.
    slice.file.note_short();
    assert!(!served(&mut log).1);
    assert_eq!(log.damage(), None);
    cut(&bench, log.size_bytes() / 2);
    slice.file.note_short();
    assert_eq!(served(&mut log), (vec![0, 2, 4, 6, 8], true));
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))));
}

/// Small appends go into zeros that were made ahead, and are not looked at one by one.
#[test]
fn cut_below_zeros_made_ahead_is_noticed_and_no_hole_is_served() {
    for looks in [true, false] {
        let bench = Bench::with(LogConfig { segment_bytes: 64 << 20, ..LogConfig::default() });
        let mut log = bench.create();
        while log.size_bytes() < 2 << 20 || !log.has_zeros() {
            append(&mut log, &Spec::new(1).value_bytes(5_000).build());
        }
        cut(&bench, 1 << 20);
        let mut appended = 0;
        let batch = Spec::new(1).value_bytes(500).build();
        while log.append_as_leader(&batch, LeaderEpoch(0), AppendOptions::default()).is_ok() {
            appended += 1;
            assert!(appended < 1000, "appends end where the zeros do");
            if looks {
                log.trim_if_quiet().expect("looks");
            }
        }
        assert!(!looks || appended <= 1, "{appended}");
        assert!(log.damage().is_some());
        let (found, is_damaged) = served(&mut log);
        assert!(is_damaged && !found.is_empty() && found.len() <= (1 << 20) / 5_000, "{}", found.len());
    }
}

/// Overwrites the beginning of a batch under the log that has written it.
fn overwrite(bench: &Bench, position: u64, bytes: &[u8]) {
    bench.disk.open(&bench.file(&log_name(0))).expect("opens").write_all_at(bytes, position).expect("writes");
}

#[test]
fn batches_that_were_overwritten_under_the_log_are_not_served() {
    let sound = Spec::new(2).at(4, 0).build();
    for garbage in [vec![0xA5; 61], vec![0; 61], sound] {
        for rolls in [false, true] {
            let bench = Bench::new();
            let mut log = bench.create();
            let sizes: Vec<_> =
                (0..10).map(|_| append(&mut log, &Spec::new(2).build()).appended_bytes).collect();
            assert_eq!(served(&mut log), ((0..20).step_by(2).collect(), false));
            if rolls {
                log.set_config(std::sync::Arc::new(LogConfig {
                    segment_bytes: 1000,
                    ..bench.config.clone()
                }));
                append(&mut log, &Spec::new(2).value_bytes(400).build());
                assert_eq!(log.segment_count(), 2);
            } else {
                log.trim_if_quiet().expect("looks");
            }
            overwrite(&bench, sizes[..5].iter().sum::<u64>(), &garbage);
            let (lines, read) = warnings_of(|| log.read(Offset(10), 100, Offset(20), true));
            assert!(matches!(read, Err(ReadError::Log(LogError::Corrupt { .. }))), "{read:?}");
            assert!(lines.iter().any(|line| line.contains("damaged")), "{lines:?}");
            assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(0))));
            assert_eq!(served(&mut log), (vec![0, 2, 4, 6, 8], true), "from the beginning");
            // The log goes on.
            append(&mut log, &Spec::new(2).build());
            log.drop_damage().expect("drops");
            assert_eq!((log.damage(), log.log_end_offset()), (None, Offset(0)));
        }
    }
}
