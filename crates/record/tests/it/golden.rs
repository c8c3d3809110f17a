//! Batches that Kafka's own classes wrote.

use thalweg_record::{
    BatchBuilder, BatchOptions, Compression, ControlRecordType, LeaderEpoch, Offset, ProducerEpoch,
    ProducerId, batches, check,
};

use crate::listing::list;
use crate::samples::{CODECS, T, append_large, append_shapes, golden, golden_names};

#[test]
fn every_golden_batch_reads_as_kafka_reads_it() {
    let names = golden_names();
    assert!(names.len() >= 22, "the listing names {} batches", names.len());
    let listing: String = names.iter().map(|name| list(name, &golden(&format!("{name}.bin")))).collect();
    let expected = String::from_utf8(golden("batches.txt")).expect("the listing is UTF-8");
    for (ours, kafkas) in listing.lines().zip(expected.lines()) {
        assert_eq!(ours, kafkas);
    }
    assert_eq!(listing.len(), expected.len());
}

#[test]
fn headers_are_written_as_they_were_read() {
    for name in golden_names() {
        let bytes = golden(&format!("{name}.bin"));
        for batch in batches(&bytes) {
            let batch = batch.expect("a whole batch");
            assert_eq!(batch.header.to_bytes(), batch.bytes[..61], "{name}");
        }
    }
}

fn assert_built_as(name: &str, options: BatchOptions, append: impl FnOnce(&mut BatchBuilder)) {
    let mut builder = BatchBuilder::new(options);
    append(&mut builder);
    assert_eq!(builder.finish(), golden(&format!("{name}.bin")), "{name}");
}

#[test]
fn uncompressed_batches_are_built_byte_for_byte_as_kafka_builds_them() {
    let plain =
        BatchOptions { base_offset: Offset(1000), leader_epoch: LeaderEpoch(7), ..Default::default() };
    assert_built_as("none", plain, append_shapes);
    let append_time = BatchOptions { log_append_time_ms: Some(T + 500), ..Default::default() };
    assert_built_as("none-log-append-time", append_time, append_shapes);
    let transactional = BatchOptions {
        base_offset: Offset(5_000_000_000),
        leader_epoch: LeaderEpoch(12),
        producer_id: ProducerId(4711),
        producer_epoch: ProducerEpoch(3),
        base_sequence: i32::MAX - 1,
        transactional: true,
        ..Default::default()
    };
    assert_built_as("transactional-sequence-wraps", transactional, append_shapes);
    assert_built_as("no-timestamp", BatchOptions::default(), |builder| {
        builder.append(-1, Some(b"k"), Some(b"v"), &[]).expect("far from full");
    });
}

#[test]
fn control_batches_are_built_byte_for_byte_as_kafka_builds_them() {
    let marker = BatchOptions {
        base_offset: Offset(50),
        leader_epoch: LeaderEpoch(3),
        producer_id: ProducerId(4711),
        producer_epoch: ProducerEpoch(3),
        transactional: true,
        control: true,
        ..Default::default()
    };
    assert_built_as("control-commit", marker, |builder| {
        builder.append_control(T, ControlRecordType::Commit, &[0, 0, 0, 0, 0, 17]).expect("far from full");
    });
    let change = BatchOptions { leader_epoch: LeaderEpoch(1), control: true, ..Default::default() };
    assert_built_as("control-leader-change", change, |builder| {
        let value = [0, 0, 0, 0, 0, 1, 1, 1, 0];
        builder.append_control(T, ControlRecordType::LeaderChange, &value).expect("far from full");
    });
}

#[test]
fn compressed_batches_are_built_with_the_records_of_kafkas() {
    for compression in CODECS.into_iter().filter(|&codec| codec != Compression::None) {
        let options = BatchOptions {
            base_offset: Offset(1000),
            leader_epoch: LeaderEpoch(7),
            compression,
            ..Default::default()
        };
        let mut builder = BatchBuilder::new(options);
        append_shapes(&mut builder);
        append_large(&mut builder);
        let ours = list("batch", builder.finish());
        let kafkas = list("batch", &golden(&format!("{compression}.bin")));
        let records = |listing: &str| -> Vec<String> { listing.lines().skip(2).map(str::to_owned).collect() };
        assert_eq!(records(&ours), records(&kafkas), "{compression}");
        assert_eq!(records(&ours).len(), 10);
    }
}

#[test]
fn the_log_takes_what_kafkas_producer_sends() {
    // The golden batches carry offsets; a producer's start at 0, which the CRC does not cover.
    for compression in CODECS {
        let mut batch = golden(&format!("{compression}.bin"));
        batch[..8].fill(0);
        let header = check(&batch).expect("a producer's batch");
        assert_eq!(header.attributes.compression(), Ok(compression));
    }
}
