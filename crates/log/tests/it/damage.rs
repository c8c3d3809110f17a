//! A flipped bit in the header of a stored batch, after every kind of stop: reads return the written bytes,
//! or nothing.

use thalweg_log::disk::{Disk, MemoryDisk};
use thalweg_log::{AppendError, AppendOptions, CleanupPolicy, Damage, LogConfig, OpenOptions, PartitionLog};
use thalweg_record::{BatchHeader, ControlRecordType, LeaderEpoch, Offset, batches, verify};

use crate::support::*;

const HEADER_BITS: usize = BatchHeader::LEN * 8;

/// A cleanly closed log of three segments and two leader epochs, with its original files and batches.
struct Original {
    bench: Bench,
    files: Vec<(std::path::PathBuf, Vec<u8>)>,
    batches: Vec<StoredBatch>,
    end: Offset,
}

#[derive(Clone, Debug, PartialEq)]
struct StoredBatch {
    segment: String,
    position: usize,
    header: BatchHeader,
    bytes: Vec<u8>,
}

impl Original {
    /// `gaps`: offsets that are left out before each batch, as compaction does.
    fn new(gaps: &[i64]) -> Original {
        let compact = gaps.iter().any(|gap| *gap > 0);
        let config = LogConfig {
            segment_bytes: 900,
            index_interval_bytes: 300,
            cleanup_policy: CleanupPolicy { compact, delete: !compact },
            file_delete_delay_ms: 0,
            ..LogConfig::default()
        };
        let mut bench = Bench::with(config);
        bench.disk = Disk::in_memory(MemoryDisk::new(bench.clock.clone()));
        let mut log = bench.create();
        let mut next = 0;
        for (index, gap) in gaps.iter().enumerate() {
            let (records, epoch) = (1 + index % 3, 3 + index as i32 / 7);
            let batch = Spec::new(records).value_bytes(50).at(next + gap, epoch).build();
            log.append_as_follower(&batch, LeaderEpoch(9)).expect("the batch follows");
            next += gap + records as i64;
        }
        log.set_high_watermark(Offset(next));
        let segments: Vec<_> = log.segment_offsets().iter().map(|base| log_name(base.0)).collect();
        assert!(segments.len() >= 3, "{segments:?}");
        log.close().expect("closes");
        let stored = |segment: &String| {
            let bytes = bench.read_file(segment);
            let mut position = 0;
            let stored = batches(&bytes).map(|batch| {
                let batch = batch.expect("whole");
                let at = position;
                position += batch.bytes.len();
                StoredBatch {
                    segment: segment.clone(),
                    position: at,
                    header: batch.header,
                    bytes: batch.bytes.to_vec(),
                }
            });
            stored.collect::<Vec<_>>()
        };
        let batches = segments.iter().flat_map(stored).collect();
        let names = bench.names();
        let files = names.iter().map(|name| (bench.file(name), bench.read_file(name))).collect();
        Original { bench, files, batches, end: Offset(next) }
    }

    fn contiguous() -> Original {
        Original::new(&[0; 20])
    }

    fn compacted() -> Original {
        Original::new(&[0, 5, 0, 1, 8, 3, 0, 2, 40, 0, 0, 6, 4, 1, 0, 16, 2, 0, 9, 4])
    }

    /// The log on a fresh disk, with one bit of a batch's header flipped.
    fn flipped(&mut self, batch: usize, bit: usize) {
        self.bench.disk = Disk::in_memory(MemoryDisk::new(self.bench.clock.clone()));
        self.bench.disk.create_dir(&self.bench.home().dir).expect("creates");
        let StoredBatch { segment, position, .. } = &self.batches[batch];
        let damaged = self.bench.file(segment);
        for (path, bytes) in &self.files {
            let mut bytes = bytes.clone();
            if *path == damaged {
                bytes[position + bit / 8] ^= 0x80 >> (bit % 8);
            }
            let file = self.bench.disk.open_or_create(path).expect("opens");
            file.write_all_at(&bytes, 0).expect("writes");
        }
    }

    /// The result of a reader that checks CRCs, from `from` on: whole batches, up to an error or the end.
    /// Also returns whether it met an error.
    fn read(&self, log: &mut PartitionLog, from: Offset) -> (Vec<(BatchHeader, Vec<u8>)>, bool) {
        let (mut read, mut from) = (Vec::new(), from);
        let end = log.log_end_offset();
        loop {
            let slice = match log.read(from, 700, end, true) {
                Ok(Some(slice)) => slice,
                Ok(None) => return (read, false),
                Err(_) => return (read, true),
            };
            let mut bytes = vec![0; slice.len];
            slice.file.read_at(&mut bytes, slice.position).expect("it can be read");
            for batch in batches(&bytes) {
                let Some(batch) = batch.ok().filter(|batch| verify(batch.bytes).is_ok()) else {
                    return (read, true);
                };
                from = batch.header.next_offset();
                read.push((batch.header, batch.bytes.to_vec()));
            }
        }
    }

