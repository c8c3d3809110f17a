//! Appends the batches of several concurrent client requests in one write.
//!
//! Owns: the rule that a request gets the same offsets and outcome as in a separate append. Cases with a
//! possible difference (an error, a retry, a new producer, a transaction, a batch without room in the
//! segment) are left to separate appends.

use thalweg_record::{BatchHeader, LeaderEpoch, NO_TIMESTAMP};

use super::PartitionLog;
use super::append::{AppendInfo, AppendOptions, AppendVerdict, PreparedBatch};

impl PartitionLog {
    /// Appends the batches of each request, which were checked before, in the order of the requests. Returns
    /// `None`, without any effect, if they must be appended one by one.
    pub fn append_together(
        &mut self,
        requests: &[&[u8]],
        leader_epoch: LeaderEpoch,
    ) -> Option<Vec<AppendInfo>> {
        self.check_writable().ok()?;
        let now_ms = self.append_time();
        let mut stored = Vec::with_capacity(requests.len());
        let mut ends = Vec::with_capacity(requests.len());
        for records in requests {
            self.assign_offsets(records, leader_epoch, now_ms, &mut stored).ok()?;
            ends.push(stored.len());
        }
        let size_bytes: usize = requests.iter().map(|records| records.len()).sum();
        let fits = size_bytes as u64 <= u64::from(self.config.segment_bytes);
        if !fits || !stored.iter().all(|batch| self.may_be_judged_with_others(&batch.header)) {
            return None;
        }
        let Ok(AppendVerdict::New(prepared)) = self.judge(&stored, AppendOptions::default()) else {
            return None;
        };
        let whole = self.append_stored(&stored, prepared).ok()?;
        self.note_outcome(&Ok(whole));
        let mut begins = 0;
        let infos = ends.iter().map(|&end| {
            let info = info_of(&stored[begins..end], whole, now_ms);
            begins = end;
            info
        });
        Some(infos.collect())
    }

    /// True if a batch is judged the same before and after the earlier ones are in the log. The first batch
    /// of a producer may begin with any sequence, which must not apply to its second.
    fn may_be_judged_with_others(&self, header: &BatchHeader) -> bool {
        let attributes = header.attributes;
        !attributes.is_transactional()
            && !attributes.is_control()
            && (!header.producer_id.is_some() || self.producers.has_batches(header.producer_id))
    }
}

/// The append info of one request.
fn info_of(stored: &[PreparedBatch<'_>], whole: AppendInfo, now_ms: Option<i64>) -> AppendInfo {
    let (first, last) = (stored.first(), stored.last());
    AppendInfo {
        first_offset: first.map_or(whole.first_offset, |batch| batch.header.base_offset),
        last_offset: last.map_or(whole.last_offset, |batch| batch.header.last_offset()),
        log_append_time: now_ms.unwrap_or(NO_TIMESTAMP),
        appended_bytes: stored.iter().map(|batch| batch.header.size_bytes() as u64).sum(),
        ..whole
    }
}
