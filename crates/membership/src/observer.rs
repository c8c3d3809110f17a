//! Follows the metadata log as a KRaft observer (KIP-595, KIP-630): builds images from Fetch and
//! FetchSnapshot.
//!
//! Records are applied only below the high watermark, and published on batch boundaries outside transactions.
//! The first image is published once all records that were committed at the observer's start, and the
//! registration of this process, have been applied.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_metadata::batches::SNAPSHOT_BYTES_MAX;
use thalweg_metadata::batches::{MetadataBatch, MetadataBatchError};
use thalweg_metadata::topic_name::CLUSTER_METADATA;
use thalweg_metadata::{BrokerId, Delta, Image, Loader, PublishedImage, ReplayError};
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ReplicaState};
use thalweg_wire::request::fetch_response::PartitionData;
use thalweg_wire::request::fetch_snapshot_request::{PartitionSnapshot, SnapshotId, TopicSnapshot};
use thalweg_wire::request::{FetchRequest, FetchSnapshotRequest};
use thalweg_wire::{ErrorCode, Message, Records, Uuid};

use super::fetched::{self, QuorumNews, SnapshotFault};
use super::{ControllerLink, ImageListener, LinkError, MembershipOptions, Progress};

/// `controller.quorum.retry.backoff.ms`.
const RETRY: Duration = Duration::from_millis(20);
/// Number of consecutive failures before a log line, a few seconds.
const TOLD_FAILURES: u32 = 20;
/// Maximum bytes of one Fetch.
const FETCH_BYTES_MAX: i32 = 8 * 1024 * 1024;
/// Maximum number of batches kept above the high watermark; further ones are dropped and fetched again.
const TAIL_BATCHES_MAX: usize = 4096;

/// The metadata log cannot be followed by this process. The broker must stop, because it would diverge from
/// its cluster.
#[derive(Debug, thiserror::Error)]
pub enum ObserverError {
    #[error("the metadata log cannot be read: {0}")]
    Batch(#[from] MetadataBatchError),
    #[error("the metadata log contains an invalid record: {0}")]
    Replay(#[from] ReplayError),
    #[error("snapshot {end_offset}-{epoch} of the metadata log cannot be used: {fault}")]
    Snapshot { end_offset: i64, epoch: i32, fault: SnapshotFault },
    #[error("snapshot {end_offset}-{epoch} of the metadata log has {size} bytes, more than the limit")]
    SnapshotTooLarge { end_offset: i64, epoch: i32, size: i64 },
    #[error("the metadata log diverges at offset {end_offset}, and {applied} has been applied")]
    Diverged { end_offset: i64, applied: i64 },
    #[error("the controller belongs to another cluster")]
    OtherCluster,
    #[error(
        "another process has registered as broker {node_id}, whose session had ended: this one must not go on"
    )]
    Replaced { node_id: BrokerId },
}

/// Why a round failed.
enum Fault {
    /// The next round may succeed.
    Passing(String),
    /// No further round can succeed.
    Fatal(ObserverError),
}

impl From<LinkError> for Fault {
    fn from(error: LinkError) -> Fault {
        Fault::Passing(error.to_string())
    }
}

impl<E: Into<ObserverError>> From<E> for Fault {
    fn from(error: E) -> Fault {
        Fault::Fatal(error.into())
    }
}

pub(super) struct Observer {
    link: ControllerLink,
    listener: Arc<dyn ImageListener>,
    progress: Arc<Progress>,
    cluster_id: String,
    replica_id: i32,
    node_id: BrokerId,
    incarnation_id: Uuid,
    directory_id: Uuid,
    /// Epoch of the quorum.
    epoch: i32,
    /// The next offset to fetch, and the epoch of the batch before it.
    next_offset: i64,
    last_epoch: i32,
    high_watermark: i64,
    /// Fetched batches that are not known to be committed.
    tail: VecDeque<MetadataBatch>,
    loader: Loader,
    /// The last image passed to the listener.
    published: Arc<Image>,
    has_published: bool,
}

impl Observer {
    pub fn new(
        link: ControllerLink,
        options: &MembershipOptions,
        listener: Arc<dyn ImageListener>,
        progress: Arc<Progress>,
    ) -> Observer {
        let empty = Arc::new(Image::empty());
        Observer {
            replica_id: link.replica_id(options.node_id),
            link,
            listener,
            progress,
            cluster_id: options.cluster_id.clone(),
            node_id: options.node_id,
            incarnation_id: options.incarnation_id,
            directory_id: options.directories.first().copied().unwrap_or_default(),
            epoch: 0,
            next_offset: 0,
            last_epoch: 0,
            high_watermark: -1,
            tail: VecDeque::new(),
            loader: Loader::new(empty.clone()),
            published: empty,
            has_published: false,
        }
    }

