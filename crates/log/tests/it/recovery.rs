//! Opening after a stop at any byte, and with invalid files.

use std::sync::Arc;

use thalweg_log::disk::{Disk, Durability, Faults};
use thalweg_log::{LogConfig, OpenOptions};
use thalweg_record::{BatchHeader, Offset, batches};

use crate::support::*;

fn fill(bench: &Bench, count: usize) -> Vec<u8> {
    let mut log = bench.create();
    for index in 0..count {
        let spec = Spec::new(1 + index % 3).value_bytes(index * 7 % 90).timestamp(NOW_MS + index as i64);
        append(&mut log, &spec.producer(1 + index as i64 % 2, 0, sequence(index)).build());
    }
    read_all(&mut log, Offset(0), 1 << 20)
}

/// The first sequence of the batch that `fill` writes at `index`: each producer writes every second one.
fn sequence(index: usize) -> i32 {
    (0..index).filter(|before| before % 2 == index % 2).map(|before| 1 + before as i32 % 3).sum()
}

fn ends(log: &[u8]) -> Vec<(usize, Offset)> {
    let mut at = 0;
    batches(log)
        .map(|batch| {
            let batch = batch.expect("whole");
            at += batch.bytes.len();
            (at, batch.header.next_offset())
        })
        .collect()
}

#[test]
fn files_that_were_being_written_do_not_stay() {
    let bench = Bench::new();
    fill(&bench, 3);
    let left = |bench: &Bench| bench.names().into_iter().filter(|name| name.ends_with(".tmp")).count();
    bench.write_file("00000000000000000002.snapshot.tmp", b"half");
    bench.write_file("leader-epoch-checkpoint.tmp", b"");
    assert_eq!(left(&bench), 2);
    bench.open_unclean();
    assert_eq!(left(&bench), 0);
    let faults = Arc::new(Faults::default());
    faults.set_free_bytes(Some(5));
    let disk = Disk::with_faults(faults);
    disk.replace(&bench.file("checkpoint"), b"0123456789", Durability::Synced).expect_err("the disk is full");
    assert_eq!(left(&bench), 0);
}

#[test]
fn a_torn_tail_is_cut_at_the_last_whole_batch() {
    let bench = Bench::new();
    let whole = fill(&bench, 12);
    let ends = ends(&whole);
    let from = ends[8].0;
    for cut in from..=whole.len() {
        bench.write_file(&log_name(0), &whole[..cut]);
        let mut log = bench.open_unclean();
        let &(valid, next) = ends.iter().rfind(|(end, _)| *end <= cut).expect("some batch is whole");
        assert_eq!(log.log_end_offset(), next, "cut at {cut}");
        assert_eq!(bench.read_file(&log_name(0)).len(), valid);
        assert!(read_all(&mut log, Offset(0), 1 << 20) == whole[..valid]);
        // Truncated records can be appended again.
        append(&mut log, &Spec::new(2).build());
        assert_eq!(log.log_end_offset(), next + 2);
    }
}

/// Unsynced segments after a power failure: any of them, with any length.
#[test]
fn a_log_can_be_ended_where_whole_batches_are_missing_at_the_end_of_a_segment() {
    let config = LogConfig { segment_bytes: 400, ..LogConfig::default() };
    for (kept, lost) in [(0, false), (1, false), (0, true)] {
        let bench = Bench::with(config.clone());
        let mut log = bench.create();
        for _ in 0..12 {
            append(&mut log, &Spec::new(1).value_bytes(60).build());
        }
        drop(log);
        let mut segments = bench.names();
        segments.retain(|name| name.ends_with(".log"));
        segments.sort();
        assert!(segments.len() >= 4, "{segments:?}");
        let whole = bench.read_file(&segments[1]);
        let ends = ends(&whole);
        let (valid, next) = if kept == 0 { (0, ends[0].1 - 1) } else { ends[kept - 1] };
        bench.write_file(&segments[1], &whole[..valid]);
        if lost {
            bench.disk.remove(&bench.file(&segments[1])).expect("removes");
        }
        let mut log = bench.open_unclean();
        assert_eq!(log.end_at_gap().expect("it can be read"), Some(next), "{kept} batches kept");
        assert_eq!(log.log_end_offset(), next);
        assert_eq!(log.end_at_gap().expect("it can be read"), None);
        let [aside]: [_; 1] = bench.set_aside().try_into().expect("one directory");
        assert!(segments[2..].iter().all(|name| aside.join(name).exists()), "later segments are kept");
        append(&mut log, &Spec::new(1).build());
        assert_eq!(headers(&mut log).last().map(|header| header.base_offset), Some(next));
    }
}

