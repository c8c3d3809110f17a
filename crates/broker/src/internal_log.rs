//! The coordinators' access to the partitions of their topics that are led here.

use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use thalweg_log::{BatchFault, CorruptBatch, SalvageStep};
use thalweg_metadata::PartitionIndex;
use thalweg_metadata::topic_name::{OFFSETS, SHARE_STATE, TRANSACTIONS};
use thalweg_record::{BatchHeader, LeaderEpoch, Offset, batches};
use thalweg_replica::partition::{
    DeleteError, FetchError, FetchParameters, Isolation, LeaderAppendError, Partition, Partitions,
    PendingAppend, Reader, RoleError,
};
use thalweg_shard::{
    AppendedBatch, CoordinatorLog, Part, Piece, ShardLoadError, TransactionalAppendOptions, WriteError,
};

/// The partitions of a coordinator's topic.
pub struct InternalLog {
    topic: &'static str,
    partitions: Arc<Partitions>,
    /// Bytes read at a time while a coordinator loads.
    load_bytes: usize,
}

impl InternalLog {
    /// Access to the partitions of `__consumer_offsets` here. `load_bytes` is `offsets.load.buffer.size`.
    pub fn offsets(partitions: Arc<Partitions>, load_bytes: usize) -> Self {
        Self { topic: OFFSETS, partitions, load_bytes }
    }

    /// Access to the partitions of `__transaction_state` here. `load_bytes` is
    /// `transaction.state.log.load.buffer.size`.
    pub fn transactions(partitions: Arc<Partitions>, load_bytes: usize) -> Self {
        Self { topic: TRANSACTIONS, partitions, load_bytes }
    }

    /// Access to the partitions of `__share_group_state` here. `load_bytes` is
    /// `share.coordinator.load.buffer.size`.
    pub fn share_state(partitions: Arc<Partitions>, load_bytes: usize) -> Self {
        Self { topic: SHARE_STATE, partitions, load_bytes }
    }

    fn partition(&self, index: PartitionIndex) -> Option<Arc<Partition>> {
        self.partitions.get(self.topic, index)
    }
}

impl CoordinatorLog for InternalLog {
    fn append(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        batch: Bytes,
        options: TransactionalAppendOptions,
    ) -> Result<AppendedBatch, WriteError> {
        let partition = self.partition(partition).ok_or(WriteError::NotLeader)?;
        let appended = partition
            .append_from_coordinator(&batch, LeaderEpoch(leader_epoch), options)
            .map_err(|error| refused(&partition, &error))?;
        Ok(AppendedBatch {
            last_offset: appended.next_offset + -1,
            is_replicated: appended.is_replicated,
            is_flushed: !appended.flush_due,
        })
    }

    fn acknowledgement(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        of: AppendedBatch,
    ) -> Pin<Box<dyn Future<Output = Result<Offset, WriteError>> + Send>> {
        let (end, epoch) = (of.last_offset + 1, LeaderEpoch(leader_epoch));
        let wait = self
            .partition(partition)
            .map(|partition| PendingAppend::new(&partition, end, epoch, of.is_replicated, of.is_flushed));
        Box::pin(async move { Ok(wait.ok_or(WriteError::NotLeader)?.wait_replicated().await?) })
    }

    fn batch_bytes_max(&self, partition: PartitionIndex) -> usize {
        self.partition(partition).map_or(usize::MAX, |partition| partition.batch_bytes_max())
    }

    fn replay(
        &self,
        partition: PartitionIndex,
        leader_epoch: i32,
        each: &mut dyn FnMut(Part<'_>) -> Result<(), ShardLoadError>,
    ) -> Result<Option<AppendedBatch>, ShardLoadError> {
        let partition = self.partition(partition).ok_or(ShardLoadError::NotLeader)?;
        let published = partition.published_offsets();
        let (mut next, acknowledged_before) = (published.log_start_offset(), published.high_watermark());
        let (epoch, load_bytes) = (LeaderEpoch(leader_epoch), self.load_bytes);
        let lost = partition.lost_ranges(epoch).map_err(|error| not_read(error, next))?.into();
        let mut replay = Replay { partition: &partition, epoch, load_bytes, acknowledged_before, lost, each };
        let mut buffer = Vec::new();
        loop {
            next = match replay.piece(next, &mut buffer) {
                Ok(Some(next)) => next,
                Ok(None) => {
                    let last =
                        AppendedBatch { last_offset: next + -1, is_replicated: false, is_flushed: true };
                    return Ok((next > acknowledged_before).then_some(last));
                }
                Err(damage @ (ShardLoadError::Damaged { .. } | ShardLoadError::DamagedLog { .. })) => {
                    replay.past_damage(next, damage)?
                }
                Err(error) => return Err(error),
            };
        }
    }

    fn delete_before(&self, partition: PartitionIndex, offset: i64) -> Result<(), DeleteError> {
        let partition = self.partition(partition).ok_or(RoleError::NotReplica)?;
        partition.delete_records(offset)?;
        Ok(())
    }
}

/// A replay of one partition.
struct Replay<'a> {
    partition: &'a Partition,
    epoch: LeaderEpoch,
    load_bytes: usize,
    acknowledged_before: Offset,
    /// Remaining ranges of lost records, which reads skip.
    lost: VecDeque<Range<Offset>>,
    each: &'a mut dyn FnMut(Part<'_>) -> Result<(), ShardLoadError>,
}

