//! Acknowledgements: accept, release, reject or renew acquired records. Kafka: `SharePartition.acknowledge`.
//!
//! The acknowledgements of one request for a partition take effect together or not at all.

use crate::partition::{ShareLimits, SharePartition, add_batch, batch_of, given_back};
use crate::run::{NO_ONE, Phase};
use crate::state::StateBatch;

/// The acknowledgement type of a record. Kafka: `AcknowledgeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcknowledgeType {
    /// No record at this offset, because of compaction or a control record.
    Gap = 0,
    /// The member has processed the record.
    Accept = 1,
    /// Available for another delivery.
    Release = 2,
    /// Never to be delivered again.
    Reject = 3,
    /// Renewal of the acquisition lock (KIP-1222).
    Renew = 4,
}

impl AcknowledgeType {
    /// The type of a code; none if the code is unknown.
    pub fn from_code(code: i8) -> Option<AcknowledgeType> {
        Some(match code {
            0 => AcknowledgeType::Gap,
            1 => AcknowledgeType::Accept,
            2 => AcknowledgeType::Release,
            3 => AcknowledgeType::Reject,
            4 => AcknowledgeType::Renew,
            _ => return None,
        })
    }
}

/// A member's acknowledgement of a range of offsets, with one type for the range or one type per offset.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement<'a> {
    /// The first offset, inclusive.
    pub first: i64,
    /// The last offset, inclusive.
    pub last: i64,
    /// Codes of [`AcknowledgeType`].
    pub types: &'a [i8],
}

/// The reason for refusing acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcknowledgeError {
    /// The type code is unknown.
    UnknownType(i8),
    /// The number of types is neither one nor the number of offsets.
    WrongTypes,
    /// The offsets lie above the last delivered one.
    NeverDelivered,
    /// The member does not hold the records: never acquired, lock expired, or already acknowledged.
    NotAcquired,
    /// Lock renewal is disabled for the group.
    RenewDisabled,
}

impl std::fmt::Display for AcknowledgeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AcknowledgeError::UnknownType(code) => write!(f, "there is no type {code} of acknowledgements"),
            AcknowledgeError::WrongTypes => {
                write!(f, "a batch needs one type, or one for each of its offsets")
            }
            AcknowledgeError::NeverDelivered => write!(f, "the offsets are behind those that were delivered"),
            AcknowledgeError::NotAcquired => write!(f, "the member does not have the records"),
            AcknowledgeError::RenewDisabled => {
                write!(f, "share.renew.acknowledge.enable is false for the group")
            }
        }
    }
}

impl<'a> Acknowledgement<'a> {
    /// Subranges with one type each.
    fn ranges(self, start: i64) -> impl Iterator<Item = (i64, i64, i8)> + use<'a> {
        let whole = self.types.len() == 1;
        let mut rest = self.types;
        let mut at = self.first;
        std::iter::from_fn(move || {
            let (code, len) = match rest {
                [] => return None,
                [code, ..] if whole => (*code, self.last - self.first + 1),
                [code, ..] => {
                    let same = rest.iter().take_while(|other| *other == code).count();
                    (*code, i64::try_from(same).unwrap_or(i64::MAX))
                }
            };
            rest = if whole { &[] } else { &rest[usize::try_from(len).unwrap_or(rest.len())..] };
            let first = at;
            at += len;
            Some((first.max(start), at - 1, code))
        })
        .filter(|(first, last, _)| first <= last)
    }
}

