//! Reading for a member: finds the next offset of a share partition, reads the log there, and acquires the
//! records.
//!
//! All steps happen under the lock of the share partition, so that two members never consider the same
//! records. Of the log, only the headers of the returned batches are read.

use super::led::LedSharePartition;
use super::sessions::ShareSessionEnd;
use super::settings::ShareSettings;
use thalweg_log::{AbortedTransaction, BatchPlace, LogSlice};
use thalweg_record::Offset;
use thalweg_replica::partition::{FetchError, FetchParameters, FetchRead, Isolation, Partition, Reader};
use thalweg_share::{AcquireMode, AcquireRequest, AcquiredRun, ShareAcquiredRecords, SharePartition, Span};
use thalweg_wire::ErrorCode;

/// Maximum number of reads past records that are not delivered, such as those of aborted transactions.
const ROUNDS_MAX: usize = 64;

/// A member's request for records of one partition.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    pub member: &'a str,
    /// The member's session. After its end, no records are acquired.
    pub session: &'a ShareSessionEnd,
    /// Strict or best-effort use of the record limit.
    pub mode: AcquireMode,
    /// Maximum number of records.
    pub records: i64,
    /// Maximum number of records per in-flight batch.
    pub batch_size: i64,
    /// Maximum number of bytes.
    pub max_bytes: usize,
    /// True if a first batch beyond `max_bytes` is returned anyway.
    pub at_least_one: bool,
}

/// Acquired records of one partition.
#[derive(Debug)]
pub struct AcquiredBatches {
    /// The log batches of the records, which may contain other records too.
    pub slice: LogSlice,
    /// The acquired offsets.
    pub runs: Vec<AcquiredRun>,
    /// Number of acquired records.
    pub records: i64,
}

/// The outcome of a read.
#[derive(Debug)]
pub enum ReadOutcome {
    /// The state is not loaded yet.
    Loading,
    /// No records are available now.
    Nothing,
    /// The records found are not delivered, and there may be more after them.
    Again,
    Acquired(AcquiredBatches),
    /// The log cannot be read, or the share partition is not served here.
    Failed(ErrorCode),
}

impl LedSharePartition {
    /// Acquires records for a member.
    pub fn acquire(
        &self,
        partition: &Partition,
        request: &ReadRequest<'_>,
        settings: &ShareSettings,
        now_ms: i64,
    ) -> ReadOutcome {
        let done = self.with(|share| {
            if request.session.is_over() {
                return ReadOutcome::Nothing;
            }
            for _ in 0..ROUNDS_MAX {
                match acquire(share, partition, request, settings, now_ms) {
                    ReadOutcome::Again => {}
                    other => return other,
                }
            }
            ReadOutcome::Again
        });
        match done {
            Ok(Some(reading)) => reading,
            Ok(None) => ReadOutcome::Loading,
            Err(error) => ReadOutcome::Failed(error),
        }
    }

    /// Number of bytes available to a member, and whether there are more than the limits allow.
    pub fn available_bytes(
        &self,
        partition: &Partition,
        max_bytes: usize,
        settings: &ShareSettings,
    ) -> (usize, bool) {
        let request = |offset| fetch_parameters(offset, max_bytes, true, settings.isolation);
        let read = self.with(|share| {
            let offset = share.fetch_offset(&settings.limits)?;
            Some(partition.fetch(&request(offset)))
        });
        match read {
            Ok(Some(Some(Ok(read)))) => (read.slice.map_or(0, |slice| slice.len), read.behind),
            // An error ends the wait of a fetch, too.
            Ok(Some(Some(Err(_)))) => (0, true),
            Ok(Some(None) | None) | Err(_) => (0, false),
        }
    }
}

fn fetch_parameters(
    offset: i64,
    max_bytes: usize,
    at_least_one: bool,
    isolation: Isolation,
) -> FetchParameters {
    FetchParameters {
        offset: Offset(offset),
        max_bytes,
        at_least_one,
        current_leader_epoch: None,
        last_fetched_epoch: None,
        reader: Reader::Client,
        isolation,
        from_any_replica: false,
        reader_start: Offset::NONE,
        // Reads by share groups do not count as Fetch requests.
        first_pass: false,
    }
}

fn acquire(
    share: &mut SharePartition,
    partition: &Partition,
    request: &ReadRequest<'_>,
    settings: &ShareSettings,
    now_ms: i64,
) -> ReadOutcome {
    let Some(offset) = share.fetch_offset(&settings.limits) else { return ReadOutcome::Nothing };
    let from = fetch_parameters(offset, request.max_bytes, request.at_least_one, settings.isolation);
    let read = match partition.fetch(&from) {
        Ok(read) => read,
        Err(FetchError::OutOfRange { .. }) => {
            let log_start = partition.published_offsets().log_start_offset().0;
            if log_start <= share.start_offset() {
                return ReadOutcome::Nothing;
            }
            share.log_start_moved(log_start);
            return ReadOutcome::Again;
        }
        Err(error) => return ReadOutcome::Failed(error.code()),
    };
    share.log_start_moved(read.log_start_offset.0);
    let FetchRead { slice: Some(slice), aborted, .. } = read else { return ReadOutcome::Nothing };
    let wanted = AcquireRequest {
        member: request.member,
        mode: request.mode,
        records: request.records,
        batch_size: request.batch_size,
    };
    let mut unreadable = None;
    let spans = slice.batches().map_while(|batch| match batch {
        Ok(batch) => Some(span_of(&batch, &aborted)),
        Err(error) => {
            unreadable = Some(error);
            None
        }
    });
    let ShareAcquiredRecords { runs, bytes, records } =
        share.acquire(&wanted, &settings.limits, now_ms, offset, spans);
    if runs.is_empty() {
        if let Some(error) = unreadable {
            tracing::error!(partition = ?partition, %error, "Failed to read the batches of a log");
            return ReadOutcome::Failed(ErrorCode::KafkaStorageError);
        }
        let moved = share.fetch_offset(&settings.limits) != Some(offset);
        return if moved { ReadOutcome::Again } else { ReadOutcome::Nothing };
    }
    let len = usize::try_from(bytes.end - bytes.start).unwrap_or(slice.len);
    ReadOutcome::Acquired(AcquiredBatches {
        slice: LogSlice { position: bytes.start, len, ..slice },
        runs,
        records,
    })
}

/// A log batch, and whether its transaction was aborted. `aborted` is empty for READ_UNCOMMITTED.
fn span_of(batch: &BatchPlace, aborted: &[AbortedTransaction]) -> Span {
    let header = &batch.header;
    let (first, last) = (header.base_offset, header.last_offset());
    let attributes = header.attributes;
    let is_aborted = attributes.is_transactional()
        && !attributes.is_control()
        && aborted.iter().any(|transaction| {
            transaction.producer_id == header.producer_id
                && transaction.first_offset <= first
                && last < transaction.last_offset
        });
    Span { first: first.0, last: last.0, bytes: batch.position..batch.end(), is_aborted }
}
