//! What the members of a share group may rely on.
//!
//! `model`: random members, acknowledgements, failed writes, crashes and deletions against a plain model of
//! every record. `acquiring`: which records a member gets. `acknowledging`: what it may say of them.

mod acknowledging;
mod acquiring;
mod bounds;
mod model;

use thalweg_share::{
    AcquireMode, AcquireRequest, ShareAcquiredRecords, ShareLimits, SharePartition, ShareState, Span,
    StateBatch,
};

const LIMITS: ShareLimits = ShareLimits { deliveries: 5, lock_ms: 30_000, in_flight: 2000, may_renew: true };

/// A group that begins at `start`.
fn begun(start: i64) -> SharePartition {
    loaded(start, &[])
}

fn loaded(start: i64, batches: &[StateBatch]) -> SharePartition {
    let state = ShareState { state_epoch: 0, start_offset: start, batches: batches.to_vec() };
    SharePartition::load(&state).expect("the state is sound")
}

/// Batches of `len` records each, 100 bytes a batch.
fn spans(from: i64, len: i64, count: i64) -> Vec<Span> {
    (0..count)
        .map(|n| Span {
            first: from + n * len,
            last: from + (n + 1) * len - 1,
            bytes: (n as u64) * 100..(n as u64 + 1) * 100,
            is_aborted: false,
        })
        .collect()
}

/// `member` acquires about `records`, at time 0.
fn acquire(partition: &mut SharePartition, member: &str, records: i64, log: &[Span]) -> ShareAcquiredRecords {
    acquire_as(partition, AcquireMode::BatchOptimised, member, records, log, 0)
}

fn acquire_as(
    partition: &mut SharePartition,
    mode: AcquireMode,
    member: &str,
    records: i64,
    log: &[Span],
    now_ms: i64,
) -> ShareAcquiredRecords {
    let wanted = AcquireRequest { member, mode, records, batch_size: records };
    let Some(offset) = partition.fetch_offset(&LIMITS) else { return ShareAcquiredRecords::default() };
    let log = log.iter().filter(|span| span.last >= offset).cloned();
    partition.acquire(&wanted, &LIMITS, now_ms, offset, log)
}

/// First offset, last offset and number of deliveries of what was acquired.
fn runs(acquired: &ShareAcquiredRecords) -> Vec<(i64, i64, i16)> {
    acquired.runs.iter().map(|run| (run.first, run.last, run.deliveries)).collect()
}