    /// Runs until the log cannot be followed, or until aborted.
    pub async fn run(mut self) {
        let mut failures = 0u32;
        loop {
            match self.round().await {
                Ok(()) => {
                    if failures >= TOLD_FAILURES {
                        tracing::info!("Fetching the metadata log again");
                    }
                    failures = 0;
                }
                Err(Fault::Passing(why)) => {
                    if failures == 0 {
                        tracing::debug!(why, "Failed to fetch the metadata log once");
                    } else if failures == TOLD_FAILURES {
                        tracing::warn!(why, "Failed to fetch the metadata log");
                    }
                    failures = failures.saturating_add(1);
                    tokio::time::sleep(RETRY * failures.min(50)).await;
                }
                Err(Fault::Fatal(error)) => {
                    tracing::error!(%error, "Failed to apply the metadata log");
                    self.progress.failed.send_replace(Some(Arc::new(error)));
                    return;
                }
            }
        }
    }

    /// Runs until all available records are applied.
    #[cfg(test)]
    pub async fn catch_up(&mut self) {
        // The first answer has the current end of the log; it does not wait while there are more records.
        loop {
            assert!(self.round().await.is_ok(), "the log can be followed");
            if self.high_watermark >= 0 && self.loader.offset() + 1 >= self.high_watermark {
                return;
            }
        }
    }

    async fn round(&mut self) -> Result<(), Fault> {
        let response = self.link.fetch(self.fetch_request()).await?;
        match ErrorCode::from_i16(response.error_code) {
            Some(ErrorCode::None) => {}
            Some(ErrorCode::InconsistentClusterId) => return Err(ObserverError::OtherCluster.into()),
            other => return Err(Fault::Passing(format!("Fetch is answered with {other:?}"))),
        }
        let data =
            response.responses.into_iter().next().and_then(|topic| topic.partitions.into_iter().next());
        let Some(data) = data else {
            return Err(Fault::Passing("Fetch is answered with nothing".to_owned()));
        };
        let leader_epoch = data.current_leader.leader_epoch;
        if leader_epoch > self.epoch {
            tracing::debug!(
                leader = data.current_leader.leader_id,
                epoch = leader_epoch,
                "Quorum has a new epoch"
            );
            self.epoch = leader_epoch;
            return Ok(());
        }
        match ErrorCode::from_i16(data.error_code) {
            Some(ErrorCode::None) => {}
            other => return Err(Fault::Passing(format!("Fetch is answered with {other:?}"))),
        }
        if data.snapshot_id.end_offset >= 0 && data.snapshot_id.epoch >= 0 {
            return self.load_snapshot(data.snapshot_id.end_offset, data.snapshot_id.epoch).await;
        }
        if data.diverging_epoch.epoch >= 0 || data.diverging_epoch.end_offset >= 0 {
            return self.truncate(data.diverging_epoch.epoch, data.diverging_epoch.end_offset);
        }
        self.take(data)
    }

    fn fetch_request(&self) -> FetchRequest {
        let partition = FetchPartition {
            partition: 0,
            current_leader_epoch: self.epoch,
            fetch_offset: self.next_offset,
            last_fetched_epoch: self.last_epoch,
            partition_max_bytes: 0,
            replica_directory_id: self.directory_id,
            high_watermark: self.high_watermark,
            ..FetchPartition::default()
        };
        FetchRequest {
            cluster_id: Some(self.cluster_id.clone()),
            replica_state: ReplicaState { replica_id: self.replica_id, replica_epoch: -1 },
            max_wait_ms: i32::try_from(self.link.fetch_wait().as_millis()).unwrap_or(i32::MAX),
            min_bytes: 0,
            max_bytes: FETCH_BYTES_MAX,
            session_id: 0,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic_id: Uuid::METADATA_TOPIC,
                partitions: vec![partition],
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        }
    }

    /// Accepts records and a high watermark, and applies the committed records.
    fn take(&mut self, data: PartitionData) -> Result<(), Fault> {
        let bytes = match data.records {
            Some(Records::Inline(bytes)) => bytes,
            _ => Bytes::new(),
        };
        for batch in fetched::batches_of(&bytes)? {
            // The leader's log is not compacted, so an earlier batch does not belong to this offset.
            if batch.last.offset < self.next_offset {
                continue;
            }
            self.next_offset = batch.last.offset + 1;
            self.last_epoch = batch.last.epoch;
            self.tail.push_back(batch);
        }
        self.high_watermark = self.high_watermark.max(data.high_watermark);
        self.apply()?;
        if self.tail.len() > TAIL_BATCHES_MAX {
            self.truncate(i32::MAX, self.loader.offset() + 1)?;
        }
        Ok(())
    }

    fn apply(&mut self) -> Result<(), Fault> {
        while self.tail.front().is_some_and(|batch| batch.last.offset < self.high_watermark) {
            let batch = self.tail.pop_front().expect("there is a first one");
            self.loader.load(batch.last, &batch.records)?;
            let mut news = QuorumNews::default();
            news.take(&batch);
            self.link.heed(&news);
        }
        self.publish();
        Ok(())
    }

