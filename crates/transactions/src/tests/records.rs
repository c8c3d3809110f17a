//! Records encoded by Apache Kafka 4.3.1 (`tests/golden/TransactionStateWriter.java`): they decode to Kafka's
//! values, and encode to Kafka's bytes.

use crate::metadata::{NO_PRODUCER_EPOCH, TransactionMetadata};
use crate::record::{TransactionRecord, decode, encode_key, encode_value};
use crate::state::TransactionState;
use thalweg_shard::RecordDecodeError;

const RECORDS: &str = include_str!("../../tests/golden/transaction-state.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn records_are_read_as_kafka_meant_them_and_written_as_kafka_wrote_them() {
    let mut count = 0;
    for line in RECORDS.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [level, id, state, producer, previous, next, epoch, client, partitions, key, value] = fields[..]
        else {
            panic!("{line}");
        };
        let number = |text: &str| text.parse::<i64>().expect("a number");
        let level = i16::try_from(number(level)).expect("small");
        let (key, value) = (bytes(key), bytes(value));
        let record = decode(Some(&key), Some(&value)).expect("Kafka wrote it").expect("of a known kind");
        assert_eq!(record.id, id);
        let metadata = record.metadata.expect("no tombstone");
        let expected = TransactionMetadata {
            producer_id: number(producer),
            previous_producer_id: if level == 0 { -1 } else { number(previous) },
            next_producer_id: if level == 0 { -1 } else { number(next) },
            producer_epoch: i16::try_from(number(epoch)).expect("small"),
            last_producer_epoch: NO_PRODUCER_EPOCH,
            timeout_ms: 60_000,
            state: TransactionState::from_name(state).expect("a state"),
            partitions: metadata.partitions.clone(),
            start_ms: if state == "Empty" { -1 } else { 1_700_000_000_000 },
            last_update_ms: 1_700_000_001_234,
            client_version: if level == 0 { 0 } else { i16::try_from(number(client)).expect("small") },
        };
        assert_eq!(metadata, expected, "{line}");
        assert_eq!(i64::try_from(metadata.partitions.len()).ok(), Some(number(partitions)));
        assert_eq!(&encode_key(id).expect("short")[..], key);
        assert_eq!(&encode_value(&metadata, level).expect("short")[..], value, "{line}");
        count += 1;
    }
    assert_eq!(count, 18);
}

#[test]
fn unknown_records_are_skipped_and_wrong_ones_are_errors() {
    let key = encode_key("app").expect("short");
    let tombstone = TransactionRecord { id: "app".to_owned(), metadata: None };
    assert_eq!(decode(Some(&key), None), Ok(Some(tombstone)));
    assert_eq!(decode(Some(&[0, 9, 1]), None), Ok(None), "a key of another type");
    assert_eq!(decode(Some(&key), Some(&[0, 7, 1])), Ok(None), "a value of a later version");
    assert_eq!(decode(None, None), Err(RecordDecodeError::NoKey));
    let metadata = TransactionMetadata::new(1, 2, 3);
    let mut value = encode_value(&metadata, 0).expect("short").to_vec();
    value[2 + 8 + 2 + 4] = 8;
    assert_eq!(decode(Some(&key), Some(&value)), Err(RecordDecodeError::TransactionStatus { status: 8 }));
    assert!(matches!(decode(Some(&key), Some(&value[..9])), Err(RecordDecodeError::Decode(_))));
}
