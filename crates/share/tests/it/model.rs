//! Random histories against a plain model that knows every record by itself: no record is with two members at
//! once, a record is accepted at most once, what is accepted is not delivered again, and nothing is lost,
//! through failed writes, crashes of the leader, deletions, compaction and aborted transactions.

use super::*;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use thalweg_share::{Acknowledgement, DeliveryState};

const MEMBERS: [&str; 4] = ["a", "b", "c", "d"];
const LIMITS: ShareLimits = ShareLimits { deliveries: 4, lock_ms: 1000, in_flight: 60, may_renew: true };

/// A record as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RecordState {
    Available,
    Acquired {
        by: usize,
        until_ms: i64,
    },
    /// A change that is being written, and who had the record before it.
    Pending {
        to: DeliveryState,
        by: usize,
        until_ms: i64,
    },
    Complete(DeliveryState),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    seen: RecordState,
    deliveries: i16,
}

/// What the coordinator has stored.
#[derive(Default)]
struct StoredState {
    start: i64,
    records: BTreeMap<i64, (DeliveryState, i16)>,
}

impl StoredState {
    fn write(&mut self, start: i64, batches: &[StateBatch]) {
        for batch in batches {
            for offset in batch.first_offset..=batch.last_offset {
                self.records.insert(offset, (batch.state, batch.delivery_count));
            }
        }
        self.start = self.start.max(start);
        self.records = self.records.split_off(&self.start);
    }

    fn state(&self) -> ShareState {
        let batches = self.records.iter().map(|(offset, (state, delivery_count))| StateBatch {
            first_offset: *offset,
            last_offset: *offset,
            state: *state,
            delivery_count: *delivery_count,
        });
        ShareState { state_epoch: 0, start_offset: self.start, batches: batches.collect() }
    }
}

struct History {
    rng: SmallRng,
    now_ms: i64,
    log: Vec<Span>,
    log_start: i64,
    log_end: i64,
    partition: SharePartition,
    /// The records in flight.
    records: BTreeMap<i64, Record>,
    stored: StoredState,
    /// Changes that are being written: their batches, the start then, and whether records wait for the
    /// result.
    writes: VecDeque<(Vec<StateBatch>, i64, bool)>,
    /// Offsets whose acceptance is written.
    accepted: BTreeMap<i64, u32>,
    /// Offsets that need not be accepted: rejected, missing, delivered too often.
    given_up: BTreeMap<i64, &'static str>,
}

impl History {
    fn new(seed: u64) -> History {
        History {
            rng: SmallRng::seed_from_u64(seed),
            now_ms: 0,
            log: Vec::new(),
            log_start: 0,
            log_end: 0,
            partition: begun(0),
            records: BTreeMap::new(),
            stored: StoredState::default(),
            writes: VecDeque::new(),
            accepted: BTreeMap::new(),
            given_up: BTreeMap::new(),
        }
    }

    fn append(&mut self) {
        for _ in 0..self.rng.random_range(1..6) {
            let first = self.log_end + i64::from(self.rng.random_bool(0.1)) * self.rng.random_range(1..5);
            let last = first + self.rng.random_range(0..9);
            let end = self.log.last().map_or(0, |span| span.bytes.end);
            let is_aborted = self.rng.random_bool(0.1);
            self.log.push(Span { first, last, bytes: end..end + 10, is_aborted });
            self.log_end = last + 1;
        }
    }

    fn exists(&self, offset: i64) -> bool {
        let span = self.log.iter().find(|span| span.first <= offset && span.last >= offset);
        offset >= self.log_start && span.is_some_and(|span| !span.is_aborted)
    }

