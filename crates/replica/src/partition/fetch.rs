//! Reading from a replica: as the leader, or for consumers as a follower (KIP-392).

use super::{FetchError, Partition, PartitionSnapshot, State};
use thalweg_log::{AbortedTransaction, LogSlice};
use thalweg_metadata::BrokerId;
use thalweg_record::{LeaderEpoch, Offset};
use tokio::time::Instant;

/// The reader, which decides the visible end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A consumer, up to the high watermark or the last stable offset.
    Client,
    /// This broker's own coordinators and Kafka's debugging consumer, up to the log end.
    Internal,
    /// A replica, up to the log end.
    Follower {
        /// The follower's broker id.
        id: BrokerId,
        /// The follower's broker epoch; -1 if not given.
        broker_epoch: i64,
    },
}

/// The isolation level of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All replicated records.
    ReadUncommitted,
    /// Records before the first undecided transaction.
    ReadCommitted,
}

impl Isolation {
    /// The level by its code in a request; `None` for an unknown code.
    pub fn of(level: i8) -> Option<Isolation> {
        match level {
            0 => Some(Isolation::ReadUncommitted),
            1 => Some(Isolation::ReadCommitted),
            _ => None,
        }
    }
}

/// The parameters of a read.
#[derive(Clone, Copy, Debug)]
pub struct FetchParameters {
    /// The first offset.
    pub offset: Offset,
    /// Maximum number of bytes.
    pub max_bytes: usize,
    /// True if a first batch beyond `max_bytes` is returned anyway.
    pub at_least_one: bool,
    /// The leader epoch known to the reader, if given.
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the last batch that the reader holds.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// The kind of reader.
    pub reader: Reader,
    /// The isolation level.
    pub isolation: Isolation,
    /// True if a consumer may read from a follower (KIP-392).
    pub from_any_replica: bool,
    /// The start offset of the reader's own log; -1 if unknown.
    pub reader_start: Offset,
    /// True for the first read of a fetch. Later reads of a waiting fetch have no new information about its
    /// follower.
    pub first_pass: bool,
}

/// The result of a read.
#[derive(Debug)]
pub struct FetchRead {
    /// The batches; `None` if there are none to read.
    pub slice: Option<LogSlice>,
    /// The high watermark.
    pub high_watermark: Offset,
    /// The last stable offset.
    pub last_stable_offset: Offset,
    /// The log start offset.
    pub log_start_offset: Offset,
    /// If the logs have diverged: the largest common epoch, and its end in this log.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// The aborted transactions in the slice, for readers of committed records.
    pub aborted: Vec<AbortedTransaction>,
    /// True if the limits allowed fewer bytes than could be read.
    pub behind: bool,
    /// The partition's offsets and generation at the time of the read.
    pub snapshot: PartitionSnapshot,
    /// The replica that the consumer should read from instead.
    pub preferred_read_replica: Option<BrokerId>,
}

impl Partition {
    /// Finds the batches to send.
    pub fn fetch(&self, parameters: &FetchParameters) -> Result<FetchRead, FetchError> {
        let mut state = self.state.lock();
        let read = self.fetch_locked(&mut state, parameters);
        if parameters.first_pass {
            state.traffic.fetch_requests += 1;
            state.traffic.failed_fetch_requests += u64::from(read.is_err());
        }
        read.inspect_err(|error| match error {
            FetchError::Storage => {
                tracing::error!(partition = ?self, offset = parameters.offset.0, "Failed to read a log");
            }
            FetchError::Corrupt => self.context.damage_found.notify_one(),
            FetchError::Role(_) | FetchError::UnknownFollower { .. } | FetchError::OutOfRange { .. } => {}
        })
    }

    /// Limits a follower's read: nothing while it exceeds its throttle.
    fn throttled(&self, state: &State, parameters: &FetchParameters) -> FetchParameters {
        let held_back = match parameters.reader {
            Reader::Follower { id, .. } => {
                !state.registration.isr.contains(&id)
                    && state.settings.leader_throttled.contains(self.index, self.node_id)
                    && self.context.leader_throttle.is_exceeded(Instant::now())
            }
            Reader::Client | Reader::Internal => false,
        };
        if held_back {
            FetchParameters { max_bytes: 0, at_least_one: false, ..*parameters }
        } else {
            *parameters
        }
    }

