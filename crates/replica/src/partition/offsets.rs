//! Offset lookups by time and by leader epoch, and moving the log start.

use super::{DeleteError, Isolation, OffsetsError, Partition, Reader, RoleError, State, UnreadableLog};
use thalweg_log::{DeleteRecordsError, LogError, SearchTurn, TimestampSearch, TimestampedOffset};
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::list_offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP, MAX_TIMESTAMP, record_offset,
};

/// The result of an offset lookup; -1 in each field if nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampLookup {
    /// The offset found.
    pub offset: i64,
    /// The record's timestamp; -1 for the ends of the log.
    pub timestamp: i64,
    /// The leader epoch of the record; -1 if unknown.
    pub leader_epoch: i32,
}

impl TimestampLookup {
    const NOTHING: TimestampLookup = TimestampLookup { offset: -1, timestamp: -1, leader_epoch: -1 };
}

impl Partition {
    /// The offset for a timestamp, within the reader's visible range (Kafka's `fetchOffsetForTimestamp`); for
    /// a timestamp of [`record_offset`], the first data record at or after its offset.
    /// Blocks while reading and decompressing batches, without the lock.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        reader: Reader,
        isolation: Isolation,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<TimestampLookup, OffsetsError> {
        let epoch = |epoch: Option<LeaderEpoch>| epoch.map_or(-1, |epoch| epoch.0);
        let (end, mut search) = {
            let state = self.state.lock();
            let end = state.visible_end(timestamp, reader, isolation, current_leader_epoch)?;
            let log = &state.log;
            match timestamp {
                LATEST_TIMESTAMP => {
                    let latest = log.latest_epoch();
                    // A controller that compares logs would take this for the answer of a broker that does
                    // not know its log end. The epoch is raised soon.
                    let is_ambiguous = latest.is_some() && latest == current_leader_epoch;
                    if is_ambiguous && reader == Reader::Internal && state.stale_epoch().is_some() {
                        return Err(RoleError::FencedEpoch.into());
                    }
                    let leader_epoch = epoch(latest);
                    return Ok(TimestampLookup { offset: end.0, timestamp: -1, leader_epoch });
                }
                EARLIEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP => {
                    let start = log.log_start_offset();
                    let leader_epoch = epoch(log.epoch_at(start));
                    return Ok(TimestampLookup { offset: start.0, timestamp: -1, leader_epoch });
                }
                // This broker has no tiered storage.
                LATEST_TIERED_TIMESTAMP | EARLIEST_PENDING_UPLOAD_TIMESTAMP => {
                    return Ok(TimestampLookup::NOTHING);
                }
                MAX_TIMESTAMP => (end, TimestampSearch::newest()),
                timestamp => match record_offset(timestamp) {
                    Some(offset) => (end, TimestampSearch::from_offset(Offset(offset))),
                    None => (end, TimestampSearch::not_before(timestamp)),
                },
            }
        };
        match self.search(&mut search).map_err(|error| self.unreadable(&error))? {
            Some(found) if found.offset < end => Ok(TimestampLookup {
                offset: found.offset.0,
                timestamp: found.timestamp,
                leader_epoch: epoch(found.leader_epoch),
            }),
            _ => Ok(TimestampLookup::NOTHING),
        }
    }

    /// Alternates between finding a position under the lock and reading batches without it.
    fn search(&self, search: &mut TimestampSearch) -> Result<Option<TimestampedOffset>, LogError> {
        loop {
            let turn = self.state.lock().log.search_on(search)?;
            let found = match turn {
                SearchTurn::Nothing => return Ok(None),
                SearchTurn::GoOn => continue,
                SearchTurn::Scan(scan) => scan.run(),
                SearchTurn::Newest(scan) => scan.run().map(|newest| {
                    search.take(newest);
                    None
                }),
            };
            match found {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                // Batches truncated meanwhile are not damage.
                Err(_) if self.state.lock().log.has_outrun(search) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The end of a leader epoch: the largest epoch not above it, and the offset behind its last record.
    pub fn end_of_epoch(
        &self,
        epoch: LeaderEpoch,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<(LeaderEpoch, Offset)>, OffsetsError> {
        let state = self.state.lock();
        state.check_leader(current_leader_epoch)?;
        Ok(state.log.end_offset_for_epoch(epoch).map(|end| (end.leader_epoch, end.end_offset)))
    }

    /// Moves the log start to `offset`, -1 for the high watermark. Returns the requested offset with the
    /// leader epoch. The log may start later because its beginning is lost; other replicas must not delete
    /// their records for that reason.
    pub fn delete_records(&self, offset: i64) -> Result<(Offset, LeaderEpoch), DeleteError> {
        let mut state = self.state.lock();
        state.check_leader(None)?;
        let policy = state.settings.cleanup_policy;
        if policy.compact && !policy.delete {
            return Err(DeleteError::CompactedOnly);
        }
        let offset = if offset == -1 { state.log.high_watermark() } else { Offset(offset) };
        if offset.0 < 0 {
            return Err(DeleteError::OutOfRange);
        }
        let deleted = state.log.delete_records(offset).map(|_| (offset, state.leader_epoch()));
        // `note_error` takes the lock.
        drop(state);
        match deleted {
            Ok(deleted) => Ok(deleted),
            Err(DeleteRecordsError::OutOfRange(_)) => Err(DeleteError::OutOfRange),
            Err(DeleteRecordsError::Log(error)) => Err(self.unreadable(&error).into()),
        }
    }

    fn unreadable(&self, error: &LogError) -> UnreadableLog {
        // The disk is fine: the client gets the error, without a warning in the broker's log.
        if let LogError::UnreadableRecords { .. } = error {
            tracing::debug!(partition = ?self, %error, "Failed to search records");
            return UnreadableLog::Records;
        }
        self.note_error(error);
        tracing::error!(partition = ?self, %error, "Failed to read a log");
        UnreadableLog::Storage
    }
}

impl State {
    /// The reader's visible end, unless this replica may not serve the request.
    fn visible_end(
        &self,
        timestamp: i64,
        reader: Reader,
        isolation: Isolation,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Offset, OffsetsError> {
        match reader {
            // Diagnostic readers may ask every replica.
            Reader::Internal => self.check_replica(current_leader_epoch)?,
            Reader::Client | Reader::Follower { .. } => drop(self.check_leader(current_leader_epoch)?),
        }
        // A new leader may not know its predecessor's high watermark yet (KIP-207).
        let is_behind = self
            .leader()
            .is_some_and(|leader| leader.followers.is_some() && self.high_watermark() < leader.epoch_start);
        let needs_end = timestamp == LATEST_TIMESTAMP || timestamp >= 0 || record_offset(timestamp).is_some();
        if is_behind && reader == Reader::Client && needs_end {
            return Err(OffsetsError::NotAvailable);
        }
        Ok(match (reader, isolation) {
            (Reader::Follower { .. } | Reader::Internal, _) => self.log.log_end_offset(),
            (Reader::Client, Isolation::ReadUncommitted) => self.log.high_watermark(),
            (Reader::Client, Isolation::ReadCommitted) => self.log.last_stable_offset(),
        })
    }
}