    /// All reads must return the written records, without a gap.
    fn check(&self, log: &mut PartitionLog, what: &str) -> usize {
        let (read, failed) = self.read(log, Offset(0));
        for (index, (header, bytes)) in read.iter().enumerate() {
            assert_eq!(
                (header, bytes),
                (&self.batches[index].header, &self.batches[index].bytes),
                "{what}, batch {index}"
            );
        }
        if !failed && read.len() < self.batches.len() {
            let end = read.last().map_or(Offset(0), |(header, _)| header.next_offset());
            assert!(log.log_end_offset() <= end, "{what}: ends at {} behind {end}", log.log_end_offset());
        }
        read.len()
    }

    /// Whether a batch fits at the offset of the flipped bit, within the gap around it: this cannot be
    /// detected.
    fn is_hidden(&self, batch: usize, bit: usize) -> bool {
        let header = self.batches[batch].header;
        let found = header.base_offset.0 ^ i64::MIN.rotate_right(u32::try_from(bit).expect("it is small"));
        let from = batch.checked_sub(1).map_or(Offset(0), |before| self.batches[before].header.next_offset());
        let to = self.batches.get(batch + 1).map_or(Offset(i64::MAX), |next| next.header.base_offset);
        bit < 64
            && batch + 1 < self.batches.len()
            && found >= from.0
            && found < to.0 - i64::from(header.last_offset_delta)
    }

    /// Whether the flipped bit makes a batch one of an epoch that fits those beside it: then only the
    /// checkpoint speaks against it, which may be that of another time.
    fn fits_neighbours(&self, batch: usize, bit: usize) -> bool {
        let epoch_of = |batch: usize| self.batches.get(batch).map(|batch| batch.header.leader_epoch.0);
        let (before, next) = (batch.checked_sub(1).and_then(epoch_of), epoch_of(batch + 1));
        let epoch = epoch_of(batch).expect("it is there");
        let is_near = (96 + 21..128).contains(&bit);
        (96..128).contains(&bit) && {
            let flipped = epoch ^ i32::MIN.rotate_right(bit as u32 - 96);
            let rises =
                before.is_none_or(|before| before <= flipped) && next.is_none_or(|next| flipped <= next);
            rises && (is_near || [before, next].contains(&Some(flipped)))
        }
    }
}

fn samples(original: &Original) -> Vec<usize> {
    let last = original.batches.len() - 1;
    let first_of_segments = (1..last).filter(|&index| original.batches[index].position == 0);
    let mut samples: Vec<_> =
        [0, 1, last / 2, last - 1, last].into_iter().chain(first_of_segments.clone()).collect();
    samples.extend(first_of_segments.map(|index| index - 1));
    samples.sort_unstable();
    samples.dedup();
    samples
}

#[test]
fn a_flipped_header_bit_is_put_right_or_ends_the_log_after_an_unclean_stop() {
    is_put_right_or_ends_the_log(Original::contiguous());
}

#[test]
fn a_flipped_header_bit_is_put_right_or_ends_a_compacted_log_after_an_unclean_stop() {
    is_put_right_or_ends_the_log(Original::compacted());
}

fn is_put_right_or_ends_the_log(mut original: Original) {
    let compact = original.bench.config.cleanup_policy.compact;
    for batch in samples(&original) {
        let is_known =
            |bit: &usize| !original.is_hidden(batch, *bit) && !original.fits_neighbours(batch, *bit);
        for bit in (0..HEADER_BITS).filter(is_known).collect::<Vec<_>>() {
            for recovery_point in [Offset(0), original.end] {
                original.flipped(batch, bit);
                let what = format!("compact {compact}, batch {batch}, bit {bit}, synced to {recovery_point}");
                let options = OpenOptions { recovery_point, ..OpenOptions::new(false) };
                let mut log = original.bench.open(&options);
                log.end_at_gap().expect("it is looked through");
                let doubt = log.doubtful_from();
                if let Some(doubt) = doubt {
                    log.truncate_to(doubt).expect("it can be cut");
                }
                let count = original.check(&mut log, &what);
                // A follower fetches the last batch again where a gap before it may be damage.
                let all = original.batches.len() - usize::from(compact && doubt.is_some());
                assert!(count == all || count <= batch, "{what}: {count} batches");
                let all = original.batches.len();
                if recovery_point == Offset(0) && count < all && doubt.is_none() {
                    assert!(!original.bench.set_aside().is_empty() || batch == all - 1, "{what}");
                }
                if bit < 64 && !compact && batch + 1 < all {
                    assert_eq!(count, all, "{what}: the offset is known");
                }
                append_next(&mut log);
            }
        }
    }
}

