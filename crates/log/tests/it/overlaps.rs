//! Segments whose records others have, too: which of them count is not known.

use std::path::PathBuf;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_log::{AppendOptions, Damage, LogConfig, OpenOptions, PartitionLog};
use thalweg_record::{LeaderEpoch, Offset, batches};

use crate::missing_segments::{BASE, END, NEXT, closed, offsets, offsets_to, open};
use crate::support::*;

/// The base offset of the segment before the added one.
const BEFORE: Offset = Offset(6);
/// That of the added one, where a batch of the one before begins, and within a batch.
const ADDED: [Offset; 2] = [Offset(8), Offset(9)];

/// A closed log with one segment more, with or without the indexes of another.
fn with_added(added: Offset, with_indexes: bool) -> Bench {
    let bench = closed();
    let batches: Vec<u8> =
        (added.0..BASE.0).step_by(2).flat_map(|at| Spec::new(1).at(at, 0).build()).collect();
    bench.write_file(&log_name(added.0), &batches);
    if with_indexes {
        for suffix in [".index", ".timeindex"] {
            bench.write_file(&format!("{:020}{suffix}", added.0), &[]);
        }
    }
    bench
}

#[test]
fn segment_with_records_of_the_one_before_is_damage() {
    for added in ADDED {
        for clean in [true, false] {
            for with_indexes in [true, false] {
                let what = format!("{added}, clean: {clean}, with indexes: {with_indexes}");
                let bench = with_added(added, with_indexes);
                let mut log = open(&bench, clean);
                if with_indexes {
                    let (found, _) = offsets(&mut log, Offset(0));
                    assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{what}: {found:?}");
                    while log.check_next_segment().expect("looks") {}
                }
                assert_eq!(log.damage(), Some(Damage::Unreadable(BEFORE)), "{what}");
                let (found, error) = offsets(&mut log, Offset(0));
                let end = added.0 / 2 * 2;
                assert_eq!((found, error.is_some()), ((0..end).collect(), true), "{what}");
                let (found, error) = offsets(&mut log, added);
                assert_eq!((found, error.is_some()), (vec![], true), "{what}: which of them count?");
                let (found, error) = offsets(&mut log, BASE);
                assert_eq!((found, error.is_none()), ((BASE.0..END.0).collect(), true), "{what}");
                log.drop_damage().expect("drops");
                (BEFORE.0..END.0).for_each(|_| _ = append(&mut log, &Spec::new(1).build()));
                let (found, error) = offsets(&mut log, Offset(0));
                assert_eq!((found, error.is_none()), ((0..END.0).collect(), true), "{what}");
                assert_eq!(log.damage(), None, "{what}");
            }
        }
    }
}

#[test]
fn segment_that_reaches_into_the_next_is_damage() {
    let bench = closed();
    let (mut bytes, next) = (bench.read_file(&log_name(BASE.0)), bench.read_file(&log_name(NEXT.0)));
    bytes.extend(next);
    bench.write_file(&log_name(BASE.0), &bytes);
    for from in [Offset(0), NEXT] {
        let mut log = open(&bench, true);
        let (found, error) = offsets(&mut log, from);
        assert_eq!((found, error.is_some()), ((from.0..NEXT.0).collect(), true), "which of them count?");
        assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)), "found by a reader");
    }
    let mut log = open(&bench, true);
    while log.check_next_segment().expect("looks") {}
    assert_eq!(log.damage(), Some(Damage::Unreadable(BASE)));
    log.delete_records(NEXT).expect("deletes");
    let (found, error) = offsets(&mut log, NEXT);
    assert_eq!((log.damage(), error.is_none()), (None, true), "what had them, too, is deleted");
    assert_eq!(found, (NEXT.0..END.0).collect::<Vec<_>>());
}

#[test]
fn segments_without_any_index_are_not_read_at_a_start() {
    let bench = closed();
    for name in bench.names().iter().filter(|name| name.ends_with("index")) {
        bench.disk.remove(&bench.file(name)).expect("removes");
    }
    let (lines, log) = warnings_of(|| open(&bench, true));
    assert_eq!(log.damage(), None);
    let rebuilt = lines.iter().filter(|line| line.contains("rebuilding it")).count();
    assert_eq!(rebuilt, 1, "that of the newest segment: {lines:?}");
}

