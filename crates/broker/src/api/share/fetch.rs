//! ShareFetch: acknowledges records, and acquires new ones.
//!
//! A fetch acquires the available records. With none, or with fewer than min.bytes, the fetch waits on its
//! share partitions and their partitions until something changes, or for max.wait.ms. Records are sent by
//! sendfile, as slices of the log with whole batches; the answer lists the acquired records.

use super::acknowledgements::{AckBatch, Acknowledgements, CountedAcknowledgement};
use super::plan::{ShareFetchEntry, ShareFetchOutcome, ShareFetchPlan};
use super::{RENEWS_FROM, readable, respond, session_key};
use crate::api::Call;
use crate::api::entry::{Api, ByResource};
use crate::api::serve::elsewhere::TopicRef;
use crate::broker::Broker;
use crate::request_metrics::{Purgatory, timed};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_metadata::{PartitionIndex, TopicIdPartition};
use thalweg_net::Reply;
use thalweg_replica::partition::{Partition, PartitionSnapshot, Reader, Waiter};
use thalweg_share::AcquireMode;
use thalweg_share_groups::{
    FINAL_EPOCH, LedSharePartition, LedSharePartitions, ReadOutcome, ReadRequest, ShareSessionContext,
    ShareSessionError, ShareSessionRequest,
};
use thalweg_wire::request::ShareFetchRequest;
use thalweg_wire::request::share_fetch_request::{FetchTopic, ForgottenTopic};
use thalweg_wire::{ApiKey, DecodeError, Decoder, ErrorCode, Message};
use tokio::time::Instant;

pub(in crate::api) const API: Api = Api::new(ApiKey::ShareFetch, 1..=2, ByResource, handle).waits();

/// Upper bound of max.wait.ms.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Serves the request.
pub fn handle(broker: &Arc<Broker>, mut call: Call, mut d: Decoder) -> Result<Reply, DecodeError> {
    let request = ShareFetchRequest::decode(&mut d, call.version)?;
    call.frame = Bytes::new();
    let max_wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(WAIT_MAX);
    let (mut plan, pending) = match begin(broker, &call, request) {
        Ok(begun) => begun,
        // A member that is refused for lack of room would retry immediately, so the refusal is delayed.
        Err(error @ ErrorCode::ShareSessionLimitReached) => {
            let broker = Arc::clone(broker);
            return Ok(Reply::Later(Box::pin(async move {
                tokio::time::sleep(max_wait).await;
                respond::failed(&broker.requests, &call, error)
            })));
        }
        Err(error) => return Ok(respond::failed(&broker.requests, &call, error)),
    };
    plan.find(broker);
    let takes_less = plan.max_wait.is_zero();
    attempt(&broker.share_partitions, &mut plan, takes_less);
    let spent = call.received_at.elapsed();
    let is_ready = plan.is_ready() || plan.max_wait.is_zero();
    if is_ready && pending.is_empty() && plan.epoch != FINAL_EPOCH {
        return Ok(respond::fetched(broker, &call, plan, Vec::new(), spent));
    }
    let broker = Arc::clone(broker);
    Ok(Reply::Later(Box::pin(async move {
        let mut spent = spent;
        if !is_ready {
            let _waiting = broker.requests.waits(Purgatory::ShareFetch);
            let ((), later) = timed(wait(&broker.share_partitions, &mut plan)).await;
            spent += later;
        }
        let mut outcomes = Vec::with_capacity(pending.len());
        for (id, pending) in pending {
            outcomes.push((id, pending.outcome(&broker.share_partitions).await));
        }
        if plan.epoch == FINAL_EPOCH {
            broker.share_partitions.end_session(&plan.key, &plan.session);
        }
        respond::fetched(&broker, &call, plan, outcomes, spent)
    })))
}

type PlannedFetch = (ShareFetchPlan, Vec<(TopicIdPartition, CountedAcknowledgement)>);

