//! A coordinator's log in memory, for tests of the driver.

use crate::{
    AppendedBatch, CoordinatorLog, Part, Piece, ShardLoadError, TransactionalAppendOptions, WriteError,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use thalweg_metadata::PartitionIndex;
use thalweg_record::{BatchHeader, LeaderEpoch, Offset, stamp_head};
use thalweg_replica::partition::DeleteError;
use thalweg_watch as watch;

/// A log in memory.
pub struct MemoryLog {
    pub batches: Mutex<Vec<Bytes>>,
    pub next_offset: Mutex<i64>,
    /// Appends are acknowledged once this is true.
    pub acknowledges: watch::Sender<bool>,
    /// Replays wait until this is true.
    pub loads: watch::Sender<bool>,
    /// Partitions whose replay fails, with the error.
    pub unreadable: Mutex<BTreeMap<PartitionIndex, fn() -> ShardLoadError>>,
    /// True if no other replica can repair damage.
    pub is_only_replica: AtomicBool,
    /// Number of replays.
    pub replays: AtomicUsize,
}

impl CoordinatorLog for MemoryLog {
    fn append(
        &self,
        _partition: PartitionIndex,
        leader_epoch: i32,
        batch: Bytes,
        _options: TransactionalAppendOptions,
    ) -> Result<AppendedBatch, WriteError> {
        let mut next_offset = self.next_offset.lock();
        let header = BatchHeader::parse(&batch).expect("the coordinator builds whole batches");
        let mut bytes = batch.to_vec();
        stamp_head(&mut bytes, Offset(*next_offset), LeaderEpoch(leader_epoch));
        let last_offset = Offset(*next_offset + i64::from(header.last_offset_delta));
        *next_offset = last_offset.0 + 1;
        self.batches.lock().push(Bytes::from(bytes));
        Ok(AppendedBatch { last_offset, is_replicated: *self.acknowledges.borrow(), is_flushed: true })
    }

    fn acknowledgement(
        &self,
        _partition: PartitionIndex,
        _leader_epoch: i32,
        of: AppendedBatch,
    ) -> Pin<Box<dyn Future<Output = Result<Offset, WriteError>> + Send>> {
        let mut acknowledges = self.acknowledges.subscribe();
        let end = Offset(*self.next_offset.lock());
        assert!(of.last_offset < end, "it was appended");
        Box::pin(async move {
            drop(acknowledges.wait_for(|&yes| yes).await.map_err(|_| WriteError::NotLeader)?);
            Ok(end)
        })
    }

    fn replay(
        &self,
        partition: PartitionIndex,
        _leader_epoch: i32,
        each: &mut dyn FnMut(Part<'_>) -> Result<(), ShardLoadError>,
    ) -> Result<Option<AppendedBatch>, ShardLoadError> {
        self.replays.fetch_add(1, Ordering::Relaxed);
        while !*self.loads.borrow() {
            std::thread::yield_now();
        }
        if let Some(error) = self.unreadable.lock().get(&partition) {
            return Err(error());
        }
        let (batches, end) = (self.batches.lock().clone(), *self.next_offset.lock());
        let is_replicated = *self.acknowledges.borrow();
        let acknowledged_before = Offset(if is_replicated { end } else { 0 });
        let (mut from, has_no_other) = (Offset::ZERO, self.is_only_replica.load(Ordering::Relaxed));
        for bytes in &batches {
            // Damage does not affect the header here.
            let next = BatchHeader::parse(bytes).map_or(Offset(end), |header| header.next_offset());
            match each(Part::Piece(Piece { bytes, from, acknowledged_before })) {
                Err(ShardLoadError::Damaged { .. }) if has_no_other => each(Part::Lost(from..next))?,
                replayed => replayed?,
            }
            from = next;
        }
        let last = AppendedBatch { last_offset: Offset(end - 1), is_replicated, is_flushed: true };
        Ok((!is_replicated && end > 0).then_some(last))
    }

    fn delete_before(&self, _partition: PartitionIndex, offset: i64) -> Result<(), DeleteError> {
        let is_needed = |batch: &Bytes| {
            let header = BatchHeader::parse(batch).expect("the log has whole batches");
            header.base_offset.0 + i64::from(header.last_offset_delta) >= offset
        };
        self.batches.lock().retain(is_needed);
        Ok(())
    }
}

impl MemoryLog {
    /// An empty log, which acknowledges and loads at once.
    pub fn new() -> Arc<MemoryLog> {
        Arc::new(MemoryLog {
            batches: Mutex::default(),
            next_offset: Mutex::new(0),
            acknowledges: watch::Sender::new(true),
            loads: watch::Sender::new(true),
            unreadable: Mutex::default(),
            is_only_replica: AtomicBool::new(false),
            replays: AtomicUsize::new(0),
        })
    }
}
