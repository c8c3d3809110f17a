//! Checks the acknowledgements of a request, and applies them to each partition.

use super::{Call, readable};
use std::sync::Arc;
use thalweg_metadata::{ImageCell, TopicIdPartition};
use thalweg_share::{AcknowledgeError, AcknowledgeType, Acknowledgement};
use thalweg_share_groups::{
    AcknowledgementFailure, AcknowledgementOutcome, LedSharePartitions, PendingAcknowledgement,
    ShareSessionKey,
};
use thalweg_wire::ErrorCode;

/// First offset, last offset and acknowledgement types of one batch.
pub type AckBatch<'a> = (i64, i64, &'a [i8]);

/// The acknowledging member, and the allowed types.
pub struct Acknowledgements<'a> {
    /// Group and member.
    pub key: &'a ShareSessionKey,
    /// True if the version supports renewal of locks.
    pub may_renew: bool,
    /// True if the request sets IsRenewAck.
    pub is_renewal: bool,
}

/// The acknowledgements of one partition, with a pending write of the outcome.
pub struct CountedAcknowledgement {
    pending: PendingAcknowledgement,
    /// Number of records by type, counted after the write.
    counts: [u64; 5],
}

impl CountedAcknowledgement {
    /// Waits for the write, and returns the outcome.
    pub async fn outcome(self, share_partitions: &LedSharePartitions) -> AcknowledgementOutcome {
        let outcome = self.pending.outcome().await;
        if outcome.is_ok() {
            for (code, records) in (0..).zip(self.counts).filter(|(_, records)| *records > 0) {
                share_partitions.counters.count_acknowledged(code, records);
            }
        }
        outcome
    }

    fn now(outcome: AcknowledgementOutcome) -> CountedAcknowledgement {
        CountedAcknowledgement { pending: PendingAcknowledgement::Now(outcome), counts: [0; 5] }
    }
}

