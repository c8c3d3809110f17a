//! Rewrites a batch with a subset of its records, for log compaction.
//!
//! The batch keeps its offsets, its producer, its epoch, its codec and its flags; only the retained records,
//! their timestamps and, optionally, the delete horizon change (Kafka's `MemoryRecords.filterTo`).

use crate::attributes::{Attributes, Compression, TimestampType};
use crate::builder::{RecordLayout, complete};
use crate::compress::Compressor;
use crate::error::BatchError;
use crate::header::{BatchHeader, LOG_OVERHEAD};
use crate::record::{Header, Record};

/// A batch with the offsets, producer and flags of `original`, and only these of its records.
/// `delete_horizon_ms` is the time after which its tombstones may be removed; the caller must pass on an
/// existing one. For no records, see [`emptied`].
pub fn rebuild<'r>(
    original: &BatchHeader,
    records: impl IntoIterator<Item = Record<'r>>,
    delete_horizon_ms: Option<i64>,
) -> Result<Vec<u8>, BatchError> {
    let compression = original.attributes.compression()?;
    let mut records = records.into_iter().peekable();
    let Some(first) = records.peek() else { return Ok(emptied(original)) };
    let base_timestamp = delete_horizon_ms.unwrap_or(first.timestamp);
    let mut payload = Vec::new();
    let mut headers: Vec<Header<'r>> = Vec::new();
    let (mut max_timestamp, mut record_count) = (first.timestamp, 0);
    for record in records {
        let offset_delta = i32::try_from(record.offset - original.base_offset)
            .expect("a record lies within its batch, whose offsets span an i32");
        headers.clear();
        headers.extend(record.headers);
        let timestamp_delta = record.timestamp.wrapping_sub(base_timestamp);
        let layout = RecordLayout::new(timestamp_delta, offset_delta, record.key, record.value, &headers);
        let at = payload.len();
        payload.resize(at + layout.record_bytes, 0);
        layout.write(&mut payload[at..], record.key, record.value, &headers);
        max_timestamp = max_timestamp.max(record.timestamp);
        record_count += 1;
    }
    let mut batch = vec![0; BatchHeader::LEN];
    match compression {
        Compression::None => batch.append(&mut payload),
        codec => Compressor::new(codec, None).compress(&payload, &mut batch),
    }
    if original.attributes.timestamp_type() == TimestampType::LogAppendTime {
        max_timestamp = original.max_timestamp;
    }
    let header = BatchHeader {
        batch_length: length_of(&batch),
        attributes: original
            .attributes
            .with_timestamp_type(original.attributes.timestamp_type())
            .with_delete_horizon(delete_horizon_ms.is_some()),
        base_timestamp,
        max_timestamp,
        record_count,
        ..*original
    };
    complete(&mut batch, header);
    Ok(batch)
}

/// A batch without records in place of `original`, with its offsets and its producer's last sequence.
pub fn emptied(original: &BatchHeader) -> Vec<u8> {
    let mut batch = vec![0; BatchHeader::LEN];
    let attributes = Attributes::new(Compression::None, original.attributes.timestamp_type())
        .with_transactional(original.attributes.is_transactional())
        .with_control(original.attributes.is_control());
    let header = BatchHeader {
        batch_length: length_of(&batch),
        attributes,
        base_timestamp: original.max_timestamp,
        record_count: 0,
        ..*original
    };
    complete(&mut batch, header);
    batch
}

fn length_of(batch: &[u8]) -> i32 {
    i32::try_from(batch.len() - LOG_OVERHEAD).expect("no larger than the batch was before compression")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, BatchOptions, DecompressBuffer, Offset, ProducerId, batches, verify};

    fn original(compression: Compression) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: Offset(100),
            compression,
            producer_id: ProducerId(7),
            base_sequence: 40,
            ..BatchOptions::default()
        });
        for index in 0..5i64 {
            let headers = [Header::new("h", Some(b"v"))];
            builder.append(1000 + index, Some(b"key"), Some(&[b'a'; 30]), &headers).expect("fits");
        }
        builder.finish().to_vec()
    }

    #[test]
    fn records_keep_their_offsets_times_and_sequences() {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            for horizon in [None, Some(5_000_000)] {
                let bytes = original(compression);
                let batch = batches(&bytes).next().expect("one").expect("good");
                let mut buffer = DecompressBuffer::new(1 << 20);
                let records: Vec<_> = batch
                    .records(&mut buffer)
                    .expect("records")
                    .map(|record| record.expect("a record"))
                    .collect();
                let kept = [records[1], records[3]];
                let rebuilt = rebuild(&batch.header, kept, horizon).expect("a known codec");
                let header = verify(&rebuilt).expect("the CRC fits");
                assert_eq!(header.next_offset(), Offset(105));
                assert_eq!((header.base_offset, header.last_sequence()), (Offset(100), 44));
                assert_eq!((header.max_timestamp, header.record_count), (1003, 2));
                assert_eq!(header.delete_horizon_ms(), horizon);
                let mut buffer = DecompressBuffer::new(1 << 20);
                let rebuilt = batches(&rebuilt).next().expect("one").expect("good");
                let read: Vec<_> = rebuilt
                    .records(&mut buffer)
                    .expect("records")
                    .map(|record| record.expect("a record"))
                    .map(|record| {
                        (record.offset, record.timestamp, record.sequence, record.value.map(<[u8]>::len))
                    })
                    .collect();
                assert_eq!(read, [(Offset(101), 1001, 41, Some(30)), (Offset(103), 1003, 43, Some(30))]);
            }
        }
    }

    #[test]
    fn an_emptied_batch_holds_its_place() {
        let bytes = original(Compression::Lz4);
        let before = verify(&bytes).expect("good");
        let emptied = emptied(&before);
        let after = verify(&emptied).expect("the CRC fits");
        assert_eq!(emptied.len(), BatchHeader::LEN);
        assert_eq!(
            (after.next_offset(), after.last_sequence()),
            (before.next_offset(), before.last_sequence())
        );
        assert_eq!((after.producer_id, after.record_count), (ProducerId(7), 0));
    }
}