#[test]
fn leftover_bytes_that_an_unclean_stop_brought_back_are_cut_and_no_damage() {
    let bench = closed();
    let (mut bytes, next) = (bench.read_file(&log_name(NEXT.0)), bench.read_file(&log_name(BASE.0)));
    bytes.extend(next);
    bench.write_file(&log_name(NEXT.0), &bytes);
    let options = OpenOptions { recovery_point: NEXT, high_watermark: END, ..OpenOptions::new(false) };
    let mut log = bench.open(&options);
    while log.check_next_segment().expect("looks") {}
    assert_eq!((log.damage(), log.log_end_offset()), (None, END));
}

/// The end of the log of [`with_large_end`].
const LARGE_END: Offset = Offset(60);

/// A closed log whose newest segment has five batches of ten records, and the base offset of that segment.
fn with_large_end(epoch: i32) -> (Bench, Offset) {
    let config = LogConfig { segment_bytes: 480, index_interval_bytes: 100, ..LogConfig::default() };
    let mut bench = Bench::with(config);
    let mut log = bench.create();
    (0..5).for_each(|_| _ = append(&mut log, &Spec::new(2).value_bytes(60).build()));
    log.close().expect("closes");
    bench.config.segment_bytes = 100_000;
    let options = OpenOptions { recovery_point: Offset(10), ..OpenOptions::new(true) };
    let mut log = bench.open(&options);
    for _ in 0..5 {
        let batch = Spec::new(10).build();
        log.append_as_leader(&batch, LeaderEpoch(epoch), AppendOptions::default()).expect("is accepted");
    }
    log.close().expect("closes");
    let newest = *log.segment_offsets().last().expect("there is one");
    assert!((Offset(1)..=Offset(10)).contains(&newest), "{newest}");
    (bench, newest)
}

/// Puts a segment of another log beside the others, with the records from `base` to `end`.
fn put(bench: &Bench, base: Offset, end: i64, epoch: i32, with_indexes: bool) -> Vec<u8> {
    let batches: Vec<u8> =
        (base.0..end).step_by(3).flat_map(|at| Spec::new(3).value_bytes(9).at(at, epoch).build()).collect();
    bench.write_file(&log_name(base.0), &batches);
    if with_indexes {
        for suffix in [".index", ".timeindex"] {
            bench.write_file(&format!("{:020}{suffix}", base.0), &[]);
        }
    }
    batches
}

#[test]
fn segment_within_the_newest_is_set_aside_and_nothing_is_cut() {
    let bases = [20, 25, 40, 43].map(Offset);
    let stops = [(true, LARGE_END), (false, LARGE_END), (false, Offset(50)), (false, Offset(12))];
    for (base, (clean, recovery_point)) in bases.into_iter().flat_map(|base| stops.map(|stop| (base, stop))) {
        for (end, epoch, with_indexes) in [(52, 0, false), (90, 0, true), (90, 7, true), (90, 7, false)] {
            let what =
                format!("{base} to {end} in {epoch}, clean: {clean}, {recovery_point}, {with_indexes}");
            let (bench, newest) = with_large_end(0);
            let before = bench.read_file(&log_name(newest.0));
            let foreign = put(&bench, base, end, epoch, with_indexes);
            let options =
                OpenOptions { recovery_point, high_watermark: recovery_point, ..OpenOptions::new(clean) };
            let mut log = bench.open(&options);
            assert_eq!(bench.read_file(&log_name(newest.0)), before, "{what}");
            assert_eq!(log.end_at_gap().expect("it is looked through"), None, "{what}");
            assert_eq!(log.log_end_offset(), LARGE_END, "{what}");
            let (found, error) = offsets_to(&mut log, Offset(0), LARGE_END);
            assert_eq!((found, error.is_none()), ((0..LARGE_END.0).collect(), true), "{what}");
            let kept: Vec<_> = bench.set_aside();
            assert_eq!(kept.len(), 1, "{what}");
            let kept = bench.disk.read(&kept[0].join(log_name(base.0))).expect("it is kept");
            assert!(kept == foreign, "{what}");
            let may_have_more =
                (end > LARGE_END.0).then_some(Damage::Missing(Offset((end + 2 - base.0) / 3 * 3 + base.0)));
            assert_eq!(log.damage(), may_have_more, "{what}");
        }
    }
}

/// The segment is one that Apache Kafka had truncated and a power failure restored.
#[test]
fn segment_of_an_earlier_epoch_that_is_set_aside_has_no_records_that_are_missing() {
    for recovery_point in [LARGE_END, Offset(50), Offset(12)] {
        let (bench, _) = with_large_end(3);
        put(&bench, Offset(40), 90, 0, true);
        let options = OpenOptions { recovery_point, ..OpenOptions::new(false) };
        let mut log = bench.open(&options);
        assert_eq!((log.log_end_offset(), log.damage()), (LARGE_END, None), "{recovery_point}");
        let (found, error) = offsets_to(&mut log, Offset(0), LARGE_END);
        assert_eq!((found, error.is_none()), ((0..LARGE_END.0).collect(), true), "{recovery_point}");
        assert_eq!(bench.set_aside().len(), 1, "{recovery_point}");
    }
}

