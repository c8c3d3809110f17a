//! Reading past damage: nothing that can be read is left out, and each offset that cannot is named.

use thalweg_log::{LogConfig, LogError, PartitionLog, Salvage, SalvageStep};
use thalweg_record::{BatchBuilder, BatchHeader, BatchOptions, Offset};

use crate::support::*;

/// Batches of one segment, and the records of each.
const BATCHES: i64 = 9;
const RECORDS: i64 = 3;
const END: i64 = BATCHES * RECORDS;

/// A log of two segments with the same number of batches, and the bytes of the first.
fn written(bench: &Bench) -> (PartitionLog, Vec<u8>) {
    let mut log = bench.create();
    let batch_bytes = Spec::new(RECORDS as usize).build().len();
    assert_eq!(bench.config.segment_bytes as usize, batch_bytes * BATCHES as usize);
    for _ in 0..2 * BATCHES {
        append(&mut log, &Spec::new(RECORDS as usize).build());
    }
    assert_eq!(log.segment_offsets(), [Offset(0), Offset(END)]);
    let mut bytes = bench.read_file(&log_name(0));
    // There may be room for more behind the batches.
    bytes.truncate(bench.config.segment_bytes as usize);
    (log, bytes)
}

fn bench() -> Bench {
    let batch_bytes = Spec::new(RECORDS as usize).build().len();
    let segment_bytes = u32::try_from(batch_bytes * BATCHES as usize).expect("small");
    Bench::with(LogConfig { segment_bytes, ..LogConfig::default() })
}

/// A batch is as large as those of this log.
fn salvaged(log: &mut PartitionLog, from: Offset) -> Result<Salvage, LogError> {
    log.salvage(from, Spec::new(RECORDS as usize).build().len())
}

/// Offsets from one up to another.
type Offsets = (i64, i64);

/// The offsets of the batches that are salvaged, and the damage between them.
fn all(mut salvage: Salvage) -> (Vec<Offsets>, Vec<Offsets>) {
    let (mut sound, mut damage, mut end) = (Vec::new(), Vec::new(), 0);
    while let Some(step) = salvage.step().expect("the file can be read") {
        let (from, to) = match step {
            SalvageStep::Batch(bytes) => {
                let header = thalweg_record::verify(&bytes).expect("the batch is sound");
                sound.push((header.base_offset.0, header.next_offset().0));
                (header.base_offset.0, header.next_offset().0)
            }
            SalvageStep::Damage(range) => {
                damage.push((range.start.0, range.end.0));
                (range.start.0, range.end.0)
            }
        };
        assert!(end <= from && from < to, "in order");
        end = to;
    }
    assert_eq!(salvage.step().expect("the file can be read"), None, "it stays at its end");
    (sound, damage)
}

/// The batches of the first segment without these.
fn without(indexes: &[i64]) -> Vec<(i64, i64)> {
    let kept = (0..BATCHES).filter(|index| !indexes.contains(index));
    kept.map(|index| (index * RECORDS, (index + 1) * RECORDS)).collect()
}

fn of_batches(from: i64, to: i64) -> (i64, i64) {
    (from * RECORDS, to * RECORDS)
}

#[test]
fn every_flipped_bit_costs_its_batch_at_most() {
    let bench = bench();
    let (mut log, bytes) = written(&bench);
    let size = bytes.len() / BATCHES as usize;
    for index in [0, 4, BATCHES - 1] {
        for bit in 0..size * 8 {
            let at = size * index as usize + bit / 8;
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (bit % 8);
            bench.write_file(&log_name(0), &damaged);
            let (sound, damage) = all(salvaged(&mut log, Offset(0)).expect("opens"));
            let byte = bit / 8;
            let place = format!("batch {index}, byte {byte}, bit {bit}");
            // No CRC covers base offset and leader epoch.
            if byte < 8 || (12..16).contains(&byte) {
                assert_eq!((sound, damage), (without(&[]), vec![]), "{place}");
            } else {
                assert_eq!(sound, without(&[index]), "{place}");
                assert_eq!(damage, [of_batches(index, index + 1)], "{place}");
            }
        }
    }
}

#[test]
fn batches_behind_overwritten_bytes_are_found() {
    for fill in [0, 0xA5, 0xFF] {
        let bench = bench();
        let (mut log, bytes) = written(&bench);
        let size = bytes.len() / BATCHES as usize;
        let mut damaged = bytes.clone();
        // From within the second batch to within the fourth, and the seventh from its header on.
        damaged[size * 3 / 2..size * 7 / 2].fill(fill);
        damaged[size * 6 + 4..size * 7].fill(fill);
        bench.write_file(&log_name(0), &damaged);
        let (sound, damage) = all(salvaged(&mut log, Offset(0)).expect("opens"));
        assert_eq!(sound, without(&[1, 2, 3, 6]), "{fill}");
        assert_eq!(damage, [of_batches(1, 4), of_batches(6, 7)], "{fill}");
    }
}