/// Finds the session and the partitions, and takes the acknowledgements.
fn begin(broker: &Arc<Broker>, call: &Call, request: ShareFetchRequest) -> Result<PlannedFetch, ErrorCode> {
    let ShareFetchRequest { group_id, member_id, share_session_epoch: epoch, topics, .. } = request;
    let key = session_key(broker.images(), call, group_id, member_id)?;
    let is_renewal = call.version >= RENEWS_FROM && request.is_renew_ack;
    let limits = [request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms];
    if is_renewal && limits.iter().any(|limit| *limit != 0) {
        return Err(ErrorCode::InvalidRequest);
    }
    let session = ShareSessionRequest {
        key: key.clone(),
        epoch,
        connection: broker.share_partitions.connection(&call.peer),
        holder: call.holder(),
        added: added(&topics),
        forgotten: forgotten(&request.forgotten_topics_data),
        acknowledges: acknowledgement_batches(&topics).next().is_some(),
        acquires: !is_renewal && request.max_records != 0 && request.max_bytes != 0,
    };
    let begun = broker.share_partitions.begin_session(session).map_err(ShareSessionError::code)?;
    let ShareSessionContext { mut wanted, fetches, end: session, .. } = begun;
    let acknowledgements = Acknowledgements { key: &key, may_renew: call.version >= RENEWS_FROM, is_renewal };
    let batches = acknowledgement_batches(&topics);
    let pending = acknowledgements.take(broker.images(), &broker.share_partitions, call, batches);
    if is_renewal {
        wanted.clear();
    }
    // Each fetch starts with the next partition, so that none starves behind a full one. Kafka rotates by the
    // epoch, which acknowledgements and renewals also raise.
    let turned = fetches % wanted.len().max(1);
    wanted.rotate_left(turned);
    let image = broker.image();
    let entries = wanted.into_iter().map(|one| {
        let outcome = match readable(call, &image, one.id) {
            Ok(()) => ShareFetchOutcome::Nothing,
            Err(error) => ShareFetchOutcome::Failed(error),
        };
        ShareFetchEntry { id: one.id, is_new: one.is_new, outcome, led: None }
    });
    let mut entries: Vec<ShareFetchEntry> = entries.collect();
    let mode = match request.share_acquire_mode {
        1 => AcquireMode::RecordLimit,
        // Kafka's code for an unknown acquire mode, if there is a partition to acquire from.
        mode if mode != 0 && !entries.iter().all(ShareFetchEntry::is_failed) => {
            return Err(ErrorCode::UnknownServerError);
        }
        _ => AcquireMode::BatchOptimised,
    };
    // New partitions stay new, because no answer has listed them.
    if request.max_records == 0 || request.max_bytes == 0 {
        entries.retain(ShareFetchEntry::is_failed);
    }
    let quota = broker.quotas.fetch_max(&call.caller()).unwrap_or(usize::MAX);
    let clamp = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
    let max_bytes = clamp(request.max_bytes).min(broker.config().network.fetch_max_bytes).min(quota);
    let plan = ShareFetchPlan {
        settings: broker.share_partitions.settings(&key.group),
        entries,
        key,
        epoch,
        session,
        mode,
        records_max: i64::from(request.max_records),
        batch_size: i64::from(request.batch_size),
        min_bytes: clamp(request.min_bytes).min(max_bytes),
        max_bytes,
        max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(WAIT_MAX),
        has_skipped_records: false,
    };
    Ok((plan, pending))
}

/// The partitions that a request names.
fn added(topics: &[FetchTopic]) -> Vec<TopicIdPartition> {
    let mut ids = Vec::new();
    for topic in topics {
        let indexes = topic.partitions.iter().map(|partition| PartitionIndex(partition.partition_index));
        ids.extend(indexes.map(|index| (topic.topic_id, index)));
    }
    ids
}

/// The partitions that a session loses.
fn forgotten(topics: &[ForgottenTopic]) -> Vec<TopicIdPartition> {
    let mut ids = Vec::new();
    for topic in topics {
        ids.extend(topic.partitions.iter().map(|index| (topic.topic_id, PartitionIndex(*index))));
    }
    ids
}

/// The acknowledgements of a request by partition, for all its partitions if any has acknowledgements.
fn acknowledgement_batches(
    topics: &[FetchTopic],
) -> impl Iterator<Item = (TopicIdPartition, Vec<AckBatch<'_>>)> {
    let mut partitions = topics.iter().flat_map(|topic| &topic.partitions);
    let acknowledges = partitions.any(|partition| !partition.acknowledgement_batches.is_empty());
    let topics = if acknowledges { topics } else { &[] };
    topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| {
            let batches = partition.acknowledgement_batches.iter();
            let batches =
                batches.map(|batch| (batch.first_offset, batch.last_offset, &*batch.acknowledge_types));
            ((topic.topic_id, PartitionIndex(partition.partition_index)), batches.collect())
        })
    })
}

impl ShareFetchEntry {
    /// True if the partition cannot be read.
    fn is_failed(&self) -> bool {
        matches!(self.outcome, ShareFetchOutcome::Failed(_))
    }
}

/// The replica of a partition here, or the error for the client.
fn here(broker: &Broker, id: TopicIdPartition) -> Result<Arc<Partition>, ErrorCode> {
    let topic = broker.partitions.topic_by_id(id.0);
    let partition = topic.and_then(|topic| topic.partition(id.1));
    partition.ok_or_else(|| TopicRef::Id(id.0).missing(broker.node_id, &broker.image(), id.1))
}