#[test]
fn segments_within_an_earlier_one_are_set_aside_and_those_that_follow_it_stay() {
    for (clean, recovery_point) in [(true, LARGE_END), (false, LARGE_END), (false, Offset(12))] {
        let (bench, newest) = with_large_end(0);
        let before = bench.read_file(&log_name(newest.0));
        put(&bench, Offset(23), 28, 0, true);
        put(&bench, Offset(35), 70, 0, true);
        let options = OpenOptions { recovery_point, ..OpenOptions::new(clean) };
        let mut log = bench.open(&options);
        assert_eq!(bench.read_file(&log_name(newest.0)), before);
        let (found, error) = offsets_to(&mut log, Offset(0), LARGE_END);
        assert_eq!((found, error.is_none()), ((0..LARGE_END.0).collect(), true), "{recovery_point}");
        assert_eq!((log.log_end_offset(), bench.set_aside().len()), (LARGE_END, 2));
    }
}

#[test]
fn added_segment_before_the_newest_cuts_and_replaces_nothing() {
    for (clean, recovery_point) in [(true, END), (false, END), (false, NEXT + 8)] {
        for with_indexes in [true, false] {
            let bench = closed();
            let names = [BASE, NEXT, NEXT + 6].map(|base| log_name(base.0));
            let files = || names.clone().map(|name| bench.read_file(&name));
            let before = files();
            put(&bench, NEXT + 2, END.0 + 9, 0, with_indexes);
            let options = OpenOptions { recovery_point, ..OpenOptions::new(clean) };
            let mut log = bench.open(&options);
            while log.check_next_segment().expect("looks") {}
            assert!(files() == before, "clean: {clean}, {recovery_point}");
            assert_eq!(log.damage(), Some(Damage::Unreadable(NEXT)), "clean: {clean}, {recovery_point}");
            assert_eq!(log.log_end_offset(), END);
        }
    }
}

#[test]
fn segment_behind_one_that_was_replaced_stays() {
    for (from, recovery_point) in [(1, END - 2), (1, END), (2, END - 2), (-2, END - 1)] {
        let bench = closed();
        let newest = log_name(NEXT.0 + 6);
        let before = bench.read_file(&newest);
        let batches: Vec<u8> = (NEXT.0 + from..END.0 + 9)
            .step_by(3)
            .flat_map(|at| Spec::new(3).value_bytes(9).at(at, 0).build())
            .collect();
        bench.write_file(&log_name(NEXT.0), &batches);
        let options = OpenOptions { recovery_point, high_watermark: END, ..OpenOptions::new(false) };
        let mut log = bench.open(&options);
        assert_eq!(log.end_at_gap().expect("it is looked through"), None);
        while log.check_next_segment().expect("looks") {}
        assert_eq!(bench.read_file(&newest), before, "{from}, {recovery_point}");
        assert_eq!((bench.set_aside().len(), log.log_end_offset()), (0, END), "{from}, {recovery_point}");
        assert!(matches!(log.damage(), Some(Damage::Unreadable(_))), "{from}, {recovery_point}");
    }
}

#[test]
fn bytes_of_an_earlier_epoch_than_what_follows_are_cut() {
    for recovery_point in [LARGE_END, Offset(12)] {
        let (bench, newest) = with_large_end(3);
        let name = log_name(newest.0);
        let bytes = bench.read_file(&name);
        let leftovers: Vec<u8> = [10, 20].iter().flat_map(|at| Spec::new(10).at(*at, 0).build()).collect();
        bench.write_file(&log_name(10), &bytes[bytes.len() - 5 * Spec::new(10).build().len()..]);
        let rest = bytes.len() - 5 * Spec::new(10).build().len();
        bench.write_file(&name, &[&bytes[..rest], &leftovers].concat());
        let options = OpenOptions { recovery_point, ..OpenOptions::new(false) };
        let mut log = bench.open(&options);
        while log.check_next_segment().expect("looks") {}
        assert_eq!((log.damage(), log.log_end_offset()), (None, LARGE_END), "{recovery_point}");
        let (found, error) = offsets_to(&mut log, Offset(0), LARGE_END);
        assert_eq!((found, error.is_none()), ((0..LARGE_END.0).collect(), true), "{recovery_point}");
        assert_eq!((bench.read_file(&name).len(), bench.set_aside().len()), (rest, 0));
    }
}

