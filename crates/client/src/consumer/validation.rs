//! Validation of positions against the log of a new leader (KIP-320). After an unclean election, that log may
//! lack records that the consumer has read, and have other records at their offsets: without validation, the
//! consumer would skip these silently.
//!
//! The leader reports the end of the epoch of the last read record in its log. An end before the position is
//! the point of divergence, and the consumer goes back to it; without `auto.offset.reset` the caller decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::request::OffsetForLeaderEpochRequest;
use thalweg_wire::request::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use thalweg_wire::request::offset_for_leader_epoch_response::EpochEndOffset;
use thalweg_wire::{ApiKey, ErrorCode};

use super::assignment::PositionCheck;
use super::{Consumer, ConsumerError, LogTruncated, OffsetReset, StartAt};
use crate::cluster::Cluster;
use crate::offsets::TopicPartition;

/// The first version without a permission on the cluster.
const FOR_CONSUMERS_FROM: i16 = 3;
/// The replica id of a consumer.
const CONSUMER: i32 = -1;

/// The ends of epochs in a leader's log, as answered.
pub(super) type Ends = BTreeMap<TopicPartition, EpochEndOffset>;

impl Consumer {
    /// Requests the validation of the positions that need it from their leaders.
    pub(super) fn validate_positions(&mut self) {
        let (unvalidated, lacks_leader) = {
            let assignment = self.shared.assignment.lock();
            (assignment.unvalidated(), assignment.without_leader().is_some())
        };
        if lacks_leader {
            self.refresh_soon();
        }
        self.leaders.compare(&self.cluster, unvalidated);
    }

    /// Applies a leader's ends of epochs. Retriable failures are left to the next round.
    pub(super) fn read_ends(
        &mut self,
        checks: &[PositionCheck],
        ends: Result<Option<Ends>, ClientError>,
    ) -> Result<(), ConsumerError> {
        match ends {
            Ok(Some(ends)) => checks.iter().try_for_each(|check| self.read_end(check, ends.get(&check.at))),
            Ok(None) => {
                let mut assignment = self.shared.assignment.lock();
                checks.iter().for_each(|check| assignment.validated(check, check.offset, check.epoch));
                Ok(())
            }
            Err(error) if error.is_retriable() => {
                self.unvalidated_because(&error);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn read_end(
        &mut self,
        requested: &PositionCheck,
        end: Option<&EpochEndOffset>,
    ) -> Result<(), ConsumerError> {
        let what = || format!("End of leader epoch {} in {}", requested.epoch.0, requested.at);
        let code = end.map_or(ErrorCode::LeaderNotAvailable.code(), |end| end.error_code);
        match (RefusedRequest::check(code, None, what), end) {
            (Ok(()), Some(end)) => self.compare(requested, end),
            (Err(refused), _) if refused.error_code == ErrorCode::TopicAuthorizationFailed => {
                Err(ClientError::from(refused).into())
            }
            // As in Kafka's consumer, all other errors may be transient.
            (Err(refused), _) => {
                self.unvalidated_because(&refused.into());
                Ok(())
            }
            (Ok(()), None) => unreachable!("no answer counts as an error"),
        }
    }

    fn compare(&mut self, requested: &PositionCheck, end: &EpochEndOffset) -> Result<(), ConsumerError> {
        let known = end.leader_epoch >= 0 && end.end_offset >= 0;
        let end = known.then_some((Offset(end.end_offset), LeaderEpoch(end.leader_epoch)));
        let PositionCheck { at, offset, .. } = requested;
        if !self.shared.assignment.lock().is_unvalidated(requested) {
            return Ok(());
        }
        match end {
            Some((end, _)) if end >= *offset => {
                self.shared.assignment.lock().validated(requested, *offset, requested.epoch);
            }
            end if self.config.offset_reset == OffsetReset::None => {
                let divergent = end.map(|(offset, _)| offset);
                return Err(LogTruncated { at: at.clone(), offset: *offset, divergent }.into());
            }
            Some((end, epoch)) => {
                tracing::warn!(partition = %at, %offset, divergent = %end, "Log was truncated, reading from where it diverges");
                self.shared.assignment.lock().validated(requested, end, epoch);
            }
            None => {
                tracing::warn!(partition = %at, %offset, "Log was truncated, resetting the position");
                let spec = self.reset_spec(at, Some(*offset))?;
                self.seek_to(at, StartAt::Spec(spec));
            }
        }
        Ok(())
    }

    fn unvalidated_because(&mut self, error: &ClientError) {
        self.config.connection.failed("offsets", error);
        tracing::debug!(%error, "Failed to compare positions with the leader's log");
        self.refresh_soon();
    }
}

/// Requests the ends of these epochs in a leader's log; `None` if the leader is too old.
pub(super) async fn ends_of_epochs(
    cluster: &Cluster,
    leader: i32,
    requested: &[PositionCheck],
) -> Result<Option<Ends>, ClientError> {
    let connection = cluster.broker(leader).await?;
    let newest = connection.versions().newest(ApiKey::OffsetForLeaderEpoch, i16::MAX);
    let Some(version) = newest.filter(|version| *version >= FOR_CONSUMERS_FROM) else { return Ok(None) };
    let mut topics: BTreeMap<&str, Vec<OffsetForLeaderPartition>> = BTreeMap::new();
    for position in requested {
        topics.entry(&position.at.topic).or_default().push(OffsetForLeaderPartition {
            partition: position.at.partition,
            current_leader_epoch: position.leader_epoch.0,
            leader_epoch: position.epoch.0,
        });
    }
    let topics = topics
        .into_iter()
        .map(|(topic, partitions)| OffsetForLeaderTopic { topic: topic.to_owned(), partitions });
    let request = OffsetForLeaderEpochRequest { replica_id: CONSUMER, topics: topics.collect() };
    let response = connection.send_at(&request, version).await?;
    let ends = response.topics.into_iter().flat_map(|topic| {
        let name: Arc<str> = topic.topic.into();
        let at = move |end: EpochEndOffset| (TopicPartition::new(Arc::clone(&name), end.partition), end);
        topic.partitions.into_iter().map(at)
    });
    Ok(Some(ends.collect()))
}
