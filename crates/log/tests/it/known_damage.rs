//! What a log knows of its damage, and how it drops it.

use thalweg_log::{Damage, LogConfig, OpenOptions, PartitionLog};
use thalweg_record::Offset;

use crate::support::*;

const SEGMENTS: i64 = 6;
const END: Offset = Offset(4 * SEGMENTS);

/// A cleanly closed log with one batch of 4 records per segment, a second apart, of which these segments are
/// garbage.
fn garbled(bench: &Bench, segments: &[i64]) -> PartitionLog {
    let mut log = bench.create();
    for index in 0..SEGMENTS {
        append(&mut log, &Spec::new(4).timestamp(NOW_MS + index * 1000).build());
    }
    assert_eq!(log.segment_offsets().len() as i64, SEGMENTS);
    log.set_high_watermark(END);
    log.close().expect("closes");
    drop(log);
    for base in segments {
        let name = log_name(*base);
        let mut bytes = bench.read_file(&name);
        bytes.fill(0xA5);
        bench.write_file(&name, &bytes);
    }
    let options = OpenOptions { recovery_point: END, high_watermark: END, ..OpenOptions::new(true) };
    let mut log = bench.open(&options);
    for base in segments {
        log.read(Offset(*base), 1 << 20, END, true).expect_err("it is garbage");
    }
    log
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 250, file_delete_delay_ms: 500, ..LogConfig::default() }
}

fn is_deleted(name: &str) -> bool {
    name.ends_with(".log.cut.deleted")
}

#[test]
fn damaged_segment_is_dropped_like_an_old_one_with_all_behind_it() {
    for base in [0, 8] {
        let bench = Bench::with(config());
        let mut log = garbled(&bench, &[base, 16]);
        assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(base))));
        log.drop_damage().expect("drops");
        assert_eq!((log.damage(), log.published().is_damaged(), log.poison()), (None, false, None));
        assert_eq!((log.log_end_offset(), log.high_watermark()), (Offset(base), Offset(base)));
        assert!(bench.set_aside().is_empty(), "the leader has the records: {:?}", bench.set_aside());
        let deleted = bench.names().iter().filter(|name| is_deleted(name)).count() as i64;
        assert_eq!(deleted, SEGMENTS - base / 4);
        log.purge_deleted(i64::MAX);
        assert!(!bench.names().iter().any(|name| is_deleted(name)));
        append(&mut log, &Spec::new(4).build());
        assert_eq!(headers(&mut log).last().map(|header| header.base_offset), Some(Offset(base)));
    }
}

#[test]
fn damage_is_forgotten_with_its_segment() {
    let bench = Bench::with(LogConfig { retention_ms: 3500, ..config() });
    let mut log = garbled(&bench, &[4, 16]);
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(4))));
    log.delete_records(Offset(9)).expect("deletes");
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(16))), "another segment is damaged, too");
    log.delete_records(Offset(20)).expect("deletes");
    assert_eq!((log.damage(), log.published().is_damaged()), (None, false));
}

#[test]
fn missing_end_is_known_beside_an_unreadable_segment() {
    let bench = Bench::with(config());
    drop(garbled(&bench, &[4]));
    let last = log_name(END.0 - 4);
    bench.write_file(&last, &[]);
    let options = OpenOptions { recovery_point: END, high_watermark: END, ..OpenOptions::new(true) };
    let mut log = bench.open(&options);
    assert_eq!(log.damage(), Some(Damage::Missing(END)));
    log.read(Offset(4), 1 << 20, log.log_end_offset(), true).expect_err("it is garbage");
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(4))));
    assert_eq!(log.published().recovery_point(), END, "the next start learns of the loss again");
    log.delete_records(Offset(8)).expect("deletes");
    assert_eq!(log.damage(), Some(Damage::Missing(END)));
    log.drop_damage().expect("drops");
    assert_eq!((log.damage(), log.published().recovery_point()), (None, log.log_end_offset()));
}

/// Flips bits of a stored segment under the log that has written it.
fn flip(bench: &Bench, base: i64, at: u64, bits: u8) {
    let file = bench.disk.open(&bench.file(&log_name(base))).expect("opens");
    let mut byte = [0];
    file.read_at(&mut byte, at).expect("reads");
    file.write_all_at(&[byte[0] ^ bits], at).expect("writes");
}

/// No read pays for the CRCs, nor for a second comparison of headers.
#[test]
fn batches_that_a_reader_does_not_take_are_compared_and_checked_again() {
    /// The last byte of a header's leader epoch.
    const EPOCH_AT: u64 = 15;
    let bench = Bench::with(config());
    let mut log = bench.create();
    (0..SEGMENTS).for_each(|_| _ = append(&mut log, &Spec::new(4).build()));
    let doubt = |log: &mut PartitionLog, offset| {
        let check = log.doubt_batches(Offset(offset), 1 << 20).expect("is read").expect("there are batches");
        (check.run(), check)
    };
    flip(&bench, 8, log.size_bytes() / SEGMENTS as u64 - 1, 4);
    flip(&bench, 4, EPOCH_AT, 1);
    let epochs = |log: &mut PartitionLog| -> Vec<i32> {
        headers(log).iter().map(|header| header.leader_epoch.0).collect()
    };
    assert_eq!(epochs(&mut log), [0, 1, 0, 0, 0, 0], "readers get the bytes as they are");
    for sound in [0, 4, 12] {
        assert!(doubt(&mut log, sound).0.is_ok(), "{sound}");
    }
    assert_eq!(epochs(&mut log), [0; SEGMENTS as usize], "no CRC covers the epoch: it was put right");
    assert_eq!(log.damage(), None);
    let (found, check) = doubt(&mut log, 9);
    log.note_error(&found.expect_err("the CRC is wrong"));
    assert_eq!(log.damage(), Some(Damage::Unreadable(Offset(8))));
    assert!(!log.has_outrun_check(&check));
    log.truncate_to(Offset(8)).expect("truncates");
    assert!(log.has_outrun_check(&check));
    assert!(log.doubt_batches(Offset(8), 1 << 20).expect("is read").is_none());
}