impl Replay<'_> {
    /// Replays what one read returns. Returns the offset of the next read; `None` at the end of the log.
    fn piece(&mut self, next: Offset, buffer: &mut Vec<u8>) -> Result<Option<Offset>, ShardLoadError> {
        let from = FetchParameters {
            offset: next,
            max_bytes: self.load_bytes,
            at_least_one: true,
            current_leader_epoch: Some(self.epoch),
            last_fetched_epoch: None,
            // A coordinator reads its own writes, up to the end.
            reader: Reader::Internal,
            isolation: Isolation::ReadUncommitted,
            from_any_replica: false,
            reader_start: Offset::NONE,
            first_pass: false,
        };
        let read = self.partition.fetch(&from).map_err(|error| not_read(error, next))?;
        let Some(slice) = read.slice else {
            self.report_lost(Offset(i64::MAX))?;
            return Ok(None);
        };
        buffer.resize(slice.len, 0);
        let length = slice.file.read_at(buffer, slice.position).map_err(read_failed)?;
        if length < slice.len {
            // The log checks the file before the next read.
            slice.file.note_short();
            return Err(read_failed(format!("{length} of {} bytes could be read", slice.len)));
        }
        let mut begin = 0;
        while begin < buffer.len() {
            let rest = &buffer[begin..];
            let lost_at = self.lost.front().and_then(|lost| first_from(rest, lost.start));
            if lost_at == Some(0) {
                self.report_next_lost()?;
                continue;
            }
            let bytes = &rest[..lost_at.unwrap_or(rest.len())];
            let acknowledged_before = self.acknowledged_before;
            let replayed = (self.each)(Part::Piece(Piece { bytes, from: next, acknowledged_before }));
            if let Err(ShardLoadError::Damaged { position, error, .. }) = &replayed {
                let position = slice.position + (begin + *position) as u64;
                let fault = CorruptBatch { position, reason: BatchFault::Batch(error.clone()) };
                self.partition.note_fault(self.epoch, slice.end_offset + -1, fault);
            }
            replayed?;
            begin += bytes.len();
        }
        Ok(Some(Offset(slice.end_offset.0.max(next.0 + 1))))
    }

    /// Replays the readable part of the damaged segment with `from`. Returns the offset of the next read. If
    /// another replica may have the records, or the coordinator needs them, the damage remains an error.
    fn past_damage(&mut self, from: Offset, damage: ShardLoadError) -> Result<Offset, ShardLoadError> {
        let salvage = self.partition.salvage(self.epoch, from).map_err(|error| not_read(error, from))?;
        let Some(mut salvage) = salvage else { return Err(damage) };
        let acknowledged_before = self.acknowledged_before;
        while let Some(step) = salvage.step().map_err(read_failed)? {
            let part = match &step {
                SalvageStep::Batch(bytes) => {
                    let header = BatchHeader::parse(bytes)?;
                    self.report_lost(header.base_offset)?;
                    Part::Piece(Piece { bytes, from, acknowledged_before })
                }
                SalvageStep::Damage(offsets) => {
                    self.lost.retain(|lost| lost.start < offsets.start || lost.end > offsets.end);
                    Part::Lost(offsets.clone())
                }
            };
            match (self.each)(part) {
                Err(ShardLoadError::DamagedLog { .. }) => return Err(damage),
                replayed => replayed?,
            }
        }
        self.report_lost(salvage.end_offset() + -1)?;
        Ok(Offset(salvage.end_offset().0.max(from.0 + 1)))
    }

    /// Reports lost ranges up to an offset to the coordinator.
    fn report_lost(&mut self, to: Offset) -> Result<(), ShardLoadError> {
        while self.lost.front().is_some_and(|lost| lost.start <= to) {
            self.report_next_lost()?;
        }
        Ok(())
    }

    fn report_next_lost(&mut self) -> Result<(), ShardLoadError> {
        self.lost.pop_front().map_or(Ok(()), |lost| (self.each)(Part::Lost(lost)))
    }
}

/// The position of the first batch with a base offset of at least `offset`.
fn first_from(bytes: &[u8], offset: Offset) -> Option<usize> {
    let mut batches = batches(bytes);
    loop {
        let position = batches.position();
        if batches.next()?.ok()?.header.base_offset >= offset {
            return Some(position);
        }
    }
}

/// The error for records that were not read.
fn not_read(error: FetchError, offset: Offset) -> ShardLoadError {
    match error {
        FetchError::Role(role) if role != RoleError::UnknownEpoch => ShardLoadError::NotLeader,
        FetchError::Corrupt => ShardLoadError::DamagedLog { offset: offset.0 },
        other => read_failed(other),
    }
}

fn read_failed(reason: impl ToString) -> ShardLoadError {
    ShardLoadError::Read { reason: reason.to_string() }
}

/// The error for a refused write, after logging it.
fn refused(partition: &Partition, error: &LeaderAppendError) -> WriteError {
    let refused = WriteError::from(error);
    match refused {
        _ if matches!(error, LeaderAppendError::Log(thalweg_log::AppendError::Producer(_))) => {
            tracing::debug!(?partition, %error, "Rejected a transactional write of a coordinator");
        }
        WriteError::TooFewReplicas | WriteError::TimedOut | WriteError::TooManyWait => {
            tracing::debug!(?partition, %error, "Coordinator write waits for replicas");
        }
        WriteError::NotLeader | WriteError::Storage | WriteError::TooLarge => {
            tracing::warn!(?partition, %error, "Coordinator write failed");
        }
        WriteError::Unencodable | WriteError::Refused(_) => {
            tracing::error!(?partition, %error, "Coordinator write failed");
        }
    }
    refused
}