    fn fetch_locked(&self, state: &mut State, parameters: &FetchParameters) -> Result<FetchRead, FetchError> {
        if parameters.from_any_replica && parameters.reader == Reader::Client {
            state.check_replica(parameters.current_leader_epoch)?;
        } else {
            state.check_leader(parameters.current_leader_epoch)?;
        }
        if let Reader::Follower { id, .. } = parameters.reader {
            state.check_follower(id, parameters.current_leader_epoch)?;
        }
        let mut read = state.read(&self.throttled(state, parameters));
        if let (Ok(read), Reader::Follower { id, broker_epoch }) = (&mut read, parameters.reader)
            && parameters.first_pass
            && read.diverging.is_none()
        {
            state.follower_has(self, id, broker_epoch, parameters);
            if let Some(slice) = &read.slice {
                state.note_sent_to_follower(self, id, parameters.offset, slice.len);
            }
            read.high_watermark = state.log.high_watermark();
            read.last_stable_offset = state.log.last_stable_offset();
        }
        if let Reader::Follower { .. } = parameters.reader {
            match &mut read {
                Ok(read) => read.log_start_offset = state.log.log_start_for_followers(),
                Err(FetchError::OutOfRange { lost_from }) => *lost_from = state.log.lost_from(),
                Err(_) => {}
            }
        }
        if let Ok(read) = &mut read {
            if let (Reader::Client, true, Some(slice)) =
                (parameters.reader, parameters.first_pass, &read.slice)
            {
                state.note_sent_to_consumer(self, parameters.offset, slice.len);
            }
            read.snapshot = self.snapshot();
        }
        read
    }
}

impl State {
    /// A result without records.
    pub(super) fn nothing_read(&self) -> FetchRead {
        FetchRead {
            slice: None,
            high_watermark: self.log.high_watermark(),
            last_stable_offset: self.log.last_stable_offset(),
            log_start_offset: self.log.log_start_offset(),
            diverging: None,
            aborted: Vec::new(),
            behind: false,
            snapshot: PartitionSnapshot::default(),
            preferred_read_replica: None,
        }
    }

    fn read(&mut self, parameters: &FetchParameters) -> Result<FetchRead, FetchError> {
        let mut read = self.nothing_read();
        if let Some(epoch) = parameters.last_fetched_epoch {
            read.diverging = self.divergence(epoch, parameters.offset)?;
            if read.diverging.is_some() {
                return Ok(read);
            }
        }
        let bound = match (parameters.reader, parameters.isolation) {
            (Reader::Follower { .. } | Reader::Internal, _) => self.log.log_end_offset(),
            (Reader::Client, Isolation::ReadUncommitted) => read.high_watermark,
            (Reader::Client, Isolation::ReadCommitted) => read.last_stable_offset,
        };
        read.slice =
            self.log.read(parameters.offset, parameters.max_bytes, bound, parameters.at_least_one)?;
        read.behind = match &read.slice {
            Some(slice) => slice.end_offset < bound,
            None => parameters.offset < bound && parameters.max_bytes > 0,
        };
        if let (Some(slice), Isolation::ReadCommitted) = (&read.slice, parameters.isolation) {
            let aborted = self.log.aborted_transactions(parameters.offset, slice.end_offset);
            read.aborted = aborted.map_err(|_| FetchError::Storage)?;
        }
        Ok(read)
    }

    /// The divergence of a reader's log from this log, by the epoch of the reader's last batch (KIP-595).
    fn divergence(
        &self,
        last_fetched: LeaderEpoch,
        offset: Offset,
    ) -> Result<Option<(LeaderEpoch, Offset)>, FetchError> {
        let end =
            self.log.end_offset_for_epoch(last_fetched).ok_or(FetchError::OutOfRange { lost_from: None })?;
        if offset < self.log.log_start_offset() {
            return Err(FetchError::OutOfRange { lost_from: None });
        }
        let diverges = end.leader_epoch < last_fetched || end.end_offset < offset;
        Ok(diverges.then_some((end.leader_epoch, end.end_offset)))
    }
}