/// A truncation within a batch leaves a gap, behind which the log continues; a second one, to the end of that
/// gap, finds it again.
#[test]
fn what_follows_a_gap_that_truncations_have_left_is_there_after_a_crash() {
    let bench = Bench::with(LogConfig { segment_bytes: 1000, ..LogConfig::default() });
    let mut log = bench.create();
    append(&mut log, &Spec::new(2).value_bytes(300).build());
    append(&mut log, &Spec::new(3).build());
    log.truncate_to(Offset(3)).expect("it can be cut");
    append(&mut log, &Spec::new(1).build());
    log.truncate_to(Offset(3)).expect("it can be cut");
    let rolled = append(&mut log, &Spec::new(1).value_bytes(300).build());
    assert!(rolled.rolled && rolled.first_offset == Offset(3));
    drop(log);
    let mut log = bench.open_unclean();
    assert_eq!(log.end_at_gap().expect("it can be read"), None);
    assert_eq!(log.log_end_offset(), Offset(4));
}

#[test]
fn zeroes_and_garbage_after_the_end_are_cut() {
    let bench = Bench::new();
    let whole = fill(&bench, 5);
    for tail in
        [vec![0; 100_000], vec![0; 10], vec![0xff; 5000], whole[..200].to_vec(), b"GET / HTTP/1.1".to_vec()]
    {
        let mut torn = whole.clone();
        torn.extend(&tail);
        bench.write_file(&log_name(0), &torn);
        let mut log = bench.open_unclean();
        assert!(read_all(&mut log, Offset(0), 1 << 20) == whole);
        assert_eq!(bench.read_file(&log_name(0)).len(), whole.len());
    }
}

/// Verified one at a time, they would take minutes.
#[test]
fn what_looks_like_headers_of_long_batches_is_set_aside_and_not_verified_for_ever() {
    const TAIL_BYTES: usize = 2 << 20;
    let bench = Bench::new();
    let whole = fill(&bench, 5);
    let end = bench.open_unclean().log_end_offset();
    let mut tail = vec![0xff; BatchHeader::LEN];
    while tail.len() + 2 * BatchHeader::LEN < TAIL_BYTES {
        let batch_bytes = i32::try_from(TAIL_BYTES - 2 * BatchHeader::LEN - tail.len()).expect("small");
        tail.extend(end.0.to_be_bytes());
        tail.extend(batch_bytes.to_be_bytes());
        tail.extend(&whole[12..BatchHeader::LEN]);
    }
    bench.write_file(&log_name(0), &[&whole[..], &tail].concat());
    let mut log = bench.open_unclean();
    assert!(read_all(&mut log, Offset(0), 1 << 20) == whole);
    assert_eq!(bench.set_aside().len(), 1);
}

#[test]
fn a_flipped_bit_anywhere_ends_the_log_before_its_batch() {
    let bench = Bench::new();
    let whole = fill(&bench, 6);
    let ends = ends(&whole);
    for at in 0..whole.len() {
        // Base offset's high bytes and the leader epoch are outside the CRC.
        let batch_start = ends.iter().map(|&(end, _)| end).rfind(|&end| end <= at).unwrap_or(0);
        if (12..16).contains(&(at - batch_start)) || at - batch_start < 8 {
            continue;
        }
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        bench.write_file(&log_name(0), &damaged);
        let mut log = bench.open_unclean();
        assert!(read_all(&mut log, Offset(0), 1 << 20) == whole[..batch_start], "bit flipped at {at}");
    }
}

#[test]
fn a_base_offset_that_goes_back_ends_the_log() {
    let bench = Bench::new();
    let whole = fill(&bench, 6);
    let ends = ends(&whole);
    let mut damaged = whole.clone();
    let third = ends[1].0;
    damaged[third..third + 8].copy_from_slice(&0i64.to_be_bytes());
    bench.write_file(&log_name(0), &damaged);
    assert_eq!(bench.open_unclean().log_end_offset(), ends[1].1);
}

