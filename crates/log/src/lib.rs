//! One partition's log on disk: segments, indexes, leader epochs, producer state, recovery, retention.
//! Blocking; knows batches, never requests.
//!
//! The layout is Apache Kafka's, to the byte: Kafka's tools read these files, and this crate opens Kafka's
//! directories (`docs/on-disk-format.md`; each module that writes a file describes its layout).
//!
//! # The way in
//! ```text
//! LogDirs::open(LogDirsOptions, config_of) -> (LogDirs, Vec<PartitionLog>)     lock, check, recover, open
//!   .create(&TopicPartition, topic_id, config, directory) -> PartitionLog
//!   .delete(&mut PartitionLog)   .purge_deleted(elapsed_ms)
//!   .checkpoint_high_watermarks() .checkpoint_recovery_points() .checkpoint_log_starts()   no lock needed
//!   .close(broker_epoch)                                                       after all logs are closed
//!
//! PartitionLog                                     one partition; `&mut self`, the caller holds its lock
//!   .append_as_leader(&[u8], LeaderEpoch, AppendOptions) -> AppendInfo         assigns offsets, one write
//!   .append_as_follower(&[u8], LeaderEpoch) -> AppendInfo                      keeps offsets and epochs
//!   .read(from, max_bytes, upper_bound, min_one_message) -> Option<LogSlice>   whole batches, for sendfile
//!   .aborted_transactions(from, slice.end_offset)
//!   .search_on(&mut TimestampSearch) -> SearchTurn::Scan(RecordScan); .run() without the lock
//!   .doubt_batches(offset, max_bytes) -> BatchCheck; .run() without the lock
//!   .begin_segment_check() -> SegmentCheck::Epochs(EpochScan); .run() without the lock;
//!   .finish_segment_check(..)
//!   .salvage(from, batch_bytes_max) -> Salvage; .step() without the lock       past damage in a segment
//!   .missing_ranges()                                                          known lost offsets
//!   .high_watermark() .set_high_watermark(offset) .last_stable_offset()
//!   .log_start_offset() .log_end_offset()
//!   .assign_leader_epoch_start(epoch) .end_offset_for_epoch(epoch) .latest_epoch()
//!   .truncate_to(offset) .truncate_fully_and_start_at(offset, log_start)
//!   .delete_records(offset) .delete_old_segments(now_ms)
//!   .take_expired(elapsed_ms) -> ExpiredFiles; .remove() without the lock; .remove_later(failed)
//!   .needs_flush(now_ms) .flush_target() -> FlushTarget; .sync() without the lock;
//!   .complete_flush(&target, outcome)
//!   .needs_background_flush() .background_flush_target()                       segments left by a roll
//!   .is_at_rest()                                                              no file work pending
//!   .dirtiness(now_ms) .plan_compaction(now_ms) -> CompactionJob; .run() without the lock;
//!   .finish_compaction(&job, outcome) -> CompactionSwap; .sync() without the lock;
//!   .complete_compaction(swap, outcome)
//!   .start_verification(..) .producers() .release_idle_resources() .set_config(..)
//! ```
//! Every append is complete or absent. After a failed write or sync a log is closed for appends; a full disk
//! refuses appends until there is room.

pub mod checkpoint;
mod clock;
mod compaction;
mod config;
mod dir_state;
mod dirs;
pub mod disk;
mod epochs;
mod index;
mod obstacles;
mod partition;
mod producers;
mod published;
mod scan;
mod segment;
mod set_aside;
#[cfg(test)]
mod testing;
mod topic_partition;

pub use clock::{Clock, Moment};
pub use compaction::{
    CompactionError, CompactionJob, CompactionOutcome, CompactionPass, CompactionStats, CompactionStep,
};
pub use config::{CleanupPolicy, LogConfig};
pub use dir_state::PartitionDescription;
pub use dirs::{
    BadMetaProperties, CreateError, DirDescription, DirectoryLocked, DirectoryOffline, DuplicateDirectoryId,
    DuplicatePartition, EmptyDirectory, FailedDir, LogDirs, LogDirsOptions, NoDirectory, OpenError,
    PartitionExists, TooManyOpenFiles, UnidentifiedMetadataLog, Volume, WrongClusterId, WrongNodeId,
};
pub use epochs::EpochEnd;
pub use partition::{
    AppendError, AppendInfo, AppendOptions, BatchCheck, BatchTooLarge, CompactionSwap, Damage,
    DeleteRecordsError, Dirtiness, EpochScan, ExpiredFiles, FlushTarget, LogError, LogSlice, NewestScan,
    OffsetOutOfRange, OffsetsMissing, OffsetsOutOfOrder, OpenOptions, PartitionLog, ReadError, RecordScan,
    Salvage, SalvageStep, SearchTurn, SegmentCheck, TimestampSearch, TimestampedOffset, UnexpectedEpoch,
    UnexpectedOffset,
};
pub use producers::{
    AppendOrigin, BatchMetadata, EndMarker, InvalidProducerEpoch, InvalidTransactionState,
    OutOfOrderSequence, ProducerEntry, ProducerError, SequenceFault, TransactionCoordinatorFenced,
    VerificationGuard,
};
pub use published::PublishedOffsets;
pub use scan::{BatchFault, BatchPlace, CorruptBatch, ScanError};
pub use segment::Home;
pub use segment::transactions::AbortedTransaction;
pub use thalweg_ids::Uuid;
pub use topic_partition::TopicPartition;
