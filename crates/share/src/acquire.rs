//! Acquisition: the choice of records for a member, and of the bytes of the log to send.
//!
//! The caller reads the log from [`SharePartition::fetch_offset`] on, and passes the batches one after
//! another until enough records are acquired, so that no more batches are examined than sent.
//!
//! Batch-optimised mode, the default, takes whole record batches until the wanted number is reached, and
//! divides new records into in-flight batches of about the wanted size, which members acknowledge as a whole.
//! Record-limit mode (KIP-1206) takes exactly the wanted number of records.
//!
//! Records with many deliveries are treated as in Kafka, since one of them may crash the members: from half
//! the delivery limit on, only a part of their batch is delivered, and nothing else; the last attempt
//! delivers a single record.

use crate::partition::{ShareLimits, SharePartition};
use crate::run::{NO_ONE, Phase, Run};
use std::ops::Range;

/// The acquisition mode (KIP-1206).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireMode {
    /// About the wanted number of records: batches are not divided.
    BatchOptimised,
    /// At most the wanted number of records.
    RecordLimit,
}

/// A member's request for records.
#[derive(Clone, Copy, Debug)]
pub struct AcquireRequest<'a> {
    /// The member id.
    pub member: &'a str,
    /// The acquisition mode.
    pub mode: AcquireMode,
    /// The wanted number of records.
    pub records: i64,
    /// The wanted number of records per in-flight batch.
    pub batch_size: i64,
}

/// A record batch in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first offset of the batch.
    pub first: i64,
    /// The last offset of the batch.
    pub last: i64,
    /// The position of the batch in the log.
    pub bytes: Range<u64>,
    /// True for a batch of an aborted transaction, if the group reads committed records only.
    pub is_aborted: bool,
}

/// A run of records that a member has acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquiredRun {
    /// The first offset.
    pub first: i64,
    /// The last offset.
    pub last: i64,
    /// The delivery count, including this delivery.
    pub deliveries: i16,
}

/// The result of an acquisition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareAcquiredRecords {
    /// The acquired records, in offset order.
    pub runs: Vec<AcquiredRun>,
    /// The range of the log that contains all acquired records.
    pub bytes: Range<u64>,
    /// The number of acquired records.
    pub records: i64,
}

/// The delivery count from which a batch is delivered in parts.
fn throttled_from(limits: &ShareLimits) -> i16 {
    (limits.deliveries / 2 + limits.deliveries % 2).max(2)
}

/// Maximum bytes between acquired records. Those bytes are sent too, but cost less than another request.
const PASSED_BYTES_MAX: u64 = 64 << 10;

/// One acquisition in progress.
struct Acquisition<'a> {
    partition: &'a mut SharePartition,
    wanted: &'a AcquireRequest<'a>,
    limits: &'a ShareLimits,
    owner: u32,
    deadline_ms: i64,
    acquired: ShareAcquiredRecords,
    /// The new in-flight batch, which the next record batch may still extend.
    open: Option<(i64, i64)>,
    /// The remaining number of records of a batch that is delivered in parts.
    throttle: Option<i64>,
    /// The number of unavailable records skipped.
    passed: i64,
    is_over: bool,
}

impl SharePartition {
    /// Acquires records for a member, from the batches of the log from `fetch_offset` on.
    pub fn acquire(
        &mut self,
        wanted: &AcquireRequest<'_>,
        limits: &ShareLimits,
        now_ms: i64,
        fetch_offset: i64,
        spans: impl IntoIterator<Item = Span>,
    ) -> ShareAcquiredRecords {
        if wanted.records <= 0 {
            return ShareAcquiredRecords::default();
        }
        let owner = self.members.enter(wanted.member);
        let mut acquisition = Acquisition {
            owner,
            deadline_ms: now_ms + limits.lock_ms,
            partition: self,
            wanted,
            limits,
            acquired: ShareAcquiredRecords::default(),
            open: None,
            throttle: None,
            passed: 0,
            is_over: false,
        };
        let mut read_to = fetch_offset;
        for span in spans {
            acquisition.forget_missing(read_to, span.first - 1);
            read_to = read_to.max(span.last + 1);
            acquisition.offer(&span);
            if acquisition.is_over || acquisition.acquired.records >= wanted.records {
                break;
            }
        }
        acquisition.close_open();
        let acquired = acquisition.acquired;
        self.members.leave_if_idle(owner);
        self.advance_start();
        acquired
    }
}

