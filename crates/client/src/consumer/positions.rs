//! Start positions of a consumer: offsets from the leaders, or committed offsets of its group.

use std::collections::BTreeMap;

use thalweg_dial::{ClientError, Connection, RefusedRequest, Retry};
use thalweg_record::Offset;
use thalweg_wire::{ErrorCode, Request, request::OffsetFetchRequest};
use tokio::time::Instant;

use super::leader_requests::{LeaderAnswer, OffsetQuery, VersionedPartition};
use super::{Consumer, ConsumerError, NoGroup, NoOffset, OffsetReset, StartAt};
use crate::coordinator::Coordinator;
use crate::offsets::{
    CommittedOffset, ListedOffset, OffsetSpec, TopicPartition, committed_request, read_committed_offsets,
};

impl Consumer {
    /// The committed offsets of these partitions; partitions without one are omitted. Waits while an open
    /// transaction holds offsets of the group.
    pub async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, CommittedOffset>, ConsumerError> {
        let coordinator = self.coordinator()?;
        let group = coordinator.key().to_owned();
        let make = |connection: &Connection| -> Result<(OffsetFetchRequest, i16), ClientError> {
            committed_request(connection, &group, Some(partitions), true)
        };
        let read =
            |response: <OffsetFetchRequest as Request>::Response, _| read_committed_offsets(response, &group);
        Ok(coordinator.request(self.retry(), make, read).await?)
    }

    /// Requests offsets from the leaders: the start, the end (with `isolation.level=read_committed`, the last
    /// stable offset), or the first records at or after a time.
    pub async fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
    ) -> Result<BTreeMap<TopicPartition, ListedOffset>, ConsumerError> {
        let mut retry = self.retry();
        let mut found = BTreeMap::new();
        let mut missing = wanted.to_vec();
        loop {
            let mut last = None;
            let topics = missing.iter().map(|(at, _)| at.topic.to_string()).collect();
            self.cluster.refresh(&super::sorted(topics), self.config.create_topics).await?;
            for (at, answer) in self.cluster.list_offsets(&missing, self.config.read_committed).await {
                match answer {
                    Ok(offset) => drop(found.insert(at, offset)),
                    Err(error) if error.is_retriable() => last = Some(error),
                    Err(error) => return Err(error.into()),
                }
            }
            missing.retain(|(at, _)| !found.contains_key(at));
            let Some((at, _)) = missing.first() else { return Ok(found) };
            let error = last.unwrap_or_else(|| unanswered(at));
            match retry.pause_after(&error) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error.into()),
            }
        }
    }

    /// The group's coordinator.
    pub(super) fn coordinator(&self) -> Result<&Coordinator, NoGroup> {
        self.coordinator.as_ref().ok_or(NoGroup)
    }

    pub(super) fn retry(&self) -> Retry {
        Retry::within(self.config.retry_backoff, self.config.connection.request_timeout)
    }

    /// Finds missing committed offsets, and requests from the leaders the other missing offsets and the
    /// validation of positions that may be beyond their logs. Retriable failures are left to the next round.
    pub(super) async fn find_positions(&mut self) -> Result<(), ConsumerError> {
        self.positions_at = Instant::now() + self.config.retry_backoff;
        let mut queries: Vec<OffsetQuery> = Vec::new();
        let mut committed: Vec<VersionedPartition> = Vec::new();
        for (at, version, start) in self.shared.assignment.lock().without_position() {
            match start {
                StartAt::Spec(spec) => queries.push(OffsetQuery { at, version, spec }),
                StartAt::Committed => committed.push((at, version)),
                StartAt::Offset(_) => unreachable!("a given offset is a position"),
            }
        }
        if self.leaders.is_late() {
            self.refresh_soon();
        }
        // Before the coordinator, which may not answer.
        self.request_positions(queries);
        if !committed.is_empty() {
            let uncommitted = self.find_committed(committed).await?;
            self.request_positions(uncommitted);
            self.shared.changed.notify_waiters();
        }
        Ok(())
    }

    /// Requests these offsets, and the validation of known positions, from the leaders.
    fn request_positions(&mut self, queries: Vec<OffsetQuery>) {
        self.leaders.find(&self.cluster, queries, self.config.read_committed);
        self.validate_positions();
    }

    /// Applies the committed offsets of these partitions, and returns the partitions without one.
    async fn find_committed(
        &mut self,
        partitions: Vec<VersionedPartition>,
    ) -> Result<Vec<OffsetQuery>, ConsumerError> {
        let wanted: Vec<TopicPartition> = partitions.iter().map(|(at, _)| at.clone()).collect();
        let known = match self.committed(&wanted).await {
            Ok(known) => known,
            // The next round retries.
            Err(ConsumerError::Client(error)) if error.is_retriable() => {
                self.config.connection.failed("offsets", &error);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut uncommitted = Vec::new();
        for (at, version) in partitions {
            match known.get(&at) {
                Some(known) => self.shared.assignment.lock().found_committed(&at, version, known),
                None => {
                    let spec = self.reset_spec(&at, None)?;
                    self.shared.assignment.lock().found_uncommitted(&at, version, spec);
                    uncommitted.push(OffsetQuery { at, version, spec });
                }
            }
        }
        Ok(uncommitted)
    }

    /// Applies the answer of a leader.
    pub(super) fn take_answer(&mut self, answer: LeaderAnswer) -> Result<(), ConsumerError> {
        let taken = match answer {
            LeaderAnswer::Offsets(queries, found) => self.take_offsets(queries, &found),
            LeaderAnswer::Ends(checks, ends) => self.read_ends(&checks, ends),
        };
        self.shared.changed.notify_waiters();
        taken
    }

    fn take_offsets(
        &mut self,
        queries: Vec<OffsetQuery>,
        found: &BTreeMap<TopicPartition, Result<ListedOffset, ClientError>>,
    ) -> Result<(), ConsumerError> {
        for OffsetQuery { at, version, .. } in queries {
            if !self.shared.assignment.lock().lacks_offset(&at, version) {
                continue;
            }
            match found.get(&at) {
                // No record is that new: start with the next record.
                Some(Ok(found)) if found.offset < Offset(0) => {
                    self.seek_to(&at, StartAt::Spec(OffsetSpec::Latest));
                }
                Some(Ok(found)) => self.shared.assignment.lock().found(&at, version, found.offset),
                Some(Err(error)) if !error.is_retriable() => return Err(error.clone().into()),
                Some(Err(error)) => {
                    self.config.connection.failed("offsets", error);
                    self.refresh_soon();
                }
                None => self.refresh_soon(),
            }
        }
        Ok(())
    }

    /// The start position in a partition without an offset, or with an offset missing in its log.
    pub(super) fn reset_spec(
        &self,
        at: &TopicPartition,
        offset: Option<Offset>,
    ) -> Result<OffsetSpec, NoOffset> {
        match self.config.offset_reset {
            OffsetReset::Earliest => Ok(OffsetSpec::Earliest),
            OffsetReset::Latest => Ok(OffsetSpec::Latest),
            OffsetReset::None => Err(NoOffset { at: at.clone(), offset }),
        }
    }
}

fn unanswered(at: &TopicPartition) -> ClientError {
    let message = Some("the broker's answer leaves the partition out".to_owned());
    RefusedRequest { what: format!("Offsets of {at}"), error_code: ErrorCode::LeaderNotAvailable, message }
        .into()
}