impl Acknowledgements<'_> {
    /// Applies the acknowledgements to each partition.
    pub fn take<'a>(
        &self,
        images: &ImageCell,
        share_partitions: &Arc<LedSharePartitions>,
        call: &Call,
        partitions: impl Iterator<Item = (TopicIdPartition, Vec<AckBatch<'a>>)>,
    ) -> Vec<(TopicIdPartition, CountedAcknowledgement)> {
        let image = images.get();
        let decisions = partitions.map(|(id, batches)| {
            let allowed = match image.topic_by_id(id.0) {
                None => Err(AcknowledgementFailure::Unserved(ErrorCode::UnknownTopicId)),
                // As in Kafka, malformed batches are refused first.
                Some(_) => self
                    .check(&batches)
                    .and_then(|()| readable(call, &image, id).map_err(AcknowledgementFailure::Unserved)),
            };
            let decision = match allowed {
                Err(error) => Decision::Refused(error),
                Ok(()) if batches.is_empty() => Decision::Nothing,
                Ok(()) => Decision::Taken(self.take_one(share_partitions, id, &batches)),
            };
            (id, decision)
        });
        answered(decisions.collect())
    }

    fn take_one(
        &self,
        share_partitions: &Arc<LedSharePartitions>,
        id: TopicIdPartition,
        batches: &[AckBatch<'_>],
    ) -> CountedAcknowledgement {
        let Some(led) = share_partitions.find(&self.key.group, id) else {
            return CountedAcknowledgement::now(Err(AcknowledgementFailure::Unserved(
                ErrorCode::UnknownTopicOrPartition,
            )));
        };
        let mut counts = [0; 5];
        for (first, last, types) in batches {
            let records = last.abs_diff(*first).saturating_add(1);
            match types {
                [one] => count(&mut counts, *one, records),
                each => each.iter().for_each(|one| count(&mut counts, *one, 1)),
            }
        }
        let batches: Vec<_> =
            batches.iter().map(|&(first, last, types)| Acknowledgement { first, last, types }).collect();
        CountedAcknowledgement {
            pending: led.acknowledge(share_partitions, &self.key.member, &batches),
            counts,
        }
    }

    /// Checks that the batches of a partition are well-formed. Kafka:
    /// `KafkaApis.validateAcknowledgementBatches`.
    fn check(&self, batches: &[AckBatch<'_>]) -> Result<(), AcknowledgementFailure> {
        let last_type = if self.may_renew { AcknowledgeType::Renew } else { AcknowledgeType::Reject };
        let mut previous_last = -1;
        for &(first, last, types) in batches {
            let len = last.checked_sub(first).and_then(|span| usize::try_from(span).ok());
            let fits = types.len() == 1 || len.is_some_and(|len| len + 1 == types.len());
            let is_known = types.iter().all(|one| (0..=last_type as i8).contains(one));
            let renews = types.contains(&(AcknowledgeType::Renew as i8)) && !self.is_renewal;
            let malformed = |why| Err(AcknowledgementFailure::Malformed(why));
            if first > last {
                return malformed("the first offset of a batch is behind its last");
            }
            if first < previous_last {
                return malformed(
                    "the batches are not in the order of their offsets, or one begins in another",
                );
            }
            if !fits {
                return Err(AcknowledgementFailure::Refused(AcknowledgeError::WrongTypes));
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

/// The decision on the batches of one partition.
enum Decision {
    Refused(AcknowledgementFailure),
    /// The request has no batches of the partition.
    Nothing,
    Taken(CountedAcknowledgement),
}

/// The partitions that an answer names. As in Kafka, a partition without batches is named only beside a
/// partition whose batches were taken.
fn answered(decisions: Vec<(TopicIdPartition, Decision)>) -> Vec<(TopicIdPartition, CountedAcknowledgement)> {
    let names_all = decisions.iter().any(|(_, decision)| matches!(decision, Decision::Taken(_)));
    let pending = |decision| match decision {
        Decision::Refused(error) => Some(CountedAcknowledgement::now(Err(error))),
        Decision::Nothing => names_all.then(|| CountedAcknowledgement::now(Ok(()))),
        Decision::Taken(pending) => Some(pending),
    };
    decisions.into_iter().filter_map(|(id, decision)| Some((id, pending(decision)?))).collect()
}

fn count(counts: &mut [u64; 5], code: i8, records: u64) {
    if let Some(count) = usize::try_from(code).ok().and_then(|code| counts.get_mut(code)) {
        *count += records;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::PartitionIndex;
    use thalweg_wire::Uuid;

    #[test]
    fn partition_without_batches_is_named_only_beside_taken_ones() {
        let named = |decisions: Vec<Decision>| -> Vec<i32> {
            let decisions = (0..).map(|index| (Uuid(7), PartitionIndex(index))).zip(decisions).collect();
            answered(decisions).into_iter().map(|(id, _)| id.1.0).collect()
        };
        let refused = || Decision::Refused(AcknowledgementFailure::Unserved(ErrorCode::UnknownTopicId));
        let taken = || Decision::Taken(CountedAcknowledgement::now(Ok(())));
        assert!(named(vec![Decision::Nothing, Decision::Nothing]).is_empty());
        assert_eq!(named(vec![Decision::Nothing, refused()]), [1]);
        assert_eq!(named(vec![Decision::Nothing, refused(), taken()]), [0, 1, 2]);
    }

    #[test]
    fn batches_that_make_no_sense_are_refused() {
        let key = ShareSessionKey { group: "g".into(), member: "m".into() };
        let check = |version: i16, is_renewal, batches: &[AckBatch<'_>]| {
            Acknowledgements { key: &key, may_renew: version >= 2, is_renewal }.check(batches).is_ok()
        };
        assert!(check(1, false, &[(0, 4, &[1]), (5, 6, &[1, 2]), (6, 6, &[3]), (7, 9, &[0])]));
        assert!(check(2, true, &[(0, 4, &[4])]));
        for (version, batch) in [
            (1, (4, 0, &[1][..])),
            (1, (0, 4, &[])),
            (1, (0, 4, &[1, 1])),
            (1, (0, 0, &[4])),
            (2, (0, 0, &[4])),
            (2, (0, 0, &[5])),
            (2, (0, 0, &[-1])),
            (2, (i64::MIN, i64::MAX, &[1, 1])),
        ] {
            assert!(!check(version, false, &[batch]), "{batch:?}");
        }
        assert!(!check(1, true, &[(0, 0, &[4])]), "version 1 has no renewal");
        assert!(!check(1, false, &[(5, 6, &[1]), (0, 4, &[1])]), "they do not rise");
    }
}