impl Acquisition<'_> {
    /// Archives available records from `first` to `last`, which are missing in the log after compaction.
    fn forget_missing(&mut self, first: i64, last: i64) {
        let last = last.min(self.partition.next_new - 1);
        self.partition.change(first.max(self.partition.start), last, |_, run| {
            if run.is_available() {
                run.phase = Phase::Archived;
            }
        });
    }

    fn offer(&mut self, span: &Span) {
        let first = span.first.max(self.partition.start);
        let in_flight_last = span.last.min(self.partition.next_new - 1);
        if self.open.is_none() && first <= in_flight_last {
            let runs: Vec<_> = self.partition.runs.within(first, in_flight_last).collect();
            for (at, run) in runs {
                let (from, to) = (at.max(first), run.last.min(in_flight_last));
                self.offer_run(span, at, &run, from, to);
                if self.is_over {
                    return;
                }
            }
        }
        let first = first.max(self.new_from());
        if first <= span.last {
            self.offer_new(span, first);
        }
    }

    /// The first offset after those in flight.
    fn new_from(&self) -> i64 {
        self.open.map_or(self.partition.next_new, |(_, last)| last + 1)
    }

    /// Offers the offsets `from` to `to` of the in-flight run that begins at `at`.
    fn offer_run(&mut self, span: &Span, at: i64, run: &Run, from: i64, to: i64) {
        let len = to - from + 1;
        if !run.is_available() {
            self.passed += len;
            // Skipped records are sent too, so their number is limited to about that of the acquired ones.
            let is_far = span.bytes.end.saturating_sub(self.acquired.bytes.end) > PASSED_BYTES_MAX;
            self.is_over = self.acquired.records > 0 && self.passed > self.acquired.records && is_far;
            return;
        }
        if span.is_aborted {
            self.partition.change(from, to, |_, run| run.phase = Phase::Archived);
            return;
        }
        let Some(most) = self.most_of(at, run, from) else {
            self.is_over = true;
            return;
        };
        let to = to.min(from.saturating_add(most - 1));
        let (owner, deadline_ms) = (self.owner, self.deadline_ms);
        self.partition.change(from, to, |_, run| {
            run.phase = Phase::Acquired;
            run.owner = owner;
            run.deadline_ms = deadline_ms;
            run.deliveries = run.deliveries.saturating_add(1);
        });
        if let Some(left) = &mut self.throttle {
            *left -= to - from + 1;
        }
        let starts_batch = run.starts_batch && at == from;
        let acquired = AcquiredRun { first: from, last: to, deliveries: run.deliveries.saturating_add(1) };
        self.take(span, acquired, !starts_batch);
        self.is_over |= self.throttle == Some(0) || self.has_all();
    }

    /// The number of records of an available run that may be acquired from `from` on. `None` ends the
    /// acquisition.
    fn most_of(&mut self, at: i64, run: &Run, from: i64) -> Option<i64> {
        let of_mode = match self.wanted.mode {
            AcquireMode::BatchOptimised => i64::MAX,
            AcquireMode::RecordLimit => self.wanted.records - self.acquired.records,
        };
        let throttled_from = throttled_from(self.limits);
        if run.deliveries < throttled_from {
            return self.throttle.is_none().then_some(of_mode);
        }
        let begins = run.starts_batch && at == from;
        let left = match self.throttle {
            None if self.acquired.records > 0 => return None,
            None => {
                let is_last = self.limits.deliveries > 2 && run.deliveries >= self.limits.deliveries - 1;
                let halvings = u32::try_from(run.deliveries - throttled_from + 1).unwrap_or(u32::MAX);
                let part = run.batch_len.checked_shr(halvings).unwrap_or(0);
                if is_last { 1 } else { i64::from(part.max(1)) }
            }
            Some(_) if begins => return None,
            Some(left) => left,
        };
        self.throttle = Some(left);
        Some(left.min(of_mode))
    }

    /// True if a member in record-limit mode has all wanted records.
    fn has_all(&self) -> bool {
        self.wanted.mode == AcquireMode::RecordLimit && self.acquired.records >= self.wanted.records
    }

    /// Offers the offsets of a batch from `first` on, which were never delivered.
    fn offer_new(&mut self, span: &Span, first: i64) {
        let left = self.limits.in_flight - (self.new_from() - self.partition.start);
        if left <= 0 || self.throttle.is_some() {
            self.is_over = true;
            return;
        }
        if span.is_aborted {
            self.close_open();
            let run = self.new_run(Phase::Archived, NO_ONE, first, span.last);
            self.partition.insert(first, run);
            self.partition.runs.join(first, span.last);
            return;
        }
        let (mut last, mut batch_size) = (span.last, self.wanted.batch_size);
        if self.wanted.mode == AcquireMode::RecordLimit {
            // Offsets missing between two batches are acquired too, and thus count.
            let begun = self.open.map_or(first, |(begun, _)| begun);
            let most = (self.wanted.records - self.acquired.records).min(left + self.open_len());
            last = last.min(begun.saturating_add(most - 1));
            batch_size = i64::MAX;
            if last < first {
                self.is_over = true;
                return;
            }
        }
        match self.open {
            Some((begun, _)) if span.first - begun < batch_size => self.open = Some((begun, last)),
            Some((begun, _)) => {
                // A gap before the next batch belongs to the previous batch, as in Kafka.
                self.open = Some((begun, first - 1));
                self.close_open();
                self.open = Some((first, last));
            }
            None => self.open = Some((first, last)),
        }
        self.extend(span);
        let records = self.acquired.records + self.open_len();
        self.is_over = records >= self.wanted.records || last < span.last;
    }

    /// The number of offsets in the new in-flight batch.
    fn open_len(&self) -> i64 {
        self.open.map_or(0, |(first, last)| last - first + 1)
    }

    /// Inserts the new in-flight batch as a run.
    fn close_open(&mut self) {
        let Some((first, last)) = self.open.take() else { return };
        let run = self.new_run(Phase::Acquired, self.owner, first, last);
        self.partition.insert(first, run);
        self.acquired.runs.push(AcquiredRun { first, last, deliveries: 1 });
        self.acquired.records += last - first + 1;
    }

    fn new_run(&self, phase: Phase, owner: u32, first: i64, last: i64) -> Run {
        Run {
            last,
            deadline_ms: self.deadline_ms,
            owner,
            batch_len: u32::try_from(last - first + 1).unwrap_or(u32::MAX),
            deliveries: 1,
            phase,
            is_pending: false,
            starts_batch: true,
        }
    }

    /// Adds acquired records, and merges them into the previous run if they continue its in-flight batch.
    fn take(&mut self, span: &Span, run: AcquiredRun, continues: bool) {
        self.acquired.records += run.last - run.first + 1;
        match self.acquired.runs.last_mut() {
            Some(last) if continues && last.last + 1 == run.first && last.deliveries == run.deliveries => {
                last.last = run.last;
            }
            _ => self.acquired.runs.push(run),
        }
        self.extend(span);
    }

    /// Extends the bytes for the member to the end of this batch.
    fn extend(&mut self, span: &Span) {
        if self.acquired.bytes.is_empty() {
            self.acquired.bytes = span.bytes.clone();
        } else {
            self.acquired.bytes.end = span.bytes.end;
        }
    }
}