#[test]
fn a_flipped_header_bit_is_not_served_after_a_clean_stop() {
    for mut original in [Original::contiguous(), Original::compacted()] {
        let compact = original.bench.config.cleanup_policy.compact;
        for batch in samples(&original) {
            let is_known =
                |bit: &usize| !original.is_hidden(batch, *bit) && !original.fits_neighbours(batch, *bit);
            for bit in (0..HEADER_BITS).filter(is_known).collect::<Vec<_>>() {
                original.flipped(batch, bit);
                let what = format!("compact {compact}, batch {batch}, bit {bit}");
                let options = OpenOptions { recovery_point: original.end, ..OpenOptions::new(true) };
                let mut log = original.bench.open(&options);
                if let Some(doubt) = log.doubtful_from() {
                    log.truncate_to(doubt).expect("it can be cut");
                }
                let count = original.check(&mut log, &what);
                assert!(count == original.batches.len() || count <= batch, "{what}: {count} batches");
                // From any other place, too.
                for (index, stored) in original.batches.iter().enumerate() {
                    if log.log_end_offset() < stored.header.next_offset() {
                        continue;
                    }
                    if let (Some((header, bytes)), _) = {
                        let (read, failed) = original.read(&mut log, stored.header.base_offset);
                        (read.into_iter().next(), failed)
                    } {
                        assert_eq!(
                            (&header, &bytes),
                            (&stored.header, &stored.bytes),
                            "{what}, from {index}"
                        );
                    }
                }
                append_next(&mut log);
            }
        }
    }
}

#[test]
fn dropped_damage_can_be_fetched_again() {
    for mut original in [Original::contiguous(), Original::compacted()] {
        let mut damaged = 0;
        for batch in samples(&original) {
            for bit in (0..HEADER_BITS).step_by(3) {
                original.flipped(batch, bit);
                let what = format!("batch {batch}, bit {bit}");
                let options = OpenOptions { recovery_point: original.end, ..OpenOptions::new(true) };
                let mut log = original.bench.open(&options);
                log.set_high_watermark(original.end);
                let start = log.log_start_offset();
                original.read(&mut log, start);
                // A wrong CRC is found by the reader only.
                let Some(damage) = log.damage() else { continue };
                damaged += usize::from(matches!(damage, Damage::Unreadable(_)));
                assert!(log.published().is_damaged());
                log.drop_damage().expect("it can be cut");
                assert_eq!(
                    (log.damage(), log.published().is_damaged(), log.poison()),
                    (None, false, None),
                    "{what}"
                );
                let (kept, has_failed) = original.read(&mut log, start);
                assert!(!has_failed && kept.len() <= batch, "{what}: {} batches", kept.len());
                for stored in &original.batches[kept.len()..] {
                    log.append_as_follower(&stored.bytes, LeaderEpoch(9)).expect("it follows");
                }
                let (read, has_failed) = original.read(&mut log, start);
                let whole: Vec<_> = original.batches.iter().map(|b| (b.header, b.bytes.clone())).collect();
                assert!(!has_failed && read == whole, "{what}");
            }
        }
        assert!(damaged > 20, "{damaged}");
    }
}

#[test]
fn a_truncated_log_ends_with_its_last_batch() {
    let original = &mut Original::contiguous();
    for (index, stored) in original.batches.clone().iter().enumerate() {
        for offset in stored.header.base_offset.0..stored.header.next_offset().0 {
            original.flipped(0, 0);
            let mut log = original.bench.open(&OpenOptions::new(true));
            log.truncate_to(Offset(offset)).expect("it can be cut");
            assert_eq!(log.log_end_offset(), stored.header.base_offset, "to {offset}, within batch {index}");
        }
    }
}

