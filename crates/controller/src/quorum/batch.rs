//! Batches of the metadata log and of its snapshots, as bytes.

use bytes::Bytes;
use thalweg_record::{BatchBuilder, BatchOptions, ControlRecordType, LeaderEpoch, Offset};

use crate::state::{BATCH_OVERHEAD, RECORD_OVERHEAD};

/// A batch of metadata records. The caller has bounded its size.
pub(crate) fn encode_batch(base_offset: i64, epoch: i32, now_ms: i64, values: &[Bytes]) -> Bytes {
    let options = BatchOptions {
        base_offset: Offset(base_offset),
        leader_epoch: LeaderEpoch(epoch),
        ..BatchOptions::default()
    };
    let size = values.iter().map(|value| value.len() + RECORD_OVERHEAD).sum::<usize>() + BATCH_OVERHEAD;
    let mut builder = BatchBuilder::with_capacity(options, size);
    for value in values {
        builder
            .append(now_ms, None, Some(value), &[])
            .expect("a metadata batch is far below a batch's limit");
    }
    builder.build()
}

/// A batch of control records.
pub(crate) fn encode_control_batch(
    base_offset: i64,
    epoch: i32,
    now_ms: i64,
    records: &[(ControlRecordType, Bytes)],
) -> Bytes {
    let options = BatchOptions {
        base_offset: Offset(base_offset),
        leader_epoch: LeaderEpoch(epoch),
        control: true,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::with_capacity(options, 512);
    for (kind, value) in records {
        builder.append_control(now_ms, *kind, value).expect("a control batch is far below a batch's limit");
    }
    builder.build()
}
