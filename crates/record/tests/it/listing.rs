//! The listing of batches that `golden/Golden.java` prints, from this crate's reading of them.

use std::fmt::Write;

use thalweg_record::{Batch, ControlRecordType, DecompressBuffer, Record, batches, verify};

/// Lists every batch and record of `bytes`, under a head with `name`.
pub fn list(name: &str, bytes: &[u8]) -> String {
    let mut out = format!("# {name}\n");
    let mut buffer = DecompressBuffer::default();
    for batch in batches(bytes) {
        let batch = batch.expect("a whole batch");
        verify(batch.bytes).expect("a valid batch");
        list_batch(&batch, &mut out);
        for record in batch.records(&mut buffer).expect("readable records") {
            list_record(&batch, &record.expect("a well-formed record"), &mut out);
        }
    }
    out
}

fn list_batch(batch: &Batch<'_>, out: &mut String) {
    let header = &batch.header;
    let attributes = header.attributes;
    let horizon = header.delete_horizon_ms().map_or("none".to_owned(), |horizon_ms| horizon_ms.to_string());
    writeln!(
        out,
        "batch size={} offsets={}..{} epoch={} codec={} time={} max={} producer={}/{} sequences={}..{} \
         transactional={} control={} horizon={horizon} count={} crc={:08x}",
        header.size_bytes(),
        header.base_offset,
        header.last_offset(),
        header.leader_epoch,
        attributes.compression().expect("a known codec"),
        attributes.timestamp_type(),
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence(),
        attributes.is_transactional(),
        attributes.is_control(),
        header.record_count,
        header.crc,
    )
    .expect("a string takes all");
}

fn list_record(batch: &Batch<'_>, record: &Record<'_>, out: &mut String) {
    let Record { offset, timestamp, sequence, key, value, headers } = *record;
    write!(
        out,
        "record offset={offset} time={timestamp} sequence={sequence} key={} value={}",
        show(key),
        show(value)
    )
    .expect("a string takes all");
    for header in headers {
        write!(out, " {}={}", show(Some(header.key)), show(header.value)).expect("a string takes all");
    }
    if batch.header.attributes.is_control() {
        let kind =
            ControlRecordType::parse_key(key.expect("a control record has a key")).expect("a good key");
        write!(out, " kind={}", kind.expect("a known kind").id()).expect("a string takes all");
    }
    out.push('\n');
}

fn show(field: Option<&[u8]>) -> String {
    match field {
        None => "null".to_owned(),
        Some(bytes) if bytes.len() <= 16 => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("'{digits}'")
        }
        Some(bytes) => {
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
            format!("{}:{crc:08x}", bytes.len())
        }
    }
}
