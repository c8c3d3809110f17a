//! What a log knows of its damage, and how it drops it.

use thalweg_log::{Damage, LogConfig, OpenOptions, PartitionLog};
use thalweg_record::Offset;

use crate::support::*;

const SEGMENTS: i64 = 6;
const END: Offset = Offset(4 * SEGMENTS);

/// A cleanly closed log with one batch of 4 records per segment, a second apart, of which these segments are garbage.
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
    name.ends_with(".log.deleted")
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
