//! Built batches read back equal.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use thalweg_record::{
    Batch, BatchBuilder, BatchOptions, Compression, DecompressBuffer, Header, LeaderEpoch, Offset,
    ProducerEpoch, ProducerId, check, verify,
};

use crate::samples::CODECS;

type OwnedHeader = (String, Option<Vec<u8>>);

#[derive(Debug, PartialEq)]
struct OwnedRecord {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<OwnedHeader>,
}

fn random_bytes(random: &mut SmallRng) -> Option<Vec<u8>> {
    let len = match random.random_range(0..10) {
        0 => return None,
        1 => 0,
        2 => random.random_range(60..70),
        3 => random.random_range(8180..8200),
        _ => random.random_range(1..200),
    };
    let mut bytes = vec![0; len];
    random.fill_bytes(&mut bytes);
    Some(bytes)
}

fn random_record(random: &mut SmallRng) -> OwnedRecord {
    let timestamp = match random.random_range(0..4) {
        0 => random.random(),
        _ => random.random_range(0..2_000_000_000_000),
    };
    let headers =
        (0..random.random_range(0..3)).map(|i| (format!("header-{i}"), random_bytes(random))).collect();
    OwnedRecord { timestamp, key: random_bytes(random), value: random_bytes(random), headers }
}

fn append(builder: &mut BatchBuilder, record: &OwnedRecord) {
    let headers: Vec<Header<'_>> =
        record.headers.iter().map(|(key, value)| Header::new(key, value.as_deref())).collect();
    let (key, value) = (record.key.as_deref(), record.value.as_deref());
    let before = builder.uncompressed_bytes();
    let expected = builder.record_bytes(record.timestamp, key, value, &headers);
    builder.append(record.timestamp, key, value, &headers).expect("far from full");
    assert_eq!(builder.uncompressed_bytes() - before, expected);
}

fn read(bytes: &[u8], buffer: &mut DecompressBuffer) -> Vec<OwnedRecord> {
    let batch = Batch::parse(bytes).expect("a whole batch");
    let records = batch.records(buffer).expect("readable");
    let owned = |record: thalweg_record::Record<'_>| OwnedRecord {
        timestamp: record.timestamp,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record
            .headers
            .map(|header| {
                (header.key_str().expect("UTF-8 was written").to_owned(), header.value.map(<[u8]>::to_vec))
            })
            .collect(),
    };
    records.map(|record| owned(record.expect("well-formed"))).collect()
}

#[test]
fn random_batches_come_back_from_one_builder_and_one_buffer() {
    let mut random = SmallRng::seed_from_u64(2024);
    for compression in CODECS {
        let mut builder =
            BatchBuilder::with_capacity(BatchOptions { compression, ..Default::default() }, 100);
        let mut buffer = DecompressBuffer::default();
        for round in 0..50 {
            let count = random.random_range(1..200);
            let records: Vec<OwnedRecord> = (0..count).map(|_| random_record(&mut random)).collect();
            for record in &records {
                append(&mut builder, record);
            }
            let max = records.iter().map(|record| record.timestamp).max().expect("at least one");
            // Alternately, so that both ways of taking a batch leave the builder fit for the next.
            let bytes = if round % 2 == 0 { builder.build().to_vec() } else { builder.finish().to_vec() };
            builder.reset();
            let header = check(&bytes).expect("a producer's batch");
            assert_eq!((header.max_timestamp, header.record_count), (max, count));
            assert_eq!(read(&bytes, &mut buffer), records, "{compression} round {round}");
        }
    }
}

#[test]
fn a_batch_without_records_is_nothing() {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    assert!(builder.finish().is_empty());
    assert!(builder.build().is_empty());
}

#[test]
fn appending_goes_on_after_a_look_at_the_batch() {
    for compression in CODECS {
        let mut builder = BatchBuilder::new(BatchOptions { compression, ..Default::default() });
        builder.append(5, None, Some(b"one"), &[]).expect("far from full");
        assert_eq!(check(builder.finish()).expect("good").record_count, 1);
        builder.append(6, None, Some(b"two"), &[]).expect("far from full");
        assert_eq!(check(builder.finish()).expect("good").record_count, 2);
    }
}

#[test]
fn identity_is_set_batch_by_batch() {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for sequence in [0, 1, i32::MAX] {
        builder.set_producer(ProducerId(7), ProducerEpoch(1), sequence);
        builder.set_base_offset(Offset(i64::from(sequence)));
        builder.set_leader_epoch(LeaderEpoch(3));
        builder.set_transactional(true);
        builder.append(0, None, None, &[]).expect("far from full");
        let header = verify(&builder.build()).expect("good");
        assert_eq!((header.producer_id, header.producer_epoch), (ProducerId(7), ProducerEpoch(1)));
        assert_eq!((header.base_sequence, header.last_sequence()), (sequence, sequence));
        assert_eq!((header.base_offset, header.leader_epoch), (Offset(i64::from(sequence)), LeaderEpoch(3)));
        assert!(header.attributes.is_transactional());
    }
}

#[test]
fn the_estimate_learns_from_the_batch_before() {
    let mut builder =
        BatchBuilder::new(BatchOptions { compression: Compression::Zstd, ..Default::default() });
    let fill = |builder: &mut BatchBuilder| {
        for _ in 0..100 {
            builder.append(0, None, Some(&[b'x'; 100]), &[]).expect("far from full");
        }
    };
    fill(&mut builder);
    assert!(builder.size_estimate() >= builder.uncompressed_bytes());
    let size = builder.build().len();
    fill(&mut builder);
    assert!(builder.size_estimate() >= size && builder.size_estimate() < 3 * size);

    let mut builder = BatchBuilder::new(BatchOptions::default());
    fill(&mut builder);
    assert_eq!(builder.size_estimate(), builder.finish().len());
}

#[test]
fn builders_and_buffers_move_between_threads() {
    fn moves<T: Send>(_: T) {}
    moves(BatchBuilder::new(BatchOptions { compression: Compression::Zstd, ..Default::default() }));
    moves(DecompressBuffer::default());
}