impl SharePartition {
    /// Applies a member's acknowledgements. Returns the state to write, whose outcome the caller must report.
    pub fn acknowledge(
        &mut self,
        member: &str,
        acknowledgements: &[Acknowledgement<'_>],
        limits: &ShareLimits,
        now_ms: i64,
    ) -> Result<Vec<StateBatch>, AcknowledgeError> {
        self.check(member, acknowledgements, limits)?;
        let mut batches = Vec::new();
        for acknowledgement in acknowledgements {
            for (first, last, code) in acknowledgement.ranges(self.start) {
                let kind = AcknowledgeType::from_code(code).ok_or(AcknowledgeError::UnknownType(code))?;
                if kind == AcknowledgeType::Renew {
                    self.change(first, last, |_, run| run.deadline_ms = now_ms + limits.lock_ms);
                } else {
                    self.begin(first, last, kind, limits, &mut batches);
                }
            }
        }
        Ok(batches)
    }

    /// Releases all records of a departed member. Returns the state to write.
    pub fn release_member(&mut self, member: &str, limits: &ShareLimits) -> Vec<StateBatch> {
        let Some(slot) = self.members.find(member) else { return Vec::new() };
        let held = self.runs.iter().filter(|(_, run)| run.owner == slot && run.is_acquired());
        let held: Vec<(i64, i64)> = held.map(|(first, run)| (first, run.last)).collect();
        let mut batches = Vec::new();
        for (first, last) in held {
            self.begin(first, last, AcknowledgeType::Release, limits, &mut batches);
        }
        batches
    }

    /// Returns acquired records that were not sent to the member. The delivery does not count.
    pub fn take_back(&mut self, member: &str, first: i64, last: i64) {
        let Some(slot) = self.members.find(member) else { return };
        self.change(first.max(self.start), last, |_, run| {
            if run.owner == slot && run.is_acquired() {
                run.phase = Phase::Available;
                run.owner = NO_ONE;
                run.deliveries -= 1;
            }
        });
    }

    /// Checks that the member holds all records from the start offset on, before any change.
    fn check(
        &self,
        member: &str,
        acknowledgements: &[Acknowledgement<'_>],
        limits: &ShareLimits,
    ) -> Result<(), AcknowledgeError> {
        let slot = self.members.find(member);
        let mut seen_to = i64::MIN;
        for acknowledgement in acknowledgements {
            let Acknowledgement { first, last, types } = *acknowledgement;
            let len = last.checked_sub(first).and_then(|span| usize::try_from(span).ok());
            if types.is_empty() || (types.len() > 1 && len != Some(types.len() - 1)) || last < first {
                return Err(AcknowledgeError::WrongTypes);
            }
            if let Some(code) = types.iter().find(|code| AcknowledgeType::from_code(**code).is_none()) {
                return Err(AcknowledgeError::UnknownType(*code));
            }
            if last < self.start {
                continue;
            }
            if first <= seen_to {
                return Err(AcknowledgeError::NotAcquired);
            }
            seen_to = last;
            if self.runs.last().is_none_or(|(_, run)| last > run.last) {
                return Err(match self.runs.is_empty() {
                    true => AcknowledgeError::NotAcquired,
                    false => AcknowledgeError::NeverDelivered,
                });
            }
            let mut held = self.runs.within(first.max(self.start), last);
            if !held.all(|(_, run)| run.is_acquired() && Some(run.owner) == slot) {
                return Err(AcknowledgeError::NotAcquired);
            }
            if !limits.may_renew && types.contains(&(AcknowledgeType::Renew as i8)) {
                return Err(AcknowledgeError::RenewDisabled);
            }
        }
        Ok(())
    }

    /// Starts the state change of acquired records.
    fn begin(
        &mut self,
        first: i64,
        last: i64,
        kind: AcknowledgeType,
        limits: &ShareLimits,
        batches: &mut Vec<StateBatch>,
    ) {
        self.change(first, last, |at, run| {
            run.phase = match kind {
                AcknowledgeType::Accept => Phase::Acknowledged,
                AcknowledgeType::Gap | AcknowledgeType::Reject => Phase::Archived,
                AcknowledgeType::Release => given_back(run.deliveries, limits),
                AcknowledgeType::Renew => return,
            };
            run.is_pending = true;
            add_batch(batches, batch_of(at, run.last, run));
        });
    }
}