#[test]
fn segment_without_a_sound_batch_is_damage_to_its_end() {
    let bench = bench();
    let (mut log, bytes) = written(&bench);
    for rest in [vec![0xA5; bytes.len()], Vec::new()] {
        bench.write_file(&log_name(0), &rest);
        let salvage = salvaged(&mut log, Offset(0)).expect("opens");
        assert_eq!(salvage.end_offset(), Offset(END), "the next segment is read as usual");
        assert_eq!(all(salvage), (vec![], vec![(0, END)]));
    }
}

#[test]
fn cut_segment_lacks_its_last_batches() {
    let bench = bench();
    let (mut log, bytes) = written(&bench);
    let size = bytes.len() / BATCHES as usize;
    for cut in [size * 5, size * 5 + 30, size * 5 + BatchHeader::LEN + 3] {
        bench.write_file(&log_name(0), &bytes[..cut]);
        let (sound, damage) = all(salvaged(&mut log, Offset(0)).expect("opens"));
        assert_eq!(sound, without(&[5, 6, 7, 8]), "{cut}");
        assert_eq!(damage, [of_batches(5, BATCHES)], "{cut}");
    }
}

#[test]
fn salvage_begins_at_an_offset() {
    let bench = bench();
    let (mut log, bytes) = written(&bench);
    let size = bytes.len() / BATCHES as usize;
    let mut damaged = bytes.clone();
    for index in [1, 5] {
        damaged[size * index + BatchHeader::LEN] ^= 1;
    }
    bench.write_file(&log_name(0), &damaged);
    for (from, kept, lost) in [
        (2 * RECORDS, 2, vec![of_batches(5, 6)]),
        (2 * RECORDS + 1, 2, vec![of_batches(5, 6)]),
        (RECORDS + 1, 2, vec![(RECORDS + 1, 2 * RECORDS), of_batches(5, 6)]),
        (5 * RECORDS + 2, 6, vec![(5 * RECORDS + 2, 6 * RECORDS)]),
        (6 * RECORDS, 6, vec![]),
    ] {
        let (sound, damage) = all(salvaged(&mut log, Offset(from)).expect("opens"));
        let expected: Vec<_> =
            without(&[1, 5]).into_iter().filter(|(first, _)| *first >= kept * RECORDS).collect();
        assert_eq!((sound, damage), (expected, lost), "{from}");
    }
    let (sound, damage) = all(salvaged(&mut log, Offset(END + 1)).expect("opens"));
    assert_eq!((sound.len() as i64, damage), (BATCHES, vec![]), "the next segment");
}

#[test]
fn gaps_of_a_compacted_segment_are_no_damage() {
    let bench = bench();
    let (mut log, bytes) = written(&bench);
    let size = bytes.len() / BATCHES as usize;
    let batch = |index: usize| bytes[size * index..size * (index + 1)].to_vec();
    let mut kept = [batch(0), batch(3), batch(4), batch(7)].concat();
    // The fault for which the segment is read this way.
    kept[size * 2 + BatchHeader::LEN] ^= 1;
    log.close().expect("closes");
    drop(log);
    bench.write_file(&log_name(0), &kept);
    let mut log = bench.open_clean();
    let (sound, damage) = all(salvaged(&mut log, Offset(0)).expect("opens"));
    assert_eq!(sound, without(&[1, 2, 4, 5, 6, 8]));
    assert_eq!(damage, [(4 * RECORDS, 7 * RECORDS)], "all that may have been there");
}

/// A batch whose base offset is wrong in more than one bit cannot be placed, and is no reason to leave out
/// others.
#[test]
fn batch_of_another_place_is_left_out() {
    let bench = bench();
    let (mut log, bytes) = written(&bench);
    let size = bytes.len() / BATCHES as usize;
    for base_offset in [0, 5 * RECORDS + 1, END, i64::MAX] {
        let mut damaged = bytes.clone();
        damaged[size * 4..size * 4 + 8].copy_from_slice(&base_offset.to_be_bytes());
        bench.write_file(&log_name(0), &damaged);
        let (sound, damage) = all(salvaged(&mut log, Offset(0)).expect("opens"));
        assert_eq!(sound, without(&[4]), "{base_offset}");
        assert_eq!(damage, [of_batches(4, 5)], "{base_offset}");
    }
}