impl ShareFetchPlan {
    /// Finds the share partitions.
    fn find(&mut self, broker: &Arc<Broker>) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_failed()) {
            let found = here(broker, entry.id).and_then(|partition| {
                Ok((broker.share_partitions.find_or_load(&self.key.group, &partition)?, partition))
            });
            match found {
                Ok(found) => entry.led = Some(found),
                Err(error) => entry.outcome = ShareFetchOutcome::Failed(error),
            }
        }
    }

    /// True if the answer should be sent.
    fn is_ready(&self) -> bool {
        let any = |is: fn(&ShareFetchOutcome) -> bool| self.entries.iter().any(|entry| is(&entry.outcome));
        let has_records = any(|outcome| matches!(outcome, ShareFetchOutcome::Acquired(_)));
        let wants_nothing = self.records_max <= 0 || self.max_bytes == 0;
        let waits_for_nothing =
            self.min_bytes == 0 && !any(|outcome| matches!(outcome, ShareFetchOutcome::Loading));
        let all_failed = !any(
            |outcome| !matches!(outcome, ShareFetchOutcome::Failed(error) if is_reported_at_once(*error)),
        );
        has_records || wants_nothing || waits_for_nothing || all_failed || self.has_skipped_records
    }

    /// Number of records that the fetch may still acquire.
    fn records_left(&self) -> i64 {
        let acquired = self.entries.iter().map(|entry| match &entry.outcome {
            ShareFetchOutcome::Acquired(batch) => batch.records,
            _ => 0,
        });
        self.records_max - acquired.sum::<i64>()
    }

    /// Maximum bytes per partition. As in Kafka, max.bytes is divided evenly.
    fn bytes_of_each(&self) -> usize {
        let open = self.entries.iter().filter(|entry| !entry.is_failed());
        (self.max_bytes / open.count().max(1)).max(1)
    }
}

/// True if an error must be reported without delay. After other errors the member would retry immediately,
/// with the same result.
fn is_reported_at_once(error: ErrorCode) -> bool {
    !matches!(error, ErrorCode::UnknownServerError | ErrorCode::CoordinatorNotAvailable)
}

/// Acquires available records; unless `takes_less`, only if there are enough.
fn attempt(share_partitions: &LedSharePartitions, plan: &mut ShareFetchPlan, takes_less: bool) {
    let is_enough = takes_less || plan.min_bytes <= 1 || has_min_bytes(plan);
    if plan.records_max <= 0 || plan.max_bytes == 0 || !is_enough {
        return;
    }
    let (max_bytes, now_ms) = (plan.bytes_of_each(), share_partitions.now_ms());
    let mut is_first = true;
    for at in 0..plan.entries.len() {
        let records = plan.records_left();
        if records <= 0 {
            return;
        }
        let Some((led, partition)) = plan.entries[at].open() else { continue };
        let request = ReadRequest {
            member: &plan.key.member,
            session: &plan.session,
            mode: plan.mode,
            records,
            batch_size: plan.batch_size,
            max_bytes,
            at_least_one: is_first,
        };
        plan.entries[at].outcome = match led.acquire(partition, &request, &plan.settings, now_ms) {
            ReadOutcome::Loading => ShareFetchOutcome::Loading,
            ReadOutcome::Nothing => ShareFetchOutcome::Nothing,
            ReadOutcome::Again => {
                plan.has_skipped_records = true;
                ShareFetchOutcome::Nothing
            }
            ReadOutcome::Failed(error) => ShareFetchOutcome::Failed(error),
            ReadOutcome::Acquired(batch) => {
                is_first = false;
                ShareFetchOutcome::Acquired(batch)
            }
        };
    }
}

/// True if min.bytes are available.
fn has_min_bytes(plan: &ShareFetchPlan) -> bool {
    let max_bytes = plan.bytes_of_each();
    let mut found = 0;
    for (led, partition) in plan.entries.iter().filter_map(ShareFetchEntry::open) {
        let (bytes, is_more) = led.available_bytes(partition, max_bytes, &plan.settings);
        found += bytes;
        if is_more || found >= plan.min_bytes {
            return true;
        }
    }
    false
}

/// Waits for records, or for max.wait.ms.
async fn wait(share_partitions: &LedSharePartitions, plan: &mut ShareFetchPlan) {
    let deadline = Instant::now() + plan.max_wait;
    loop {
        // Watch first, then read, so that no change is missed.
        let waiter = Waiter::begin(1);
        for (led, partition) in plan.entries.iter().filter_map(ShareFetchEntry::open) {
            if led.watch(&waiter, &plan.settings) {
                partition.watch(Reader::Client, PartitionSnapshot::default(), &waiter);
            }
        }
        attempt(share_partitions, plan, false);
        if plan.is_ready() {
            return;
        }
        if tokio::time::timeout_at(deadline, waiter.woken()).await.is_err() {
            attempt(share_partitions, plan, true);
            return;
        }
    }
}

impl ShareFetchEntry {
    /// The share partition, if records may still be acquired.
    fn open(&self) -> Option<(&LedSharePartition, &Partition)> {
        let is_open = matches!(self.outcome, ShareFetchOutcome::Nothing | ShareFetchOutcome::Loading);
        self.led.as_ref().filter(|_| is_open).map(|(led, partition)| (&**led, &**partition))
    }
}