#[test]
fn segments_behind_a_damaged_one_are_set_aside_whole() {
    let bench =
        Bench::with(LogConfig { segment_bytes: 600, file_delete_delay_ms: 0, ..LogConfig::default() });
    fill(&bench, 30);
    let bases: Vec<_> = bench.open_unclean().segment_offsets();
    assert!(bases.len() > 3);
    let later: Vec<_> =
        bases[2..].iter().map(|base| (log_name(base.0), bench.read_file(&log_name(base.0)))).collect();
    let name = log_name(bases[1].0);
    let mut damaged = bench.read_file(&name);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    bench.write_file(&name, &damaged);
    let mut log = bench.open_unclean();
    assert_eq!(log.segment_offsets(), bases[..2]);
    assert!(log.log_end_offset() < bases[2] && log.log_end_offset() >= bases[1]);
    assert!(!bench.file(&log_name(bases[2].0)).exists());
    append(&mut log, &Spec::new(1).build());
    assert_eq!(headers(&mut log).last().map(|head| head.next_offset()), Some(log.log_end_offset()));
    let [aside]: [_; 1] = bench.set_aside().try_into().expect("one directory");
    for (name, bytes) in later {
        assert!(bench.disk.read(&aside.join(&name)).expect("it is kept") == bytes, "{name}");
    }
}

#[test]
fn segments_below_the_recovery_point_are_not_read() {
    let bench = Bench::with(LogConfig { segment_bytes: 600, ..LogConfig::default() });
    fill(&bench, 30);
    let bases = bench.open_unclean().segment_offsets();
    let name = log_name(bases[0].0);
    let mut damaged = bench.read_file(&name);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    bench.write_file(&name, &damaged);
    let options = OpenOptions { recovery_point: bases[2], ..OpenOptions::new(false) };
    let log = bench.open(&options);
    assert_eq!(log.segment_offsets(), bases, "the damage is for the reader's CRC to find");
}

#[test]
fn batches_after_the_recovery_point_in_its_segment_are_checked() {
    let bench = Bench::new();
    let whole = fill(&bench, 10);
    let ends = ends(&whole);
    for (recovered, expected) in [(3, 6), (6, 6), (7, 10)] {
        let mut damaged = whole.clone();
        damaged[ends[6].0 - 1] ^= 1;
        bench.write_file(&log_name(0), &damaged);
        let recovery_point = ends[recovered - 1].1;
        let log = bench.open(&OpenOptions { recovery_point, ..OpenOptions::new(false) });
        assert_eq!(log.log_end_offset(), ends[expected - 1].1, "recovery point after {recovered} batches");
    }
}

#[test]
fn lost_and_garbled_indexes_are_rebuilt() {
    let config = LogConfig { segment_bytes: 30_000, index_interval_bytes: 200, ..LogConfig::default() };
    let bench = Bench::with(config);
    let whole = fill(&bench, 300);
    bench.open_unclean().close().expect("closes");
    let intact: Vec<_> = bench.names().into_iter().filter(|name| name.ends_with("index")).collect();
    assert!(intact.len() >= 4);
    let contents: Vec<_> = intact.iter().map(|name| bench.read_file(name)).collect();
    for (name, content) in intact.iter().zip(&contents) {
        let mut shifted = content.clone();
        shifted.rotate_right(3);
        let variants = [
            Some(vec![]),
            Some(content[..content.len() / 2].to_vec()),
            Some(content[..content.len() - 3].to_vec()),
            Some(vec![0; content.len()]),
            Some(vec![0xff; content.len()]),
            Some(shifted),
            Some([&content[..], &[0; 48]].concat()),
            None,
        ];
        for variant in variants {
            match &variant {
                Some(bytes) => bench.write_file(name, bytes),
                None => bench.disk.remove(&bench.file(name)).expect("removes"),
            }
            let mut log = bench.open_clean();
            assert!(read_all(&mut log, Offset(0), 3000) == whole, "{name} is {variant:?}");
            for time in (0..300).step_by(17) {
                let found = log.offset_for_timestamp(NOW_MS + time).expect("searches").expect("there is one");
                assert!(
                    found.timestamp >= NOW_MS + time && found.timestamp <= NOW_MS + time + 2,
                    "{name} {variant:?}"
                );
            }
            log.close().expect("closes");
            bench.write_file(name, content);
        }
    }
}

