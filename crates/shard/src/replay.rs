//! The walk over the records of a replayed log.

use super::{RecordDecodeError, ShardLoadError};
use thalweg_record::{DecompressBuffer, Record, batches};

/// Passes each record of whole batches to `replay`, in order, without the markers of transactions.
pub fn replay_records(
    bytes: &[u8],
    buffer: &mut DecompressBuffer,
    mut replay: impl FnMut(Record<'_>) -> Result<(), RecordDecodeError>,
) -> Result<(), ShardLoadError> {
    for batch in batches(bytes) {
        let batch = batch?;
        let header = &batch.header;
        if header.attributes.is_control() {
            continue;
        }
        let unreadable = |error| ShardLoadError::Records { offset: header.base_offset.0, error };
        for record in batch.records(buffer).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            let offset = record.offset.0;
            replay(record).map_err(|error| ShardLoadError::Record { offset, error })?;
        }
    }
    Ok(())
}
