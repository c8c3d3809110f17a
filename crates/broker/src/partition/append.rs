//! Appending to a partition that is led here.

use super::{AppendError, Partition, intake};
use bytes::Bytes;
use thalweg_log::{AppendInfo, AppendOptions, AppendOrigin};
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::ErrorCode;

/// What an append has done.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// The offset behind the last record.
    pub next_offset: Offset,
    /// The broker's time where the topic wants it, else -1.
    pub log_append_time_ms: i64,
    /// The log start.
    pub log_start_offset: Offset,
    /// The epoch in which it was appended.
    pub leader_epoch: LeaderEpoch,
    /// Whether all replicas that count have the records already.
    pub replicated: bool,
    /// Whether the flush policy wants the records on the medium before they are acknowledged.
    pub flush_due: bool,
}

impl Partition {
    /// Appends a producer's batch. When this returns, its place in the log is fixed.
    pub fn append_from_client(
        &self,
        records: Bytes,
        acks: i16,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        let appended = self.take_from_client(records, acks, now_ms);
        if appended.is_err() {
            let mut state = self.state.lock();
            state.traffic.produce_requests += 1;
            state.traffic.failed_produce_requests += 1;
        }
        appended
    }

    fn take_from_client(&self, records: Bytes, acks: i16, now_ms: i64) -> Result<Appended, AppendError> {
        let settings = {
            let state = self.state.lock();
            state.check_leader(self.node_id, None)?;
            std::sync::Arc::clone(&state.settings)
        };
        let (records, _) = intake::take(records, &settings, now_ms)?;
        self.append(&records, acks, None, AppendOptions::default())
    }

    /// Appends a batch of one of this broker's coordinators, as acks=all, in the epoch in which it coordinates.
    pub fn append_from_coordinator(&self, batch: &[u8], epoch: LeaderEpoch) -> Result<Appended, AppendError> {
        let options = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
        let max = self.state.lock().settings.max_message_bytes as usize;
        if batch.len() > max {
            return Err(AppendError::TooLarge { size: batch.len(), max });
        }
        self.append(batch, -1, Some(epoch), options)
    }

    fn append(
        &self,
        records: &[u8],
        acks: i16,
        current_epoch: Option<LeaderEpoch>,
        options: AppendOptions,
    ) -> Result<Appended, AppendError> {
        let mut state = self.state.lock();
        state.check_leader(self.node_id, current_epoch)?;
        if acks == -1 && !state.has_min_isr() {
            return Err(ErrorCode::NotEnoughReplicas.into());
        }
        let leader_epoch = state.leader_epoch();
        let info = state.log.append_as_leader(records, leader_epoch, options)?;
        // Followers see the log end, consumers the high watermark.
        state.unreplicated_bytes += info.appended_bytes;
        state.traffic.produce_requests += 1;
        state.traffic.bytes_in += info.appended_bytes;
        state.traffic.messages_in += info.last_offset.0.abs_diff(info.first_offset.0) + 1;
        state.followers.count(usize::try_from(info.appended_bytes).unwrap_or(usize::MAX));
        if state.replicates_alone() {
            state.raise_high_watermark(&self.surroundings);
        }
        let replicated = state.high_watermark() > info.last_offset;
        drop(state);
        Ok(appended(&info, leader_epoch, replicated))
    }
}

fn appended(info: &AppendInfo, leader_epoch: LeaderEpoch, replicated: bool) -> Appended {
    Appended {
        base_offset: info.first_offset,
        next_offset: info.last_offset + 1,
        log_append_time_ms: info.log_append_time,
        log_start_offset: info.log_start_offset,
        leader_epoch,
        replicated,
        flush_due: info.flush_due,
    }
}