    fn acquire(&mut self) {
        let member = self.rng.random_range(0..MEMBERS.len());
        let mode = *[AcquireMode::BatchOptimised, AcquireMode::RecordLimit].choose(&mut self.rng).unwrap();
        let records = self.rng.random_range(1..40);
        let batch_size = self.rng.random_range(1..20);
        let wanted = AcquireRequest { member: MEMBERS[member], mode, records, batch_size };
        let Some(offset) = self.partition.fetch_offset(&LIMITS) else {
            assert!(self.partition.in_flight() >= LIMITS.in_flight);
            assert!(self.records.values().all(|record| record.seen != RecordState::Available));
            return;
        };
        let batches = self.rng.random_range(1..8);
        let spans = self.log.iter().filter(|span| span.last >= offset).take(batches);
        let spans: Vec<Span> = spans.cloned().collect();
        let acquired = self.partition.acquire(&wanted, &LIMITS, self.now_ms, offset, spans.clone());
        let total: i64 = acquired.runs.iter().map(|run| run.last - run.first + 1).sum();
        assert_eq!(total, acquired.records);
        if mode == AcquireMode::RecordLimit {
            assert!(total <= records, "{total} records for a limit of {records}");
        }
        assert!(self.partition.in_flight() <= LIMITS.in_flight + 64);
        let until_ms = self.now_ms + LIMITS.lock_ms;
        for run in &acquired.runs {
            for offset in run.first..=run.last {
                let span = spans.iter().find(|span| span.first <= offset && span.last >= offset);
                if let Some(span) = span {
                    assert!(!span.is_aborted, "{offset} is aborted");
                    assert!(acquired.bytes.start <= span.bytes.start && acquired.bytes.end >= span.bytes.end);
                }
                assert!(!self.accepted.contains_key(&offset), "{offset} was accepted");
                let record = self
                    .records
                    .entry(offset)
                    .or_insert(Record { seen: RecordState::Available, deliveries: 0 });
                assert_eq!(record.seen, RecordState::Available, "{offset} is not available");
                record.deliveries += 1;
                assert_eq!(record.deliveries, run.deliveries);
                assert!(record.deliveries <= LIMITS.deliveries);
                record.seen = RecordState::Acquired { by: member, until_ms };
            }
        }
        // What was passed over without being delivered does not exist, or is aborted. At the start it is
        // forgotten.
        let behind = self.records.split_off(&self.partition.start_offset());
        for (offset, record) in std::mem::replace(&mut self.records, behind) {
            let is_complete = matches!(record.seen, RecordState::Complete(_));
            let may_go = record.seen == RecordState::Available && !self.exists(offset);
            assert!(is_complete || may_go, "{offset} is forgotten: {record:?}");
        }
        for batch in self.partition.in_flight_runs().collect::<Vec<_>>() {
            if batch.state != DeliveryState::Archived {
                continue;
            }
            for offset in batch.first_offset..=batch.last_offset {
                let record = self.records.get(&offset).copied();
                if record.is_none_or(|record| record.seen == RecordState::Available) {
                    assert!(!self.exists(offset), "{offset} is passed over");
                    let deliveries = record.map_or(1, |record| record.deliveries);
                    let seen = RecordState::Complete(DeliveryState::Archived);
                    self.records.insert(offset, Record { seen, deliveries });
                }
            }
        }
        self.forget_complete();
    }

    /// A member acknowledges some of what it has, or of what it does not have.
    fn acknowledge(&mut self) {
        let member = self.rng.random_range(0..MEMBERS.len());
        let held: Vec<i64> =
            self.records.iter().filter(|(_, r)| is_with(r, member)).map(|(o, _)| *o).collect();
        let known: Vec<i64> = self.records.keys().copied().collect();
        let pool = if held.is_empty() || self.rng.random_bool(0.1) { &known } else { &held };
        let Some(&first) = pool.choose(&mut self.rng) else { return };
        let mut last = first;
        let longest = self.rng.random_range(0..12);
        while last - first < longest && pool.contains(&(last + 1)) {
            last += 1;
        }
        let len = usize::try_from(last - first + 1).unwrap();
        let one = self.rng.random_range(0..5);
        let each: Vec<i8> =
            (0..len).map(|_| *[0, 1, 1, 1, 2, 2, 3, 4].choose(&mut self.rng).unwrap()).collect();
        let types = if self.rng.random_bool(0.5) { vec![one] } else { each };
        let all_held = (first..=last).all(|offset| {
            self.records.get(&offset).is_none_or(|record| is_with(record, member))
                || offset < self.partition.start_offset()
        });
        let acknowledgement = Acknowledgement { first, last, types: &types };
        let result = self.partition.acknowledge(MEMBERS[member], &[acknowledgement], &LIMITS, self.now_ms);
        assert_eq!(result.is_ok(), all_held, "{result:?} for {acknowledgement:?} of {member}");
        let Ok(batches) = result else { return };
        for offset in first..=last {
            let code =
                if types.len() == 1 { types[0] } else { types[usize::try_from(offset - first).unwrap()] };
            let Some(record) = self.records.get_mut(&offset) else { continue };
            let RecordState::Acquired { by, until_ms } = record.seen else { unreachable!("it is held") };
            record.seen = match code {
                1 => RecordState::Pending { to: DeliveryState::Acknowledged, by, until_ms },
                2 => RecordState::Pending { to: after_release(record.deliveries), by, until_ms },
                4 => RecordState::Acquired { by, until_ms: self.now_ms + LIMITS.lock_ms },
                _ => RecordState::Pending { to: DeliveryState::Archived, by, until_ms },
            };
        }
        if !batches.is_empty() {
            self.writes.push_back((batches, self.partition.start_offset(), true));
        }
    }

