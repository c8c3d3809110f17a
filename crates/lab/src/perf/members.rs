//! The consumers of a group besides the first one, for `consumer-perf-test --threads`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thalweg_client::{Chunk, Consumer, ConsumerConfig, PollEvent};
use thalweg_record::DecompressBuffer;
use tokio::task::JoinSet;

use super::PerfError;

/// Records and bytes that all members have read, and the wanted number of records. With several members, the
/// chunks that they have at the end make it a few more.
#[derive(Debug)]
pub(super) struct SharedCounts {
    wanted: u64,
    records: AtomicU64,
    bytes: AtomicU64,
    /// True once the test is over, with all records or without.
    is_over: AtomicBool,
}

impl SharedCounts {
    pub(super) fn new(wanted: u64) -> Arc<SharedCounts> {
        let (records, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(SharedCounts { wanted, records, bytes, is_over: AtomicBool::new(false) })
    }

    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.records() >= self.wanted
    }

    /// Ends the other members' reading.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_complete() || self.is_over.load(Ordering::Relaxed)
    }

    /// Counts a chunk, up to the wanted number.
    pub(super) fn add(&self, chunk: &Chunk, buffer: &mut DecompressBuffer) -> Result<(), PerfError> {
        let left = self.wanted.saturating_sub(self.records());
        let (mut records, mut bytes) = (0, 0);
        chunk.for_each(buffer, |record| {
            records += 1;
            bytes += (record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)) as u64;
            if records >= left { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
        Ok(())
    }
}

/// The other members, until the test is over or they are dropped.
#[derive(Debug, Default)]
pub(super) struct Members(JoinSet<Result<(), PerfError>>);

impl Members {
    /// Connects `count` members, which read from now on.
    pub(super) async fn join(
        count: u32,
        bootstrap: &[String],
        config: &ConsumerConfig,
        topics: &[String],
        shared: &Arc<SharedCounts>,
        poll: Duration,
    ) -> Result<Members, PerfError> {
        let mut members = JoinSet::new();
        for _ in 0..count {
            let mut consumer = Consumer::connect(bootstrap, config.clone()).await?;
            consumer.subscribe(topics.to_vec())?;
            let shared = Arc::clone(shared);
            members.spawn(async move {
                let mut buffer = DecompressBuffer::default();
                while !shared.is_over() {
                    if let PollEvent::Chunk(chunk) = consumer.poll(poll).await? {
                        shared.add(&chunk, &mut buffer)?;
                    }
                }
                Ok(consumer.close().await?)
            });
        }
        Ok(Members(members))
    }

    /// The failure of a member that ended.
    pub(super) fn check(&mut self) -> Result<(), PerfError> {
        while let Some(ended) = self.0.try_join_next() {
            ended.expect("a member does not panic")?;
        }
        Ok(())
    }

    /// Waits until all members have left the group. The results of the test do not depend on it.
    pub(super) async fn leave(mut self) -> Result<(), PerfError> {
        while let Some(ended) = self.0.join_next().await {
            ended.expect("a member does not panic")?;
        }
        Ok(())
    }
}
