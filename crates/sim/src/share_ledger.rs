//! The history of a share group: acquired records and their outcomes. Invariants: two members never have the
//! same record at once; a record whose acceptance or rejection was acknowledged is not delivered again; a
//! lock is not taken away before its time; in the end every record is final, and none is given up without
//! enough deliveries.
//!
//! A delivery alone proves little, because a deposed broker that does not know of its successor delivers from
//! memory. An acknowledged change proves ownership if the leader epoch has not changed and the lock has not
//! expired: the change was written under that epoch, so the member has had the record from the answer that
//! delivered it to the request that changed it. Otherwise the change may be of a record before the group's
//! start offset, which is acknowledged without a check. If the group's offset is set, a leader that still has
//! sessions of members learns of it by its next write: until a write is acknowledged, no change is proof.

use std::collections::BTreeMap;
use tokio::time::Instant;

/// `group.share.delivery.count.limit` of the brokers.
pub(crate) const DELIVERIES_MAX: i16 = 10;
/// Maximum number of reported violations of one kind.
const REPORTED_MAX: usize = 3;

/// A session of a member: member, life, and number of the session.
pub(crate) type Holder = (u32, u32, u64);

/// The acknowledgement type of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AcknowledgeType {
    Accept,
    Release,
    Reject,
}

impl AcknowledgeType {
    /// Kafka's type code of the acknowledgement.
    pub(crate) fn code(self) -> i8 {
        match self {
            AcknowledgeType::Accept => 1,
            AcknowledgeType::Release => 2,
            AcknowledgeType::Reject => 3,
        }
    }

    fn is_final(self) -> bool {
        self != AcknowledgeType::Release
    }
}

/// The outcome of a request with acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcknowledgementOutcome {
    /// The request is acknowledged.
    Acknowledged,
    /// The member did not have the records.
    NotAcquired,
    /// The request was not accepted.
    NotTaken,
    /// Unknown: no answer, or an error of the coordinator.
    Unknown,
}

/// Records that a member has acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcquiredRecords {
    pub(crate) partition: i32,
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// Arrival time of the answer with the records.
    pub(crate) received: Instant,
    /// Time until which no other member may have the records: the lock was acquired after the request was
    /// sent.
    pub(crate) locked_until: Instant,
    /// The newest leader epoch known to any broker when the request was sent.
    pub(crate) leader_epoch: i32,
}

/// An acknowledged change: the holder had the record from `from` to `to`.
#[derive(Clone, Copy, Debug)]
struct Claim {
    holder: Holder,
    from: Instant,
    to: Instant,
    acknowledge_type: AcknowledgeType,
}

#[derive(Debug, Default)]
struct Record {
    /// The highest delivery count in any answer.
    deliveries: i16,
    /// Number of lost answers at that time.
    lost: u64,
    claims: Vec<Claim>,
    /// Number of final acknowledgements of the record that may have been written.
    finals: u32,
}

#[derive(Debug, Default)]
struct Partition {
    /// Start offset of the group.
    start: i64,
    /// True if the group's offset was set, and no write has been acknowledged since.
    is_outdated: bool,
    /// Time of the first acknowledged write since then.
    fresh_from: Option<Instant>,
    records: BTreeMap<i64, Record>,
    /// Fetches without an answer, each of which may have delivered records.
    lost: u64,
    leader_epoch: i32,
    /// Offset up to which all records are final in the coordinator's description.
    described: i64,
    acknowledged: u64,
}

/// The history of one share group in one topic.
#[derive(Debug, Default)]
pub(crate) struct ShareLedger {
    partitions: BTreeMap<i32, Partition>,
}

impl Partition {
    /// True if the leader knew the group's start offset when this answer arrived.
    fn is_fresh(&self, received: Instant) -> bool {
        !self.is_outdated && self.fresh_from.is_none_or(|from| received > from)
    }
}

impl ShareLedger {
    fn partition(&mut self, partition: i32) -> &mut Partition {
        self.partitions.entry(partition).or_default()
    }

    /// Records a leader epoch known to some broker.
    pub(crate) fn knows_epoch(&mut self, partition: i32, leader_epoch: i32) {
        let known = &mut self.partition(partition).leader_epoch;
        *known = leader_epoch.max(*known);
    }

    /// The newest leader epoch.
    pub(crate) fn leader_epoch(&mut self, partition: i32) -> i32 {
        self.partition(partition).leader_epoch
    }

    /// Records a fetch without an answer.
    pub(crate) fn lost_answer(&mut self, partition: i32) {
        self.partition(partition).lost += 1;
    }

    /// Resets the group to `start`: its offset was set while it had no members.
    pub(crate) fn begin_again(&mut self, partition: i32, start: i64) {
        let known = self.partition(partition);
        let Partition { leader_epoch, acknowledged, .. } = *known;
        *known = Partition { start, is_outdated: true, leader_epoch, acknowledged, ..Partition::default() };
    }