    fn finish_write(&mut self) {
        let Some((batches, start, is_awaited)) = self.writes.pop_front() else { return };
        let is_written = self.rng.random_bool(0.8);
        if is_written {
            self.stored.write(start, &batches);
        }
        if !is_awaited {
            return;
        }
        if is_written {
            self.partition.written(&batches);
        } else {
            self.partition.not_written(&batches, &LIMITS, self.now_ms);
        }
        for batch in &batches {
            for offset in batch.first_offset..=batch.last_offset {
                let Some(record) = self.records.get_mut(&offset) else { continue };
                let RecordState::Pending { to, by, until_ms } = record.seen else { continue };
                record.seen = match to {
                    _ if !is_written && until_ms > self.now_ms => RecordState::Acquired { by, until_ms },
                    _ if !is_written => complete(after_release(record.deliveries)),
                    to => complete(to),
                };
                if is_written && to == DeliveryState::Acknowledged {
                    *self.accepted.entry(offset).or_default() += 1;
                }
                if record.seen == RecordState::Complete(DeliveryState::Archived) {
                    self.given_up.insert(offset, "rejected, or delivered too often");
                }
            }
        }
        self.forget_complete();
    }

    fn advance_time(&mut self) {
        self.now_ms += self.rng.random_range(0..600);
        let expired = self.partition.expire(self.now_ms, &LIMITS);
        let mut count = 0;
        for (offset, record) in &mut self.records {
            if let RecordState::Acquired { until_ms, .. } = record.seen
                && until_ms <= self.now_ms
            {
                count += 1;
                record.seen = complete(after_release(record.deliveries));
                if record.seen != RecordState::Available {
                    self.given_up.insert(*offset, "delivered too often");
                }
            }
        }
        assert_eq!(expired.records, count);
        if !expired.batches.is_empty() {
            self.writes.push_back((expired.batches, self.partition.start_offset(), false));
        }
        self.forget_complete();
    }

    fn leave(&mut self) {
        let member = self.rng.random_range(0..MEMBERS.len());
        let batches = self.partition.release_member(MEMBERS[member], &LIMITS);
        for record in self.records.values_mut() {
            if let RecordState::Acquired { by, until_ms } = record.seen
                && by == member
            {
                record.seen = RecordState::Pending { to: after_release(record.deliveries), by, until_ms };
            }
        }
        if !batches.is_empty() {
            self.writes.push_back((batches, self.partition.start_offset(), true));
        }
    }

    fn delete_records(&mut self) {
        if self.log_end == self.log_start {
            return;
        }
        self.log_start += self.rng.random_range(0..(self.log_end - self.log_start).min(20));
        self.log.retain(|span| span.last >= self.log_start);
        self.partition.log_start_moved(self.log_start);
        self.records = self.records.split_off(&self.partition.start_offset());
        self.forget_complete();
    }

    fn compact(&mut self) {
        if self.log.len() > 3 {
            let gone = self.rng.random_range(0..self.log.len() - 1);
            let span = self.log.remove(gone);
            for offset in span.first..=span.last {
                self.given_up.insert(offset, "compacted");
            }
        }
    }

    /// The leader dies. Changes on their way may be stored all the same, in their order.
    fn crash(&mut self) {
        for _ in 0..self.rng.random_range(0..=self.writes.len()) {
            let Some((batches, start, is_awaited)) = self.writes.pop_front() else { break };
            self.stored.write(start, &batches);
            for batch in &batches {
                for offset in batch.first_offset..=batch.last_offset {
                    let waits = self
                        .records
                        .get(&offset)
                        .is_some_and(|r| matches!(r.seen, RecordState::Pending { .. }));
                    if batch.state == DeliveryState::Archived {
                        self.given_up.insert(offset, "complete at the crash");
                    } else if is_awaited && waits && batch.state == DeliveryState::Acknowledged {
                        *self.accepted.entry(offset).or_default() += 1;
                    }
                }
            }
        }
        self.writes.clear();
        self.partition = SharePartition::load(&self.stored.state()).expect("what was stored is sound");
        self.partition.log_start_moved(self.log_start);
        self.records.clear();
        for batch in self.partition.in_flight_runs() {
            for offset in batch.first_offset..=batch.last_offset {
                let seen = complete(batch.state);
                if seen == RecordState::Complete(DeliveryState::Archived) {
                    self.given_up.entry(offset).or_insert("complete before the crash");
                }
                self.records.insert(offset, Record { seen, deliveries: batch.delivery_count });
            }
        }
        // Acceptances are joined with others that were complete: their counts are of no interest any more.
        self.forget_complete();
    }

