//! A member reads a share partition: finds where, reads the log there, and acquires what it finds.
//!
//! All of it happens under the lock of the share partition, so that two members never look at the same records. The log
//! is not read but for the headers of the batches that are sent.

use super::led::LedShare;
use super::sessions::SessionEnd;
use super::settings::ShareSettings;
use thalweg_log::{AbortedTransaction, LogSlice, Placed};
use thalweg_record::Offset;
use thalweg_replica::partition::{FetchError, FetchFrom, FetchRead, Isolation, Partition, Reader};
use thalweg_share::{AcquireMode, AcquireRequest, AcquiredRun, ShareAcquiredRecords, SharePartition, Span};
use thalweg_wire::ErrorCode;

/// How often is looked again where what was found is not to be delivered, such as aborted transactions.
const ROUNDS_MAX: usize = 64;

/// What a member wants of one partition.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The member.
    pub member: &'a str,
    /// Its session: after its end, there is nothing for the member.
    pub session: &'a SessionEnd,
    /// Whether `records` is a limit.
    pub mode: AcquireMode,
    /// How many records.
    pub records: i64,
    /// How many of them make an in-flight batch.
    pub batch_size: i64,
    /// The most bytes.
    pub max_bytes: usize,
    /// Whether a larger first batch is returned anyway.
    pub at_least_one: bool,
}

/// Acquired records.
#[derive(Debug)]
pub struct Batch {
    /// The batches of the log that have them, and maybe others.
    pub slice: LogSlice,
    /// The acquired ones.
    pub runs: Vec<AcquiredRun>,
    /// How many.
    pub records: i64,
}

/// The outcome of a read.
#[derive(Debug)]
pub enum Reading {
    /// The state is not loaded yet.
    Loading,
    /// Nothing is to be had now.
    Nothing,
    /// Something was found that is not to be delivered, and there may be more behind it.
    Again,
    /// Records.
    Acquired(Batch),
    /// The log cannot be read, or the share partition is not served here.
    Failed(ErrorCode),
}

impl LedShare {
    /// Acquires records for a member.
    pub fn acquire(
        &self,
        partition: &Partition,
        request: &Request<'_>,
        settings: &ShareSettings,
        now_ms: i64,
    ) -> Reading {
        let done = self.with(|share| {
            if request.session.is_over() {
                return Reading::Nothing;
            }
            for _ in 0..ROUNDS_MAX {
                match acquire(share, partition, request, settings, now_ms) {
                    Reading::Again => {}
                    other => return other,
                }
            }
            Reading::Again
        });
        match done {
            Ok(Some(reading)) => reading,
            Ok(None) => Reading::Loading,
            Err(error) => Reading::Failed(error),
        }
    }

    /// How many bytes a member would find, and whether there are more than its limits allow.
    pub fn available_bytes(
        &self,
        partition: &Partition,
        max_bytes: usize,
        settings: &ShareSettings,
    ) -> (usize, bool) {
        let request = |offset| fetch_from(offset, max_bytes, true, settings.isolation);
        let read = self.with(|share| {
            let offset = share.fetch_offset(&settings.limits)?;
            Some(partition.fetch(&request(offset)))
        });
        match read {
            Ok(Some(Some(Ok(read)))) => (read.slice.map_or(0, |slice| slice.len), read.behind),
            // An error is worth an answer, too.
            Ok(Some(Some(Err(_)))) => (0, true),
            Ok(Some(None) | None) | Err(_) => (0, false),
        }
    }
}

fn fetch_from(offset: i64, max_bytes: usize, at_least_one: bool, isolation: Isolation) -> FetchFrom {
    FetchFrom {
        offset: Offset(offset),
        max_bytes,
        at_least_one,
        current_leader_epoch: None,
        last_fetched_epoch: None,
        reader: Reader::Client,
        isolation,
        from_any_replica: false,
        reader_start: Offset::NONE,
        // It does not count as a Fetch.
        first_pass: false,
    }
}

fn acquire(
    share: &mut SharePartition,
    partition: &Partition,
    request: &Request<'_>,
    settings: &ShareSettings,
    now_ms: i64,
) -> Reading {
    let Some(offset) = share.fetch_offset(&settings.limits) else { return Reading::Nothing };
    let from = fetch_from(offset, request.max_bytes, request.at_least_one, settings.isolation);
    let read = match partition.fetch(&from) {
        Ok(read) => read,
        Err(FetchError::OutOfRange { .. }) => {
            let log_start = partition.published_offsets().log_start_offset().0;
            if log_start <= share.start_offset() {
                return Reading::Nothing;
            }
            share.log_start_moved(log_start);
            return Reading::Again;
        }
        Err(error) => return Reading::Failed(error.code()),
    };
    share.log_start_moved(read.log_start_offset.0);
    let FetchRead { slice: Some(slice), aborted, .. } = read else { return Reading::Nothing };
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
            return Reading::Failed(ErrorCode::KafkaStorageError);
        }
        let moved = share.fetch_offset(&settings.limits) != Some(offset);
        return if moved { Reading::Again } else { Reading::Nothing };
    }
    let len = usize::try_from(bytes.end - bytes.start).unwrap_or(slice.len);
    Reading::Acquired(Batch { slice: LogSlice { position: bytes.start, len, ..slice }, runs, records })
}

/// A batch of the log, and whether its transaction was aborted. Nothing is aborted for those that read everything.
fn span_of(batch: &Placed, aborted: &[AbortedTransaction]) -> Span {
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
