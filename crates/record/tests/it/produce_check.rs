//! Rules for producers' batches, and which of two faults is reported.

use thalweg_record::{
    BatchBuilder, BatchError, BatchHeader, BatchOptions, ProducerId, batches, check, crc, verify,
};

use crate::samples::{batch_of, golden};

/// A good batch with `bytes` written at `at`, and the CRC that makes it whole again.
fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = batch_of(3);
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

#[test]
fn a_good_batch_passes_with_its_header() {
    let header = check(&batch_of(3)).expect("a good batch");
    assert_eq!((header.record_count, header.last_offset_delta, header.magic), (3, 2, 2));
}

#[test]
fn every_flipped_bit_under_the_crc_is_noticed() {
    let batch = batch_of(2);
    for at in 17..batch.len() {
        for bit in 0..8 {
            let mut damaged = batch.clone();
            damaged[at] ^= 1 << bit;
            assert!(matches!(check(&damaged), Err(BatchError::CrcMismatch(_))), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn a_batch_is_whole_and_alone() {
    let batch = batch_of(2);
    for len in 0..batch.len() {
        assert!(matches!(check(&batch[..len]), Err(BatchError::Truncated(_))), "{len} bytes");
    }
    let two = [&batch[..], &batch[..]].concat();
    let Err(BatchError::TrailingBytes(fault)) = check(&two) else { panic!("two batches passed") };
    assert_eq!((fault.batch_bytes, fault.trailing), (batch.len(), batch.len()));
}

#[test]
fn lengths_and_magics_that_no_batch_has_are_named() {
    let mut batch = batch_of(1);
    for length in [i32::MIN, -1, 0, 13, 14, 48] {
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        assert!(matches!(check(&batch), Err(BatchError::LengthTooSmall(_))), "{length}");
    }
    batch[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    assert!(matches!(check(&batch), Err(BatchError::Truncated(_))));
    for (magic, legacy) in [(0, true), (1, true), (3, false), (255, false)] {
        let mut batch = batch_of(1);
        batch[16] = magic;
        for bytes in [&batch[..], &batch[..17]] {
            match check(bytes) {
                Err(BatchError::LegacyMagic(_)) => assert!(legacy, "{magic}"),
                Err(BatchError::UnknownMagic(_)) => assert!(!legacy, "{magic}"),
                other => panic!("magic {magic}: {other:?}"),
            }
        }
    }
}

#[test]
fn offsets_and_counts_agree() {
    assert!(matches!(check(&with(0, &5i64.to_be_bytes())), Err(BatchError::NonZeroBaseOffset(_))));
    assert!(matches!(check(&with(23, &(-1i32).to_be_bytes())), Err(BatchError::InvalidOffsetRange(_))));
    assert!(matches!(check(&with(23, &3i32.to_be_bytes())), Err(BatchError::InconsistentRecordCount(_))));
    assert!(matches!(check(&with(57, &0i32.to_be_bytes())), Err(BatchError::InvalidRecordCount(_))));
    assert!(matches!(check(&with(57, &i32::MIN.to_be_bytes())), Err(BatchError::InvalidRecordCount(_))));
    assert!(matches!(check(&with(57, &4i32.to_be_bytes())), Err(BatchError::InconsistentRecordCount(_))));
}

#[test]
fn more_records_than_there_is_room_for_are_refused() {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for _ in 0..3 {
        builder.append(0, None, None, &[]).expect("far from full");
    }
    let smallest = builder.build();
    check(&smallest).expect("the smallest records that there are");
    for count in [4, i32::MAX] {
        let mut batch = smallest.to_vec();
        batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        batch[57..61].copy_from_slice(&count.to_be_bytes());
        let crc = crc(&batch);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        assert!(matches!(check(&batch), Err(BatchError::InvalidRecordCount(_))), "{count}");
    }
}

#[test]
fn attributes_that_are_not_a_producers_are_refused() {
    assert!(matches!(check(&with(21, &[0, 5])), Err(BatchError::UnknownCompression(_))));
    assert!(matches!(check(&with(21, &[0, 0x20])), Err(BatchError::ClientControlBatch(_))));
    assert!(matches!(check(&with(21, &[0, 0x08])), Err(BatchError::ClientLogAppendTime(_))));
    check(&with(21, &[0xff, 0x80])).expect("unused bits are ignored, as Kafka ignores them");
}

#[test]
fn a_producer_id_needs_a_sequence() {
    let options = BatchOptions { producer_id: ProducerId(9), ..Default::default() };
    let mut builder = BatchBuilder::new(options);
    builder.append(0, None, Some(b"v"), &[]).expect("far from full");
    assert!(matches!(check(builder.finish()), Err(BatchError::InvalidBaseSequence(_))));
}

#[test]
fn coordinators_batches_verify_but_do_not_pass_as_a_producers() {
    let marker = golden("control-commit.bin");
    verify(&marker).expect("a valid batch");
    assert!(matches!(check(&marker), Err(BatchError::NonZeroBaseOffset(_))));
}

#[test]
fn a_corrupt_batch_with_a_bad_count_is_corrupt() {
    let mut batch = with(57, &0i32.to_be_bytes());
    batch[17] ^= 1;
    assert!(matches!(check(&batch), Err(BatchError::CrcMismatch(_))));
}

#[test]
fn the_walk_over_batches_ends_at_the_first_that_is_torn() {
    let batch = batch_of(2);
    let mut log = [&batch[..], &batch[..], &batch[..]].concat();
    let mut walk = batches(&log);
    assert_eq!(walk.by_ref().filter(Result::is_ok).count(), 3);
    assert_eq!(walk.position(), log.len());

    log.truncate(batch.len() * 3 - 1);
    let mut walk = batches(&log);
    assert_eq!(walk.by_ref().take_while(Result::is_ok).count(), 2);
    assert_eq!(walk.position(), batch.len() * 2);
    assert!(walk.next().is_none());

    log.truncate(batch.len());
    log.extend([0; 4096]);
    let mut walk = batches(&log);
    assert!(walk.next().is_some_and(|batch| batch.is_ok()));
    assert!(matches!(walk.next(), Some(Err(BatchError::LengthTooSmall(_)))));
    assert_eq!(walk.position(), batch.len());
    assert!(batches(&[]).next().is_none());
}

#[test]
fn a_header_of_extremes_has_offsets_without_overflow() {
    let mut batch = batch_of(1);
    batch[..8].copy_from_slice(&i64::MAX.to_be_bytes());
    batch[23..27].copy_from_slice(&i32::MAX.to_be_bytes());
    let header = BatchHeader::parse(&batch).expect("a header");
    assert_eq!(header.next_offset().0, i64::MAX);
    assert_eq!(header.last_sequence(), -1);
}
