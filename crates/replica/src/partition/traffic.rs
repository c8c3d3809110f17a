//! Traffic counters of a partition.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_log::AppendInfo;

/// Counters under the partition's lock, since the partition was assigned to this broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Records received from producers.
    pub messages_in: u64,
    /// Bytes of those records, as stored.
    pub bytes_in: u64,
    /// Bytes received from the leader.
    pub replication_bytes_in: u64,
    /// Bytes sent to consumers.
    pub bytes_out: u64,
    /// Bytes sent to other replicas.
    pub replication_bytes_out: u64,
    /// Produce requests, counted once for each partition.
    pub produce_requests: u64,
    /// Refused produce requests.
    pub failed_produce_requests: u64,
    /// Fetch requests of consumers and followers, counted once for each partition.
    pub fetch_requests: u64,
    /// Refused fetch requests.
    pub failed_fetch_requests: u64,
}

impl Traffic {
    /// Counts the appended batches of one request.
    pub fn count_append(&mut self, info: &AppendInfo) {
        self.produce_requests += 1;
        self.bytes_in += info.appended_bytes;
        self.messages_in += info.last_offset.0.abs_diff(info.first_offset.0) + 1;
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, more: Traffic) {
        self.messages_in += more.messages_in;
        self.bytes_in += more.bytes_in;
        self.replication_bytes_in += more.replication_bytes_in;
        self.bytes_out += more.bytes_out;
        self.replication_bytes_out += more.replication_bytes_out;
        self.produce_requests += more.produce_requests;
        self.failed_produce_requests += more.failed_produce_requests;
        self.fetch_requests += more.fetch_requests;
        self.failed_fetch_requests += more.failed_fetch_requests;
    }
}

/// Sent bytes, counted without the partition's lock when an answer is built.
#[derive(Debug, Default)]
pub struct SentBytes {
    consumers: AtomicU64,
    followers: AtomicU64,
}

impl SentBytes {
    /// Counts bytes sent to a follower or a consumer.
    pub fn count(&self, bytes: usize, to_follower: bool) {
        let counter = if to_follower { &self.followers } else { &self.consumers };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds the sent bytes to `traffic`.
    pub fn complete(&self, traffic: Traffic) -> Traffic {
        let bytes_out = self.consumers.load(Ordering::Relaxed);
        let replication_bytes_out = self.followers.load(Ordering::Relaxed);
        Traffic { bytes_out, replication_bytes_out, ..traffic }
    }
}