/// A log of some segments, with batches of some size, and its end.
fn any_log(random: &mut SmallRng) -> (Bench, Offset) {
    let config = LogConfig { segment_bytes: 700, index_interval_bytes: 150, ..LogConfig::default() };
    let bench = Bench::with(config);
    let mut log = bench.create();
    let mut epoch = 0;
    for _ in 0..random.random_range(6..40) {
        epoch += i32::from(random.random_ratio(1, 8));
        let batch = Spec::new(random.random_range(1..9)).value_bytes(random.random_range(9..40)).build();
        log.append_as_leader(&batch, LeaderEpoch(epoch), AppendOptions::default()).expect("is accepted");
    }
    let end = log.log_end_offset();
    log.set_high_watermark(end);
    log.close().expect("closes");
    (bench, end)
}

#[test]
fn no_start_cuts_or_serves_other_records_for_a_segment_that_was_put_there() {
    for seed in 0..200 {
        let random = &mut SmallRng::seed_from_u64(seed);
        let (bench, end) = any_log(random);
        let mut log = bench.open(&OpenOptions { recovery_point: end, ..OpenOptions::new(true) });
        let (first, bases) = (log.log_start_offset(), log.segment_offsets());
        let written = read_all(&mut log, first, 1 << 20);
        drop(log);
        let originals: Vec<_> = bases.iter().map(|base| bench.read_file(&log_name(base.0))).collect();
        let base = Offset(random.random_range(1..end.0));
        if bases.contains(&base) {
            continue;
        }
        let foreign_end = base.0 + random.random_range(1..30);
        put(&bench, base, foreign_end, random.random_range(0..6), random.random());
        let clean = random.random();
        let recovery_point = if clean { end } else { Offset(random.random_range(0..=end.0)) };
        let what =
            format!("seed {seed}: {base} to {foreign_end} in {bases:?}, clean: {clean}, {recovery_point}");
        let options = OpenOptions { recovery_point, high_watermark: end, ..OpenOptions::new(clean) };
        let mut log = bench.open(&options);
        log.end_at_gap().expect("it is looked through");
        let (found, error) = read_to_error(&mut log);
        assert!(written.starts_with(&found), "{what}: serves other records");
        assert!(error || found.len() == written.len(), "{what}: ends early");
        for (base, original) in bases.iter().zip(&originals) {
            let name = log_name(base.0);
            let mut places = bench.set_aside();
            places.push(bench.home().dir);
            let is_kept = |dir: &PathBuf| {
                let path = dir.join(&name);
                bench.disk.exists(&path) && bench.disk.read(&path).expect("reads") == *original
            };
            assert!(places.iter().any(is_kept), "{what}: {name}");
        }
        while log.check_next_segment().expect("looks") {}
        assert!(!error || log.damage().is_some(), "{what}");
    }
}

/// The batches from the log start on, and whether an error ends them.
fn read_to_error(log: &mut PartitionLog) -> (Vec<u8>, bool) {
    let (mut found, mut from, end) = (Vec::new(), log.log_start_offset(), log.log_end_offset());
    loop {
        match log.read(from, 300, end, true) {
            Ok(Some(slice)) => {
                let at = found.len();
                found.resize(at + slice.len, 0);
                slice.file.read_at(&mut found[at..], slice.position).expect("is read");
                let last = batches(&found[at..]).last().expect("not empty").expect("whole");
                from = last.header.next_offset();
            }
            Ok(None) => return (found, false),
            Err(_) => return (found, true),
        }
    }
}

#[test]
fn file_named_by_the_largest_offset_ends_no_start() {
    for (suffix, clean) in
        [".log", ".log.swap"].into_iter().flat_map(|suffix| [(suffix, true), (suffix, false)])
    {
        let bench = closed();
        let name = format!("{:020}{suffix}", i64::MAX);
        bench.write_file(&name, &Spec::new(2).at(END.0, 0).build());
        let options = OpenOptions { recovery_point: END, high_watermark: END, ..OpenOptions::new(clean) };
        let mut log = bench.open(&options);
        log.end_at_gap().expect("it is looked through");
        let (found, _) = offsets_to(&mut log, Offset(0), END);
        assert_eq!(found, (0..END.0).collect::<Vec<_>>(), "{suffix}, clean: {clean}");
    }
}
