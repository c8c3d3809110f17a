//! A log and a snapshot that Apache Kafka 4.3.1 has written (see `tests/fixtures/README.md`).

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_metadata::{BrokerId, ConfigResource, Image, Loader, PartitionIndex};
use thalweg_record::{DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer, batches};
use thalweg_wire::{MetadataRecord, decode_metadata_value, encode_metadata_value};

use crate::support::decode_all;

fn fixture(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/kafka-4.3.1", name].iter().collect();
    std::fs::read(path).unwrap()
}

fn log() -> Vec<u8> {
    fixture("00000000000000000000.log")
}

fn snapshot() -> Vec<u8> {
    fixture("00000000000000000100-0000000002.checkpoint")
}

fn image_of(bytes: &[u8], until: i64) -> Arc<Image> {
    let mut loader = Loader::new(Arc::new(Image::empty()));
    for batch in decode_all(bytes) {
        if batch.last.offset < until {
            loader.load(batch.last, &batch.records).unwrap();
        }
    }
    loader.publish().unwrap().image
}

#[test]
fn kafkas_log_becomes_the_image_of_its_dump() {
    let image = image_of(&log(), i64::MAX);
    assert_eq!(image.offset(), 109);
    assert_eq!(image.features().metadata_version().unwrap().name(), "4.3-IV0");
    assert_eq!(image.features().level("transaction.version"), 2);
    assert_eq!(image.features().level("eligible.leader.replicas.version"), 1);
    let broker = image.broker(BrokerId(1)).unwrap();
    assert!(broker.fenced && broker.in_controlled_shutdown);
    assert_eq!(broker.endpoint("PLAINTEXT").unwrap().port, 29192);
    assert_eq!(broker.epoch.0, 74);
    let mut names: Vec<_> = image.topics().iter().map(|topic| topic.name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["alpha", "beta"]);
    let partition = image.partition("alpha", PartitionIndex(1)).unwrap();
    assert_eq!(
        (partition.leader, partition.leader_epoch, partition.partition_epoch.0),
        (BrokerId::NONE, 3, 3)
    );
    assert_eq!(
        (partition.isr.len(), partition.eligible_leader_replicas.as_slice()),
        (0, [BrokerId(1)].as_slice())
    );
    assert_eq!(image.configs().value(&ConfigResource::topic("alpha"), "segment.bytes"), Some("1048576"));
    assert_eq!(image.configs().value(&ConfigResource::topic("alpha"), "retention.ms"), None);
    assert_eq!(image.configs().value(&ConfigResource::brokers(), "log.retention.ms"), Some("360000"));
    assert_eq!(image.quotas().iter().count(), 1);
    assert_eq!(image.scram_credentials().len(), 1);
}

#[test]
fn kafkas_snapshot_is_the_image_of_its_log() {
    let from_log = image_of(&log(), 100);
    let from_snapshot = image_of(&snapshot(), i64::MAX);
    assert!(from_log.has_content_of(&from_snapshot), "{from_log:#?}\n{from_snapshot:#?}");
}

/// Features and listeners of a registration are in hash order there, and sorted by name here.
fn in_order(record: &MetadataRecord) -> String {
    let mut record = record.clone();
    match &mut record {
        MetadataRecord::RegisterBroker(r) => r.features.sort_by(|a, b| a.name.cmp(&b.name)),
        MetadataRecord::RegisterController(r) => r.features.sort_by(|a, b| a.name.cmp(&b.name)),
        _ => {}
    }
    format!("{record:?}")
}

#[test]
fn the_image_is_written_as_the_records_of_kafkas_snapshot() {
    let mut kafkas: Vec<String> =
        decode_all(&snapshot()).iter().flat_map(|batch| &batch.records).map(in_order).collect();
    let ours = image_of(&snapshot(), i64::MAX).to_records();
    assert_eq!(ours[0].record.api_key(), 12, "the metadata version comes first");
    let mut ours: Vec<String> = ours.iter().map(|record| in_order(&record.record)).collect();
    kafkas.sort();
    ours.sort();
    assert_eq!(ours, kafkas);
}

#[test]
fn every_record_of_kafka_is_encoded_to_the_same_bytes() {
    let mut count = 0;
    for bytes in [log(), snapshot()] {
        let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
        for batch in batches(&bytes) {
            let batch = batch.unwrap();
            if batch.header.attributes.is_control() {
                continue;
            }
            for record in batch.records(&mut buffer).unwrap() {
                let value = record.unwrap().value.unwrap().to_vec();
                let version = i16::from(value[2]);
                let decoded = decode_metadata_value(value.clone().into()).unwrap();
                assert_eq!(encode_metadata_value(&decoded, version).unwrap(), value, "{decoded:?}");
                count += 1;
            }
        }
    }
    assert!(count > 100);
}