    /// The start is where the model has it too.
    fn forget_complete(&mut self) {
        while let Some(entry) = self.records.first_entry()
            && matches!(entry.get().seen, RecordState::Complete(_))
        {
            entry.remove();
        }
    }

    /// The partition is in the state that the model is in.
    fn compare(&self) {
        let first = self.records.keys().next().copied();
        assert_eq!(first, self.partition.in_flight_runs().next().map(|run| run.first_offset));
        let mut offsets = 0;
        for run in self.partition.in_flight_runs() {
            for offset in run.first_offset..=run.last_offset {
                offsets += 1;
                let record = self.records.get(&offset).unwrap_or_else(|| panic!("{offset} is not in flight"));
                let state = match record.seen {
                    RecordState::Available | RecordState::Acquired { .. } => DeliveryState::Available,
                    RecordState::Pending { to, .. } => to,
                    RecordState::Complete(state) => state,
                };
                assert_eq!(run.state, state, "{offset}");
                if state == DeliveryState::Available {
                    assert_eq!(run.delivery_count, record.deliveries, "{offset}");
                }
            }
        }
        assert_eq!(offsets, self.records.len());
        let complete = self.records.values().filter(|record| {
            matches!(record.seen, RecordState::Complete(_))
                || matches!(record.seen, RecordState::Pending { to, .. } if to != DeliveryState::Available)
        });
        assert_eq!(self.partition.delivery_complete_count(), complete.count() as i64);
        let members = (0..MEMBERS.len())
            .filter(|member| self.records.values().any(|record| belongs_to(record, *member)))
            .count();
        assert_eq!(self.partition.members(), members);
    }

    /// Everybody accepts everything, until nothing is left.
    fn drain(&mut self) {
        while self.partition.members() > 0 {
            self.now_ms += LIMITS.lock_ms;
            self.advance_time();
            while !self.writes.is_empty() {
                self.finish_write();
            }
        }
        for _ in 0..10_000 {
            let wanted = AcquireRequest {
                member: "last",
                mode: AcquireMode::BatchOptimised,
                records: 500,
                batch_size: 500,
            };
            let offset = self.partition.fetch_offset(&LIMITS).expect("nothing is with a member");
            if offset >= self.log_end {
                break;
            }
            let spans = self.log.iter().filter(|span| span.last >= offset).cloned();
            let acquired = self.partition.acquire(&wanted, &LIMITS, self.now_ms, offset, spans);
            for run in acquired.runs {
                let acknowledgement = Acknowledgement { first: run.first, last: run.last, types: &[1] };
                let accepted = self.partition.acknowledge("last", &[acknowledgement], &LIMITS, self.now_ms);
                self.partition.written(&accepted.expect("it has them"));
                for offset in run.first..=run.last {
                    *self.accepted.entry(offset).or_default() += 1;
                }
            }
        }
        assert_eq!(self.partition.in_flight(), 0);
        for (offset, times) in &self.accepted {
            assert_eq!(*times, 1, "{offset} was accepted {times} times");
        }
        for offset in self.log_start..self.log_end {
            let is_complete = self.accepted.contains_key(&offset) || self.given_up.contains_key(&offset);
            assert!(is_complete || !self.exists(offset), "{offset} is lost");
        }
    }
}

fn is_with(record: &Record, member: usize) -> bool {
    matches!(record.seen, RecordState::Acquired { by, .. } if by == member)
}

fn belongs_to(record: &Record, member: usize) -> bool {
    is_with(record, member) || matches!(record.seen, RecordState::Pending { by, .. } if by == member)
}

fn after_release(deliveries: i16) -> DeliveryState {
    if deliveries >= LIMITS.deliveries { DeliveryState::Archived } else { DeliveryState::Available }
}

fn complete(state: DeliveryState) -> RecordState {
    if state == DeliveryState::Available { RecordState::Available } else { RecordState::Complete(state) }
}

fn run(seed: u64) {
    let mut history = History::new(seed);
    for _ in 0..300 {
        match history.rng.random_range(0..100) {
            0..12 => history.append(),
            12..42 => history.acquire(),
            42..70 => history.acknowledge(),
            70..86 => history.finish_write(),
            86..93 => history.advance_time(),
            93..95 => history.leave(),
            95..97 => history.delete_records(),
            97..98 => history.compact(),
            _ => history.crash(),
        }
        history.compare();
    }
    history.drain();
}

#[test]
fn random_histories_keep_every_promise() {
    for seed in 0..1000 {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