    /// Records the offset up to which all records are final in the coordinator's description.
    pub(crate) fn describes(&mut self, partition: i32, described: i64) {
        self.partition(partition).described = described;
    }

    /// The offset up to which all records are final.
    pub(crate) fn described(&self, partition: i32) -> i64 {
        self.partitions.get(&partition).map_or(0, |known| known.described)
    }

    /// Records an acquisition; `count` is the delivery count.
    pub(crate) fn acquired(&mut self, holder: Holder, held: AcquiredRecords, count: i16) -> Option<String> {
        let AcquiredRecords { partition, first, last, .. } = held;
        tracing::debug!(?holder, partition, first, last, count, "Acquired");
        let known = self.partition(held.partition);
        for offset in held.first.max(known.start)..=held.last {
            let record = known.records.entry(offset).or_default();
            record.deliveries = count.max(record.deliveries);
            record.lost = known.lost;
        }
        (!(1..=DELIVERIES_MAX).contains(&count))
            .then(|| format!("partition {partition}: {first} to {last} were delivered {count} times"))
    }

    /// Records that a member is about to acknowledge records.
    pub(crate) fn sends(&mut self, held: &AcquiredRecords, acknowledge_type: AcknowledgeType) {
        let known = self.partition(held.partition);
        for offset in held.first.max(known.start)..=held.last {
            known.records.entry(offset).or_default().finals += u32::from(acknowledge_type.is_final());
        }
    }

    /// Records the outcome of a request with acknowledgements that was sent at `sent`.
    pub(crate) fn answered(
        &mut self,
        holder: Holder,
        held: &AcquiredRecords,
        acknowledge_type: AcknowledgeType,
        sent: Instant,
        outcome: AcknowledgementOutcome,
    ) -> Vec<String> {
        let AcquiredRecords { partition, first, last, .. } = *held;
        tracing::debug!(?holder, partition, first, last, ?acknowledge_type, ?outcome, "Answered");
        let known = self.partition(held.partition);
        let mut wrong = Vec::new();
        if matches!(outcome, AcknowledgementOutcome::NotTaken | AcknowledgementOutcome::NotAcquired) {
            for (_, record) in known.records.range_mut(held.first..=held.last) {
                record.finals = record.finals.saturating_sub(u32::from(acknowledge_type.is_final()));
            }
        }
        match outcome {
            AcknowledgementOutcome::NotTaken | AcknowledgementOutcome::Unknown => {}
            AcknowledgementOutcome::NotAcquired => {
                let is_current = held.leader_epoch == known.leader_epoch && known.is_fresh(held.received);
                if Instant::now() < held.locked_until && is_current {
                    wrong.push(format!(
                        "partition {partition}: {holder:?} lost {first} to {last} before its lock ended"
                    ));
                }
            }
            AcknowledgementOutcome::Acknowledged => {
                let claim = Claim { holder, from: held.received, to: sent, acknowledge_type };
                let is_current =
                    held.leader_epoch == known.leader_epoch && Instant::now() < held.locked_until;
                let is_proof = is_current && (known.is_outdated || known.is_fresh(held.received));
                if is_proof && known.is_outdated && held.last >= known.start {
                    known.is_outdated = false;
                    known.fresh_from = Some(Instant::now());
                }
                for offset in held.first.max(known.start)..=held.last {
                    let record = known.records.entry(offset).or_default();
                    known.acknowledged += 1;
                    if !is_proof {
                        continue;
                    }
                    let conflict = record.claims.iter().find_map(|other| conflict(other, &claim));
                    wrong.extend(
                        conflict.map(|what| format!("partition {}, offset {offset}: {what}", held.partition)),
                    );
                    record.claims.push(claim);
                }
            }
        }
        wrong.truncate(REPORTED_MAX);
        wrong
    }

    /// Records up to `end` that were given up without an acceptance, a rejection, or enough deliveries.
    pub(crate) fn check(&self, partition: i32, end: i64) -> Vec<String> {
        let nothing = Record::default();
        let Some(known) = self.partitions.get(&partition) else { return Vec::new() };
        let is_lost = |record: &Record| {
            let unseen = i16::try_from(known.lost - record.lost).unwrap_or(i16::MAX);
            record.finals == 0 && record.deliveries.saturating_add(unseen) < DELIVERIES_MAX
        };
        let records =
            (known.start..end).map(|offset| (offset, known.records.get(&offset).unwrap_or(&nothing)));
        let lost = records.filter(|(_, record)| is_lost(record));
        let told = lost.map(|(offset, Record { deliveries, .. })| {
            format!(
                "partition {partition}: {offset} was given up after {deliveries} deliveries, and never acknowledged"
            )
        });
        told.take(REPORTED_MAX).collect()
    }