#[test]
fn a_garbled_entry_in_the_middle_of_an_index_does_no_harm() {
    let bench = Bench::with(LogConfig { index_interval_bytes: 100, ..LogConfig::default() });
    let whole = fill(&bench, 300);
    bench.open_unclean().close().expect("closes");
    for name in ["00000000000000000000.index", "00000000000000000000.timeindex"] {
        let content = bench.read_file(name);
        for at in (0..content.len()).step_by(11) {
            let mut garbled = content.clone();
            garbled[at] ^= 0x41;
            bench.write_file(name, &garbled);
            let mut log = bench.open_clean();
            for offset in (0..log.log_end_offset().0).step_by(29) {
                let bytes = read_all(&mut log, Offset(offset), 1 << 20);
                assert!(whole.ends_with(&bytes), "{name} garbled at {at}, from {offset}");
            }
            for time in (0..300).step_by(23) {
                let found = log.offset_for_timestamp(NOW_MS + time).expect("searches").expect("there is one");
                assert!((0..3).contains(&(found.timestamp - NOW_MS - time)), "{name} garbled at {at}");
            }
            bench.write_file(name, &content);
        }
    }
}

#[test]
fn lost_and_garbled_small_files_cost_nothing_that_was_stored() {
    let config = LogConfig { segment_bytes: 2000, ..LogConfig::default() };
    let bench = Bench::with(config);
    let whole = fill(&bench, 60);
    let mut log = bench.open_unclean();
    let last_of_one = log.producer(thalweg_record::ProducerId(1)).expect("known").last_sequence();
    log.close().expect("closes");
    let small: Vec<_> = bench
        .names()
        .into_iter()
        .filter(|name| {
            name.ends_with(".snapshot") || name.ends_with("checkpoint") || name.ends_with("metadata")
        })
        .collect();
    assert!(small.len() >= 3, "{small:?}");
    for clean in [true, false] {
        for garbage in [&b""[..], b"\0\0\0\0", b"1\n", b"0\n99\n", b"\xff\xfe\xfd", b"0\n1\n5 0\n"] {
            for name in &small {
                bench.write_file(name, garbage);
            }
            let mut log = bench.open(&OpenOptions::new(clean));
            assert!(read_all(&mut log, Offset(0), 1 << 20) == whole);
            assert_eq!(
                log.producer(thalweg_record::ProducerId(1)).expect("known").last_sequence(),
                last_of_one
            );
            let epoch = log.leader_epochs().first().map(|&(_, start)| start);
            assert_eq!(epoch, Some(Offset(0)));
        }
    }
}

#[test]
fn hostile_directories_are_opened_without_a_panic() {
    let mut random = 0x1234_5678_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..150 {
        let bench =
            Bench::with(LogConfig { segment_bytes: 1500, index_interval_bytes: 100, ..LogConfig::default() });
        fill(&bench, 25);
        bench.open_unclean().close().expect("closes");
        let names = bench.names();
        for _ in 0..1 + next() % 4 {
            let name = &names[next() as usize % names.len()];
            let mut bytes = bench.read_file(name);
            for _ in 0..1 + next() % 8 {
                if bytes.is_empty() || next() % 8 == 0 {
                    bytes.extend(next().to_be_bytes());
                }
                let at = next() as usize % bytes.len();
                bytes[at] = next() as u8;
            }
            bench.write_file(name, &bytes);
        }
        let (name, config) = (thalweg_log::TopicPartition::new("t", 0), Arc::new(bench.config.clone()));
        let options = OpenOptions::new(round % 2 == 0);
        let opened =
            thalweg_log::PartitionLog::open(bench.home(), name, config, bench.clock.clone(), &options);
        let Ok(mut log) = opened else { continue };
        let end = log.log_end_offset();
        for offset in log.log_start_offset().0..=end.0.min(10_000) {
            let _ = log.read(Offset(offset), 500, end, true);
        }
        let _ = log.offset_for_timestamp(NOW_MS + 10);
        let _ = log.max_timestamp_offset();
        let _ =
            log.append_as_leader(&Spec::new(1).build(), thalweg_record::LeaderEpoch(9), Default::default());
        let _ = log.truncate_to(Offset(end.0 / 2));
        let _ = log.close();
    }
}
