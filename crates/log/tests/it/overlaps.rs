//! Segments whose records others have, too: which of them count is not known.

use thalweg_log::{Damage, OpenOptions};
use thalweg_record::Offset;

use crate::missing_segments::{BASE, END, NEXT, closed, offsets, open};
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
    let mut log = open(&bench, true);
    let (found, error) = offsets(&mut log, Offset(0));
    assert_eq!((found, error.is_none()), ((0..END.0).collect(), true), "each once");
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