#[test]
fn a_follower_refuses_a_batch_that_leaves_a_hole() {
    let bench = Bench::new();
    let mut log = bench.create();
    let at = |base, epoch| Spec::new(2).at(base, epoch).build();
    log.append_as_follower(&at(0, 3), LeaderEpoch(5)).expect("it follows");
    let refused = log.append_as_follower(&at(3, 3), LeaderEpoch(5));
    assert!(matches!(refused, Err(AppendError::OffsetsMissing(_))), "{refused:?}");
    let both = [at(2, 3), at(6, 3)].concat();
    let info = log.append_as_follower(&both, LeaderEpoch(5)).expect("the first follows");
    assert_eq!((info.last_offset, log.log_end_offset()), (Offset(3), Offset(4)));
    for epoch in [2, 6] {
        let refused = log.append_as_follower(&at(4, epoch), LeaderEpoch(5));
        assert!(matches!(refused, Err(AppendError::UnexpectedEpoch(_))), "{refused:?}");
    }
    log.accept_gaps();
    log.append_as_follower(&at(6, 3), LeaderEpoch(5)).expect("gaps are as the leader has them");
    // An offset that the next batch contradicts is damage in any log.
    let damaged = [at(8, 3), at(8 + 1024, 3), at(12, 3)].concat();
    log.append_as_follower(&damaged, LeaderEpoch(5)).expect("the first follows");
    assert_eq!(log.log_end_offset(), Offset(10));
}

#[test]
fn damage_in_the_first_batch_of_the_newest_segment_does_not_refuse_appends() {
    let mut original = Original::contiguous();
    let first_of_newest =
        original.batches.iter().rposition(|batch| batch.position == 0).expect("there is one");
    for bit in 0..HEADER_BITS {
        original.flipped(first_of_newest, bit);
        let mut log = original.bench.open(&OpenOptions::new(true));
        for _ in 0..3 {
            append_next(&mut log);
        }
        assert_eq!(log.poison(), None, "bit {bit}");
    }
}

#[test]
fn a_lost_or_damaged_transaction_index_is_made_again() {
    let config = LogConfig { segment_bytes: 700, ..LogConfig::default() };
    let bench = Bench::with(config);
    let mut log = bench.create();
    for round in 0..12 {
        let kind = if round % 3 == 0 { ControlRecordType::Commit } else { ControlRecordType::Abort };
        append(&mut log, &Spec::new(2).producer(7, 0, round * 2).transactional().build());
        append(&mut log, &Spec::new(1).producer(8, 0, round).transactional().build());
        append_marker(&mut log, &marker(7, 0, kind, 1));
        append_marker(&mut log, &marker(8, 0, ControlRecordType::Commit, 1));
    }
    let end = log.log_end_offset();
    log.set_high_watermark(end);
    let aborted = log.aborted_transactions(Offset(0), end).expect("it is read");
    assert_eq!(aborted.len(), 8);
    log.close().expect("closes");
    let indexes: Vec<_> = bench.names().into_iter().filter(|name| name.ends_with(".txnindex")).collect();
    assert!(indexes.len() >= 3, "{indexes:?}");
    let sums = "transaction-index-checkpoint";
    for name in &indexes {
        let whole = bench.read_file(name);
        let cuts = [0, 1, whole.len() - 1, whole.len() - 34].map(|len| Some(whole[..len].to_vec()));
        let flips = (0..whole.len()).map(|at| {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            Some(flipped)
        });
        for variant in cuts.into_iter().chain(flips).chain([None]) {
            for clean in [true, false] {
                match &variant {
                    Some(bytes) => bench.write_file(name, bytes),
                    None => bench.disk.remove(&bench.file(name)).expect("removes"),
                }
                let mut log = bench.open(&OpenOptions { recovery_point: end, ..OpenOptions::new(clean) });
                let found = log.aborted_transactions(Offset(0), end).expect("it is read");
                assert_eq!(found, aborted, "{name} is {variant:?}, clean {clean}");
                assert!(bench.read_file(name) == whole, "{name} was {variant:?}");
                log.close().expect("closes");
            }
        }
    }
    for garbage in [&b""[..], b"0\n0\n", b"0\n1\n0 0 0\n", b"\xff", b"0\n9\n1 2 3\n"] {
        bench.write_file(sums, garbage);
        let mut log = bench.open(&OpenOptions { recovery_point: end, ..OpenOptions::new(true) });
        assert_eq!(log.aborted_transactions(Offset(0), end).expect("it is read"), aborted);
        log.close().expect("closes");
    }
}

fn append_next(log: &mut PartitionLog) {
    let batch = Spec::new(1).value_bytes(200).build();
    log.append_as_leader(&batch, LeaderEpoch(9), AppendOptions::default()).expect("the batch is accepted");
}