    fn publish(&mut self) {
        let caught_up = self.high_watermark >= 0 && self.loader.offset() + 1 >= self.high_watermark;
        let has_records = !self.loader.pending().is_empty() || !self.loader.image().is_empty();
        let is_whole = caught_up && has_records && self.is_registered();
        if !self.has_published && !is_whole {
            return;
        }
        let based_on_published = Arc::ptr_eq(self.loader.image(), &self.published);
        let published = self.loader.publish();
        match published {
            Some(PublishedImage { delta, image }) if based_on_published => self.publish_image(&delta, image),
            // A snapshot was loaded in between, or this is the first image.
            _ if !Arc::ptr_eq(self.loader.image(), &self.published) => {
                let image = self.loader.image().clone();
                self.publish_image(&Delta::between(self.published.clone(), &image), image);
            }
            _ => {}
        }
    }

    /// True if the registration of this process is applied. Earlier images would show a crashed broker as
    /// leader of its old partitions: it would load its coordinators, and load them again a moment later.
    fn is_registered(&self) -> bool {
        let registration = self.loader.pending().image().broker(self.node_id);
        registration.is_some_and(|broker| broker.incarnation_id == self.incarnation_id)
    }

    fn publish_image(&mut self, delta: &Delta, image: Arc<Image>) {
        self.has_published = true;
        self.published = image.clone();
        self.listener.publish(delta, image.clone());
        let offset = image.offset();
        // Receivers may report this offset immediately.
        self.progress.applied.send_replace(offset);
        self.progress.image.send_replace(image);
        self.link.set_published(offset);
    }

    /// Drops records that the leader lacks: records after the end of an epoch in its log, and records of
    /// later epochs, which may lie before that end. Kafka: `ReplicatedLog.truncateToEndOffset`.
    fn truncate(&mut self, epoch: i32, end_offset: i64) -> Result<(), Fault> {
        let (applied, applied_epoch) = (self.loader.offset(), self.loader.epoch());
        if end_offset <= applied || epoch < applied_epoch {
            return Err(ObserverError::Diverged { end_offset, applied }.into());
        }
        let lacks = |batch: &MetadataBatch| batch.last.offset >= end_offset || batch.last.epoch > epoch;
        while self.tail.back().is_some_and(lacks) {
            self.tail.pop_back();
        }
        let last = self.tail.back().map(|batch| batch.last);
        self.next_offset = last.map_or(applied, |last| last.offset) + 1;
        self.last_epoch = last.map_or(applied_epoch, |last| last.epoch);
        Ok(())
    }

    async fn load_snapshot(&mut self, end_offset: i64, epoch: i32) -> Result<(), Fault> {
        let mut bytes = BytesMut::new();
        loop {
            let request = self.snapshot_request(end_offset, epoch, bytes.len());
            let response = self.link.send(request, FetchSnapshotRequest::MAX_VERSION).await?;
            let piece = response.topics.into_iter().next().and_then(|t| t.partitions.into_iter().next());
            let Some(piece) = piece else {
                return Err(Fault::Passing("FetchSnapshot is answered with nothing".to_owned()));
            };
            match ErrorCode::from_i16(piece.error_code) {
                Some(ErrorCode::None) => {}
                other => return Err(Fault::Passing(format!("FetchSnapshot is answered with {other:?}"))),
            }
            let size = u64::try_from(piece.size).ok().filter(|size| *size <= SNAPSHOT_BYTES_MAX);
            let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
                return Err(ObserverError::SnapshotTooLarge { end_offset, epoch, size: piece.size }.into());
            };
            if let Records::Inline(part) = piece.unaligned_records {
                if part.is_empty() {
                    return Err(Fault::Passing("FetchSnapshot is answered with no bytes".to_owned()));
                }
                bytes.extend_from_slice(&part);
            }
            if bytes.len() >= size {
                break;
            }
        }
        let (image, news) = fetched::snapshot_of(&bytes, end_offset, epoch)
            .map_err(|fault| ObserverError::Snapshot { end_offset, epoch, fault })?;
        tracing::debug!(end_offset, epoch, bytes = bytes.len(), "Loaded a metadata snapshot");
        self.loader = Loader::new(image);
        self.link.heed(&news);
        self.tail.clear();
        self.next_offset = end_offset;
        self.last_epoch = epoch;
        if self.has_published {
            self.publish();
        }
        Ok(())
    }

    fn snapshot_request(&self, end_offset: i64, epoch: i32, position: usize) -> FetchSnapshotRequest {
        let partition = PartitionSnapshot {
            partition: 0,
            current_leader_epoch: self.epoch,
            snapshot_id: SnapshotId { end_offset, epoch },
            position: i64::try_from(position).expect("a snapshot is bounded far below"),
            replica_directory_id: self.directory_id,
        };
        FetchSnapshotRequest {
            cluster_id: Some(self.cluster_id.clone()),
            replica_id: self.replica_id,
            max_bytes: FETCH_BYTES_MAX,
            topics: vec![TopicSnapshot { name: CLUSTER_METADATA.to_owned(), partitions: vec![partition] }],
        }
    }
}