    /// Number of records that were acknowledged with an answer.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.partitions.values().map(|known| known.acknowledged).sum()
    }
}

impl std::hash::Hash for ShareLedger {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        for (partition, known) in &self.partitions {
            (partition, known.start, known.lost, known.described, known.acknowledged).hash(state);
            for (offset, record) in &known.records {
                (offset, record.deliveries, record.finals).hash(state);
                record.claims.iter().for_each(|claim| (claim.holder, claim.acknowledge_type).hash(state));
            }
        }
    }
}

/// Why two acknowledged changes of one record contradict each other.
fn conflict(one: &Claim, other: &Claim) -> Option<String> {
    let (first, second) = if one.to <= other.to { (one, other) } else { (other, one) };
    if second.from < first.to {
        return Some(format!("{:?} and {:?} had it at once", first.holder, second.holder));
    }
    first.acknowledge_type.is_final().then(|| {
        format!(
            "{:?} by {:?} was acknowledged, and then {:?} by {:?}",
            first.acknowledge_type, first.holder, second.acknowledge_type, second.holder
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LOCK: Duration = Duration::from_secs(3);
    const A: Holder = (0, 0, 0);
    const B: Holder = (1, 0, 0);

    fn held(began: Instant, received_ms: u64) -> AcquiredRecords {
        let received = began + Duration::from_millis(received_ms);
        AcquiredRecords {
            partition: 0,
            first: 5,
            last: 5,
            received,
            locked_until: received + LOCK,
            leader_epoch: 0,
        }
    }

    /// A member gets a record and acknowledges it with an answer. Times are in milliseconds.
    fn acknowledges(
        ledger: &mut ShareLedger,
        began: Instant,
        holder: Holder,
        times: (u64, u64),
        acknowledge_type: AcknowledgeType,
    ) -> Vec<String> {
        let held = held(began, times.0);
        assert_eq!(ledger.acquired(holder, held, 1), None);
        ledger.sends(&held, acknowledge_type);
        let sent = began + Duration::from_millis(times.1);
        ledger.answered(holder, &held, acknowledge_type, sent, AcknowledgementOutcome::Acknowledged)
    }

    #[tokio::test(start_paused = true)]
    async fn acknowledged_changes_of_a_record_follow_one_another_and_the_last_is_final() {
        let began = Instant::now();
        for (first, second, acknowledge_type, is_wrong) in [
            ((10, 20), (30, 40), AcknowledgeType::Release, false),
            ((10, 20), (30, 40), AcknowledgeType::Accept, true),
            ((10, 20), (30, 40), AcknowledgeType::Reject, true),
            ((10, 20), (15, 40), AcknowledgeType::Release, true),
            ((30, 40), (10, 20), AcknowledgeType::Release, true),
        ] {
            for newer in [0, 1] {
                let mut ledger = ShareLedger::default();
                assert_eq!(acknowledges(&mut ledger, began, A, first, acknowledge_type), [""; 0]);
                // Another leader acknowledges changes before the start offset.
                ledger.knows_epoch(0, newer);
                let wrong = acknowledges(&mut ledger, began, B, second, AcknowledgeType::Accept);
                assert_eq!(
                    !wrong.is_empty(),
                    is_wrong && newer == 0,
                    "{second:?} {acknowledge_type:?}: {wrong:?}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_lasts_unless_the_leader_changes() {
        for (epoch, wait, is_wrong) in [(0, 1, true), (1, 1, false), (0, 4, false)] {
            let mut ledger = ShareLedger::default();
            let held = held(Instant::now(), 10);
            ledger.acquired(A, held, 1);
            ledger.knows_epoch(0, epoch);
            tokio::time::sleep(Duration::from_secs(wait)).await;
            let wrong = ledger.answered(
                A,
                &held,
                AcknowledgeType::Accept,
                Instant::now(),
                AcknowledgementOutcome::NotAcquired,
            );
            assert_eq!(!wrong.is_empty(), is_wrong, "{epoch} {wait}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_is_given_up_is_found() {
        let began = Instant::now();
        let mut ledger = ShareLedger::default();
        acknowledges(&mut ledger, began, A, (10, 20), AcknowledgeType::Accept);
        ledger.begin_again(0, 5);
        assert_eq!(ledger.check(0, 6).len(), 1, "it was acknowledged before");
        acknowledges(&mut ledger, began, A, (10, 20), AcknowledgeType::Release);
        assert_eq!(ledger.check(0, 6).len(), 1, "it was released");
        for _ in 1..DELIVERIES_MAX {
            assert_eq!(ledger.check(0, 6).len(), 1);
            ledger.lost_answer(0);
        }
        assert_eq!(ledger.check(0, 6), [""; 0], "it may have been delivered often enough");
        assert!(ledger.acquired(A, held(began, 10), DELIVERIES_MAX + 1).is_some());
    }
}
