//! Room that is made ahead of the end: no reader sees it, no stop makes anything of it.

use thalweg_log::LogConfig;
use thalweg_record::Offset;

use crate::support::*;

const MIB: usize = 1024 * 1024;

/// Appends batches of about this size until the log has grown by two mebibytes; returns its content.
fn grow(log: &mut thalweg_log::PartitionLog, batch_bytes: usize) -> Vec<u8> {
    let until = log.size_bytes() + 2 * MIB as u64;
    while log.size_bytes() < until {
        append(log, &Spec::new(1).value_bytes(batch_bytes).build());
    }
    read_all(log, Offset(0), 16 * MIB)
}

#[test]
fn the_file_runs_ahead_of_small_appends_and_readers_do_not_see_it() {
    let bench = Bench::new();
    let mut log = bench.create();
    let whole = grow(&mut log, 5_000);
    let file = bench.read_file(&log_name(0));
    assert_eq!(whole.len() as u64, log.size_bytes());
    assert!(file.len() > whole.len() && file.len() - whole.len() <= 128 * 1024, "{}", file.len());
    assert!(file[..whole.len()] == whole && file[whole.len()..].iter().all(|&byte| byte == 0));
    assert!(log.has_zeros());
}

#[test]
fn a_stop_that_was_not_clean_loses_nothing_and_leaves_no_zeros() {
    let bench = Bench::new();
    let mut log = bench.create();
    let whole = grow(&mut log, 5_000);
    let end = log.log_end_offset();
    drop(log);
    let mut log = bench.open_unclean();
    assert_eq!(log.log_end_offset(), end);
    assert!(read_all(&mut log, Offset(0), 16 * MIB) == whole);
    assert_eq!(bench.read_file(&log_name(0)).len(), whole.len());
    append(&mut log, &Spec::new(1).build());
    assert_eq!(log.log_end_offset(), end + 1);
}

#[test]
fn a_quiet_log_and_a_closed_one_end_where_their_batches_end() {
    let bench = Bench::new();
    let mut log = bench.create();
    grow(&mut log, 5_000);
    log.trim_if_quiet().expect("trims");
    assert!(log.has_zeros(), "something was appended since it was last asked");
    log.trim_if_quiet().expect("trims");
    assert!(!log.has_zeros());
    assert_eq!(bench.read_file(&log_name(0)).len() as u64, log.size_bytes());
    let whole = grow(&mut log, 5_000);
    log.close().expect("closes");
    assert!(bench.read_file(&log_name(0)) == whole);
}

#[test]
fn segments_that_are_left_hold_only_batches() {
    let bench = Bench::with(LogConfig { segment_bytes: 3 * MIB as u32 / 2, ..LogConfig::default() });
    let mut log = bench.create();
    let whole = grow(&mut log, 5_000);
    let bases = log.segment_offsets();
    assert!(bases.len() > 1);
    let mut left = 0;
    for pair in bases.windows(2) {
        left += bench.read_file(&log_name(pair[0].0)).len();
    }
    let last = bench.read_file(&log_name(bases[bases.len() - 1].0));
    assert!(whole[left..] == last[..whole.len() - left]);
}

#[test]
fn large_appends_and_synced_ones_have_no_zeros_made() {
    let bench = Bench::new();
    let mut log = bench.create();
    let whole = grow(&mut log, 100_000);
    assert_eq!(bench.read_file(&log_name(0)).len(), whole.len());

    let bench = Bench::with(LogConfig { flush_messages: 1, ..LogConfig::default() });
    let mut log = bench.create();
    let whole = grow(&mut log, 5_000);
    assert_eq!(bench.read_file(&log_name(0)).len(), whole.len());
}

/// A crash between the making of a segment and the end of the one before it.
#[test]
fn zeros_before_a_segment_that_follows_are_no_damage() {
    let bench = Bench::with(LogConfig { segment_bytes: 600, ..LogConfig::default() });
    let mut log = bench.create();
    for _ in 0..30 {
        append(&mut log, &Spec::new(1).value_bytes(80).build());
    }
    let (whole, bases) = (read_all(&mut log, Offset(0), MIB), log.segment_offsets());
    drop(log);
    let name = log_name(bases[1].0);
    let mut longer = bench.read_file(&name);
    let whole_segment = longer.len();
    longer.extend(vec![0; 10_000]);
    bench.write_file(&name, &longer);
    let mut log = bench.open_unclean();
    assert!(read_all(&mut log, Offset(0), MIB) == whole);
    assert_eq!(log.segment_offsets(), bases);
    assert_eq!(bench.read_file(&name).len(), whole_segment);
    drop(log);

    // Zeros in place of a batch are damage: the rest is dropped, as after any other damage.
    let mut damaged = bench.read_file(&name);
    let half = damaged.len() / 2;
    damaged[half..].fill(0);
    bench.write_file(&name, &damaged);
    assert_eq!(bench.open_unclean().segment_offsets(), bases[..2]);
}
