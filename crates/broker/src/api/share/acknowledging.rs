//! Checks the acknowledgements of a request, and applies them to each partition.

use super::{Call, readable};
use std::sync::Arc;
use thalweg_metadata::ImageCell;
use thalweg_share::{AcknowledgeError, AcknowledgeType, Acknowledgement};
use thalweg_share_groups::{
    PendingAcknowledgement, SessionKey, SettleError, SettleOutcome, Shares, TopicPartitionId,
};
use thalweg_wire::ErrorCode;

/// First offset, last offset and acknowledgement types of one batch.
pub type AckBatch<'a> = (i64, i64, &'a [i8]);

/// The acknowledging member, and the allowed types.
pub struct Acknowledgements<'a> {
    /// Group and member.
    pub key: &'a SessionKey,
    /// True if the version supports renewal of locks.
    pub may_renew: bool,
    /// True if the request sets IsRenewAck.
    pub is_renewal: bool,
}

/// The acknowledgements of one partition, with a pending write of the outcome.
pub struct Settling {
    acknowledging: PendingAcknowledgement,
    /// Number of records by type, counted after the write.
    counts: [u64; 5],
}

impl Settling {
    /// Waits for the write, and returns the outcome.
    pub async fn settled(self, shares: &Shares) -> SettleOutcome {
        let settled = self.acknowledging.settled().await;
        if settled.is_ok() {
            for (code, records) in (0..).zip(self.counts).filter(|(_, records)| *records > 0) {
                shares.counters.count_acknowledged(code, records);
            }
        }
        settled
    }

    fn now(settled: SettleOutcome) -> Settling {
        Settling { acknowledging: PendingAcknowledgement::Now(settled), counts: [0; 5] }
    }
}

impl Acknowledgements<'_> {
    /// Applies the acknowledgements to each partition.
    pub fn take<'a>(
        &self,
        images: &ImageCell,
        shares: &Arc<Shares>,
        call: &Call,
        partitions: impl Iterator<Item = (TopicPartitionId, Vec<AckBatch<'a>>)>,
    ) -> Vec<(TopicPartitionId, Settling)> {
        let image = images.get();
        let taken = partitions.map(|(id, said)| {
            let allowed = match image.topic_by_id(id.0) {
                None => Err(SettleError::Unserved(ErrorCode::UnknownTopicId)),
                // As in Kafka, malformed batches are refused first.
                Some(_) => {
                    self.check(&said).and_then(|()| readable(call, &image, id).map_err(SettleError::Unserved))
                }
            };
            let settling = match allowed {
                Err(error) => Settling::now(Err(error)),
                Ok(()) if said.is_empty() => Settling::now(Ok(())),
                Ok(()) => self.take_one(shares, id, &said),
            };
            (id, settling)
        });
        taken.collect()
    }

    fn take_one(&self, shares: &Arc<Shares>, id: TopicPartitionId, said: &[AckBatch<'_>]) -> Settling {
        let Some(led) = shares.find(&self.key.group, id) else {
            return Settling::now(Err(SettleError::Unserved(ErrorCode::UnknownTopicOrPartition)));
        };
        let mut counts = [0; 5];
        for (first, last, types) in said {
            let records = last.abs_diff(*first).saturating_add(1);
            match types {
                [one] => count(&mut counts, *one, records),
                each => each.iter().for_each(|one| count(&mut counts, *one, 1)),
            }
        }
        let said: Vec<_> =
            said.iter().map(|&(first, last, types)| Acknowledgement { first, last, types }).collect();
        Settling { acknowledging: led.acknowledge(shares, &self.key.member, &said), counts }
    }

    /// Checks that the batches of a partition are well-formed. Kafka:
    /// `KafkaApis.validateAcknowledgementBatches`.
    fn check(&self, said: &[AckBatch<'_>]) -> Result<(), SettleError> {
        let last_type = if self.may_renew { AcknowledgeType::Renew } else { AcknowledgeType::Reject };
        let mut previous_last = -1;
        for &(first, last, types) in said {
            let len = last.checked_sub(first).and_then(|span| usize::try_from(span).ok());
            let fits = types.len() == 1 || len.is_some_and(|len| len + 1 == types.len());
            let is_known = types.iter().all(|one| (0..=last_type as i8).contains(one));
            let renews = types.contains(&(AcknowledgeType::Renew as i8)) && !self.is_renewal;
            let malformed = |why| Err(SettleError::Malformed(why));
            if first > last {
                return malformed("the first offset of a batch is behind its last");
            }
            if first < previous_last {
                return malformed(
                    "the batches are not in the order of their offsets, or one begins in another",
                );
            }
            if !fits {
                return Err(SettleError::Refused(AcknowledgeError::WrongTypes));
            }
            if !is_known {
                return malformed(
                    "the types are 0 gap, 1 accept, 2 release, 3 reject, and from version 2 on 4 renew",
                );
            }
            if renews {
                return malformed("type 4 renew is for requests with IsRenewAck");
            }
            previous_last = last;
        }
        Ok(())
    }
}

fn count(counts: &mut [u64; 5], code: i8, records: u64) {
    if let Some(count) = usize::try_from(code).ok().and_then(|code| counts.get_mut(code)) {
        *count += records;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_make_no_sense_are_refused() {
        let key = SessionKey { group: "g".into(), member: "m".into() };
        let check = |version: i16, is_renewal, said: &[AckBatch<'_>]| {
            Acknowledgements { key: &key, may_renew: version >= 2, is_renewal }.check(said).is_ok()
        };
        assert!(check(1, false, &[(0, 4, &[1]), (5, 6, &[1, 2]), (6, 6, &[3]), (7, 9, &[0])]));
        assert!(check(2, true, &[(0, 4, &[4])]));
        for (version, said) in [
            (1, (4, 0, &[1][..])),
            (1, (0, 4, &[])),
            (1, (0, 4, &[1, 1])),
            (1, (0, 0, &[4])),
            (2, (0, 0, &[4])),
            (2, (0, 0, &[5])),
            (2, (0, 0, &[-1])),
            (2, (i64::MIN, i64::MAX, &[1, 1])),
        ] {
            assert!(!check(version, false, &[said]), "{said:?}");
        }
        assert!(!check(1, true, &[(0, 0, &[4])]), "version 1 has no renewal");
        assert!(!check(1, false, &[(5, 6, &[1]), (0, 4, &[1])]), "they do not rise");
    }
}