/// Reads of such a segment may fail without lost records.
#[test]
fn gap_before_the_next_segment_is_no_damage_of_a_compacted_one() {
    let bench = bench();
    let (mut log, bytes) = written(&bench);
    let size = bytes.len() / BATCHES as usize;
    log.close().expect("closes");
    drop(log);
    let mut kept = bytes[..size * 6].to_vec();
    // The leader epoch, which no CRC covers.
    kept[size * 3 + 15] ^= 3;
    bench.write_file(&log_name(0), &kept);
    let mut log = bench.open_clean();
    let (sound, damage) = all(salvaged(&mut log, Offset(0)).expect("opens"));
    assert_eq!((sound, damage), (without(&[6, 7, 8]), vec![]));
}

/// A segment of these batches, and another one.
fn with_first(batches: &[Vec<u8>]) -> (Bench, PartitionLog) {
    let segment_bytes = u32::try_from(batches.iter().map(Vec::len).sum::<usize>()).expect("small");
    let bench = Bench::with(LogConfig { segment_bytes, ..LogConfig::default() });
    let mut log = bench.create();
    batches.iter().for_each(|batch| _ = append(&mut log, batch));
    append(&mut log, &batches[0]);
    assert_eq!(log.segment_offsets().len(), 2);
    (bench, log)
}

/// A batch whose middle record has this value.
fn around(value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for value in [&b"before"[..], value, &b"behind"[..]] {
        builder.append(NOW_MS, Some(b"key"), Some(value), &[]).expect("the record fits");
    }
    builder.finish().to_vec()
}

/// Clients choose what is in their members' metadata.
#[test]
fn batch_in_a_record_is_no_batch_of_the_log() {
    let small = || Spec::new(RECORDS as usize).build();
    for forged_at in 0..3 * RECORDS {
        let value =
            [Spec::new(1).at(forged_at, 0).build(), Spec::new(1).at(forged_at + 1, 0).build()].concat();
        for index in [0, 1, 3] {
            let mut batches = vec![small(), small(), small()];
            batches.insert(index, around(&value));
            let (bench, mut log) = with_first(&batches);
            let start: usize = batches[..index].iter().map(Vec::len).sum();
            let mut bytes = bench.read_file(&log_name(0));
            bytes[start..start + BatchHeader::LEN].fill(0xA5);
            bench.write_file(&log_name(0), &bytes);
            let salvage = log.salvage(Offset(0), batches[index].len()).expect("opens");
            let (sound, damage) = all(salvage);
            let lost = index as i64;
            let expected: Vec<_> =
                (0..4).filter(|index| *index != lost).map(|index| of_batches(index, index + 1)).collect();
            assert_eq!(
                (sound, damage),
                (expected, vec![of_batches(lost, lost + 1)]),
                "{forged_at} in {lost}"
            );
        }
    }
}

/// The bytes between two damaged headers could be records of one batch; those between a whole header and a
/// damaged one are not.
#[test]
fn whole_header_leads_to_batches_before_further_damage() {
    let bench = bench();
    let (mut log, bytes) = written(&bench);
    let size = bytes.len() / BATCHES as usize;
    for (header_at, lost) in [(size + BatchHeader::LEN, vec![1, 6]), (size, vec![1, 2, 3, 4, 5, 6])] {
        let mut damaged = bytes.clone();
        damaged[header_at..][..BatchHeader::LEN / 2].fill(0xA5);
        damaged[size * 6..][..BatchHeader::LEN].fill(0xA5);
        bench.write_file(&log_name(0), &damaged);
        let (sound, _) = all(log.salvage(Offset(0), 1 << 20).expect("opens"));
        assert_eq!(sound, without(&lost), "{header_at}");
    }
}

#[test]
fn headers_in_a_record_do_not_keep_batches_behind_it_from_being_found() {
    const HEADERS: usize = 400;
    let header = |index: usize| {
        let mut header = Spec::new(1).at(RECORDS, 0).build();
        header.truncate(BatchHeader::LEN);
        let length = (HEADERS - index) * BatchHeader::LEN - 12;
        header[8..12].copy_from_slice(&i32::try_from(length).expect("small").to_be_bytes());
        header
    };
    let value: Vec<u8> = (0..HEADERS).flat_map(header).collect();
    let small = || Spec::new(RECORDS as usize).build();
    let batches = [small(), around(&value), small(), small()];
    let (bench, mut log) = with_first(&batches);
    let mut bytes = bench.read_file(&log_name(0));
    bytes[batches[0].len()..][..BatchHeader::LEN].fill(0xA5);
    bench.write_file(&log_name(0), &bytes);
    let (sound, damage) = all(log.salvage(Offset(0), batches[1].len()).expect("opens"));
    assert_eq!(damage, [of_batches(1, 2)]);
    assert_eq!(sound, [of_batches(0, 1), of_batches(2, 3), of_batches(3, 4)]);
}
